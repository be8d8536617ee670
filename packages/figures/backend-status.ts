// Does the backend answer? As the last call showed, or, when the last one is old, a bare connection; never an HTTP call
// of our own [D34]. It takes nobody out of rotation: it only says what it knows.

import {
  describeError,
  isShortOfDescriptors,
  reasonOfError,
  type Peer,
} from '../core/backend/describe-error.ts';
import type { OpenSocket } from '../core/http1/client-connection.ts';
import type { Reason } from '../core/reasons.ts';

/** The backend, as an operator is told of its errors. */
export const backendPeer: Peer = {
  name: 'the backend',
  plainScheme: 'http:',
  authorities: 'BACKEND_CA_FILE names a file with the authorities to trust',
};

export interface BackendStatus {
  readonly isReachable: boolean;
  /** Since when it has been so, in milliseconds since 1970. */
  readonly since: number;
  /** Why it does not answer; undefined while it does. */
  readonly cause: string | undefined;
  /** The same as a code. */
  readonly reason?: Reason | undefined;
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
      const isSame = latest.isReachable === last?.isReachable;
      const since = isSame ? last.since : Math.max(latest.since, last?.seenAt ?? 0);
      this.#last = { ...latest, since };
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
  readonly #open: OpenSocket;
  // Undefined until a call or a connect has shown it.
  #seen: Omit<BackendStatus, 'seenAt'> | undefined;
  #evidenceAt = -Infinity;
  #probe: Promise<void> | undefined;

  /** Looks at the backend, when nothing else has shown it, with a socket that `open` opens. */
  constructor(open: OpenSocket) {
    this.#open = open;
  }

  /** Takes note of a call's end: `cause` when no answer came, undefined when one did, whatever it said. */
  report(cause: string | undefined, reason?: Reason): void {
    this.#evidenceAt = performance.now();
    const isReachable = cause === undefined;
    const since = this.#seen?.isReachable === isReachable ? this.#seen.since : Date.now();
    this.#seen = { isReachable, since, cause, reason };
  }

  /** What is known now, looked at if need be; resolves within about a second, never rejects. */
  async check(): Promise<BackendStatus> {
    if (performance.now() - this.#evidenceAt >= evidenceAgeMaxMs) {
      await (this.#probe ??= this.#look());
    }
    return this.last();
  }

  /** What was seen last, as old as it may be: nothing yet counts as out of reach. */
  last(): BackendStatus {
    const { isReachable = false, since = 0, cause, reason } = this.#seen ?? {};
    const seenAt = Math.max(0, Math.round(performance.timeOrigin + this.#evidenceAt));
    return { isReachable, since, cause, reason, seenAt };
  }

  async #look(): Promise<void> {
    try {
      const seen = await probe(this.#open);
      if (seen !== undefined) {
        this.report(seen.cause, seen.reason);
      }
    } finally {
      // Whatever came of it: what is kept would be the answer for ever.
      this.#probe = undefined;
    }
  }
}

type Seen = Pick<BackendStatus, 'cause' | 'reason'>;

// Opens a connection as calls do, up to the end of TLS's handshake where there is TLS, and closes it. Undefined where it
// shows nothing, since we had no descriptor for it.
async function probe(open: OpenSocket): Promise<Seen | undefined> {
  const { promise, resolve } = Promise.withResolvers<Seen | undefined>();
  const socket = open(
    () => undefined,
    () => {
      resolve({ cause: undefined });
    },
  ).on('error', (error) => {
    resolve(
      isShortOfDescriptors(error)
        ? undefined
        : { cause: describeError(error, backendPeer), reason: reasonOfError(error) },
    );
  });
  const timer = setTimeout(resolve, probeTimeoutMs, {
    cause: `no connection within ${probeTimeoutMs} ms`,
    reason: 'connect-timeout',
  });
  const seen = await promise;
  clearTimeout(timer);
  socket.destroy();
  return seen;
}
