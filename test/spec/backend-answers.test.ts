// The backend's answers: size, encoding, and malformed HTTP that two parsers could read differently [D17, D18, D22].
// test/faults has one answer for each kind of fault; this file has many variants of each kind.

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
import { forEachTarget, forEveryTarget, type Target } from '../helpers/targets.ts';

const item = '{"id":5}';
const good = (lines: string, body = item): Answer => raw(`HTTP/1.1 200 OK\r\n${lines}\r\n\r\n${body}`);

const chunkedItem = `8\r\n${item}\r\n0\r\n\r\n`;
const wholeHeads = [
  'HTTP/1.1 200 OK\nContent-Length: 8\r\n\r\n', 'HTTP/1.1 200 OK\r\nContent-Length: 8\n\r\n', 'HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\n',
  'HTTP/1.1 200 OK\nContent-Length: 8\n\n', 'HTTP/1.1 200 OK\rContent-Length: 8\r\r',
]; // prettier-ignore
const headerLines = [
  'X-Extra: a\nContent-Length: 3\r\nContent-Length: 8', 'X-Extra: a\r\r\nContent-Length: 8', 'X-Extra: a\r\n b\r\nContent-Length: 8',
  'X-Extra: a\r\n\tb\r\nContent-Length: 8', ' X-Extra: 1\r\nContent-Length: 8', 'Content-Length\t: 8', 'Transfer-Encoding:\r\nContent-Length: 8',
  'X\0: 1\r\nContent-Length: 8', 'X\xe9: 1\r\nContent-Length: 8', 'X-Extra: a\x01\r\nContent-Length: 8', 'Content-Length : 8',
  'Content-Length: 8\r\nContent-Length: 3', 'X-Extra\r\nContent-Length: 8', ': 1\r\nContent-Length: 8', 'X Extra: 1\r\nContent-Length: 8',
  'X-Extra: a\0b\r\nContent-Length: 8', 'X-Extra: a\rb\r\nContent-Length: 8', 'X-Extra: a\rContent-Length: 3\r\nContent-Length: 8',
  'Transfer-Encoding: identity\r\nConnection: close',
]; // prettier-ignore
const lengths = [
  '\x0b8', '\xa08', '8\0', '8,', '8;', '0o8', '1e1', '8,9', '"8"', '-0', '18446744073709551624', '8 8',
  '8, 8', '+8', '0x8', '8x', '0 8', '8.0', '', '9'.repeat(30), '\r\n 8',
]; // prettier-ignore
const codings = [
  '\x0bchunked', '\xa0chunked', ',chunked', 'chunked,', 'chunked;q=1', '"chunked"', 'chunk', 'chunked \xa0', '', 'gzip, chunked',
  'chunked\r\nTransfer-Encoding: chunked', 'chunked, chunked', 'chunked, identity', 'chunked\r\nTransfer-Encoding: identity',
  '\r\n chunked', 'chunked\r\nContent-Length: 8',
]; // prettier-ignore
const statusLines = [
  'HTTP/1.1200 OK', 'HTTP/1.1  200 OK', 'HTTP/1.1\t200 OK', 'HTTP/1.1 +200 OK', 'HTTP/1.1 200OK', ' HTTP/1.1 200 OK', '\r\nHTTP/1.1 200 OK',
  'HTTP/1.1 200 O\rK', 'HTTP/1.1 200 O\0K', 'HTTP/1.1 200 OK\x01', 'HTTP/1.2 200 OK', 'HTTP/1.10 200 OK', 'HTTP/1.1 200.0 OK', 'HTTPS/1.1 200 OK',
  'HTTP/1.1 OK', 'HTTP/1.1 2000 OK', 'HTTP/1.1 2x0 OK', 'http/1.1 200 OK', 'ICY 200 OK',
]; // prettier-ignore
const heads: [head: string, backendAnswer: Answer][] = [
  ...wholeHeads.map((head): [string, Answer] => [head, raw(head + item)]),
  ...headerLines.map((lines): [string, Answer] => [lines, good(lines)]),
  ...lengths.map((length): [string, Answer] => [`Content-Length: ${length}`, good(`Content-Length: ${length}`)]),
  ...codings.map((coding): [string, Answer] => [`Transfer-Encoding: ${coding}`, good(`Transfer-Encoding: ${coding}`, chunkedItem)]),
  ['Transfer-Encoding : chunked', good('Transfer-Encoding : chunked', chunkedItem)],
  ['HTTP/1.0 and chunks', raw(`HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n${chunkedItem}`)],
  ...statusLines.map((line): [string, Answer] => [line, raw(`${line}\r\nContent-Length: 8\r\n\r\n${item}`)]),
]; // prettier-ignore

const chunkSizes = [
  '8;', '8 ', '8\t', ' 8', '+8', '8_', '"8"', '8;a\0', '8;a\rb', '8\r', '10000000000000008', '-8', '0x8', 'fffffffffffffffff',
]; // prettier-ignore
const bodies: string[] = [
  ...chunkSizes.map((size) => `${size}\r\n${item}\r\n0\r\n\r\n`),
  `8\n${item}\r\n0\r\n\r\n`, `8\r\n${item}\n0\r\n\r\n`, `8\r\n${item}XX0\r\n\r\n`, `8\r\n${item}\r\n0\r\n\n`,
  `8\r\n${item}\r\n0\r\nX\r\n\r\n`, `8\r\n${item}\r\n0\r\n${`X: ${'x'.repeat(1000)}\r\n`.repeat(1_100)}`,
]; // prettier-ignore

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

forEveryTarget((target) => {
  for (const { name, method, path, options, failure } of passing) {
    test(`operation ${name}: the gateway sends no Accept-Encoding, and a gzip answer is not JSON [D22]`, async () => {
      target().backend.answersOnce(answer(gzipSync(item), { headers: [['Content-Encoding', 'gzip']] }));
      const reply = await target().call(method, path, { ...options, headers: [['Accept-Encoding', 'gzip']] });
      assertReply(reply, 500, failure);
      assert.equal((await target().backend.nextRequest()).header('accept-encoding'), undefined);
    });
  }
});

forEachTarget(
  (target) => {
    for (const [head, backendAnswer] of heads) {
      test(`if the backend's answer has ${JSON.stringify(head)}, each operation replies 500 with its own message [D18]`, async () => {
        await callAll(target(), backendAnswer, failureOf);
      });
    }

    for (const body of bodies) {
      test(`the chunked body ${JSON.stringify(body.slice(0, 60))} is 500 for operations that pass bodies on; the others ignore it [D17, D18]`, async () => {
        await callAll(target(), chunked(body), (each) =>
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
