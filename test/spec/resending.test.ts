// Reads that are sent to the backend twice [D20]. test/faults/matrix.test.ts proves that no other call is sent twice.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { assertReply, operations } from '../helpers/expected.ts';
import { createGate } from '../helpers/changes.ts';
import { answer, limitData, resetPeer, type Answer, type BackendRequest } from '../helpers/scripted-backend.ts';
import { forEachTarget, type Target } from '../helpers/targets.ts';

const good = answer('{"id":5}');

/** Ways to close a connection before the first byte of the answer. */
const deaths: [name: string, dies: Answer][] = [
  ['is reset', resetPeer()],
  ['is closed', limitData(0, '')],
];

/** The backend fails with `dies` on reused connections, and gives a good answer on new connections. */
function onReused(dies: Answer): Answer {
  return (exchange) => (exchange.request.indexOnConnection > 0 ? dies(exchange) : good(exchange));
}

/** Leaves `count` idle connections to the backend, each of which has served one call. */
async function warm(target: Target, count = 1): Promise<void> {
  const { backend } = target;
  const gate = createGate();
  // After a backend that is down, writes use all connections again.
  await backend.stop();
  await target.call('GET', '/api/work-items');
  await backend.restart();
  backend.answers(async (exchange) => {
    await gate.opened;
    await good(exchange);
  });
  const arrived = backend.requests.length + count;
  const replies = Array.from({ length: count }, () => target.call('GET', '/api/work-items'));
  await backend.until(() => backend.requests.length === arrived, `${count} calls in flight`);
  gate.open();
  await Promise.all(replies);
  assert.equal(backend.connectionsOpen, count);
  backend.reset();
}

const isNew = ({ indexOnConnection }: BackendRequest) => indexOnConnection === 0;

forEachTarget((target) => {
  for (const [name, dies] of deaths) {
    for (const { name: operationName, method, path, options, status, body, failure } of operations) {
      const isRead = method === 'GET';
      const what = isRead ? 'a read is sent again on a new connection, even if other connections are idle' : 'a write is not sent again';
      test(`operation ${operationName}: when its reused connection ${name}, ${what} [D20]`, async () => {
        await warm(target(), 3);
        target().backend.answers(onReused(dies));
        const reply = await target().call(method, path, options);
        if (isRead) assertReply(reply, status, body);
        else assertReply(reply, 500, failure);
        assert.deepEqual(target().backend.requests.map(isNew), isRead ? [false, true] : [false]);
      });
    }
  }
}, {}, { kinds: ['in-process'] }); // prettier-ignore
