// Answers of the backend in shapes that two parsers could read differently: heads that are not HTTP/1.1, and
// bodies whose chunks are not. The matrix in test/faults has the faults; here are their spellings. D17, D18.

import { describe, test } from 'node:test';
import { assertReply, operations, passing, succeeded, type Operation } from '../helpers/expected.ts';
import { answer, chunked, raw, type Answer } from '../helpers/scripted-backend.ts';
import { forEachTarget, type Target } from '../helpers/targets.ts';

const item = '{"id":5}';
const good = (lines: string, body = item): Answer => raw(`HTTP/1.1 200 OK\r\n${lines}\r\n\r\n${body}`);

const heads: [name: string, backendAnswer: Answer][] = [
  ['a bare LF behind the status line', raw(`HTTP/1.1 200 OK\nContent-Length: 8\r\n\r\n${item}`)],
  ['a bare LF behind a header', raw(`HTTP/1.1 200 OK\r\nContent-Length: 8\n\r\n${item}`)],
  ['a bare LF as the empty line', raw(`HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\n${item}`)],
  ['bare LFs everywhere', raw(`HTTP/1.1 200 OK\nContent-Length: 8\n\n${item}`)],
  ['bare CRs everywhere', raw(`HTTP/1.1 200 OK\rContent-Length: 8\r\r${item}`)],
  ['a bare LF that hides a header', good('X-Extra: a\nContent-Length: 3\r\nContent-Length: 8')],
  ['CR CR LF', good('X-Extra: a\r\r\nContent-Length: 8')],
  ['a folded header', good('X-Extra: a\r\n b\r\nContent-Length: 8')],
  ['a header folded with a tab', good('X-Extra: a\r\n\tb\r\nContent-Length: 8')],
  ['white space before the first header', good(' X-Extra: 1\r\nContent-Length: 8')],
  ['a tab before a colon', good('Content-Length\t: 8')],
  ['a coding with a space before the colon', good('Transfer-Encoding : chunked', `8\r\n${item}\r\n0\r\n\r\n`)],
  ...['\x0bchunked', '\xa0chunked', ',chunked', 'chunked,', 'chunked;q=1', '"chunked"', 'chunk', 'chunked \xa0', '', 'gzip, chunked', 'chunked\r\nTransfer-Encoding: chunked'].map(
    (coding): [string, Answer] => [
      `the coding ${JSON.stringify(coding)}`,
      good(`Transfer-Encoding: ${coding}`, `8\r\n${item}\r\n0\r\n\r\n`),
    ],
  ),
  ['an empty coding and a length', good('Transfer-Encoding:\r\nContent-Length: 8')],
  ['chunks in HTTP/1.0', raw(`HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n8\r\n${item}\r\n0\r\n\r\n`)],
  ...['\x0b8', '\xa08', '8\0', '8,', '8;', '0o8', '1e1', '8,9', '"8"', '-0', '18446744073709551624', '8 8'].map((length): [string, Answer] => [
    `the length ${JSON.stringify(length)}`,
    good(`Content-Length: ${length}`),
  ]),
  ['a NUL in a header name', good('X\0: 1\r\nContent-Length: 8')],
  ['a byte above ASCII in a header name', good('X\xe9: 1\r\nContent-Length: 8')],
  ['a control character in a header value', good('X-Extra: a\x01\r\nContent-Length: 8')],
  ...['HTTP/1.1200 OK', 'HTTP/1.1  200 OK', 'HTTP/1.1\t200 OK', 'HTTP/1.1 +200 OK', 'HTTP/1.1 200OK', ' HTTP/1.1 200 OK', '\r\nHTTP/1.1 200 OK', 'HTTP/1.1 200 O\rK', 'HTTP/1.1 200 O\0K', 'HTTP/1.1 200 OK\x01', 'HTTP/1.2 200 OK', 'HTTP/1.10 200 OK', 'HTTP/1.1 200.0 OK', 'HTTPS/1.1 200 OK'].map(
    (line): [string, Answer] => [`the status line ${JSON.stringify(line)}`, raw(`${line}\r\nContent-Length: 8\r\n\r\n${item}`)],
  ),
]; // prettier-ignore

const bodies: [name: string, backendAnswer: Answer][] = [
  ...['8;', '8 ', '8\t', ' 8', '+8', '8_', '"8"', '8;a\0', '8;a\rb', '8\r', '10000000000000008'].map((size): [string, Answer] => [
    `has the chunk size ${JSON.stringify(size)}`,
    chunked(`${size}\r\n${item}\r\n0\r\n\r\n`),
  ]),
  ['has a chunk size with a bare LF', chunked(`8\n${item}\r\n0\r\n\r\n`)],
  ['has a bare LF behind a chunk', chunked(`8\r\n${item}\n0\r\n\r\n`)],
  ['has other bytes behind a chunk', chunked(`8\r\n${item}XX0\r\n\r\n`)],
  ['has a bare LF at its end', chunked(`8\r\n${item}\r\n0\r\n\n`)],
  ['has a trailer without a colon', chunked(`8\r\n${item}\r\n0\r\nX\r\n\r\n`)],
  ['has trailers without end', chunked(`8\r\n${item}\r\n0\r\n${`X: ${'x'.repeat(1000)}\r\n`.repeat(40)}`)],
]; // prettier-ignore

/** Every operation gets this answer on a new and on a reused connection. */
async function callAll(
  target: Target,
  backendAnswer: Answer,
  expect: (operation: Operation) => [status: number, body: string],
): Promise<void> {
  for (const each of operations) {
    await using client = await target.connect();
    for (const connection of ['keep-alive', 'close']) {
      target.backend.answersOnce(answer('[]', { headers: [['Connection', connection]] }));
      await client.call('GET', '/api/work-items');
      target.backend.answersOnce(backendAnswer);
      assertReply(await client.call(each.method, each.path, each.options), ...expect(each));
    }
    await target.settle();
  }
}

describe('heads [D18]', () => {
  forEachTarget((target) => {
    for (const [name, backendAnswer] of heads) {
      test(`${name} is every operation's 500`, async () => {
        await callAll(target(), backendAnswer, (each) => [500, each.failure]);
      });
    }
  });
});

describe('bodies [D17, D18]', () => {
  forEachTarget((target) => {
    for (const [name, backendAnswer] of bodies) {
      test(`a body that ${name} is a 500 where it is needed, and no matter elsewhere`, async () => {
        await callAll(target(), backendAnswer, (each) =>
          passing.includes(each) ? [500, each.failure] : [each.status, succeeded],
        );
      });
    }
  });
});
