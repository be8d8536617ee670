// Checks a backend's contract: which operations work through this gateway, and what clients get from the other operations
// [D61]. This file makes the reads and watches an idle connection; writes.ts makes the writes.

import { Calls, type Call } from '../backend-probe/calls.ts';
import { describeReply, show, type Finding } from '../backend-probe/failures.ts';
import { msMax } from '../core/options/kinds.ts';
import { parseKeepAliveSeconds } from '../core/http1/grammar.ts';
import type { OperationName } from '../core/operations.ts';
import { isItem, itemsOf, readJson, type ItemId } from './items.ts';
import { Session, Stopped, type ContractOptions, type Leftover, type Verdict } from './session.ts';
import { tryWrites, type Found } from './writes.ts';

export interface ContractReport {
  readonly verdicts: ReadonlyMap<OperationName, Verdict>;
  readonly findings: readonly Finding[];
  readonly leftovers: readonly Leftover[];
  readonly connection: ConnectionFacts;
  readonly calls: readonly Call[];
  readonly isInterrupted: boolean;
}

/** The JSON report has the same property names in the same order. */
interface ConnectionFacts {
  readonly httpVersion: string | undefined;
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

type Watched = Partial<Pick<ConnectionFacts, 'watchedMs' | 'closedAfterMs'>>;

/** Runs the check. Rejects only for a bug of the gateway, and only after cleaning up. */
export async function checkContract(options: ContractOptions): Promise<ContractReport> {
  const session = new Session(options);
  try {
    await tryOperations(session);
    inspectAnswers(session);
    const connection = await tryConnection(session);
    const { verdicts, findings, leftovers, calls } = session;
    return { verdicts, findings, leftovers, connection, calls: calls.made, isInterrupted: options.stop.aborted };
  } finally {
    await session.calls.close();
  }
}

async function tryOperations(session: Session): Promise<void> {
  const { write } = session.options;
  try {
    const found = await tryReads(session);
    if (write !== undefined) await tryWrites(session, write, found);
  } catch (error) {
    if (!(error instanceof Stopped)) throw error;
  }
}

// At most this many listed items are read. The second is read only if the first was deleted after the list was read.
const triesMax = 2;
// The search for an unused id starts at the largest 32-bit integer: a backend with 32-bit ids may refuse larger ids.
const largestId = 2_147_483_647;

// Reads the list, one of its items, and an item that does not exist.
async function tryReads(session: Session): Promise<Found> {
  const call = await session.call('list');
  const isListed = session.judge(call);
  if (call.outcome === 'unreachable' && !call.hasBytes) throw new Stopped();
  const list = isListed ? readJson(call.reply.body) : undefined;
  if (isListed && !Array.isArray(list)) session.tell(call, 'list-not-array');
  const items = itemsOf(list);
  const found = (items ?? []).map((item) => session.idOf(item));
  if (found.includes(undefined)) session.tell(call, 'items-without-id');
  const ids = found.filter((id) => id !== undefined);
  for (const id of ids) {
    session.tellOfId(call, id);
  }
  const texts = new Set(ids.map(({ text }) => text));
  await readListed(session, ids);
  let missing = largestId;
  while (texts.has(String(missing))) {
    missing -= 1;
  }
  const missingRead = await readMissing(session, call, String(missing));
  return { call, items, ids: texts, missingRead, missingId: String(missing) };
}

async function readListed(session: Session, ids: readonly ItemId[]): Promise<void> {
  const usable = ids.filter(({ kind }) => kind !== 'unusable').slice(0, triesMax);
  for (const [index, { text }] of usable.entries()) {
    const call = await session.call('read', text);
    if (call.outcome === 'not-found' && index < usable.length - 1) continue;
    if (session.judge(call)) {
      const item = readJson(call.reply.body);
      if (!isItem(item) || !session.hasNoOtherId(item, text)) session.tell(call, 'read-of-another');
    }
    return;
  }
}

async function readMissing(session: Session, list: Call, id: string): Promise<Call> {
  const call = await session.call('read', id);
  const { outcome, answer } = call;
  // If the list failed with the same status, this failure says nothing about missing items.
  const isSameAsList = list.outcome !== 'ok' && list.answer?.status === answer?.status;
  if (outcome === 'not-found') return call;
  if (outcome === 'ok') {
    session.tell(call, 'missing-is-200');
  } else if (outcome === 'timed-out' || outcome === 'unreachable' || isSameAsList) {
    session.judge(call);
  } else {
    session.tell(call, 'missing-is-no-404', describeReply(call));
  }
  return call;
}

const byteOrderMark = Buffer.from([0xef, 0xbb, 0xbf]);

// Warns of oddities in usable answers: an oddity breaks no operation, but clients may fail on it. Also warns of slow
// and large answers, because later answers may exceed a limit.
function inspectAnswers(session: Session): void {
  const { backendTimeoutMs, responseBytesMax } = session.options.settings;
  const slowMs = session.options.slowMs ?? backendTimeoutMs / 2;
  for (const call of session.calls.made.filter(({ outcome }) => outcome === 'ok')) {
    const { answer, operation, reply, durationMs } = call;
    if (answer !== undefined && operation.passesAnswer) {
      if (answer.bodyStart.subarray(0, 3).equals(byteOrderMark)) session.tell(call, 'byte-order-mark');
      const type = answer.fields.get('content-type');
      if (type === undefined || !/^application\/(?:[\w.+-]+\+)?json\b/i.test(type)) {
        session.tell(call, 'content-type', type === undefined ? 'missing' : show(type));
      }
    }
    if (durationMs >= slowMs) session.tell(call, 'slow', Math.round(durationMs), backendTimeoutMs);
    if (operation.passesAnswer && reply.body.length > responseBytesMax / 2) {
      session.tell(call, 'near-limit', reply.body.length, responseBytesMax);
    }
  }
}

const idleWaitMsMax = 10_000;
// A margin for the network's latency, and for the time that closing takes.
const marginMs = 1_000;

// Checks whether the backend keeps connections open between calls, and how soon it closes an idle connection.
async function tryConnection(session: Session): Promise<ConnectionFacts> {
  const { backendIdleTimeoutMs: idleTimeoutMs } = session.options.settings;
  const { made } = session.calls;
  const answered = made.filter(({ answer }) => answer !== undefined);
  const last = answered.at(-1);
  const { version: httpVersion, fields } = last?.answer ?? {};
  const closesAlways = answered.length > 0 && answered.every(({ answer }) => answer?.closesConnection === true);
  const keepAliveSeconds = parseKeepAliveSeconds(fields?.get('keep-alive') ?? '');
  let watched: Watched = {};
  let idleTimeoutMsMax: number | undefined;
  const hasSuccess = made.some(({ outcome }) => outcome === 'ok');
  if (last !== undefined && hasSuccess && made.every(({ outcome }) => outcome !== 'timed-out')) {
    if (closesAlways || keepAliveSeconds === 0 || keepAliveSeconds === 1) {
      const why = httpVersion === '1.0' ? 'the backend uses HTTP/1.0' : 'the backend does not keep connections open';
      session.tell(last, 'connection-closes', why);
    } else {
      watched = await watchIdle(session);
      const { closedAfterMs = Infinity } = watched;
      // The gateway's timeout must be shorter than the backend's. Otherwise the gateway could send a write while the
      // backend closes the connection. The write would fail, because a write is never repeated [D20].
      const safeMs = Math.max(1, Math.floor(Math.max(closedAfterMs - marginMs, closedAfterMs / 2)));
      // No connection carried two answers, although the check does not pause between calls.
      const isEachClosed = answered.length > 1 && answered.every(({ isReused }) => !isReused);
      if (isEachClosed && closedAfterMs < marginMs) {
        session.tell(last, 'closes-silently', idleTimeoutMs);
      } else if (safeMs < idleTimeoutMs) {
        session.tell(last, 'idle-too-long', closedAfterMs, safeMs, idleTimeoutMs);
        idleTimeoutMsMax = safeMs;
      }
    }
  }
  const { watchedMs, closedAfterMs } = watched;
  return { httpVersion, closesAlways, keepAliveSeconds, watchedMs, closedAfterMs, idleTimeoutMs, idleTimeoutMsMax };
}

// Makes one more list call on a new connection, and watches this connection while it is idle.
async function watchIdle(session: Session): Promise<Watched> {
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
