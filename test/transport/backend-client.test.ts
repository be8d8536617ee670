// The backend client alone: the connections that it keeps open, and the memory that each call releases at its end.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createGate, poll, within } from '../helpers/changes.ts';
import { answer, chunked, behind, raw, rawThenClose, timeout, type Answer } from '../helpers/scripted-backend.ts';
import { get, put, responseBytesMax, start } from './started-client.ts';

const chunkedHead = 'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n';

/** An answer in two pieces, 20 ms apart, so that the client reads them one by one. */
function inTwoPieces(first: string, second: string): Answer {
  return async (exchange) => {
    await exchange.write(first);
    await new Promise((resolve) => setTimeout(resolve, 20));
    await exchange.write(second);
  };
}

test('the path of a call begins with the base path without its trailing slashes [D30]', async () => {
  for (const [basePath, target] of [
    ['', '/api/WorkItem'],
    ['/a//b///', '/a//b/api/WorkItem'],
  ] as const) {
    await using one = await start({ basePath });
    assert.equal((await one.call(get)).kind, 'ok');
    assert.equal((await one.backend.nextRequest()).target, target);
  }
});

test('the connection that was used last is reused first', async () => {
  await using one = await start();
  const gates = [createGate(), createGate(), createGate()];
  for (const gate of gates) one.backend.answersOnce(behind(gate, answer('{}')));
  one.backend.answers(answer('{}'));
  const calls = gates.map(() => one.send(get));
  await one.backend.until(() => one.backend.requests.length === 3, 'the calls');
  for (const [index, gate] of gates.entries()) {
    gate.open();
    await poll(() => calls.filter(({ outcomes }) => outcomes.length > 0).length === index + 1, 'an outcome');
  }
  for (let count = 0; count < 3; count += 1) await one.call(get);
  const [, , last, ...later] = one.backend.requests.map(({ connection }) => connection);
  assert.deepEqual(later, [last, last, last]);
});

test('a connection that the backend closes after an answer no longer counts when the outcome is reported', async () => {
  await using one = await start();
  one.backend.answers(answer('{}', { headers: [['Connection', 'close']] }));
  assert.equal((await one.call(get)).kind, 'ok');
  assert.equal(one.client.connectionCount, 0);
});

test('an idle connection is reused until one second before the timeout in its Keep-Alive field', async (context) => {
  await using one = await start();
  let now = performance.now();
  context.mock.method(performance, 'now', () => now);
  one.backend.answers(answer('{}', { headers: [['Keep-Alive', 'timeout=2']] }));
  for (const [idleMs, connectionsTaken] of [
    [0, 1],
    [999, 1],
    [1_000, 2],
  ] as const) {
    now += idleMs;
    assert.equal((await one.call(get)).kind, 'ok');
    assert.equal(one.backend.connectionsTaken, connectionsTaken);
  }
  now += 1_000;
  await poll(() => one.client.connectionCount === 0, 'the expired connection is closed');
});

test('a connection counts from the start of its opening to its close, and `close` ends all of them and their calls', async () => {
  await using one = await start();
  one.backend.answers(timeout);
  const calls = [one.send(get), one.send(put), one.send(get)];
  assert.equal(one.client.connectionCount, 3);
  await one.backend.until(() => one.backend.requests.length === 3, 'the calls');
  calls[2]?.exchange.cancel();
  assert.equal(one.client.connectionCount, 2);
  await one.client.close();
  assert.equal(one.client.connectionCount, 0);
  const kinds = calls.map(({ outcomes }) => outcomes.map(({ kind }) => kind));
  assert.deepEqual(kinds, [['unreachable'], ['unreachable'], []], 'before `close` resolves');
  await one.backend.until(() => one.backend.connectionsOpen === 0, 'every connection is closed');
});

test('after `close` each call fails without opening a connection, until `reopen` is called', async () => {
  await using one = await start();
  await one.client.close();
  for (const request of [get, put]) {
    assert.deepEqual(await one.call(request), {
      kind: 'unreachable',
      status: undefined,
      reason: 'client-closed',
      cause: 'the connections to the backend have been closed',
    });
  }
  const { exchange, outcomes } = one.send(get);
  exchange.cancel();
  assert.equal(one.backend.connectionsTaken, 0);
  one.client.reopen();
  assert.equal((await one.call(put)).kind, 'ok');
  assert.equal((await one.call(get)).kind, 'ok');
  assert.equal(one.backend.connectionsTaken, 1);
  assert.deepEqual(outcomes, []);
});

test('`close` also ends a call whose connection is still opening', async () => {
  const dial = { socketCount: 1, troubles: [], close: () => undefined };
  await using one = await start({ change: () => () => dial });
  const { outcomes } = one.send(get);
  await one.client.close();
  assert.equal(outcomes[0]?.kind, 'unreachable');
});

test('cancelling a call after its end has no effect: its connection serves the next call', async () => {
  await using one = await start();
  const { exchange, outcome } = one.send(get);
  assert.equal((await within(outcome, 'an outcome')).kind, 'ok');
  exchange.cancel();
  assert.equal(one.budget.bytes, 512, 'only the block of the answer is counted');
  await one.call(get);
  assert.equal(one.backend.connectionsTaken, 1);
});

for (const [name, request, status] of [
  ['a refusal', get, 500],
  ['the answer to a write', put, 200],
] as const) {
  test(`${name}: if at most 64 KiB of the answer are left, the connection is used again; otherwise it is closed [D17]`, async () => {
    for (const [length, isKept] of [
      [65_536, true],
      [65_537, false],
    ] as const) {
      await using one = await start();
      one.backend.answersOnce(answer('x'.repeat(length), { status }));
      assert.equal((await one.call(request)).kind, status === 200 ? 'ok' : 'refused');
      if (isKept) {
        // Parallel calls, one per connection, use every idle connection.
        await poll(async () => {
          await Promise.all(Array.from({ length: one.backend.connectionsTaken }, () => one.call(get)));
          return one.backend.requests.some((each) => each.connection === 0 && each.indexOnConnection > 0);
        }, 'the connection is used again');
      } else {
        await one.backend.connectionClosed(0);
        await poll(() => one.client.connectionCount === 0, 'the connection is closed');
      }
      assert.equal(one.budget.bytes, 0);
    }
  });
}

test('a connection is closed one second after the outcome if the rest of the answer does not arrive [D17]', async () => {
  await using one = await start();
  one.backend.answersOnce(raw('HTTP/1.1 500 X\r\nContent-Length: 10\r\n\r\n'));
  const { outcome, outcomes } = one.send(get);
  await within(outcome, 'an outcome');
  assert.equal(one.client.connectionCount, 1);
  await one.backend.connectionClosed(0, 3_000);
  assert.equal(one.client.connectionCount, 0);
  assert.equal(outcomes.length, 1);
});

test('an answer of exactly the largest size succeeds [D18]', async () => {
  await using one = await start();
  const body = `"${'x'.repeat(responseBytesMax - 2)}"`;
  one.backend.answersOnce(chunked(`${body.length.toString(16)}\r\n${body}\r\n0\r\n\r\n`));
  const outcome = await within(one.send(get).outcome, 'an outcome');
  assert.ok(outcome.kind === 'ok');
  assert.equal(one.budget.bytes, 4_096);
  assert.equal(outcome.body.copy().toString(), body);
  assert.equal(one.budget.bytes, 0);
});

for (const [name, second, kind] of [
  ['does not fit next to the bytes of other calls', 'x'.repeat(400), 'too-large'],
  ['cannot be JSON any more', ']', 'not-json'],
] as const) {
  test(`an answer that ${name} releases its own bytes and no others`, async () => {
    await using one = await start({ budgetBytes: 700 });
    assert.ok(one.budget.take(100), 'bytes of another call');
    const first = `["${'x'.repeat(200)}",`;
    const chunk = (text: string): string => `${text.length.toString(16)}\r\n${text}\r\n`;
    one.backend.answersOnce(inTwoPieces(chunkedHead + chunk(first), `${chunk(second)}0\r\n\r\n`));
    assert.equal((await one.call(get)).kind, kind);
    assert.equal(one.budget.bytes, 100);
    // The connection stays open only after a complete answer.
    assert.equal(one.client.connectionCount, kind === 'not-json' ? 1 : 0);
  });
}

test('the outcome is reported after `send` has returned, even when the backend is down', async () => {
  await using one = await start();
  await one.backend.stop();
  let isSent = false;
  const { promise, resolve, reject } = Promise.withResolvers<boolean>();
  one.client.send(get, { onOutcome: () => resolve(isSent), onFault: reject });
  isSent = true;
  assert.equal(await within(promise, 'an outcome'), true);
});

for (const [name, answers, state, isKept] of [
  ['a refusal', raw('HTTP/1.1 500 X\r\nContent-Length: 10\r\n\r\n'), 'refused', false],
  ['a body that cannot be JSON', inTwoPieces(chunkedHead + '1\r\n[\r\n', '1\r\n}\r\n'), 'not-json', false],
  ['an answer', answer('{}'), 'ok', true],
  ['a body that is not JSON', answer('{'), 'not-json', true],
  ['a connection that is closed', rawThenClose(''), 'unreachable', false],
  ['an answer that does not come', timeout, 'timed-out', false],
] as const) {
  test(`${name}: an error thrown by onOutcome is passed to onFault and ends the call [D28]`, async () => {
    await using one = await start({ timeoutMs: state === 'timed-out' ? 200 : 8_000 });
    one.backend.answersOnce(answers);
    const fault = new Error('of the handler');
    const { promise, resolve } = Promise.withResolvers<unknown>();
    let kind: string | undefined;
    one.client.send(get, {
      onOutcome: (outcome) => {
        kind = outcome.kind;
        if (outcome.kind === 'ok') outcome.body.release();
        throw fault;
      },
      onFault: resolve,
    });
    assert.equal(await within(promise, 'the fault'), fault);
    assert.equal(kind, state);
    assert.equal(one.client.connectionCount, isKept ? 1 : 0);
    assert.equal(one.budget.bytes, 0);
    assert.equal((await one.call(get)).kind, 'ok', 'the next call');
  });
}

test('the outcome of a malformed answer names its flaw [D18]', async () => {
  await using one = await start();
  one.backend.answersOnce(raw('HTTP/1.1 200 O\x01K\r\nContent-Length: 2\r\n\r\n{}'));
  const cause = 'an answer with a control character in its status line';
  assert.deepEqual(await one.call(get), { kind: 'unreachable', status: undefined, reason: 'malformed', cause });
});

test('a call that has failed no longer has a deadline [D19]', async () => {
  await using one = await start({ timeoutMs: 500 });
  one.backend.answersOnce(rawThenClose(''), timeout);
  const failed = one.send(get);
  assert.equal((await within(failed.outcome, 'an outcome')).kind, 'unreachable');
  // If the failed call still had a deadline, the deadline would pass during this call.
  assert.equal((await one.call(get)).kind, 'timed-out');
  assert.equal(failed.outcomes.length, 1);
});

test('once a connection is open, the connect timeout no longer applies [D19]', async () => {
  await using one = await start({ connectTimeoutMs: 400 });
  one.backend.answersOnce(async (exchange) => {
    await new Promise((resolve) => setTimeout(resolve, 600));
    await answer('{}')(exchange);
  });
  assert.equal((await one.call(get)).kind, 'ok');
});
