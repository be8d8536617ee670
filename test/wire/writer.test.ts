// Heads of requests to the backend and of replies to clients, byte by byte [D12, D23, D24].

import assert from 'node:assert/strict';
import { STATUS_CODES } from 'node:http';
import { test } from 'node:test';
import { BorrowedBytes, noBody } from '../../packages/core/http1/borrowed-bytes.ts';
import { listReplyHeaders } from '../../packages/core/hosts/common/fields.ts';
import type { Reply } from '../../packages/core/http1/transport.ts';
import {
  answerHeads,
  failureReplies,
  notFoundReplies,
  replies,
  replyTooManyRequests,
} from '../../packages/core/replies.ts';
import {
  createReplyHead,
  encodeFieldText,
  writeDate,
  writeReplyHead,
  writeRequestHead,
} from '../../packages/core/http1/writer.ts';
import { readAnswers, readRequests } from './http-readings.ts';

test('a request to the backend has the specified fields and no others [D23]', () => {
  assert.equal(
    writeRequestHead('GET', '/work-items', 'b.example:1', 'id', [], undefined),
    'GET /work-items HTTP/1.1\r\nhost: b.example:1\r\ncontent-type: application/json\r\nx-request-id: id\r\n\r\n',
  );
  assert.equal(
    writeRequestHead('PUT', '/work-items/5', 'b', 'id', ['traceparent', '00-1', 'tracestate', 'a=b'], 7),
    'PUT /work-items/5 HTTP/1.1\r\nhost: b\r\ncontent-type: application/json\r\nx-request-id: id\r\n' +
      'traceparent: 00-1\r\ntracestate: a=b\r\ncontent-length: 7\r\n\r\n',
  );
  // An empty body has a content-length, too.
  assert.match(writeRequestHead('POST', '/', 'b', 'id', [], 0), /\r\ncontent-length: 0\r\n\r\n$/);
});

const headers = ['content-type', 'application/json', 'cache-control', 'no-store'];
function reply(changes: Partial<Reply> = {}): Reply {
  return {
    head: createReplyHead(200, headers),
    added: [],
    requestId: 'r1',
    body: BorrowedBytes.ofConstant(Buffer.from('{}')),
    closes: false,
    drains: false,
    ...changes,
  };
}

test('a reply head has the headers, content-length, request id and connection field [D24]', () => {
  const expected =
    'HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncache-control: no-store\r\n' +
    'content-length: 2\r\nx-request-id: r1\r\nconnection: close\r\n\r\n';
  const ending = 'connection: close\r\n';
  assert.equal(writeReplyHead(reply(), ending), expected);
  // The next reply with the same cached headers has its own id and length.
  const next = reply({ requestId: 'r2', body: BorrowedBytes.ofConstant(Buffer.alloc(345)) });
  assert.equal(writeReplyHead(next, ending), expected.replace('r1', 'r2').replace('length: 2', 'length: 345'));
});

test('a 204 has no content-length, and an unknown status has no reason phrase', () => {
  for (const [status, start] of [
    [204, '204 No Content\r\n'],
    [599, '599 \r\ncontent-length: 0\r\n'],
  ] as const) {
    const head = writeReplyHead(reply({ head: createReplyHead(status, []), body: noBody }), '');
    assert.equal(head, `HTTP/1.1 ${start}x-request-id: r1\r\n\r\n`);
  }
});

test('every status that the gateway sends has the reason phrase of node:http', () => {
  const sent = [replies, answerHeads, failureReplies, notFoundReplies].flatMap((each) => Object.values(each));
  const statuses = new Set([...sent, replyTooManyRequests(1, [])].map(({ status }) => status));
  for (const status of [200, 201, 204, 400, 401, 403, 404, 405, 408, 413, 417, 429, 431, 500, 503]) {
    statuses.add(status);
  }
  for (const status of statuses) {
    assert.equal(createReplyHead(status, []).start, `HTTP/1.1 ${status} ${STATUS_CODES[status]}\r\n`);
  }
});

test('listReplyHeaders lists the headers that writeReplyHead writes, except connection headers', () => {
  for (const added of [[], ['ratelimit', '"default";r=1;t=2']]) {
    for (const [status, length] of [[200, ['content-length', '2']], [204, []]] as const) {
      const expected = [...headers, ...added, ...length, 'x-request-id', 'r1'];
      assert.deepEqual(listReplyHeaders(reply({ head: createReplyHead(status, headers), added })), expected);
    } // prettier-ignore
  }
});

test('the date is the current time in whole seconds', (t) => {
  t.mock.timers.enable({ apis: ['Date'], now: 0 });
  for (const [ms, time] of [[0, '00:00:00'], [999, '00:00:00'], [1_000, '00:00:01'], [61_500, '00:01:01']] as const) {
    t.mock.timers.setTime(Date.UTC(2030, 0, 1) + ms);
    assert.equal(writeDate(), `date: Tue, 01 Jan 2030 ${time} GMT\r\n`);
  } // prettier-ignore
});

const encoded: [text: string, written: string][] = [
  ...['auth0|4711', 'a', 'ab', 'a b  c', '!~$&', ''].map((plain): [string, string] => [plain, plain]),
  [' ', '%20'], ['  ', '%20%20'], [' a', '%20a'], ['  a b  ', '%20%20a b%20%20'], ['a ', 'a%20'],
  ['%', '%25'], ['100%', '100%25'], ['%41', '%2541'], ['a%b c', 'a%25b c'],
  ['\r\nx: y', '%0D%0Ax: y'], ['a\r\nx: y\r\n', 'a%0D%0Ax: y%0D%0A'], ['a\t', 'a%09'], ['a\u0000b\u007f', 'a%00b%7F'],
  ['Jörg', 'J%C3%B6rg'], ['ö', '%C3%B6'], ['a€ b😀', 'a%E2%82%AC b%F0%9F%98%80'],
]; // prettier-ignore

test('any text is encoded as a field value, and percent-decoding restores the text [D48]', () => {
  for (const [text, written] of encoded) {
    assert.equal(encodeFieldText(text), written);
    assert.equal(decodeURIComponent(written), text);
  }
});

test('written heads are read back as the same values', () => {
  const request = writeRequestHead('PUT', '/a', 'x', 'id', [], 2);
  const [sent] = readRequests([Buffer.from(`${request}[]`)]).messages;
  assert.deepEqual([sent?.head.method, sent?.head.target, sent?.body.toString()], ['PUT', '/a', '[]']);
  assert.deepEqual(sent?.head.fields, ['host', 'x', 'x-request-id', 'id']);
  const head = writeReplyHead(reply(), writeDate());
  const [answer] = readAnswers([Buffer.from(`${head}[]`)]).messages;
  assert.deepEqual([answer?.head.status, answer?.isWhole, answer?.body.toString()], [200, true, '[]']);
});
