// The gateway's own time limit of request bodies, because the server around it may have no such limit [D35].

import assert from 'node:assert/strict';
import { Readable } from 'node:stream';
import { describe, test } from 'node:test';
import { poll } from '../helpers/changes.ts';
import { assertReply, operation, requestTimeout, tooLarge } from '../helpers/expected.ts';
import { calling, hosts, serve } from './hosts.ts';

const update = operation(4);
const read = operation(3);

/**
 * Streams that call `onPiece` before each piece. They end when `onPiece` returns false, which it does if a stream
 * starves the process.
 */
const endless = {
  'empty pieces': (onPiece: () => boolean) =>
    Readable.from(
      (async function* () {
        while (onPiece()) yield await Promise.resolve(Buffer.alloc(0));
      })(),
    ),
  'pieces of one byte': (onPiece: () => boolean) =>
    new Readable({
      read() {
        this.push(onPiece() ? ' ' : null);
      },
    }),
};

for (const { name, create } of hosts) {
  describe(name, () => {
    test('a body that arrives very slowly is 408, and hooks run before the reply [D35, D60]', async () => {
      const app = create();
      app.addHook(
        'preHandler',
        calling((_request, reply) => reply.header('x-hook', 'has run')),
      );
      await using server = await serve(app, { requestTimeoutMs: 300 });
      await using client = await server.connect();
      client.send('PUT /api/work-items/5 HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n');
      const timer = setInterval(() => client.send('1\r\n \r\n'), 1);
      try {
        const reply = await client.reply();
        assertReply(reply, 408, requestTimeout, ['x-hook']);
        assert.equal(reply.header('x-hook'), 'has run');
      } finally {
        clearInterval(timer);
      }
      assert.deepEqual(server.backend.requests, []);
    });

    for (const [pieces, createStream] of Object.entries(endless)) {
      test(`a hook's endless stream of ${pieces} is 408, and other calls are served meanwhile [D35, D58]`, async () => {
        let others = 0;
        // On a busy machine, another call may take longer than a short time limit.
        for (const requestTimeoutMs of [400, 2_000, 8_000]) {
          const app = create();
          app.addHook('preParsing', async () => {
            // A process that cannot do anything else would hang, so the stream ends at some time.
            const startedAt = performance.now();
            return await Promise.resolve(createStream(() => performance.now() - startedAt < 60_000));
          });
          await using server = await serve(app, { requestTimeoutMs });
          let isAnswered = false as boolean;
          const call = server.call('PUT', update.path, { body: '{}' }).finally(() => (isAnswered = true));
          while (!isAnswered) {
            assertReply(await server.call('GET', read.path), 200, read.body);
            others += Number(!isAnswered);
          }
          assertReply(await call, 408, requestTimeout);
          if (others > 0) return;
        }
        assert.fail('no other call is answered first');
      });
    }

    test('a request without a connection is served', async () => {
      const app = create();
      await using server = await serve(app);
      const payload = Buffer.from(`"${'x'.repeat(200_000)}"`);
      const { statusCode } = await app.inject({ method: 'PUT', url: '/api/work-items/5', payload });
      assert.deepEqual([statusCode, server.backend.requests.length], [200, 1]);
    });

    test("a hook's stream over the limit is 413 and is no longer read [D11, D58]", async () => {
      const app = create();
      let pieces = 0;
      app.addHook('preParsing', async () => {
        const startedAt = performance.now();
        const onPiece = () => {
          pieces += 1;
          return performance.now() - startedAt < 5_000;
        };
        return await Promise.resolve(endless['pieces of one byte'](onPiece));
      });
      await using server = await serve(app, { requestBytesMax: 1_000 });
      assertReply(await server.call('PUT', update.path, { body: '{}' }), 413, tooLarge);
      await poll(
        async () => {
          const before = pieces;
          assertReply(await server.call('GET', read.path), 200, read.body);
          return pieces === before;
        },
        'the stream is no longer read',
        3_000,
      );
    });
  });
}
