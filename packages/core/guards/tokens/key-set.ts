// Keeps the issuer's keys up to date in the background [D44]: fetches them from an address or reads a file. Decides when
// to fetch, when to retry a failed fetch, and how long the keys stay valid. signing-keys.ts parses the keys.

import { createReadStream } from 'node:fs';
import type { IncomingMessage } from 'node:http';
import type { Agent } from 'node:https';
import { addAbortSignal } from 'node:stream';

import { describeError, nodeAuthorities, type Peer } from '../../backend/describe-error.ts';
import type { Clock } from '../time/clock.ts';
import type { GuardSettings } from '../../options/guard-options.ts';
import type { FetchedKeys, GuardObserver } from '../ports/ports.ts';
import { findProxyEnv } from '../ports/egress-proxy.ts';
import { within } from '../time/deadline.ts';
import { fingerprintOf, readSigningKeys, type SigningKey } from './signing-keys.ts';

// Node's HTTP client, because `fetch` needs 16 MB of memory.
const http = process.getBuiltinModule('node:http');
const https = process.getBuiltinModule('node:https');

/** Reads the text of a JSON Web Key Set. */
type KeySource = (signal: AbortSignal) => Promise<string>;

export interface KeySetOptions {
  readonly settings: Pick<GuardSettings, 'authAlgorithms' | 'authJwksRefreshMs' | 'authJwksStaleMs'>;
  readonly source: KeySource;
  readonly clock: Clock;
  readonly observer: Pick<GuardObserver, 'onKeys' | 'onFetch'>;
  /** Called with each key set that was fetched and parsed, to keep it for guards that are created later. Must not throw. */
  readonly share?: ((keys: FetchedKeys) => void) | undefined;
}

/** Largest key set, in bytes. A typical set has a few keys of a kilobyte each. */
export const keySetBytesMax = 1_048_576;
// Timeout of a fetch, in ms. A request waits for at most three fetches: the first, one in progress, and one for a new key.
const fetchTimeoutMs = 5_000;
const forcedFetchMs = 30_000;
const retryMinMs = 1_000;
const retryMaxMs = 30_000;
const noKeys: readonly SigningKey[] = [];

export class KeySet {
  /** The first fetch while it is in progress, so that requests can wait for it; otherwise undefined. */
  first: Promise<void> | undefined;
  readonly #options: KeySetOptions;
  #keys = noKeys;
  /** Start of the fetch that returned `#keys`, on the steady clock. `#keys` may lack keys published after that time. */
  #keysAt = -Infinity;
  #forcedAt = -Infinity;
  #retryMs = retryMinMs;
  #fetching: Promise<void> | undefined;
  #callOff = (): void => undefined;
  readonly #closed = new AbortController();

  constructor(options: KeySetOptions) {
    this.#options = options;
  }

  /** Uses keys fetched `ageMs` ago, by another process or before a reload. Call this method before `start`. */
  async inherit({ text, ageMs }: FetchedKeys): Promise<void> {
    const { settings, clock, observer } = this.#options;
    const { keys } = await readSigningKeys(text, settings.authAlgorithms);
    if (keys.length > 0) {
      this.#keys = keys;
      this.#keysAt = clock.steady() - ageMs;
      observer.onKeys(keys);
    }
  }

  /** Fetches the keys regularly until `close`. Resolves when the first fetch has succeeded or failed. */
  async start(): Promise<void> {
    const fetching = this.#fetch();
    // With inherited keys, requests need not wait for the first fetch.
    this.first = this.#keys === noKeys ? fetching : undefined;
    await fetching;
    this.first = undefined;
  }

  close(): void {
    this.#callOff();
    this.#closed.abort();
  }

  /** The keys that are valid now. Empty until usable keys are fetched, and if the last successful fetch is too old. */
  get current(): readonly SigningKey[] {
    return this.staleAt > this.#options.clock.steady() ? this.#keys : noKeys;
  }

  /** The time at which the keys become invalid, on the steady clock. */
  get staleAt(): number {
    return this.#keysAt + this.#options.settings.authJwksStaleMs;
  }

  /**
   * Fetches the keys because none of them verifies a token. Returns the fetch in progress, or starts a fetch. Returns
   * undefined after `close`, and within 30 s of the last fetch that this method started.
   */
  seek(): Promise<void> | undefined {
    const now = this.#options.clock.steady();
    if (this.#fetching !== undefined || this.#closed.signal.aborted) return this.#fetching;
    if (now - this.#forcedAt < forcedFetchMs) return undefined;
    this.#forcedAt = now;
    return this.#fetch();
  }

  #fetch(): Promise<void> {
    this.#callOff();
    this.#fetching = this.#fetchOnce();
    return this.#fetching;
  }

  async #fetchOnce(): Promise<void> {
    const { settings, source, clock, observer, share } = this.#options;
    const startedAt = clock.steady();
    try {
      const text = await fetchText(source, clock, this.#closed.signal);
      const { keys, flaws } = await readSigningKeys(text, settings.authAlgorithms);
      this.#keysAt = startedAt;
      if (this.#keys === noKeys || fingerprintOf(keys) !== fingerprintOf(this.#keys)) {
        this.#keys = keys;
        observer.onKeys(keys);
      }
      share?.({ text, ageMs: clock.steady() - startedAt });
      observer.onFetch(keys.length === 0 ? explainNoKeys(flaws) : undefined, true);
    } catch (error) {
      if (!this.#closed.signal.aborted) observer.onFetch(describeFetchError(error), false);
    } finally {
      this.#fetching = undefined;
      this.#schedule();
    }
  }

  #schedule(): void {
    if (this.#closed.signal.aborted) return;
    const { clock, settings } = this.#options;
    let waitMs = this.#retryMs;
    if (this.current.length > 0) {
      this.#retryMs = retryMinMs;
      // The next fetch starts at the latest when the keys become invalid, because requests fail from then on.
      waitMs = Math.min(settings.authJwksRefreshMs, Math.ceil(this.staleAt - clock.steady()));
    } else {
      this.#retryMs = Math.min(this.#retryMs * 2, retryMaxMs);
    }
    this.#callOff = clock.after(waitMs, () => void this.#fetch());
  }
}

export async function fetchText(source: KeySource, clock: Clock, closed?: AbortSignal): Promise<string> {
  const deadline = new AbortController();
  const signal = closed === undefined ? deadline.signal : AbortSignal.any([deadline.signal, closed]);
  const message = `no complete answer within ${fetchTimeoutMs} ms`;
  return await within(clock, fetchTimeoutMs, source(signal), message, () => deadline.abort());
}

function explainNoKeys(flaws: readonly string[]): string {
  return flaws.length === 0
    ? 'the key set is empty: it has no keys'
    : `the key set has no usable key (${flaws.join('; ')})`;
}

/**
 * Returns the source that the settings name. TLS is verified with the certificate authorities that Node trusts.
 * Redirects are not followed, so that keys come only from the address that was set.
 */
export function createKeySource({
  authJwksUrl,
  authJwksFile,
}: Pick<GuardSettings, 'authJwksUrl' | 'authJwksFile'>): KeySource {
  return async (signal) => {
    if (authJwksUrl === '') return await readText(createReadStream(authJwksFile));
    const answer = await get(new URL(authJwksUrl), signal);
    try {
      const { statusCode = 0, headers } = answer;
      if (statusCode !== 200) throw new Error(`the issuer answered with status ${statusCode}`);
      if (!/^(?:identity)?$/i.test(headers['content-encoding'] ?? '')) {
        throw new Error(
          'the issuer compressed the key set, but must answer accept-encoding: identity without compression',
        );
      }
      return await readText(answer);
    } finally {
      answer.destroy();
    }
  };
}

async function get(url: URL, signal: AbortSignal): Promise<IncomingMessage> {
  const isTls = url.protocol === 'https:';
  return await new Promise<IncomingMessage>((resolve, reject) => {
    const request = (isTls ? https : http)
      .request(url, {
        // The connection is not kept open, since the next fetch is minutes away. Without TLS, no proxy is used, because it
        // could replace the keys.
        agent: isTls && createProxyAgent(signal),
        rejectUnauthorized: true,
        headers: {
          accept: 'application/jwk-set+json, application/json',
          // Without this field, a server may compress its answer [RFC 9110, 12.5.3].
          'accept-encoding': 'identity',
          'user-agent': 'work-item-gateway',
        },
        signal,
      })
      .on('response', resolve)
      .on('error', reject)
      // Sent after the handshake, because a write before it takes the code away from the error of a failed handshake.
      .on('socket', (socket) => {
        // Through a proxy, the handshake has already ended.
        if ((socket as { readonly secureConnecting?: boolean }).secureConnecting === false) request.end();
        else socket.once(isTls ? 'secureConnect' : 'connect', () => request.end());
      });
  });
}

/** Returns an agent for one request through Node's proxy, or false if Node uses no proxy. */
function createProxyAgent(signal: AbortSignal): Agent | false {
  const proxyEnv = findProxyEnv(https.globalAgent);
  if (proxyEnv === undefined) return false;
  const agent = new https.Agent({ proxyEnv });
  const connect = agent.createConnection.bind(agent);
  agent.createConnection = (options, callback) => {
    const connection = connect(options, callback);
    // Node does not close the connection of an aborted request before the proxy has answered.
    return connection && addAbortSignal(signal, connection);
  };
  return agent;
}

async function readText(stream: AsyncIterable<unknown>): Promise<string> {
  const pieces: Buffer[] = [];
  let length = 0;
  for await (const piece of stream as AsyncIterable<Buffer>) {
    pieces.push(piece);
    length += piece.length;
    if (length > keySetBytesMax) throw new Error(`the key set is larger than ${keySetBytesMax} bytes`);
  }
  try {
    return new TextDecoder('utf-8', { fatal: true }).decode(Buffer.concat(pieces));
  } catch {
    throw new Error('the key set is not UTF-8');
  }
}

const issuer: Peer = { name: 'the issuer', plainScheme: 'http:', authorities: nodeAuthorities };

export function describeFetchError(error: unknown): string {
  // If several addresses failed, the errors in the AggregateError say why. The AggregateError itself does not.
  const errors: readonly unknown[] = error instanceof AggregateError ? error.errors : [error];
  return errors.map((each) => describeError(each, issuer)).join('; ');
}
