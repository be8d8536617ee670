// Reads that are sent to the backend twice [D20]. test/faults/matrix.test.ts proves that no other call is sent twice.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { assertReply, operations } from '../helpers/expected.ts';
import { createGate } from '../helpers/changes.ts';
import { answer, behind, limitData, resetPeer } from '../helpers/scripted-backend.ts';
import { forEachTarget, type Target } from '../helpers/targets.ts';

const good = answer('{"id":5}');

/** Leaves three idle connections to the backend, each of which has served one call. */
async function warm(target: Target): Promise<void> {
  const { backend } = target;
  // After a backend that is down, writes use all connections again.
  await backend.stop();
  await target.call('GET', '/api/work-items');
  await backend.restart();
  const gate = createGate();
  backend.answers(behind(gate, good));
  const arrived = backend.requests.length + 3;
  const replies = Array.from({ length: 3 }, () => target.call('GET', '/api/work-items'));
  await backend.until(() => backend.requests.length === arrived, 'the calls in flight');
  gate.open();
  await Promise.all(replies);
  assert.equal(backend.connectionsOpen, 3);
  backend.reset();
}

forEachTarget((target) => {
  for (const { name, method, path, options, status, body, failure } of operations) {
    const isRead = method === 'GET';
    test(`operation ${name}: when its reused connection dies, ${isRead ? 'a read is sent again on a new connection, even if others are idle' : 'a write is not sent again'} [D20]`, async () => {
      // The connection is reset or closed before the first byte of the answer.
      for (const dies of [resetPeer(), limitData(0, '')]) {
        await warm(target());
        target().backend.answers((exchange) => (exchange.request.indexOnConnection > 0 ? dies : good)(exchange));
        const reply = await target().call(method, path, options);
        if (isRead) assertReply(reply, status, body);
        else assertReply(reply, 500, failure);
        const isNew = target().backend.requests.map(({ indexOnConnection }) => indexOnConnection === 0);
        assert.deepEqual(isNew, isRead ? [false, true] : [false]);
      }
    });
  }
}, {}, { kinds: ['in-process'] }); // prettier-ignore
