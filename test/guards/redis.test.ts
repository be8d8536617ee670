// RedisCounter counts in a real Redis [D47]. test/process/rate-limit.test.ts tests gateways that share a Redis, and
// test/unit/redis-counter.test.ts tests servers that are not a Redis.

import assert from 'node:assert/strict';
import { afterEach, describe, test } from 'node:test';
import { getCACertificates, setDefaultCACertificates } from 'node:tls';
import { tryRedis } from '../../packages/core/guards/rate-limit/part.ts';
import { RedisCounter } from '../../packages/core/guards/rate-limit/redis-counter.ts';
import { CertificateFolder, noOpenssl } from '../helpers/certificates.ts';
import { poll, within } from '../helpers/changes.ts';
import { RedisServer, withoutRedis } from '../helpers/redis.ts';

const rate = { limit: 3, windowMs: 60_000 };
const noEvent = () => assert.fail('this event is not expected');

const isLate = (error: unknown) => /^no (answer|connection) within \d+ ms$/.test((error as Error).message);

/** Runs `body` as a test. The test is repeated if Redis answers after the time limit, as it can on a busy machine. */
function redisTest(title: string, body: () => Promise<void>): void {
  test(title, async () => {
    for (let round = 1; ; round += 1) {
      try {
        await body();
        return;
      } catch (error) {
        if (round === 5 || !isLate(error)) throw error;
      }
    }
  });
}

/** Returns a connected counter. */
async function open(address: string, onUnusedPassword: () => void = noEvent, onGone: () => void = () => undefined) {
  const counter = new RedisCounter(new URL(address), onUnusedPassword);
  await counter.revive(onGone);
  return Object.assign(counter, { [Symbol.dispose]: () => counter.close() });
}

/** Returns the reason why a counter cannot connect to `address`. */
async function refusal(address: string): Promise<string> {
  const error: unknown = await open(address).catch((each: unknown) => each);
  assert.ok(error instanceof Error, 'the connection is refused');
  if (isLate(error)) throw error;
  return error.message;
}

describe('counts in Redis', { skip: withoutRedis }, () => {
  redisTest('each key has one window for all counters; the answers are in the order of the keys', async () => {
    await using redis = await RedisServer.start();
    using one = await open(redis.url);
    using two = await open(redis.url);
    assert.deepEqual(lefts(await one.ask({ rate, keys: ['a', 'b', 'a'] })), [2, 2, 1]);
    assert.deepEqual(lefts(await two.ask({ rate, keys: ['a', 'a', 'b'] })), [0, -1, 1]);
    const [, msLeft = 0] = await one.ask({ rate, keys: ['a'] });
    assert.ok(msLeft > 50_000 && msLeft <= 60_000, String(msLeft));
    // Windows of another length are counted separately.
    assert.deepEqual(lefts(await one.ask({ rate: { limit: 3, windowMs: 1_000 }, keys: ['a'] })), [2]);
    assert.match(String(await redis.send('GET work-item-gateway:rate:60:a')), /^\$1\r\n3\r\n$/);
    assert.match(String(await redis.send('GET work-item-gateway:rate:1:a')), /^\$1\r\n1\r\n$/);
    assert.match(String(await redis.send('GET work-item-gateway:rate:probe')), /^\$\d\r\n\d+\r\n$/);
  });

  redisTest('after a window has ended, a new window begins', async () => {
    await using redis = await RedisServer.start();
    using counter = await open(redis.url);
    await counter.ask({ rate, keys: ['a', 'a', 'a', 'a'] });
    await redis.send('PEXPIRE work-item-gateway:rate:60:a 1');
    await poll(async () => (await redis.send('EXISTS work-item-gateway:rate:60:a')) === ':0\r\n', 'the key expired');
    assert.deepEqual(lefts(await counter.ask({ rate, keys: ['a'] })), [2]);
  });

  redisTest('the database number of the address is used', async () => {
    await using redis = await RedisServer.start();
    using counter = await open(`${redis.url}/7`);
    await counter.ask({ rate, keys: ['a'] });
    assert.match(String(await redis.send('INFO keyspace')), /^db7:keys=2/m);
    using other = await open(`${redis.url}/`);
    assert.deepEqual(lefts(await other.ask({ rate, keys: ['a'] })), [2]);
  });

  redisTest('a lost connection is reported once; a connection that the counter closes is not reported', async () => {
    await using redis = await RedisServer.start();
    let gone = 0;
    using counter = await open(redis.url, noEvent, () => (gone += 1));
    await redis.send('CLIENT KILL TYPE normal SKIPME yes');
    await poll(() => gone === 1, 'the loss is reported');
    const failure =
      /^Error: (Redis closed the connection|Stream isn't writeable and enableOfflineQueue options is false)$/;
    await assert.rejects(counter.ask({ rate, keys: ['a'] }), failure);
    // The second connection replaces the first. The end of the first connection is not reported.
    await counter.revive(() => (gone += 1));
    await counter.revive(noEvent);
    assert.deepEqual(lefts(await counter.ask({ rate, keys: ['a'] })), [2]);
    counter.close();
    await assert.rejects(counter.ask({ rate, keys: ['a'] }), new Error('not connected'));
    await poll(async () => !String(await redis.send('CLIENT LIST')).includes('cmd=eval'), 'all connections are closed');
    assert.equal(gone, 1);
  });

  test('if Redis is stopped, a try to count fails after the time limit', async () => {
    await using redis = await RedisServer.start();
    redis.signal('SIGSTOP');
    await assert.rejects(within(tryRedis(redis.url), 'the limit ends the wait'), new Error('no answer within 100 ms'));
    redis.signal('SIGCONT');
  });

  redisTest('a counter does not connect to a Redis that cannot write', async () => {
    await using redis = await RedisServer.start();
    await redis.send('CONFIG SET maxmemory 1');
    assert.match(await refusal(redis.url), /OOM/);
    await redis.send('CONFIG SET maxmemory 0');
    using counter = await open(redis.url);
    assert.deepEqual(lefts(await counter.ask({ rate, keys: ['a'] })), [2]);
  });
});

describe('authentication', { skip: withoutRedis }, () => {
  redisTest('a password and a user name are sent, with their percent-encoded characters decoded', async () => {
    await using redis = await RedisServer.start({ args: ['--requirepass', 'Tr0ub4dor%&'] });
    const authenticated = `127.0.0.1:${redis.port}/2`;
    using counter = await open(`redis://:Tr0ub4dor%25%26@${authenticated}`);
    assert.deepEqual(lefts(await counter.ask({ rate, keys: ['a'] })), [2]);
    using named = await open(`redis://default:Tr0ub4dor%25%26@${authenticated}`);
    assert.deepEqual(lefts(await named.ask({ rate, keys: ['a'] })), [1]);
    assert.match(await refusal(`redis://:hunter2@${authenticated}`), /^WRONGPASS/);
    assert.match(await refusal(`redis://ada:Tr0ub4dor%25%26@${authenticated}`), /^WRONGPASS/);
    assert.match(await refusal(`redis://${authenticated}`), /^NOAUTH/);
  });

  redisTest('a password that Redis does not require is reported once, and the counter counts', async () => {
    await using redis = await RedisServer.start();
    let reports = 0;
    using counter = await open(`redis://:hunter2@127.0.0.1:${redis.port}`, () => (reports += 1));
    await counter.revive(noEvent);
    assert.deepEqual(lefts(await counter.ask({ rate, keys: ['a'] })), [2]);
    assert.equal(reports, 1);
    assert.match(
      await refusal(`redis://stranger:hunter2@127.0.0.1:${redis.port}`),
      /WRONGPASS|wrong number of arguments/,
    );
  });

  redisTest('tryRedis returns the version, the duration, and whether the password is unused', async () => {
    await using redis = await RedisServer.start();
    const address = `127.0.0.1:${redis.port}`;
    for (const [credentials, hasUnusedPassword] of [['', false], [':hunter2@', true]] as const) {
      const tried = await tryRedis(`redis://${credentials}${address}`);
      assert.match(tried.version ?? '', /^(Redis|Valkey) \d+\.\d/);
      assert.ok(tried.tookMs > 0 && tried.tookMs < 1_000);
      assert.equal(tried.hasUnusedPassword, hasUnusedPassword);
    }
    assert.equal(await redis.send('GET work-item-gateway:rate:1:check'), '$1\r\n1\r\n');
    await poll(async () => !String(await redis.send('CLIENT LIST')).includes('cmd=info'), 'the connection is closed');
    await redis.send('ACL SETUSER silent on >secret ~* +@all -info');
    assert.equal((await tryRedis(`redis://silent:secret@${address}`)).version, undefined);
    await redis.kill();
    await assert.rejects(tryRedis(`redis://${address}`), /^Error: connect ECONNREFUSED 127/);
  }); // prettier-ignore
});

describe('over TLS', { skip: withoutRedis || noOpenssl }, () => {
  const authorities = getCACertificates('default');
  afterEach(() => setDefaultCACertificates(authorities));

  redisTest('the certificate must be valid for the host; a wrong scheme is explained', async () => {
    using folder = new CertificateFolder();
    const authority = folder.authority('authority');
    const tls = { ...folder.issue(authority, 'redis'), caFile: authority.certFile };
    await using redis = await RedisServer.start({ tls });
    assert.match(await refusal(`rediss://localhost:${redis.tlsPort}`), /certificate/);
    setDefaultCACertificates([...authorities, authority.cert]);
    for (const host of ['localhost', '127.0.0.1']) {
      using counter = await open(`rediss://${host}:${redis.tlsPort}`);
      assert.equal((await counter.ask({ rate, keys: [host] }))[0], 2);
    }
    assert.equal(await refusal(`redis://127.0.0.1:${redis.tlsPort}`), 'Redis closed the connection before it answered: did you mean rediss:?');
    const elsewhere = { ...folder.issue(authority, 'elsewhere', { names: ['DNS:elsewhere.example'] }), caFile: authority.certFile };
    await using other = await RedisServer.start({ tls: elsewhere });
    assert.match(await refusal(`rediss://localhost:${other.tlsPort}`), /altnames/);
  }); // prettier-ignore

  redisTest('TLS to a Redis without TLS fails, and the error suggests the other scheme', async () => {
    await using redis = await RedisServer.start();
    const counter = new RedisCounter(new URL(`rediss://127.0.0.1:${redis.port}`), noEvent);
    await assert.rejects(counter.revive(() => undefined), new Error('no connection within 350 ms: did you mean redis:?'));
    counter.close();
  }); // prettier-ignore
});

function lefts(answer: readonly number[]): readonly (number | undefined)[] {
  return answer.filter((_, index) => index % 2 === 0);
}
