// After the start, the command connects to the backend, without an HTTP request, and warns until that succeeds [D34].

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer, type Socket } from 'node:net';
import { test } from 'node:test';
import { poll } from '../helpers/changes.ts';
import { logged, startCommand, type Command, type LogLine } from '../helpers/command.ts';
import { readState } from '../helpers/dashboard-state.ts';
import { findFreePort } from '../helpers/haproxy.ts';

const warningsOf = ({ logs }: Command): LogLine[] => logs.filter(({ level }) => level === 'warn');

/** A server that sends `answer` on each connection. */
async function listen(answer?: string) {
  const sockets: Socket[] = [];
  const server = createServer((socket) => {
    sockets.push(socket.on('error', () => undefined).resume());
    if (answer !== undefined) socket.end(answer);
  });
  const port = await findFreePort();
  const start = () => once(server.listen(port, '127.0.0.1'), 'listening');
  const close = () => (server.listening ? server[Symbol.asyncDispose]() : Promise.resolve());
  return { sockets, start, address: `127.0.0.1:${port}`, [Symbol.asyncDispose]: close };
}

for (const [WORKERS, isAlive] of [['1', false], ['2', false], ['1', true], ['2', true]] as const) {
  test(`WORKERS=${WORKERS}: a backend that is ${isAlive ? 'alive gets no' : 'dead gets one'} warning, one connection without a byte when it is alive, and is reachable since then`, async () => {
    await using server = await listen();
    if (isAlive) await server.start();
    const backendUrl = `http://${server.address}/base`;
    await using command = await startCommand({ BACKEND_URL: backendUrl, WORKERS });
    if (!isAlive) {
      const warning = await logged(command, /^the backend does not answer\. Check that the backend is running/);
      assert.match(String(warning['cause']), /^connect ECONNREFUSED 127\.0\.0\.1:/);
      assert.partialDeepStrictEqual(warning, { level: 'warn', pid: command.process.pid, backendUrl });
      await server.start();
      const line = await logged(command, 'the backend accepts connections now');
      assert.partialDeepStrictEqual(line, { level: 'info', backendUrl });
    }
    await poll(() => server.sockets.length > 0, 'the connection');
    await poll(() => server.sockets.every(({ readableEnded }) => readableEnded), 'the connection is closed');
    const at = Date.now();
    command.signal('SIGHUP');
    await logged(command, /^reloaded/);
    assert.equal((await command.call('GET', '/nowhere')).status, 404);
    await logged(command, 'request');
    const found = [server.sockets.length, server.sockets[0]?.bytesRead, warningsOf(command).length];
    assert.deepEqual(found, [1, 0, isAlive ? 0 : 1]);
    const { now } = await readState(command.adminPort);
    assert.ok(now.backend.isReachable && now.backend.since <= at, JSON.stringify([now.backend, at]));
  });
} // prettier-ignore

for (const [what, answer, expected] of [
  ['does not speak TLS is reported', 'HTTP/1.1 400 Bad Request\r\n\r\n', 'the backend does not speak TLS: did you mean http:?'],
  ['does not finish the handshake delays neither the start nor the end', undefined, undefined],
] as const) {
  test(`a backend that ${what}, and gets no request`, async () => {
    await using server = await listen(answer);
    await server.start();
    await using command = await startCommand({ BACKEND_URL: `https://${server.address}` });
    await poll(() => server.sockets.length > 0, 'the connection');
    if (expected !== undefined) {
      const warning = await logged(command, /^no TLS connection to the backend\. If the backend speaks TLS, its certificate/);
      assert.equal(warning['cause'], expected);
    }
    command.signal('SIGTERM');
    assert.equal(await command.exitCode(), 0);
    assert.equal(warningsOf(command).length, expected === undefined ? 0 : 1);
    await poll(() => server.sockets.every(({ closed }) => closed), 'the connection is closed');
  });
} // prettier-ignore
