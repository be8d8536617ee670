// The limit on the bytes of all bodies that are buffered at the same time. A call that exceeds the limit is refused;
// other calls continue. Every end of a call releases its bytes.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createGate } from '../helpers/changes.ts';
import { assertReply, unavailable } from '../helpers/expected.ts';
import { chunk } from '../helpers/raw-client.ts';
import { answer, behind } from '../helpers/scripted-backend.ts';
import { forEachTarget } from '../helpers/targets.ts';

const bufferedBytesMax = 100_000;
const large = JSON.stringify('x'.repeat(89_998));
const small = JSON.stringify('x'.repeat(19_998));

forEachTarget(
  (target) => {
    /** Holds back the answer to the next call until the returned gate opens. */
    const holdAnswer = () => {
      const gate = createGate();
      target().backend.answersOnce(behind(gate, answer('{}')));
      return gate;
    };

    test('while another body uses up the limit, a request with a body is 503 without a backend call; afterwards the same request succeeds', async () => {
      const gate = holdAnswer();
      await using holder = await target().connect();
      const held = holder.call('PUT', '/api/work-items/1', { body: large });
      await target().backend.nextRequest();
      const refused = await target().call('PUT', '/api/work-items/2', { body: small });
      assertReply(refused, 503, unavailable, ['retry-after']);
      assert.equal(target().backend.requests.length, 1);
      gate.open();
      assert.equal((await held).status, 200);
      assert.equal((await target().call('PUT', '/api/work-items/2', { body: small })).status, 200);
    });

    test('the rest of a refused body is neither buffered nor counted', async () => {
      const gate = holdAnswer();
      await using holder = await target().connect();
      const held = holder.call('PUT', '/api/work-items/1', { body: large });
      await target().backend.nextRequest();
      for (let round = 0; round < 3; round += 1) {
        await using client = await target().connect();
        client.send('PUT /api/work-items/2 HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n');
        client.send(chunk(small));
        assertReply(await client.reply(), 503, unavailable, ['retry-after']);
        // Each of these chunks is within the limit.
        for (let count = 0; count < 8; count += 1) await client.sendPieces([chunk(' '.repeat(1000))]);
        client.send('0\r\n\r\n');
        await target().settle();
      }
      gate.open();
      assert.equal((await held).status, 200);
      assert.equal((await target().call('PUT', '/api/work-items/2', { body: large })).status, 200);
    });

    test('every end of a call releases its buffered bytes', async () => {
      for (let round = 0; round < 5; round += 1) {
        const { backend } = target();
        // The ends: a success, a non-JSON answer, a refused update, a non-JSON request body, a client that leaves.
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
      }
      assert.equal((await target().call('PUT', '/api/work-items/1', { body: large })).status, 200);
    });
  },
  { bufferedBytesMax },
  { kinds: ['in-process', 'plugin', 'fetch', 'node'] },
);
