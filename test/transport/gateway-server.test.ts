// `createGatewayServer`: the order of listen and close, and connections that cannot be accepted.

import assert from 'node:assert/strict';
import { execFile, execFileSync } from 'node:child_process';
import dns from 'node:dns';
import { Server } from 'node:net';
import { join, resolve } from 'node:path';
import { describe, test } from 'node:test';
import { promisify } from 'node:util';
import { createGatewayServer } from '../../packages/core/hosts/index.ts';
import { createObserver } from '../helpers/gateway.ts';
import { findFreePort } from '../helpers/haproxy.ts';
import { isRefused, RawClient } from '../helpers/raw-client.ts';
import { useFolder } from '../helpers/suites.ts';

const folder = useFolder();
const backendUrl = 'http://localhost:1';
const closed = 'Error: the server was closed';

test('the errors of a server have a code, and `await using` closes it', async () => {
  let port: number;
  {
    await using server = createGatewayServer({ backendUrl });
    ({ port } = await server.listen(0, '127.0.0.1'));
    await assert.rejects(server.listen(0), { code: 'ERR_GATEWAY_LISTEN' });
    assert.throws(() => server.renewTls({} as never), { code: 'ERR_GATEWAY_OPTIONS' });
    await server.close();
    await assert.rejects(server.listen(0), { code: 'ERR_GATEWAY_CLOSED' });
  }
  assert.equal(await isRefused(port), true);
  const authJwksFile = join(folder, 'no-keys.json');
  const tokens = { authIssuer: 'https://issuer.example', authAudience: ['a'], authJwksFile };
  await using server = createGatewayServer({ backendUrl, ...tokens });
  await assert.rejects(server.listen(0), { code: 'ERR_GATEWAY_KEYS' });
});

describe('createGatewayServer leaves no port open after', () => {
  // How each call ends if it is made after the previous one has ended, and if all are made at once.
  for (const [order, inTurn, atOnce] of [
    ['close listen', `done; ${closed}`, `done; ${closed}`],
    ['listen close close', 'done; done; done', `${closed}; done; done`],
    ['listen close listen close', `done; done; ${closed}; done`, `${closed}; done; ${closed}; done`],
    ['listen listen close', 'done; Error: listen() was called before; done', `${closed}; Error: listen() was called before; done`],
  ] as const) {
    test(order, async () => {
      for (const [host, waits] of [['localhost', true], ['localhost', false], ['127.0.0.1', false]] as const) {
        const port = await findFreePort();
        const server = createGatewayServer({ backendUrl });
        const results: Promise<string>[] = [];
        for (const name of order.split(' ')) {
          const called = name === 'listen' ? server.listen(port, host) : server.close();
          results.push(called.then(() => 'done', String));
          if (waits) await results.at(-1);
        }
        assert.equal((await Promise.all(results)).join('; '), waits ? inTurn : atOnce);
        assert.equal(await isRefused(port), true);
      }
    });
  } // prettier-ignore

  test('close while the name of the host is resolved', async (t) => {
    const port = await findFreePort();
    const asked = Promise.withResolvers<() => void>();
    t.mock.method(dns, 'lookup', (_name: string, _options: object, done: (...result: unknown[]) => void) => {
      asked.resolve(() => done(null, '127.0.0.1', 4));
    });
    const server = createGatewayServer({ backendUrl });
    const listening = server.listen(port, 'slow.example').catch(String);
    const answer = await asked.promise;
    await server.close();
    assert.equal(await listening, closed);
    answer();
    t.mock.restoreAll();
    await new Promise(setImmediate);
    assert.equal(await isRefused(port), true);
  });

  test('close while a slow key file is read; the process then ends', async () => {
    const fifo = join(folder, 'keys');
    execFileSync('mkfifo', [fifo]);
    const program = `
      import { writeFile } from 'node:fs/promises';
      import { createGatewayServer } from './packages/core/hosts/index.ts';
      const guards = { authIssuer: 'x', authAudience: ['x'], authJwksFile: '${fifo}' };
      const server = createGatewayServer({ backendUrl: '${backendUrl}', ...guards });
      const listening = server.listen(0).then(() => 'listens', String);
      await server.close();
      console.log(await listening);
      await writeFile('${fifo}', '{"keys":[]}');`;
    const options = { cwd: resolve(import.meta.dirname, '../..'), timeout: 10_000 };
    const { stdout } = await promisify(execFile)(process.execPath, ['--input-type=module', '-e', program], options);
    assert.equal(stdout, `${closed}\n`);
  });
});

test('after a failed listen, a server can listen on another port', async () => {
  await using first = createGatewayServer({ backendUrl });
  await using second = createGatewayServer({ backendUrl });
  const { port } = await first.listen(0);
  await assert.rejects(second.listen(port), { code: 'EADDRINUSE' });
  assert.equal(await isRefused((await second.listen(0)).port), false);
});

test('close cuts a connection with an incomplete request after shutdownTimeoutMs [D33]', async () => {
  const server = createGatewayServer({ backendUrl, shutdownTimeoutMs: 50, requestHeadersTimeoutMs: 60_000 });
  await using client = await RawClient.open((await server.listen(0, '127.0.0.1')).port);
  client.send('GET / HT');
  await server.close();
  await client.closed(3_000);
});

const activeHandles = () => (process as unknown as { _getActiveHandles: () => object[] })._getActiveHandles();

test('a connection that cannot be accepted is reported, and the server continues', async () => {
  for (const host of ['127.0.0.1', 'localhost']) {
    const { told, observer } = createObserver();
    const before = new Set(activeHandles());
    await using server = createGatewayServer({ backendUrl, observer });
    const { port } = await server.listen(0, host);
    const listeners = activeHandles().flatMap((each) => (each instanceof Server && !before.has(each) ? [each] : []));
    assert.ok(listeners.length > 0);
    for (const each of [...listeners, ...listeners]) each.emit('error', new Error('accept EMFILE'));
    assert.deepEqual(told.outages, [['accept', 'accept EMFILE']]);
    await using client = await RawClient.open(port);
    assert.equal((await client.call('GET', '/nowhere')).status, 404);
    assert.deepEqual(told.outages[1], ['accept', undefined]);
  }
});
