// `work-item-gateway health`: whether a gateway on this machine is alive, by its exit code.

import assert from 'node:assert/strict';
import { createServer } from 'node:http';
import { once } from 'node:events';
import type { AddressInfo } from 'node:net';
import { test } from 'node:test';

import { findFreePort } from '../helpers/haproxy.ts';
import { answer, ScriptedBackend } from '../helpers/scripted-backend.ts';
import { runCommand, startCommand } from '../helpers/targets.ts';

async function ask(environment: NodeJS.ProcessEnv) {
  await using command = runCommand(['health'], environment);
  const code = await command.exitCode();
  return { code, stdout: command.stdout, stderr: command.stderr };
}

const aliveAt = (place: string) => ({
  code: 0,
  stdout: `alive: http://${place}/livez answered 200 {"status":"alive"}\n`,
  stderr: '',
});

test('a gateway that runs is alive, whatever address it listens on, and while it drains', async () => {
  const backend = await ScriptedBackend.start();
  backend.answers(answer('[]'));
  for (const host of ['127.0.0.1', '0.0.0.0']) {
    await using gateway = await startCommand({
      BACKEND_URL: backend.url,
      ADMIN_HOST: host,
      SHUTDOWN_DELAY_MS: '60000',
    });
    const environment = { ADMIN_HOST: host, ADMIN_PORT: String(gateway.adminPort) };
    const alive = aliveAt(`${host === '0.0.0.0' ? 'localhost' : host}:${gateway.adminPort}`);
    assert.deepEqual(await ask(environment), alive);
    // What is not its affair may be wrong.
    assert.deepEqual(await ask({ ...environment, BACKEND_URL: 'nonsense', PORT: 'x' }), alive);
    gateway.signal('SIGTERM');
    await gateway.log((line) => String(line['msg']).startsWith('draining'), 'it drains');
    assert.deepEqual(await ask(environment), alive);
  }
  await backend.stop();
});

test('where nobody listens, and where somebody else does, the exit code is 1', async () => {
  const free = await findFreePort();
  const nobody = await ask({ ADMIN_PORT: String(free) });
  assert.equal(nobody.code, 1);
  assert.equal(nobody.stdout, '');
  assert.match(
    nobody.stderr,
    new RegExp(`^not alive: http://localhost:${free}/livez does not answer: .*ECONNREFUSED.*\n$`),
  );
  const other = createServer((_, response) => response.writeHead(404).end('\u001b[31mno')).listen(
    0,
    '127.0.0.1',
  );
  await once(other, 'listening');
  const { port } = other.address() as AddressInfo;
  const answered = await ask({ ADMIN_HOST: '127.0.0.1', ADMIN_PORT: String(port) });
  other.close();
  assert.equal(answered.code, 1);
  assert.match(answered.stderr, /^not alive: http:\/\/127\.0\.0\.1:\d+\/livez answered 404 \S+\[31mno\n$/);
  assert.ok(!answered.stderr.includes('\u001b'), 'nothing that a terminal would obey');
});
