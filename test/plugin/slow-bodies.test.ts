// A body that stalls or drips has a time limit in a Fastify server too, whose own there is none unless it is set: what has
// come of it is given back, and its client gets the command's reply [D35].

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { assertReply, operation, requestTimeout, succeeded } from '../helpers/expected.ts';
import { hosts, serve } from '../helpers/hosts.ts';
import { createObserver } from '../helpers/in-process.ts';
import { RawClient } from '../helpers/raw-client.ts';

const update = operation(4);

for (const { name, create } of hosts) {
  describe(name, () => {
    test('a body that stalls is 408 and closed, with no call and nothing held [D35, D26]', async () => {
      const { told, observer } = createObserver();
      await using server = await serve(create(), {
        observer,
        bufferedBytesMax: 1_000,
        requestTimeoutMs: 300,
      });
      const piece = ' '.repeat(600);
      for (const head of [
        'POST /api/work-items HTTP/1.1\r\nContent-Length: 700',
        'PUT /api/work-items/5 HTTP/1.1\r\nContent-Type: text/plain\r\nContent-Length: 700',
        // Whose body is not wanted.
        'DELETE /api/work-items/5 HTTP/1.1\r\nContent-Type: text/plain\r\nContent-Length: 700',
      ]) {
        await using client = await RawClient.open(server.port);
        client.send(`${head}\r\nHost: x\r\n\r\n${piece}`);
        const reply = await client.reply();
        assertReply(reply, 408, requestTimeout);
        assert.equal(reply.header('connection'), 'close');
        await client.closed();
      }
      assert.deepEqual(
        told.ended.map(({ outcome }) => outcome),
        ['bad-request', 'bad-request', 'bad-request'],
      );
      assert.deepEqual(server.backend.requests, []);
      const body = `"${'x'.repeat(950)}"`;
      assertReply(await server.call('PUT', update.path, { body }), 200, succeeded);
    });

    test('one that drips is 408 as well, and hooks run before the reply [D35, D60]', async () => {
      const app = create();
      app.addHook('preHandler', (_request, reply, done) => {
        reply.header('x-hook', 'has run');
        done();
      });
      await using server = await serve(app, { requestTimeoutMs: 300 });
      await using client = await RawClient.open(server.port);
      client.send('PUT /api/work-items/5 HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n');
      const timer = setInterval(() => {
        client.send('1\r\n \r\n');
      }, 1);
      try {
        const reply = await client.reply();
        assertReply(reply, 408, requestTimeout, ['x-hook']);
        assert.equal(reply.header('x-hook'), 'has run');
      } finally {
        clearInterval(timer);
      }
      assert.deepEqual(server.backend.requests, []);
    });
  });
}
