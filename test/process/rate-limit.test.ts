// The rate limit of the built command: log and metrics [D46]; one limit for many gateways, counted by a real Redis, and the
// gateways' behavior during outages of Redis [D47]. test/spec/rate-limit.test.ts tests the replies, test/guards/counters.test.ts
// the counting, test/guards/hosts.test.ts clients behind proxies, and workers.test.ts the count of all workers.

import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { poll } from '../helpers/changes.ts';
import { type Command, figureOf, logged, startCommand } from '../helpers/command.ts';
import { RawClient, requestBytes } from '../helpers/raw-client.ts';
import { redisPrograms, RedisServer, withoutRedis } from '../helpers/redis.ts';
import { runHere } from '../helpers/run-cli.ts';
import { answer } from '../helpers/scripted-backend.ts';
import { useBackend } from '../helpers/suites.ts';

const backend = await useBackend(answer('{"id":5}'));

const path = '/api/work-items/5';
const [lost, back] = ['Redis does not count requests', 'Redis counts requests again'];
const unused =
  'RATE_LIMIT_REDIS_URL has a password, but Redis requires none: check that it is the right Redis and that its password is set';

test('log and metrics report a refused request; without TRUSTED_PROXIES a forwarded address is ignored', async () => {
  await using command = await startCommand({ BACKEND_URL: backend.url, RATE_LIMIT: '1/1h' });
  assert.equal((await command.call('GET', path)).status, 200);
  assert.equal((await command.call('GET', path, { headers: [['X-Forwarded-For', '1.2.3.4']] })).status, 429);
  assert.partialDeepStrictEqual(await command.log(({ status }) => status === 429, 'the line of the refused request'), {
    ...{ level: 'info', outcome: 'rate-limited', operation: 'read', client: '127.0.0.1', msg: 'request' },
    cause: 'more than 1 requests in 3600 s',
  });
  const metrics = await command.metrics();
  for (const line of [
    'requests_total{operation="read",status="429"} 1',
    'request_outcomes_total{operation="read",outcome="rate-limited",fault="client"} 1',
  ]) {
    assert.ok(metrics.includes(`\nwork_item_gateway_${line}\n`), line);
  }
});

function startGateway(url: string, more: NodeJS.ProcessEnv = {}): Promise<Command> {
  const limit = { RATE_LIMIT: '20/1h', RATE_LIMIT_REDIS_URL: url, TRUSTED_PROXIES: '127.0.0.1' };
  return startCommand({ BACKEND_URL: backend.url, ...limit, ...more });
}

/** Sends `amount` pipelined requests of `client` to each gateway; returns the number of replies with each status. */
async function statusesOf(gateways: readonly Command[], amount: number, client: string) {
  const counts: Record<number, number> = {};
  const request = requestBytes('GET', path, { headers: [['X-Forwarded-For', client]] });
  const calls = gateways.map(async ({ port }) => {
    await using connection = await RawClient.open(port);
    connection.send(Buffer.concat(Array.from({ length: amount }, () => request)));
    for (let index = 0; index < amount; index += 1) {
      const { status } = await connection.reply();
      counts[status] = (counts[status] ?? 0) + 1;
    }
  });
  await Promise.all(calls);
  return counts;
}

const reaches = async (gateway: Command) => (await figureOf(gateway, 'rate_limit_redis_reachable')) === 1;

/**
 * Runs `act`. If `act` fails after a gateway has lost Redis, runs `act` again, each time with another client. On a busy
 * machine a gateway can wait longer than 100 ms for the CPU. It then rightly counts without Redis.
 */
async function undisturbed(gateways: readonly Command[], act: (client: string) => Promise<void>) {
  const hasLostRedis = () => gateways.some(({ logs }) => logs.some(({ msg }) => msg === lost));
  for (let round = 1; ; round += 1) {
    try {
      await act(`198.51.100.${round}`);
      return;
    } catch (error) {
      // The first outage is logged 100 ms after its beginning, so `poll` waits for the line. A short outage within ten
      // seconds of another outage is not logged, so the line of any outage is enough.
      const wait = poll(hasLostRedis, 'an outage is logged', 1_000);
      if (round === 8 || (await wait.catch((missing: unknown) => missing)) !== undefined) throw error;
      for (const gateway of gateways) await poll(() => reaches(gateway), 'Redis counts again');
    }
  }
}

for (const { name, program } of redisPrograms.length > 0 ? redisPrograms : [{ name: 'Redis', program: '' }]) {
  describe(name, { skip: withoutRedis }, () => {
    let redis: RedisServer;
    const gateways: Command[] = [];
    before(async () => {
      redis = await RedisServer.start({ program });
      for (const url of [redis.url, redis.url]) gateways.push(await startGateway(url));
      gateways.push(await startGateway(`${redis.url}/0`, { WORKERS: '2' }));
    });
    after(async () => {
      for (const each of [...gateways, redis]) await each[Symbol.asyncDispose]();
    });

    test('three gateways, one with workers, together serve as many requests as the limit', async () => {
      await undisturbed(gateways, async (client) => {
        assert.deepEqual(await statusesOf(gateways, 40, client), { 200: 20, 429: 100 });
      });
      await undisturbed(gateways, async (client) => {
        const network = `2001:db8:0:${client.split('.')[3] ?? ''}`;
        assert.deepEqual(await statusesOf(gateways, 20, `${network}::1`), { 200: 20, 429: 40 });
        assert.deepEqual(await statusesOf(gateways, 1, `${network}:ffff::9`), { 429: 3 });
      });
      assert.match((await redis.send('KEYS *')) ?? '', /work-item-gateway:rate:3600:198\.51\.100\.1\r/);
    });

    for (const [index, [what, stop, resume]] of ([
      ['is stopped', () => redis.signal('SIGSTOP'), () => redis.signal('SIGCONT')],
      ['is killed', () => redis.kill(), () => redis.restart()],
    ] as const).entries()) {
      test(`if it ${what}, each gateway counts by itself, workers in their primary; no call fails, and it counts again when it is back`, async () => {
        await stop();
        const [one, , workers] = gateways as [Command, Command, Command];
        // Each gateway serves as many requests as its limit. Before it noticed the outage, it may have counted more.
        const statuses = await statusesOf([...gateways, workers, workers], 30, `203.0.113.${index}`);
        assert.deepEqual(Object.keys(statuses), ['200', '429']);
        assert.ok((statuses[200] ?? 0) <= 60, String(statuses[200]));
        for (const gateway of gateways) await poll(async () => !(await reaches(gateway)), 'the outage is noticed');
        // An outage within ten seconds of another one is not logged.
        if (index === 0) assert.partialDeepStrictEqual(await logged(one, lost), { level: 'error', fallback: 'local', outages: 1 });
        await resume();
        // test/guards/counters.test.ts tests the delay between retries.
        for (const gateway of gateways) await poll(() => reaches(gateway), 'Redis counts again');
        await undisturbed(gateways, async (client) => {
          const other = client.replace('198', `19${index}`);
          assert.deepEqual(await statusesOf(gateways, 20, other), { 200: 20, 429: 40 });
        });
        const failed = gateways.flatMap(({ logs }) => logs.filter(({ status = 200 }) => status !== 200 && status !== 429));
        assert.deepEqual(failed, []);
      });
    } // prettier-ignore
  });
}

describe('Redis', { skip: withoutRedis }, () => {
  test('that is down at the start with RATE_LIMIT_FALLBACK=deny makes every request 429 until it is up', async () => {
    await using redis = await RedisServer.start();
    await redis.kill();
    await using gateway = await startGateway(redis.url, { RATE_LIMIT_FALLBACK: 'deny' });
    const reply = await gateway.call('GET', path);
    const headers = [reply.status, reply.header('retry-after'), reply.header('ratelimit')];
    assert.deepEqual(headers, [429, '1', '"default";r=0;t=1']);
    await redis.restart();
    await logged(gateway, back);
    assert.deepEqual(await statusesOf([gateway], 30, '203.0.113.1'), { 200: 20, 429: 10 });
  });

  test('that refuses the password is reported, and one that requires none is one warning; no password is shown', async () => {
    await using strict = await RedisServer.start({ args: ['--requirepass', 'Tr0ub4dor%&'] });
    await using open = await RedisServer.start();
    const urlOf = ({ port }: RedisServer, password: string) =>
      `redis://:${encodeURIComponent(password)}@127.0.0.1:${port}/2`;
    await using refused = await startGateway(urlOf(strict, 'hunter2%&'));
    // On a busy machine, the answer of Redis may come too late.
    assert.match(String((await logged(refused, lost))['cause']), /WRONGPASS|NOAUTH|^no answer within 100 ms$/);
    assert.deepEqual(await statusesOf([refused], 21, '203.0.113.1'), { 200: 20, 429: 1 });
    await using warned = await startGateway(urlOf(open, 'hunter2%&'));
    assert.equal((await logged(warned, unused))['level'], 'warn');
    await open.restart();
    await poll(async () => String(await open.send('CLIENT LIST')).includes('cmd=eval'), 'there is a connection');
    await undisturbed([warned], async (client) => {
      assert.deepEqual(await statusesOf([warned], 21, client), { 200: 20, 429: 1 });
      assert.match((await open.send('INFO keyspace')) ?? '', /^db2:/m);
    });
    assert.equal(warned.logs.filter(({ msg }) => msg === unused).length, 1);
    for (const [gateway, { port }] of [[refused, strict], [warned, open]] as const) {
      assert.match(gateway.output, new RegExp(`redis://127\\.0\\.0\\.1:${port}/2`));
      const settings = (await gateway.admin('/')).text + (await gateway.admin('/readyz')).text;
      assert.doesNotMatch(gateway.output + (await gateway.metrics()) + settings, /hunter2/);
      assert.equal(gateway.stderr, '');
    } // prettier-ignore
    const counted =
      /^rate limit: Redis at redis:\/\/127\.0\.0\.1:\d+\/2 counted a request in [\d.]+ ms \((Redis|Valkey) \d+\.\d/m;
    for (const [redis, password, code, ...expected] of [
      [strict, 'Tr0ub4dor%&', 0, counted],
      [strict, 'hunter2', 1, /^rate limit: Redis at redis:\/\/127\.0\.0\.1:\d+\/2 could not count a request: WRONGPASS/m],
      [open, 'hunter2', 0, counted, new RegExp(`^  ${unused}$`, 'm')],
    ] as const) {
      const settings = { BACKEND_URL: backend.url, RATE_LIMIT: '1/1s', RATE_LIMIT_REDIS_URL: urlOf(redis, password) };
      let ended = await runHere(['check'], settings);
      // On a busy machine, the answer of Redis may come too late.
      for (let round = 0; round < 5 && ended.output.includes('no answer within'); round += 1) ended = await runHere(['check'], settings);
      assert.equal(ended.code, code, ended.output);
      for (const each of expected) assert.match(ended.stdout + ended.stderr, each);
      assert.match(ended.stdout, /^backend: .* answered 200/m);
      assert.doesNotMatch(ended.output, /Tr0ub4dor|hunter2|WARN/);
    } // prettier-ignore
  });
});
