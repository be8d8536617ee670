// What each kind of answer of the backend becomes: D15 to D18 and D22. Everything here is one backend call and
// one reply, and after it the gateway serves the next call.

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
import { bytesOf, type Reply } from '../helpers/raw-client.ts';
import {
  answer,
  answerBytes,
  chunked,
  endlessBody,
  endlessHeaders,
  garbage,
  informational,
  limitData,
  noContent,
  raw,
  rawThenClose,
  resetPeer,
  slicer,
  slowClose,
  timeout,
  twoAnswers,
  wrongLength,
  type Answer,
  type Exchange,
} from '../helpers/scripted-backend.ts';
import { within } from '../helpers/changes.ts';
import { forEachTarget, type Target } from '../helpers/targets.ts';

const item = '{"id":5}';
const itemBytes = answerBytes(item);

function assertSuccess(reply: Reply, { status, body }: Operation): void {
  assertReply(reply, status, body);
}

function call(target: Target, { method, path, options }: Operation): Promise<Reply> {
  return target.call(method, path, options);
}

/** Every operation gets this answer on a new and on a reused connection, and `assertIt` looks at the reply. */
function testEach(
  target: () => Target,
  title: string,
  backendAnswer: Answer,
  assertIt: (reply: Reply, operation: Operation) => void,
  which: readonly Operation[] = operations,
): void {
  for (const each of which) {
    test(`operation ${each.name}: ${title}`, async () => {
      await using client = await target().connect();
      for (const connection of ['keep-alive', 'close']) {
        target().backend.answersOnce(answer('[]', { headers: [['Connection', connection]] }));
        await client.call('GET', '/api/work-items');
        target().backend.answersOnce(backendAnswer);
        const before = target().backend.requests.length;
        assertIt(await client.call(each.method, each.path, each.options), each);
        assert.equal(target().backend.requests.length, before + 1, 'one backend call');
      }
      await target().settle();
    });
  }
}

const good = (lines: string, body = item): Answer => raw(`HTTP/1.1 200 OK\r\n${lines}\r\n\r\n${body}`);

/** Heads that two parsers could read differently, or that are no heads. */
const badHeads: [name: string, backendAnswer: Answer][] = [
  ['content-length and transfer-encoding', good('Content-Length: 8\r\nTransfer-Encoding: chunked', `8\r\n${item}\r\n0\r\n\r\n`)],
  ['transfer-encoding and content-length', good('Transfer-Encoding: chunked\r\nContent-Length: 8', `8\r\n${item}\r\n0\r\n\r\n`)],
  ['two lengths that differ', good('Content-Length: 8\r\nContent-Length: 3')],
  ['two lengths that are the same', good('Content-Length: 8\r\nContent-Length: 8')],
  ['a list of lengths', good('Content-Length: 8, 8')],
  ['a length with a plus sign', good('Content-Length: +8')],
  ['a negative length', good('Content-Length: -8')],
  ['a hexadecimal length', good('Content-Length: 0x8')],
  ['a length with something behind', good('Content-Length: 8x')],
  ['a length with a space inside', good('Content-Length: 0 8')],
  ['a fractional length', good('Content-Length: 8.0')],
  ['an empty length', good('Content-Length:')],
  ['a length beyond every integer', good(`Content-Length: ${'9'.repeat(30)}`)],
  ['a folded length', good('Content-Length:\r\n 8')],
  ['a length with a space before the colon', good('Content-Length : 8')],
  ['the coding identity', good('Transfer-Encoding: identity\r\nConnection: close')],
  ['an unknown coding', good('Transfer-Encoding: xchunked', `8\r\n${item}\r\n0\r\n\r\n`)],
  ['chunked twice', good('Transfer-Encoding: chunked, chunked', `8\r\n${item}\r\n0\r\n\r\n`)],
  ['chunked before another coding', good('Transfer-Encoding: chunked, identity', `8\r\n${item}\r\n0\r\n\r\n`)],
  ['two transfer-encoding lines', good('Transfer-Encoding: chunked\r\nTransfer-Encoding: identity', `8\r\n${item}\r\n0\r\n\r\n`)],
  ['a folded coding', good('Transfer-Encoding:\r\n chunked', `8\r\n${item}\r\n0\r\n\r\n`)],
  ['a space before the colon', good('X-Extra : 1\r\nContent-Length: 8')],
  ['a header line without a colon', good('X-Extra\r\nContent-Length: 8')],
  ['an empty header name', good(': 1\r\nContent-Length: 8')],
  ['a space in a header name', good('X Extra: 1\r\nContent-Length: 8')],
  ['a NUL in a header value', good('X-Extra: a\0b\r\nContent-Length: 8')],
  ['a bare CR in a header value', good('X-Extra: a\rb\r\nContent-Length: 8')],
  ['a bare CR that hides a header', good('X-Extra: a\rContent-Length: 3\r\nContent-Length: 8')],
  ['no status', raw('HTTP/1.1 OK\r\nContent-Length: 8\r\n\r\n', item)],
  ['a status of two digits', raw('HTTP/1.1 20 OK\r\nContent-Length: 8\r\n\r\n', item)],
  ['a status of four digits', raw('HTTP/1.1 2000 OK\r\nContent-Length: 8\r\n\r\n', item)],
  ['a status that is no number', raw('HTTP/1.1 2x0 OK\r\nContent-Length: 8\r\n\r\n', item)],
  ['HTTP/2.0', raw('HTTP/2.0 200 OK\r\nContent-Length: 8\r\n\r\n', item)],
  ['HTTP/1.1 in small letters', raw('http/1.1 200 OK\r\nContent-Length: 8\r\n\r\n', item)],
  ['another protocol', raw('ICY 200 OK\r\nContent-Length: 8\r\n\r\n', item)],
  ['an SSH greeting', rawThenClose('SSH-2.0-OpenSSH_9.6\r\n')],
  ['a TLS alert', rawThenClose('\x15\x03\x01\x00\x02\x02\x46')],
  ['an HTTP/0.9 answer', rawThenClose(item)],
  ['garbage', garbage],
  ['101 Switching Protocols', raw('HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n', itemBytes)],
  ['headers of 100 KB', good(`X-Extra: ${'x'.repeat(100_000)}\r\nContent-Length: 8`)],
  ['headers without end', endlessHeaders],
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
  ...['\x0bchunked', '\xa0chunked', ',chunked', 'chunked,', 'chunked;q=1', '"chunked"', 'chunk', '', 'gzip, chunked', 'chunked\r\nTransfer-Encoding: chunked'].map(
    (coding): [string, Answer] => [
      `the coding ${JSON.stringify(coding)}`,
      good(`Transfer-Encoding: ${coding}`, `8\r\n${item}\r\n0\r\n\r\n`),
    ],
  ),
  ['an empty coding and a length', good('Transfer-Encoding:\r\nContent-Length: 8')],
  ['chunks in HTTP/1.0', raw(`HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n8\r\n${item}\r\n0\r\n\r\n`)],
  ...['\x0b8', '\xa08', '8\0', '8,', '8;', '0o8', '1e1', '8,9', '"8"', '-0', '18446744073709551624'].map((length): [string, Answer] => [
    `the length ${JSON.stringify(length)}`,
    good(`Content-Length: ${length}`),
  ]),
  ['a NUL in a header name', good('X\0: 1\r\nContent-Length: 8')],
  ['a byte above ASCII in a header name', good('X\xe9: 1\r\nContent-Length: 8')],
  ['a control character in a header value', good('X-Extra: a\x01\r\nContent-Length: 8')],
  ...['HTTP/1.1200 OK', 'HTTP/1.1  200 OK', 'HTTP/1.1\t200 OK', 'HTTP/1.1 +200 OK', 'HTTP/1.1 200OK', ' HTTP/1.1 200 OK', '\r\nHTTP/1.1 200 OK', 'HTTP/1.1 200 O\rK', 'HTTP/1.1 200 O\0K', 'HTTP/1.1 200 OK\x01', 'HTTP/1.2 200 OK', 'HTTP/1.10 200 OK', 'HTTP/1.1 200.0 OK', 'HTTPS/1.1 200 OK'].map(
    (line): [string, Answer] => [`the status line ${JSON.stringify(line)}`, raw(`${line}\r\nContent-Length: 8\r\n\r\n${item}`)],
  ),
  ['a head cut off', limitData(30, itemBytes)],
  ['a head cut off before its last line end', limitData(itemBytes.length - item.length - 2, itemBytes)],
  ['a head cut off by a reset', resetPeer(30, itemBytes)],
]; // prettier-ignore

/** Bodies that are broken behind a good head. */
const badBodies: [name: string, backendAnswer: (status: number) => Answer][] = [
  ['ends early', (status) => rawThenClose(`HTTP/1.1 ${status} X\r\nContent-Length: 100\r\n\r\n${item}`)],
  ['is reset in the middle', (status) => resetPeer(500, answerBytes(`"${'x'.repeat(1000)}"`, { status }))],
  ['ends in the middle of a chunk', (status) => rawThenClose(`HTTP/1.1 ${status} X\r\nTransfer-Encoding: chunked\r\n\r\n8\r\n{"id`)],
  ['ends before the last chunk', (status) => rawThenClose(`HTTP/1.1 ${status} X\r\nTransfer-Encoding: chunked\r\n\r\n8\r\n${item}\r\n`)],
  ['ends before the last line end', (status) => rawThenClose(`HTTP/1.1 ${status} X\r\nTransfer-Encoding: chunked\r\n\r\n8\r\n${item}\r\n0\r\n`)],
  ['has a chunk size that is no number', (status) => chunked(`zz\r\n${item}\r\n0\r\n\r\n`, { status })],
  ['has a negative chunk size', (status) => chunked(`-8\r\n${item}\r\n0\r\n\r\n`, { status })],
  ['has a chunk size with a prefix', (status) => chunked(`0x8\r\n${item}\r\n0\r\n\r\n`, { status })],
  ['has a chunk size beyond every integer', (status) => chunked(`fffffffffffffffff\r\n${item}\r\n0\r\n\r\n`, { status })],
  ['has a chunk longer than its size', (status) => chunked(`3\r\n${item}\r\n0\r\n\r\n`, { status })],
  ['has no line end after a chunk', (status) => chunked(`8\r\n${item}0\r\n\r\n`, { status })],
  ...['8;', '8 ', '8\t', ' 8', '+8', '8_', '"8"', '8;a\0', '8;a\rb', '8\r', '10000000000000008'].map((size): [string, (status: number) => Answer] => [
    `has the chunk size ${JSON.stringify(size)}`,
    (status) => chunked(`${size}\r\n${item}\r\n0\r\n\r\n`, { status }),
  ]),
  ['has a chunk size with a bare LF', (status) => chunked(`8\n${item}\r\n0\r\n\r\n`, { status })],
  ['has a bare LF behind a chunk', (status) => chunked(`8\r\n${item}\n0\r\n\r\n`, { status })],
  ['has other bytes behind a chunk', (status) => chunked(`8\r\n${item}XX0\r\n\r\n`, { status })],
  ['has a bare LF at its end', (status) => chunked(`8\r\n${item}\r\n0\r\n\n`, { status })],
  ['has a trailer without a colon', (status) => chunked(`8\r\n${item}\r\n0\r\nX\r\n\r\n`, { status })],
  ['has trailers without end', (status) => chunked(`8\r\n${item}\r\n0\r\n${`X: ${'x'.repeat(1000)}\r\n`.repeat(40)}`, { status })],
  ['has a chunk size and no line end', (status) => chunked(`8;${item}`.repeat(3000), { status })],
]; // prettier-ignore

forEachTarget((target) => {
  test('200 to 299 are a success for every operation [D15]', async () => {
    await using client = await target().connect();
    for (let status = 200; status < 300; status += 1) {
      if (status === 204) continue;
      for (const each of operations) {
        target().backend.answersOnce(answer(item, { status }));
        assertSuccess(await client.call(each.method, each.path, each.options), each);
      }
    }
  });

  test('300 to 399 are no success and never followed [D15]', async () => {
    await using client = await target().connect();
    for (let status = 300; status < 400; status += 1) {
      for (const { method, path, options, failure } of operations) {
        const before = target().backend.requests.length;
        const headers = [['Location', `${target().backend.url}/api/WorkItem/9`]] as const;
        target().backend.answersOnce(
          status === 304 ? raw('HTTP/1.1 304 Not Modified\r\n\r\n') : answer(item, { status, headers }),
        );
        assertReply(await client.call(method, path, options), 500, failure);
        assert.equal(target().backend.requests.length, before + 1);
      }
    }
  });

  test('400 to 999 are no success, and 404 of operation 3 is the only one with a reply of its own [D15; spec 7, rule 1]', async () => {
    await using client = await target().connect();
    for (let status = 400; status < 1000; status += status < 600 ? 1 : 19) {
      for (const each of operations) {
        target().backend.answersOnce(answer(item, { status }));
        const isMapped = status === 404 && each === operation(3);
        const reply = await client.call(each.method, each.path, each.options);
        assertReply(reply, isMapped ? 404 : 500, isMapped ? itemNotFound : each.failure);
      }
    }
    await target().settle();
  });

  test('000 to 099 are no statuses: the operation fails, and the gateway lives [D18]', async () => {
    for (let status = 0; status < 100; status += 11) {
      for (const each of operations) {
        // A GET on a reused connection is not resent here: bytes of an answer have come.
        target().backend.answersOnce(answer(item, { status }));
        assertReply(await call(target(), each), 500, each.failure);
      }
    }
    await target().settle();
  });

  for (const statuses of [
    [100],
    [102],
    [103],
    [199],
    [100, 100],
    [103, 102, 100, 103],
    Array<number>(50).fill(103),
  ]) {
    testEach(
      target,
      `1xx are skipped: ${statuses.length < 5 ? statuses.join(', ') : `${statuses.length} of them`} before the answer [D15]`,
      informational(statuses, itemBytes),
      assertSuccess,
    );
  }

  testEach(
    target,
    '1xx are skipped when they come alone, before the answer [D15]',
    async (exchange) => {
      await exchange.write('HTTP/1.1 103 Early Hints\r\nLink: </x>; rel=preload\r\n\r\n');
      await exchange.write('HTTP/1.1 100 Continue\r\n\r\n');
      await new Promise((resolve) => setImmediate(resolve));
      await exchange.write(itemBytes);
    },
    assertSuccess,
  );

  testEach(
    target,
    '1xx are skipped in whatever pieces they come [D15]',
    slicer(
      Buffer.concat([
        bytesOf('HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nX: 1\r\n\r\n'),
        itemBytes,
      ]),
      7,
    ),
    assertSuccess,
  );

  for (const [size, name] of [
    [1, 'single bytes'],
    [2, 'pairs'],
    [3, 'threes'],
    [16, 'pieces of 16'],
  ] as const) {
    // prettier-ignore
    testEach(target, `an answer in ${name} is the same answer [D18]`, slicer(itemBytes, size), assertSuccess);
  }

  for (const [name, backendAnswer] of [
    ['content-length: 0', answer('')],
    ['204', noContent],
    ['no chunk but the last', chunked('0\r\n\r\n')],
    ['a connection that is closed', rawThenClose('HTTP/1.1 200 OK\r\n\r\n')],
  ] as const) {
    testEach(
      target,
      `an empty body with a success status, ${name}, is not JSON, and nothing to operations 4 and 5 [D16]`,
      backendAnswer,
      (reply, each) => {
        if (each.passesBody) assertReply(reply, 500, each.failure);
        else assertReply(reply, 200, succeeded);
      },
    );
  }

  for (const [name, backendAnswer] of [
    ['a length', answer(item)],
    ['chunks', chunked('4\r\n{"id\r\n4\r\n":5}\r\n0\r\n\r\n')],
    ['chunks in capitals with extensions', chunked('00008;a="b;c"\r\n{"id":5}\r\n0;x\r\n\r\n')],
    ['chunks and trailers', chunked('8\r\n{"id":5}\r\n0\r\nX-Trailer: 1\r\n\r\n')],
    ['the end of the connection', rawThenClose(`HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n${item}`)],
    [
      'the end of the connection, slowly',
      slowClose(50, `HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\n${item}`),
    ],
    ['HTTP/1.0', rawThenClose(`HTTP/1.0 200 OK\r\n\r\n${item}`)],
    ['Transfer-Encoding in capitals', good('TRANSFER-ENCODING: CHUNKED', `8\r\n${item}\r\n0\r\n\r\n`)],
    ['no reason phrase', raw(`HTTP/1.1 200 \r\nContent-Length: 8\r\n\r\n${item}`)],
    ['no content type', good('Content-Length: 8')],
    ['many headers', good(`${'X-Extra: 1\r\n'.repeat(100)}Content-Length: 8`)],
  ] as const) {
    testEach(
      target,
      `a well-formed answer framed by ${name} is passed on [spec 4]`,
      backendAnswer,
      (reply, each) => {
        assertSuccess(reply, each);
      },
    );
  }

  for (const [name, backendAnswer] of badHeads) {
    testEach(target, `a head with ${name} is the operation's 500 [D18]`, backendAnswer, (reply, each) => {
      assertReply(reply, 500, each.failure);
    });
  }

  for (const [name, backendAnswer] of badBodies) {
    testEach(
      target,
      `a needed body that ${name} is the operation's 500 [D18]`,
      backendAnswer(200),
      (reply, { failure }) => {
        assertReply(reply, 500, failure);
      },
      passing,
    );

    testEach(
      target,
      `a well-formed head decides alone, the body ${name} [D17]`,
      backendAnswer(200),
      (reply) => {
        assertReply(reply, 200, succeeded);
      },
      discarding,
    );

    testEach(
      target,
      `a 404 decides by its head alone, the body ${name} [D17]`,
      backendAnswer(404),
      (reply) => {
        assertReply(reply, 404, itemNotFound);
      },
      [operation(3)],
    );
  }

  for (const each of [...discarding, operation(3)]) {
    const isRead = each === operation(3);
    const status = isRead ? 404 : 200;
    test(`operation ${each.name}: the reply to ${status} is there at once when its body never comes, stops, has no end, or is over every limit [D17]`, async () => {
      const closed: Promise<void>[] = [];
      const answers: Answer[] = [
        raw(`HTTP/1.1 ${status} X\r\nContent-Length: 100\r\n\r\n`),
        raw(`HTTP/1.1 ${status} X\r\nContent-Length: 100\r\n\r\n{`),
        endlessBody(status),
        raw(`HTTP/1.1 ${status} X\r\nContent-Length: 99999999999\r\n\r\n{`),
      ];
      target().backend.answersOnce(
        ...answers.map((backendAnswer): Answer => async (exchange) => {
          closed.push(exchange.closed);
          await backendAnswer(exchange);
          await timeout(exchange);
        }),
      );
      const started = performance.now();
      const replies = await Promise.all(answers.map(() => call(target(), each)));
      assert.ok(performance.now() - started < 2000, 'at once, not at the deadline of 30 s');
      for (const reply of replies) assertReply(reply, status, isRead ? itemNotFound : succeeded);
      await within(Promise.all(closed), 'a connection with half an answer on it is closed');
      await target().settle();
    });

    test(`operation ${each.name}: a failure status is replied to at once too, its body never comes [D17]`, async () => {
      target().backend.answersOnce(raw('HTTP/1.1 503 X\r\nContent-Length: 100\r\n\r\n'));
      assertReply(await call(target(), each), 500, each.failure);
      await target().settle();
    });
  }

  for (const each of operations) {
    test(`operation ${each.name}: no byte behind an answer reaches another client [D18]`, async () => {
      const poison = answerBytes('{"poison":true}');
      for (const backendAnswer of [
        twoAnswers(itemBytes, poison),
        twoAnswers(answerBytes(item, { status: 500 }), poison),
        raw(Buffer.concat([itemBytes, bytesOf('extra bytes')])),
        wrongLength(-3, item),
      ]) {
        target().backend.answersOnce(backendAnswer);
        await call(target(), each);
        for (const next of operations) {
          target().backend.answersOnce(answer(item));
          assertSuccess(await call(target(), next), next);
        }
      }
    });

    test(`operation ${each.name}: an answer that comes before the request is not given to the next one [D18]`, async () => {
      const { backend } = target();
      const { promise: answered, resolve: say } = Promise.withResolvers<Exchange>();
      backend.answersOnce(async (exchange) => {
        await exchange.write(itemBytes);
        say(exchange);
      });
      await call(target(), each);
      const idle = await answered;
      await idle.write(answerBytes('{"poison":true}'));
      await within(idle.closed, 'a connection on which nobody waits for an answer is closed');
      backend.answers(answer(item));
      for (const next of operations) assertSuccess(await call(target(), next), next);
    });

    test(`operation ${each.name}: a backend that speaks first confuses no other call [D18]`, async () => {
      const { backend } = target();
      backend.answersOnce(answer('[]', { headers: [['Connection', 'close']] }));
      await target().call('GET', '/api/work-items');
      backend.greeting = answerBytes('{"early":true}');
      backend.answers(answer(item));
      const reply = await call(target(), each);
      backend.greeting = undefined;
      assert.ok(reply.status === each.status || reply.text === each.failure, reply.text);
      for (const next of operations) assertSuccess(await call(target(), next), next);
    });
  }

  for (const { name, method, path, options, failure } of passing) {
    test(`operation ${name}: no encoding is asked for, and an encoded answer is not JSON [D22]`, async () => {
      target().backend.answersOnce(answer(gzipSync(item), { headers: [['Content-Encoding', 'gzip']] }));
      const reply = await target().call(method, path, { ...options, headers: [['Accept-Encoding', 'gzip']] });
      assertReply(reply, 500, failure);
      assert.equal((await target().backend.nextRequest()).header('accept-encoding'), undefined);
    });
  }
});

describe('RESPONSE_BYTES_MAX=1000', () => {
  forEachTarget(
    (target) => {
      const atLimit = `"${'x'.repeat(998)}"`;
      const framings: [name: string, make: (body: string, status: number) => Answer][] = [
        ['content-length', (body, status) => answer(body, { status })],
        [
          'chunked',
          (body, status) => chunked(`${body.length.toString(16)}\r\n${body}\r\n0\r\n\r\n`, { status }),
        ],
        ['until close', (body, status) => rawThenClose(`HTTP/1.1 ${status} X\r\n\r\n${body}`)],
      ];
      for (const [framing, make] of framings) {
        testEach(
          target,
          `a body of exactly the limit passes, ${framing} [D18]`,
          make(atLimit, 200),
          (reply, { status }) => {
            assertReply(reply, status, atLimit);
          },
          passing,
        );

        testEach(
          target,
          `a needed body over the limit is the operation's 500, ${framing} [D18]`,
          make(`${atLimit} `, 200),
          (reply, { failure }) => {
            assertReply(reply, 500, failure);
          },
          passing,
        );

        testEach(
          target,
          `a body over the limit changes nothing where it is not needed, ${framing} [D17]`,
          make(`"${'x'.repeat(300_000)}"`, 200),
          (reply) => {
            assertReply(reply, 200, succeeded);
          },
          discarding,
        );

        testEach(
          target,
          `a 404 is a 404 whatever the size of its body, ${framing} [D17]`,
          make(`"${'x'.repeat(300_000)}"`, 404),
          (reply) => {
            assertReply(reply, 404, itemNotFound);
          },
          [operation(3)],
        );
      }

      testEach(
        target,
        'a body without end is the operation\'s 500 as soon as the limit is passed [D18]',
        endlessBody(),
        (reply, { failure }) => {
          assertReply(reply, 500, failure);
        },
        passing,
      ); // prettier-ignore

      test('an answer over the limit closes its backend connection [D18]', async () => {
        target().backend.answersOnce(endlessBody());
        assertReply(await target().call('GET', '/api/work-items'), 500, operation(1).failure);
        const { connection } = await target().backend.nextRequest();
        await target().backend.connectionClosed(connection);
      });
    },
    { responseBytesMax: 1000 },
  );
});

describe('RESPONSE_BYTES_MAX, the default', () => {
  forEachTarget(
    (target) => {
      test('the limit of an answer is 64 MiB when nothing sets it [D18]', async () => {
        const body = Buffer.alloc(64 * 1024 * 1024, 'x');
        body[0] = body[body.length - 1] = 0x22;
        target().backend.answersOnce(answer(body), answer(Buffer.concat([body, bytesOf(' ')])));
        const reply = await target().call('GET', '/api/work-items');
        assert.equal(reply.status, 200);
        assert.ok(reply.body.equals(body));
        assertReply(await target().call('GET', '/api/work-items'), 500, operation(1).failure);
      });
    },
    {},
    { kinds: ['command'] },
  );
});
