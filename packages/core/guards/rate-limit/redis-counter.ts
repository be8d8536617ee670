// Counts requests in Redis or Valkey for all gateways that share the server [D47]. Only this file imports ioredis, and
// only if a Redis address is set.

import { isIP } from 'node:net';

import type { Redis } from 'ioredis';

import { describeError, nodeAuthorities, type Peer } from '../../backend/describe-error.ts';
import { explainLoading } from '../ports/missing-package.ts';
import type { Counter, Taken } from '../ports/ports.ts';
import { limitMax, type Rate } from '../../options/rate.ts';
import { systemClock } from '../time/clock.ts';
import { LateError, within } from '../time/deadline.ts';

// Redis runs this script atomically. A key's window begins with its first request and ends when the key expires. The
// script returns the requests left after this request (-1 if the limit was reached), and the milliseconds until the window
// ends. A value with a wrong type, number or expiry is replaced.
const script = `
local limit, window = tonumber(ARGV[1]), tonumber(ARGV[2])
local value, left = redis.pcall('GET', KEYS[1]), redis.call('PTTL', KEYS[1])
local count = 0
if type(value) == 'table' then
  if string.sub(value.err, 1, 9) ~= 'WRONGTYPE' then
    return value
  end
elseif value and #value <= ${String(limitMax).length} and string.match(value, '^[1-9]%d*$') then
  count = tonumber(value)
end
if count == 0 or left < 1 or left > window then
  count, left = 0, window
end
if count < limit then
  redis.call('SET', KEYS[1], count + 1, 'PX', left)
end
return { math.max(-1, limit - count - 1), left }
`;

/** Longest wait of a request for Redis [D47]. */
export const answerMsMax = 100;
// Timeout for connecting. This and `answerMsMax` together are less than a second, because Redis must count again within
// a second after an outage.
const connectMsMax = 350;

interface CountingRedis extends Redis {
  countRequest(key: string, limit: number, windowMs: number): Promise<unknown>;
  /** The first error of the connection, as opposed to an error of a command. */
  failure?: NodeJS.ErrnoException;
}

interface Connection {
  readonly redis: CountingRedis;
  readonly opened: Promise<void>;
  /** Reports once that the server has closed the connection. */
  noteGone(): void;
}

class UnusableRedis extends Error {}

let ioredis: Pick<typeof import('ioredis'), 'Redis' | 'ReplyError'>;

/** Call this before the first `revive`. Rejects with a MissingPackageError if ioredis is not installed. */
export async function loadRedis(): Promise<void> {
  // In a `try`, so that bundlers accept that the package is not installed.
  try {
    ioredis = await import('ioredis');
  } catch (error) {
    throw explainLoading('rateLimitRedisUrl', 'ioredis', error);
  }
}

export class RedisCounter implements Counter {
  readonly #url: URL;
  #onUnusedPassword: () => void;
  #connection: Connection | undefined;

  /**
   * `url`: `redis:` or `rediss:`, with optional user name, password and database number. `onUnusedPassword` is called once
   * if there is a password but the server requires none. Everyone who can reach such a server can use it.
   */
  constructor(url: URL, onUnusedPassword: () => void) {
    this.#url = url;
    this.#onUnusedPassword = onUnusedPassword;
  }

  async take(key: string, rate: Rate): Promise<Taken> {
    for (;;) {
      const connection = this.#connection;
      if (connection === undefined) throw new Error('not connected');
      const { redis, opened } = connection;
      try {
        await opened;
        return await count(redis, key, rate);
      } catch (error) {
        // The end of the server's side is known some time before 'close'.
        if (redis.status === 'ready' && !redis.stream.writable) connection.noteGone();
        // If the connection was lost and has a successor, perhaps Redis has not counted the request.
        if (this.#connection === connection) throw this.#explain(error, redis, false);
      }
    }
  }

  async revive(onGone: () => void): Promise<void> {
    this.close();
    const redis = createRedis(this.#url);
    redis.on('error', (error: Error) => {
      redis.failure ??= error;
    });
    let refusal: unknown;
    // Without a user name, the password may be unused: the server then executes commands without AUTH.
    const onRefused = (error: unknown): void => {
      if (this.#url.username !== '' || !isReplyError(error)) throw error;
      refusal = error;
    };
    const connection: Connection = { redis, opened: this.#open(redis, onRefused), noteGone: () => undefined };
    this.#connection = connection;
    try {
      await connection.opened;
      connection.noteGone = () => {
        connection.noteGone = () => undefined;
        if (this.#connection === connection) onGone();
      };
      // ioredis emits 'close' before it rejects pending commands.
      redis.once('close', () => connection.noteGone());
      // Tests a write, because a server that is read-only, full or still loading its data cannot count.
      await answerOf(count(redis, 'probe', { limit: limitMax, windowMs: 1_000 }));
      if (redis.failure !== undefined || redis.status !== 'ready') {
        throw new UnusableRedis('Redis closed the connection');
      }
    } catch (error) {
      redis.disconnect();
      throw this.#explain(isReplyError(error) ? (refusal ?? error) : error, redis, this.#url.protocol === 'redis:');
    }
    if (refusal !== undefined) {
      this.#onUnusedPassword();
      this.#onUnusedPassword = () => undefined;
    }
  }

  /** The server's name and version, such as `Redis 8.0.2`; undefined if it does not reveal them. */
  async version(): Promise<string | undefined> {
    // INFO fails for a user who is not allowed to run it.
    const text = this.#connection && (await answerOf(this.#connection.redis.info('server')).catch(() => ''));
    const [, name, version] = /^(valkey|redis)_version:([\w.-]{1,40})/m.exec(text ?? '') ?? [];
    return version && `${name === 'valkey' ? 'Valkey' : 'Redis'} ${version}`;
  }

  close(): void {
    this.#connection?.redis.disconnect();
    this.#connection = undefined;
  }

  // AUTH and SELECT are sent together. If AUTH is refused, SELECT fails, too. AUTH is awaited first: only its error shows
  // the cause. ioredis itself would print a warning about an unused password for each connection.
  async #open(redis: CountingRedis, onRefused: (error: unknown) => void): Promise<void> {
    const isTls = this.#url.protocol === 'rediss:';
    // A server without TLS reads a TLS handshake as the beginning of a command, and waits for the rest.
    const message = `no connection within ${connectMsMax} ms${isTls ? ': did you mean redis:?' : ''}`;
    await within(systemClock, connectMsMax, redis.connect(), message);
    const username = decodeURIComponent(this.#url.username);
    const password = decodeURIComponent(this.#url.password);
    const database = Number(this.#url.pathname.slice(1));
    const authenticated =
      username + password === ''
        ? undefined
        : (username === '' ? redis.auth(password) : redis.auth(username, password)).catch(onRefused);
    const selected = database === 0 ? undefined : redis.select(database);
    selected?.catch(() => undefined);
    await answerOf(Promise.resolve(authenticated).then(() => selected));
  }

  // Makes a new error, because the error of ioredis contains the arguments of the command: for AUTH, the password. Some
  // servers repeat user name or password in their message, so both are masked.
  #explain(error: unknown, redis: CountingRedis, mayNeedTls: boolean): Error {
    const { username, password } = this.#url;
    let text = describe(error, redis, mayNeedTls);
    for (const secret of [password, decodeURIComponent(password), username, decodeURIComponent(username)]) {
      if (secret !== '') text = text.replaceAll(secret, '***');
    }
    return new Error(text.slice(0, causeLengthMax));
  }
}

async function count(redis: CountingRedis, key: string, { limit, windowMs }: Rate): Promise<Taken> {
  const name = `work-item-gateway:rate:${windowMs / 1_000}:${key}`;
  const answer: unknown = await redis.countRequest(name, limit, windowMs);
  const [left, msLeft] = Array.isArray(answer) ? (answer as unknown[]) : [];
  if (!isWhole(left, -1) || !isWhole(msLeft, 0)) throw new UnusableRedis('the answer is malformed');
  return { left, msLeft: Math.min(windowMs, Math.max(1, msLeft)) };
}

function isWhole(value: unknown, min: number): value is number {
  return typeof value === 'number' && Number.isSafeInteger(value) && value >= min;
}

const peer: Peer = { name: 'Redis', plainScheme: 'redis:', authorities: nodeAuthorities };
const causeLengthMax = 200;

/** Settles like `answer`, with the time limit of an answer. */
export async function answerOf<T>(answer: Promise<T>): Promise<T> {
  return await within(systemClock, answerMsMax, answer);
}

function isReplyError(error: unknown): boolean {
  return error instanceof ioredis.ReplyError;
}

// Keeps the messages of Redis and of the OS. The errors of ioredis itself have no codes and do not say why a connection
// failed, so the state of the connection distinguishes them. A server with TLS closes or resets a connection without TLS.
function describe(error: unknown, { failure, status }: CountingRedis, mayNeedTls: boolean): string {
  const cause: unknown = isReplyError(error) ? error : (failure ?? error);
  if (cause instanceof UnusableRedis || cause instanceof LateError) return cause.message;
  const { code } = cause as NodeJS.ErrnoException;
  const isOwn = code === undefined && !isReplyError(cause);
  if (isOwn && failure !== undefined) return 'the answer is not the protocol of Redis: is this the address of a Redis?';
  const isClosed = isOwn && status !== 'ready';
  if (mayNeedTls && (isClosed || code === 'ECONNRESET')) {
    return 'Redis closed the connection before it answered: did you mean rediss:?';
  }
  return isClosed ? 'Redis closed the connection' : describeError(cause, peer);
}

// Within a turn of the event loop, and while Redis owes answers, ioredis joins the calls of the script. ioredis connects
// once. It must not reconnect, queue or retry, because the caller does all this. It must not limit times, because its timers
// run before an answer is read.
function createRedis(url: URL): CountingRedis {
  const host = url.hostname.replace(/^\[|\]$/g, '');
  return new ioredis.Redis({
    host,
    port: url.port === '' ? 6_379 : Number(url.port),
    ...(url.protocol === 'rediss:' && {
      tls: { rejectUnauthorized: true, ...(isIP(host) === 0 && { servername: host }) },
    }),
    lazyConnect: true,
    enableAutoPipelining: true,
    retryStrategy: null,
    enableOfflineQueue: false,
    autoResendUnfulfilledCommands: false,
    maxRetriesPerRequest: 0,
    // This check needs the command INFO, which not every user is allowed to run.
    enableReadyCheck: false,
    disableClientInfo: true,
    protocol: 2,
    connectTimeout: 0,
    scripts: { countRequest: { lua: script, numberOfKeys: 1 } },
  }) as CountingRedis;
}
