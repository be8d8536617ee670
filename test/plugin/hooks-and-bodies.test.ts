// Hooks that read or replace a request's body: the client gets its reply, and the backend gets the bytes that the hooks pass on.

import assert from 'node:assert/strict';
import { PassThrough, Readable, Transform } from 'node:stream';
import { buffer } from 'node:stream/consumers';
import { describe, test } from 'node:test';
import { createGunzip, gzipSync } from 'node:zlib';
import type { FastifyRequest, RequestPayload } from 'fastify';
import { createGate, poll, within } from '../helpers/changes.ts';
import {
  assertReply,
  badRequest,
  operation,
  operations,
  succeeded,
  tooLarge,
  unavailable,
} from '../helpers/expected.ts';
import { calling, hosts, serve } from './hosts.ts';
import { chunk, requestBytes } from '../helpers/raw-client.ts';
import { answer, timeout } from '../helpers/scripted-backend.ts';

const [create, read, update, remove] = [operation(2), operation(3), operation(4), operation(5)];
const text = JSON.stringify({ title: 'Paint the fence', note: 'x'.repeat(5_000) });
const other = { headers: [['X-Other', '1']] as const, body: '"'.padEnd(949, 'x') + '"' };
const putHead = (field: string) => `PUT ${update.path} HTTP/1.1\r\nHost: x\r\n${field}\r\n\r\n`;

/** Returns the stream that a hook passes on. Requests with `X-Other` pass the hook unchanged. */
type Hook = (payload: RequestPayload, request: FastifyRequest) => RequestPayload | Promise<RequestPayload | undefined>;

/** Starts a server with `hook` as its preParsing hook. */
async function serveHook(app: Parameters<typeof serve>[0], hook: Hook, options?: Parameters<typeof serve>[1]) {
  app.addHook('preParsing', (request, _reply, payload, done) => {
    const passed = request.headers['x-other'] === undefined ? hook(payload, request) : payload;
    if (passed instanceof Promise) void passed.then((each) => done(null, each), done);
    else done(null, passed);
  });
  return await serve(app, options);
}

/** Listens to the bytes as they arrive, as signature checks do. */
const listen: Hook = (payload) => payload.on('data', () => undefined);
/** Passes on each piece ten times. */
const inflate: Hook = (payload) => {
  const transform = (piece: Buffer, _encoding: string, next: (error: null, piece: Buffer) => void) =>
    next(null, Buffer.concat(Array.from({ length: 10 }, () => piece)));
  return payload.pipe(new Transform({ transform }));
};

const seen = new WeakMap<object, Promise<Buffer>>();
const readers: Record<string, Hook> = {
  'listens to the body, before a hook that waits for all of it': (payload, request) => {
    const pieces: Buffer[] = [];
    payload.on('data', (piece: Buffer) => pieces.push(piece));
    seen.set(request, new Promise((resolve) => payload.on('end', () => resolve(Buffer.concat(pieces)))));
    return payload;
  },
  'reads all of the body and passes on another stream': async (payload) => Readable.from([await buffer(payload)]),
  'passes on a stream of many pieces, some of them strings': async (payload) => {
    const all = String(await buffer(payload));
    return Readable.from(Array.from(all, (piece, index) => (index % 2 === 0 ? piece : Buffer.from(piece))));
  },
  'pipes the body through a stream of its own': (payload) => payload.pipe(new PassThrough()),
};

const failing = (error: unknown) => (payload: RequestPayload) =>
  payload.pipe(
    new Transform({ transform: (piece, _encoding, next) => next(null, piece), flush: (next) => next(error as Error) }),
  );
const streams: [what: string, hook: Hook, ...cases: [body: string | Buffer, status: number][]][] = [
  ['decompresses the body', (payload) => payload.pipe(createGunzip()),
    [gzipSync(text), 200], [gzipSync('{'), 500], [text, 500], [gzipSync(text).subarray(0, 60), 500]],
  ['passes on a stream of objects', () => Readable.from([{ no: 'bytes' }, '{}']), [text, 500], [text, 500]],
  ['passes on a stream that fails with a status', failing(Object.assign(new Error('broken'), { statusCode: 400 })), [text, 400]],
  ['passes on a stream that fails', failing(new Error('broken')), [text, 500]],
  // Any value can be an error of a stream.
  ...[undefined, null, 'a word', 5].map((reason): (typeof streams)[number] => [`passes on a stream that fails with ${reason}`,
    () => new Readable({
      read() {
        this.push('{}');
        setImmediate(() => this.emit('error', reason));
      },
    }), [text, 500]]),
]; // prettier-ignore

for (const host of hosts) {
  describe(host.name, () => {
    for (const [name, hook] of Object.entries(readers)) {
      test(`if a preParsing hook ${name}, the body reaches the backend unchanged`, async () => {
        const app = host.create();
        app.addHook('preHandler', async (request) => {
          const body = ['PUT', 'POST'].includes(request.method) ? await seen.get(request) : undefined;
          if (body !== undefined) assert.equal(String(body), text);
        });
        await using server = await serveHook(app, hook);
        await using client = await server.connect();
        for (const { method, path, status, body } of [create, update]) {
          assertReply(await client.call(method, path, { body: text }), status, body);
          assert.equal(String(server.backend.requests.at(-1)?.body), text);
          // Sent in pieces, so that the hooks begin before the last piece arrives.
          client.send(`${method} ${path} HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n`);
          await client.sendPieces([chunk(text.slice(0, 100)), chunk(text.slice(100)), '0\r\n\r\n']);
          assertReply(await client.reply(), status, body);
          assert.equal(String(server.backend.requests.at(-1)?.body), text);
        }
        for (const { method, path, options, body } of [{ ...remove, options: { body: text } }, remove, read]) {
          assertReply(await client.call(method, path, options), 200, body);
        }
        assert.equal(server.backend.requests.length, 7);
      });
    }

    for (const [what, hook, ...cases] of streams) {
      test(`a hook ${what}: this stream is checked and sent`, async () => {
        await using server = await serveHook(host.create(), hook);
        for (const [body, status] of cases) {
          const reply = await server.call('PUT', update.path, { body });
          assert.equal(reply.status, status);
          if (status !== 400) assertReply(reply, status, status === 200 ? succeeded : update.failure);
        }
        const sent = server.backend.requests.map(({ body }) => String(body));
        assert.deepEqual(sent, cases.filter(([, status]) => status === 200).map(() => text)); // prettier-ignore
      });
    }

    test('a body that a hook turns into text of any encoding is sent as the client sent it', async () => {
      const body = '{"title":"caf\u00e9"}';
      await using server = await serveHook(host.create(), (payload, { headers }) =>
        (payload as Readable).setEncoding(headers['x-encoding'] as BufferEncoding),
      );
      for (const encoding of ['utf8', 'latin1', 'base64']) {
        const reply = await server.call('PUT', update.path, { body, headers: [['X-Encoding', encoding]] });
        assertReply(reply, 200, succeeded);
        assert.equal(String(server.backend.requests.at(-1)?.body), body, encoding);
      }
    });

    test('a receivedEncodedLength of a stream that is not the content-length is 400 without a backend call [D70]', async () => {
      await using server = await serveHook(host.create(), (payload, { headers }) =>
        Object.assign(payload.pipe(new PassThrough()), { receivedEncodedLength: Number(headers['x-length']) }),
      );
      for (const [more, expected] of [[-1, 400], [1, 400], [0, 200]] as const) {
        const headers = [['X-Length', String(text.length + more)]] as const;
        const reply = await server.call('PUT', update.path, { body: text, headers });
        assertReply(reply, expected, expected === 200 ? succeeded : badRequest);
      } // prettier-ignore
      assert.equal(server.backend.requests.length, 1);
    });

    test('if a hook reads the body and passes nothing on, or listens too early, the client gets 500, and the log has the reason', async () => {
      const lines: string[] = [];
      const app = host.create({ logger: { level: 'warn', stream: { write: (line: string) => lines.push(line) } } });
      const firstPiece = createGate();
      await using server = await serveHook(app, async (payload, { headers }) => {
        if (headers['x-early'] === undefined) return await buffer(payload).then(() => undefined);
        payload.on('data', firstPiece.open);
        await firstPiece.opened;
        return payload;
      });
      for (const { method, path, failure } of [create, update]) {
        assertReply(await server.call(method, path, { body: text }), 500, failure);
      }
      await using client = await server.connect();
      client.send(putHead('X-Early: 1\r\nContent-Length: 3') + '[]');
      await firstPiece.opened;
      client.send('5');
      assertReply(await client.reply(), 500, update.failure);
      assert.deepEqual(server.backend.requests, []);
      assert.equal(lines.length, 3);
      for (const line of lines) {
        assert.match(line, /"outcome":"bug".*the host has already read the request body: .*preParsing hook/);
      }
      // The operations delete and read need no body, so they succeed.
      assertReply(await server.call(remove.method, remove.path, { body: text }), 200, succeeded);
      assertReply(await server.call(read.method, read.path, { body: text }), 200, read.body);
    });

    test("if a hook's stream fails while the body is arriving, the client gets the refusal immediately", async () => {
      const error = Object.assign(new Error('broken'), { statusCode: 401 });
      await using server = await serveHook(host.create(), () => {
        return new Readable({
          read() {
            this.destroy(error);
          },
        });
      });
      await using client = await server.connect();
      client.send(putHead('Content-Length: 10') + '1234');
      assert.equal((await client.reply()).status, 401);
    });

    test('a large body that a hook turns into objects is read to its end, and the next request is served', async () => {
      const transform = (_piece: Buffer, _encoding: string, next: (error: null, object: object) => void) =>
        next(null, { no: 'bytes' });
      await using server = await serveHook(host.create(), (payload, { method }) =>
        method === 'PUT' ? payload.pipe(new Transform({ readableObjectMode: true, transform })) : payload,
      );
      await using client = await server.connect();
      assertReply(await client.call('PUT', update.path, { body: 'x'.repeat(5_000_000) }), 500, update.failure);
      assertReply(await client.call('GET', read.path), 200, read.body);
    });

    test('the limit on bodies applies to a body that hooks listen to, and to the stream that a hook passes on [D11]', async () => {
      for (const hook of [listen, inflate]) {
        await using server = await serveHook(host.create(), hook, { requestBytesMax: 20_000 });
        // Only the two pieces together exceed the limit. The body does not end.
        const piece = chunk('y'.repeat(hook === inflate ? 1_100 : 11_000));
        await using client = await server.connect();
        client.send(putHead('Transfer-Encoding: chunked'));
        await client.sendPieces([piece, piece]);
        assertReply(await client.reply(), 413, tooLarge);
        assert.deepEqual(server.backend.requests, []);
      }
    });

    test('a content-length over the limit is 413 immediately, unless a hook passes on a shorter body [D11]', async () => {
      const shorten: Hook = async (payload, { headers }) =>
        headers['x-shorten'] === undefined
          ? payload
          : Readable.from([Buffer.from(String(await buffer(payload)).trim())]);
      await using server = await serveHook(host.create(), shorten, { requestBytesMax: 1_000 });
      await using early = await server.connect();
      early.send(putHead('Content-Length: 1001'));
      assertReply(await early.reply(), 413, tooLarge);
      const [largest, larger] = ['{}'.padEnd(1_000), '{}'.padEnd(1_001)];
      assertReply(await server.call('PUT', update.path, { body: largest }), 200, succeeded);
      const shortened = await server.call('PUT', update.path, { body: larger, headers: [['X-Shorten', '1']] });
      assertReply(shortened, 200, succeeded);
      assert.deepEqual(server.backend.requests.map(({ body }) => String(body)), [largest, '{}']); // prettier-ignore
    });

    test('if hooks listen to a body, its bytes count as buffered and are released [D26]', async () => {
      await using server = await serveHook(host.create(), listen, { bufferedBytesMax: 4 * text.length });
      // Clients leave before their bodies are complete. Then a client sends a body that is too large.
      for (let count = 0; count < 20; count += 1) {
        const client = await server.connect();
        client.send(putHead(`Content-Length: ${text.length}`));
        await client.sendPieces([text.slice(0, -1), '']);
        client.destroy();
      }
      const large = JSON.stringify('z'.repeat(5 * text.length));
      assertReply(await server.call('PUT', update.path, { body: large }), 503, unavailable, ['retry-after']);
      for (let count = 0; count < 20; count += 1) {
        assertReply(await server.call('PUT', update.path, { body: text }), 200, succeeded);
      }
    });

    test("every hook sees the client's content-type, which the gateway ignores [D10]", async () => {
      const app = host.create();
      app.addHttpMethod('PROPFIND');
      const types: unknown[] = [];
      for (const hookName of ['onRequest', 'preParsing', 'preValidation', 'preHandler', 'onResponse']) {
        app.addHook(
          hookName as 'onRequest',
          calling(({ headers }) => types.push(headers['content-type'])),
        );
      }
      await using server = await serve(app);
      for (const type of ['text/plain', 'nonsense', 'application/json; charset=x', undefined]) {
        const headers = type === undefined ? [] : ([['Content-Type', type]] as const);
        // Fastify does not read the body of a PROPFIND request, so only its last hook sees the type again.
        const propfind = { method: 'PROPFIND', path: read.path, options: {}, status: 405 };
        for (const { method, path, options, status } of [...operations, propfind]) {
          assert.equal((await server.call(method, path, { ...options, headers })).status, status);
          await poll(() => types.length === 5, 'all hooks have run');
          const all = types.splice(0);
          assert.deepEqual([...new Set(method === 'PROPFIND' ? all.slice(4) : all)], [type], method);
        }
      }
    });

    test('the body of a request is released when a later hook refuses or fails [D26]', async () => {
      const app = host.create();
      const hookNames = ['preValidation', 'preHandler'] as const;
      for (const hookName of hookNames) {
        app.addHook(hookName, async ({ headers }, reply) => {
          if (headers['x-refuse'] === hookName) await reply.code(401).send({});
          if (headers['x-fail'] === hookName) throw new Error('broken');
        });
      }
      await using server = await serve(app, { bufferedBytesMax: 3 * text.length });
      for (let count = 0; count < 5; count += 1) {
        for (const [name, status] of [['X-Refuse', 401], ['X-Fail', 500]] as const) {
          for (const hookName of hookNames) {
            const reply = await server.call('PUT', update.path, { headers: [[name, hookName]], body: text });
            assert.equal(reply.status, status);
          }
        } // prettier-ignore
      }
      assert.deepEqual(server.backend.requests, []);
      assertReply(await server.call('PUT', update.path, { body: text }), 200, succeeded);
    });

    test('bodies of waiting pipelined requests are released when their client leaves [D26]', async () => {
      await using server = await serve(host.create(), { bufferedBytesMax: 3 * text.length });
      server.backend.answers(timeout);
      const ahead = requestBytes('GET', read.path);
      for (let count = 0; count < 10; count += 1) {
        const client = await server.connect();
        client.send(Buffer.concat([ahead, ...[1, 2].map(() => requestBytes('PUT', update.path, { body: text }))]));
        await server.backend.nextRequest();
        client.reset();
        // When the client leaves, its read is cancelled, which closes the backend connection.
        await server.backend.connectionClosed(count);
      }
      server.backend.answers(answer('{}'));
      assertReply(await server.call('PUT', update.path, { body: text }), 200, succeeded);
    });

    test('after a client has left, a stream that a hook passed on is no longer read or buffered, and no later hook runs [D26]', async () => {
      const app = host.create();
      const stream = new PassThrough();
      const left = createGate();
      let laterHooks = 0;
      app.addHook(
        'preValidation',
        calling(({ headers }) => (laterHooks += Number(headers['x-other'] === undefined))),
      );
      const hook: Hook = (_payload, { raw }) => {
        raw.once('close', left.open);
        stream.write(' '.repeat(300));
        return stream;
      };
      await using server = await serveHook(app, hook, { bufferedBytesMax: 1_000 });
      const client = await server.connect();
      client.send(putHead('Content-Length: 10') + '1234');
      await poll(() => stream.readableLength === 0 && stream.readableDidRead, 'the first bytes of the stream are read');
      client.reset();
      await within(left.opened, 'the client has left');
      for (let count = 0; count < 40; count += 1) stream.write(' '.repeat(10));
      assertReply(await server.call('PUT', update.path, other), 200, succeeded);
      assert.ok(stream.readableLength > 0, 'the rest of the stream is not read');
      assert.deepEqual([laterHooks, server.backend.requests.length], [0, 1]);
    });

    test('if a client leaves during a hook, nothing stays buffered, and close does not wait for the request [D26, D55]', async () => {
      const app = host.create();
      const [begun, left] = [createGate(), createGate()];
      app.addHook('onRequest', async ({ headers, raw }) => {
        if (headers['x-other'] !== undefined) return;
        raw.socket.once('close', left.open);
        begun.open();
        await left.opened;
      });
      const hook = () => Readable.from([Buffer.alloc(600, ' ')]);
      await using server = await serveHook(app, hook, { bufferedBytesMax: 1_000 });
      const client = await server.connect();
      client.send(requestBytes('PUT', update.path, { body: text }));
      await within(begun.opened, 'the hook is called');
      client.reset();
      await within(left.opened, 'the client has left');
      assertReply(await server.call('PUT', update.path, other), 200, succeeded);
      await within(app.close(), 'it closes', 3_000);
    });
  });
}
