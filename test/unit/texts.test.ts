// Texts of the kernel: random digits, paths and subjects in the log, and the causes of connection errors
// [D25, D26, D49, D52, D62].

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { describeError, reasonOfError } from '../../packages/core/backend/describe-error.ts';
import { describePath, describeSubject } from '../../packages/core/call/request-context.ts';
import { shortTextOf } from '../../packages/core/reasons.ts';
import { RandomText } from '../../packages/core/text/random-text.ts';

test('random texts are distinct and have the given form; digits are even at each place, and not reused', () => {
  const [draws, form] = [20_000, 'a-xxxxxxxx-yx-xxxxxxxx-02'];
  const sources = [new RandomText(form), new RandomText(form)];
  const texts = Array.from({ length: draws }, (_, index) => sources[index % 2]?.draw() ?? '');
  assert.equal(new Set(texts).size, draws);
  for (const text of texts) assert.match(text, /^a-[0-9a-f]{8}-[89ab][0-9a-f]-[0-9a-f]{8}-02$/);
  for (const [place, of] of Array.from(form).entries()) {
    const values = of === 'x' ? 16 : of === 'y' ? 4 : 1;
    const counts = Map.groupBy(texts, (text) => text[place]);
    assert.equal(counts.size, values, `place ${place}`);
    // Tolerates six standard deviations of an even distribution.
    const tolerance = 6 * Math.sqrt((draws * (1 - 1 / values)) / values);
    for (const [digit, { length }] of counts) {
      assert.ok(Math.abs(length - draws / values) <= tolerance, `place ${place}: ${digit} came ${length} times`);
    }
  }
  // Two pairs of random digits are equal once in 256 times: here, within a text and with the last text of its source.
  const shared = texts.filter((text, index) => text.slice(2, 4) === texts[index - 2]?.slice(20, 22)).length;
  const repeated = texts.filter((text) => text.slice(2, 4) === text.slice(14, 16)).length;
  assert.ok(shared + repeated < draws / 50, `${shared}, ${repeated}`);
});

const long = `/${'a'.repeat(255)}`;
const paths: [target: string, path: string][] = [
  ['/', '/'], ['/api/work-items/12', '/api/work-items/12'], ['/api/work-items/%31%2F', '/api/work-items/%31%2F'],
  ['/api/work-items?token=secret', '/api/work-items'], ['/api/work-items?', '/api/work-items'],
  ['/a#token=secret', '/a'], ['/a#b?c', '/a'], ['/a?b#c', '/a'], ['//a//b/', '//a//b/'],
  ['/a"b\\c', '/a"b\\c'], ['/a b', '/a b'], ['*', '*'],
  ['http://user:secret@host:80/api/work-items?x', '/api/work-items'], ['HTTPS://user:secret@host/a', '/a'],
  ['ftp://user:secret@host/a', '/a'], ['http://user:secret@host', ''], ['http://user:secret@host?/a', ''],
  ['user:secret@host', ''], ['mailto:secret', ''], ['', ''], ['/caf\u00c3\u00a9', String.raw`/caf\u00c3\u00a9`],
  ['/\u009b\u0000\t\u007f\n', String.raw`/\u009b\u0000\u0009\u007f\u000a`], ['/\u202e', String.raw`/\u202e`],
  [long, long], [`${long}b`, long], [`${long}?secret`, long], [`http://host${long}b`, long],
]; // prettier-ignore
test('a path is shown as sent, without query, in at most 256 printable ASCII characters [D52]', () => {
  for (const [target, path] of paths) assert.equal(describePath(target), path);
  for (let length = 0; length < 600; length += 1) {
    for (const fill of ['a', '\u00e9', '\u0000']) {
      const path = describePath(`/${fill.repeat(length)}`);
      assert.match(path, /^\/[ -~]{0,255}$/);
      assert.equal(path.length, Math.min(256, 1 + length * (fill === 'a' ? 1 : 6)));
    }
  }
});

test("a token's subject is cut, and its control characters are escaped [D62]", () => {
  for (const [subject, shown] of [
    ['', ''],
    ['Zo\u00eb "1"', 'Zo\u00eb "1"'],
    ['\u001b[31m\n\u2028\u202e', String.raw`\u001b[31m\u000a\u2028\u202e`],
    ['x'.repeat(1_000), 'x'.repeat(256)],
    ['\n'.repeat(256), String.raw`\u000a`.repeat(43).slice(0, 256)],
  ] as const) {
    assert.equal(describeSubject(subject), shown);
  }
});

test('a connection error has a reason by its code; several errors have a reason if they agree or lack a descriptor [D26]', () => {
  const errorOf = (code: string, more = {}) => Object.assign(new Error(`connect ${code}`), { code }, more);
  const several = (...codes: string[]) =>
    new AggregateError(
      codes.map((code) => errorOf(code)),
      '',
    );
  for (const [error, reason] of [
    [errorOf('ECONNREFUSED'), 'connection-refused'],
    [several('ECONNREFUSED', 'ECONNREFUSED'), 'connection-refused'],
    [several('ECONNREFUSED', 'ENETUNREACH'), 'connection-failed'],
    [several('ECONNREFUSED', 'EWHAT'), 'connection-failed'],
    [several('ECONNREFUSED', 'ENFILE'), 'no-descriptor'],
    [errorOf('EMFILE'), 'no-descriptor'],
    [errorOf('ECONNRESET'), 'connection-reset'],
    // Node names the host of a reset in the TLS handshake.
    [errorOf('ECONNRESET', { host: 'backend.example' }), 'tls'],
    [errorOf('ENOTFOUND'), 'unknown-host-name'],
    [errorOf('CERT_HAS_EXPIRED'), 'certificate-expired'],
    ...[
      'ERR_TLS_CERT_ALTNAME_INVALID',
      'ERR_SSL_WRONG_VERSION_NUMBER',
      'EPROTO',
      'UNABLE_TO_VERIFY_LEAF_SIGNATURE',
    ].map((code) => [errorOf(code), 'tls'] as const),
    ...['SELF_SIGNED_CERT_IN_CHAIN', 'HOSTNAME_MISMATCH'].map((code) => [errorOf(code), 'tls'] as const),
    ...['EWHAT', 'certificate', 'constructor'].map((code) => [errorOf(code), 'connection-failed'] as const),
    [new Error('the answer ended early'), 'connection-failed'],
  ] as const) {
    assert.equal(reasonOfError(error), reason, String(error));
    const isShort = reason === 'connection-refused';
    if (isShort || reason === 'connection-failed') {
      assert.equal(shortTextOf(reason, undefined), isShort ? 'connection refused' : undefined);
    }
  }
  // The connection had no local address.
  const error = Object.assign(new Error('connect EMFILE 127.0.0.1:18002 - Local (undefined:undefined)'), {
    code: 'EMFILE',
  });
  assert.equal(describeError(error), 'connect EMFILE 127.0.0.1:18002');
});
