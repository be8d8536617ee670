// Interim heads before an answer, and status lines, in whatever pieces they come: D15, D18. undici reads the heads; that
// an unrequested 100 is skipped, and that an answer is HTTP/1.1, is seen to before it [RFC 9110, 15.2].

import assert from 'node:assert/strict';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { test } from 'node:test';
import { BackendClient, type BackendRequest, type Outcome } from '../../packages/core/backend/client.ts';
import { BufferBudget } from '../../packages/core/body/budget.ts';
import { within } from '../helpers/changes.ts';
import { ScriptedBackend, type Answer } from '../helpers/scripted-backend.ts';

const get: BackendRequest = {
  method: 'GET',
  path: '/api/WorkItem/5',
  body: undefined,
  requestId: 'id',
  traceContext: [],
  needsAnswer: true,
};

async function start() {
  const backend = await ScriptedBackend.start();
  const client = new BackendClient({
    backendUrl: new URL(backend.url),
    timeoutMs: 8_000,
    connectTimeoutMs: 5_000,
    idleTimeoutMs: 60_000,
    responseBytesMax: 1_000,
    budget: new BufferBudget(1_000_000),
  });
  const call = async (): Promise<Outcome> => {
    const { promise, resolve, reject } = Promise.withResolvers<Outcome>();
    client.send(get, { onOutcome: resolve, onFault: reject });
    return await within(promise, 'an outcome');
  };
  return {
    backend,
    call,
    [Symbol.asyncDispose]: async () => {
      await client.close();
      await backend.stop();
    },
  };
}

/** Each piece in a turn of its own, so that they are read one by one. */
function inTurns(...pieces: string[]): Answer {
  return async (exchange) => {
    for (const piece of pieces) {
      await exchange.write(piece);
      for (let turn = 0; turn < 3; turn += 1) await nextTurn();
    }
  };
}

const body = '{"id":5}';
const final = `HTTP/1.1 200 OK\r\nContent-Length: ${body.length}\r\n\r\n${body}`;
const passing: [name: string, bytes: string][] = [
  ['no interim head', final],
  ['a 100', `HTTP/1.1 100 Continue\r\n\r\n${final}`],
  ['a 100 with a header and without a reason', `HTTP/1.1 100 \r\nX: 1\r\n\r\n${final}`],
  ['two 100s', `HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n${final}`],
  [
    'a 103 between two 100s',
    `HTTP/1.1 100 A\r\n\r\nHTTP/1.1 103 B\r\nLink: </100>\r\n\r\nHTTP/1.1 100 C\r\n\r\n${final}`,
  ],
  ['a 102', `HTTP/1.1 102 Processing\r\n\r\n${final}`],
  [
    'a final answer in HTTP/1.0',
    final.replace('1.1', '1.0').replace('\r\n', '\r\nConnection: keep-alive\r\n'),
  ],
];
const failing: [name: string, bytes: string][] = [
  ['a 100 in HTTP/1.0', `HTTP/1.0 100 Continue\r\n\r\n${final}`],
  ['HTTP/2.0', final.replace('HTTP/1.1', 'HTTP/2.0')],
  ['HTTP/1.2 behind a 100', `HTTP/1.1 100 A\r\n\r\n${final.replace('HTTP/1.1', 'HTTP/1.2')}`],
  ['no HTTP', final.replace('HTTP/1.1', 'ICY/1.1')],
  ['101', 'HTTP/1.1 101 Switching\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n'],
  ['a reason with a control character in it', final.replace('OK', 'a rea\x01son')],
  ['a 100 of more than 16 KiB', `HTTP/1.1 100 A\r\nX: ${'x'.repeat(20_000)}\r\n\r\n${final}`],
];

for (const [name, bytes] of passing) {
  test(`an answer with ${name} passes, cut in two at any byte, and its connection is used again [D15]`, async () => {
    await using one = await start();
    for (let at = 1; at < bytes.length; at += 1) {
      one.backend.answersOnce(inTurns(bytes.slice(0, at), bytes.slice(at)));
      const outcome = await one.call();
      assert.ok(outcome.kind === 'ok', `cut at ${at}: ${outcome.kind}`);
      assert.equal(Buffer.concat([...outcome.pieces]).toString(), body);
      assert.equal(outcome.status, 200);
    }
    assert.equal(one.backend.connectionsTaken, 1);
  });

  test(`an answer with ${name} passes byte by byte and whole [D15]`, async () => {
    await using one = await start();
    for (const pieces of [bytes.split(''), [bytes]]) {
      one.backend.answersOnce(inTurns(...pieces));
      assert.equal((await one.call()).kind, 'ok');
    }
    assert.equal(one.backend.connectionsTaken, 1);
  });
}

for (const [name, bytes] of failing) {
  test(`an answer in ${name} is of no use, cut in two at any byte of its first line and whole [D18]`, async () => {
    await using one = await start();
    for (let at = 1; at <= bytes.indexOf('\r\n') + 2; at += 1) {
      one.backend.answersOnce(inTurns(bytes.slice(0, at), bytes.slice(at)));
      assert.equal((await one.call()).kind, 'unreachable', `cut at ${at}`);
    }
    one.backend.answersOnce(inTurns(bytes));
    assert.equal((await one.call()).kind, 'unreachable');
    // None of them is used again.
    assert.ok(one.backend.requests.every(({ indexOnConnection }) => indexOnConnection === 0));
  });
}

for (const [what, bytes] of [
  ['a status line', `HTTP/1.1 200 ${'x'.repeat(20_000)}`],
  ['an interim head', `HTTP/1.1 103 A\r\nX: ${'x'.repeat(20_000)}`],
  ['a status line behind a 100', `HTTP/1.1 100 A\r\n\r\nHTTP/1.1 200 ${'x'.repeat(20_000)}`],
] as const) {
  test(`${what} that has not ended after 16 KiB is of no use, and its end is not waited for [D18]`, async () => {
    await using one = await start();
    one.backend.answersOnce(async (exchange) => {
      await exchange.write(bytes);
      await exchange.closed;
    });
    assert.equal((await one.call()).kind, 'unreachable');
  });
}
