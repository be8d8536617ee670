// `work-item-gateway health`: exit code 0 if a gateway on this machine is alive.

import assert from 'node:assert/strict';
import { createServer } from 'node:http';
import { once } from 'node:events';
import type { AddressInfo } from 'node:net';
import { test } from 'node:test';

import { findFreePort } from '../helpers/haproxy.ts';
import { runToEnd } from '../helpers/command-tests.ts';
import { startCommand } from '../helpers/targets.ts';

async function health(environment: NodeJS.ProcessEnv) {
  const { code, stdout, stderr } = await runToEnd(['health'], environment);
  return { code, stdout, stderr };
}

const aliveAt = (place: string) => ({
  code: 0,
  stdout: `alive: http://${place}/livez answered 200 {"status":"alive"}\n`,
  stderr: '',
});

test('a running gateway is alive, on any ADMIN_HOST and during a drain', async () => {
  for (const host of ['127.0.0.1', '0.0.0.0']) {
    await using gateway = await startCommand({
      ADMIN_HOST: host,
      SHUTDOWN_DELAY_MS: '60000',
    });
    const environment = { ADMIN_HOST: host, ADMIN_PORT: String(gateway.adminPort) };
    const alive = aliveAt(`${host === '0.0.0.0' ? 'localhost' : host}:${gateway.adminPort}`);
    assert.deepEqual(await health(environment), alive);
    // Settings that `health` does not use may be invalid.
    assert.deepEqual(await health({ ...environment, BACKEND_URL: 'nonsense', PORT: 'x' }), alive);
    gateway.signal('SIGTERM');
    await gateway.log((line) => String(line['msg']).startsWith('draining'), 'it drains');
    assert.deepEqual(await health(environment), alive);
  }
});

test('without a listener, or with another server on the port, the exit code is 1', async () => {
  const free = await findFreePort();
  const none = await health({ ADMIN_PORT: String(free) });
  assert.equal(none.code, 1);
  assert.equal(none.stdout, '');
  assert.match(
    none.stderr,
    new RegExp(`^not alive: http://localhost:${free}/livez does not answer: .*ECONNREFUSED.*\n$`),
  );
  const other = createServer((_, response) => response.writeHead(404).end('\u001b[31mno')).listen(
    0,
    '127.0.0.1',
  );
  await once(other, 'listening');
  const { port } = other.address() as AddressInfo;
  const answered = await health({ ADMIN_HOST: '127.0.0.1', ADMIN_PORT: String(port) });
  other.close();
  assert.equal(answered.code, 1);
  assert.match(answered.stderr, /^not alive: http:\/\/127\.0\.0\.1:\d+\/livez answered 404 \S+\[31mno\n$/);
  assert.ok(!answered.stderr.includes('\u001b'), 'no escape sequence');
});
