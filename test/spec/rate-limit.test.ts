// The rate limit of each client: rates, keys, and the replies of a gateway [D46, D64]. test/guards/counters.test.ts tests
// the counting.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { GuardedRequest } from '../../packages/core/call/guard.ts';
import { parseRate } from '../../packages/core/options/rate.ts';
import { createRateLimit } from '../../packages/core/guards/rate-limit/rate-limit.ts';
import { Windows } from '../../packages/core/guards/rate-limit/windows.ts';
import { operations } from '../helpers/expected.ts';
import { startGateway } from '../helpers/gateway.ts';
import type { CallOptions } from '../helpers/raw-client.ts';
import { answer } from '../helpers/scripted-backend.ts';

test('a rate is a number of requests in a window of seconds, minutes or hours', () => {
  for (const [text, limit, windowMs] of [
    ['100/60s', 100, 60_000], ['1/1s', 1, 1_000], ['10/1m', 10, 60_000], ['250/5m', 250, 300_000],
    ['1000/1h', 1_000, 3_600_000], ['1000000/24h', 1_000_000, 86_400_000], ['0100/01h', 100, 3_600_000],
  ] as const) {
    assert.deepEqual(parseRate(text), { limit, windowMs }, text);
  }
  for (const text of [
    '', '100', '100/', '/60s', '100/s', '100/60', '100/60S', '100/60ms', '100/1d', '0/60s', '00/1s', '1/0s', '1/0h',
    '1000001/1s', '10000000/1s', '1/86401s', '1/1441m', '1/25h', '-1/1s', '+1/1s', '1.5/1s', '1/1.5s', '1e3/1s',
    ' 1/1s', '1/1s ', '1 / 1s', '1/1s,2/1m', '1/1s\n', '٣/1s', '0x1/1s', '1//1s', '007/086400s',
  ]) {
    assert.equal(parseRate(text), undefined, JSON.stringify(text));
  }
}); // prettier-ignore

test('the key of a request is its IPv4 address, the /64 of its IPv6 address, or its identity', () => {
  const long = 'x'.repeat(64);
  for (const [by, client, identity, expected] of [
    ...([
      ['192.0.2.7', '192.0.2.7'], ['2001:db8::1', '2001:db8:0:0'], ['2001:db8::ffff:ffff:ffff:ffff', '2001:db8:0:0'],
      ['2001:db8:0:1::1', '2001:db8:0:1'], ['2001:db8:1:2:3:4:5:6', '2001:db8:1:2'], ['::1', '0:0:0:0'], ['::', '0:0:0:0'],
      ['1::', '1:0:0:0'], ['1:2:3:4:5:6:7::', '1:2:3:4'], ['::2:3:4:5:6:7:8', '0:2:3:4'], ['1:2:3::6:7:8', '1:2:3:0'],
      ['1::4:5:6:7:8', '1:0:0:4'], ['64:ff9b::192.0.2.7', '64:ff9b:0:0'], ['1:2:3:4:5:6:192.0.2.7', '1:2:3:4'],
      ['::4:5:6:192.0.2.7', '0:0:0:4'], [undefined, 'unknown'],
    ] as const).map(([client, key]) => ['address', client, 'ada', key] as const),
    ['identity', '192.0.2.7', 'Ada Lovelace\r\n*', 'sub:Ada Lovelace\r\n*'],
    ['identity', '192.0.2.7', '192.0.2.8', 'sub:192.0.2.8'],
    ['identity', '192.0.2.7', '', 'sub:'],
    ['identity', '2001:db8::1', undefined, '2001:db8:0:0'],
    ['identity', undefined, undefined, 'unknown'],
    ['identity', '192.0.2.7', long, `sub:${long}`],
    ['identity', '192.0.2.7', `${long}x`, 'sub-sha256:lTfF_fEgSC99WNJentWD9SwCtOME6oFNsWM61WWu1-k'],
  ] as const) {
    const keys: string[] = [];
    const guard = createRateLimit({ limit: 1, windowMs: 1_000 }, by, { take: (key) => void keys.push(key) });
    const request = { client, identity } as GuardedRequest;
    assert.deepEqual(guard.admit(request), { isAdmitted: true, identity }, 'a request without a count is admitted');
    assert.deepEqual(keys, [expected]);
  }
}); // prettier-ignore

async function serveLimited(limit: number, windowMs: number) {
  const clock = { now: 1_000_000 };
  const rate = { limit, windowMs };
  const windows = new Windows(() => clock.now);
  const guard = createRateLimit(rate, 'address', { take: (key) => windows.take(key, rate) });
  return Object.assign(await startGateway({ host: 'http1', guards: [guard] }), { clock });
}

const item = '/api/work-items/5';

test('over the limit every operation is 429, byte for byte, without a backend call', async () => {
  await using server = await serveLimited(1, 60_000);
  await using client = await server.connect();
  assert.equal((await client.call('GET', item)).status, 200);
  server.clock.now += 48_000;
  for (const { method, path, options } of operations) {
    const reply = await client.call(method, path, { ...options, headers: [['X-Request-Id', `limited-${method}`]] });
    assert.deepEqual([reply.status, reply.text], [429, '{"error":"Too many requests"}']);
    assert.deepEqual(reply.headers.filter(([field]) => field !== 'keep-alive' && field !== 'date'), [
      ...[['content-type', 'application/json'], ['cache-control', 'no-store'], ['x-content-type-options', 'nosniff']],
      ...[['retry-after', '12'], ['ratelimit-policy', '"default";q=1;w=60'], ['ratelimit', '"default";r=0;t=12']],
      ...[['content-length', '29'], ['x-request-id', `limited-${method}`], ['connection', 'keep-alive']],
    ]); // prettier-ignore
  }
  for (const { status, outcome, cause } of server.told.ended.slice(1)) {
    assert.deepEqual([status, outcome, cause], [429, 'rate-limited', 'more than 1 requests in 60 s']);
  }
  for (const [method, path] of [['HEAD', item], ['GET', '/api/work-items/abc'], ['POST', '/api/work-items']] as const) {
    assert.equal((await client.call(method, path, method === 'POST' ? { body: '{' } : {})).status, 429);
  } // prettier-ignore
  assert.equal(server.backend.requests.length, 1);
});

test('the seconds in a reply are rounded up, and never more than the window', async () => {
  for (const [windowMs, ...steps] of [
    [
      10_000,
      [1_000_000, '200  "default";r=1;t=10'], [1_009_000, '200  "default";r=0;t=1'], [1_009_000, '429 1 "default";r=0;t=1'],
      [1_009_999.9, '429 1 "default";r=0;t=1'], [1_010_000, '200  "default";r=1;t=10'], [1_010_000, '200  "default";r=0;t=10'],
      [1_010_000, '429 10 "default";r=0;t=10'],
    ],
    // At this time, rounding makes `now + window - now` more than the window.
    [1_000, [3_423.889_162_171_571_6, '200  "default";r=1;t=1']],
  ] as const) {
    await using server = await serveLimited(2, windowMs);
    for (const [now, expected] of steps) {
      server.clock.now = now;
      const reply = await server.call('GET', item);
      assert.equal([reply.status, reply.header('retry-after'), reply.header('ratelimit')].join(' '), expected);
    }
  } // prettier-ignore
  assert.ok(3_423.889_162_171_571_6 + 1_000 - 3_423.889_162_171_571_6 > 1_000);
});

test('every reply to a request of an operation reports how many are left; other requests are not counted [D64]', async () => {
  await using server = await serveLimited(9, 60_000);
  await using client = await server.connect();
  const length = ['Content-Length', '99999999'] as const;
  for (const [left, method, path, status, options = {}] of [
    [8, 'GET', item, 200],
    [7, 'POST', '/api/work-items', 201, { body: '{}' }],
    [6, 'PUT', item, 200, { body: '{}' }],
    [5, 'DELETE', item, 200],
    [4, 'GET', '/api/work-items/abc', 400],
    [3, 'POST', '/api/work-items', 500, { body: '{' }],
    [2, 'HEAD', '/api/work-items', 200],
    [undefined, 'OPTIONS', '/api/work-items', 204],
    [undefined, 'PATCH', item, 405],
    [undefined, 'GET', '/nowhere', 404],
    [undefined, 'POST', '/api/work-items', 403, { headers: [['Sec-Fetch-Site', 'cross-site']], body: '{}' }],
    [1, 'GET', '/api/work-items/7', 404],
    [0, 'POST', '/api/work-items', 413, { headers: [length] }],
  ] satisfies [number | undefined, string, string, number, CallOptions?][]) {
    if (status === 404) server.backend.answers(answer('{}', { status }));
    const reply = await client.call(method, path, options);
    assert.equal(reply.status, status, `${method} ${path}`);
    const sent = reply.headers.filter(([name]) => /^(?:ratelimit|retry-after)/.test(name));
    const expected = [['ratelimit-policy', '"default";q=9;w=60'], ['ratelimit', `"default";r=${left};t=60`]]; // prettier-ignore
    assert.deepEqual(sent, left === undefined ? [] : expected);
  }
  const statuses = [await server.call('GET', item), await server.call('OPTIONS', item)].map(({ status }) => status);
  assert.deepEqual(statuses, [429, 204]);
});
