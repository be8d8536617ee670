// After the start, the command connects to the backend once, without an HTTP request, and warns if that fails [D34].

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer, type AddressInfo, type Socket } from 'node:net';
import { test } from 'node:test';

import { poll } from '../helpers/changes.ts';
import { logged, startCommand, type Command, type LogLine } from '../helpers/command.ts';
import { findFreePort } from '../helpers/haproxy.ts';
import { useBackend } from '../helpers/suites.ts';

const backend = await useBackend();
const warningsOf = ({ logs }: Command): LogLine[] => logs.filter(({ level }) => level === 'warn');

for (const workers of ['1', '2']) {
  test(`WORKERS=${workers}: a dead backend gets one warning, after the gateway is ready`, async () => {
    const url = `http://127.0.0.1:${await findFreePort()}`;
    await using command = await startCommand({ BACKEND_URL: url, WORKERS: workers });
    const warning = await logged(command, /^the backend does not answer\. Check that the backend is running/);
    assert.match(String(warning['cause']), /^connect ECONNREFUSED 127\.0\.0\.1:/);
    assert.deepEqual([warning['level'], warning['pid']], ['warn', command.process.pid]);
    // The log has this line only when nothing else is to come.
    assert.equal((await command.call('GET', '/nowhere')).status, 404);
    await logged(command, 'request');
    assert.deepEqual(warningsOf(command), [warning]);
  });

  test(`WORKERS=${workers}: a backend gets one connection without a byte, and no warning is written`, async () => {
    const sockets: Socket[] = [];
    let bytes = 0;
    await using server = createServer((socket) => sockets.push(socket.on('data', ({ length }) => (bytes += length))));
    await once(server.listen(0, '127.0.0.1'), 'listening');
    const { port } = server.address() as AddressInfo;
    await using command = await startCommand({ BACKEND_URL: `http://127.0.0.1:${port}`, WORKERS: workers });
    await poll(
      () => sockets.length > 0 && sockets.every(({ readableEnded }) => readableEnded),
      'the connection is closed',
    );
    assert.equal((await command.call('GET', '/nowhere')).status, 404);
    await logged(command, 'request');
    assert.deepEqual([sockets.length, bytes, warningsOf(command)], [1, 0, []]);
  });
}

test('a backend that does not speak TLS is reported, and gets no request', async () => {
  await using server = createServer((socket) => socket.resume().end('HTTP/1.1 400 Bad Request\r\n\r\n'));
  await once(server.listen(0, '127.0.0.1'), 'listening');
  const { port } = server.address() as AddressInfo;
  await using command = await startCommand({ BACKEND_URL: `https://127.0.0.1:${port}` });
  const warning = await logged(command, /^no TLS connection to the backend\. The certificate must be valid/);
  assert.equal(warning['cause'], 'the backend does not speak TLS: did you mean http:?');
});

test('a backend that does not finish the handshake delays neither the start nor the end', async () => {
  const sockets: Socket[] = [];
  await using server = createServer((socket) => sockets.push(socket.on('error', () => undefined).resume()));
  await once(server.listen(0, '127.0.0.1'), 'listening');
  const { port } = server.address() as AddressInfo;
  await using command = await startCommand({ BACKEND_URL: `https://127.0.0.1:${port}` });
  await poll(() => sockets.length === 1, 'the connection');
  command.signal('SIGTERM');
  assert.equal(await command.exitCode(), 0);
  assert.deepEqual(warningsOf(command), []);
  await poll(() => sockets.every(({ closed }) => closed), 'the connection is closed');
});

test('a reload does not connect again', async () => {
  await using command = await startCommand({ BACKEND_URL: backend.url });
  await backend.until(() => backend.connectionsTaken === 1, 'the connection');
  command.signal('SIGHUP');
  await logged(command, /^reloaded/);
  assert.equal(backend.connectionsTaken, 1);
  assert.deepEqual(backend.requests, []);
});
