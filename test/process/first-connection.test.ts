// After the start, the command connects to the backend, without an HTTP request, and warns until that succeeds [D34].

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer, type AddressInfo, type Socket } from 'node:net';
import { test } from 'node:test';

import { poll } from '../helpers/changes.ts';
import { logged, startCommand, type Command, type LogLine } from '../helpers/command.ts';
import { readState } from '../helpers/dashboard-state.ts';
import { findFreePort } from '../helpers/haproxy.ts';

const warningsOf = ({ logs }: Command): LogLine[] => logs.filter(({ level }) => level === 'warn');

/** A server that sends `answer` on each connection. */
async function listen(answer?: string, port = 0) {
  const sockets: Socket[] = [];
  const server = createServer((socket) => {
    sockets.push(socket.on('error', () => undefined).resume());
    if (answer !== undefined) socket.end(answer);
  });
  await once(server.listen(port, '127.0.0.1'), 'listening');
  return {
    sockets,
    address: `127.0.0.1:${(server.address() as AddressInfo).port}`,
    [Symbol.asyncDispose]: () => server[Symbol.asyncDispose](),
  };
}

/** Resolves when nothing of the start is left to be logged. */
async function logsRequest(command: Command): Promise<void> {
  assert.equal((await command.call('GET', '/nowhere')).status, 404);
  await logged(command, 'request');
}

for (const workers of ['1', '2']) {
  test(`WORKERS=${workers}: a dead backend gets one warning with its address, and a line when it accepts connections`, async () => {
    const port = await findFreePort();
    const backendUrl = `http://127.0.0.1:${port}/base`;
    await using command = await startCommand({ BACKEND_URL: backendUrl, WORKERS: workers });
    const warning = await logged(command, /^the backend does not answer\. Check that the backend is running/);
    assert.match(String(warning['cause']), /^connect ECONNREFUSED 127\.0\.0\.1:/);
    assert.partialDeepStrictEqual(warning, { level: 'warn', pid: command.process.pid, backendUrl });
    await logsRequest(command);
    await using server = await listen(undefined, port);
    assert.partialDeepStrictEqual(await logged(command, 'the backend accepts connections now'), {
      level: 'info',
      backendUrl,
    });
    assert.deepEqual([warningsOf(command), server.sockets.length], [[warning], 1]);
  });

  test(`WORKERS=${workers}: a backend gets one connection without a byte, no warning is written, and the backend is reachable since then`, async () => {
    await using server = await listen();
    const { sockets, address } = server;
    await using command = await startCommand({ BACKEND_URL: `http://${address}`, WORKERS: workers });
    await poll(
      () => sockets.length > 0 && sockets.every(({ readableEnded }) => readableEnded),
      'the connection is closed',
    );
    const at = Date.now();
    command.signal('SIGHUP');
    await logged(command, /^reloaded/);
    await logsRequest(command);
    assert.deepEqual([sockets.length, sockets[0]?.bytesRead, warningsOf(command)], [1, 0, []]);
    const { now } = await readState(command.adminPort);
    assert.ok(now.backend.isReachable && now.backend.since <= at, JSON.stringify([now.backend, at]));
  });
}

test('a backend that does not speak TLS is reported, and gets no request', async () => {
  await using server = await listen('HTTP/1.1 400 Bad Request\r\n\r\n');
  await using command = await startCommand({ BACKEND_URL: `https://${server.address}` });
  const warning = await logged(command, /^no TLS connection to the backend\. The certificate must be valid/);
  assert.equal(warning['cause'], 'the backend does not speak TLS: did you mean http:?');
});

test('a backend that does not finish the handshake delays neither the start nor the end', async () => {
  await using server = await listen();
  const { sockets, address } = server;
  await using command = await startCommand({ BACKEND_URL: `https://${address}` });
  await poll(() => sockets.length === 1, 'the connection');
  command.signal('SIGTERM');
  assert.equal(await command.exitCode(), 0);
  assert.deepEqual(warningsOf(command), []);
  await poll(() => sockets.every(({ closed }) => closed), 'the connection is closed');
});
