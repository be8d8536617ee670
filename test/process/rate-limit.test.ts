// The rate limit of the built command: log and metrics [D46]; one limit for many gateways, counted by a real
// Redis, and the gateways' behavior during outages of Redis [D47]. test/spec/rate-limit.test.ts tests the replies,
// test/guards/counters.test.ts the counting, test/guards/hosts.test.ts clients behind proxies, and pool.test.ts workers.

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { poll } from '../helpers/changes.ts';
import { type Command, startCommand } from '../helpers/command.ts';
import { RawClient, requestBytes } from '../helpers/raw-client.ts';
import { redisPrograms, RedisServer, withoutRedis } from '../helpers/redis.ts';
import { runHere } from '../helpers/run-cli.ts';
import { answer } from '../helpers/scripted-backend.ts';
import { useBackend } from '../helpers/suites.ts';

const backend = await useBackend(answer('{"id":5}'));

const path = '/api/work-items/5';
const unused =
  'RATE_LIMIT_REDIS_URL has a password, but Redis requires none: check that it is the right Redis and that its password is set';

test('log and metrics report a refused request; without TRUSTED_PROXIES a forwarded address is ignored', async () => {
  await using command = await startCommand({ BACKEND_URL: backend.url, RATE_LIMIT: '1/1h' });
  const forwarded = { headers: [['X-Forwarded-For', '1.2.3.4']] } as const;
  assert.equal((await command.call('GET', path)).status, 200);
  assert.equal((await command.call('GET', path, forwarded)).status, 429);
  const line = await command.log(({ status }) => status === 429, 'the line of the refused request');
  assert.deepEqual(
    [line['level'], line['outcome'], line['operation'], line['client'], line['cause'], line['msg']],
    ['info', 'rate-limited', 'read', '127.0.0.1', 'more than 1 requests in 3600 s', 'request'],
  );
  const metrics = await command.metrics();
  assert.match(metrics, /^work_item_gateway_requests_total\{operation="read",status="429"\} 1$/m);
  assert.match(
    metrics,
    /^work_item_gateway_request_outcomes_total\{operation="read",outcome="rate-limited",fault="client"\} 1$/m,
  );
});

async function startGateway(url: string, more: NodeJS.ProcessEnv = {}): Promise<Command> {
  return await startCommand({
    BACKEND_URL: backend.url,
    RATE_LIMIT: '100/1h',
    RATE_LIMIT_REDIS_URL: url,
    TRUSTED_PROXIES: '127.0.0.1',
    ...more,
  });
}

/** Sends `amount` pipelined requests of `client` to each gateway; returns the number of replies with each status. */
async function statusesOf(gateways: readonly Command[], amount: number, client: string) {
  const counts: Record<number, number> = {};
  await Promise.all(
    gateways.map(async ({ port }) => {
      await using connection = await RawClient.open(port);
      const request = requestBytes('GET', path, { headers: [['X-Forwarded-For', client]] });
      connection.send(Buffer.concat(Array.from({ length: amount }, () => request)));
      for (let index = 0; index < amount; index += 1) {
        const { status } = await connection.reply();
        counts[status] = (counts[status] ?? 0) + 1;
      }
    }),
  );
  return counts;
}

const isLost = ({ msg }: Readonly<Record<string, unknown>>) => msg === 'Redis does not count requests';
const isBack = ({ msg }: Readonly<Record<string, unknown>>) => msg === 'Redis counts requests again';

/**
 * Runs `act`. If `act` fails after a gateway has lost Redis, runs `act` again, each time with another client. On a busy
 * machine a gateway can wait longer than 100 ms for the CPU. It then rightly counts without Redis.
 */
async function undisturbed(gateways: readonly Command[], act: (client: string) => Promise<void>) {
  const hasLostRedis = () => gateways.some(({ logs }) => logs.some(isLost));
  for (let round = 1; ; round += 1) {
    try {
      await act(`198.51.100.${round}`);
      return;
    } catch (error) {
      // The first outage is logged 100 ms after its beginning, so `poll` waits for the line. A short outage within ten
      // seconds of another outage is not logged, so the line of any outage is enough.
      const wasDisturbed = await poll(hasLostRedis, 'an outage is logged', 1_000).then(
        () => true,
        () => false,
      );
      if (!wasDisturbed || round === 8) throw error;
      await poll(async () => {
        const states = await Promise.all(gateways.map((gateway) => reachable(gateway)));
        return states.every((state) => state === '1');
      }, 'Redis counts again');
    }
  }
}

async function reachable(command: Command): Promise<string | undefined> {
  return /^work_item_gateway_rate_limit_redis_reachable (\d)$/m.exec(await command.metrics())?.[1];
}

for (const { name, program } of redisPrograms.length > 0
  ? redisPrograms
  : [{ name: 'Redis', program: undefined }]) {
  test(`${name}: three gateways, one with workers, together serve as many requests as the limit`, { skip: withoutRedis }, async () => {
    await using redis = await RedisServer.start({ ...(program !== undefined && { program }) });
    await using one = await startGateway(redis.url);
    await using two = await startGateway(redis.url);
    await using three = await startGateway(`${redis.url}/0`, { WORKERS: '2' });
    const gateways = [one, two, three];
    await undisturbed(gateways, async (client) => {
      assert.deepEqual(await statusesOf(gateways, 300, client), { 200: 100, 429: 800 });
    });
    await undisturbed(gateways, async (client) => {
      const network = `2001:db8:0:${client.split('.')[3] ?? ''}`;
      assert.deepEqual(await statusesOf(gateways, 100, `${network}::1`), { 200: 100, 429: 200 });
      assert.deepEqual(await statusesOf(gateways, 1, `${network}:ffff::9`), { 429: 3 });
    });
    assert.match((await redis.send('KEYS *')) ?? '', /work-item-gateway:rate:3600:198\.51\.100\.1\r/);
  });
} // prettier-ignore

describe('while Redis does not count requests', { skip: withoutRedis }, () => {
  for (const [what, stop, resume] of [
    ['is stopped', (redis: RedisServer) => redis.signal('SIGSTOP'), (redis: RedisServer) => redis.signal('SIGCONT')],
    ['is killed', (redis: RedisServer) => redis.kill(), (redis: RedisServer) => redis.restart()],
  ] as const) {
    test(`if Redis ${what}, each gateway counts by itself, no call fails, and Redis counts again when it is back`, async () => {
      await using redis = await RedisServer.start();
      await using one = await startGateway(redis.url);
      await using two = await startGateway(redis.url);
      const gateways = [one, two];
      assert.deepEqual(await statusesOf(gateways, 40, '203.0.113.1'), { 200: 80 });
      await stop(redis);
      // Each gateway serves at most as many requests as its limit.
      const statuses = await statusesOf(gateways, 300, '203.0.113.1');
      assert.deepEqual(Object.keys(statuses), ['200', '429']);
      assert.ok((statuses[200] ?? 0) <= 200, String(statuses[200]));
      for (const gateway of gateways) {
        const line = await gateway.log(isLost, 'the outage is logged');
        assert.deepEqual([line['level'], line['fallback'], line['outages']], ['error', 'local', 1]);
      }
      assert.equal(await reachable(one), '0');
      await resume(redis);
      // test/guards/counters.test.ts tests the delay between retries.
      await Promise.all(gateways.map((gateway) => gateway.log(isBack, 'Redis counts again')));
      for (const { logs } of gateways) {
        assert.ok(!logs.some(({ status }) => status !== undefined && status !== 200 && status !== 429));
      }
      await undisturbed(gateways, async (client) => {
        assert.deepEqual(await statusesOf(gateways, 100, client), { 200: 100, 429: 100 });
        assert.equal(await reachable(one), '1');
      });
    });
  } // prettier-ignore

  test('workers count together, in their primary process', async () => {
    await using redis = await RedisServer.start();
    await using gateway = await startGateway(redis.url, { WORKERS: '2' });
    await redis.kill();
    const all = Array.from({ length: 8 }, () => gateway);
    // The primary process also counts the requests that the workers receive before they notice the outage.
    assert.deepEqual(await statusesOf(all, 50, '203.0.113.1'), { 200: 100, 429: 300 });
  });

  test('with RATE_LIMIT_FALLBACK=deny and Redis down at the start, every request is 429 until Redis is up', async () => {
    await using redis = await RedisServer.start();
    await redis.kill();
    await using gateway = await startGateway(redis.url, { RATE_LIMIT_FALLBACK: 'deny' });
    const reply = await gateway.call('GET', path);
    const headers = [reply.status, reply.header('retry-after'), reply.header('ratelimit')];
    assert.deepEqual(headers, [429, '1', '"default";r=0;t=1']);
    await redis.restart();
    await gateway.log(isBack, 'Redis counts');
    assert.deepEqual(await statusesOf([gateway], 150, '203.0.113.1'), { 200: 100, 429: 50 });
  });

  test('a wrong password is reported, but not shown in log, metrics, dashboard or start-up lines', async () => {
    await using redis = await RedisServer.start({ args: ['--requirepass', 'Tr0ub4dor%&'] });
    const url = (password: string) => `redis://:${encodeURIComponent(password)}@127.0.0.1:${redis.port}/2`;
    await using gateway = await startGateway(url('hunter2%&'));
    // On a busy machine, the answer of Redis may come too late.
    const { cause } = await gateway.log(isLost, 'the outage is logged');
    assert.match(String(cause), /WRONGPASS|NOAUTH|^no answer within 100 ms$/);
    assert.deepEqual(await statusesOf([gateway], 101, '203.0.113.1'), { 200: 100, 429: 1 });
    assert.match(gateway.output, new RegExp(`redis://127\\.0\\.0\\.1:${redis.port}/2`));
    const settings = (await gateway.admin('/')).text + (await gateway.admin('/readyz')).text;
    for (const text of [gateway.output, await gateway.metrics(), settings]) {
      assert.doesNotMatch(text, /hunter2/);
    }
  });

  test('a password that Redis does not require is one warning, also after a reconnection, and Redis counts', async () => {
    await using redis = await RedisServer.start();
    await using gateway = await startGateway(`redis://:hunter2@127.0.0.1:${redis.port}/3`);
    const line = await gateway.log(({ msg }) => msg === unused, 'the warning');
    assert.equal(line['level'], 'warn');
    await redis.restart();
    await poll(async () => String(await redis.send('CLIENT LIST')).includes('cmd=eval'), 'there is a connection');
    await undisturbed([gateway], async (client) => {
      assert.deepEqual(await statusesOf([gateway], 101, client), { 200: 100, 429: 1 });
      assert.match((await redis.send('INFO keyspace')) ?? '', /^db3:/m);
    });
    assert.equal(gateway.logs.filter(({ msg }) => msg === unused).length, 1);
    assert.equal(gateway.stderr, '');
    assert.doesNotMatch(gateway.output, /hunter2/);
  });
});

test('`check` reports whether Redis counts, and whether it requires the password, but shows no password', { skip: withoutRedis }, async () => {
  await using strict = await RedisServer.start({ args: ['--requirepass', 'Tr0ub4dor'] });
  await using open = await RedisServer.start();
  const counted = /^rate limit: Redis at redis:\/\/127\.0\.0\.1:\d+ counted a request in [\d.]+ ms \((Redis|Valkey) \d+\.\d/m;
  for (const [redis, password, code, ...expected] of [
    [strict, 'Tr0ub4dor', 0, counted],
    [strict, 'hunter2', 1, /^rate limit: Redis at redis:\/\/127\.0\.0\.1:\d+ could not count a request: WRONGPASS/m],
    [open, 'hunter2', 0, counted, new RegExp(`^  ${unused}$`, 'm')],
  ] as const) {
    const environment = { BACKEND_URL: backend.url, RATE_LIMIT: '1/1s', RATE_LIMIT_REDIS_URL: `redis://:${password}@127.0.0.1:${redis.port}` };
    const check = async () => await runHere(['check'], environment);
    let ended = await check();
    // On a busy machine, the answer of Redis may come too late.
    for (let round = 0; round < 5 && ended.output.includes('no answer within'); round += 1) ended = await check();
    assert.equal(ended.code, code, ended.output);
    for (const each of expected) assert.match(ended.stdout + ended.stderr, each);
    assert.match(ended.stdout, /^backend: .* answered 200/m);
    assert.doesNotMatch(ended.output, /Tr0ub4dor|hunter2|WARN/);
  }
}); // prettier-ignore
