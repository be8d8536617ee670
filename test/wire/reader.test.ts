// The readers of HTTP/1.1: what they keep from head to head, limits, and ends of the connection [D11, D18, D27]. Whole and
// split messages are in vectors.test.ts, costs in work.test.ts.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { AnswerReader } from '../../packages/core/http1/answer-reader.ts';
import { RequestReader } from '../../packages/core/http1/request-reader.ts';
import { byteByByte, cutAt, headBytesMax, readAnswers, readRequests, type ReadOptions } from './http-readings.ts';

const bytesOf = (text: string): Buffer => Buffer.from(text, 'latin1');
const requests = (text: string, options?: ReadOptions) => readRequests([bytesOf(text)], options);
const answers = (text: string, options?: ReadOptions) => readAnswers([bytesOf(text)], options);

test('a head has no effect on the next head, and two Expect fields are an unknown expectation', () => {
  const head = 'PUT / HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nExpect: 100-continue\r\n\r\n';
  assert.equal(requests(head).messages[0]?.head.expectation, 'unknown');

  const [, second] = requests(
    'PUT /1 HTTP/1.1\r\nHost: x\r\nOrigin: o\r\nExpect: 100-continue\r\nConnection: keep-alive\r\nContent-Length: 0\r\n\r\n' +
      'GET /2 HTTP/1.0\r\n\r\n',
  ).messages;
  assert.deepEqual(second?.head, {
    ...{ method: 'GET', target: '/2', bodyLength: 0, expectation: 'none', persists: false, version: '1.0', fields: [] },
  });
  const [, answer] = answers('HTTP/1.1 204 x\r\nKeep-Alive: timeout=5\r\n\r\nHTTP/1.1 200 x\r\n\r\n').messages;
  assert.deepEqual(answer?.head, {
    status: 200,
    bodyLength: 'until-close',
    persists: true,
    keepAliveSeconds: undefined,
  });
});

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
