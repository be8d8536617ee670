// Hooks that read or replace a request's body: the client gets its reply, and the backend gets the bytes that the hooks pass on.

import assert from 'node:assert/strict';
import { PassThrough, Readable, Transform } from 'node:stream';
import { describe, test } from 'node:test';
import { createGunzip, gzipSync } from 'node:zlib';
import type { FastifyInstance, preParsingHookHandler, RequestPayload } from 'fastify';
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
import { hosts, serve } from './hosts.ts';
import { chunk, RawClient, requestBytes } from '../helpers/raw-client.ts';
import { answer, timeout } from '../helpers/scripted-backend.ts';

const create = operation(2);
const read = operation(3);
const update = operation(4);
const remove = operation(5);
const text = JSON.stringify({ title: 'Paint the fence', note: 'x'.repeat(5_000) });

async function readAll(payload: RequestPayload): Promise<Buffer> {
  const pieces: Buffer[] = [];
  for await (const piece of payload as AsyncIterable<Buffer>) pieces.push(piece);
  return Buffer.concat(pieces);
}

/** A hook that reads the bytes as they arrive, as signature checks do. */
const readAlong: preParsingHookHandler = (_request, _reply, payload, done) => {
  payload.on('data', () => undefined);
  done(null, payload);
};

const readers: readonly (readonly [name: string, add: (app: FastifyInstance) => void])[] = [
  [
    'listens to the body, before a hook that waits for all of it',
    (app) => {
      const seen = new WeakMap<object, Promise<Buffer>>();
      app.addHook('preParsing', (request, _reply, payload, done) => {
        const { promise, resolve } = Promise.withResolvers<Buffer>();
        const pieces: Buffer[] = [];
        payload.on('data', (piece: Buffer) => pieces.push(piece));
        payload.on('end', () => resolve(Buffer.concat(pieces)));
        seen.set(request, promise);
        done(null, payload);
      });
      app.addHook('preHandler', async (request) => {
        if (request.method === 'PUT' || request.method === 'POST') assert.equal(String(await seen.get(request)), text);
      });
    },
  ],
  [
    'reads all of the body and passes on another stream',
    (app) => app.addHook('preParsing', async (_request, _reply, payload) => Readable.from([await readAll(payload)])),
  ],
  [
    'passes on a stream of many pieces, some of them strings',
    (app) => {
      app.addHook('preParsing', async (_request, _reply, payload) => {
        const all = String(await readAll(payload));
        return Readable.from(Array.from(all, (piece, index) => (index % 2 === 0 ? piece : Buffer.from(piece))));
      });
    },
  ],
  [
    'pipes the body through a stream of its own',
    (app) =>
      app.addHook('preParsing', (_request, _reply, payload, done) => done(null, payload.pipe(new PassThrough()))),
  ],
];

type StreamCase = readonly [
  what: string,
  makeStream: (payload: RequestPayload) => Readable,
  cases: readonly (readonly [body: string | Buffer, status: number])[],
];

for (const host of hosts) {
  describe(host.name, () => {
    for (const [name, add] of readers) {
      test(`if a preParsing hook ${name}, the body reaches the backend unchanged`, async () => {
        const app = host.create();
        add(app);
        await using server = await serve(app);
        await using client = await RawClient.open(server.port);
        for (const { method, path, status, body } of [create, update]) {
          assertReply(await client.call(method, path, { body: text }), status, body);
          assert.equal(String(server.backend.requests.at(-1)?.body), text);
          // Sent in pieces, so that the hooks begin before the last piece arrives.
          client.send(`${method} ${path} HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n`);
          const middle = 100;
          await client.sendPieces([chunk(text.slice(0, middle)), chunk(text.slice(middle)), '0\r\n\r\n']);
          assertReply(await client.reply(), status, body);
          assert.equal(String(server.backend.requests.at(-1)?.body), text);
        }
        assertReply(await client.call(remove.method, remove.path, { body: text }), 200, succeeded);
        assertReply(await client.call(remove.method, remove.path), 200, succeeded);
        assertReply(await client.call(read.method, read.path), 200, read.body);
        assert.equal(server.backend.requests.length, 7);
      });
    }

    const failing = (error: unknown) =>
      new Transform({
        transform: (piece, _encoding, next) => next(null, piece),
        flush(next) {
          next(error as Error);
        },
      });
    for (const [what, makeStream, cases] of [
      [
        'decompresses the body',
        (payload) => payload.pipe(createGunzip()),
        [
          [gzipSync(text), 200],
          [gzipSync('{'), 500],
          [text, 500],
          [gzipSync(text).subarray(0, 60), 500],
        ],
      ],
      [
        'passes on a stream of objects',
        () => Readable.from([{ no: 'bytes' }, '{}']),
        [
          [text, 500],
          [text, 500],
        ],
      ],
      [
        'passes on a stream that fails with a status',
        (payload) => payload.pipe(failing(Object.assign(new Error('broken'), { statusCode: 400 }))),
        [[text, 400]],
      ],
      ['passes on a stream that fails', (payload) => payload.pipe(failing(new Error('broken'))), [[text, 500]]],
      // Any value can be an error of a stream.
      ...[undefined, null, 'a word', 5].map((reason): StreamCase => [
        `passes on a stream that fails with ${reason}`,
        () =>
          new Readable({
            read() {
              this.push('{}');
              setImmediate(() => this.emit('error', reason));
            },
          }),
        [[text, 500]],
      ]),
    ] satisfies StreamCase[]) {
      test(`a hook ${what}: this stream is checked and sent`, async () => {
        const app = host.create();
        app.addHook('preParsing', (_request, _reply, payload, done) => done(null, makeStream(payload)));
        await using server = await serve(app);
        for (const [body, status] of cases) {
          const reply = await server.call('PUT', update.path, { body });
          assert.equal(reply.status, status);
          if (status !== 400) assertReply(reply, status, status === 200 ? succeeded : update.failure);
        }
        const sent = cases.filter(([, status]) => status === 200).map(() => text);
        assert.deepEqual(
          server.backend.requests.map(({ body }) => String(body)),
          sent,
        );
      });
    }

    test('a body that a hook turns into text of any encoding is sent as the client sent it', async () => {
      for (const encoding of ['utf8', 'latin1', 'base64'] as const) {
        const app = host.create();
        app.addHook('preParsing', (_request, _reply, payload, done) => {
          (payload as Readable).setEncoding(encoding);
          done(null, payload);
        });
        await using server = await serve(app);
        const body = '{"title":"caf\u00e9"}';
        assertReply(await server.call('PUT', update.path, { body }), 200, succeeded);
        assert.equal(String(server.backend.requests[0]?.body), body, encoding);
      }
    });

    test('a receivedEncodedLength of a stream that is not the content-length is 400 without a backend call [D70]', async () => {
      const app = host.create();
      app.addHook('preParsing', ({ headers }, _reply, payload, done) => {
        const receivedEncodedLength = Number(headers['x-length']);
        done(null, Object.assign(payload.pipe(new PassThrough()), { receivedEncodedLength }));
      });
      await using server = await serve(app);
      for (const [length, expected] of [
        [text.length - 1, 400],
        [text.length + 1, 400],
        [text.length, 200],
      ] as const) {
        const headers = [['X-Length', String(length)]] as const;
        const reply = await server.call('PUT', update.path, { body: text, headers });
        assertReply(reply, expected, expected === 200 ? succeeded : badRequest);
      }
      assert.equal(server.backend.requests.length, 1);
    });

    test('if a hook reads the body and passes nothing on, the client gets 500, and the log has the reason', async () => {
      const lines: string[] = [];
      const app = host.create({ logger: { level: 'warn', stream: { write: (line: string) => lines.push(line) } } });
      app.addHook('preParsing', async (_request, _reply, payload) => {
        await readAll(payload);
      });
      await using server = await serve(app);
      for (const { method, path, failure } of [create, update]) {
        assertReply(await server.call(method, path, { body: text }), 500, failure);
      }
      assert.deepEqual(server.backend.requests, []);
      assert.equal(lines.length, 2);
      for (const line of lines) {
        assert.match(line, /"outcome":"bug".*the host has already read the request body: .*preParsing hook/);
      }
      // The operations delete and read need no body, so they succeed.
      assertReply(await server.call(remove.method, remove.path, { body: text }), 200, succeeded);
      assertReply(await server.call(read.method, read.path, { body: text }), 200, read.body);
    });

    test("if a hook's stream fails while the body is arriving, the client gets the refusal immediately", async () => {
      const app = host.create();
      app.addHook('preParsing', () => {
        const read = function (this: Readable) {
          this.destroy(Object.assign(new Error('broken'), { statusCode: 401 }));
        };
        return Promise.resolve(new Readable({ read }));
      });
      await using server = await serve(app);
      await using client = await RawClient.open(server.port);
      client.send(`PUT ${update.path} HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n1234`);
      assert.equal((await client.reply()).status, 401);
    });

    test('a large body that a hook turns into objects is read to its end, and the next request is served', async () => {
      const app = host.create();
      app.addHook('preParsing', ({ method }, _reply, payload, done) => {
        const objects = new Transform({
          readableObjectMode: true,
          transform: (_piece, _encoding, next) => next(null, { no: 'bytes' }),
        });
        done(null, method === 'PUT' ? payload.pipe(objects) : payload);
      });
      await using server = await serve(app);
      await using client = await RawClient.open(server.port);
      assertReply(await client.call('PUT', update.path, { body: 'x'.repeat(5_000_000) }), 500, update.failure);
      assertReply(await client.call('GET', read.path), 200, read.body);
    });

    test('the limit on bodies applies to a body that hooks listen to, and to the stream that a hook passes on [D11]', async () => {
      for (const hook of [readAlong, inflate] as preParsingHookHandler[]) {
        const app = host.create();
        app.addHook('preParsing', hook);
        await using server = await serve(app, { requestBytesMax: 20_000 });
        // Only the two pieces together exceed the limit. The body does not end.
        const piece = chunk('y'.repeat(hook === inflate ? 1_100 : 11_000));
        await using client = await RawClient.open(server.port);
        client.send(`PUT ${update.path} HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n`);
        await client.sendPieces([piece, piece]);
        assertReply(await client.reply(), 413, tooLarge);
        assert.deepEqual(server.backend.requests, []);
      }
    });

    test('a content-length over the limit is 413 immediately, unless a hook passes on a shorter body [D11]', async () => {
      const app = host.create();
      app.addHook('preParsing', async (request, _reply, payload) => {
        if (request.headers['x-shorten'] === undefined) return payload;
        return Readable.from([Buffer.from((await readAll(payload)).toString().trim())]);
      });
      await using server = await serve(app, { requestBytesMax: 1_000 });
      await using early = await RawClient.open(server.port);
      early.send(`PUT ${update.path} HTTP/1.1\r\nHost: x\r\nContent-Length: 1001\r\n\r\n`);
      assertReply(await early.reply(), 413, tooLarge);
      assert.deepEqual(server.backend.requests, []);
      const [largest, larger] = ['{}'.padEnd(1_000), '{}'.padEnd(1_001)];
      assertReply(await server.call('PUT', update.path, { body: largest }), 200, succeeded);
      const shortened = await server.call('PUT', update.path, { body: larger, headers: [['X-Shorten', '1']] });
      assertReply(shortened, 200, succeeded);
      assert.deepEqual(
        server.backend.requests.map(({ body }) => String(body)),
        [largest, '{}'],
      );
    });

    test('if hooks listen to a body, its bytes count as buffered and are released [D26]', async () => {
      const app = host.create();
      app.addHook('preParsing', readAlong);
      await using server = await serve(app, { bufferedBytesMax: 4 * text.length });
      // Clients leave before their bodies are complete. Then a client sends a body that is too large.
      for (let count = 0; count < 20; count += 1) {
        const client = await RawClient.open(server.port);
        client.send(`PUT ${update.path} HTTP/1.1\r\nHost: x\r\nContent-Length: ${text.length}\r\n\r\n`);
        client.send(text.slice(0, -1));
        await client.sendPieces(['']);
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
      const seen: unknown[] = [];
      for (const hookName of ['onRequest', 'preParsing', 'preValidation', 'preHandler', 'onResponse']) {
        app.addHook(hookName as 'onRequest', (incoming) => {
          seen.push(incoming.headers['content-type']);
          return Promise.resolve();
        });
      }
      await using server = await serve(app);
      for (const type of ['text/plain', 'nonsense', 'application/json; charset=x', undefined]) {
        const headers = type === undefined ? [] : ([['Content-Type', type]] as const);
        // Fastify does not read the body of a PROPFIND request, so only its last hook sees the type again.
        const propfind = { method: 'PROPFIND', path: read.path, options: {}, status: 405 };
        for (const { method, path, options, status } of [...operations, propfind]) {
          seen.length = 0;
          assert.equal((await server.call(method, path, { ...options, headers })).status, status);
          await poll(() => seen.length === 5, 'all hooks have run');
          if (method === 'PROPFIND') seen.splice(0, 4);
          assert.deepEqual([...new Set(seen)], [type], method);
        }
      }
    });

    test('the body of a request is released when a later hook refuses or fails [D26]', async () => {
      const app = host.create();
      for (const hookName of ['preValidation', 'preHandler'] as const) {
        app.addHook(hookName, async ({ headers }, reply) => {
          if (headers['x-refuse'] === hookName) await reply.code(401).send({});
          if (headers['x-fail'] === hookName) throw new Error('broken');
        });
      }
      await using server = await serve(app, { bufferedBytesMax: 3 * text.length });
      for (let count = 0; count < 5; count += 1) {
        for (const name of ['X-Refuse', 'X-Fail']) {
          for (const hookName of ['preValidation', 'preHandler']) {
            const reply = await server.call('PUT', update.path, { headers: [[name, hookName]], body: text });
            assert.ok(reply.status >= 400);
          }
        }
      }
      assert.deepEqual(server.backend.requests, []);
      assertReply(await server.call('PUT', update.path, { body: text }), 200, succeeded);
    });

    test('bodies of waiting pipelined requests are released when their client leaves [D26]', async () => {
      const app = host.create();
      await using server = await serve(app, { bufferedBytesMax: 3 * text.length });
      server.backend.answers(timeout);
      for (let count = 0; count < 10; count += 1) {
        const client = await RawClient.open(server.port);
        const ahead = requestBytes('GET', read.path);
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
      app.addHook('preParsing', async ({ headers, raw }, _reply, payload) => {
        if (headers['x-other'] !== undefined) return payload;
        raw.once('close', left.open);
        stream.write(' '.repeat(300));
        return await Promise.resolve(stream);
      });
      app.addHook('preValidation', ({ headers }, _reply, done) => {
        if (headers['x-other'] === undefined) laterHooks += 1;
        done();
      });
      await using server = await serve(app, { bufferedBytesMax: 1_000 });
      const client = await RawClient.open(server.port);
      client.send(`PUT ${update.path} HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n1234`);
      await poll(() => stream.readableLength === 0 && stream.readableDidRead, 'the first bytes of the stream are read');
      client.reset();
      await within(left.opened, 'the client has left');
      for (let count = 0; count < 40; count += 1) stream.write(' '.repeat(10));
      const other = { headers: [['X-Other', '1']] as const, body: '"'.padEnd(949, 'x') + '"' };
      assertReply(await server.call('PUT', update.path, other), 200, succeeded);
      assert.ok(stream.readableLength > 0, 'the rest of the stream is not read');
      assert.equal(laterHooks, 0);
      assert.equal(server.backend.requests.length, 1);
    });

    test('if a client leaves during a hook, nothing stays buffered, and close does not wait for the request [D26, D55]', async () => {
      const app = host.create();
      const begun = createGate();
      const left = createGate();
      app.addHook('onRequest', async ({ headers, raw }) => {
        if (headers['x-other'] !== undefined) return;
        raw.socket.once('close', left.open);
        begun.open();
        await left.opened;
      });
      app.addHook('preParsing', ({ headers }, _reply, payload, done) =>
        done(null, headers['x-other'] === undefined ? Readable.from([Buffer.alloc(600, ' ')]) : payload),
      );
      await using server = await serve(app, { bufferedBytesMax: 1_000 });
      const client = await RawClient.open(server.port);
      client.send(requestBytes('PUT', update.path, { body: text }));
      await within(begun.opened, 'the hook is called');
      client.reset();
      await within(left.opened, 'the client has left');
      const other = { headers: [['X-Other', '1']] as const, body: '"'.padEnd(949, 'x') + '"' };
      assertReply(await server.call('PUT', update.path, other), 200, succeeded);
      await within(app.close(), 'it closes', 3_000);
    });

    test('if a hook listens too early, so that bytes are lost, the client gets 500', async () => {
      const app = host.create();
      const firstPiece = createGate();
      app.addHook('preParsing', (_request, _reply, payload, done) => {
        payload.on('data', firstPiece.open);
        done(null, payload);
      });
      app.addHook('preParsing', async (_request, _reply, payload) => {
        await firstPiece.opened;
        return payload;
      });
      await using server = await serve(app);
      await using client = await RawClient.open(server.port);
      client.send(`PUT ${update.path} HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\n[]`);
      await firstPiece.opened;
      client.send('5');
      assertReply(await client.reply(), 500, update.failure);
      assert.deepEqual(server.backend.requests, []);
    });
  });
}

/** Passes on each piece ten times. */
const inflate: preParsingHookHandler = (_request, _reply, payload, done) => {
  const times = new Transform({
    transform(piece: Buffer, _encoding, next) {
      next(null, Buffer.concat(Array.from({ length: 10 }, () => piece)));
    },
  });
  done(null, payload.pipe(times));
};
