// The plugin and the Node handler close connections in servers of node:http.

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { createGate, within } from '../helpers/changes.ts';
import { assertReply, badRequest, operation, tooLarge } from '../helpers/expected.ts';
import { nodeHosts } from './hosts.ts';
import { forever, requestBytes } from '../helpers/raw-client.ts';
import { answer, behind } from '../helpers/scripted-backend.ts';

const update = operation(4);
const next = requestBytes('DELETE', operation(5).path);

for (const host of nodeHosts) {
  describe(host.name, () => {
    test('the last reply on a connection arrives even if more requests wait and the client still sends [D11, D58]', async () => {
      await using server = await host.serve();
      const gate = createGate();
      server.backend.answersOnce(behind(gate, answer('{"id":5}')));
      await using client = await server.connect();
      const last = Buffer.from('DELETE /api/work-items/5 HTTP/1.1\r\nHost: a b\r\n\r\n');
      const rest = Buffer.alloc(next.length * 200_000, next);
      client.send(Buffer.concat([requestBytes('GET', '/api/work-items/5'), last, rest]));
      await server.backend.nextRequest();
      gate.open();
      assertReply(await client.reply(), 200, '{"id":5}');
      assertReply(await client.reply(), 400, badRequest);
      assert.equal(await client.closed(), 'end');
      assert.equal(server.backend.requests.length, 1);
    });

    for (const [name, head] of [
      ['HTTP/0.9', 'GET /api/work-items HTTP/0.9\r\nHost: x'],
      ['HTTP/2.0 over plain TCP', 'GET /api/work-items HTTP/2.0\r\nHost: x'],
      ['two Host headers', 'GET /api/work-items HTTP/1.1\r\nHost: x\r\nHost: x'],
      ['an invalid host', 'DELETE /api/work-items/5 HTTP/1.1\r\nHost: a b'],
      ['a host with a bad escape', 'DELETE /api/work-items/5 HTTP/1.1\r\nHost: %ff'],
      ['a fragment', 'DELETE /api/work-items/5#6 HTTP/1.1\r\nHost: x'],
      ['a gzip coding', 'PUT /api/work-items/5 HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip, chunked'],
    ] as const) {
      test(`ambiguous HTTP that Node accepts is 400: ${name} [D27]`, async () => {
        await using server = await host.serve();
        await using client = await server.connect();
        client.send(`${head}\r\n\r\n${head.includes('chunked') ? '2\r\n{}\r\n0\r\n\r\n' : ''}`);
        client.send(next);
        const reply = await client.reply();
        assertReply(reply, 400, badRequest);
        assert.equal(reply.header('connection'), 'close');
        await client.closed();
        assert.deepEqual(server.backend.requests, []);
        const { malformed, ended, bugs } = server.told;
        assert.deepEqual([malformed.length, ended, bugs], [1, [], []]);
      });
    }
  });
}

test('a client that continues to send after the last reply is cut off, and nothing that it sends is served [D11]', async () => {
  await Promise.all(
    nodeHosts.map(async (host) => {
      await using server = await host.serve({ requestBytesMax: 1_000 });
      await using client = await server.connect();
      client.send(`PUT ${update.path} HTTP/1.1\r\nHost: x\r\nContent-Length: 1001\r\n\r\n`);
      assertReply(await client.reply(), 413, tooLarge);
      assert.equal(await client.closed(), 'end');
      client.send('x'.repeat(1_001));
      // `sendPieces` ends when the server has reset the connection.
      await within(client.sendPieces(forever(next)), 'the client is cut off');
      assert.deepEqual(server.backend.requests, []);
    }),
  );
});
