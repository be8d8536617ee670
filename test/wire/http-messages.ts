// HTTP/1.1 messages for the fuzzers of the readers: valid and invalid parts of messages, and random valid messages. Each
// character is one byte. Handwritten messages are in test/vectors/http.

import { METHODS } from 'node:http';

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
