// `readHead` refuses the HTTP/2 heads that Node's library accepts. test/transport/http2.test.ts has those that it refuses.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { methodBytesMax } from '../../packages/core/http1/grammar.ts';
import { fieldsMax, readHead } from '../../packages/core/hosts/http2/http2-head.ts';

const withoutAuthority = { ':method': 'GET', ':scheme': 'https', ':path': '/api/work-items' };
const whole = { ...withoutAuthority, ':authority': 'items.test' };

function read(pseudo: Record<string, string>, fields: readonly string[], endsThere = true, bytesMax = 16_384) {
  return readHead([...Object.entries(pseudo).flat(), ...fields], endsThere, bytesMax);
}

test('a malformed head is refused with a reason [RFC 9113, 8]', () => {
  const small = Array.from({ length: fieldsMax - 4 }, () => ['x', '']).flat();
  for (const [pseudo, fields, reason] of [
    [whole, ['host', 'items.test', 'accept', '*/*'], undefined],
    [whole, ['host', 'other.test'], 'a host that differs from the authority'],
    [withoutAuthority, [], 'no host'],
    [{ ...whole, ':path': 'api/work-items' }, [], 'an invalid target'],
    [{ ...whole, ':path': '/a b' }, [], 'an invalid target'],
    [{ ...whole, ':method': 'G T' }, [], 'an invalid method'],
    [{ ...whole, ':method': 'M'.repeat(methodBytesMax) }, [], undefined],
    [{ ...whole, ':method': 'M'.repeat(methodBytesMax + 1) }, [], 'an invalid method'],
    [{ ...whole, ':scheme': 'ftp' }, [], 'a scheme other than http and https'],
    [whole, small, undefined],
    [whole, [...small, 'x', ''], `a head of more than ${fieldsMax} fields`],
  ] as const) {
    const head = read(pseudo, fields);
    assert.equal('reason' in head ? head.reason : undefined, reason, JSON.stringify([pseudo, fields]).slice(0, 200));
  }
  // For each field four more bytes count, as in HTTP/1.1. A larger head gets 431.
  const bytes = Object.entries(whole).flat().join('').length + 4 * 4;
  assert.ok('target' in read(whole, [], true, bytes));
  const reason = `a head of more than ${bytes - 1} bytes`;
  assert.deepEqual(read(whole, [], true, bytes - 1), { kind: 'head-too-large', reason });
});

test('an accepted head has host, target and the length of the body [RFC 9113, 8]', () => {
  for (const [what, pseudo, fields, endsThere, expected] of [
    ['host is the authority', whole, [], true, { fields: ['host', 'items.test'], version: '2' }],
    ['host is the authority as it is written there', whole, ['host', 'ITEMS.test'], true, { fields: ['host', 'items.test'] }],
    ['host is the Host field without an authority', withoutAuthority, ['host', 'a.test'], true, { fields: ['host', 'a.test'] }],
    ['target of OPTIONS may be *', { ...whole, ':method': 'OPTIONS', ':path': '*' }, [], true, { target: '*' }],
    ['target of CONNECT is its authority', { ':method': 'CONNECT', ':authority': 'a.test:443' }, [], true, { target: 'a.test:443' }],
    ['scheme may be in capitals', { ...whole, ':scheme': 'HTTP' }, [], true, { method: 'GET', target: '/api/work-items' }],
    ['body length is 0 if the stream ends', whole, ['content-length', '5'], true, { bodyLength: 0 }],
    ['body length is the content-length if the stream goes on', whole, ['content-length', '5'], false, { bodyLength: 5 }],
    ['body length is unknown for a content-length of 0', whole, ['content-length', '0'], false, { bodyLength: 'chunked' }],
    ['body length is unknown without a content-length', whole, [], false, { bodyLength: 'chunked' }],
  ] as const) {
    assert.partialDeepStrictEqual(read(pseudo, fields, endsThere), expected, what);
  } // prettier-ignore
});
