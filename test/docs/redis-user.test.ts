// The Redis user of docs/security.md can count requests and do nothing else.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Redis } from 'ioredis';
import { loadRedis, RedisCounter } from '../../packages/core/guards/rate-limit/redis-counter.ts';
import { poll } from '../helpers/changes.ts';
import { runCommand, startCommand } from '../helpers/command.ts';
import { codeBlock } from '../helpers/documents.ts';
import { redisPrograms, RedisServer, withoutRedis } from '../helpers/redis.ts';
import { useBackend } from '../helpers/suites.ts';

const backend = await useBackend('{"id":5}');
const line = codeBlock('docs/security.md', 'ACL SETUSER').trim();
const rights = line.split(' ').filter((word) => word.startsWith('+'));
const ours = 'work-item-gateway:rate:60:203.0.113.1';
const refused = [
  'KEYS *', 'SCAN 0', 'FLUSHALL', 'FLUSHDB', 'CONFIG GET *', 'INFO', 'MONITOR', 'SHUTDOWN', 'ACL LIST',
  'CLIENT LIST', 'CLIENT KILL TYPE normal', 'CLIENT PAUSE 1', 'SCRIPT FLUSH', 'FUNCTION LIST', 'PUBLISH a b', 'SUBSCRIBE a',
  'GET other', 'SET other 1', 'INCR other', 'PTTL other', `DEL ${ours}`, `EXPIRE ${ours} 1`, `RENAME ${ours} other`,
  'EVAL return(redis.call("GET","other")) 0', 'EVAL return(redis.call("SET",KEYS[1],1)) 1 other', 'EVAL return(redis.call("FLUSHALL")) 0',
]; // prettier-ignore

/** Uses the user for all that a gateway does: connects twice, counts one key several times, and counts after its expiry. */
async function countAll(redis: RedisServer): Promise<number[]> {
  // The first request loads the script.
  await redis.send('SCRIPT FLUSH');
  await redis.send('FLUSHALL');
  await loadRedis();
  const counter = new RedisCounter(new URL(`redis://gateway:password@127.0.0.1:${redis.port}/1`), () => undefined);
  const left = async (key: string) => (await counter.take(key, { limit: 3, windowMs: 60_000 })).left;
  try {
    await counter.revive(() => undefined);
    const lefts = await Promise.all(['a', 'a'].map(left));
    await counter.revive(() => undefined);
    lefts.push(...(await Promise.all(['a', 'b', 'a'].map(left))));
    const key = 'work-item-gateway:rate:60:a';
    const admin = new Redis({ port: redis.port, db: 1 });
    await admin.pexpire(key, 1);
    await poll(async () => (await admin.exists(key)) === 0, 'the key expires');
    admin.disconnect();
    return [...lefts, await left('a')];
  } finally {
    counter.close();
  }
}

for (const { name, program } of redisPrograms.length > 0 ? redisPrograms : [{ name: 'Redis', program: undefined }]) {
  test(`${name}: the user of docs/security.md can only count requests`, { skip: withoutRedis }, async () => {
    await using redis = await RedisServer.start({ ...(program !== undefined && { program }) });
    for (const right of rights) {
      await redis.send(line.replace(` ${right}`, ''));
      await assert.rejects(countAll(redis), /NOPERM|No permissions|can't run this command/i, `without ${right}`);
    }
    assert.equal(await redis.send(line), '+OK\r\n', line);
    assert.deepEqual(await countAll(redis), [2, 1, 0, 2, -1, 2]);
    const environment = {
      ...{ BACKEND_URL: backend.url, RATE_LIMIT: '1000/1h' },
      RATE_LIMIT_REDIS_URL: `redis://gateway:password@127.0.0.1:${redis.port}/1`,
      // Only calls that Redis has counted are accepted.
      RATE_LIMIT_FALLBACK: 'deny',
    };
    await using gateway = await startCommand(environment);
    const isCounted = async () => (await gateway.call('GET', '/api/work-items/5')).status === 200;
    await poll(isCounted, 'Redis counts a call');
    for (const time of ['second', 'third']) assert.ok(await isCounted(), `Redis counts a ${time} call of the client`);
    for (const [sign, version] of [
      ['-', 'unknown version'],
      ['+', String.raw`(Redis|Valkey) \d`],
    ] as const) {
      await redis.send(`ACL SETUSER gateway ${sign}info`);
      const said = new RegExp(`^rate limit: Redis at .* counted a request in .*\\(${version}`, 'm');
      await poll(async () => {
        await using command = runCommand(['check'], environment);
        return (await command.exitCode()) === 0 && said.test(command.stdout);
      }, String(said));
    }
    await redis.send('ACL SETUSER gateway -info');
    const login = { port: redis.port, username: 'gateway', password: 'password', protocol: 2 } as const;
    const user = new Redis({ ...login, enableReadyCheck: false, disableClientInfo: true, retryStrategy: null });
    try {
      assert.equal(await user.set(ours, 1), 'OK');
      for (const command of refused) {
        const [word = '', ...more] = command.split(' ');
        const denied = /NOPERM|No permissions|can't (run this command|access at least one of the keys)/;
        await assert.rejects(user.call(word, ...more), denied, command);
      }
    } finally {
      user.disconnect();
    }
  });
}
