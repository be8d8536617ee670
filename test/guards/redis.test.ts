// The counter in Redis: what Redis gets, connections, passwords, servers that are not a Redis, and a blocked event loop
// [D47]. test/process/ tests gateways that share a Redis, TLS, and passwords that Redis does not require.

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer, type AddressInfo, type Socket } from 'node:net';
import { after, before, describe, test } from 'node:test';
import { loadRedis, RedisCounter } from '../../packages/core/guards/rate-limit/redis-counter.ts';
import { poll } from '../helpers/changes.ts';
import { createRateGuard, repeat } from '../helpers/rate-guard.ts';
import { RedisServer, withoutRedis } from '../helpers/redis.ts';

const rate = { limit: 3, windowMs: 60_000 };
const noEvent = () => assert.fail('this event is not expected');
const isLate = (error: unknown) => /^no (answer|connection) within \d+ ms$/.test((error as Error).message);

let redis: RedisServer;
before(async () => {
  await loadRedis();
  if (withoutRedis === false) redis = await RedisServer.start();
});
after(() => (withoutRedis === false ? redis[Symbol.asyncDispose]() : undefined));
const send = async (command: string) => String(await redis.send(command));

/** Runs `body` as a test. The test is repeated if Redis answers after the time limit, as it can on a busy machine. */
function redisTest(title: string, body: () => Promise<void>): void {
  test(title, async () => {
    for (let round = 1; ; round += 1) {
      try {
        await send('FLUSHALL');
        await body();
        return;
      } catch (error) {
        if (round === 5 || !isLate(error)) throw error;
      }
    }
  });
}

/** Returns a connected counter. `left` counts a request, and returns how many are left. */
async function open(address: string, onUnusedPassword: () => void = noEvent, onGone: () => void = () => undefined) {
  const counter = new RedisCounter(new URL(address), onUnusedPassword);
  await counter.revive(onGone);
  const left = async (key: string, of = rate) => (await counter.take(key, of)).left;
  return Object.assign(counter, { left, [Symbol.dispose]: () => counter.close() });
}

/** Returns the reason why a counter cannot connect to `address`. */
async function refusal(address: string): Promise<string> {
  const error: unknown = await open(address).catch((each: unknown) => each);
  assert.ok(error instanceof Error && error.cause === undefined, 'the connection is refused');
  if (isLate(error)) throw error;
  return error.message;
}

/** Starts a server that is not a Redis. `onData` gets each piece that arrives, and the number of its connection. */
async function serve(onData: (socket: Socket, text: string, connection: number) => unknown) {
  let connections = 0;
  const server = createServer((socket) => {
    const connection = (connections += 1);
    socket.on('error', () => undefined).on('data', (data) => onData(socket, data.toString(), connection));
  });
  await once(server.listen(0, '127.0.0.1'), 'listening');
  const { port } = server.address() as AddressInfo;
  return { address: `127.0.0.1:${port}`, [Symbol.dispose]: () => server.close() };
}

const key = 'work-item-gateway:rate:60:a';

describe('a counter in Redis', { skip: withoutRedis }, () => {
  redisTest('has a key for each client and window, which expires when the window ends', async () => {
    using counter = await open(redis.url);
    assert.equal((await counter.take('a', rate)).msLeft, 60_000);
    assert.equal(await counter.left('a'), 1);
    assert.equal(await counter.left('a', { limit: 3, windowMs: 1_000 }), 2);
    assert.deepEqual([await send(`GET ${key}`), await send('GET work-item-gateway:rate:1:a')], ['$1\r\n2\r\n', '$1\r\n1\r\n']);
    assert.match(await send(`PTTL ${key}`), /^:5\d{4}\r\n$/);
    await send(`PEXPIRE ${key} 1`);
    await poll(async () => (await send(`EXISTS ${key}`)) === ':0\r\n', 'the key expired');
    assert.equal(await counter.left('a'), 2);
  }); // prettier-ignore

  redisTest('sends one call of the script for each request, and the script itself only if Redis lacks it', async () => {
    using counter = await open(redis.url);
    await send('CONFIG RESETSTAT');
    const calls = async () => {
      const text = await send('INFO commandstats');
      return ['evalsha', 'eval'].map((name) => Number(new RegExp(`^cmdstat_${name}:calls=(\\d+)`, 'm').exec(text)?.[1] ?? 0));
    };
    await Promise.all(repeat(50, 'a').map((each) => counter.take(each, rate)));
    assert.deepEqual(await calls(), [50, 0]);
    await send('SCRIPT FLUSH');
    for (let count = 0; count < 2; count += 1) await counter.take('b', rate);
    assert.deepEqual(await calls(), [52, 1]);
  }); // prettier-ignore

  redisTest('uses the database number of the address', async () => {
    for (const [address, database] of [[`${redis.url}/7`, 7], [`${redis.url}/`, 0]] as const) {
      using counter = await open(address);
      assert.equal(await counter.left('a'), 2);
      assert.match(await send('INFO keyspace'), new RegExp(`^db${database}:keys=2`, 'm'));
    } // prettier-ignore
  });

  redisTest('replaces an invalid value of a key, and no other value', async () => {
    using counter = await open(redis.url);
    await counter.take('other', rate);
    for (const way of [
      'SET KEY odd', 'SET KEY ""', 'SET KEY -5 PX 60000', 'SET KEY 1.5 PX 60000', 'SET KEY 007 PX 60000',
      'SET KEY 99999999 PX 60000', 'SET KEY 9223372036854775807 PX 60000', 'SET KEY " 1" PX 60000', 'SET KEY 1e2 PX 60000',
      'SET KEY 100', 'SET KEY 100 PX 99999999', 'RPUSH KEY a b', 'HSET KEY a b', 'SADD KEY a', 'ZADD KEY 1 a', 'XADD KEY * a b',
    ]) {
      await send(`DEL ${key}`);
      assert.match(await send(way.replace('KEY', key)), /^[+:$]/, way);
      assert.deepEqual(await counter.take('a', rate), { left: 2, msLeft: 60_000 }, way);
      assert.equal(await send(`GET ${key}`), '$1\r\n1\r\n', way);
      assert.match(await send(`PTTL ${key}`), /^:(5\d{4}|60000)\r\n$/, way);
    } // prettier-ignore
    await send(`SET ${key} 1000000 PX 60000`);
    assert.deepEqual([await counter.left('a'), await counter.left('other')], [-1, 1]);
  });

  redisTest('reports a lost connection once, but not a connection that it closes itself', async () => {
    let gone = 0;
    using counter = await open(redis.url, noEvent, () => (gone += 1));
    await send('CLIENT KILL TYPE normal SKIPME yes');
    await poll(() => gone === 1, 'the loss is reported');
    await assert.rejects(counter.take('a', rate), new Error('Redis closed the connection'));
    // The second connection replaces the first. The end of the first connection is not reported.
    await counter.revive(() => (gone += 1));
    await counter.revive(noEvent);
    assert.equal(await counter.left('a'), 2);
    counter.close();
    await assert.rejects(counter.take('a', rate), new Error('not connected'));
    await poll(async () => !(await send('CLIENT LIST')).includes('cmd=eval'), 'all connections are closed');
    assert.equal(gone, 1);
  });

  redisTest('does not connect to a Redis that cannot write', async () => {
    await send('CONFIG SET maxmemory 1');
    assert.match(await refusal(redis.url), /OOM/);
    await send('CONFIG SET maxmemory 0');
    using counter = await open(redis.url);
    assert.equal(await counter.left('a'), 2);
  });

  redisTest('sends password and user name, with their percent-encoded characters decoded', async () => {
    await using guarded = await RedisServer.start({ args: ['--requirepass', 'Tr0ub4dor%&'] });
    const address = `127.0.0.1:${guarded.port}/2`;
    for (const [index, credentials] of [':Tr0ub4dor%25%26', 'default:Tr0ub4dor%25%26'].entries()) {
      using counter = await open(`redis://${credentials}@${address}`);
      assert.equal(await counter.left('a'), 2 - index);
    }
    assert.match(await refusal(`redis://:hunter2@${address}`), /^WRONGPASS/);
    assert.match(await refusal(`redis://ada:Tr0ub4dor%25%26@${address}`), /^WRONGPASS/);
    assert.match(await refusal(`redis://${address}`), /^NOAUTH/);
  });
});

describe('a server that cannot count like Redis', () => {
  const notRedis = 'the answer is not the protocol of Redis: is this the address of a Redis?';
  const closed = 'Redis closed the connection before it answered: did you mean rediss:?';
  const reply = (text: string) => (socket: Socket) => socket.write(text);
  for (const [what, onData, cause] of [
    ['is silent', () => undefined, 'no answer within 100 ms'],
    ['speaks HTTP', reply('HTTP/1.1 400 Bad Request\r\n\r\n'), notRedis],
    ['speaks HTTP and closes the connection', (socket) => socket.end('HTTP/1.1 400 Bad Request\r\n\r\n'), notRedis],
    ['closes the connection', (socket) => socket.end(), closed],
    ['answers OK to everything', reply('+OK\r\n'), 'the answer is malformed'],
    ['answers nothing', reply('*-1\r\n'), 'the answer is malformed'],
    ['answers with texts', reply('*2\r\n$1\r\n1\r\n$1\r\n9\r\n'), 'the answer is malformed'],
    ['answers with one number', reply('*1\r\n:1\r\n'), 'the answer is malformed'],
    ['answers with a number below -1', reply('*2\r\n:-2\r\n:5\r\n'), 'the answer is malformed'],
    ['answers with a negative time', reply('*2\r\n:1\r\n:-1\r\n'), 'the answer is malformed'],
    ['repeats the password', reply('-ERR AUTH of ad%61 (ad%2561) with hun%ter2 (hun%25ter2)\r\n'), 'ERR AUTH of *** (***) with *** (***)'],
  ] as readonly (readonly [string, (socket: Socket) => unknown, string])[]) {
    test(`that ${what} has the cause "${cause}"`, async () => {
      using server = await serve(onData);
      const credentials = what === 'repeats the password' ? 'ad%2561:hun%25ter2@' : '';
      await assert.rejects(open(`redis://${credentials}${server.address}`), (error: Error) => {
        assert.deepEqual([error.message, error.cause], [cause, undefined]);
        return true;
      });
    });
  } // prettier-ignore

  const answer = '*2\r\n:9\r\n:1000\r\n';
  for (const [what, auth, probe, result] of [
    ['requires no password (Redis 5)', '-ERR Client sent AUTH, but no password is set\r\n', answer, 'unused'],
    ['requires no password, in words of its own', '-ERR what is a password?\r\n', answer, 'unused'],
    ['requires another password', '-WRONGPASS invalid password\r\n', '-NOAUTH Authentication required.\r\n', 'WRONGPASS invalid password'],
    ['refuses AUTH and is then silent', '-ERR no\r\n', '', 'no answer within 100 ms'],
  ] as const) {
    test(`that ${what}: ${result}`, async () => {
      using server = await serve((socket, text) => {
        if (text.includes('auth')) socket.write(auth);
        if (text.includes('probe')) socket.write(probe);
      });
      let unused = 0;
      const counter = new RedisCounter(new URL(`redis://:secret@${server.address}`), () => (unused += 1));
      const outcome = await counter.revive(() => undefined).then(() => 'unused', (error: unknown) => (error as Error).message);
      counter.close();
      assert.deepEqual([outcome, unused], [result, result === 'unused' ? 1 : 0]);
    });
  } // prettier-ignore

  test('that answers a very long time blocks a client for one window at most', async () => {
    using server = await serve(reply('*2\r\n:-1\r\n:1000000000000\r\n'));
    using counter = await open(`redis://${server.address}`);
    assert.deepEqual(await counter.take('a', rate), { left: -1, msLeft: 60_000 });
  });

  test('that closes the connection before it answers gets the requests again on the next connection, in order', async () => {
    const asked: string[] = [];
    using server = await serve((socket, text, connection) => {
      const keys = [...text.matchAll(/rate:60:(\w+)/g)].map(([, key = '']) => key);
      if (connection === 1 && keys.length > 0) socket.end();
      else for (const key of ['probe', ...keys]) if (key !== 'probe' || text.includes('probe')) socket.write(answer);
      if (connection > 1) asked.push(...keys);
    });
    const keys = Array.from({ length: 500 }, (_, index) => `key${index}`);
    const counter = new RedisCounter(new URL(`redis://${server.address}`), noEvent);
    await counter.revive(() => void counter.revive(noEvent));
    const taken = await Promise.all(keys.map((key) => counter.take(key, rate)));
    counter.close();
    assert.ok(taken.every(({ left }) => left === 9));
    assert.deepEqual(asked, keys);
  });
});

describe('while the event loop is blocked', { skip: withoutRedis }, () => {
  const block = (ms: number): void => void Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, ms);
  const nextTurn = () => new Promise((resolve) => setImmediate(resolve));

  /** Creates a guard that refuses each request which Redis has not counted. */
  const createGuard = async (address = redis.url) => {
    await send('FLUSHALL');
    const settings = { rateLimit: '10/1h', rateLimitRedisUrl: address, rateLimitFallback: 'allow' } as const;
    const guard = await createRateGuard(settings);
    await poll(() => guard.redisAnswers() === true, 'Redis counts');
    guard.told.length = 0;
    return guard;
  };
  const counted = [...repeat(30, 'refused'), ...Array.from({ length: 10 }, (_, left) => String(left))].sort();

  for (const [moment, wait, turns, blockedMs] of [
    ['before the question is sent', () => Promise.resolve(), 1, 150],
    ['when the question is sent', nextTurn, 1, 1_000],
    ['in each of three turns', nextTurn, 3, 150],
  ] as const) {
    test(`for ${blockedMs} ms ${moment}, all requests are counted`, async () => {
      using guard = await createGuard();
      const admitted = guard.admitAll(repeat(40, 'a'));
      for (let turn = 0; turn < turns; turn += 1) {
        await wait();
        block(blockedMs);
      }
      assert.deepEqual([(await admitted).sort(), guard.told], [counted, []]);
    });
  }

  test('and 3,000 requests wait, all are counted', async () => {
    using guard = await createGuard();
    const admitted = guard.admitAll(Array.from({ length: 3_000 }, (_, index) => `client ${index % 100}`));
    await nextTurn();
    block(400);
    const results = await admitted;
    assert.equal(results.filter((each) => each !== 'refused').length, 1_000);
    assert.deepEqual([results.includes('uncounted'), guard.told], [false, []]);
  });

  test('in every turn in which Redis closes the connection, all requests are counted', async () => {
    await send('ACL SETUSER gateway on >password ~* +@all');
    using guard = await createGuard(`redis://gateway:password@127.0.0.1:${redis.port}/1`);
    const startedAt = performance.now();
    // The end of a younger connection is an outage.
    await poll(() => performance.now() > startedAt + 600, 'the connection is old enough');
    let isBlocking = true;
    const blockEachTurn = (): void => {
      block(60);
      if (isBlocking) setImmediate(blockEachTurn);
    };
    blockEachTurn();
    await send('CLIENT KILL TYPE normal SKIPME yes');
    const results = await guard.admitAll(repeat(40, 'a'));
    isBlocking = false;
    assert.deepEqual([results.sort(), guard.told], [counted, []]);
  });
});
