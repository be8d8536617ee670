// HTTP/1.1 messages for the tests and the fuzzer of the readers: handwritten messages with every feature, valid and
// invalid parts of messages, and random valid messages. Each character is one byte.

import { METHODS } from 'node:http';

/** Requests with every feature; each text is the bytes of one connection. */
export const requestTexts: Readonly<Record<string, string>> = {
  'a plain request': 'GET /a HTTP/1.1\r\nHost: x\r\n\r\n',
  'empty lines before a request': '\r\n\r\nGET /a HTTP/1.1\r\nHost: x\r\n\r\n\r\n',
  'known field names in any case':
    'GET /api/work-items?a=b&c=%20 HTTP/1.1\r\nHOST: a.example:8080\r\nx-request-id:id\r\nTraceParent: \t 00-1 2 \t\r\n' +
    'Authorization: Basic YTpi\r\nauthorization: second\r\nX-Other: y\r\nAccept: */*\r\nEmpty:\r\nOrigin: \xe9\xff\r\n\r\n',
  'an absolute-form target': 'GET http://u.example/a?b HTTP/1.1\r\nHost: u.example\r\n\r\n',
  'OPTIONS with the target *': 'OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n',
  'a tunnel': 'CONNECT a.example:443 HTTP/1.1\r\nHost: a.example:443\r\n\r\n',
  'a body with a length': 'PUT /a HTTP/1.1\r\nHost: x\r\nContent-Length: 7\r\n\r\n{"a":1}',
  'a length of 0': 'POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n',
  'a body in chunks':
    'POST /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: CHUNKED\r\n\r\n5\r\nhello\r\n00A\r\n1234567890\r\n1\r\n\r\r\n0\r\n\r\n',
  'chunks with extensions and trailers':
    'POST /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3;a;b=c;d="e\\"\\f g";h\r\nabc\r\n2;i="\x80"\r\n\r\n\r\n' +
    '000;z\r\nContent-Length: 9\r\nHost: y\r\nT: \t\r\n\r\n',
  'pipelined requests':
    'POST /1 HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n12\r\nPUT /2 HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n' +
    '1\r\na\r\n0\r\n\r\nGET /3 HTTP/1.1\r\nHost: x\r\n\r\n\r\nDELETE /4 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\nnot read',
  'HTTP/1.0': 'GET /a HTTP/1.0\r\n\r\n',
  'HTTP/1.0 on a connection that stays open':
    'GET /a HTTP/1.0\r\nConnection: x, Keep-Alive\r\n\r\nGET /b HTTP/1.0\r\nContent-Length: 1\r\n\r\n1',
  expectations:
    'PUT /a HTTP/1.1\r\nHost: x\r\nExpect: 100-Continue\r\nContent-Length: 1\r\n\r\n1' +
    'PUT /a HTTP/1.1\r\nHost: x\r\nExpect: tea\r\nContent-Length: 0\r\n\r\n' +
    'PUT /a HTTP/1.0\r\nConnection: keep-alive\r\nExpect: 100-continue\r\nContent-Length: 0\r\n\r\n',
  'an offer to upgrade':
    'GET /a HTTP/1.1\r\nHost: x\r\nUpgrade: h2c\r\nConnection: upgrade\r\n\r\nGET /b HTTP/1.1\r\nHost: x\r\n\r\n',
  'a head that is not whole': 'GET /a HTTP/1.1\r\nHost: x\r\nContent-Le',
  'a body that is not whole': 'PUT /a HTTP/1.1\r\nHost: x\r\nContent-Length: 7\r\n\r\n{"a"',
  'trailers that are not whole': 'PUT /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nA: b\r\n\r',
};

const chunked = 'PUT /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n';

/** Requests that the reader refuses: the bytes up to the flaw, and the bytes after it. */
export const flawedRequestTexts: Readonly<Record<string, readonly [upTo: string, after: string]>> = {
  'a method in small letters': ['g', 'ET / HTTP/1.1\r\nHost: x\r\n\r\n'],
  'no method': [' ', '/ HTTP/1.1\r\nHost: x\r\n\r\n'],
  'a method of 65 letters': ['M'.repeat(65), 'M / HTTP/1.1\r\nHost: x\r\n\r\n'],
  'an empty line that is a line feed alone': ['\n', 'GET / HTTP/1.1\r\nHost: x\r\n\r\n'],
  'an empty line that is a carriage return alone': ['\rG', 'ET / HTTP/1.1\r\nHost: x\r\n\r\n'],
  'no target': ['GET  ', ' HTTP/1.1\r\nHost: x\r\n\r\n'],
  'a control character in a target': ['GET /a\0', ' HTTP/1.1\r\nHost: x\r\n\r\n'],
  'a byte above ASCII in a target': ['GET /\xe9', ' HTTP/1.1\r\nHost: x\r\n\r\n'],
  'no version': ['GET /a\r', '\n\r\n'],
  'another version': ['GET /a HTTP/2', '.0\r\nHost: x\r\n\r\n'],
  'a later minor version': ['GET /a HTTP/1.2', '\r\nHost: x\r\n\r\n'],
  'two spaces': ['GET /a  ', 'HTTP/1.1\r\nHost: x\r\n\r\n'],
  'bytes after the version': ['GET /a HTTP/1.1 ', '\r\nHost: x\r\n\r\n'],
  'a line that ends in a line feed alone': ['GET /a HTTP/1.1\n', 'Host: x\n\n'],
  'a line that ends in a carriage return alone': ['GET /a HTTP/1.1\rH', 'ost: x\r\r'],
  'a space before the colon': ['GET /a HTTP/1.1\r\nHost ', ': x\r\n\r\n'],
  'a folded line': ['GET /a HTTP/1.1\r\nHost: x\r\n ', 'y\r\n\r\n'],
  'a field without a name': ['GET /a HTTP/1.1\r\n:', ' x\r\nHost: x\r\n\r\n'],
  'a field without a colon': ['GET /a HTTP/1.1\r\nHost\r', '\n\r\n'],
  'a control character in a field': ['GET /a HTTP/1.1\r\nHost: x\x7f', '\r\n\r\n'],
  'a line feed in a field': ['GET /a HTTP/1.1\r\nHost: x\n', '\r\n'],
  'a head that ends in a line feed': ['GET /a HTTP/1.1\r\nHost: x\r\n\n', ''],
  'a head that ends in a carriage return': ['GET /a HTTP/1.1\r\nHost: x\r\n\r1', ''],
  'a chunk size that is not a number': [chunked + '0x', '5\r\n'],
  'no chunk size': [chunked + '\r', '\n5\r\n'],
  'a chunk size of 13 digits': [chunked + '1000000000001', '\r\n'],
  'a chunk size after 65 zeros': [chunked + '0'.repeat(65), '1\r\n1\r\n'],
  'a space after a chunk size': [chunked + '5 ', '\r\nhello\r\n0\r\n\r\n'],
  'a chunk size that ends in a line feed': [chunked + '5\n', 'hello\r\n0\r\n\r\n'],
  'a chunk size that ends in a carriage return': [chunked + '5\rh', 'ello\r\n0\r\n\r\n'],
  'a last chunk that ends in a carriage return': [chunked + '0\r\r', '\n\r\n'],
  'a chunk that is longer than its size': [chunked + '2\r\nabc', '\r\n0\r\n\r\n'],
  'a chunk that ends in a line feed': [chunked + '2\r\nab\n', '0\r\n\r\n'],
  'a chunk that ends in a carriage return': [chunked + '2\r\nab\r0', '\r\n\r\n'],
  'an extension without a name': [chunked + '2;;', 'a\r\nab\r\n0\r\n\r\n'],
  'an extension with a space': [chunked + '2;a ', '=b\r\nab\r\n0\r\n\r\n'],
  'an extension without a value': [chunked + '2;a=\r', '\nab\r\n0\r\n\r\n'],
  'an extension with bytes after its quotes': [chunked + '2;a="b"c', '\r\nab\r\n0\r\n\r\n'],
  'a line end within quotes': [chunked + '2;a="\r', '\n"\r\nab\r\n0\r\n\r\n'],
  'a line feed after a backslash': [chunked + '2;a="\\\n', '"\r\nab\r\n0\r\n\r\n'],
  'a line feed within the value of an extension': [chunked + '2;a=b\n', 'ab\r\n0\r\n\r\n'],
  'an invalid trailer': [chunked + '0\r\nA ', ': b\r\n\r\n'],
  'trailers that end in a line feed': [chunked + '0\r\n\n', ''],
}; // prettier-ignore

/** Answers with every feature; each text is the bytes of one connection. */
export const answerTexts: Readonly<Record<string, string>> = {
  'a plain answer': 'HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n[]',
  'no reason': 'HTTP/1.1 200 \r\nContent-Length: 2\r\n\r\n[]',
  'no reason and no space': 'HTTP/1.1 204\r\n\r\n',
  'a reason of any bytes': 'HTTP/1.1 404 Not\tFound \xe9!\r\nContent-Length: 0\r\n\r\n',
  'interim answers before the final one':
    'HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: <a>\r\nConnection: close\r\nKeep-Alive: timeout=3\r\n\r\n' +
    'HTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n[]',
  'chunks with extensions and trailers':
    'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1;a="b"\r\n[\r\n1\r\n]\r\n0\r\nT: v\r\n\r\n',
  'a body up to the end of the connection': 'HTTP/1.1 200 OK\r\nX: y\r\n\r\n[1,\r\n2]',
  'no body after a 204': 'HTTP/1.1 204 No Content\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n1',
  'a 204 that announces a body': 'HTTP/1.1 204 No Content\r\nContent-Length: 4\r\n\r\nnull',
  'a 204 that announces chunks': 'HTTP/1.1 204 No Content\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n',
  'a 304 with the content-length of the missing body':
    'HTTP/1.1 304 Not Modified\r\nContent-Length: 100\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n1',
  'consecutive answers':
    'HTTP/1.1 200 OK\r\nContent-Length: 1\r\nKeep-Alive: max=5, timeout=7\r\n\r\n1' +
    'HTTP/1.1 500 No\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n' +
    'HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n',
  'HTTP/1.0': 'HTTP/1.0 200 OK\r\nContent-Length: 1\r\n\r\n1',
  'HTTP/1.0 on a connection that stays open':
    'HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 1\r\n\r\n1HTTP/1.0 200 OK\r\n\r\nall',
  'a head that is not whole': 'HTTP/1.1 200 OK\r\nContent-Le',
  'a body that is not whole': 'HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nab',
};

/** Answers that the reader refuses: the bytes up to the flaw, and the bytes after it. */
export const flawedAnswerTexts: Readonly<Record<string, readonly [upTo: string, after: string]>> = {
  'an empty line before the answer': ['\r', '\nHTTP/1.1 200 OK\r\n\r\n'],
  'another protocol': ['I', 'CY 200 OK\r\n\r\n'],
  'another version': ['HTTP/2', '.0 200 OK\r\n\r\n'],
  'a later minor version': ['HTTP/1.2', ' 200 OK\r\n\r\n'],
  'no space after the version': ['HTTP/1.1\t', '200 OK\r\n\r\n'],
  'a status that is not a number': ['HTTP/1.1 2x', '0 OK\r\n\r\n'],
  'a status of four digits': ['HTTP/1.1 2000', ' OK\r\n\r\n'],
  'a status below 100': ['HTTP/1.1 099 x\r\n\r\n', ''],
  'a switch to another protocol': ['HTTP/1.1 101 x\r\nUpgrade: a\r\n\r\n', ''],
  'an interim answer in HTTP/1.0': ['HTTP/1.0 100 x\r\n\r\n', 'HTTP/1.0 200 OK\r\n\r\n'],
  'a line that ends in a line feed alone': ['HTTP/1.1 200 OK\n', '\n'],
  'a control character in the reason': ['HTTP/1.1 200 O\0', 'K\r\n\r\n'],
  'two lengths': ['HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\n', '1'],
  'a length and chunks': ['HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n', '0\r\n\r\n'],
  'chunks in HTTP/1.0': ['HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n', '0\r\n\r\n'],
  'another coding': ['HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n', '0\r\n\r\n'],
  'an interim answer with two lengths': [
    'HTTP/1.1 100 x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n',
    'HTTP/1.1 200 OK\r\n\r\n',
  ],
};

/** Valid and invalid parts of messages. */
export const httpParts: readonly Buffer[] = [
  ...['\r\n', '\r', '\n', ' ', '\t', '\0', '\x0b', '\x7f', '\x80', '\xff', ':', ';', ',', '=', '"', '\\', '/', '#'],
  ...['\r\n\r\n', '\n\n', '\r\r\n', '  ', ': ', ' :', '0', '1', '5', 'a', 'F', 'x', '-1', '+1', '0x1', '1e1'],
  ...['GET ', 'PUT ', 'POST ', 'CONNECT ', 'PRI ', 'get ', 'M-SEARCH ', 'SOURCE ', 'QUERY ', 'XYZ ', 'HEAD '],
  ...['/', '*', '/a', 'http://a/', 'http:///', 'HTTP://a:1', 'a:1', '//a', '/a#b', '/%zz', '/\xe9', 'h2://x/', '?'],
  ...[' HTTP/1.1\r\n', ' HTTP/1.0\r\n', ' HTTP/0.9\r\n', ' HTTP/2.0\r\n', ' HTTP/1.10\r\n', ' http/1.1\r\n', ' RTSP/1.0\r\n'],
  ...['HTTP/1.1 200 OK\r\n', 'HTTP/1.1 204 \r\n', 'HTTP/1.1 304\r\n', 'HTTP/1.1 100 C\r\n\r\n', 'HTTP/1.1 101 S\r\n', 'HTTP/1.0 200 OK\r\n', 'ICY 200 OK\r\n', 'HTTP/1.1 600 x\r\n', 'HTTP/1.1 000 x\r\n'],
  ...['Host: x\r\n', 'Host:\r\n', 'Host: a b\r\n', 'Host: x:1\r\n', 'Host: [::1]:1\r\n', 'Host: a,b\r\n', 'Host: a@b\r\n', 'host: x/y\r\n'],
  ...['Content-Length: 5\r\n', 'Content-Length: 0\r\n', 'Content-Length: 00005\r\n', 'Content-Length: +5\r\n', 'Content-Length: 5, 5\r\n', 'Content-Length: 5 \r\n', 'Content-Length:\r\n', 'Content-Length: 99999999999999999999\r\n', 'Content_Length: 5\r\n', 'Content-Length : 5\r\n', 'content-length:5\r\n', 'Content-Length: 0x5\r\n', 'Content-Length: 1 2\r\n'],
  ...['Transfer-Encoding: chunked\r\n', 'Transfer-Encoding: Chunked\r\n', 'Transfer-Encoding: gzip, chunked\r\n', 'Transfer-Encoding: chunked, chunked\r\n', 'Transfer-Encoding: identity\r\n', 'Transfer-Encoding: xchunked\r\n', 'Transfer-Encoding: chunked;q=1\r\n', 'Transfer-Encoding:\r\n', 'Transfer-Encoding: chunked, identity\r\n', 'Transfer-Encoding: \tchunked \r\n', 'Transfer-Encoding: ,chunked\r\n', 'TE: trailers\r\n', 'Trailer: a\r\n'],
  ...['Connection: close\r\n', 'Connection: keep-alive\r\n', 'Connection: Upgrade\r\n', 'Connection: close, keep-alive\r\n', 'Connection: content-length\r\n', 'Connection: ,\r\n', 'Connection: closed\r\n', 'Connection: "close"\r\n', 'Proxy-Connection: close\r\n', 'Upgrade: h2c\r\n', 'Upgrade: websocket\r\n', 'Keep-Alive: timeout=5\r\n', 'Expect: 100-continue\r\n', 'Expect: x\r\n', 'X-Request-Id: r1\r\n', 'Origin: http://a\r\n', 'A: b\r\n', 'A:\r\n', ' folded\r\n', '\tfolded\r\n'],
  ...['5\r\nhello\r\n', '0\r\n\r\n', '1\r\na\r\n', '0\r\n', '5;a=b\r\nhello\r\n', '5;a="b c"\r\nhello\r\n', '5;\r\nhello\r\n', '5 \r\nhello\r\n', '05\r\nhello\r\n', '5\nhello\r\n', 'ffffffffffffffff\r\n', '10000000000000000\r\n', '1000000000000\r\n', ';a', ';a=', ';a="\\"', '5;a b\r\nhello\r\n', '5 ;a\r\nhello\r\n', '0\r\nA: b\r\n\r\n', '0;a\r\n\r\n'],
  'x'.repeat(70),
  ' '.repeat(40),
  '0'.repeat(70),
].map((text) => Buffer.from(text, 'latin1')); // prettier-ignore

/** Random choices. `pick`: one value. `below`: an integer below `limit`. `chance`: true with the probability `part`. */
export interface Choices {
  readonly pick: <T>(values: readonly [T, ...T[]]) => T;
  readonly below: (limit: number) => number;
  readonly chance: (part: number) => boolean;
}

export function createChoices(random: () => number): Choices {
  const below = (limit: number): number => Math.floor(random() * limit);
  return { below, pick: (values) => values[below(values.length)] ?? values[0], chance: (part) => random() < part };
}

const common = ['PUT', 'POST', 'DELETE', 'HEAD', 'OPTIONS', 'PATCH'];
const methods: [string, ...string[]] = ['GET', ...common, ...METHODS];
const otherFields: [string, ...string[]] = [
  'A: b', 'X-Request-Id: r', 'Accept: */*', 'x-padding: \t y z\t ', 'Empty:', 'Traceparent: 00-0', 'Authorization: Bearer t',
  'Keep-Alive: timeout=5, max=3', 'Origin: null', 'Expect: 100-continue', 'Upgrade: a', 'Date: now', 'Bytes: \x80\xff',
]; // prettier-ignore
const connections: [string, ...string[]] = ['close', 'keep-alive', 'Upgrade', 'a, close', 'keep-alive,close', 'x', '']; // prettier-ignore

function createFields(choices: Choices, count: number): string {
  const { pick, chance } = choices;
  let text = '';
  for (let index = 0; index < count; index += 1) {
    text += chance(0.25) ? `Connection: ${pick(connections)}\r\n` : `${pick(otherFields)}\r\n`;
  }
  return text;
}

function createChunks(choices: Choices): string {
  const { pick, below, chance } = choices;
  let text = '';
  for (let count = below(4); count > 0; count -= 1) {
    const length = 1 + below(chance(0.1) ? 2_000 : 20);
    const size = chance(0.5) ? length.toString(16) : length.toString(16).toUpperCase().padStart(4, '0');
    const data = pick(['d', '\r\n', '0\r\n\r\n', 'GET / HTTP/1.1\r\n\r\n']).repeat(length).slice(0, length);
    text += `${size}${chance(0.2) ? pick([';a', ';a=b', ';a="b;c"', ';a=b;c', ';a="\\""']) : ''}\r\n${data}\r\n`;
  }
  return `${text}0\r\n${chance(0.2) ? createFields(choices, 1 + below(2)) : ''}\r\n`;
}

// Framing fields, the empty line and a body.
function createBody(choices: Choices): string {
  const { below, chance } = choices;
  if (chance(0.5)) {
    const body = 'b'.repeat(below(chance(0.1) ? 3_000 : 12));
    return `Content-Length: ${chance(0.1) ? '000' : ''}${body.length}\r\n\r\n${body}`;
  }
  return `Transfer-Encoding: chunked\r\n\r\n${createChunks(choices)}`;
}

/** The bytes of one connection to a server: valid requests. */
export function createRequests(choices: Choices): Buffer {
  const { pick, below, chance } = choices;
  let text = '';
  for (let count = 1 + below(4); count > 0; count -= 1) {
    const method = pick(methods);
    const target =
      method === 'CONNECT' ? 'a.example:1' : pick(['/', '/a/b?c=d', 'http://a.example/x', '/%20;=@!$', '/"<>^`{|}\\']);
    text += `${chance(0.1) ? '\r\n' : ''}${method} ${target} HTTP/1.${chance(0.85) ? 1 : 0}\r\n`;
    text += createFields(choices, below(3));
    text += `Host: ${pick(['x', 'a.example:80', '[::1]', ''])}\r\n${createFields(choices, below(3))}`;
    text += chance(0.5) ? '\r\n' : createBody(choices);
  }
  return Buffer.from(text, 'latin1');
}

/** The bytes of one connection to a client: a valid answer, sometimes with interim answers before it. */
export function createAnswer(choices: Choices): Buffer {
  const { pick, below, chance } = choices;
  let text = '';
  for (let count = chance(0.2) ? 1 + below(2) : 0; count > 0; count -= 1) {
    text += `HTTP/1.1 ${pick([100, 102, 103])} Wait\r\n${createFields(choices, below(2))}\r\n`;
  }
  const status = pick([200, 200, 200, 201, 204, 304, 404, 500, 999]);
  text += `HTTP/1.${chance(0.85) ? 1 : 0} ${status}${pick([' OK', ' ', '', ' Not Found'])}\r\n`;
  text += createFields(choices, below(4));
  text += chance(0.3) ? `\r\n${'u'.repeat(below(20))}` : createBody(choices);
  return Buffer.from(text, 'latin1');
}
