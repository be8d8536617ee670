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

type Make = (secret: string) => Answer;

/**
 * The specified outcome of a call. `needs-body`: a failure only if the client gets the backend's body, because otherwise
 * a well-formed head is enough [D17]. `missing`: only operation 3 maps a 404 to 404 [spec 7, rule 1].
 */
type Result = 'success' | 'failure' | 'needs-body' | 'missing';

export interface Fault {
  readonly name: string;
  readonly result: Result;
  /** `kept`: the backend connection serves other calls afterwards. */
  readonly connection: 'kept' | 'closed';
  /** The backend's answer. Its body and headers contain `secret`, so that a leak is detected. */
  readonly answer: Make;
  /** True if every operation that fails gets its reply only at the deadline [D19]. */
  readonly waits?: boolean;
  /** True if the connection ends before any byte of the answer: a GET on a reused connection is sent again [D20]. */
  readonly isSilentDeath?: boolean;
  /** True if the connection ends after the complete answer, maybe during the next call [D20]. */
  readonly diesIdle?: boolean;
  /** Bytes that the backend sends on the idle connection, after the client has its reply. */
  readonly late?: (secret: string) => Uint8Array;
}

/** The exact status and body that a client gets. */
export function expectedReply({ result }: Fault, each: Operation, secret: string): [status: number, body: string] {
  if (result === 'missing' && each === operation(3)) return [404, itemNotFound];
  if (result === 'success' || (result === 'needs-body' && !each.passesBody)) return expectedSuccess(each, secret);
  return [500, each.failure];
}

export function expectedSuccess(each: Operation, secret: string): [status: number, body: string] {
  return [each.status, each.passesBody ? bodyOf(secret) : succeeded];
}

/** True if the client gets its reply only at the deadline. */
export function waits(fault: Fault, each: Operation): boolean {
  return fault.waits === true && expectedReply(fault, each, '')[0] === 500;
}

/** The body of a valid answer, long enough to be cut. */
export function bodyOf(secret: string): string {
  return `{"secret":"${secret}","text":"${'x'.repeat(200)}"}`;
}

type Rest = Partial<Omit<Fault, 'name' | 'result' | 'connection' | 'answer'>>;
type Row = readonly [name: string, result: Result, connection: Fault['connection'], answer: Make, rest?: Rest];

function faultsOf(rows: readonly Row[], all: Rest = {}): Fault[] {
  return rows.map(([name, result, connection, make, rest]) => ({
    ...{ name, result, connection, answer: make, ...all, ...rest },
  }));
}

/** A head with the secret in its reason phrase and in a header. */
const head = (secret: string, lines: string, status = 200): string =>
  `HTTP/1.1 ${status} ${secret}\r\nX-Backend: ${secret}\r\n${lines}\r\n\r\n`;
const good = (secret: string, status = 200): Buffer =>
  answerBytes(bodyOf(secret), { status, headers: [['X-Backend', secret]] });
const sizeOf = (secret: string): string => bodyOf(secret).length.toString(16);
const chunks = (secret: string): string => `${sizeOf(secret)}\r\n${bodyOf(secret)}\r\n0\r\n\r\n`;
const chunkedHead = (secret: string, status = 200): string => head(secret, 'Transfer-Encoding: chunked', status);
/** `bytes`, then a good answer. */
const before = (bytes: string, secret: string): Answer => raw(Buffer.concat([bytesOf(bytes), good(secret)]));

/** Sends `start`, then `piece` every 20 ms while the connection is open. */
function drip(start: string, piece: string): Answer {
  return async (exchange) => {
    await exchange.write(start);
    while (!exchange.isClosed) {
      await exchange.write(piece);
      await exchange.pause(20);
    }
  };
}

const cuts: [where: string, result: Result, position: (bytes: Buffer, headLength: number) => number][] = [
  ['before its first byte', 'failure', () => 0],
  ['after 1 byte', 'failure', () => 1],
  ['in the middle of the head', 'failure', (_, headLength) => headLength >> 1],
  ['before the last line end of the head', 'failure', (_, headLength) => headLength - 2],
  ['at the end of the head', 'needs-body', (_, headLength) => headLength],
  ['in the middle of the body', 'needs-body', (bytes, headLength) => (headLength + bytes.length) >> 1],
  ['before its last byte', 'needs-body', (bytes) => bytes.length - 1],
];

/** A good answer that `cut` ends at each of the places. */
function cutWith(name: (where: string) => string, cut: (count: number, bytes: Buffer) => Answer): Row[] {
  return cuts.map(([where, result, position], index) => [
    name(where),
    result,
    'closed',
    (secret) => {
      const bytes = good(secret);
      return cut(position(bytes, bytes.indexOf('\r\n\r\n') + 4), bytes);
    },
    { isSilentDeath: index === 0 },
  ]);
}

const cutOff = faultsOf([
  ...cutWith((where) => `a reset cuts the answer ${where}`, resetPeer),
  ...cutWith((where) => `a close cuts the answer ${where}`, limitData),
]);

/** Answers that stop or never end. The reply comes at the deadline, or the connection closes 1 s after the reply. */
export const stalls: readonly Fault[] = [
  ...faultsOf([
    ['timeout: nothing is ever answered', 'failure', 'closed', () => timeout],
    ...cutWith((where) => `the answer stops ${where}`, (count, bytes) => raw(bytes.subarray(0, count))).slice(1),
    ['the answer stops before its last chunk', 'needs-body', 'closed', (secret) => raw(chunkedHead(secret) + chunks(secret).slice(0, -5))],
    ['a 1xx, and nothing after it', 'failure', 'closed', (secret) => raw(head(secret, 'X: 1', 103))],
    ['a 1xx every 20 ms', 'failure', 'closed', (secret) => drip('', head(secret, 'X: 1', 103))],
    ['1xx without end', 'failure', 'closed', (secret) => endless('', head(secret, 'X: 1', 103).repeat(20))],
    ['a slow drip of the status line', 'failure', 'closed', () => drip('HTTP/1.1 200 ', 'O')],
    ['a slow drip of header lines', 'failure', 'closed', (secret) => drip(`HTTP/1.1 200 ${secret}\r\n`, 'X: 1\r\n')],
    ['a slow drip of white space in a body', 'needs-body', 'closed', (secret) => drip(chunkedHead(secret), '1\r\n \r\n')],
    ['a slow drip of a body until the end', 'needs-body', 'closed', (secret) => drip(head(secret, 'Connection: close'), ' ')],
    ['bandwidth: too few bytes a second', 'needs-body', 'closed', (secret) => bandwidth(2000, answerBytes(`"${secret}${'x'.repeat(20_000)}"`))],
    ['latency: the answer comes after the deadline', 'failure', 'closed', (secret) => latency(30_000, raw(good(secret)))],
    ['a status line without end', 'failure', 'closed', () => endless('HTTP/1.1 200 ', 'x'.repeat(1000))],
    ['a chunk extension without end', 'needs-body', 'closed', (secret) => endless(`${chunkedHead(secret)}8;`, 'x'.repeat(4096))],
  ], { waits: true }),
  ...faultsOf([
    ['a length over the limit, and nothing after it', 'needs-body', 'closed', (secret) => raw(`${head(secret, 'Content-Length: 99999999999')}{`)],
    ['a 503 whose body never comes', 'failure', 'closed', (secret) => raw(head(secret, 'Content-Length: 100', 503))],
    ['a 404 whose body stops', 'missing', 'closed', (secret) => raw(`${head(secret, 'Content-Length: 100', 404)}{`)],
    ['a 404 whose body is dripped', 'missing', 'closed', (secret) => drip(chunkedHead(secret, 404), '1\r\n \r\n')],
  ]),
]; // prettier-ignore

/** Slow good answers. */
export const slow = faultsOf([
  ['latency: the answer comes late, but before the deadline', 'success', 'kept', (secret) => latency(30, raw(good(secret)))],
  ['bandwidth: few bytes a second', 'success', 'kept', (secret) => bandwidth(20_000, good(secret))],
  ['slicer: single bytes', 'success', 'kept', (secret) => slicer(good(secret))],
  ['slicer: chunks in single bytes', 'success', 'kept', (secret) => slicer(chunkedHead(secret) + chunks(secret))],
  ['slicer: interim heads in pieces of 3', 'success', 'kept', (secret) =>
    slicer(Buffer.concat([bytesOf('HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 X\r\nX: 1\r\n\r\n'), good(secret)]), 3)],
  ['slow_close: closed some time after the answer', 'success', 'closed', (secret) => slowClose(30, good(secret)), { diesIdle: true }],
]); // prettier-ignore

const interim = faultsOf([
  ['a 100 before the answer', 'success', 'kept', (secret) => informational([100], good(secret))],
  ['1xx of several kinds before the answer', 'success', 'kept', (secret) => informational([103, 102, 199, 100, 103], good(secret))],
  ['1000 × 103 before the answer', 'success', 'kept', (secret) => informational(Array<number>(1000).fill(103), good(secret))],
  ['a 100 Continue, then the end of the connection', 'failure', 'closed', () => rawThenClose('HTTP/1.1 100 Continue\r\n\r\n')],
  ['a 103 with a body', 'failure', 'closed', (secret) => before(`${head(secret, 'Content-Length: 5', 103)}hello`, secret)],
  ['a 103 with headers of 100 KB', 'success', 'kept', (secret) => before(head(secret, `X: ${'x'.repeat(100_000)}`, 103), secret)],
  ['a 103 with headers of 1.1 MB', 'failure', 'closed', (secret) => before(head(secret, `X: ${'x'.repeat(1_100_000)}`, 103), secret)],
  ['101 Switching Protocols', 'failure', 'closed', (secret) => before(head(secret, 'Connection: upgrade\r\nUpgrade: x', 101), secret)],
]); // prettier-ignore

const tooMuch = faultsOf([
  ['two answers in one write', 'success', 'closed', (secret) => twoAnswers(good(secret), good(`second-${secret}`))],
  ['two answers, the first a 500', 'failure', 'closed', (secret) => twoAnswers(good(secret, 500), good(`second-${secret}`))],
  ['two answers, the first a 404', 'missing', 'closed', (secret) => twoAnswers(good(secret, 404), good(`second-${secret}`))],
  ['extra bytes after the answer', 'success', 'closed', (secret) => raw(Buffer.concat([good(secret), bytesOf(`extra ${secret}`)]))],
  ['a second answer on the idle connection', 'success', 'closed', (secret) => raw(good(secret)), { late: (secret) => good(`second-${secret}`) }],
  ['garbage on the idle connection', 'success', 'closed', (secret) => raw(good(secret)), { late: (secret) => bytesOf(`\0\xff${secret}`) }],
  ['a length that is too short', 'needs-body', 'closed', (secret) => raw(head(secret, `Content-Length: ${bodyOf(secret).length - 3}`) + bodyOf(secret))],
  ['a length that is twice the length of the body', 'needs-body', 'closed', (secret) =>
    rawThenClose(head(secret, `Content-Length: ${bodyOf(secret).length * 2}`) + bodyOf(secret))],
  ['header lines without end', 'failure', 'closed', (secret) =>
    endless(`HTTP/1.1 200 ${secret}\r\n`, `X-Filler: ${'x'.repeat(1000)}\r\n`.repeat(10))],
  ['a body without end, in chunks', 'needs-body', 'closed', (secret) => endless(chunkedHead(secret), `1000\r\n${' '.repeat(4096)}\r\n`)],
  ['a body without end and without a length', 'needs-body', 'closed', (secret) => endless(head(secret, 'Connection: close'), ' '.repeat(4096))],
  ['a body without end that is not JSON', 'needs-body', 'closed', (secret) => endless(chunkedHead(secret), `1000\r\n${'<'.repeat(4096)}\r\n`)],
  ['trailers without end', 'needs-body', 'closed', (secret) => endless(`${chunkedHead(secret)}0\r\n`, `X-Filler: ${'x'.repeat(1000)}\r\n`.repeat(10))],
  ['a 404 with a body without end', 'missing', 'closed', (secret) => endless(chunkedHead(secret, 404), `1000\r\n${' '.repeat(4096)}\r\n`)],
]); // prettier-ignore

/** test/spec/backend-answers.test.ts has the other malformed heads [D18]. */
const badHeads = faultsOf([
  ['a malformed head: content-length and transfer-encoding', 'failure', 'closed', (secret) =>
    raw(head(secret, `Content-Length: ${bodyOf(secret).length}\r\nTransfer-Encoding: chunked`) + chunks(secret))],
  ['a malformed head: headers of 1.1 MB', 'failure', 'closed', (secret) =>
    raw(head(secret, `X-Extra: ${'x'.repeat(1_100_000)}\r\nContent-Length: 8`) + bodyOf(secret))],
  ['garbage', 'failure', 'closed', (secret) => raw(Buffer.concat([Uint8Array.from({ length: 512 }, (_, index) => (index * 167 + 13) % 256), bytesOf(secret)]))],
  ['an SSH greeting', 'failure', 'closed', (secret) => rawThenClose(`SSH-2.0-${secret}\r\n`)],
  ['a TLS alert', 'failure', 'closed', () => rawThenClose('\x15\x03\x01\x00\x02\x02\x46')],
  ['an HTTP/0.9 answer', 'failure', 'closed', (secret) => rawThenClose(bodyOf(secret))],
]); // prettier-ignore

/** Broken bodies after a valid head, also of a 404 [D17, D18]. */
const badBodies = faultsOf((
  [
    ['ends in the middle of a chunk', (start, secret) => rawThenClose(start + chunks(secret).slice(0, 30))],
    ['ends before the last chunk', (start, secret) => rawThenClose(start + chunks(secret).slice(0, -5))],
    ['is reset before the last chunk', (start, secret) => resetPeer(1000, start + chunks(secret).slice(0, -5))],
    ['has a chunk size that is not hexadecimal', (start, secret) => raw(`${start}zz\r\n${bodyOf(secret)}\r\n0\r\n\r\n`)],
    ['has a chunk longer than its size', (start, secret) => raw(`${start}3\r\n${bodyOf(secret)}\r\n0\r\n\r\n`)],
  ] as [string, (start: string, secret: string) => Answer][]
).flatMap(([name, make]): Row[] => [
  [`a body that ${name}`, 'needs-body', 'closed', (secret) => make(chunkedHead(secret), secret)],
  [`a 404 with a body that ${name}`, 'missing', 'closed', (secret) => make(chunkedHead(secret, 404), secret)],
])); // prettier-ignore

const notJson = faultsOf([
  ...([
    ['HTML', (secret) => `<p>${secret}</p>`],
    ['half a JSON text', (secret) => bodyOf(secret).slice(0, -1)],
    ['two JSON texts', (secret) => bodyOf(secret).repeat(2)],
    ['bytes that are not UTF-8', (secret) => Buffer.from(`"${secret}\xff"`, 'latin1')],
    ['a gzip of JSON', (secret) => gzipSync(bodyOf(secret))],
    ['white space only', () => ' \r\n\t'],
    ['no bytes', () => ''],
  ] as [string, (secret: string) => string | Uint8Array][]).map(([name, body]): Row =>
    [`a body of ${name}`, 'needs-body', 'kept', (secret) => answer(body(secret), { headers: [['X-Backend', secret]] })]),
  ['an empty body: a 204', 'needs-body', 'kept', () => noContent],
  ['an empty body: the connection ends after the head', 'needs-body', 'closed', (secret) => rawThenClose(head(secret, 'X: 1'))],
  ['a 204 with a body', 'needs-body', 'closed', (secret) => raw(head(secret, 'X: 1', 204) + bodyOf(secret))],
]); // prettier-ignore

/** Unusual but well-formed answers, which must succeed. test/vectors/http has more, for the readers. */
const unusual = faultsOf([
  ['chunks with extensions and trailers', 'success', 'kept', (secret) =>
    raw(`${chunkedHead(secret)}000${sizeOf(secret).toUpperCase()};a="b;c"\r\n${bodyOf(secret)}\r\n0;x\r\nX-Trailer: ${secret}\r\n\r\n`)],
  ['60 cookies of 4 KB', 'success', 'kept', (secret) =>
    raw(head(secret, `${`Set-Cookie: ${'v'.repeat(4_096)}\r\n`.repeat(60)}Content-Length: ${bodyOf(secret).length}`) + bodyOf(secret))],
  ['trailers of 100 KB', 'success', 'kept', (secret) =>
    raw(`${chunkedHead(secret)}${chunks(secret).slice(0, -2)}X: ${'x'.repeat(100_000)}\r\n\r\n`)],
  ['a body that ends with the connection', 'success', 'closed', (secret) => rawThenClose(head(secret, 'Connection: close') + bodyOf(secret))],
  // Left out on Node 22, where libuv before 1.52 can report this reset as a normal end.
  ...(versionsOfCommand.node.startsWith('22.') ? [] : [
    ['an answer without a length, then a reset', 'needs-body', 'closed', (secret) => {
      const bytes = head(secret, 'Connection: close') + bodyOf(secret);
      return resetPeer(bytes.length, bytes);
    }] satisfies Row,
  ]),
  ['the body 12 without a length, then a reset', 'needs-body', 'closed', (secret) => {
    const bytes = `${head(secret, 'Connection: close')}12`;
    return resetPeer(bytes.length, bytes);
  }],
  ['a complete answer, then a reset', 'success', 'closed', (secret) => resetPeer(good(secret).length, good(secret)), { diesIdle: true }],
  ['HTTP/1.0', 'success', 'closed', (secret) => rawThenClose(`HTTP/1.0 200 OK\r\n\r\n${bodyOf(secret)}`)],
  ['Connection: close, and the backend does not close', 'success', 'closed', (secret) =>
    raw(answerBytes(bodyOf(secret), { headers: [['Connection', 'close']] }))],
  ['a keep-alive time of 0', 'success', 'closed', (secret) => raw(answerBytes(bodyOf(secret), { headers: [['Keep-Alive', 'timeout=0']] }))],
]); // prettier-ignore

/** Statuses with their own rules; matrix.test.ts tests others. */
const statuses = faultsOf([
  ['a 404', 'missing', 'kept', (secret) => raw(good(secret, 404))],
  ['a 404 without a body', 'missing', 'kept', (secret) => raw(head(secret, 'Content-Length: 0', 404))],
  ['a 404 that is cut off', 'missing', 'closed', (secret) => limitData(good(secret).length - 1, good(secret, 404))],
  ['a redirect', 'failure', 'kept', (secret) =>
    raw(answerBytes(bodyOf(secret), { status: 302, headers: [['Location', '/api/WorkItem/9']] }))],
  ['a 503 with Retry-After', 'failure', 'kept', (secret) =>
    raw(answerBytes(bodyOf(secret), { status: 503, headers: [['Retry-After', '0']] }))],
  ['a 408, then the end of the connection', 'failure', 'closed', (secret) =>
    raw(answerBytes(bodyOf(secret), { status: 408, headers: [['Connection', 'close']] }))],
]); // prettier-ignore

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
