// When a call is sent to the backend a second time: in one case only. D20.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { assertReply, operation, operations } from '../helpers/expected.ts';
import { createGate } from '../helpers/changes.ts';
import {
  answer,
  answerBytes,
  garbage,
  limitData,
  resetPeer,
  type Answer,
  type BackendRequest,
} from '../helpers/scripted-backend.ts';
import { forEachTarget, type Target } from '../helpers/targets.ts';

const good = answer('{"id":5}');

/** Ways for a connection to die before a byte of the answer. */
const deaths: [name: string, dies: Answer][] = [
  ['is reset', resetPeer()],
  ['is closed', limitData(0, '')],
];

/** What a reused connection does from now on; a new one answers well. */
function onReused(dies: Answer): Answer {
  return (exchange) => (exchange.request.indexOnConnection > 0 ? dies(exchange) : good(exchange));
}

/** Leaves `count` idle connections to the backend, each of which has served one call. */
async function warm(target: Target, count = 1): Promise<void> {
  const { backend } = target;
  const gate = createGate();
  backend.answers(answer('[]', { headers: [['Connection', 'close']] }));
  // Idle connections of the cases before are used up one by one, so that only new ones are left.
  while (backend.connectionsOpen > 0) {
    const open = backend.connectionsOpen;
    await target.call('GET', '/api/work-items');
    await backend.until(() => backend.connectionsOpen < open, 'a connection is closed');
  }
  backend.answers(async (exchange) => {
    await gate.opened;
    await good(exchange);
  });
  const arrived = backend.requests.length + count;
  const replies = Array.from({ length: count }, () => target.call('GET', '/api/work-items'));
  await backend.until(() => backend.requests.length === arrived, `${count} calls at once`);
  gate.open();
  await Promise.all(replies);
  assert.equal(backend.connectionsOpen, count);
  backend.reset();
}

const isNew = ({ indexOnConnection }: BackendRequest) => indexOnConnection === 0;

forEachTarget((target) => {
  for (const [name, dies] of deaths) {
    for (const { name: operationName, method, path, options, status, body, failure } of operations) {
      if (method === 'GET') {
        test(`operation ${operationName}: sent on a reused connection that ${name} before a byte, it is sent once more, on a new one [D20]`, async () => {
          await warm(target());
          target().backend.answers(onReused(dies));
          assertReply(await target().call(method, path, options), status, body);
          assert.deepEqual(target().backend.requests.map(isNew), [false, true]);
          const [first, second] = target().backend.requests;
          assert.equal(second?.head, first?.head, 'the same request');
        });

        test(`operation ${operationName}: it is sent once more on a new connection even when other reused ones are idle, ${name} [D20]`, async () => {
          await warm(target(), 3);
          target().backend.answers(onReused(dies));
          assertReply(await target().call(method, path, options), status, body);
          assert.deepEqual(target().backend.requests.map(isNew), [false, true]);
        });

        test(`operation ${operationName}: sent once more and dead again, it is not sent a third time, ${name} [D20]`, async () => {
          await warm(target());
          target().backend.answers(dies);
          assertReply(await target().call(method, path, options), 500, failure);
          assert.deepEqual(target().backend.requests.map(isNew), [false, true]);
        });
      } else {
        test(`operation ${operationName}: it is never sent twice, not even when a reused connection ${name} before a byte [D20]`, async () => {
          await warm(target());
          target().backend.answers(onReused(dies));
          assertReply(await target().call(method, path, options), 500, failure);
          await target().settle();
          const calls = target().backend.requests.filter((call) => call.method === method);
          assert.deepEqual(calls.map(isNew), [false]);
        });
      }

      test(`operation ${operationName}: on a new connection that ${name} it is not sent again [D20]`, async () => {
        target().backend.answersOnce(answer('[]', { headers: [['Connection', 'close']] }));
        await warm(target(), 0);
        target().backend.answers(dies);
        assertReply(await target().call(method, path, options), 500, failure);
        target().backend.answers(good);
        await target().settle();
        assert.deepEqual(target().backend.requests.map(isNew), [true, true]);
      });

      test(`operation ${operationName}: never sent twice when one byte of the answer has come, then it ${name} [D20]`, async () => {
        await warm(target());
        target().backend.answers(async (exchange) => {
          if (isNew(exchange.request)) await good(exchange);
          else
            await (name === 'is reset' ? resetPeer(1, answerBytes('')) : limitData(1, answerBytes('')))(
              exchange,
            );
        });
        assertReply(await target().call(method, path, options), 500, failure);
        assert.equal(target().backend.requests.length, 1);
      });
    }
  }

  test('a HEAD is a GET to the backend, and sent once more as one [D7, D20]', async () => {
    await warm(target());
    target().backend.answers(onReused(resetPeer()));
    const reply = await target().call('HEAD', '/api/work-items/5');
    assert.equal(reply.status, 200);
    assert.deepEqual(target().backend.requests.map(isNew), [false, true]);
  });

  for (const [name, backendAnswer] of [
    ['a status line cut off', limitData(12, answerBytes('{}'))],
    ['a head cut off', limitData(40, answerBytes('{}'))],
    ['a 1xx and the end', limitData(25, 'HTTP/1.1 100 Continue\r\n\r\n')],
    ['half a body', limitData(120, answerBytes(`"${'x'.repeat(100)}"`))],
    ['503', answer('', { status: 503, headers: [['Retry-After', '0']] })],
    ['408', answer('', { status: 408, headers: [['Connection', 'close']] })],
    ['421', answer('', { status: 421 })],
    ['425', answer('', { status: 425 })],
    ['429', answer('', { status: 429, headers: [['Retry-After', '0']] })],
    ['garbage', garbage],
    ['a body that is not JSON', answer('<p>')],
  ] as [string, Answer][]) {
    test(`a GET on a reused connection that is answered with ${name} is not sent again [D20]`, async () => {
      await warm(target());
      target().backend.answers((exchange) => (isNew(exchange.request) ? good : backendAnswer)(exchange));
      const { path, failure } = operation(3);
      assertReply(await target().call('GET', path), 500, failure);
      assert.equal(target().backend.requests.length, 1);
    });
  }

  test('many GETs on reused connections that all die are each sent once more and none is lost [D20]', async () => {
    await warm(target(), 10);
    target().backend.answers(onReused(resetPeer()));
    const replies = await Promise.all(
      Array.from({ length: 10 }, (_, index) => target().call('GET', `/api/work-items/${index}`)),
    );
    for (const reply of replies) assertReply(reply, 200, '{"id":5}');
    for (let index = 0; index < 10; index += 1) {
      const calls = target().backend.requests.filter((call) => call.target.endsWith(`/${index}`));
      assert.ok(calls.length <= 2 && calls.some(isNew));
    }
  });
});
