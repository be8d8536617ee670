// What the backend does with connections: whether it keeps them open between calls, and for how long an idle one.

import { Calls } from '../backend-probe/calls.ts';
import { msMax } from '../core/hosts/options/kinds.ts';
import { parseKeepAliveSeconds } from '../core/http1/grammar.ts';
import { isStalled, type Session } from './session.ts';

/** By the names, and in the order, in which the report for programs has them. */
export interface ConnectionFacts {
  /** As `1.1`; undefined where no answer came. */
  readonly httpVersion: string | undefined;
  /** It closes the connection behind every answer. */
  readonly closesAlways: boolean;
  /** What it promises in `keep-alive: timeout`. */
  readonly keepAliveSeconds: number | undefined;
  /** For how long an idle connection was watched; undefined where it was not. */
  readonly watchedMs: number | undefined;
  /** When it closed that connection; undefined where it did not, or was not watched. */
  readonly closedAfterMs: number | undefined;
  readonly idleTimeoutMs: number;
  /** What BACKEND_IDLE_TIMEOUT_MS should be at most; undefined where the one in force is right. */
  readonly idleTimeoutMsMax: number | undefined;
}

const idleWaitMsMax = 10_000;
// The way to the backend takes time too, and the closing of its end.
const marginMs = 1_000;

/** Looks at the answers that came, and for a while at an idle connection. */
export async function tryConnection(session: Session): Promise<ConnectionFacts> {
  const { backendIdleTimeoutMs: idleTimeoutMs } = session.options.settings;
  const answered = session.calls.made.filter(({ answer }) => answer !== undefined);
  const last = answered.at(-1);
  const { version, fields } = last?.answer ?? {};
  const closesAlways =
    answered.length > 0 && answered.every((call) => call.answer?.closesConnection === true);
  const promise = parseKeepAliveSeconds(fields?.get('keep-alive') ?? '');
  const unwatched = {
    httpVersion: version,
    closesAlways,
    keepAliveSeconds: promise,
    watchedMs: undefined,
    closedAfterMs: undefined,
    idleTimeoutMs,
    idleTimeoutMsMax: undefined,
  };
  if (last === undefined || session.calls.made.some(isStalled)) {
    return unwatched;
  }
  if (closesAlways || promise === 0 || promise === 1) {
    const why = version === '1.0' ? 'the backend speaks HTTP/1.0' : 'the backend keeps no connection open';
    session.tell(last, 'connection-closes', why);
    return unwatched;
  }
  const watched = await watchIdle(session);
  const { closedAfterMs } = watched;
  if (closedAfterMs === undefined) {
    return { ...unwatched, ...watched };
  }
  // Less than the backend's: it could close a connection as a call goes out on it, and a write is not sent twice [D20].
  const right = Math.max(1, Math.floor(Math.max(closedAfterMs - marginMs, closedAfterMs / 2)));
  if (right >= idleTimeoutMs) {
    return { ...unwatched, ...watched };
  }
  session.tell(last, 'idle-too-long', closedAfterMs, right, idleTimeoutMs);
  return { ...unwatched, ...watched, idleTimeoutMsMax: right };
}

// One more list on a connection of its own, which then lies idle.
async function watchIdle(session: Session): Promise<Pick<ConnectionFacts, 'watchedMs' | 'closedAfterMs'>> {
  const { settings, tls, stop, idleWaitMsMax: max = idleWaitMsMax } = session.options;
  const nothing = { watchedMs: undefined, closedAfterMs: undefined };
  if (stop.aborted) {
    return nothing;
  }
  const calls = new Calls({ ...settings, backendIdleTimeoutMs: msMax }, tls, stop);
  try {
    const { outcome } = await calls.make('list');
    if (outcome !== 'ok') {
      return nothing;
    }
    const startedAt = performance.now();
    // A backend that keeps it open for longer keeps it long enough for the setting.
    const { backendIdleTimeoutMs: idleMs } = settings;
    const isClosed = await calls.isClosedByBackend(Math.min(max, idleMs + marginMs, idleMs * 2));
    const watchedMs = Math.round(performance.now() - startedAt);
    return { watchedMs, closedAfterMs: isClosed ? watchedMs : undefined };
  } finally {
    await calls.close();
  }
}
