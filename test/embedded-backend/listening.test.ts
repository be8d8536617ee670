// The embedded backend: addresses, failures to start, shutdown, and many requests on one connection.

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { Agent, request, type IncomingMessage } from 'node:http';
import { connect, createServer, Server } from 'node:net';
import { networkInterfaces } from 'node:os';
import { buffer } from 'node:stream/consumers';
import { test } from 'node:test';
import { startEmbeddedBackend } from '../../packages/stand-in-backend/stand-in-server.ts';
import { databaseFile, expect, startBackend } from './backend.ts';

const hasIpv6 = Object.values(networkInterfaces()).some((all) => all?.some(({ address }) => address === '::1'));
const needsIpv6 = { skip: hasIpv6 ? false : 'this system has no ::1' };

test('localhost answers on 127.0.0.1 and on ::1, on the same free port', needsIpv6, async (t) => {
  const backend = await startBackend(t, { host: 'localhost' });
  assert.notEqual(backend.port, 0);
  assert.equal(backend.url, `http://localhost:${backend.port}`);
  const [first, second] = [`http://127.0.0.1:${backend.port}`, `http://[::1]:${backend.port}`];
  await expect(first, 'POST', '{"n":1}', 201, '{"id":1,"n":1}');
  const headers = await expect(second, 'POST', '{"n":2}', 201, '{"id":2,"n":2}');
  assert.equal(headers.get('location'), `${second}/api/WorkItem/2`);
  await backend.expect('GET', undefined, 200, '[{"id":1,"n":1},{"id":2,"n":2}]');
  await backend.stop();
  for (const host of ['127.0.0.1', '::1']) {
    await assert.rejects(once(connect(backend.port, host), 'connect'), { code: 'ECONNREFUSED' });
  }
});

test('if a port is free on 127.0.0.1 but in use on ::1, the backend chooses another port', needsIpv6, async (t) => {
  // eslint-disable-next-line @typescript-eslint/unbound-method -- always called with its server
  const { listen } = Server.prototype;
  const taken: number[] = [];
  t.mock.method(Server.prototype, 'listen', function (this: Server, options: { host: string; port: number }) {
    if (options.host !== '::1' || taken.length === 2) return listen.call(this, options);
    taken.push(options.port);
    const other = createServer();
    t.after(() => other.close());
    listen.call(other, options);
    return listen.call(this, options);
  });
  const { port } = await startBackend(t, { host: 'localhost' });
  assert.equal(taken.length, 2);
  assert.ok(!taken.includes(port));
  for (const host of ['[::1]', '127.0.0.1']) await expect(`http://${host}:${port}`, 'GET', undefined, 200, '[]');
});

test('if the port is in use, the start fails with advice', async (t) => {
  const { port } = await startBackend(t);
  for (const host of ['localhost', '127.0.0.1']) {
    const { message, code, cause } = await startEmbeddedBackend({ host, port, database: ':memory:' }).then(
      () => assert.fail('it starts'),
      (error: unknown) => error as NodeJS.ErrnoException,
    );
    const advice = 'stop the program that uses it, or choose another port with --embedded-backend-port (EMBEDDED_BACKEND_PORT)';
    assert.deepEqual([message, code], [`port ${port} on 127.0.0.1 is in use: ${advice}`, 'EADDRINUSE']);
    assert.ok(cause instanceof Error);
  }
}); // prettier-ignore

test('idle connections, and connections that have sent nothing or half a head, do not delay the stop', async (t) => {
  const { port, stop } = await startBackend(t, { host: 'localhost' });
  const whole = 'GET /api/WorkItem HTTP/1.1\r\nHost: a\r\n\r\n';
  const sockets = ['127.0.0.1', ...(hasIpv6 ? ['::1'] : [])].flatMap((host) =>
    // Half a head follows a whole head: the answer to the whole head proves that the bytes have arrived.
    [whole, '', `${whole}GET /api/WorkItem HTT`].map((sent) => {
      const socket = connect(port, host);
      socket.on('error', () => undefined).write(sent);
      return { socket, awaited: sent === '' ? 'connect' : 'data' };
    }),
  );
  await Promise.all(sockets.map(({ socket, awaited }) => once(socket, awaited)));
  const closed = sockets.map(({ socket }) => new Promise((resolve) => socket.resume().once('close', resolve)));
  const started = performance.now();
  await Promise.all([stop(), stop()]);
  await Promise.all(closed);
  assert.ok(performance.now() - started < 4_500);
});

test('an answer that has begun is completed; then its connection closes', async (t) => {
  const { url, open, stop } = await startBackend(t);
  const text = 'x'.repeat(25_000_000);
  await expect(url, 'POST', `{"a":"${text}"}`, 201, `{"id":1,"a":"${text}"}`);
  const socket = await open();
  socket.write('GET /api/WorkItem/1 HTTP/1.1\r\nHost: a\r\n\r\n');
  await once(socket, 'readable');
  const started = performance.now();
  const stopped = stop();
  const answer = (await buffer(socket)).toString();
  assert.match(answer.slice(0, 200), /^HTTP\/1\.1 200 OK\r\n(?:.*\r\n)*connection: keep-alive\r\n/i);
  assert.ok(answer.endsWith(`\r\n\r\n{"id":1,"a":"${text}"}`));
  await stopped;
  assert.ok(performance.now() - started < 4_500);
});

test('a request in flight is completed before the stop; a request that never ends is cut off after 5 s', async (t) => {
  const head =
    'POST /api/WorkItem HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nExpect: 100-continue\r\nContent-Length: 7\r\n\r\n';
  const database = databaseFile(t);
  const { open, stop } = await startBackend(t, { database });
  const [complete, endless] = [await open(), await open()];
  for (const socket of [complete, endless]) {
    socket.write(head);
    const [interim] = (await once(socket, 'data')) as [Buffer];
    assert.equal(interim.toString(), 'HTTP/1.1 100 Continue\r\n\r\n');
  }
  const started = performance.now();
  const stopped = stop();
  complete.write('{"n":1}');
  const answer = (await buffer(complete)).toString();
  assert.match(answer, /^HTTP\/1\.1 201 Created\r\nconnection: close\r\n/i);
  assert.ok(answer.endsWith('\r\n\r\n{"id":1,"n":1}'));
  await stopped;
  assert.ok(performance.now() - started > 4_900);
  await (await startBackend(t, { database })).expect('GET', undefined, 200, '[{"id":1,"n":1}]');
});

test('400 requests in a row use one connection and cause no warning', async (t) => {
  const warnings: Error[] = [];
  const onWarning = (warning: Error): void => void warnings.push(warning);
  process.on('warning', onWarning);
  t.after(() => process.off('warning', onWarning));
  const { port } = await startBackend(t);
  const agent = new Agent({ keepAlive: true, maxSockets: 1 });
  t.after(() => agent.destroy());
  const ports = new Set<number | undefined>();
  for (let id = 1; id <= 100; id++) {
    for (const [method, path, body, expected] of [
      ['POST', '', '{"n":1.0}', `201 {"id":${id},"n":1.0}`],
      ['PUT', `/${id}`, '{"n":2}', '204 '],
      ['GET', `/${id}`, '', `200 {"id":${id},"n":2}`],
      ['DELETE', `/${id}`, '', '204 '],
    ] as const) {
      const headers = { 'content-type': 'application/json', 'content-length': body.length };
      const sent = request({ agent, host: '127.0.0.1', port, method, path: `/api/WorkItem${path}`, headers }).end(body);
      const [answer] = (await once(sent, 'response')) as [IncomingMessage];
      ports.add(answer.socket.localPort);
      assert.equal(`${answer.statusCode} ${(await buffer(answer)).toString()}`, expected);
    }
  }
  assert.deepEqual([ports.size, warnings], [1, []]);
});
