// The rate limit of each client, and the replies over the limit [D46].

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createOwnCount } from '../../packages/core/guards/rate-limit/count.ts';
import { createRateLimit } from '../../packages/core/guards/rate-limit/rate-limit.ts';
import { assertReply, operations } from '../helpers/expected.ts';
import { startGateway } from '../helpers/gateway.ts';
import { requestBytes } from '../helpers/raw-client.ts';
import { answer } from '../helpers/scripted-backend.ts';

const limitHeaders = ['retry-after', 'ratelimit-policy', 'ratelimit'];
const tooMany = '{"error":"Too many requests"}';

async function serveLimited(limit: number, windowMs: number) {
  const clock = { now: 1_000_000 };
  const rate = { limit, windowMs };
  const count = createOwnCount(rate, () => clock.now);
  const guard = createRateLimit(rate, 'address', count);
  return Object.assign(await startGateway({ host: 'http1', guards: [guard] }), { clock });
}

test('over the limit every operation is 429, byte for byte, without a backend call', async () => {
  await using server = await serveLimited(1, 60_000);
  await using client = await server.connect();
  assert.equal((await client.call('GET', '/api/work-items/5')).status, 200);
  server.clock.now += 48_000;
  for (const { method, path, options } of operations) {
    const reply = await client.call(method, path, { ...options, headers: [['X-Request-Id', `limited-${method}`]] });
    assertReply(reply, 429, tooMany, limitHeaders);
    const headers = reply.headers.filter(([field]) => !['Date', 'date'].includes(field));
    assert.deepEqual(headers, [
      ['content-type', 'application/json'],
      ['cache-control', 'no-store'],
      ['x-content-type-options', 'nosniff'],
      ['retry-after', '12'],
      ['ratelimit-policy', '"default";q=1;w=60'],
      ['ratelimit', '"default";r=0;t=12'],
      ['content-length', '29'],
      ['x-request-id', `limited-${method}`],
      ['connection', 'keep-alive'],
      ...headers.slice(9),
    ]);
  }
  for (const [method, path, body] of [
    ['HEAD', '/api/work-items/5', undefined],
    ['GET', '/api/work-items/abc', undefined],
    ['POST', '/api/work-items', '{'],
  ] as const) {
    assert.equal((await client.call(method, path, body === undefined ? {} : { body })).status, 429);
  }
  assert.equal(server.backend.requests.length, 1);
  assert.deepEqual(
    server.told.ended.slice(1, 1 + operations.length).map(({ status, outcome, cause }) => [status, outcome, cause]),
    operations.map(() => [429, 'rate-limited', 'more than 1 requests in 60 s']),
  );
});

test('a window ends windowMs after its first request, to the millisecond', async () => {
  await using server = await serveLimited(2, 10_000);
  await using client = await server.connect();
  const ask = async (): Promise<string> => {
    const reply = await client.call('GET', '/api/work-items/5');
    return reply.status === 200
      ? (reply.header('ratelimit') ?? '')
      : `${reply.header('retry-after') ?? ''} ${reply.header('ratelimit') ?? ''}`;
  };
  assert.equal(await ask(), '"default";r=1;t=10');
  server.clock.now += 9_000;
  assert.equal(await ask(), '"default";r=0;t=1');
  assert.equal(await ask(), '1 "default";r=0;t=1');
  server.clock.now += 999.9;
  assert.equal(await ask(), '1 "default";r=0;t=1');
  server.clock.now += 0.1;
  assert.equal(await ask(), '"default";r=1;t=10');
  assert.equal(await ask(), '"default";r=0;t=10');
  assert.equal(await ask(), '10 "default";r=0;t=10');
});

test('the remaining seconds in a reply are never more than the window, whatever fraction of a millisecond the clock shows', async () => {
  await using server = await serveLimited(2, 1_000);
  await using client = await server.connect();
  // At this time, rounding makes `now + window - now` more than the window.
  const now = 3_423.889_162_171_571_6;
  assert.ok(now + 1_000 - now > 1_000);
  server.clock.now = now;
  const lefts: (string | undefined)[] = [];
  for (let count = 0; count < 3; count += 1) {
    lefts.push((await client.call('GET', '/api/work-items/5')).header('ratelimit'));
  }
  assert.deepEqual(lefts, ['"default";r=1;t=1', '"default";r=0;t=1', '"default";r=0;t=1']);
});

test('every reply to a counted request reports how many requests are left [D64]', async () => {
  await using server = await serveLimited(9, 60_000);
  await using client = await server.connect();
  for (const [left, method, path, body, status] of [
    [8, 'GET', '/api/work-items/5', undefined, 200],
    [7, 'POST', '/api/work-items', '{}', 201],
    [6, 'PUT', '/api/work-items/5', '{}', 200],
    [5, 'DELETE', '/api/work-items/5', undefined, 200],
    [4, 'GET', '/api/work-items/abc', undefined, 400],
    [3, 'POST', '/api/work-items', '{', 500],
    [2, 'HEAD', '/api/work-items', undefined, 200],
    [undefined, 'OPTIONS', '/api/work-items', undefined, 204],
    [undefined, 'PATCH', '/api/work-items/5', undefined, 405],
    [undefined, 'GET', '/nowhere', undefined, 404],
  ] as const) {
    const reply = await client.call(method, path, body === undefined ? {} : { body });
    assert.equal(reply.status, status, `${method} ${path}`);
    const rate = left === undefined ? [] : ['ratelimit-policy', 'ratelimit'];
    assert.deepEqual(
      reply.headers.map(([name]) => name).filter((name) => /^(?:ratelimit|retry-after)/.test(name)),
      rate,
    );
    assert.equal(reply.header('ratelimit-policy'), left === undefined ? undefined : '"default";q=9;w=60');
    assert.equal(reply.header('ratelimit'), left === undefined ? undefined : `"default";r=${left};t=60`);
  }
  server.clock.now += 59_001;
  server.backend.answers(answer('{}', { status: 404 }));
  const missing = await client.call('GET', '/api/work-items/7');
  assertReply(missing, 404, '{"error":"Work item not found"}', ['ratelimit-policy', 'ratelimit']);
  assert.equal(missing.header('ratelimit'), '"default";r=1;t=1');
  client.send(requestBytes('POST', '/api/work-items', { headers: [['Content-Length', '99999999']] }));
  const tooLarge = await client.reply();
  assert.equal(tooLarge.status, 413);
  assert.equal(tooLarge.header('ratelimit'), '"default";r=0;t=1');
});

test('requests without an operation are not counted, and are served even over the limit', async () => {
  await using server = await serveLimited(1, 60_000);
  await using client = await server.connect();
  for (let round = 0; round < 2; round += 1) {
    assert.equal((await client.call('OPTIONS', '/api/work-items')).status, 204);
    assert.equal((await client.call('PATCH', '/api/work-items/5')).status, 405);
    assert.equal((await client.call('GET', '/nowhere')).status, 404);
    const cross = { headers: [['Sec-Fetch-Site', 'cross-site']] as [string, string][], body: '{}' };
    assert.equal((await client.call('POST', '/api/work-items', cross)).status, 403);
    assert.equal((await client.call('GET', '/api/work-items/5')).status, round === 0 ? 200 : 429);
  }
});

test('of 1,000 pipelined requests, exactly as many as the limit are served, and the connection stays open', async () => {
  await using server = await serveLimited(100, 60_000);
  await using client = await server.connect();
  client.send(Buffer.concat(Array.from({ length: 1_000 }, () => requestBytes('GET', '/api/work-items/5'))));
  const statuses: number[] = [];
  for (let index = 0; index < 1_000; index += 1) {
    statuses.push((await client.reply()).status);
  }
  assert.deepEqual(statuses, [...Array.from({ length: 100 }, () => 200), ...Array.from({ length: 900 }, () => 429)]);
  assert.equal(server.backend.requests.length, 100);
});
