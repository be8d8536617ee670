// Monitors whether the backend answers [D34]. The last call shows this. If that call is old, a probe shows it: a
// connection without an HTTP request. The gateway stays ready while the backend is down.

import { describeError, reasonOfError, type Peer } from '../core/backend/describe-error.ts';
import { startDeadline } from '../core/hosts/common/process-deadline.ts';
import type { OpenSocket } from '../core/http1/backend-connection.ts';
import type { Reason } from '../core/reasons.ts';
import { monotonicMs } from '../core/time/monotonic.ts';

/** The backend's name and the advice in messages to operators. */
export const backendPeer: Peer = {
  name: 'the backend',
  plainScheme: 'http:',
  authorities: 'set BACKEND_CA_FILE to a file with the certificate authorities to trust',
};

/** Times are in milliseconds since 1970. */
export interface BackendStatus {
  readonly isReachable: boolean;
  readonly since: number;
  /** Why the backend does not answer; undefined while it answers. */
  readonly cause: string | undefined;
  readonly reason?: Reason | undefined;
  /** Last observation of this state. */
  readonly seenAt: number;
}

/**
 * Joins several processes' observations of one backend. `since` does not change when a worker ends, or when a new
 * worker makes its first observation.
 */
export class JoinedBackendStatus {
  #last: BackendStatus | undefined;

  /** Joins the observations in `all`. Returns `all` with the joined observation in each element. */
  join<T extends { readonly backend: BackendStatus }>(all: readonly T[]): readonly T[] {
    const [latest] = all.map(({ backend }) => backend).sort((one, other) => other.seenAt - one.seenAt);
    const last = this.#last;
    if (latest !== undefined && latest.seenAt > (last?.seenAt ?? 0)) {
      const isSame = latest.isReachable === last?.isReachable;
      this.#last = { ...latest, since: isSame ? last.since : Math.max(latest.since, last?.seenAt ?? 0) };
    }
    return all.map((each) => ({ ...each, backend: this.#last ?? each.backend }));
  }
}

// After this time without a call or probe, `check` makes a probe. The time is well below the dashboard's interval of a
// second, so the dashboard never shows a state that is two seconds old.
const evidenceAgeMaxMs = 500;
const probeTimeoutMs = 1_000;

export class BackendMonitor {
  readonly #open: OpenSocket;
  #probe: Promise<void> | undefined;
  /** The last status, however old; unreachable before the first call or probe. */
  status: BackendStatus = { isReachable: false, since: 0, cause: undefined, seenAt: 0 };

  constructor(open: OpenSocket) {
    this.#open = open;
  }

  /** Records the end of a call or a probe. `cause`: why there was no answer; undefined if there was any answer. */
  report(cause: string | undefined, reason?: Reason): void {
    this.#see(observe(cause, reason));
  }

  #see(status: BackendStatus): void {
    const { seenAt, since, isReachable } = this.status;
    this.status = seenAt > 0 && isReachable === status.isReachable ? { ...status, since } : status;
  }

  /**
   * Returns the current status, after a probe if the last call or probe is old. Resolves within about a second. Rejects
   * only if `open` throws.
   */
  async check(): Promise<BackendStatus> {
    if (monotonicNow() - this.status.seenAt >= evidenceAgeMaxMs) await (this.#probe ??= this.#look());
    return this.status;
  }

  async #look(): Promise<void> {
    // The probe is also cleared after a failure. Otherwise every later check would get the failure of this probe.
    const seen = await probe(this.#open).finally(() => (this.#probe = undefined));
    if (seen !== undefined) this.#see(seen);
  }
}

const { timeOrigin } = performance;

// Milliseconds since 1970, from a clock that is never set back.
function monotonicNow(): number {
  return Math.round(timeOrigin + monotonicMs());
}

// The status that begins with this observation.
function observe(cause: string | undefined, reason?: Reason): BackendStatus {
  return { isReachable: cause === undefined, since: Date.now(), cause, reason, seenAt: monotonicNow() };
}

/**
 * Opens a connection as calls do, with the TLS handshake if any, and closes it. Resolves with undefined if `end` was aborted,
 * or if no file descriptor was free, because this shows nothing about the backend.
 */
export async function probe(open: OpenSocket, end?: AbortSignal): Promise<BackendStatus | undefined> {
  const { promise, resolve } = Promise.withResolvers<BackendStatus | undefined>();
  const dial = open({
    onOpen: (socket) => {
      socket.on('error', () => undefined).destroy();
      resolve(observe(undefined));
    },
    onFailed: (error) => {
      const reason = reasonOfError(error);
      resolve(reason === 'no-descriptor' ? undefined : observe(describeError(error, backendPeer), reason));
    },
    onBytes: () => undefined,
  });
  const callOff = startDeadline(probeTimeoutMs, () => {
    resolve(observe(`no connection within ${probeTimeoutMs} ms`, 'connect-timeout'));
  });
  const onEnd = (): void => resolve(undefined);
  end?.addEventListener('abort', onEnd);
  const seen = await promise;
  end?.removeEventListener('abort', onEnd);
  callOff();
  dial.close();
  return seen;
}
