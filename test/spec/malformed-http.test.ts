// HTTP that is malformed, or that two parsers could read differently, on the raw wire: D27.

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { createGate } from '../helpers/changes.ts';
import {
  assertReply,
  badRequest,
  headersTooLarge,
  invalidId,
  methodNotAllowed,
  operation,
  succeeded,
} from '../helpers/expected.ts';
import { chunk, requestBytes, type Reply } from '../helpers/raw-client.ts';
import { answer } from '../helpers/scripted-backend.ts';
import { forEachTarget, type Target } from '../helpers/targets.ts';

const host = 'Host: gateway.test\r\n';
const list = 'GET /api/work-items HTTP/1.1\r\n';
const update = 'PUT /api/work-items/5 HTTP/1.1\r\n';
const chunkedUpdate = `${update}${host}Transfer-Encoding: chunked\r\n\r\n`;
const smuggled = `GET /api/work-items/666 HTTP/1.1\r\n${host}\r\n`;

/** A PUT with these header lines and this body behind the head. */
function put(lines: string, body = '{"a":1}'): string {
  return `${update}${host}${lines}\r\n\r\n${body}`;
}

/** A GET with these header lines. */
function get(lines: string): string {
  return `${list}${lines}\r\n\r\n`;
}

const hosts: [name: string, bytes: string][] = [
  ['no Host', `${list}\r\n`],
  ['no Host, but other headers', get('Accept: */*')],
  ['two Hosts that differ', get('Host: a\r\nHost: b')],
  ['two Hosts that are the same', get('Host: a\r\nHost: a')],
  ['two Hosts, one of them far behind', get(`Host: a\r\n${'X: 1\r\n'.repeat(100)}hOST: b`)],
  [
    'two Hosts in an absolute-form request',
    `GET http://a/api/work-items HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n`,
  ],
  ['a Host with a space', get('Host: a b')],
  ['a Host with a path', get('Host: a/b')],
  ['a Host with user information', get('Host: user@a')],
  ['a Host with a query', get('Host: a?b')],
  ['a Host with a fragment', get('Host: a#b')],
  ['a Host with a backslash', get('Host: a\\b')],
  ['a list of Hosts', get('Host: a,b')],
  ['a Host with a scheme', get('Host: http://a')],
  ['a Host with a port that is no number', get('Host: a:b')],
  ['a Host with two ports', get('Host: a:1:2')],
  ['a Host with an open bracket', get('Host: [::1')],
  ['a Host with something behind the bracket', get('Host: [::1]a')],
  ['a Host with brackets around nonsense', get('Host: [xyz]')],
  ['a Host with an unknown escape', get('Host: a%zz')],
  ['a Host with markup', get('Host: <a>')],
  ['a Host with quotes', get('Host: "a"')],
  ['a Host that is not ASCII', get('Host: \xe9')],
  ['a Host with a tab inside', get('Host: a\tb')],
  ['a NUL in the Host', get('Host: a\0b')],
  ['a Host that is a port alone', get('Host: :80')],
  ['a Host with a port beyond every port', get('Host: a:65536')],
  ['a Host with a space in its port', get('Host: a:8 0')],
  ['a Host that is two slashes', get('Host: //a')],
  ['a bare IPv6 address as Host', get('Host: ::1')],
  ['a Host with a zone in its brackets', get('Host: [fe80::1%eth0]')],
  ['a Host with a comma at its end', get('Host: a,')],
  ['a Host with a vertical tab at its end', get('Host: a\x0b')],
  ['an absolute-form target and no Host', 'GET http://a/api/work-items HTTP/1.1\r\n\r\n'],
];

const framing: [name: string, bytes: string][] = [
  ['content-length and transfer-encoding', put('Content-Length: 7\r\nTransfer-Encoding: chunked', '7\r\n{"a":1}\r\n0\r\n\r\n')],
  ['transfer-encoding and content-length', put('Transfer-Encoding: chunked\r\nContent-Length: 7', '7\r\n{"a":1}\r\n0\r\n\r\n')],
  ['content-length: 0 and transfer-encoding', put('Content-Length: 0\r\nTransfer-Encoding: chunked', '7\r\n{"a":1}\r\n0\r\n\r\n')],
  ['content-length and an unknown coding', put('Content-Length: 7\r\nTransfer-Encoding: x')],
  ['two lengths that differ', put('Content-Length: 7\r\nContent-Length: 6')],
  ['two lengths that are the same', put('Content-Length: 7\r\nContent-Length: 7')],
  ['a list of lengths', put('Content-Length: 7, 7')],
  ['a list of different lengths', put('Content-Length: 7,6')],
  ['a length with a plus sign', put('Content-Length: +7')],
  ['a length with a minus sign', put('Content-Length: -7')],
  ['minus zero', put('Content-Length: -0', '')],
  ['a hexadecimal length', put('Content-Length: 0x7')],
  ['a length with something behind', put('Content-Length: 7a')],
  ['a length in quotes', put('Content-Length: "7"')],
  ['a length with a space inside', put('Content-Length: 0 7')],
  ['a fraction', put('Content-Length: 7.0')],
  ['an exponent', put('Content-Length: 7e0')],
  ['digits with a separator', put('Content-Length: 0_7')],
  ['an empty length', put('Content-Length:', '')],
  ['a length beyond every integer', put(`Content-Length: ${'9'.repeat(40)}`)],
  ['a length that wraps round at 64 bits', put('Content-Length: 18446744073709551623')],
  ['a length with a vertical tab', put('Content-Length: \x0b7')],
  ['a length with a space before the colon', put('Content-Length : 7')],
  ['a length with a tab before the colon', put('Content-Length\t: 7')],
  ['a folded length', put('Content-Length:\r\n 7')],
  ['the coding identity', put('Transfer-Encoding: identity')],
  ['an unknown coding', put('Transfer-Encoding: xchunked', '7\r\n{"a":1}\r\n0\r\n\r\n')],
  ['chunked before identity', put('Transfer-Encoding: chunked, identity', '7\r\n{"a":1}\r\n0\r\n\r\n')],
  ['identity before chunked', put('Transfer-Encoding: identity, chunked', '7\r\n{"a":1}\r\n0\r\n\r\n')],
  ['gzip before chunked', put('Transfer-Encoding: gzip, chunked', '7\r\n{"a":1}\r\n0\r\n\r\n')],
  ['chunked twice', put('Transfer-Encoding: chunked, chunked', '7\r\n{"a":1}\r\n0\r\n\r\n')],
  ['chunked on two lines', put('Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked', '7\r\n{"a":1}\r\n0\r\n\r\n')],
  ['chunked and identity on two lines', put('Transfer-Encoding: chunked\r\nTransfer-Encoding: identity', '7\r\n{"a":1}\r\n0\r\n\r\n')],
  ['chunked in quotes', put('Transfer-Encoding: "chunked"', '7\r\n{"a":1}\r\n0\r\n\r\n')],
  ['chunked with a parameter', put('Transfer-Encoding: chunked;a=b', '7\r\n{"a":1}\r\n0\r\n\r\n')],
  ['chunked with a comma in front', put('Transfer-Encoding: ,chunked', '7\r\n{"a":1}\r\n0\r\n\r\n')],
  ['chunked with a vertical tab', put('Transfer-Encoding: \x0bchunked', '7\r\n{"a":1}\r\n0\r\n\r\n')],
  ['chunk', put('Transfer-Encoding: chunk', '7\r\n{"a":1}\r\n0\r\n\r\n')],
  ['an empty coding', put('Transfer-Encoding:', '7\r\n{"a":1}\r\n0\r\n\r\n')],
  ['a coding with a space before the colon', put('Transfer-Encoding : chunked', '7\r\n{"a":1}\r\n0\r\n\r\n')],
  ['a folded coding', put('Transfer-Encoding:\r\n chunked', '7\r\n{"a":1}\r\n0\r\n\r\n')],
  ['transfer-encoding on HTTP/1.0', `PUT /api/work-items/5 HTTP/1.0\r\n${host}Transfer-Encoding: chunked\r\n\r\n7\r\n{"a":1}\r\n0\r\n\r\n`],
  ['transfer-encoding and content-length on HTTP/1.0', `PUT /api/work-items/5 HTTP/1.0\r\n${host}Content-Length: 7\r\nTransfer-Encoding: chunked\r\n\r\n{"a":1}`],
  ...['\0', '\x0b', '\x0c', '\x7f', '\x85', '\xa0', '\xff'].map((byte): [string, string] => [
    `chunked behind the byte ${byte.charCodeAt(0).toString(16)}`,
    put(`Transfer-Encoding: ${byte}chunked`, '7\r\n{"a":1}\r\n0\r\n\r\n'),
  ]),
  ...['\0', '\x0b', '\x0c', '\r', '\x7f', '\xa0', '\xff', ',', ' ,', ';', ';q=1'].map((end): [string, string] => [
    `chunked with ${JSON.stringify(end)} behind it`,
    put(`Transfer-Encoding: chunked${end}`, '7\r\n{"a":1}\r\n0\r\n\r\n'),
  ]),
  ['chunked with one letter that is none', put('Transfer-Encoding: ch\x96nked', '7\r\n{"a":1}\r\n0\r\n\r\n')],
  ['chunked in apostrophes', put("Transfer-Encoding: 'chunked'", '7\r\n{"a":1}\r\n0\r\n\r\n')],
  ['chunked between two others', put('Transfer-Encoding: identity, chunked, identity', '7\r\n{"a":1}\r\n0\r\n\r\n')],
  ['identity and chunked on two lines', put('Transfer-Encoding: identity\r\nTransfer-Encoding: chunked', '7\r\n{"a":1}\r\n0\r\n\r\n')],
  ['a coding whose name has a space for its hyphen', put('Transfer Encoding: chunked', '7\r\n{"a":1}\r\n0\r\n\r\n')],
  ['a coding whose name has a backslash for its hyphen', put('Transfer\\Encoding: chunked', '7\r\n{"a":1}\r\n0\r\n\r\n')],
  ['a coding whose name has a letter that is none', put('Transf\x82r-Encoding: chunked', '7\r\n{"a":1}\r\n0\r\n\r\n')],
  ['a coding whose name has a CR inside', put('Tra\rnsfer-Encoding: chunked', '7\r\n{"a":1}\r\n0\r\n\r\n')],
  ['a coding with junk before the colon', put('Transfer-Encoding x: chunked', '7\r\n{"a":1}\r\n0\r\n\r\n')],
  ['a coding behind a bare LF', put('Foo: bar\nTransfer-Encoding: chunked', '7\r\n{"a":1}\r\n0\r\n\r\n')],
  ['a coding behind a bare CR', put('Foo: bar\rTransfer-Encoding: chunked', '7\r\n{"a":1}\r\n0\r\n\r\n')],
  ['a coding behind CR LF CR', put('Foo: bar\r\n\rTransfer-Encoding: chunked', '7\r\n{"a":1}\r\n0\r\n\r\n')],
  ['a coding behind two bare LFs', put('Foo: bar\n\nTransfer-Encoding: chunked', '7\r\n{"a":1}\r\n0\r\n\r\n')],
  ['a coding folded by a bare LF', put('Transfer-Encoding:\n chunked', '7\r\n{"a":1}\r\n0\r\n\r\n')],
  ['a coding folded before its colon', put('Transfer-Encoding\n : chunked', '7\r\n{"a":1}\r\n0\r\n\r\n')],
  ['a coding folded in front of the first header', `${update} Transfer-Encoding: chunked\r\n${host}\r\n7\r\n{"a":1}\r\n0\r\n\r\n`],
  ['a length and chunks, with the length named by Connection', put('Connection: Content-Length\r\nContent-Length: 7\r\nTransfer-Encoding: chunked')],
  ...['\xa07', '7\0', '7\x0b', '7,', '7;', '7 7', '0o7', '7L', '[7]', '\xef\xbc\x97', 'NaN', 'true'].map((length): [string, string] => [
    `the length ${JSON.stringify(length)}`,
    put(`Content-Length: ${length}`),
  ]),
  ['two lengths, one with zeros in front', put('Content-Length: 7\r\ncontent-length: 007')],
  ['transfer-encoding on a GET with a length', `${list}${host}Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n`],
]; // prettier-ignore

const heads: [name: string, bytes: string][] = [
  ['a space before a colon', get(`${host}X-Extra : 1`)],
  ['a header without a colon', get(`${host}X-Extra`)],
  ['an empty header name', get(`${host}: 1`)],
  ['a space in a header name', get(`${host}X Extra: 1`)],
  ['a parenthesis in a header name', get(`${host}X(Extra): 1`)],
  ['a slash in a header name', get(`${host}X/Extra: 1`)],
  ['a NUL in a header name', get(`${host}X\0Extra: 1`)],
  ['a byte above ASCII in a header name', get(`${host}X\xe9: 1`)],
  ['a folded header', get(`${host}X-Extra: 1\r\n 2`)],
  ['a header folded with a tab', get(`${host}X-Extra: 1\r\n\t2`)],
  ['a folded Host', get('Host: a\r\n b')],
  ['white space before the first header', `${list} ${host}\r\n`],
  ['a folded line before the first header', `${list} X: 1\r\n${host}\r\n`],
  ['a NUL in a header value', get(`${host}X-Extra: a\0b`)],
  ['a bare CR in a header value', get(`${host}X-Extra: a\rb`)],
  ['a bare CR that hides a header', get(`${host}X-Extra: a\rContent-Length: 5`)],
  ['a control character in a header value', get(`${host}X-Extra: a\x01b`)],
  ['DEL in a header value', get(`${host}X-Extra: a\x7fb`)],
  ['a bare LF behind the request line', `GET /api/work-items HTTP/1.1\n${host}\r\n`],
  ['a bare LF behind a header', `${list}Host: a\nX-Extra: 1\r\n\r\n`],
  ['a bare LF as the empty line', `${list}Host: a\r\n\n`],
  ['bare LFs everywhere', 'GET /api/work-items HTTP/1.1\nHost: a\n\n'],
  ['bare CRs everywhere', 'GET /api/work-items HTTP/1.1\rHost: a\r\r'],
  ['CR CR LF', `${list}Host: a\r\r\n\r\n`],
  ['no method', `/api/work-items HTTP/1.1\r\n${host}\r\n`],
  ['no path', `GET HTTP/1.1\r\n${host}\r\n`],
  ['a tab in the request line', `GET\t/api/work-items HTTP/1.1\r\n${host}\r\n`],
  ['a space at the end of the request line', `GET /api/work-items HTTP/1.1 \r\n${host}\r\n`],
  ['a space in front of the request line', ` GET /api/work-items HTTP/1.1\r\n${host}\r\n`],
  ['a space in the path', `GET /api/work items HTTP/1.1\r\n${host}\r\n`],
  ['a NUL in the path', `GET /api/work-items/5\0 HTTP/1.1\r\n${host}\r\n`],
  ['a method with a NUL', `GE\0T /api/work-items HTTP/1.1\r\n${host}\r\n`],
  ['a path that does not begin with a slash', `GET api/work-items HTTP/1.1\r\n${host}\r\n`],
  ['HTTP/1.2', `GET /api/work-items HTTP/1.2\r\n${host}\r\n`],
  ['HTTP/2.0', `GET /api/work-items HTTP/2.0\r\n${host}\r\n`],
  ['HTTP/3', `GET /api/work-items HTTP/3\r\n${host}\r\n`],
  ['HTTP/0.9 by name', `GET /api/work-items HTTP/0.9\r\n${host}\r\n`],
  ['HTTP/0.9', 'GET /api/work-items\r\n\r\n'],
  ['HTTP/1.', `GET /api/work-items HTTP/1.\r\n${host}\r\n`],
  ['HTTP/1.10', `GET /api/work-items HTTP/1.10\r\n${host}\r\n`],
  ['HTTP/01.1', `GET /api/work-items HTTP/01.1\r\n${host}\r\n`],
  ['HTTP 1.1', `GET /api/work-items HTTP 1.1\r\n${host}\r\n`],
  ['http/1.1', `GET /api/work-items http/1.1\r\n${host}\r\n`],
  ['another protocol', `GET /api/work-items ICY/1.1\r\n${host}\r\n`],
  ['the HTTP/2 preface', 'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n'],
  ['a TLS hello', '\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n'],
  ['an SMTP greeting', 'EHLO example.test\r\n\r\n'],
  ['the PROXY protocol', `PROXY TCP4 192.0.2.1 192.0.2.2 1 2\r\n${list}${host}\r\n`],
  ['nonsense', '\0\x01\x02\x03\r\n\r\n'],
  ['a method alone', 'GET\r\n\r\n'],
  ['white space alone', '   \r\n\r\n'],
  ['a line of white space before the headers', `${list} \r\n${host}\r\n`],
  ['a method in small letters', `get /api/work-items HTTP/1.1\r\n${host}\r\n`],
  ['a method with one capital', `Get /api/work-items HTTP/1.1\r\n${host}\r\n`],
  ['a method in quotes', `"GET" /api/work-items HTTP/1.1\r\n${host}\r\n`],
  ['a method with a comma', `GET, /api/work-items HTTP/1.1\r\n${host}\r\n`],
  ['a method with a tab', `GE\tT /api/work-items HTTP/1.1\r\n${host}\r\n`],
  ['a method of 100 KB', `${'A'.repeat(100_000)} /api/work-items HTTP/1.1\r\n${host}\r\n`],
  ['words in front of the request line', `Extra lineGET /api/work-items HTTP/1.1\r\n${host}\r\n`],
  ...['GET', 'PUT', 'DELETE'].map((method): [string, string] => [
    `the target * for ${method}`,
    `${method} * HTTP/1.1\r\n${host}\r\n`,
  ]),
  ...['\x01', '\x0b', '\x0c', '\x1f', '\x7f', '\x80', '\xff', '\xc3\xa9'].map((bytes): [string, string] => [
    `the bytes ${Buffer.from(bytes, 'latin1').toString('hex')} in the target`,
    `GET /api/work-items/5${bytes} HTTP/1.1\r\n${host}\r\n`,
  ]),
  ['a byte above ASCII in the query', `GET /api/work-items?q=\xc3\xa9 HTTP/1.1\r\n${host}\r\n`],
  ['an authority-form target for GET', `GET gateway.test:80 HTTP/1.1\r\n${host}\r\n`],
  ['an absolute-form target of another scheme', `GET ftp://a/api/work-items HTTP/1.1\r\n${host}\r\n`],
  ['an absolute-form target without a host', `GET http:/api/work-items HTTP/1.1\r\n${host}\r\n`],
  ['an absolute-form target with a backslash', `GET http://a\\b/api/work-items HTTP/1.1\r\n${host}\r\n`],
  ...['HTTP/1.9', 'HTTP/9.9', 'HTTP/2', 'HTTP/11', 'HTTP/-1.1', 'HTTP/1,1', 'HTTP/1.1x', 'HTTP/1.1;a', 'HTTP/ 1.1', 'Http/1.1', 'HTTPS/1.1'].map(
    (version): [string, string] => [`the version ${version}`, `GET /api/work-items ${version}\r\n${host}\r\n`],
  ),
  ['a bracket in a header name', get(`${host}X[]: 1`)],
  ['a brace in a header name', get(`${host}X{}: 1`)],
  ['an at sign in a header name', get(`${host}X@: 1`)],
  ['a vertical tab in a header value', get(`${host}X-Extra: a\x0bb`)],
  ['a header cut by CR Z', `${list}${host}\rZGET /evil: HTTP/1.1\r\n\r\n`],
]; // prettier-ignore

const chunks: [name: string, body: string][] = [
  ['a chunk size that is no number', 'zz\r\n{"a":1}\r\n0\r\n\r\n'],
  ['an empty chunk size', '\r\n{"a":1}\r\n0\r\n\r\n'],
  ['a chunk size with a prefix', '0x7\r\n{"a":1}\r\n0\r\n\r\n'],
  ['a chunk size with a plus sign', '+7\r\n{"a":1}\r\n0\r\n\r\n'],
  ['a chunk size with a minus sign', '-7\r\n{"a":1}\r\n0\r\n\r\n'],
  ['a chunk size with a space in front', ' 7\r\n{"a":1}\r\n0\r\n\r\n'],
  ['a chunk size with something behind', '7x\r\n{"a":1}\r\n0\r\n\r\n'],
  ['a chunk size with a separator', '0_7\r\n{"a":1}\r\n0\r\n\r\n'],
  ['a chunk size beyond every integer', 'fffffffffffffffff\r\n{"a":1}\r\n0\r\n\r\n'],
  ['a chunk size that wraps round at 64 bits', '10000000000000007\r\n{"a":1}\r\n0\r\n\r\n'],
  ['a chunk size line with a bare LF', '7\n{"a":1}\r\n0\r\n\r\n'],
  ['a chunk size line with a bare CR', '7\r{"a":1}\r\n0\r\n\r\n'],
  ['a chunk extension with a bare LF', '7;a\n{"a":1}\r\n0\r\n\r\n'],
  ['a chunk extension with a bare CR', '7;a\rb\r\n{"a":1}\r\n0\r\n\r\n'],
  ['a chunk extension with a NUL', '7;a\0\r\n{"a":1}\r\n0\r\n\r\n'],
  ['a request hidden in a chunk extension', `7;\n${smuggled}{"a":1}\r\n0\r\n\r\n`],
  ['no line end behind chunk data', '7\r\n{"a":1}0\r\n\r\n'],
  ['a bare LF behind chunk data', '7\r\n{"a":1}\n0\r\n\r\n'],
  ['a bare CR behind chunk data', '7\r\n{"a":1}\r0\r\n\r\n'],
  ['other bytes behind chunk data', '7\r\n{"a":1}XX0\r\n\r\n'],
  ['a chunk longer than its size', '6\r\n{"a":1}\r\n0\r\n\r\n'],
  ['a chunk shorter than its size', '8\r\n{"a":1}\r\n0\r\n\r\n'],
  ['a last chunk with something behind its size', '7\r\n{"a":1}\r\n0x\r\n\r\n'],
  ['a trailer without a colon', '7\r\n{"a":1}\r\n0\r\nX-Trailer\r\n\r\n'],
  ['a trailer with a space before the colon', '7\r\n{"a":1}\r\n0\r\nX-Trailer : 1\r\n\r\n'],
  ['a trailer with a NUL', '7\r\n{"a":1}\r\n0\r\nX-Trailer: \0\r\n\r\n'],
  ['a folded trailer', '7\r\n{"a":1}\r\n0\r\nX-Trailer: 1\r\n 2\r\n\r\n'],
  ['a trailer folded in front of the first', '7\r\n{"a":1}\r\n0\r\n X-Trailer: 1\r\n\r\n'],
  ['a trailer with a bare CR', '7\r\n{"a":1}\r\n0\r\nX-Trailer: a\rb\r\n\r\n'],
  ['a trailer with a bare LF', '7\r\n{"a":1}\r\n0\r\nX-Trailer: 1\n\r\n'],
  ['a last chunk with a prefix', '7\r\n{"a":1}\r\n0x0\r\n\r\n'],
  ['a last chunk with a minus sign', '7\r\n{"a":1}\r\n-0\r\n\r\n'],
  ['a last chunk with a space', '7\r\n{"a":1}\r\n0 \r\n\r\n'],
  ['a last chunk with a bare LF', '7\r\n{"a":1}\r\n0\n\r\n'],
  ['a bare LF at the end', '7\r\n{"a":1}\r\n0\r\n\n'],
  ['a semicolon without an extension', '7;\r\n{"a":1}\r\n0\r\n\r\n'],
  ['an extension that is no token', '7;bad[=x\r\n{"a":1}\r\n0\r\n\r\n'],
  ['an extension whose quotes stay open', '7;a="b\r\n{"a":1}\r\n0\r\n\r\n'],
  ['an extension with a bare LF in quotes', '7;a="b\nc"\r\n{"a":1}\r\n0\r\n\r\n'],
  ['an extension with a byte above ASCII', '7;\x80\r\n{"a":1}\r\n0\r\n\r\n'],
  ['extensions of 40 KB', `7;${'a'.repeat(40_000)}\r\n{"a":1}\r\n0\r\n\r\n`],
  ['a space behind a chunk size', '7 \r\n{"a":1}\r\n0\r\n\r\n'],
  ['a tab behind a chunk size', '7\t\r\n{"a":1}\r\n0\r\n\r\n'],
  ['a space before an extension', '7 ;a\r\n{"a":1}\r\n0\r\n\r\n'],
  ['a chunk size with a vertical tab', '7\x0b\r\n{"a":1}\r\n0\r\n\r\n'],
  ['a chunk size in quotes', '"7"\r\n{"a":1}\r\n0\r\n\r\n'],
  ['a fraction as chunk size', '7.0\r\n{"a":1}\r\n0\r\n\r\n'],
  ['a digit of another script as chunk size', '\xef\xbc\x97\r\n{"a":1}\r\n0\r\n\r\n'],
  ['CR CR LF behind a chunk size', '7\r\r\n{"a":1}\r\n0\r\n\r\n'],
  ['an empty line before a chunk size', '\r\n7\r\n{"a":1}\r\n0\r\n\r\n'],
];

/** 400 in JSON, the connection closed, and nothing of what was sent has become a backend call. */
async function assertRefused(target: Target, bytes: string): Promise<Reply> {
  return await target.withoutBackendCall(async () => {
    await using client = await target.connect();
    client.send(bytes);
    const reply = await client.reply();
    assertReply(reply, 400, badRequest);
    await client.closed(2000);
    assert.equal(client.unread.length, 0, 'nothing comes behind the 400');
    return reply;
  });
}

forEachTarget((target) => {
  for (const [kind, cases] of [
    ['Host', hosts],
    ['framing', framing],
    ['head', heads],
  ] as const) {
    for (const [name, bytes] of cases) {
      test(`${kind}: ${name} is 400 Bad request in JSON, the connection closed, no backend call [D27]`, async () => {
        await assertRefused(target(), bytes);
      });
    }
  }

  for (const bytes of [
    `GET  /api/work-items HTTP/1.1\r\n${host}\r\n`,
    `GET /api/work-items  HTTP/1.1\r\n${host}\r\n`,
  ]) {
    test(`head: two spaces in the request line are 400, ${JSON.stringify(bytes.slice(0, 32))} [D27]`, async () => {
      await assertRefused(target(), bytes);
    });
  }

  for (const [name, body] of chunks) {
    test(`chunks: ${name} is malformed HTTP, 400, not a body that is not JSON [D27]`, async () => {
      await assertRefused(target(), chunkedUpdate + body);
    });
  }

  for (const [name, bytes] of [
    ['a length', `${update}${host}Content-Length: 10\r\n\r\n{"a":1}`],
    ['chunks', `${chunkedUpdate}7\r\n{"a":1}\r\n`],
    ['a chunk', `${chunkedUpdate}7\r\n{"a"`],
    ['the head', `${update}${host}Content-Le`],
  ] as const) {
    test(`a body that ends before ${name} says so is never sent to the backend [D27]`, async () => {
      await target().withoutBackendCall(async () => {
        await using client = await target().connect();
        client.send(bytes);
        client.end();
        await client.closed();
      });
    });
  }

  test('what follows a malformed request on its connection is never served [D27]', async () => {
    for (const bytes of [get('Host: a\r\nHost: b'), put('Content-Length: +7'), chunkedUpdate + 'zz\r\n']) {
      await assertRefused(target(), bytes + smuggled);
    }
  });

  test('a request that is malformed is not served because another one goes before it: 200, then 400, then closed [D27]', async () => {
    await using client = await target().connect();
    client.send(`${list}${host}\r\n${get('Host: a\r\nHost: b')}${smuggled}`);
    assertReply(await client.reply(), 200, '[]');
    assertReply(await client.reply(), 400, badRequest);
    await client.closed();
    await target().settle();
    assert.ok(!target().backend.requests.some((call) => call.target.endsWith('666')));
  });

  for (const [name, bytes] of [
    ['one header', get(`${host}X-Extra: ${'x'.repeat(100_000)}`)],
    ['many headers', get(`${host}${'X-Extra: 1\r\n'.repeat(10_000)}X: 1`)],
    ['a path', `GET /api/work-items/${'1'.repeat(100_000)} HTTP/1.1\r\n${host}\r\n`],
    ['a header name', get(`${host}${'x'.repeat(100_000)}: 1`)],
    ['trailers', `${chunkedUpdate}7\r\n{"a":1}\r\n0\r\n${'X: 1\r\n'.repeat(10_000)}\r\n`],
  ] as const) {
    test(`a head too large because of ${name} is 431 in JSON, the connection closed [D27]`, async () => {
      await target().withoutBackendCall(async () => {
        await using client = await target().connect();
        client.send(bytes);
        assertReply(await client.reply(), 431, headersTooLarge);
        await client.closed();
      });
    });
  }

  test('a second Host hidden behind more headers than a parser keeps is refused [D27]', async () => {
    await target().withoutBackendCall(async () => {
      await using client = await target().connect();
      client.send(get(`${host}${'a:\r\n'.repeat(2500)}Host: b`));
      const { status } = await client.reply();
      assert.ok(status === 400 || status === 431, `status ${status}`);
      await client.closed();
    });
  });

  test('transfer-encoding hidden behind more headers than a parser keeps is no way to smuggle [D27]', async () => {
    await target().withoutBackendCall(async () => {
      await using client = await target().connect();
      client.send(
        `${update}${host}Content-Length: 7\r\n${'a:\r\n'.repeat(2500)}Transfer-Encoding: chunked\r\n\r\n{"a":1}`,
      );
      const { status } = await client.reply();
      assert.ok(status === 400 || status === 431, `status ${status}`);
      await client.closed();
    });
  });

  for (const name of [
    'a:65535',
    'a',
    'localhost',
    'localhost:3000',
    '127.0.0.1:80',
    '[::1]:3000',
    '[2001:db8::1]',
    'A.b-c_d.example',
    'xn--bcher-kva.example',
    'a.example.:443',
  ]) {
    // prettier-ignore
    test(`Host: ${name} is valid [D27]`, async () => {
      assertReply(await target().call('GET', '/api/work-items', { headers: [['Host', name]] }), 200, '[]');
    });
  }

  for (const [name, bytes] of [
    ['empty lines in front', `\r\n\r\n${list}${host}\r\n`],
    ['header names in any case', `${list}hOsT: a\r\n\r\n`],
    ['no space behind a colon', `${list}Host:a\r\n\r\n`],
    ['spaces and tabs around a value', `${list}Host: \t a \t \r\n\r\n`],
    ['an empty value', `${list}${host}X-Extra:\r\n\r\n`],
    ['an empty Host', `${list}Host:\r\n\r\n`],
    ['headers named by Connection', `${list}${host}Connection: Host, X-Extra\r\nX-Extra: 1\r\n\r\n`],
    [
      'headers for other software',
      `${list}${host}X-HTTP-Method-Override: DELETE\r\nX-Original-URL: /x\r\n\r\n`,
    ],
    ['a body where none is taken', `${list}${host}Content-Length: ${smuggled.length}\r\n\r\n${smuggled}`],
    ['a thousand empty lines in front', `${'\r\n'.repeat(1000)}${list}${host}\r\n`],
    ['bytes above ASCII in a value', `${list}${host}X-Extra: \xe9\xff\r\n\r\n`],
    ['HTTP/1.0 with a Host', `GET /api/work-items HTTP/1.0\r\n${host}\r\n`],
    ['HTTP/1.0 without a Host', 'GET /api/work-items HTTP/1.0\r\n\r\n'],
    ['an offer to upgrade', `${list}${host}Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n`],
    [
      'an offer of HTTP/2',
      `${list}${host}Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQCAAAAAAIAAAAA\r\n\r\n`,
    ],
    [
      'an absolute-form target',
      'GET http://gateway.test/api/work-items HTTP/1.1\r\nHost: gateway.test\r\n\r\n',
    ],
    [
      'an absolute-form target with a port',
      'GET http://gateway.test:80/api/work-items HTTP/1.1\r\nHost: gateway.test:80\r\n\r\n',
    ],
    [
      'an absolute-form target of another host',
      'GET http://elsewhere.test/api/work-items HTTP/1.1\r\nHost: gateway.test\r\n\r\n',
    ],
    [
      'an absolute-form target with a query',
      'GET http://gateway.test/api/work-items?x=/y HTTP/1.1\r\nHost: gateway.test\r\n\r\n',
    ],
    [
      'an absolute-form target, its scheme in capitals',
      'GET HTTP://GATEWAY.TEST/api/work-items HTTP/1.1\r\nHost: gateway.test\r\n\r\n',
    ],
  ] as const) {
    // prettier-ignore
    test(`a well-formed request is served: ${name} [D27]`, async () => {
      await using client = await target().connect();
      client.send(bytes);
      assertReply(await client.reply(), 200, '[]');
      await target().settle();
      const calls = target().backend.requests.map((call) => `${call.method} ${call.target}`);
      assert.deepEqual(calls, ['GET /api/WorkItem', 'GET /api/WorkItem'], 'one call, and the known one behind it');
    });
  }

  for (const [name, body] of [
    ['capitals and zeros in a size', '0007\r\n{"a":1}\r\n000\r\n\r\n'],
    ['extensions', '7;a;b=c;d="e;f"\r\n{"a":1}\r\n0;last\r\n\r\n'],
    ['trailers', '7\r\n{"a":1}\r\n0\r\nX-Trailer: 1\r\nHost: b\r\n\r\n'],
    [
      'single bytes',
      Array.from('{"a":1}', (character) => chunk(character).toString()).join('') + '0\r\n\r\n',
    ],
  ] as const) {
    test(`a well-formed chunked body is served: ${name} [D27]`, async () => {
      await using client = await target().connect();
      client.send(chunkedUpdate + body);
      assertReply(await client.reply(), 200, succeeded);
      assert.equal((await target().backend.nextRequest()).body.toString(), '{"a":1}');
      assertReply(await client.call('GET', '/api/work-items'), 200, '[]');
    });
  }

  test('an absolute-form target has the id of its path [D27]', async () => {
    await using client = await target().connect();
    client.send(
      `PUT http://gateway.test/api/work-items/%31%32?x HTTP/1.1\r\n${host}Content-Length: 2\r\n\r\n{}`,
    );
    assertReply(await client.reply(), 200, succeeded);
    assert.equal((await target().backend.nextRequest()).target, '/api/WorkItem/12');
    client.send(`GET http://gateway.test/api/work-items/abc HTTP/1.1\r\n${host}\r\n`);
    assertReply(await client.reply(), 400, invalidId);
  });

  test('CONNECT is 405 in JSON and opens no tunnel [D27]', async () => {
    await target().withoutBackendCall(async () => {
      for (const authority of ['gateway.test:80', `127.0.0.1:${target().backend.port}`, 'gateway.test']) {
        await using client = await target().connect();
        client.send(`CONNECT ${authority} HTTP/1.1\r\nHost: gateway.test\r\n\r\n${smuggled}`);
        const reply = await client.reply();
        assert.equal(reply.status, 405);
        assert.equal(reply.text, methodNotAllowed);
        await client.closed();
        assert.equal(client.unread.length, 0);
      }
    });
  });

  for (const expectation of ['x', '200-ok', '100-continue, x', '100']) {
    test(`Expect: ${expectation} is 417 in JSON and no backend call [D27]`, async () => {
      await target().withoutBackendCall(async () => {
        const reply = await target().call('PUT', '/api/work-items/5', {
          headers: [['Expect', expectation]],
          body: '{}',
        });
        assert.equal(reply.status, 417);
        const { error, ...others } = JSON.parse(reply.text) as Record<string, unknown>;
        assert.equal(typeof error, 'string');
        assert.deepEqual(others, {});
        assertReply(reply, 417, JSON.stringify({ error }));
      });
    });
  }

  for (const [line, status, body] of [
    ['OPTIONS *', 404, '{"error":"Not found"}'],
    ['GET *', 400, badRequest],
    ['PUT *', 400, badRequest],
    ['GET /api/work-items#', 400, badRequest],
    ['DELETE /api/work-items/5#?', 400, badRequest],
  ] as const) {
    test(`"${line}" is ${status} and no backend call: an asterisk is for OPTIONS, a fragment for nobody [D27]`, async () => {
      await target().withoutBackendCall(async () => {
        await using client = await target().connect();
        client.send(`${line} HTTP/1.1\r\n${host}\r\n`);
        assertReply(await client.reply(), status, body);
      });
    });
  }

  for (const expectation of ['100-continue', '100-Continue']) {
    test(`Expect: ${expectation} is answered by 100 Continue before the body is sent [D27]`, async () => {
      await using client = await target().connect();
      client.send(`${update}${host}Content-Length: 2\r\nExpect: ${expectation}\r\n\r\n`);
      assert.equal((await client.reply()).status, 100);
      client.send('{}');
      assertReply(await client.reply(), 200, succeeded);
      const call = await target().backend.nextRequest();
      assert.equal(call.header('expect'), undefined);
      client.send(`${list}${host}\r\n`);
      assertReply(await client.reply(), 200, '[]');
    });
  }

  test('Expect: 100-continue of a client of HTTP/1.0, which knows no 100, is ignored [D27]', async () => {
    await using client = await target().connect();
    client.send(
      `PUT /api/work-items/5 HTTP/1.0\r\n${host}Content-Length: 2\r\nExpect: 100-continue\r\n\r\n{}`,
    );
    assertReply(await client.reply(), 200, succeeded);
    await client.closed();
  });

  for (const [before, status, body] of [
    [`${update}${host}Content-Length: 2\r\n\r\n{}`, 200, succeeded],
    [`${list}${host}\r\n`, 200, '[]'],
    [`GET /nope HTTP/1.1\r\n${host}\r\n`, 404, '{"error":"Not found"}'],
  ] as const) {
    for (const garbage of ['xx', 'BAD\r\n\r\n', '\0\x01\x02\r\n\r\n', 'B'.repeat(20_000)]) {
      test(`${JSON.stringify(garbage.slice(0, 10))} behind ${before.split(' HTTP')[0]} in one packet is 400 [D27]`, async () => {
        await using client = await target().connect();
        client.send(before + garbage);
        assertReply(await client.reply(), status, body);
        assertReply(await client.reply(), 400, badRequest);
        await client.closed();
      });
    }
    for (const method of ['MISSING', 'X', 'POS', 'DELET', 'GETS']) {
      test(`the unknown method ${method} behind ${before.split(' HTTP')[0]} in one packet is 405 [D6]`, async () => {
        await using client = await target().connect();
        client.send(`${before}${method} /api/work-items HTTP/1.1\r\n${host}\r\n`);
        assertReply(await client.reply(), status, body);
        const reply = await client.reply();
        assert.equal(reply.status, 405);
        assert.equal(reply.header('allow'), 'GET, HEAD, POST, OPTIONS');
      });
    }
  }

  for (const [requestTarget, status] of [
    ['http://x/api/work-items', 405],
    ['https://x/api/work-items', 405],
    ['http://x', 404],
    ['http://x/nope', 404],
    ['ftp://x/api/work-items', 400],
    ['http://x/api/work-items#a', 400],
  ] as const) {
    test(`MISSING ${requestTarget} is ${status} [D6, D27]`, async () => {
      await using client = await target().connect();
      client.send(`MISSING ${requestTarget} HTTP/1.1\r\n${host}\r\n`);
      assert.equal((await client.reply()).status, status);
      if (status === 400) {
        await client.closed();
      } else {
        assertReply(await client.call('GET', '/api/work-items'), 200, '[]');
      }
    });
  }

  for (const requestTarget of ['http://x', 'http://x?/api/work-items', 'http://x/']) {
    test(`GET ${requestTarget} has no operation: 404 [D5, D27]`, async () => {
      assertReply(await target().call('GET', requestTarget), 404, '{"error":"Not found"}');
    });
  }

  test('a body that was sent without waiting for 100 Continue is served too [D27]', async () => {
    await using client = await target().connect();
    client.send(`${update}${host}Content-Length: 2\r\nExpect: 100-continue\r\n\r\n{}`);
    const first = await client.reply();
    assertReply(first.status === 100 ? await client.reply() : first, 200, succeeded);
  });

  test('Connection: close is heeded: what follows is not served [D27]', async () => {
    await using client = await target().connect();
    client.send(`${list}${host}Connection: close\r\n\r\n${smuggled}`);
    assertReply(await client.reply(), 200, '[]');
    await client.closed();
    await target().settle();
    assert.ok(!target().backend.requests.some((call) => call.target.endsWith('666')));
  });
});

describe('pipelining', () => {
  forEachTarget((target) => {
    /** Enough calls from elsewhere that anything the gateway was going to send has been sent. */
    async function letOthersPass(): Promise<void> {
      for (let count = 0; count < 5; count += 1) await target().settle();
    }

    test('pipelined requests are answered in order, however slow the first answer is [D27]', async () => {
      const gate = createGate();
      target().backend.answers(async (exchange) => {
        if (exchange.request.target.endsWith('/1')) await gate.opened;
        await answer(JSON.stringify(exchange.request.target))(exchange);
      });
      await using client = await target().connect();
      client.send([1, 2, 3].map((id) => requestBytes('GET', `/api/work-items/${id}`).toString()).join(''));
      await target().backend.nextRequest();
      await letOthersPass();
      assert.equal(client.bytesReceived, 0, 'no reply overtakes the first');
      gate.open();
      for (const id of [1, 2, 3]) assertReply(await client.reply(), 200, `"/api/WorkItem/${id}"`);
    });

    test('100 pipelined requests of every kind get 100 replies in order [D27]', async () => {
      target().backend.answers((exchange) => answer(JSON.stringify(exchange.request.target))(exchange));
      await using client = await target().connect();
      const kinds = [
        [requestBytes('GET', '/api/work-items/1'), 200, '"/api/WorkItem/1"'],
        [requestBytes('PUT', '/api/work-items/2', { body: '{}' }), 200, succeeded],
        [requestBytes('GET', '/api/work-items/x'), 400, invalidId],
        [requestBytes('POST', '/api/work-items', { body: '[1]' }), 201, '"/api/WorkItem"'],
        [requestBytes('PUT', '/api/work-items/3', { body: '{' }), 500, operation(4).failure],
        [requestBytes('DELETE', '/api/work-items/4'), 200, succeeded],
      ] as const;
      const wanted = Array.from({ length: 100 }, (_, index) => kinds[index % kinds.length] ?? kinds[0]);
      client.send(Buffer.concat(wanted.map(([bytes]) => bytes)));
      for (const [, status, body] of wanted) assertReply(await client.reply(), status, body);
    });

    for (const [name, write, reply] of [
      ['PUT', requestBytes('PUT', '/api/work-items/1', { body: '{}' }), [200, succeeded]],
      ['POST', requestBytes('POST', '/api/work-items', { body: '{}' }), [201, '"/api/WorkItem"']],
      ['DELETE', requestBytes('DELETE', '/api/work-items/1'), [200, succeeded]],
    ] as const) {
      test(`a ${name} is finished before the next request of its connection starts [D27]`, async () => {
        const gate = createGate();
        target().backend.answers(async (exchange) => {
          if (exchange.request.method === name && !exchange.request.target.endsWith('/2')) await gate.opened;
          await answer(JSON.stringify(exchange.request.target))(exchange);
        });
        await using client = await target().connect();
        const next = [requestBytes('GET', '/api/work-items/2'), requestBytes('DELETE', '/api/work-items/2')];
        client.send(Buffer.concat([write, ...next]));
        await target().backend.nextRequest();
        await letOthersPass();
        const started = target().backend.requests.filter((call) => call.target.endsWith('/2'));
        assert.deepEqual(started, [], 'nothing behind the write has been sent');
        gate.open();
        const [status, body] = reply;
        assertReply(await client.reply(), status, body);
        assertReply(await client.reply(), 200, '"/api/WorkItem/2"');
        assertReply(await client.reply(), 200, succeeded);
        const order = target().backend.requests.filter((call) => call.target.endsWith('/2'));
        assert.deepEqual(order.map((call) => call.method), ['GET', 'DELETE']); // prettier-ignore
      });
    }
  });
});
