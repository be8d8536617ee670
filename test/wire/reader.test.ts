// The readers of HTTP/1.1: heads, bodies, ends, limits, and flaws at the first byte that shows them [D11, D18, D27].
// Split messages are in splits.test.ts, costs in work.test.ts.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { AnswerHead, RequestHead } from '../../packages/core/http1/head.ts';
import { AnswerReader } from '../../packages/core/http1/answer-reader.ts';
import { RequestReader } from '../../packages/core/http1/request-reader.ts';
import { answerTexts, flawedAnswerTexts, flawedRequestTexts, requestTexts } from './http-messages.ts';
import { byteByByte, cutAt, headBytesMax, readAnswers, readRequests, type ReadOptions } from './http-readings.ts';

const bytesOf = (text: string): Buffer => Buffer.from(text, 'latin1');
const requests = (text: string, options?: ReadOptions) => readRequests([bytesOf(text)], options);
const answers = (text: string, options?: ReadOptions) => readAnswers([bytesOf(text)], options);

const plainRequest: RequestHead = {
  method: 'GET',
  target: '/a',
  bodyLength: 0,
  expectation: 'none',
  persists: true,
  version: '1.1',
  fields: ['host', 'x'],
};
const plainAnswer: AnswerHead = { status: 200, bodyLength: 'until-close', persists: true, keepAliveSeconds: undefined };

type Told<Head> = readonly [head: Partial<Head>, body: string, isWhole?: boolean];

const post: Partial<RequestHead> = { method: 'POST', bodyLength: 'chunked' };
const requestReadings: Readonly<Record<string, readonly Told<RequestHead>[]>> = {
  'a plain request': [[{}, '']],
  'empty lines before a request': [[{}, '']],
  'known field names in any case': [
    [
      {
        target: '/api/work-items?a=b&c=%20',
        fields: [
          ...['host', 'a.example:8080', 'x-request-id', 'id', 'traceparent', '00-1 2'],
          ...['authorization', 'Basic YTpi', 'authorization', 'second', 'origin', '\xe9\xff'],
        ],
      },
      '',
    ],
  ],
  'an absolute-form target': [[{ target: 'http://u.example/a?b', fields: ['host', 'u.example'] }, '']],
  'OPTIONS with the target *': [[{ method: 'OPTIONS', target: '*' }, '']],
  'a tunnel': [[{ method: 'CONNECT', target: 'a.example:443', fields: ['host', 'a.example:443'] }, '']],
  'a body with a length': [[{ method: 'PUT', bodyLength: 7 }, '{"a":1}']],
  'a length of 0': [[{ method: 'POST' }, '']],
  'a body in chunks': [[post, 'hello1234567890\r']],
  'chunks with extensions and trailers': [[post, 'abc\r\n']],
  'pipelined requests': [
    [{ method: 'POST', target: '/1', bodyLength: 2 }, '12'],
    [{ method: 'PUT', target: '/2', bodyLength: 'chunked' }, 'a'],
    [{ target: '/3' }, ''],
    [{ method: 'DELETE', target: '/4', persists: false }, ''],
  ],
  'HTTP/1.0': [[{ persists: false, version: '1.0', fields: [] }, '']],
  'HTTP/1.0 on a connection that stays open': [
    [{ version: '1.0', fields: ['connection', 'x, Keep-Alive'] }, ''],
    [{ target: '/b', version: '1.0', persists: false, bodyLength: 1, fields: [] }, '1'],
  ],
  expectations: [
    [{ method: 'PUT', bodyLength: 1, expectation: 'continue' }, '1'],
    [{ method: 'PUT', expectation: 'unknown' }, ''],
    // Ignored, because an HTTP/1.0 client would read a 100 as its reply.
    [{ method: 'PUT', version: '1.0', fields: [] }, ''],
  ],
  'an offer to upgrade': [
    [{ fields: ['host', 'x', 'connection', 'upgrade'] }, ''],
    [{ target: '/b' }, ''],
  ],
  'a head that is not whole': [],
  'a body that is not whole': [[{ method: 'PUT', bodyLength: 7 }, '{"a"', false]],
  'trailers that are not whole': [[{ method: 'PUT', bodyLength: 'chunked' }, '', false]],
};

const answerReadings: Readonly<Record<string, readonly Told<AnswerHead>[]>> = {
  'a plain answer': [[{ bodyLength: 2 }, '[]']],
  'no reason': [[{ bodyLength: 2 }, '[]']],
  'no reason and no space': [[{ status: 204, bodyLength: 0 }, '']],
  'a reason of any bytes': [[{ status: 404, bodyLength: 0 }, '']],
  'interim answers before the final one': [[{ bodyLength: 2 }, '[]']],
  'chunks with extensions and trailers': [[{ bodyLength: 'chunked' }, '[]']],
  'a body up to the end of the connection': [[{}, '[1,\r\n2]', false]],
  'no body after a 204': [
    [{ status: 204, bodyLength: 0 }, ''],
    [{ bodyLength: 1 }, '1'],
  ],
  'a 204 that announces a body': [[{ status: 204, bodyLength: 0, persists: false }, '']],
  'a 204 that announces chunks': [[{ status: 204, bodyLength: 0, persists: false }, '']],
  'a 304 with the content-length of the missing body': [
    [{ status: 304, bodyLength: 0 }, ''],
    [{ bodyLength: 1 }, '1'],
  ],
  'consecutive answers': [
    [{ bodyLength: 1, keepAliveSeconds: 7 }, '1'],
    [{ status: 500, bodyLength: 'chunked' }, 'a'],
    [{ bodyLength: 0, persists: false }, ''],
  ],
  'HTTP/1.0': [[{ bodyLength: 1, persists: false }, '1']],
  'HTTP/1.0 on a connection that stays open': [
    [{ bodyLength: 1 }, '1'],
    [{ persists: false }, 'all', false],
  ],
  'a head that is not whole': [],
  'a body that is not whole': [[{ bodyLength: 5 }, 'ab', false]],
};

function expected<Head>(plain: Head, told: readonly Told<Head>[]) {
  return told.map(([head, body, isWhole = true]) => ({ head: { ...plain, ...head }, body: bytesOf(body), isWhole }));
}

test('every message has an expected reading', () => {
  assert.deepEqual(Object.keys(requestReadings), Object.keys(requestTexts));
  assert.deepEqual(Object.keys(answerReadings), Object.keys(answerTexts));
});

for (const [name, text] of Object.entries(requestTexts)) {
  test(`requests are read correctly: ${name}`, () => {
    const { messages, flaw, isBetween, taken } = requests(text);
    assert.deepEqual(messages, expected(plainRequest, requestReadings[name] ?? []));
    assert.equal(flaw, undefined);
    assert.equal(isBetween, !name.includes('not whole'));
    // Nothing after the last message of a connection is read.
    const rest = text.endsWith('not read') ? 'not read' : '';
    assert.equal(taken, text.length - rest.length);
  });
}

for (const [name, text] of Object.entries(answerTexts)) {
  test(`answers are read correctly: ${name}`, () => {
    const { messages, flaw } = answers(text);
    assert.deepEqual(messages, expected(plainAnswer, answerReadings[name] ?? []));
    assert.equal(flaw, undefined);
  });
}

for (const [role, read, texts] of [
  ['requests', readRequests, flawedRequestTexts],
  ['answers', readAnswers, flawedAnswerTexts],
] as const) {
  for (const [name, [upTo, after]] of Object.entries(texts)) {
    test(`${role} are refused at the first byte that shows the flaw: ${name} [D27]`, () => {
      const before = upTo.slice(0, -1);
      assert.equal(read([bytesOf(before)]).flaw, undefined, 'the bytes before the flaw are valid');
      for (const pieces of [[bytesOf(upTo)], byteByByte(bytesOf(upTo)), [bytesOf(upTo + after)]]) {
        const { flaw, messages, taken } = read(pieces);
        assert.match(flaw?.kind ?? '', /^invalid-(?:head|chunks)$/);
        assert.ok((flaw?.reason.length ?? 0) > 10);
        assert.ok(messages.every(({ isWhole }) => !isWhole));
        // The flawed byte is consumed only if it ends the head. All letters of a long method are consumed.
        const isTaken = upTo.endsWith('\n') || upTo.endsWith('M');
        assert.ok(taken === before.length || (isTaken && taken <= upTo.length + 1), String(taken));
      }
    });
  }
}

// prettier-ignore
for (const [what, head, reason] of [
  ['no host', 'GET / HTTP/1.1\r\nA: b\r\n', 'no host'],
  ['two hosts', 'GET / HTTP/1.1\r\nHost: x\r\nHost: x\r\n', 'two host fields'],
  ['two hosts, the first of them invalid', 'GET / HTTP/1.1\r\nHost: a b\r\nHost: x\r\n', 'an invalid host'],
  ['an invalid host', 'GET / HTTP/1.1\r\nHost: a b\r\n', 'an invalid host'],
  ['an invalid host in HTTP/1.0', 'GET / HTTP/1.0\r\nHost: a b\r\n', 'an invalid host'],
  ['an invalid target', 'GET a HTTP/1.1\r\nHost: x\r\n', 'an invalid target'],
  ['an invalid length', 'PUT / HTTP/1.1\r\nHost: x\r\nContent-Length: x\r\n', 'an invalid content-length, or more than one'],
  ['two equal lengths', 'PUT / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 1\r\n', 'an invalid content-length, or more than one'],
  ['a length and a coding', 'PUT / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n', 'both a content-length and a transfer-encoding'],
  ['a coding and a length', 'PUT / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nContent-Length: 1\r\n', 'both a content-length and a transfer-encoding'],
  ['two codings', 'PUT / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n', 'a transfer-encoding that is not exactly one "chunked"'],
  ['another coding', 'PUT / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip\r\n', 'a transfer-encoding that is not exactly one "chunked"'],
  ['an empty coding', 'PUT / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding:\r\n', 'a transfer-encoding that is not exactly one "chunked"'],
  ['a coding in HTTP/1.0', 'PUT / HTTP/1.0\r\nHost: x\r\nTransfer-Encoding: chunked\r\n', 'a transfer-encoding in HTTP/1.0'],
] as const) {
  test(`a request with ${what} is refused at the end of its head [D27]`, () => {
    assert.equal(requests(`${head}\r`).flaw, undefined);
    const { flaw, messages } = requests(`${head}\r\n`);
    assert.deepEqual(flaw, { kind: 'invalid-head', reason });
    assert.deepEqual(messages, []);
  });
}

test('a head has no effect on the next head, and two Expect fields are an unknown expectation', () => {
  const head = 'PUT / HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nExpect: 100-continue\r\n\r\n';
  assert.equal(requests(head).messages[0]?.head.expectation, 'unknown');

  const [, second] = requests(
    'PUT /1 HTTP/1.1\r\nHost: x\r\nOrigin: o\r\nExpect: 100-continue\r\nConnection: keep-alive\r\nContent-Length: 0\r\n\r\n' +
      'GET /2 HTTP/1.0\r\n\r\n',
  ).messages;
  assert.deepEqual(second?.head, { ...plainRequest, ...{ target: '/2', version: '1.0', persists: false, fields: [] } });
  const [, answer] = answers('HTTP/1.1 204 x\r\nKeep-Alive: timeout=5\r\n\r\nHTTP/1.1 200 x\r\n\r\n').messages;
  assert.deepEqual(answer?.head, plainAnswer);
});

// prettier-ignore
for (const [what, head, reason] of [
  ['a status below 100', 'HTTP/1.1 099 x\r\n', 'the unexpected status 99'],
  ['a switch of protocols', 'HTTP/1.1 101 x\r\n', 'the unexpected status 101'],
  ['an interim status in HTTP/1.0', 'HTTP/1.0 199 x\r\n', 'an interim status in HTTP/1.0'],
  ['two lengths (the reported reason) and a wrong status', 'HTTP/1.1 099 x\r\nContent-Length: 1\r\nContent-Length: 1\r\n', 'an invalid content-length, or more than one'],
  ['two lengths (the reported reason) and an interim status in HTTP/1.0', 'HTTP/1.0 100 x\r\nContent-Length: 1\r\nContent-Length: 1\r\n', 'an invalid content-length, or more than one'],
] as const) {
  test(`an answer with ${what} is refused at the end of its head, and the reason is reported [D18]`, () => {
    assert.equal(answers(`${head}\r`).flaw, undefined);
    assert.deepEqual(answers(`${head}\r\n`).flaw, {
      kind: 'invalid-head',
      reason: `an answer with ${reason}`,
    });
  });
}

test('a 204 with a length of 0 keeps its connection open; a 204 with any other length does not [RFC 9112, 6.3]', () => {
  const persists = (fields: string) => answers(`HTTP/1.1 204 x\r\n${fields}\r\n`).messages[0]?.head.persists;
  assert.equal(persists('Content-Length: 0\r\n'), true);
  assert.equal(persists('Content-Length: 1\r\n'), false);
  assert.equal(persists('Connection: close\r\nContent-Length: 0\r\n'), false);
});

test('the last keep-alive field of an answer is used, and in a request the field is ignored', () => {
  const fields = 'KEEP-ALIVE: \t timeout=5 \t\r\nOrigin: timeout=6\r\nContent-Length: 0\r\nDate: timeout=7\r\n';
  assert.equal(answers(`HTTP/1.1 200 x\r\n${fields}\r\n`).messages[0]?.head.keepAliveSeconds, 5);
  assert.equal(
    answers(`HTTP/1.1 200 x\r\nKeep-Alive: timeout=9\r\n${fields}\r\n`).messages[0]?.head.keepAliveSeconds,
    5,
    'the last of several',
  );
  const [request] = requests(`GET /a HTTP/1.1\r\nHost: x\r\n${fields}\r\n`).messages;
  assert.deepEqual(request?.head.fields, ['host', 'x', 'origin', 'timeout=6']);
});

test('an unknown expectation is reported even in HTTP/1.0, and 100-continue is recognised in any case', () => {
  const expectation = (version: string, value: string) =>
    requests(`PUT /a HTTP/${version}\r\nHost: x\r\nexpect:${value}\r\n\r\n`).messages[0]?.head.expectation;
  assert.equal(expectation('1.0', 'tea'), 'unknown');
  assert.equal(expectation('1.0', '100-Continue'), 'none');
  assert.equal(expectation('1.1', ' \t100-CONTINUE\t'), 'continue');
  assert.equal(expectation('1.1', '100-continue, tea'), 'unknown');
});

test('`close` ends the connection, also together with other options and in any of several Connection fields', () => {
  const heads = (connection: string, version = '1.1') =>
    requests(`GET / HTTP/${version}\r\nHost: x\r\n${connection}\r\n`).messages[0]?.head.persists;
  assert.equal(heads('Connection: close\r\nConnection: keep-alive\r\n'), false);
  assert.equal(heads('Connection: keep-alive\r\nConnection: close\r\n'), false);
  assert.equal(heads('Connection: keep-alive, close\r\n', '1.0'), false);
  assert.equal(heads('Connection: keep-alive\r\nConnection: a\r\n', '1.0'), true);
  assert.equal(heads('Connection: a\r\n'), true);
});

// Limits.

function headOf(length: number, start = 'GET / HTTP/1.1\r\nHost: x\r\n', ending = '\r\n\r\n'): string {
  const head = `${start}A: `;
  return `${head}${'b'.repeat(length - head.length - ending.length)}${ending}`;
}

for (const [role, start, read] of [
  ['request', 'GET / HTTP/1.1\r\nHost: x\r\n', readRequests],
  ['answer', 'HTTP/1.1 200 OK\r\n', readAnswers],
] as const) {
  test(`the head of ${role === 'answer' ? 'an' : 'a'} ${role} may have as many bytes as its limit, and not one more [D27]`, () => {
    const max = 1_000;
    const ways = (text: string): Buffer[][] => [
      [bytesOf(text)],
      byteByByte(bytesOf(text)),
      cutAt(bytesOf(text), [max - 1]),
      cutAt(bytesOf(text), [max]),
      cutAt(bytesOf(text), [3, 600]),
    ];
    for (const pieces of ways(`${headOf(max, start)}${role === 'answer' ? 'body' : start}`)) {
      const { messages, flaw } = read(pieces, { headBytesMax: max });
      assert.equal(flaw, undefined);
      assert.equal(messages.length, 1);
    }
    for (const pieces of ways(headOf(max + 1, start))) {
      const { messages, flaw, taken } = read(pieces, { headBytesMax: max });
      assert.deepEqual(flaw, { kind: 'head-too-large', reason: 'a head of more than 1000 bytes' });
      assert.deepEqual(messages, []);
      assert.ok(taken <= max);
    }
    // The flaw is reported as soon as the limit is reached, without further bytes.
    assert.equal(read([bytesOf(headOf(max + 1, start).slice(0, max - 1))], { headBytesMax: max }).flaw, undefined);
    assert.equal(
      read([bytesOf(headOf(max + 1, start).slice(0, max))], { headBytesMax: max }).flaw?.kind,
      'head-too-large',
    );
  });
}

test('the limit applies to each head separately, and empty lines before a head are not counted', () => {
  const max = 200;
  const text = `${headOf(max)}${'\r\n'.repeat(max)}${headOf(max)}${headOf(max)}`;
  for (const pieces of [[bytesOf(text)], byteByByte(bytesOf(text)), cutAt(bytesOf(text), [max + 1, 3 * max])]) {
    const { messages, flaw, isBetween } = readRequests(pieces, { headBytesMax: max });
    assert.equal(flaw, undefined);
    assert.equal(messages.length, 3);
    assert.ok(isBetween);
  }
});

test('the limit applies to each interim answer separately', () => {
  const max = 200;
  const text = `${headOf(max, 'HTTP/1.1 100 x\r\n').repeat(5)}${headOf(max, 'HTTP/1.1 200 OK\r\n')}`;
  for (const pieces of [[bytesOf(text)], byteByByte(bytesOf(text))]) {
    assert.equal(readAnswers(pieces, { headBytesMax: max }).flaw, undefined);
    assert.equal(readAnswers(pieces, { headBytesMax: max - 1 }).flaw?.kind, 'head-too-large');
  }
});

test('trailers may have as many bytes as a head, and not one more', () => {
  const max = 200;
  const start = 'PUT / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n';
  for (const [length, isWhole] of [
    [max, true],
    [max + 1, false],
  ] as const) {
    const text = start + headOf(length, '');
    for (const pieces of [[bytesOf(text)], byteByByte(bytesOf(text)), cutAt(bytesOf(text), [start.length, 240])]) {
      const { messages, flaw } = readRequests(pieces, { headBytesMax: max });
      assert.equal(messages[0]?.isWhole, isWhole);
      assert.equal(flaw?.kind, isWhole ? undefined : 'head-too-large');
    }
  }
});

test('a method may have at most 64 bytes', () => {
  const request = (length: number) => requests(`${'M'.repeat(length)} / HTTP/1.1\r\nHost: x\r\n\r\n`);
  assert.equal(request(64).messages[0]?.head.method, 'M'.repeat(64));
  assert.equal(request(65).flaw?.reason, 'an invalid method');
});

test('a chunk may have at most 2^48 bytes, and its size at most 64 digits', () => {
  const start = 'PUT / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n';
  assert.equal(requests(`${start}1000000000000\r\nabc`).messages[0]?.body.toString(), 'abc');
  assert.equal(requests(`${start}1000000000001\r\nabc`).flaw?.reason, 'a chunk size over the limit');
  assert.equal(requests(`${start}${'1'.padStart(64, '0')}\r\na`).messages[0]?.body.toString(), 'a');
  assert.equal(requests(`${start}${'1'.padStart(65, '0')}\r\na`).flaw?.reason, 'a chunk size over the limit');
  // The limit is per chunk.
  const chunk = `${'1'.padStart(64, '0')}\r\na\r\n`;
  assert.equal(requests(`${start}${chunk.repeat(3)}0\r\n\r\n`).messages[0]?.body.toString(), 'aaa');
});

test('the extensions of one message may have at most 16,384 bytes in all', () => {
  const start = 'PUT / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n';
  // The count begins after each semicolon and includes the CR.
  const chunk = (length: number): string => `1;${'x'.repeat(length - 1)}\r\na\r\n`;
  const fits = `${start}${chunk(10_000)}${chunk(6_384)}0\r\n\r\n`;
  const doesNot = `${start}${chunk(10_000)}${chunk(6_385)}0\r\n\r\n`;
  for (const cut of [byteByByte, (bytes: Buffer) => [bytes]]) {
    assert.equal(readRequests(cut(bytesOf(fits))).messages[0]?.isWhole, true);
    assert.equal(readRequests(cut(bytesOf(doesNot))).flaw?.reason, 'an invalid chunk extension');
    // The limit is per message.
    const { messages } = readRequests(cut(bytesOf(fits + fits)));
    assert.deepEqual(
      messages.map(({ isWhole }) => isWhole),
      [true, true],
    );
  }
});

// The end of the connection.

for (const [state, text, isGood] of [
  ['before an answer', '', false],
  ['within a status line', 'HTTP/1.1 2', false],
  ['within a head', 'HTTP/1.1 200 OK\r\nA', false],
  ['after an interim answer', 'HTTP/1.1 100 Continue\r\n\r\n', false],
  ['within a body with a length', 'HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n1', false],
  ['within a chunk', 'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n1', false],
  ['before the last chunk', 'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n1\r\n', false],
  ['within trailers', 'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nA: b\r\n', false],
  ['after a malformed byte', 'HTTP/1.1 200 OK\r\n\0', false],
  ['within a body without a length', 'HTTP/1.1 200 OK\r\n\r\n1', true],
  ['before the first byte of a body without a length', 'HTTP/1.1 200 OK\r\n\r\n', true],
] as const) {
  test(`an end of the connection ${state} is ${isGood ? 'the end of the answer' : 'a failure'} [D18]`, () => {
    let endCount = 0;
    const reader = new AnswerReader(
      { onHead: () => undefined, onBody: () => undefined, onEnd: () => (endCount += 1) },
      headBytesMax,
    );
    reader.read(bytesOf(text), 0);
    assert.equal(reader.isDone, false);
    assert.equal(reader.end(), isGood);
    assert.equal(reader.isDone, isGood);
    assert.equal(endCount, isGood ? 1 : 0);
    // A second call of `end` returns the same result, and does not call `onEnd` again.
    assert.equal(reader.end(), isGood);
    assert.equal(endCount, isGood ? 1 : 0);
  });
}

test('a reader reports its state: before a message, in its head, in its body, or done', () => {
  const reader = new RequestReader(
    { onHead: () => undefined, onBody: () => undefined, onEnd: () => undefined },
    headBytesMax,
  );
  const states: string[] = [];
  for (const byte of '\r\nPUT / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\nA: b\r\n\r\n') {
    reader.read(bytesOf(byte), 0);
    const state = reader.isDone ? 'done' : reader.isBeforeMessage ? 'before' : reader.isInHead ? 'head' : 'body';
    assert.equal([reader.isDone, reader.isBeforeMessage, reader.isInHead].filter(Boolean).length <= 1, true);
    if (states.at(-1) !== state) states.push(state);
  }
  assert.deepEqual(states, ['before', 'head', 'body', 'done']);
  assert.equal(reader.read(bytesOf('GET'), 0), 0, 'nothing is read before next()');
  reader.next();
  assert.equal(reader.isBeforeMessage, true);
});

test('one message at a time is read: the bytes after the message are not read', () => {
  const bodies: string[] = [];
  const reader = new RequestReader(
    { onHead: () => undefined, onBody: (piece) => bodies.push(piece.toString('latin1')), onEnd: () => undefined },
    headBytesMax,
  );
  const first = 'PUT /1 HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nab';
  const second = 'PUT /2 HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n2\r\ncd\r\n0\r\n\r\n';
  const bytes = bytesOf(first + second + 'more');
  assert.equal(reader.read(bytes, 0), first.length);
  reader.next();
  assert.equal(reader.read(bytes, first.length), first.length + second.length);
  assert.deepEqual(bodies, ['ab', 'cd']);
});

test('small chunks are passed on together; a large chunk begins a new piece', () => {
  const pieces: string[] = [];
  const reader = new RequestReader(
    { onHead: () => undefined, onBody: (piece) => pieces.push(piece.toString('latin1')), onEnd: () => undefined },
    headBytesMax,
  );
  const chunk = (data: string): string => `${data.length.toString(16)}\r\n${data}\r\n`;
  const small = 'abcdefghij'.repeat(20);
  const large = 'L'.repeat(1_025);
  reader.read(
    bytesOf(
      `PUT / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n${Array.from(small, chunk).join('')}${chunk(large)}` +
        `${chunk('x'.repeat(1_024))}${chunk('y')}0\r\n\r\n`,
    ),
    0,
  );
  assert.deepEqual(pieces, [small, `${large}${'x'.repeat(1_024)}y`]);
});
