// The notation of a rate, and its headers [D46].

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { parseRate, rateHeaders } from '../../packages/core/guards/options/rate.ts';

test('a rate is a number of requests in a window of seconds, minutes or hours', () => {
  const rates = [
    ['100/60s', 100, 60_000], ['1/1s', 1, 1_000], ['10/1m', 10, 60_000], ['250/5m', 250, 300_000],
    ['1000/1h', 1_000, 3_600_000], ['1000000/24h', 1_000_000, 86_400_000],
    ['007/086400s', undefined, undefined], ['0100/01h', 100, 3_600_000],
  ] as const; // prettier-ignore
  for (const [text, limit, windowMs] of rates) {
    assert.deepEqual(parseRate(text), limit === undefined ? undefined : { limit, windowMs }, text);
  }
});

test('all other texts are invalid', () => {
  for (const text of [
    '', '100', '100/', '/60s', '100/s', '100/60', '100/60S', '100/60ms', '100/1d', '0/60s', '00/1s', '1/0s', '1/0h',
    '1000001/1s', '10000000/1s', '1/86401s', '1/1441m', '1/25h', '-1/1s', '+1/1s', '1.5/1s', '1/1.5s', '1e3/1s',
    ' 1/1s', '1/1s ', '1 / 1s', '1/1s,2/1m', '1/1s\n', '٣/1s', '0x1/1s', '1//1s',
  ]) {
    assert.equal(parseRate(text), undefined, JSON.stringify(text));
  } // prettier-ignore
});

test('the headers are exactly the structured fields of the IETF draft', () => {
  assert.deepEqual(rateHeaders({ limit: 100, windowMs: 60_000 }, 7, 12), [
    'ratelimit-policy', '"default";q=100;w=60',
    'ratelimit', '"default";r=7;t=12',
  ]); // prettier-ignore
});
