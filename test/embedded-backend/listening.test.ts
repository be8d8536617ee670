// The embedded backend: addresses, failures to start, shutdown, and 1,000 requests on one connection.

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { Agent, request, type IncomingMessage } from 'node:http';
import { connect, createServer, Server, type AddressInfo } from 'node:net';
import { networkInterfaces } from 'node:os';
import { buffer } from 'node:stream/consumers';
import { describe, test, type TestContext } from 'node:test';
import { startEmbeddedBackend } from '../../packages/stand-in-backend/stand-in-server.ts';
import { assertJson, databaseFile, send, startBackend } from './backend.ts';

const hasIpv6 = Object.values(networkInterfaces()).some((all) => all?.some(({ address }) => address === '::1'));
const needsIpv6 = { skip: hasIpv6 ? false : 'this system has no ::1' };

async function takePort(t: TestContext): Promise<number> {
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  t.after(() => server.close());
  return (server.address() as AddressInfo).port;
}

describe('listening', () => {
  test('localhost answers on 127.0.0.1 and on ::1, on the same free port', needsIpv6, async (t) => {
    const backend = await startBackend(t, { host: 'localhost' });
    assert.notEqual(backend.port, 0);
    assert.equal(backend.url, `http://localhost:${backend.port}`);
    assertJson(
      await send(`http://127.0.0.1:${backend.port}`, 'POST', '/api/WorkItem', '{"n":1}'),
      201,
      '{"id":1,"n":1}',
    );
    const second = await send(`http://[::1]:${backend.port}`, 'POST', '/api/WorkItem', '{"n":2}');
    assertJson(second, 201, '{"id":2,"n":2}');
    assert.equal(second.headers.get('location'), `http://[::1]:${backend.port}/api/WorkItem/2`);
    assertJson(await send(backend.url, 'GET', '/api/WorkItem'), 200, '[{"id":1,"n":1},{"id":2,"n":2}]');
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
    assertJson(await send(`http://[::1]:${port}`, 'GET', '/api/WorkItem'), 200, '[]');
    assertJson(await send(`http://127.0.0.1:${port}`, 'GET', '/api/WorkItem'), 200, '[]');
  });

  test('if the port is in use, the start fails with advice', async (t) => {
    const port = await takePort(t);
    const database = databaseFile(t);
    for (const host of ['localhost', '127.0.0.1']) {
      await assert.rejects(startEmbeddedBackend({ host, port, database }), (error: NodeJS.ErrnoException) => {
        assert.equal(error.code, 'EADDRINUSE');
        assert.ok(error.cause instanceof Error);
        assert.equal(
          error.message,
          `port ${port} on 127.0.0.1 is in use: stop the program that uses it, or choose another port with ` +
            '--embedded-backend-port (EMBEDDED_BACKEND_PORT)',
        );
        return true;
      });
    }
  });
});

describe('stopping', () => {
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
    const { url, port, stop } = await startBackend(t);
    const text = 'x'.repeat(25_000_000);
    await send(url, 'POST', '/api/WorkItem', `{"a":"${text}"}`);
    const socket = connect(port, '127.0.0.1');
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

  test('a request in flight is completed before the stop', async (t) => {
    const database = databaseFile(t);
    const { port, stop } = await startBackend(t, { database });
    const socket = connect(port, '127.0.0.1');
    socket.write(
      'POST /api/WorkItem HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n' +
        'Expect: 100-continue\r\nContent-Length: 7\r\n\r\n',
    );
    const [interim] = (await once(socket, 'data')) as [Buffer];
    assert.equal(interim.toString(), 'HTTP/1.1 100 Continue\r\n\r\n');
    const stopped = stop();
    socket.write('{"n":1}');
    const answer = (await buffer(socket)).toString();
    assert.match(answer, /^HTTP\/1\.1 201 Created\r\nconnection: close\r\n/i);
    assert.ok(answer.endsWith('\r\n\r\n{"id":1,"n":1}'));
    await stopped;
    const second = await startBackend(t, { database });
    assertJson(await send(second.url, 'GET', '/api/WorkItem'), 200, '[{"id":1,"n":1}]');
  });

  test('a request that never ends is cut off after 5 s', async (t) => {
    const { port, stop } = await startBackend(t);
    const socket = connect(port, '127.0.0.1');
    socket.on('error', () => undefined);
    socket.write(
      'POST /api/WorkItem HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n' +
        'Expect: 100-continue\r\nContent-Length: 7\r\n\r\n',
    );
    await once(socket, 'data');
    const started = performance.now();
    await stop();
    const took = performance.now() - started;
    assert.ok(took > 4_900, `${took} ms`);
  });
});

test('1,000 requests in a row use one connection and cause no warning', async (t) => {
  const warnings: Error[] = [];
  const onWarning = (warning: Error): void => void warnings.push(warning);
  process.on('warning', onWarning);
  t.after(() => process.off('warning', onWarning));
  const { port } = await startBackend(t, { host: 'localhost' });
  const agent = new Agent({ keepAlive: true, maxSockets: 1 });
  t.after(() => agent.destroy());
  const ports = new Set<number | undefined>();
  const call = async (method: string, path: string, body = ''): Promise<[number | undefined, string]> => {
    const headers = { 'content-type': 'application/json', 'content-length': body.length };
    const sent = request({ agent, host: hasIpv6 ? '::1' : '127.0.0.1', port, method, path, headers }).end(body);
    const [answer] = (await once(sent, 'response')) as [IncomingMessage];
    ports.add(answer.socket.localPort);
    return [answer.statusCode, (await buffer(answer)).toString()];
  };
  for (let id = 1; id <= 250; id++) {
    const path = `/api/WorkItem/${id}`;
    assert.deepEqual(await call('POST', '/api/WorkItem', '{"n":1.0}'), [201, `{"id":${id},"n":1.0}`]);
    assert.deepEqual(await call('PUT', path, '{"n":2}'), [204, '']);
    assert.deepEqual(await call('GET', path), [200, `{"id":${id},"n":2}`]);
    assert.deepEqual(await call('DELETE', path), [204, '']);
  }
  assert.deepEqual(await call('GET', '/api/WorkItem'), [200, '[]']);
  assert.equal(ports.size, 1);
  assert.deepEqual(warnings, []);
});
