// `readHead` refuses malformed HTTP/2 heads itself, because other versions of Node's library may accept them.

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { methodBytesMax } from '../../packages/core/http1/grammar.ts';
import { fieldsMax, readHead } from '../../packages/core/hosts/http2/http2-head.ts';

const whole = { ':method': 'GET', ':scheme': 'https', ':path': '/api/work-items', ':authority': 'items.test' };

function reasonOf(pseudo: Record<string, string>, ...fields: string[]): string | undefined {
  const head = readHead([...Object.entries(pseudo).flat(), ...fields], true, 16_384);
  return 'reason' in head ? head.reason : undefined;
}

describe('a malformed head over HTTP/2 [RFC 9113, 8]', () => {
  test('a valid head is accepted', () =>
    assert.equal(reasonOf(whole, 'host', 'items.test', 'accept', '*/*'), undefined));

  for (const [pseudo, fields, reason] of [
    [{ ...whole, ':odd': '1' }, [], 'an unknown pseudo-header field'],
    [whole, ['host', 'items.test', 'host', 'items.test'], 'two host fields'],
    [whole, ['host', 'other.test'], 'a host that differs from the authority'],
    [whole, ['connection', 'close'], 'a connection-specific field'],
    [whole, ['keep-alive', 'timeout=1'], 'a connection-specific field'],
    [whole, ['transfer-encoding', 'chunked'], 'a connection-specific field'],
    [whole, ['upgrade', 'h2c'], 'a connection-specific field'],
    [{ ...whole, ':path': 'api/work-items' }, [], 'an invalid target'],
    [{ ...whole, ':path': '/a b' }, [], 'an invalid target'],
    [{ ...whole, ':method': 'G T' }, [], 'an invalid method'],
    [{ ...whole, ':method': '' }, [], 'an invalid method'],
    [{ ...whole, ':scheme': 'ftp' }, [], 'a scheme other than http and https'],
  ] as const) {
    test(`${JSON.stringify([...Object.values(pseudo), ...fields])}: ${reason}`, () =>
      assert.equal(reasonOf(pseudo, ...fields), reason));
  }
});

describe('an accepted head over HTTP/2', () => {
  const take = (fields: readonly string[], endsThere = true) => readHead(fields, endsThere, 16_384);
  const withoutAuthority = { ':method': 'GET', ':scheme': 'https', ':path': '/api/work-items' };

  test('the host is the authority, or the Host field if there is no authority', () => {
    for (const [pseudo, fields, host] of [
      [whole, [], 'items.test'],
      [whole, ['host', 'ITEMS.test'], 'items.test'],
      [withoutAuthority, ['host', 'items.test'], 'items.test'],
    ] as const) {
      const head = take([...Object.entries(pseudo).flat(), ...fields]);
      assert.ok('fields' in head);
      assert.deepEqual(head.fields, ['host', host]);
      assert.deepEqual([head.method, head.target, head.version], ['GET', '/api/work-items', '2']);
    }
    assert.ok('reason' in take(Object.entries(withoutAuthority).flat()));
  });

  test('the target of OPTIONS may be *, the target of CONNECT is its authority, and the case of a scheme is ignored', () => {
    for (const [pseudo, target] of [
      [{ ...whole, ':method': 'OPTIONS', ':path': '*' }, '*'],
      [{ ':method': 'CONNECT', ':authority': 'items.test:443' }, 'items.test:443'],
      [{ ...whole, ':scheme': 'HTTP' }, '/api/work-items'],
    ] as const) {
      const head = take(Object.entries(pseudo).flat());
      assert.equal('target' in head ? head.target : head.reason, target);
    }
  });

  test('the body length is 0 only if the stream ends with the head; otherwise the body length is the content-length if that is above 0, or else "chunked"', () => {
    for (const [fields, endsThere, length] of [
      [[], true, 0],
      [['content-length', '5'], true, 0],
      [['content-length', '5'], false, 5],
      [['content-length', '0'], false, 'chunked'],
      [[], false, 'chunked'],
    ] as const) {
      const head = take([...Object.entries(whole).flat(), ...fields], endsThere);
      assert.equal('bodyLength' in head ? head.bodyLength : head.reason, length);
    }
  });

  test('a method may have as many bytes as in HTTP/1.1, but not one more', () => {
    for (const [length, isTaken] of [
      [methodBytesMax, true],
      [methodBytesMax + 1, false],
    ] as const) {
      const head = take(Object.entries({ ...whole, ':method': 'M'.repeat(length) }).flat());
      assert.equal('target' in head, isTaken);
    }
  });

  test('a head that exceeds a limit by one field or one byte is too large (431)', () => {
    const pseudo = Object.entries(whole).flat();
    const small = Array.from({ length: fieldsMax - 4 }, () => ['x', '']).flat();
    const large = { kind: 'head-too-large', reason: `a head of more than ${fieldsMax} fields` };
    assert.ok('target' in take([...pseudo, ...small]));
    assert.deepEqual(take([...pseudo, ...small, 'x', '']), large);
    // Four extra bytes are counted for each field: the colon, space, CR and LF that it has in HTTP/1.1.
    const bytes = pseudo.join('').length + 4 * 4;
    assert.ok('target' in readHead(pseudo, true, bytes));
    assert.deepEqual(readHead(pseudo, true, bytes - 1), {
      kind: 'head-too-large',
      reason: `a head of more than ${bytes - 1} bytes`,
    });
  });
});
