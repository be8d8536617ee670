// What is malformed in a head over HTTP/2 is refused here too, where another version of the library lets it through.

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { readHead } from '../../packages/core/hosts/http2/http2-head.ts';

const whole = {
  ':method': 'GET',
  ':scheme': 'https',
  ':path': '/api/work-items',
  ':authority': 'items.test',
};

function reasonOf(pseudo: Record<string, string>, ...fields: string[]): string | undefined {
  const head = readHead([...Object.entries(pseudo).flat(), ...fields], true, 16_384);
  return 'reason' in head ? head.reason : undefined;
}

describe('a malformed head over HTTP/2 [RFC 9113, 8]', () => {
  test('one that is whole is none', () => {
    assert.equal(reasonOf(whole, 'host', 'items.test', 'accept', '*/*'), undefined);
  });

  for (const [pseudo, fields, reason] of [
    [{ ...whole, ':odd': '1' }, [], 'a pseudo-header field that is none'],
    [whole, ['host', 'items.test', 'host', 'items.test'], 'two host fields'],
    [whole, ['host', 'other.test'], 'a host that is another than the authority'],
    [whole, ['connection', 'close'], 'a field of a connection'],
    [whole, ['keep-alive', 'timeout=1'], 'a field of a connection'],
    [whole, ['transfer-encoding', 'chunked'], 'a field of a connection'],
    [whole, ['upgrade', 'h2c'], 'a field of a connection'],
    [{ ...whole, ':path': 'api/work-items' }, [], 'a target that is none'],
    [{ ...whole, ':path': '/a b' }, [], 'a target that is none'],
    [{ ...whole, ':method': 'G T' }, [], 'a method that is none'],
    [{ ...whole, ':method': '' }, [], 'a method that is none'],
    [{ ...whole, ':scheme': 'ftp' }, [], 'a scheme that is neither http nor https'],
  ] as const) {
    test(`${JSON.stringify([...Object.values(pseudo), ...fields])}: ${reason}`, () => {
      assert.equal(reasonOf(pseudo, ...fields), reason);
    });
  }
});
