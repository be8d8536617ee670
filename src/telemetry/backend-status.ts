// Does the backend answer? As the last call showed, or, when the last one is old, a bare TCP connect; never
// an HTTP call of our own [D34]. It takes nobody out of rotation: it only says what it knows.

import { connect } from 'node:net';

export interface BackendStatus {
  readonly isReachable: boolean;
  /** Since when it has been so, in milliseconds since 1970. */
  readonly since: number;
  /** Why it does not answer; undefined while it does. */
  readonly cause: string | undefined;
  /** When that was last seen, in milliseconds since 1970. */
  readonly seenAt: number;
}

/** What was seen last, when several processes look at one backend; undefined without any. */
export function latestBackendStatus(statuses: readonly BackendStatus[]): BackendStatus | undefined {
  return statuses.toSorted((one, other) => other.seenAt - one.seenAt).at(0);
}

/**
 * What several processes have seen of one backend, as one: since when it is as it is does not change because a worker
 * has gone, or a new one has seen it for the first time.
 */
export class JoinedBackendStatus {
  #last: BackendStatus | undefined;

  /** Takes in what each process knows now; gives it to each. */
  join<T extends { readonly backend: BackendStatus }>(all: readonly T[]): readonly T[] {
    const latest = latestBackendStatus(all.map(({ backend }) => backend));
    const last = this.#last;
    if (latest !== undefined && latest.seenAt > (last?.seenAt ?? 0)) {
      this.#last =
        last === undefined
          ? latest
          : latest.isReachable === last.isReachable
            ? { ...last, seenAt: latest.seenAt }
            : { ...latest, since: Math.max(latest.since, last.seenAt) };
    }
    const joined = this.#last;
    return joined === undefined ? all : all.map((each) => ({ ...each, backend: joined }));
  }
}

// Older than this, what the last call showed is looked at again: well below the second at which the dashboard
// asks, so that it never shows what is two seconds old.
const evidenceAgeMaxMs = 500;
const probeTimeoutMs = 1_000;

export class BackendMonitor {
  readonly #url: URL;
  // Undefined until a call or a connect has shown it.
  #isReachable: boolean | undefined;
  #since = 0;
  #cause: string | undefined;
  #evidenceAt = -Infinity;
  #probe: Promise<void> | undefined;

  constructor(url: URL) {
    this.#url = url;
  }

  /** Takes note of a call's end: `cause` when no answer came, undefined when one did, whatever it said. */
  report(cause: string | undefined): void {
    this.#evidenceAt = performance.now();
    const isReachable = cause === undefined;
    if (this.#isReachable !== isReachable) {
      this.#isReachable = isReachable;
      this.#since = Date.now();
      this.#cause = cause;
    }
  }

  /** What is known now, looked at if need be; resolves within about a second, never rejects. */
  async check(): Promise<BackendStatus> {
    if (performance.now() - this.#evidenceAt >= evidenceAgeMaxMs) {
      await (this.#probe ??= this.#connect());
    }
    return this.last();
  }

  /** What was seen last, as old as it may be: nothing yet counts as out of reach. */
  last(): BackendStatus {
    return {
      isReachable: this.#isReachable === true,
      since: this.#since,
      cause: this.#cause,
      seenAt: Math.max(0, Math.round(performance.timeOrigin + this.#evidenceAt)),
    };
  }

  async #connect(): Promise<void> {
    try {
      this.report(await probe(this.#url));
    } finally {
      // Whatever came of it: what is kept would be the answer for ever.
      this.#probe = undefined;
    }
  }
}

/** Opens and closes one TCP connection to `url`; gives why it could not, or undefined. */
export async function probe(url: URL): Promise<string | undefined> {
  const port = url.port === '' ? (url.protocol === 'https:' ? 443 : 80) : Number(url.port);
  const host = url.hostname.replace(/^\[|\]$/g, '');
  // `localhost` is both loopback addresses, as for calls [D30].
  const hosts = host === 'localhost' ? ['127.0.0.1', '::1'] : [host];
  const causes = await Promise.all(hosts.map(async (each) => await probeOne(each, port)));
  return causes.includes(undefined) ? undefined : causes.join('; ');
}

async function probeOne(host: string, port: number): Promise<string | undefined> {
  const { promise, resolve } = Promise.withResolvers<string | undefined>();
  const socket = connect({ host, port, timeout: probeTimeoutMs });
  socket.once('connect', () => {
    resolve(undefined);
  });
  socket.once('timeout', () => {
    resolve(`connect ETIMEDOUT ${host}:${port}`);
  });
  socket.once('error', (error) => {
    resolve(error.message);
  });
  const cause = await promise;
  socket.destroy();
  return cause;
}
