// Answers with large heads: what the gateway drops anyway fails no call, up to 1 MiB [D18].

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { assertReply, operations } from '../helpers/expected.ts';
import { answer, raw, type Answer } from '../helpers/scripted-backend.ts';
import { forEachTarget } from '../helpers/targets.ts';

const cookies = (count: number, length: number) =>
  Array.from({ length: count }, (_, index): [string, string] => ['Set-Cookie', `c${index}=${'v'.repeat(length)}`]);
const body = '{"id":5}';

const large: [title: string, then: Answer][] = [
  ['60 cookies of 4 KB', answer(body, { headers: cookies(60, 4_096) })],
  ['8,000 small fields', answer(body, { headers: cookies(8_000, 50) })],
  ['one field of 500 KB', answer(body, { headers: cookies(1, 500_000) })],
  [
    'interim answers of 100 KB',
    raw(
      ...Array.from({ length: 5 }, () => `HTTP/1.1 103 Early Hints\r\nLink: ${'x'.repeat(100_000)}\r\n\r\n`),
      `HTTP/1.1 200 OK\r\nContent-Length: ${body.length}\r\n\r\n${body}`,
    ),
  ],
  [
    'trailers of 100 KB',
    raw(
      'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n',
      `8\r\n${body}\r\n0\r\nX: ${'x'.repeat(100_000)}\r\n\r\n`,
    ),
  ],
];

const tooLarge: [title: string, then: Answer][] = [
  ['a head of more than 1 MiB', answer(body, { headers: cookies(300, 4_096) })],
  ['a connection field of 20 KB', answer(body, { headers: [['Connection', 'x'.repeat(20_000)]] })],
];

forEachTarget((target) => {
  for (const { name, method, path, options, status, body: expected, failure } of operations) {
    for (const [title, then] of large) {
      test(`${name}: an answer with ${title} is a success, and its connection is used again [D18]`, async () => {
        target().backend.answers(then);
        const connections = target().backend.connectionsTaken;
        for (let calls = 0; calls < 2; calls += 1) {
          assertReply(await target().call(method, path, options), status, expected);
        }
        assert.ok(target().backend.connectionsTaken <= connections + 1);
      });
    }

    for (const [title, then] of tooLarge) {
      test(`${name}: an answer with ${title} is the operation's 500 [D18]`, async () => {
        target().backend.answers(then);
        assertReply(await target().call(method, path, options), 500, failure);
      });
    }
  }
});
