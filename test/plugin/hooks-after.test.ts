// The plugin's replies go through Fastify: the hooks of the host that run after the handler, and its option handlerTimeout.

import assert from 'node:assert/strict';
import { Readable } from 'node:stream';
import { describe, test } from 'node:test';
import { gunzipSync, createGzip } from 'node:zlib';
import type { FastifyInstance, FastifyReply } from 'fastify';
import { createGate, poll } from '../helpers/changes.ts';
import { assertHeaders, assertReply, invalidId, itemNotFound, operations, succeeded } from '../helpers/expected.ts';
import { requestBytes, type CallOptions } from '../helpers/raw-client.ts';
import { answer, behind } from '../helpers/scripted-backend.ts';
import { calling, hosts, serve } from './hosts.ts';

/** Starts a server with `app`, and a call that waits for the backend until `gate` opens. */
async function beginCall(app: FastifyInstance, method: string, path: string, options?: CallOptions) {
  const server = await serve(app);
  const gate = createGate();
  server.backend.answers(behind(gate, answer('{"id":5}')));
  const client = await server.connect();
  client.send(requestBytes(method, path, options));
  const { connection } = await server.backend.nextRequest();
  const end = () => client[Symbol.asyncDispose]().then(() => server[Symbol.asyncDispose]());
  return { ...server, gate, client, connection, [Symbol.asyncDispose]: end };
}

for (const host of hosts) {
  describe(host.name, () => {
    test('onSend hooks get the bytes of each reply and may add headers, such as the cookie of a session', async () => {
      const app = host.create();
      const payloads: unknown[] = [];
      app.addHook('onSend', async (_request, reply, payload) => {
        payloads.push(payload);
        await new Promise((resolve) => setImmediate(resolve));
        reply.header('set-cookie', 'session=1');
        return payload;
      });
      let responses = 0;
      app.addHook(
        'onResponse',
        calling(() => (responses += 1)),
      );
      await using server = await serve(app);
      await using client = await server.connect();
      for (const { method, path, options, status, body } of operations) {
        assertReply(await client.call(method, path, options), status, body, ['set-cookie']);
        assert.deepEqual(payloads.pop(), Buffer.from(body));
      }
      assertReply(await client.call('GET', '/api/work-items/x'), 400, invalidId, ['set-cookie']);
      server.backend.answersOnce(answer('', { status: 404 }));
      assertReply(await client.call('GET', '/api/work-items/5'), 404, itemNotFound, ['set-cookie']);
      const head = await client.call('HEAD', '/api/work-items/5');
      assert.deepEqual([head.status, head.header('content-length')], [200, '8']);
      const options = await client.call('OPTIONS', '/api/work-items');
      assert.equal(options.status, 204);
      assertHeaders(options, ['allow', 'set-cookie']);
      await poll(() => responses === operations.length + 4, 'onResponse has run for each');
    });

    test('an onSend hook may replace the bytes of a reply', async () => {
      const app = host.create();
      app.addHook('onSend', async (_request, reply, payload) => {
        reply.removeHeader('content-length');
        reply.header('content-encoding', 'gzip').header('cache-control', 'private');
        return Readable.from([payload]).pipe(createGzip());
      });
      await using server = await serve(app);
      await using client = await server.connect();
      for (const { method, path, options, status, body } of operations) {
        const reply = await client.call(method, path, options);
        assert.deepEqual([reply.status, String(gunzipSync(reply.body))], [status, body]);
        assert.equal(reply.header('cache-control'), 'private');
      }
    });

    test('if an onSend hook fails, the client gets the error reply of Fastify, and the server goes on', async () => {
      const app = host.create();
      app.addHook('onSend', (request) =>
        request.headers['x-fail'] === undefined ? Promise.resolve() : Promise.reject(new Error('of the hook')),
      );
      await using server = await serve(app);
      await using client = await server.connect();
      for (const { method, path, options } of operations) {
        const reply = await client.call(method, path, { ...options, headers: [['X-Fail', '1']] });
        assert.equal(reply.status, 500);
      }
      assertReply(await client.call('DELETE', '/api/work-items/5'), 200, succeeded);
      assert.equal(server.backend.requests.length, operations.length + 1);
      assert.deepEqual(server.told.bugs, []);
    });

    test('headers of hooks are added, do not replace those of the gateway, and lists keep their members [D24]', async () => {
      const app = host.create();
      app.addHook('onRequest', (_request, reply, done) => {
        reply.headers({
          ...{ 'access-control-allow-origin': '*', 'set-cookie': ['a=1', 'b=2'], 'x-count': 3, 'content-type': 'text/html' },
          ...{ 'content-length': '1', 'cache-control': 'public', 'x-content-type-options': 'none', 'x-request-id': 'hidden' },
          ...{ 'transfer-encoding': 'chunked', connection: 'close', vary: 'Accept', allow: 'NOTHING' },
          'ratelimit-policy': '"host";q=9;w=1',
        });
        reply.raw.setHeader('x-raw', '1').setHeader('transfer-encoding', 'chunked');
        done();
      }); // prettier-ignore
      await using server = await serve(app, { rateLimit: '100/60s' });
      await using client = await server.connect();
      const added = ['access-control-allow-origin', 'set-cookie', 'set-cookie', 'x-count', 'vary', 'x-raw', 'allow'];
      for (const { method, path, options, status, body } of operations) {
        const reply = await client.call(method, path, options);
        assertReply(reply, status, body, [...added, 'ratelimit', 'ratelimit-policy']);
        const names = ['access-control-allow-origin', 'x-count', 'vary', 'x-raw'];
        assert.deepEqual(names.map((name) => reply.header(name)), ['*', '3', 'Accept', '1']); // prettier-ignore
        const cookies = reply.headers.filter(([field]) => field === 'set-cookie').map(([, value]) => value);
        assert.deepEqual(cookies, ['a=1', 'b=2']);
        assert.match(reply.header('ratelimit-policy') ?? '', /^"host";q=9;w=1, ".+$/);
        assert.notEqual(reply.header('x-request-id'), 'hidden');
        assert.notEqual(reply.header('connection'), 'close');
      }
      const reply = await client.call('PATCH', '/api/work-items/5');
      assert.equal(reply.header('allow'), 'GET, HEAD, PUT, DELETE, OPTIONS');
    });

    for (const [what, send] of [
      ['sends a reply', (reply: FastifyReply) => void reply.code(503).send({ error: 'late' })],
      [
        'sends an error',
        (reply: FastifyReply) => void reply.send(Object.assign(new Error('late'), { statusCode: 503 })),
      ],
      [
        'hijacks the reply',
        (reply: FastifyReply, goesOn: Promise<void>) => {
          reply.hijack();
          void goesOn.then(() => reply.raw.writeHead(503).end('late'));
        },
      ],
    ] as const) {
      test(`if the app ${what} during the call, and the reply is delayed, the client gets this reply alone`, async () => {
        for (const { method, path, options } of operations) {
          const app = host.create();
          const [isCalled, isSending, goesOn] = [createGate(), createGate(), createGate()];
          app.addHook('onRequest', (_request, reply, done) => {
            void isCalled.opened.then(() => {
              send(reply, goesOn.opened);
              setImmediate(isSending.open);
            });
            done();
          });
          app.addHook('onSend', () => goesOn.opened);
          await using call = await beginCall(app, method, path, options);
          const { told, gate, client } = call;
          isCalled.open();
          await isSending.opened;
          gate.open();
          await poll(() => told.ended.length === 1, 'the end of the call');
          goesOn.open();
          const reply = await client.reply();
          assert.equal(reply.status, 503);
          assert.match(reply.text, /late/);
          assert.equal(told.ended[0]?.outcome, 'client-gone');
          assert.match(String(told.ended[0].cause), /^Error: other code of the host replied first/);
          assert.deepEqual(told.bugs, []);
        }
      });
    }

    // The oldest version has no such option.
    if (!('handlerTimeout' in host.create().initialConfig)) return;

    test('handlerTimeout ends a call: the client gets 503, and a read is cancelled', async () => {
      for (const sendsLate of [false, true]) {
        const app = host.create({ handlerTimeout: 400 });
        const isSending = createGate();
        const goesOn = createGate();
        if (sendsLate) {
          app.addHook('onSend', async () => {
            isSending.open();
            await goesOn.opened;
          });
        }
        await using call = await beginCall(app, 'GET', '/api/work-items/5');
        const { told, gate, client, backend, connection } = call;
        if (sendsLate) {
          await isSending.opened;
          gate.open();
          await poll(() => told.ended.length === 1, 'the end of the call');
          goesOn.open();
        }
        assert.equal((await client.reply()).status, 503);
        if (!sendsLate) await backend.connectionClosed(connection);
        await poll(() => told.ended.length === 1, 'the end of the call');
        const [{ outcome, cause } = {}] = told.ended;
        assert.equal(outcome, 'client-gone');
        assert.match(String(cause), /^Error: other code of the host replied first/);
        assert.deepEqual(told.bugs, []);
        assertReply(await client.call('GET', '/api/work-items/x'), 400, invalidId);
      }
    });
  });
}
