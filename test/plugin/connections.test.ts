// What the plugin and the Node handler do about a connection that node:http reads for them: where it has to end, and how.

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { assertReply, badRequest, operation, succeeded, tooLarge } from '../helpers/expected.ts';
import { nodeHosts } from '../helpers/hosts.ts';
import { chunk, RawClient, requestBytes } from '../helpers/raw-client.ts';

const update = operation(4);
const next = requestBytes('DELETE', operation(5).path);

for (const host of nodeHosts) {
  describe(host.name, () => {
    test('a length over the limit is refused before the body has come, and the connection ends [D11]', async () => {
      await using server = await host.serve({ requestBytesMax: 1_000 });
      await using client = await RawClient.open(server.port);
      client.send(`PUT ${update.path} HTTP/1.1\r\nHost: x\r\nContent-Length: 100000000000\r\n\r\n`);
      const reply = await client.reply();
      assertReply(reply, 413, tooLarge);
      assert.equal(reply.header('connection'), 'close');
      assert.equal(await client.closed(), 'end');
      assert.deepEqual(server.backend.requests, []);
    });

    for (const [framing, bytes] of [
      ['a length', requestBytes('PUT', update.path, { body: 'x'.repeat(5_000_000) })],
      [
        'chunks',
        Buffer.concat([
          requestBytes('PUT', update.path, { headers: [['Transfer-Encoding', 'chunked']] }),
          chunk('x'.repeat(5_000_000)),
          Buffer.from('0\r\n\r\n'),
        ]),
      ],
    ] as const) {
      test(`a body far over the limit gets its reply instead of a reset, and nothing behind it is served: ${framing} [D11]`, async () => {
        await using server = await host.serve({ requestBytesMax: 1_000 });
        for (let count = 0; count < 5; count += 1) {
          await using client = await RawClient.open(server.port);
          client.send(Buffer.concat([bytes, next]));
          assertReply(await client.reply(), 413, tooLarge);
          assert.equal(await client.closed(), 'end');
        }
        assert.deepEqual(server.backend.requests, []);
      });
    }

    for (const upgrade of [
      'GET /api/work-items/5 HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n',
      'PUT /api/work-items/5 HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: h2c\r\nContent-Length: 2\r\n\r\n{}',
    ]) {
      test(`behind a request for another protocol nothing is served, and nothing lost in silence: ${upgrade.slice(0, 3)} [D27]`, async () => {
        await using server = await host.serve();
        await using client = await RawClient.open(server.port);
        client.send(Buffer.concat([Buffer.from(upgrade), next]));
        const reply = await client.reply();
        assert.equal(reply.status, 200);
        assert.equal(reply.header('connection'), 'close');
        await client.closed();
        assert.equal(server.backend.requests.length, 1);
      });
    }

    for (const [name, head] of [
      ['two Host headers', 'GET /api/work-items HTTP/1.1\r\nHost: x\r\nHost: x'],
      ['a host that is none', 'DELETE /api/work-items/5 HTTP/1.1\r\nHost: a b'],
      ['a host with a bad escape', 'DELETE /api/work-items/5 HTTP/1.1\r\nHost: %ff'],
      ['a fragment', 'DELETE /api/work-items/5#6 HTTP/1.1\r\nHost: x'],
      ['another coding', 'PUT /api/work-items/5 HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip, chunked'],
    ] as const) {
      test(`what Node lets through and two parsers could read differently is 400: ${name} [D27]`, async () => {
        await using server = await host.serve();
        await using client = await RawClient.open(server.port);
        client.send(`${head}\r\n\r\n${head.includes('chunked') ? '2\r\n{}\r\n0\r\n\r\n' : ''}`);
        client.send(next);
        const reply = await client.reply();
        assertReply(reply, 400, badRequest);
        assert.equal(reply.header('connection'), 'close');
        await client.closed();
        assert.deepEqual(server.backend.requests, []);
      });
    }

    test('many calls, one after the other and sent ahead, all on one connection', async () => {
      await using server = await host.serve();
      await using client = await RawClient.open(server.port);
      for (let count = 0; count < 50; count += 1) {
        client.send(Buffer.concat([requestBytes('PUT', update.path, { body: '{}' }), next, next]));
        for (let replies = 0; replies < 3; replies += 1) assertReply(await client.reply(), 200, succeeded);
      }
      assert.equal(server.backend.requests.length, 150);
    });
  });
}
