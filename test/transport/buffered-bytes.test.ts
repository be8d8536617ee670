// The limit on the bytes of all bodies that are buffered at the same time. A call that exceeds the limit is refused;
// other calls continue. test/simulation checks that every end of a call releases its bytes.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createGate } from '../helpers/changes.ts';
import { assertReply, unavailable } from '../helpers/expected.ts';
import { chunk } from '../helpers/raw-client.ts';
import { answer, behind } from '../helpers/scripted-backend.ts';
import { forEachTarget } from '../helpers/targets.ts';

const [large, small] = [89_998, 19_998].map((length) => JSON.stringify('x'.repeat(length))) as [string, string];

forEachTarget(
  (target) => {
    test('while another body uses up the limit, a request with a body is 503 without a backend call, and its rest is neither buffered nor counted', async () => {
      const { backend } = target();
      const gate = createGate();
      backend.answersOnce(behind(gate, answer('{}')));
      await using holder = await target().connect();
      const held = holder.call('PUT', '/api/work-items/1', { body: large });
      await backend.nextRequest();
      assertReply(await target().call('PUT', '/api/work-items/2', { body: small }), 503, unavailable, ['retry-after']);
      await using client = await target().connect();
      client.send('PUT /api/work-items/2 HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n');
      client.send(chunk(small));
      assertReply(await client.reply(), 503, unavailable, ['retry-after']);
      assert.equal(backend.requests.length, 1);
      // Each of these chunks is within the limit.
      for (let count = 0; count < 8; count += 1) await client.sendPieces([chunk(' '.repeat(1000))]);
      client.send('0\r\n\r\n');
      await target().settle();
      gate.open();
      assert.equal((await held).status, 200);
      assert.equal((await target().call('PUT', '/api/work-items/2', { body: large })).status, 200);
    });

    test('a refusal, a body that is not JSON and a client that leaves release their bytes', async () => {
      const { backend } = target();
      backend.answersOnce(answer(large), answer(large.slice(1)), answer('[]', { status: 500 }));
      assert.equal((await target().call('GET', '/api/work-items')).status, 200);
      assert.equal((await target().call('GET', '/api/work-items')).status, 500);
      assert.equal((await target().call('PUT', '/api/work-items/1', { body: large })).status, 500);
      assert.equal((await target().call('POST', '/api/work-items', { body: large.slice(1) })).status, 500);
      const leaving = await target().connect();
      leaving.send(`PUT /api/work-items/1 HTTP/1.1\r\nHost: x\r\nContent-Length: 95000\r\n\r\n${large}`);
      leaving.destroy();
      // Once a later call is answered, the gateway has noticed that the client left.
      await target().settle();
      assert.equal((await target().call('PUT', '/api/work-items/1', { body: large })).status, 200);
    });
  },
  { bufferedBytesMax: 100_000 },
  { kinds: ['in-process', 'plugin', 'fetch', 'node'] },
);
