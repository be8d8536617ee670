// Counts in Redis, or Valkey, for all gateways that share it [D47]: one script for many clients, on one connection. The only
// file that knows ioredis, and is loaded only where there is an address of a Redis.

import { isIP } from 'node:net';

import { Redis } from 'ioredis';

import { describeError, nodeAuthorities, type Peer } from '../../backend/describe-error.ts';
import { limitMax } from '../options/rate.ts';
import type { Counter, Question } from '../options/ports.ts';

// No rate has a greater one.
const countDigitsMax = String(limitMax).length;

// A key's count lives as long as its window, which begins with the first request. In Redis a script is one step: no other
// gateway comes between. Gives what is granted of each key, the milliseconds that its window still lasts, and what it has left.
// What somebody else has written there is no count of ours: no whole number as we write it, of another type, without an end,
// or with one beyond the window. That key begins anew; an error would be one for every other key of the question as well.
const script = `
local limit, window = tonumber(ARGV[1]), tonumber(ARGV[2])
local next_wanted = string.gmatch(ARGV[3], '%d+')
local answer = {}
for index, key in ipairs(KEYS) do
  local wanted = tonumber(next_wanted())
  local count, left = 0, window
  local value = redis.pcall('GET', key)
  if type(value) == 'table' then
    if string.sub(value.err, 1, 9) ~= 'WRONGTYPE' then
      return value
    end
  elseif value and #value <= ${countDigitsMax} and string.match(value, '^[1-9]%d*$') then
    count, left = tonumber(value), redis.call('PTTL', key)
    if left < 0 or left > window then
      count, left = 0, window
    end
  end
  local granted = math.max(0, math.min(wanted, limit - count))
  if count == 0 then
    redis.call('SET', key, granted, 'PX', window)
  elseif granted > 0 then
    redis.call('INCRBY', key, granted)
  end
  answer[index * 3 - 2] = granted
  answer[index * 3 - 1] = left
  answer[index * 3] = math.max(0, limit - count - granted)
end
return answer
`;

/** What keys begin with; then the window in seconds, and the client. */
const keyPrefix = 'work-item-gateway:rate:';
/** No request waits longer for Redis [D47]. */
export const answerMsMax = 100;
// With an answer's time well below the second within which it is to count again.
const connectMsMax = 350;

interface CountingRedis extends Redis {
  countRates(keys: number, ...keysAndArguments: (string | number)[]): Promise<number[]>;
}

export class RedisCounter implements Counter {
  readonly #url: URL;
  #redis: CountingRedis | undefined;
  readonly #onIdlePassword: () => void;
  #isIdleTold = false;

  /**
   * At `url`: `redis:` or `rediss:`, with or without user name, password and number of the database. `onIdlePassword` is told
   * once that there is a password and the server asks for none, so that it counts for everybody who can reach it.
   */
  constructor(url: URL, onIdlePassword: () => void) {
    this.#url = url;
    this.#onIdlePassword = onIdlePassword;
  }

  async ask({ rate, keys, wanted }: Question): Promise<readonly number[]> {
    const redis = this.#redis;
    if (redis === undefined) {
      throw new Error('there is no connection');
    }
    try {
      const { limit, windowMs } = rate;
      const prefix = `${keyPrefix}${windowMs / 1_000}:`;
      const names = keys.map((key) => prefix + key);
      return await redis.countRates(keys.length, ...names, limit, windowMs, wanted.join());
    } catch (error) {
      throw this.#describe(describeError(error, peer));
    }
  }

  async revive(onGone: () => void): Promise<void> {
    this.close();
    const redis = createRedis(this.#url);
    this.#redis = redis;
    let failure: Error | undefined;
    redis.on('error', (error: Error) => {
      failure ??= error;
    });
    try {
      await redis.connect();
      const database = Number(this.#url.pathname.slice(1));
      // Both are on their way at once. Answers come in turn: the first that fails is the reason.
      await Promise.all([this.#authenticate(redis), database === 0 ? undefined : redis.select(database)]);
      // Not merely there: one that is read-only, full or still loading cannot count. So something is written each time.
      const answer: unknown = await redis.countRates(1, `${keyPrefix}probe`, limitMax, 1_000, '1');
      const isAnswer = Array.isArray(answer) && answer.length === 3 && answer.every(Number.isSafeInteger);
      if (!isAnswer) {
        throw new Error('what it answers makes no sense');
      }
      if (failure !== undefined || redis.status !== 'ready') {
        throw new Error('it has closed the connection');
      }
      // Its commands are rejected after this.
      redis.once('close', () => {
        if (this.#redis === redis) {
          onGone();
        }
      });
    } catch (error) {
      redis.disconnect();
      throw this.#describe(describeConnecting(failure ?? error, this.#url.protocol === 'rediss:'));
    }
  }

  /** What answers, for people: `Redis 8.0.2`; undefined where it does not say. */
  async version(): Promise<string | undefined> {
    try {
      const text = (await this.#redis?.info('server')) ?? '';
      const [, name, version] =
        /^(redis|valkey)_version:([\w.-]{1,40})/m.exec(
          text.replace(/^redis_version.*\r?\n(?=[^]*^valkey_version)/m, ''),
        ) ?? [];
      return name === undefined ? undefined : `${name === 'valkey' ? 'Valkey' : 'Redis'} ${version ?? ''}`;
    } catch {
      // Not every user may ask.
      return undefined;
    }
  }

  close(): void {
    this.#redis?.disconnect();
    this.#redis = undefined;
  }

  // Not left to the library, which writes to standard error that a password is idle, at each connection.
  async #authenticate(redis: Redis): Promise<void> {
    const username = decodeURIComponent(this.#url.username);
    const password = decodeURIComponent(this.#url.password);
    try {
      if (username !== '') {
        await redis.auth(username, password);
      } else if (password !== '') {
        await redis.auth(password);
      }
    } catch (error) {
      if (!(error instanceof Error && idlePasswordPattern.test(error.message))) {
        throw error;
      }
      if (!this.#isIdleTold) {
        this.#isIdleTold = true;
        this.#onIdlePassword();
      }
    }
  }

  // Words only: the library's errors carry the command with its arguments, and with AUTH that is the password. Some servers
  // repeat it in their words, too.
  #describe(words: string): Error {
    let text = words;
    const { username, password } = this.#url;
    for (const secret of [password, decodeURIComponent(password), username, decodeURIComponent(username)]) {
      if (secret !== '') {
        text = text.replaceAll(secret, '***');
      }
    }
    return new Error(text.slice(0, causeLengthMax));
  }
}

const peer: Peer = { name: 'Redis', plainScheme: 'redis:', authorities: nodeAuthorities };
const causeLengthMax = 200;
// Up to Redis 5, and from 6 on.
const idlePasswordPattern = /no password is set|without any password configured/;

// One that speaks no TLS waits for more of a command; one that does closes what is none, or resets it.
function describeConnecting(error: unknown, isTls: boolean): string {
  const { code, syscall, message } = error as NodeJS.ErrnoException;
  if (code === 'ETIMEDOUT' && syscall === 'connect') {
    const question = isTls ? ': does it speak TLS there, or is it redis:?' : '';
    return `no connection within ${connectMsMax} ms${question}`;
  }
  return !isTls && (code === 'ECONNRESET' || message === 'Connection is closed.')
    ? 'Redis closed the connection before it answered: does it speak TLS there (rediss:)?'
    : describeError(error, peer);
}

// It connects once and never again by itself, queues nothing, and waits for nothing: whoever asks decides all that.
function createRedis(url: URL): CountingRedis {
  const host = url.hostname.replace(/^\[|\]$/g, '');
  return new Redis({
    host,
    port: url.port === '' ? 6_379 : Number(url.port),
    ...(url.protocol === 'rediss:' && {
      tls: { rejectUnauthorized: true, ...(isIP(host) === 0 && { servername: host }) },
    }),
    lazyConnect: true,
    retryStrategy: null,
    enableOfflineQueue: false,
    autoResendUnfulfilledCommands: false,
    maxRetriesPerRequest: 0,
    // Needs INFO, which not every user may ask.
    enableReadyCheck: false,
    disableClientInfo: true,
    protocol: 2,
    connectTimeout: connectMsMax,
    commandTimeout: answerMsMax,
    scripts: { countRates: { lua: script } },
  }) as CountingRedis;
}
