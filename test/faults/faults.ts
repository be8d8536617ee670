// Faults of a backend and of the network between gateway and backend, with the expected outcomes. matrix.test.ts runs
// all faults; the soak picks faults at random. A fault that toxiproxy also has keeps toxiproxy's name. Expectations
// come from the specification and D15 to D22, not from the source.

import { gzipSync } from 'node:zlib';
import { versionsOfCommand } from '../helpers/command.ts';
import { itemNotFound, operation, succeeded, type Operation } from '../helpers/expected.ts';
import { bytesOf } from '../helpers/raw-client.ts';
import {
  answer,
  answerBytes,
  bandwidth,
  endless,
  informational,
  latency,
  limitData,
  noContent,
  raw,
  rawThenClose,
  resetPeer,
  slicer,
  slowClose,
  timeout,
  twoAnswers,
  type Answer,
} from '../helpers/scripted-backend.ts';

/** The specified outcome of a call: the operation's success or its 500. Operation 3 also has a 404. */
export type Row = 'success' | 'failure' | 'not-found';

export interface Fault {
  readonly name: string;
  /** The backend's answer. Its body and headers contain `secret`, so that a leak is detected. */
  readonly answer: (secret: string) => Answer;
  readonly row: (each: Operation) => Row;
  /** The body that the client gets if the operation succeeds and passes the backend's body on. */
  readonly body: (secret: string) => string;
  /** `kept`: the backend connection serves other calls afterwards. */
  readonly connection: 'kept' | 'closed';
  /** True for operations whose reply comes only at the deadline [D19]. */
  readonly waits: (each: Operation) => boolean;
  /** True if the connection ends before any byte of the answer: a GET on a reused connection is sent again [D20]. */
  readonly isSilentDeath: boolean;
  /** True if the connection ends after the complete answer, maybe during the next call [D20]. */
  readonly diesIdle: boolean;
  /** Bytes that the backend sends on the idle connection, after the client has its reply. */
  readonly late: ((secret: string) => Uint8Array) | undefined;
}

/** The exact status and body that a client gets. */
export function expectedReply(fault: Fault, each: Operation, secret: string): [status: number, body: string] {
  switch (fault.row(each)) {
    case 'failure':
      return [500, each.failure];
    case 'not-found':
      return [404, itemNotFound];
    case 'success':
      return [each.status, each.passesBody ? fault.body(secret) : succeeded];
  }
}

/** The body of a valid answer, long enough to be cut. */
export function bodyOf(secret: string): string {
  return `{"secret":"${secret}","text":"${'x'.repeat(200)}"}`;
}

type Kind = Partial<Pick<Fault, 'isSilentDeath' | 'diesIdle' | 'late' | 'body'>> & {
  /** True if every operation that fails gets its reply only at the deadline. */
  readonly waits?: boolean;
};

function fault(
  name: string,
  row: (each: Operation) => Row,
  connection: Fault['connection'],
  make: (secret: string) => Answer,
  kind: Kind = {},
): Fault {
  return {
    name,
    answer: make,
    row,
    body: kind.body ?? bodyOf,
    connection,
    waits: (each) => kind.waits === true && row(each) === 'failure',
    isSilentDeath: kind.isSilentDeath ?? false,
    diesIdle: kind.diesIdle ?? false,
    late: kind.late,
  };
}

const fails = (): Row => 'failure';
const succeeds = (): Row => 'success';
/** If the client does not get the backend's body, a well-formed head is enough for a success [D17]. */
const needsBody = (each: Operation): Row => (each.passesBody ? 'failure' : 'success');
/** Only operation 3 maps a backend's 404 to 404 [spec 7, rule 1]. */
const isMissing = (each: Operation): Row => (each === operation(3) ? 'not-found' : 'failure');

/** A head with the secret in its reason phrase and in a header. */
const head = (secret: string, lines: string, status = 200): string =>
  `HTTP/1.1 ${status} ${secret}\r\nX-Backend: ${secret}\r\n${lines}\r\n\r\n`;

const good = (secret: string, status = 200): Buffer =>
  answerBytes(bodyOf(secret), { status, headers: [['X-Backend', secret]] });

/** A valid body after a head with these lines. */
const after = (lines: string) => (secret: string) => raw(head(secret, lines) + bodyOf(secret));

const sizeOf = (secret: string): string => bodyOf(secret).length.toString(16);
const chunks = (secret: string): string => `${sizeOf(secret)}\r\n${bodyOf(secret)}\r\n0\r\n\r\n`;
const chunkedHead = (secret: string, status = 200): string => head(secret, 'Transfer-Encoding: chunked', status);

/** Sends `start`, then `piece` every 20 ms while the connection is open. */
function drip(start: string, piece: string): Answer {
  return async (exchange) => {
    await exchange.write(start);
    while (!exchange.isClosed) {
      await exchange.write(piece);
      await latency(20, () => undefined)(exchange);
    }
  };
}

const cuts: [where: string, position: (bytes: Buffer, headLength: number) => number][] = [
  ['before its first byte', () => 0],
  ['after 1 byte', () => 1],
  ['in the middle of the status line', () => 12],
  ['in the middle of the head', (_, headLength) => headLength >> 1],
  ['before the last line end of the head', (_, headLength) => headLength - 2],
  ['at the end of the head', (_, headLength) => headLength],
  ['in the middle of the body', (bytes, headLength) => (headLength + bytes.length) >> 1],
  ['before its last byte', (bytes) => bytes.length - 1],
];

const cutOff: Fault[] = cuts.flatMap(([where, position], index) =>
  (
    [
      ['reset', resetPeer],
      ['close', limitData],
    ] as const
  ).map(([how, cut]) =>
    fault(
      `a ${how} cuts the answer ${where}`,
      index < 5 ? fails : needsBody,
      'closed',
      (secret) => {
        const bytes = good(secret);
        return cut(position(bytes, bytes.indexOf('\r\n\r\n') + 4), bytes);
      },
      { isSilentDeath: index === 0 },
    ),
  ),
);

const stalled: Fault[] = [
  fault('timeout: nothing is ever answered', fails, 'closed', () => timeout, { waits: true }),
  ...cuts.slice(1).map(([where, position], index) =>
    fault(
      `the answer stops ${where}`,
      index < 4 ? fails : needsBody,
      'closed',
      (secret) => {
        const bytes = good(secret);
        return raw(bytes.subarray(0, position(bytes, bytes.indexOf('\r\n\r\n') + 4)));
      },
      { waits: true },
    ),
  ),
  fault('the answer stops before its last chunk', needsBody, 'closed',
    (secret) => raw(chunkedHead(secret) + chunks(secret).slice(0, -5)), { waits: true }),
  fault('a 1xx, and nothing after it', fails, 'closed', (secret) => raw(head(secret, 'X: 1', 103)), { waits: true }),
  fault('a 1xx every 20 ms', fails, 'closed', (secret) => drip('', head(secret, 'X: 1', 103)), { waits: true }),
  fault('1xx without end', fails, 'closed', (secret) => endless('', head(secret, 'X: 1', 103).repeat(20)), { waits: true }),
  fault('100 Continue without end', fails, 'closed', () => endless('', 'HTTP/1.1 100 Continue\r\n\r\n'.repeat(50)), { waits: true }),
  fault('a slow drip of the status line', fails, 'closed', () => drip('HTTP/1.1 200 ', 'O'), { waits: true }),
  fault('a slow drip of header lines', fails, 'closed', (secret) => drip(`HTTP/1.1 200 ${secret}\r\n`, 'X: 1\r\n'), { waits: true }),
  fault('a slow drip of white space in a body', needsBody, 'closed', (secret) => drip(chunkedHead(secret), '1\r\n \r\n'), { waits: true }),
  fault('a slow drip of a body until the end', needsBody, 'closed', (secret) => drip(head(secret, 'Connection: close'), ' '), { waits: true }),
  fault('bandwidth: too few bytes a second', needsBody, 'closed',
    (secret) => bandwidth(2000, answerBytes(`"${secret}${'x'.repeat(20_000)}"`)), { waits: true }),
  fault('latency: the answer comes after the deadline', fails, 'closed',
    (secret) => latency(30_000, raw(good(secret))), { waits: true }),
  fault('a status line without end', fails, 'closed', () => endless('HTTP/1.1 200 ', 'x'.repeat(1000)), { waits: true }),
  fault('a chunk extension without end', needsBody, 'closed', (secret) =>
    endless(`${chunkedHead(secret)}8;`, 'x'.repeat(4096)), { waits: true }),
  fault('a length over the limit, and nothing after it', needsBody, 'closed', (secret) => raw(`${head(secret, 'Content-Length: 99999999999')}{`)),
  fault('a 503 whose body never comes', fails, 'closed', (secret) => raw(head(secret, 'Content-Length: 100', 503))),
  fault('a 404 whose body never comes', isMissing, 'closed', (secret) => raw(head(secret, 'Content-Length: 100', 404))),
  fault('a 404 whose body stops', isMissing, 'closed', (secret) => raw(`${head(secret, 'Content-Length: 100', 404)}{`)),
  fault('a 404 whose body is dripped', isMissing, 'closed', (secret) => drip(chunkedHead(secret, 404), '1\r\n \r\n')),
]; // prettier-ignore

/**
 * Slow good answers, tested one by one. In parallel, the rest of a dropped answer might take over 1 s, and its
 * connection would be closed.
 */
export const slow: readonly Fault[] = [
  fault('latency: the answer comes late, but before the deadline', succeeds, 'kept', (secret) => latency(30, raw(good(secret)))),
  fault('bandwidth: few bytes a second', succeeds, 'kept', (secret) => bandwidth(20_000, good(secret))),
  fault('a slow drip within the deadline', succeeds, 'kept', (secret) => async (exchange) => {
    const bytes = good(secret);
    for (let start = 0; start < bytes.length; start += 50) {
      await exchange.write(bytes.subarray(start, start + 50));
      await latency(3, () => undefined)(exchange);
    }
  }),
  fault('slicer: single bytes', succeeds, 'kept', (secret) => slicer(good(secret))),
  fault('slicer: pieces of 7', succeeds, 'kept', (secret) => slicer(good(secret), 7)),
  fault('slicer: chunks in single bytes', succeeds, 'kept', (secret) => slicer(chunkedHead(secret) + chunks(secret))),
  fault('slicer: interim heads in pieces of 3', succeeds, 'kept', (secret) =>
    slicer(Buffer.concat([bytesOf('HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 X\r\nX: 1\r\n\r\n'), good(secret)]), 3)),
  fault('slow_close: closed some time after the answer', succeeds, 'closed', (secret) => slowClose(30, good(secret)), { diesIdle: true }),
]; // prettier-ignore

const interim: Fault[] = [
  ...[[100], [102], [103], [199], [100, 100], [103, 102, 100, 103], Array<number>(1000).fill(103)].map((statuses) =>
    fault(`${statuses.length < 5 ? statuses.join(', ') : `${statuses.length} × ${statuses[0] ?? 0}`} before the answer`,
      succeeds, 'kept', (secret) => informational(statuses, good(secret)))),
  fault('a 103 and a 100, each sent separately', succeeds, 'kept', (secret) => async (exchange) => {
    await exchange.write(head(secret, 'Link: </x>; rel=preload', 103));
    await new Promise((resolve) => setImmediate(resolve));
    await exchange.write('HTTP/1.1 100 Continue\r\n\r\n');
    await new Promise((resolve) => setImmediate(resolve));
    await exchange.write(good(secret));
  }),
  fault('a 100 Continue, then the end of the connection', fails, 'closed', () => rawThenClose('HTTP/1.1 100 Continue\r\n\r\n')),
  fault('a 103 with a body', fails, 'closed', (secret) =>
    raw(Buffer.concat([bytesOf(`${head(secret, 'Content-Length: 5', 103)}hello`), good(secret)]))),
  fault('a 103 with headers of 100 KB', succeeds, 'kept', (secret) =>
    raw(Buffer.concat([bytesOf(head(secret, `X: ${'x'.repeat(100_000)}`, 103)), good(secret)]))),
  fault('a 103 with headers of 1.1 MB', fails, 'closed', (secret) =>
    raw(Buffer.concat([bytesOf(head(secret, `X: ${'x'.repeat(1_100_000)}`, 103)), good(secret)]))),
  fault('101 Switching Protocols', fails, 'closed', (secret) =>
    raw(Buffer.concat([bytesOf(head(secret, 'Connection: upgrade\r\nUpgrade: x', 101)), good(secret)]))),
  fault('101 without an upgrade', fails, 'closed', (secret) =>
    raw(Buffer.concat([bytesOf(head(secret, 'X: 1', 101)), good(secret)]))),
]; // prettier-ignore

const tooMuch: Fault[] = [
  fault('two answers in one write', succeeds, 'closed', (secret) => twoAnswers(good(secret), good(`second-${secret}`))),
  fault('two answers, the first a 500', fails, 'closed', (secret) => twoAnswers(good(secret, 500), good(`second-${secret}`))),
  fault('two answers, the first a 404', isMissing, 'closed', (secret) => twoAnswers(good(secret, 404), good(`second-${secret}`))),
  fault('extra bytes after the answer', succeeds, 'closed', (secret) =>
    raw(Buffer.concat([good(secret), bytesOf(`extra ${secret}`)]))),
  fault('a second answer on the idle connection', succeeds, 'closed', (secret) => raw(good(secret)),
    { late: (secret) => good(`second-${secret}`) }),
  fault('garbage on the idle connection', succeeds, 'closed', (secret) => raw(good(secret)),
    { late: (secret) => bytesOf(`\0\xff${secret}`) }),
  fault('a length that is too short', needsBody, 'closed', (secret) =>
    raw(head(secret, `Content-Length: ${bodyOf(secret).length - 3}`) + bodyOf(secret))),
  fault('a length that ends the body too early, after valid JSON', succeeds, 'closed', (secret) =>
    raw(`${head(secret, 'Content-Length: 3')}123456`), { body: () => '123' }),
  fault('a length that is twice the length of the body', needsBody, 'closed', (secret) =>
    rawThenClose(head(secret, `Content-Length: ${bodyOf(secret).length * 2}`) + bodyOf(secret))),
  fault('garbage', fails, 'closed', (secret) =>
    raw(Buffer.concat([Uint8Array.from({ length: 512 }, (_, index) => (index * 167 + 13) % 256), bytesOf(secret)]))),
  fault('header lines without end', fails, 'closed', (secret) =>
    endless(`HTTP/1.1 200 ${secret}\r\n`, `X-Filler: ${'x'.repeat(1000)}\r\n`.repeat(10))),
  fault('a header without end', fails, 'closed', (secret) => endless(`HTTP/1.1 200 ${secret}\r\nX: `, 'x'.repeat(1000))),
  fault('a body without end, in chunks', needsBody, 'closed', (secret) =>
    endless(chunkedHead(secret), `1000\r\n${' '.repeat(4096)}\r\n`)),
  fault('a body without end and without a length', needsBody, 'closed', (secret) =>
    endless(head(secret, 'Connection: close'), ' '.repeat(4096))),
  fault('a body without end that is not JSON', needsBody, 'closed', (secret) =>
    endless(chunkedHead(secret), `1000\r\n${'<'.repeat(4096)}\r\n`)),
  fault('trailers without end', needsBody, 'closed', (secret) =>
    endless(`${chunkedHead(secret)}0\r\n`, `X-Filler: ${'x'.repeat(1000)}\r\n`)),
  fault('a 404 with a body without end', isMissing, 'closed', (secret) =>
    endless(chunkedHead(secret, 404), `1000\r\n${' '.repeat(4096)}\r\n`)),
]; // prettier-ignore

/** One malformed head of each kind [D18]; test/spec/backend-answers.test.ts has the others. */
const badHeads: Fault[] = (
  [
    ['content-length and transfer-encoding', (secret) => raw(head(secret, `Content-Length: ${bodyOf(secret).length}\r\nTransfer-Encoding: chunked`) + chunks(secret))],
    ['two lengths that are the same', (secret) => after(Array(2).fill(`Content-Length: ${bodyOf(secret).length}`).join('\r\n'))(secret)],
    ['a negative length', after('Content-Length: -8')],
    ['an unknown coding', (secret) => raw(head(secret, 'Transfer-Encoding: xchunked') + chunks(secret))],
    ['a space before the colon', after('X-Extra : 1\r\nContent-Length: 8')],
    ['headers of 1.1 MB', after(`X-Extra: ${'x'.repeat(1_100_000)}\r\nContent-Length: 8`)],
    ['a connection field of 20 KB', after(`Connection: ${'x'.repeat(20_000)}\r\nContent-Length: 8`)],
    ['a status of two digits', (secret) => raw(`HTTP/1.1 20 OK\r\nContent-Length: 8\r\n\r\n${bodyOf(secret)}`)],
    ['HTTP/2.0', (secret) => raw(`HTTP/2.0 200 OK\r\nContent-Length: 8\r\n\r\n${bodyOf(secret)}`)],
    ['an SSH greeting', (secret) => rawThenClose(`SSH-2.0-${secret}\r\n`)],
    ['a TLS alert', () => rawThenClose('\x15\x03\x01\x00\x02\x02\x46')],
    ['an HTTP/0.9 answer', (secret) => rawThenClose(bodyOf(secret))],
  ] as [string, (secret: string) => Answer][]
).map(([name, make]) => fault(`a malformed head: ${name}`, fails, 'closed', make)); // prettier-ignore

/** Broken bodies after a valid head [D17, D18]. */
const badBodies: Fault[] = (
  [
    ['ends in the middle of a chunk', (secret) => rawThenClose(chunks(secret).slice(0, 30))],
    ['ends before the last chunk', (secret) => rawThenClose(chunks(secret).slice(0, -5))],
    ['ends before the last line end', (secret) => rawThenClose(chunks(secret).slice(0, -2))],
    ['is reset before the last chunk', (secret) => resetPeer(1000, chunks(secret).slice(0, -5))],
    ['has a chunk size that is not hexadecimal', (secret) => raw(`zz\r\n${bodyOf(secret)}\r\n0\r\n\r\n`)],
    ['has a chunk longer than its size', (secret) => raw(`3\r\n${bodyOf(secret)}\r\n0\r\n\r\n`)],
    ['has no line end after a chunk', (secret) => raw(`${sizeOf(secret)}\r\n${bodyOf(secret)}0\r\n\r\n`)],
    ['has chunk sizes and no line end', (secret) => raw(`8;${bodyOf(secret)}`.repeat(100))],
    ['has chunk lines that end in a bare LF', (secret) => raw(`${sizeOf(secret)}\n${bodyOf(secret)}\n0\n\n`)],
  ] as [string, (secret: string) => Answer][]
).flatMap(([name, make]) => {
  const withHead = (status: number) => (secret: string): Answer => async (exchange) => {
    await exchange.write(chunkedHead(secret, status));
    await make(secret)(exchange);
  };
  return [
    fault(`a body that ${name}`, needsBody, 'closed', withHead(200)),
    fault(`a 404 with a body that ${name}`, isMissing, 'closed', withHead(404)),
  ];
}); // prettier-ignore

const notJson: Fault[] = [
  ...([
    ['HTML', (secret) => `<p>${secret}</p>`],
    ['half a JSON text', (secret) => bodyOf(secret).slice(0, -1)],
    ['two JSON texts', (secret) => bodyOf(secret).repeat(2)],
    ['bytes that are not UTF-8', (secret) => Buffer.from(`"${secret}\xff"`, 'latin1')],
    ['a gzip of JSON', (secret) => gzipSync(bodyOf(secret))],
    ['white space only', () => ' \r\n\t'],
    ['no bytes, content-length: 0', () => ''],
  ] as [string, (secret: string) => string | Uint8Array][]).map(([name, body]) =>
    fault(`a body of ${name}`, needsBody, 'kept', (secret) => answer(body(secret), { headers: [['X-Backend', secret]] }))),
  fault('an empty body: a 204', needsBody, 'kept', () => noContent),
  fault('an empty body: only the last chunk', needsBody, 'kept', (secret) => raw(`${chunkedHead(secret)}0\r\n\r\n`)),
  fault('an empty body: the connection ends after the head', needsBody, 'closed', (secret) => rawThenClose(head(secret, 'X: 1'))),
  fault('a 204 with a length', needsBody, 'closed', (secret) => raw(head(secret, 'Content-Length: 8', 204))),
  fault('a 204 with a body', needsBody, 'closed', (secret) => raw(head(secret, 'X: 1', 204) + bodyOf(secret))),
]; // prettier-ignore

/** Unusual but well-formed answers, which must succeed. */
const unusual: Fault[] = [
  fault('a body with a length', succeeds, 'kept', (secret) => raw(good(secret))),
  fault('a body in chunks', succeeds, 'kept', (secret) => raw(chunkedHead(secret) + chunks(secret))),
  fault('chunks with extensions', succeeds, 'kept', (secret) =>
    raw(`${chunkedHead(secret)}000${sizeOf(secret).toUpperCase()};a="b;c"\r\n${bodyOf(secret)}\r\n0;x\r\n\r\n`)),
  fault('chunks and trailers', succeeds, 'kept', (secret) =>
    raw(`${chunkedHead(secret)}${chunks(secret).slice(0, -2)}X-Trailer: ${secret}\r\n\r\n`)),
  fault('Transfer-Encoding in capitals', succeeds, 'kept', (secret) =>
    raw(head(secret, 'TRANSFER-ENCODING: CHUNKED') + chunks(secret))),
  ...[' ', '  ', '\t', ' \t '].flatMap((space) => [
    fault(`a length with ${JSON.stringify(space)} around it`, succeeds, 'kept', (secret) =>
      raw(head(secret, `Content-Length:${space}${bodyOf(secret).length}${space}`) + bodyOf(secret))),
    fault(`chunked with ${JSON.stringify(space)} around it`, succeeds, 'kept', (secret) =>
      raw(head(secret, `Transfer-Encoding:${space}chunked${space}`) + chunks(secret))),
  ]),
  fault('no reason phrase', succeeds, 'kept', (secret) =>
    raw(`HTTP/1.1 200 \r\nContent-Length: ${bodyOf(secret).length}\r\n\r\n${bodyOf(secret)}`)),
  fault('60 cookies of 4 KB', succeeds, 'kept', (secret) =>
    raw(head(secret, `${`Set-Cookie: ${'v'.repeat(4_096)}\r\n`.repeat(60)}Content-Length: ${bodyOf(secret).length}`) + bodyOf(secret))),
  fault('trailers of 100 KB', succeeds, 'kept', (secret) =>
    raw(`${chunkedHead(secret)}${chunks(secret).slice(0, -2)}X: ${'x'.repeat(100_000)}\r\n\r\n`)),
  fault('many headers', succeeds, 'kept', (secret) =>
    raw(head(secret, `${`X-Extra: ${secret}\r\n`.repeat(100)}Content-Length: ${bodyOf(secret).length}`) + bodyOf(secret))),
  fault('a body that ends with the connection', succeeds, 'closed', (secret) => rawThenClose(head(secret, 'Connection: close') + bodyOf(secret))),
  // Left out on Node 22, where libuv before 1.52 can report this reset as a normal end.
  ...(versionsOfCommand.node.startsWith('22.') ? [] : [
    fault('an answer without a length, then a reset', needsBody, 'closed', (secret) => {
      const bytes = head(secret, 'Connection: close') + bodyOf(secret);
      return resetPeer(bytes.length, bytes);
    }),
  ]),
  fault('the body 12 without a length, then a reset', needsBody, 'closed', (secret) => {
    const bytes = `${head(secret, 'Connection: close')}12`;
    return resetPeer(bytes.length, bytes);
  }),
  fault('a complete answer, then a reset', succeeds, 'closed', (secret) => resetPeer(good(secret).length, good(secret)), { diesIdle: true }),
  fault('HTTP/1.0', succeeds, 'closed', (secret) => rawThenClose(`HTTP/1.0 200 OK\r\n\r\n${bodyOf(secret)}`)),
  fault('Connection: close, and the backend does not close', succeeds, 'closed', (secret) =>
    raw(answerBytes(bodyOf(secret), { headers: [['Connection', 'close']] }))),
  fault('a keep-alive time of 0', succeeds, 'closed', (secret) =>
    raw(answerBytes(bodyOf(secret), { headers: [['Keep-Alive', 'timeout=0']] }))),
]; // prettier-ignore

/** Statuses with their own rules; matrix.test.ts tests all others. */
const statuses: Fault[] = [
  fault('a 404', isMissing, 'kept', (secret) => raw(good(secret, 404))),
  fault('a 404 without a body', isMissing, 'kept', (secret) => raw(head(secret, 'Content-Length: 0', 404))),
  fault('a 404 that is cut off', isMissing, 'closed', (secret) => limitData(good(secret).length - 1, good(secret, 404))),
  fault('a redirect', fails, 'kept', (secret) =>
    raw(answerBytes(bodyOf(secret), { status: 302, headers: [['Location', '/api/WorkItem/9']] }))),
  fault('a 503 with Retry-After', fails, 'kept', (secret) =>
    raw(answerBytes(bodyOf(secret), { status: 503, headers: [['Retry-After', '0']] }))),
  fault('a 408, then the end of the connection', fails, 'closed', (secret) =>
    raw(answerBytes(bodyOf(secret), { status: 408, headers: [['Connection', 'close']] }))),
  fault('a 401 with a challenge', fails, 'kept', (secret) =>
    raw(answerBytes(bodyOf(secret), { status: 401, headers: [['WWW-Authenticate', `Basic realm="${secret}"`]] }))),
]; // prettier-ignore

/** All faults with which every call ends before its deadline, except the faults of `slow`. */
export const promptKinds = {
  'unusual answers': unusual,
  'special statuses': statuses,
  'answers that are cut off': cutOff,
  'interim answers': interim,
  'answers with too many bytes': tooMuch,
  'malformed heads': badHeads,
  'malformed chunks': badBodies,
  'bodies that are not JSON': notJson,
} as const;

/** Answers that stop or never end. The reply comes at the deadline, or the connection closes 1 s after the reply. */
export const stalls: readonly Fault[] = stalled;
