// Checks whether the backend keeps connections open between calls, and how soon it closes an idle one.

import { Calls } from '../backend-probe/calls.ts';
import { msMax } from '../core/hosts/options/kinds.ts';
import { parseKeepAliveSeconds } from '../core/http1/grammar.ts';
import { isStalled, type Session } from './session.ts';

/** The JSON report has these names in this order. */
export interface ConnectionFacts {
  /** The HTTP version, such as `1.1`; undefined without an answer. */
  readonly httpVersion: string | undefined;
  /** True if the backend closes the connection after every answer. */
  readonly closesAlways: boolean;
  /** The `timeout` in the backend's `keep-alive` header. */
  readonly keepAliveSeconds: number | undefined;
  /** How long an idle connection was watched; undefined if no connection was watched. */
  readonly watchedMs: number | undefined;
  /** Idle time after which the backend closed the watched connection; undefined if it stayed open. */
  readonly closedAfterMs: number | undefined;
  readonly idleTimeoutMs: number;
  /** The largest safe BACKEND_IDLE_TIMEOUT_MS; undefined if the current value is safe, or no connection was closed. */
  readonly idleTimeoutMsMax: number | undefined;
}

const idleWaitMsMax = 10_000;
// A margin for the network's latency, and for the time that closing takes.
const marginMs = 1_000;

/** Inspects the answers so far, and watches an idle connection for a while. */
export async function tryConnection(session: Session): Promise<ConnectionFacts> {
  const { backendIdleTimeoutMs: idleTimeoutMs } = session.options.settings;
  const answered = session.calls.made.filter(({ answer }) => answer !== undefined);
  const last = answered.at(-1);
  const { version, fields } = last?.answer ?? {};
  const closesAlways = answered.length > 0 && answered.every(({ answer }) => answer?.closesConnection === true);
  const keepAliveSeconds = parseKeepAliveSeconds(fields?.get('keep-alive') ?? '');
  const facts: ConnectionFacts = {
    httpVersion: version,
    closesAlways,
    keepAliveSeconds,
    watchedMs: undefined,
    closedAfterMs: undefined,
    idleTimeoutMs,
    idleTimeoutMsMax: undefined,
  };
  if (last === undefined || session.calls.made.some(isStalled)) return facts;
  if (closesAlways || keepAliveSeconds === 0 || keepAliveSeconds === 1) {
    const why = version === '1.0' ? 'the backend uses HTTP/1.0' : 'the backend does not keep connections open';
    session.tell(last, 'connection-closes', why);
    return facts;
  }
  const watched = await watchIdle(session);
  const { closedAfterMs = Infinity } = watched;
  // The gateway's timeout must be shorter than the backend's. Otherwise the gateway could send a write while the
  // backend closes the connection. The write would fail, because a write is never repeated [D20].
  const safeMs = Math.max(1, Math.floor(Math.max(closedAfterMs - marginMs, closedAfterMs / 2)));
  const isTooLong = safeMs < idleTimeoutMs;
  if (isTooLong) session.tell(last, 'idle-too-long', closedAfterMs, safeMs, idleTimeoutMs);
  return { ...facts, ...watched, idleTimeoutMsMax: isTooLong ? safeMs : undefined };
}

// Makes one more list call on a new connection, and watches this connection while it is idle.
async function watchIdle(session: Session): Promise<Partial<Pick<ConnectionFacts, 'watchedMs' | 'closedAfterMs'>>> {
  const { settings, tls, stop, idleWaitMsMax: max = idleWaitMsMax } = session.options;
  if (stop.aborted) return {};
  const calls = new Calls({ ...settings, backendIdleTimeoutMs: msMax }, tls, stop);
  try {
    const { outcome } = await calls.make('list');
    if (outcome !== 'ok') return {};
    const startedAt = performance.now();
    // A connection that is still open some time after BACKEND_IDLE_TIMEOUT_MS shows that the setting is safe.
    const { backendIdleTimeoutMs: idleMs } = settings;
    const isClosed = await calls.isClosedByBackend(Math.min(max, idleMs + marginMs, idleMs * 2));
    const watchedMs = Math.round(performance.now() - startedAt);
    return { watchedMs, closedAfterMs: isClosed ? watchedMs : undefined };
  } finally {
    await calls.close();
  }
}
