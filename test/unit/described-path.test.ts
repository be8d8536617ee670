// The path of a request as the log and the dashboard show it: as sent, without query, escaped [D52].

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { describePath, describeSubject } from '../../packages/core/call/request-context.ts';

const long = `/${'a'.repeat(255)}`;
const cases: [target: string, path: string][] = [
  ['/', '/'], ['/api/work-items/12', '/api/work-items/12'],
  ['/api/work-items/%31%2F', '/api/work-items/%31%2F'],
  ['/api/work-items?token=secret', '/api/work-items'], ['/api/work-items?', '/api/work-items'],
  ['/a#token=secret', '/a'], ['/a#b?c', '/a'], ['/a?b#c', '/a'], ['//a//b/', '//a//b/'],
  ['/a"b\\c', '/a"b\\c'], ['/a b', '/a b'], ['*', '*'],
  ['http://user:secret@host:80/api/work-items?x', '/api/work-items'], ['HTTPS://user:secret@host/a', '/a'],
  ['ftp://user:secret@host/a', '/a'], ['http://user:secret@host', ''], ['http://user:secret@host?/a', ''],
  ['user:secret@host', ''], ['mailto:secret', ''], ['', ''],
  ['/caf\u00c3\u00a9', String.raw`/caf\u00c3\u00a9`],
  ['/\u009b\u0000\t\u007f\n', String.raw`/\u009b\u0000\u0009\u007f\u000a`],
  ['/\u202e', String.raw`/\u202e`], [long, long], [`${long}b`, long], [`${long}?secret`, long],
  [`http://host${long}b`, long],
]; // prettier-ignore
for (const [target, path] of cases) {
  test(`${JSON.stringify(target.slice(0, 60))} (${target.length}) is shown as ${JSON.stringify(path.slice(0, 60))} [D52]`, () =>
    assert.equal(describePath(target), path));
}

test('a path is at most 256 printable ASCII characters [D52]', () => {
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
