// Counts requests in Redis or Valkey for all gateways that share the server [D47]. One script call counts for many
// clients. Only this file imports ioredis, and only if a Redis address is set.

import { isIP } from 'node:net';

import type { Redis } from 'ioredis';

import { describeError, nodeAuthorities, type Peer } from '../../backend/describe-error.ts';
import { explainLoading } from '../ports/missing-package.ts';
import { systemClock } from '../time/clock.ts';
import { limitMax } from '../../options/rate.ts';
import type { Counter, Question } from '../ports/ports.ts';
import { LateError, noAnswerWithin, within } from '../time/deadline.ts';
import { isAnswer } from './shared-count.ts';

// Redis runs this script atomically. A key's window begins with its first request and ends when the key expires. The
// script returns two numbers per key: the requests left after this request (-1 if the limit was reached), and the
// milliseconds until the window ends. If a key's value has a wrong type, number or expiry, the script replaces the value.
// If the script failed instead, all other keys of the call would fail too.
const script = `
local limit, window = tonumber(ARGV[1]), tonumber(ARGV[2])
local answer = {}
for index, key in ipairs(KEYS) do
  local count, left = 0, window
  local value = redis.pcall('GET', key)
  if type(value) == 'table' then
    if string.sub(value.err, 1, 9) ~= 'WRONGTYPE' then
      return value
    end
  elseif value and #value <= ${String(limitMax).length} and string.match(value, '^[1-9]%d*$') then
    count, left = tonumber(value), redis.call('PTTL', key)
    if left < 0 or left > window then
      count, left = 0, window
    end
  end
  if count == 0 then
    redis.call('SET', key, 1, 'PX', window)
  elseif count < limit then
    redis.call('INCR', key)
  end
  answer[index * 2 - 1] = math.max(-1, limit - count - 1)
  answer[index * 2] = left
end
return answer
`;

/** Prefix of keys, followed by the window in seconds and the client. */
const keyPrefix = 'work-item-gateway:rate:';
/** Longest wait of a request for Redis [D47]. */
export const answerMsMax = 100;
// Timeout for connecting. This and `answerMsMax` together are less than a second, because Redis must count again within
// a second after an outage.
const connectMsMax = 350;

interface CountingRedis extends Redis {
  countRates(keys: number, ...keysAndArguments: (string | number)[]): Promise<number[]>;
  /** The first error of the connection, as opposed to an error of a command. */
  failure?: NodeJS.ErrnoException;
}

class UnusableRedis extends Error {}

type Library = Pick<typeof import('ioredis'), 'Redis' | 'ReplyError'>;
let ioredis: Library | undefined;

/** Rejects with a MissingPackageError if ioredis is not installed. */
export async function loadRedis(): Promise<Library> {
  // In a `try`, so that bundlers accept that the package is not installed.
  try {
    return (ioredis ??= await import('ioredis'));
  } catch (error) {
    throw explainLoading('rateLimitRedisUrl', 'ioredis', error);
  }
}

function isReplyError(error: unknown): boolean {
  return ioredis !== undefined && error instanceof ioredis.ReplyError;
}

export class RedisCounter implements Counter {
  readonly #url: URL;
  #onUnusedPassword: () => void;
  #redis: CountingRedis | undefined;
  // Reports that the server has closed the connection; reports it once.
  #noteGone = (): void => undefined;

  /**
   * `url`: `redis:` or `rediss:`, with optional user name, password and database number. `onUnusedPassword` is called once
   * if there is a password but the server requires none. Everyone who can reach such a server can use it.
   */
  constructor(url: URL, onUnusedPassword: () => void) {
    this.#url = url;
    this.#onUnusedPassword = onUnusedPassword;
  }

  async ask({ rate: { limit, windowMs }, keys }: Question): Promise<readonly number[]> {
    const redis = this.#redis;
    if (redis === undefined) throw new Error('not connected');
    // The end of the server's side is known some time before 'close'.
    if (!redis.stream.writable) {
      this.#noteGone();
      throw new UnusableRedis('Redis closed the connection');
    }
    try {
      const prefix = `${keyPrefix}${windowMs / 1_000}:`;
      return await redis.countRates(keys.length, ...keys.map((key) => prefix + key), limit, windowMs);
    } catch (error) {
      throw this.#hideSecrets(describeAnswering(error, redis));
    }
  }

  async revive(onGone: () => void): Promise<void> {
    this.close();
    // Loaded already, except by `check`: `close` must not run during this wait.
    const redis = createRedis(ioredis ?? (await loadRedis()), this.#url);
    this.#redis = redis;
    redis.on('error', (error: Error) => {
      redis.failure ??= error;
    });
    let refusal: unknown;
    try {
      await within(systemClock, connectMsMax, redis.connect(), this.#noConnection);
      const authenticated = this.#authenticate(redis).catch((error: unknown) => {
        // Without a user name, the password may be unused: the server then executes commands without AUTH.
        if (this.#url.username !== '' || !isReplyError(error)) throw error;
        refusal = error;
      });
      const database = Number(this.#url.pathname.slice(1));
      // AUTH and SELECT are sent together. If AUTH is refused, SELECT fails, too. AUTH is awaited first:
      // only its error shows the cause.
      const selected = database === 0 ? undefined : redis.select(database);
      selected?.catch(() => undefined);
      await answerOf(authenticated.then(() => selected));
      // Tests a write, because a server that is read-only, full or still loading its data cannot count.
      if (!isAnswer(await answerOf(redis.countRates(1, `${keyPrefix}probe`, limitMax, 1_000)), 1)) {
        throw new UnusableRedis('the answer is malformed');
      }
      if (redis.failure !== undefined || redis.status !== 'ready')
        throw new UnusableRedis('Redis closed the connection');
      if (refusal !== undefined) {
        this.#onUnusedPassword();
        this.#onUnusedPassword = () => undefined;
      }
      this.#noteGone = () => {
        this.#noteGone = () => undefined;
        onGone();
      };
      // ioredis emits 'close' before it rejects pending commands, as `Counter.revive` requires.
      redis.once('close', () => {
        if (this.#redis === redis) this.#noteGone();
      });
    } catch (error) {
      const refused = isReplyError(error) ? (refusal ?? error) : error;
      const cause = describeConnecting(redis.failure ?? refused, redis, this.#url.protocol === 'rediss:');
      redis.disconnect();
      throw this.#hideSecrets(cause);
    }
  }

  // A server without TLS reads a TLS handshake as the beginning of a command, and waits for the rest.
  get #noConnection(): string {
    return `no connection within ${connectMsMax} ms${this.#url.protocol === 'rediss:' ? ': did you mean redis:?' : ''}`;
  }

  /** The server's name and version, such as `Redis 8.0.2`; undefined if it does not reveal them. */
  async version(): Promise<string | undefined> {
    // INFO fails for a user who is not allowed to run it.
    const text = this.#redis === undefined ? '' : await answerOf(this.#redis.info('server')).catch(() => '');
    const valkey = /^valkey_version:([\w.-]{1,40})/m.exec(text)?.[1];
    if (valkey !== undefined) return `Valkey ${valkey}`;
    const redis = /^redis_version:([\w.-]{1,40})/m.exec(text)?.[1];
    return redis && `Redis ${redis}`;
  }

  close(): void {
    this.#noteGone = () => undefined;
    this.#redis?.disconnect();
    this.#redis = undefined;
  }

  // Sends AUTH itself, because ioredis would print a warning about an unused password for each connection.
  async #authenticate(redis: Redis): Promise<void> {
    const username = decodeURIComponent(this.#url.username);
    const password = decodeURIComponent(this.#url.password);
    if (username !== '') {
      await redis.auth(username, password);
    } else if (password !== '') {
      await redis.auth(password);
    }
  }

  // Makes a new error, because the error of ioredis contains the arguments of the command: for AUTH, the password. Some
  // servers repeat user name or password in their message, so both are masked.
  #hideSecrets(cause: string): Error {
    const { username, password } = this.#url;
    const secrets = [password, decodeURIComponent(password), username, decodeURIComponent(username)];
    const text = secrets.filter((each) => each !== '').reduce((words, each) => words.replaceAll(each, '***'), cause);
    return new Error(text.slice(0, causeLengthMax));
  }
}

const peer: Peer = { name: 'Redis', plainScheme: 'redis:', authorities: nodeAuthorities };
const causeLengthMax = 200;

/** Settles like `answer`, with the time limit of an answer. */
export async function answerOf<T>(answer: Promise<T>): Promise<T> {
  return await within(systemClock, answerMsMax, answer, noAnswerWithin(answerMsMax));
}

// Detects a wrong scheme: a server with TLS closes or resets a connection without TLS.
function describeConnecting(error: unknown, redis: CountingRedis, isTls: boolean): string {
  const { code } = error as NodeJS.ErrnoException;
  return !isTls && (code === 'ECONNRESET' || faultOf(error, redis) === 'closed')
    ? 'Redis closed the connection before it answered: did you mean rediss:?'
    : describeAnswering(error, redis);
}

const causes = {
  closed: 'Redis closed the connection',
  malformed: 'the answer is not the protocol of Redis: is this the address of a Redis?',
};

// Keeps the messages of Redis and of the OS.
function describeAnswering(error: unknown, redis: CountingRedis): string {
  if (error instanceof UnusableRedis || error instanceof LateError) return error.message;
  const fault = faultOf(error, redis);
  return fault === undefined ? describeError(error, peer) : causes[fault];
}

// The errors of ioredis itself have no codes, so the state of the connection distinguishes them. Undefined for an error
// of Redis or of the OS.
function faultOf(error: unknown, { failure, status }: CountingRedis): keyof typeof causes | undefined {
  if (isReplyError(error) || (error as NodeJS.ErrnoException).code !== undefined) return undefined;
  if (failure !== undefined && failure.code === undefined) return 'malformed';
  return status === 'ready' ? undefined : 'closed';
}

// ioredis connects once. It must not reconnect, queue or retry, because the caller does all this. It must not limit times,
// because its timers run before an answer is read.
function createRedis(library: Library, url: URL): CountingRedis {
  const host = url.hostname.replace(/^\[|\]$/g, '');
  return new library.Redis({
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
    // This check needs the command INFO, which not every user is allowed to run.
    enableReadyCheck: false,
    disableClientInfo: true,
    protocol: 2,
    connectTimeout: 0,
    scripts: { countRates: { lua: script } },
  }) as CountingRedis;
}
