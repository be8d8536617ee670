// The backend's answers: size, encoding, and the malformed answers of test/vectors/http [D17, D18, D22]. test/faults has one
// answer for each kind of fault.

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { gzipSync } from 'node:zlib';
import {
  assertReply,
  discarding,
  itemNotFound,
  operation,
  operations,
  passing,
  succeeded,
  type Operation,
} from '../helpers/expected.ts';
import { answer, chunked, endless, raw, rawThenClose, type Answer } from '../helpers/scripted-backend.ts';
import { forEachTarget, type Target } from '../helpers/targets.ts';
import { readAnswers } from '../wire/http-readings.ts';
import { malformed } from '../wire/http-vectors.ts';

const item = '{"id":5}';
const answers = malformed.filter(({ role }) => role === 'answers').map(({ what, bytes }) => ({ what, bytes }));
const longTrailers = `8\r\n${item}\r\n0\r\n${`X: ${'x'.repeat(1000)}\r\n`.repeat(1_100)}`;
answers.push({
  what: 'trailers of 1.1 MB',
  bytes: `HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n${longTrailers}`,
});
const [heads, bodies] = [
  answers.filter(({ bytes }) => readAnswers([Buffer.from(bytes, 'latin1')]).messages.length === 0),
  answers.filter(({ bytes }) => readAnswers([Buffer.from(bytes, 'latin1')]).messages.length > 0),
];

const endlessBody = endless('HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n', `1000\r\n${' '.repeat(4096)}\r\n`);

const failureOf = ({ failure }: Operation): [number, string] => [500, failure];

/** Asserts the replies of the operations to `backendAnswer`, on a new and on a reused backend connection. */
async function callAll(
  target: Target,
  backendAnswer: Answer,
  expect: (operation: Operation) => [status: number, body: string],
  which: readonly Operation[] = operations,
): Promise<void> {
  for (const each of which) {
    await using client = await target.connect();
    for (const connection of ['keep-alive', 'close']) {
      target.backend.answersOnce(answer('[]', { headers: [['Connection', connection]] }));
      await client.call('GET', '/api/work-items');
      target.backend.answersOnce(backendAnswer);
      const before = target.backend.requests.length;
      assertReply(await client.call(each.method, each.path, each.options), ...expect(each));
      assert.equal(target.backend.requests.length, before + 1, 'one backend call');
    }
    await target.settle();
  }
}

forEachTarget(
  (target) => {
    test('the gateway sends no Accept-Encoding, and a gzip answer is not JSON [D22]', async () => {
      for (const { method, path, options, failure } of passing) {
        target().backend.answersOnce(answer(gzipSync(item), { headers: [['Content-Encoding', 'gzip']] }));
        const reply = await target().call(method, path, { ...options, headers: [['Accept-Encoding', 'gzip']] });
        assertReply(reply, 500, failure);
        assert.equal((await target().backend.nextRequest()).header('accept-encoding'), undefined);
      }
    });

    for (const { what, bytes } of heads) {
      test(`if the backend's answer has a malformed head (${what}), each operation replies 500 with its own message [D18]`, async () => {
        await callAll(target(), raw(bytes), failureOf);
      });
    }

    for (const { what, bytes } of bodies) {
      test(`a malformed body (${what}) is 500 for operations that pass bodies on; the others ignore it [D17, D18]`, async () => {
        await callAll(target(), raw(bytes), (each) =>
          passing.includes(each) ? [500, each.failure] : [each.status, succeeded],
        );
      });
    }
  },
  {},
  { kinds: ['in-process'] },
);

describe('RESPONSE_BYTES_MAX=1000', () => {
  forEachTarget(
    (target) => {
      const atLimit = `"${'x'.repeat(998)}"`;
      const large = `"${'x'.repeat(300_000)}"`;
      const framings: [name: string, make: (body: string, status: number) => Answer][] = [
        ['content-length', (body, status) => answer(body, { status })],
        ['chunked', (body, status) => chunked(`${body.length.toString(16)}\r\n${body}\r\n0\r\n\r\n`, { status })],
        ['until close', (body, status) => rawThenClose(`HTTP/1.1 ${status} X\r\n\r\n${body}`)],
      ];
      const rows: [string, Operation[], number, string, (operation: Operation) => [number, string]][] = [
        ['as large as the limit is passed on [D18]', passing, 200, atLimit, ({ status }) => [status, atLimit]],
        ['over the limit is not passed on: the client gets 500 [D18]', passing, 200, `${atLimit} `, failureOf],
        ['over the limit is ignored if the operation discards bodies [D17]', discarding, 200, large, () => [200, succeeded]],
        ['over the limit does not change a 404 [D17]', [operation(3)], 404, large, () => [404, itemNotFound]],
      ]; // prettier-ignore
      for (const [title, which, status, body, expect] of rows) {
        for (const [framing, make] of framings) {
          test(`${framing}: a body ${title}`, () => callAll(target(), make(body, status), expect, which));
        }
      }

      test('an answer over the limit closes its backend connection [D18]', async () => {
        target().backend.answersOnce(endlessBody);
        assertReply(await target().call('GET', '/api/work-items'), 500, operation(1).failure);
        const { connection } = await target().backend.nextRequest();
        await target().backend.connectionClosed(connection);
      });

      test('an endless body is not passed on: the client gets 500 [D18]', async () => {
        await callAll(target(), endlessBody, failureOf, passing);
      });
    },
    { responseBytesMax: 1000 },
    { kinds: ['in-process'] },
  );
});
