// `app.close()` drains as the command does on a signal: calls in flight get their replies, then the server closes,
// at the latest after its shutdown timeout [D55, D33].

import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import dns from 'node:dns';
import { once } from 'node:events';
import type { AddressInfo, Socket } from 'node:net';
import { resolve } from 'node:path';
import { describe, test } from 'node:test';
import { promisify } from 'node:util';
import type { FastifyInstance } from 'fastify';
import { workItemGateway } from '../../packages/core/hosts/index.ts';
import { createGate, poll, within } from '../helpers/changes.ts';
import { assertReply, operation, operations, succeeded } from '../helpers/expected.ts';
import { calling, hosts, serve } from './hosts.ts';
import { isRefused, RawClient, requestBytes } from '../helpers/raw-client.ts';
import { answer, behind, latency, timeout } from '../helpers/scripted-backend.ts';

const update = operation(4);
const kinds = hosts.map((host, index) => ({ ...host, options: index === 0 ? {} : { forceCloseConnections: true } }));

/** Calls `app.close()`. `isDone` turns true when the close has ended. */
function close(app: FastifyInstance) {
  const closing = { isDone: false, ended: app.close().then(() => void (closing.isDone = true)) };
  return closing;
}

const add = (app: FastifyInstance) =>
  app.register(workItemGateway, { backendUrl: 'http://127.0.0.1:9', shutdownTimeoutMs: 300 });

for (const { name, create, options } of kinds) {
  describe(name, () => {
    test('close waits for calls in flight, and then ends all connections [D55]', async () => {
      const app = create(options);
      await using server = await serve(app);
      const gate = createGate();
      server.backend.answers(behind(gate, answer('{"id":5}')));
      const clients = await Promise.all(operations.map(() => server.connect()));
      for (const [index, { method, path, options: sent }] of operations.entries()) {
        clients[index]?.send(requestBytes(method, path, sent));
        await server.backend.nextRequest();
      }
      const closing = close(app);
      await poll(() => isRefused(server.port), 'no new connection is accepted');
      assert.ok(!closing.isDone, 'close waits for the calls');
      gate.open();
      for (const [index, { status, body }] of operations.entries()) {
        const reply = (await clients[index]?.reply()) ?? assert.fail();
        assertReply(reply, status, body);
        assert.equal(reply.header('connection'), 'close');
        await clients[index]?.closed();
      }
      await within(closing.ended, 'it closes');
      await poll(() => server.backend.connectionsOpen === 0, 'the connections to the backend are closed');
    });

    test('with return503OnClosing, an open connection gets the 503 of Fastify during close, and ends [D55]', async () => {
      const app = create({ ...options, return503OnClosing: true });
      await using server = await serve(app);
      const gate = createGate();
      await using open = await server.connect();
      assertReply(await open.call('GET', '/api/work-items'), 200, '{"id":5}');
      server.backend.answersOnce(behind(gate, answer('{"id":6}')));
      const held = server.call('GET', '/api/work-items');
      await server.backend.until(() => server.backend.requests.length === 2, 'the held call has reached the backend');
      const closing = close(app);
      await poll(() => isRefused(server.port), 'no new connection is accepted');
      const reply = await open.call('GET', '/api/work-items');
      assert.match(reply.text, /^\{"error":"Service Unavailable",/);
      assert.deepEqual([reply.status, reply.header('connection')], [503, 'close']);
      await open.closed();
      gate.open();
      assertReply(await held, 200, '{"id":6}');
      await within(closing.ended, 'it closes');
    });

    test('with return503OnClosing false, close stops clients that send calls endlessly, and every call gets its reply [D55, D33]', async () => {
      const app = create({ ...options, return503OnClosing: false });
      await using server = await serve(app);
      const gate = createGate();
      server.backend.answersOnce(behind(gate, answer('{"id":6}')));
      server.backend.answers(latency(5, answer('{"id":5}')));
      const held = server.call('GET', '/api/work-items');
      await server.backend.nextRequest();
      let isClosing = false;
      // Opens a new connection for each closed one, until the server refuses connections.
      const load = async (): Promise<void> => {
        for (;;) {
          const isLate = isClosing;
          const client = await server.connect().catch(() => undefined);
          if (client === undefined) return;
          for (let connection: string | undefined; connection !== 'close';) {
            // The OS may open a connection that the server then does not accept. Such a connection is reset.
            const reply = await client.call('GET', '/api/work-items/5').catch((error: unknown) => {
              if (!isLate) throw error;
            });
            if (reply !== undefined) assertReply(reply, 200, '{"id":5}');
            connection = reply?.header('connection') ?? 'close';
          }
          client.destroy();
        }
      };
      const clients = Array.from({ length: 8 }, load);
      await server.backend.until(() => server.backend.requests.length > 40, 'the load has begun');
      isClosing = true;
      const closing = close(app);
      await within(Promise.all(clients), 'the load ends', 3_000);
      assert.ok(!closing.isDone, 'close waits for the call');
      gate.open();
      assertReply(await held, 200, '{"id":6}');
      await within(closing.ended, 'it closes', 3_000);
    });

    test("Fastify's pluginTimeout does not cut off calls in flight [D55]", async () => {
      const pluginTimeout = 400;
      const cutsItself = Object.keys(options).length > 0;
      const app = create({ ...options, pluginTimeout });
      await using server = await serve(app);
      server.backend.answers(latency(cutsItself ? pluginTimeout / 4 : 2 * pluginTimeout, answer('{}')));
      await using client = await server.connect();
      client.send(requestBytes('PUT', update.path, { body: '1' }));
      await server.backend.nextRequest();
      const closing = close(app);
      assertReply(await client.reply(), 200, succeeded);
      client.destroy();
      await within(closing.ended, 'it closes');
    });

    test('close waits for requests in hooks and for requests that are still arriving [D55]', async () => {
      const app = create(options);
      const hooksGate = createGate();
      let hooks = 0;
      app.addHook('preHandler', ({ headers }) =>
        headers['x-slow'] === undefined ? Promise.resolve() : hooksGate.opened,
      );
      app.addHook(
        'onRequest',
        calling(() => (hooks += 1)),
      );
      await using server = await serve(app);
      const inHooks = server.call('PUT', update.path, { headers: [['X-Slow', '1']], body: '1' });
      await using onItsWay = await server.connect();
      onItsWay.send(`PUT ${update.path} HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\n[`);
      await poll(() => hooks === 2, 'both requests have reached the hooks');
      const closing = close(app);
      await new Promise((resolve) => setImmediate(resolve));
      onItsWay.send('1]');
      assertReply(await onItsWay.reply(), 200, succeeded);
      assert.ok(!closing.isDone);
      hooksGate.open();
      assertReply(await inHooks, 200, succeeded);
      await within(closing.ended, 'it closes');
      assert.equal(server.backend.requests.length, 2);
    });

    test('a large reply to a slow client arrives complete [D55]', async () => {
      const app = create(options);
      const sockets: Socket[] = [];
      app.server.on('connection', (socket: Socket) => sockets.push(socket));
      await using server = await serve(app);
      const body = JSON.stringify('x'.repeat(20_000_000));
      server.backend.answers(answer(body));
      await using client = await server.connect();
      client.pause();
      client.send(requestBytes('GET', '/api/work-items'));
      await server.backend.nextRequest();
      await poll(() => sockets.some(({ writableLength }) => writableLength > 0), 'a part of the reply is waiting');
      const closing = close(app);
      await new Promise((resolve) => setTimeout(resolve, 100));
      client.resume();
      assertReply(await client.reply(), 200, body);
      await within(closing.ended, 'it closes');
    });

    test('after shutdownTimeoutMs the remaining calls are cut off, with the outcome "shutdown" [D55]', async () => {
      const app = create(options);
      await using server = await serve(app, { shutdownTimeoutMs: 400 });
      server.backend.answers(timeout);
      await using waiting = await server.connect();
      waiting.send(requestBytes('PUT', update.path, { body: '1' }));
      await server.backend.nextRequest();
      // One request whose body never arrives completely, and one reply that its client never reads.
      await using unfinished = await server.connect();
      unfinished.send(`PUT ${update.path} HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\n[`);
      server.backend.answersOnce(answer(JSON.stringify('x'.repeat(20_000_000))));
      await using unread = await server.connect();
      unread.pause();
      unread.send(requestBytes('GET', '/api/work-items'));
      await server.backend.nextRequest();
      const from = performance.now();
      await within(app.close(), 'it closes', 9_000);
      const ms = performance.now() - from;
      assert.ok(ms >= 390, `${ms} ms`);
      assertReply(await waiting.reply(), 500, update.failure);
      await waiting.closed();
      await unfinished.closed();
      assert.equal(unfinished.bytesReceived, 0);
      await server.backend.connectionClosed(0);
      const waited = server.told.ended.find(({ method }) => method === 'PUT');
      assert.equal(waited?.outcome, 'shutdown');
      assert.deepEqual(server.told.bugs, []);
    });

    test('idle connections and those with an incomplete head delay close by at most shutdownTimeoutMs [D55, D33]', async () => {
      const app = create(options);
      app.addHook('onRequest', async ({ headers }, reply) => {
        if (headers['x-refuse'] !== undefined) await reply.code(401).send({});
      });
      await using server = await serve(app, { shutdownTimeoutMs: 300 });
      const sockets: Socket[] = [];
      app.server.on('connection', (socket: Socket) => sockets.push(socket));
      const clients = await Promise.all(Array.from({ length: 4 }, () => server.connect()));
      const head = 'GET /api/work-items HTTP/1.1\r\nHos';
      clients[0]?.send(head);
      // One is refused by a hook, one has made a call, and one has sent nothing.
      await clients[1]?.call('GET', '/api/work-items', { headers: [['X-Refuse', '1']] });
      await clients[2]?.call('GET', '/api/work-items');
      await poll(() => sockets.some(({ bytesRead }) => bytesRead === head.length), 'the part of a head arrives');
      await within(app.close(), 'it closes', 3_000);
      for (const client of clients) await client.closed();
    });

    test('unfinished TLS handshakes and upgraded connections delay close by at most shutdownTimeoutMs [D55, D33]', async () => {
      const secure = create({ ...options, ...{ https: {} } });
      const upgrading = create(options);
      upgrading.server.on('upgrade', (_request, socket: Socket) => {
        socket.write('HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n');
      });
      const open = async (app: FastifyInstance): Promise<RawClient> => {
        await add(app).listen({ host: '127.0.0.1', port: 0 });
        const accepted = once(app.server, 'connection');
        const client = await RawClient.open((app.server.address() as AddressInfo).port);
        await accepted;
        return client;
      };
      await using silent = await open(secure);
      await using upgraded = await open(upgrading);
      upgraded.send('GET / HTTP/1.1\r\nHost: x\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n');
      await poll(() => upgraded.bytesReceived > 0, 'the connection is upgraded');
      await within(Promise.all([secure.close(), upgrading.close()]), 'they close', 3_000);
      await silent.closed();
      await upgraded.closed();
    });

    test('unfinished requests are cut after shutdownTimeoutMs on every address of localhost, also without pluginTimeout [D55]', async (t) => {
      // A host may have only one address for localhost. Fastify starts a second server for a second address.
      t.mock.method(dns, 'lookup', (name: string, _options: object, done: (...result: unknown[]) => void) => {
        const addresses = name === 'localhost' ? ['127.0.0.1', '127.0.0.2'] : [name];
        done(null, addresses.map((address) => ({ address, family: 4 }))); // prettier-ignore
      });
      const app = create({ ...options, pluginTimeout: 0 });
      await add(app).listen({ host: 'localhost', port: 0 });
      t.mock.restoreAll();
      const addresses = app.addresses() as AddressInfo[];
      if (process.platform === 'linux') assert.equal(addresses.length, 2);
      const opened = addresses.map(async ({ port, address }) => {
        const client = await RawClient.open(port, address);
        client.send(`PUT ${update.path} HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n`);
        // The interim reply shows that the request has arrived.
        await poll(() => client.bytesReceived > 0, 'the interim reply');
        client.send('[');
        return client;
      });
      const clients = await Promise.all(opened);
      await within(app.close(), 'it closes', 3_000);
      for (const client of clients) await client.closed();
    });

    test('close works before the start, without listen, and when it is called twice', async () => {
      const [unused, ready, twice] = [create(options), create(options), create(options)];
      await add(unused);
      await within(unused.close(), 'it closes');
      await add(ready).ready();
      await within(ready.close(), 'it closes');
      await add(twice).listen({ host: '127.0.0.1', port: 0 });
      await within(Promise.all([twice.close(), twice.close()]), 'it closes');
    });
  });
}

test('after close the process ends, however long shutdownTimeoutMs is [D55]', async () => {
  const program = `
    import { fastify } from 'fastify';
    import { workItemGateway } from './packages/core/hosts/index.ts';
    const app = fastify();
    await app.register(workItemGateway, { backendUrl: 'http://localhost:1', shutdownTimeoutMs: 600_000 });
    await app.listen({ port: 0 });
    await app.close();`;
  const cwd = resolve(import.meta.dirname, '../..');
  await promisify(execFile)(process.execPath, ['--input-type=module', '-e', program], { cwd, timeout: 60_000 });
});
