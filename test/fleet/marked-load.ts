// Clients that read and write at a constant rate, with a record of their calls, and the verdict on an outage of the
// backend. restarting-backend.ts records how often each call arrived.

import { Changes } from '../helpers/changes.ts';
import { isSuccess, Load, startTimer, type Call, type Place, type Shot } from '../helpers/load.ts';
import { requestBytes } from '../helpers/raw-client.ts';

/** A call with its own request id, by which the record of a backend shows how often the call arrived. */
export interface MarkedCall extends Pick<Call, 'sentAt' | 'endedAt' | 'end'> {
  readonly method: string;
  readonly marker: string;
}

export const isServed = ({ end }: Pick<MarkedCall, 'end'>): boolean => isSuccess(end);

export interface MarkedShot extends Shot {
  readonly method: string;
  readonly marker: string;
}

// Half of the calls are reads.
const turns = [
  ['GET', '/api/work-items/7', 200],
  ['POST', '/api/work-items', 201],
  ['GET', '/api/work-items', 200],
  ['PUT', '/api/work-items/7', 200],
  ['GET', '/api/work-items/7', 200],
  ['DELETE', '/api/work-items/7', 200],
] as const;

/** Call number `turn`, with the reply to expect if recording-backend.ts answers. A proxy passes on the backend's status and body. */
export function markedShot(turn: number, marker: string, { token = '', isProxy = false } = {}): MarkedShot {
  const [method, path, status] = turns[turn % turns.length] ?? turns[0];
  const authorization = token === '' ? [] : [['Authorization', `Bearer ${token}`] as const];
  const request = requestBytes(method, path, {
    headers: [['X-Request-Id', marker], ...authorization],
    ...((method === 'POST' || method === 'PUT') && { body: '{"title":"Paint the fence"}' }),
  });
  const isPassed = method === 'GET' || method === 'POST';
  const body = Buffer.from(isPassed ? `{"marker":"${marker}"}` : '{"success":true}');
  return { method, marker, request, ...(!isProxy && { status }), ...((isPassed || !isProxy) && { body }) };
}

export interface MarkedLoadOptions {
  /** Calls a second. */
  readonly rate: number;
  /** The largest number of concurrent calls; further calls wait. */
  readonly connections?: number;
  readonly timeoutMs?: number;
  /** If set, each connection is a client with this address and an equal share of the calls. Such a client skips late calls. */
  readonly addressOf?: (client: number) => string;
  readonly token?: () => string;
  readonly isProxy?: boolean;
}

let loadCount = 0;

/** Clients that read and write at a constant rate, with a record of their calls. */
export class MarkedLoad {
  /** Calls in the order in which they ended. */
  readonly calls: MarkedCall[] = [];
  readonly #changes = new Changes();
  readonly #loads: Load<MarkedShot>[];
  readonly #stopTicks: () => void;

  constructor(place: Place, options: MarkedLoadOptions) {
    const { rate, connections = 256, timeoutMs = 5_000, addressOf, token = () => '', isProxy = false } = options;
    const prefix = `load-${process.pid}-${(loadCount += 1)}`;
    const clients = addressOf === undefined ? 1 : connections;
    const now = performance.now();
    // One timer for all clients.
    const ticks: (() => void)[] = [];
    const startTicks = (tick: () => void) => {
      ticks.push(tick);
      return () => undefined;
    };
    this.#stopTicks = startTimer(() => {
      for (const tick of ticks) tick();
    });
    this.#loads = Array.from({ length: clients }, (_, client) => {
      let made = 0;
      return new Load<MarkedShot>({
        place: addressOf === undefined ? place : { ...place, localAddress: addressOf(client) },
        connections: connections / clients,
        rate: rate / clients,
        // The clients are spread evenly over the time between two calls of one client.
        startsAt: now + (client * 1_000) / rate,
        catchesUp: addressOf === undefined,
        startTicks,
        timeoutMs,
        nextShot: () => {
          made += 1;
          return markedShot(client + made, `${prefix}-${client}-${made}`, { token: token(), isProxy });
        },
        onEnd: ({ shot: { method, marker }, sentAt, endedAt, end }) => {
          this.calls.push({ method, marker, sentAt, endedAt, end });
          this.#changes.notify();
        },
      });
    });
  }

  /** Resolves when `count` more calls that `isOne` accepts have ended. */
  async more(count: number, isOne: (call: MarkedCall) => boolean = () => true, limitMs?: number): Promise<void> {
    const from = this.calls.length;
    await this.#changes.until(
      () => (this.calls.slice(from).filter(isOne).length >= count ? true : undefined),
      () => `${count} more such calls; ${this.calls.length} calls came in all`,
      limitMs,
    );
  }

  /** Stops calling; resolves when the calls in flight have ended. */
  async stop(): Promise<readonly MarkedCall[]> {
    this.#stopTicks();
    await Promise.all(this.#loads.map((load) => load.stop()));
    return this.calls;
  }
}

/** The period in which no backend listened, on the clock of `performance.now()`; the period may be empty. */
export interface Outage {
  readonly from: number;
  readonly to: number;
}

export interface OutageVerdict {
  readonly calls: number;
  /** Failed calls by method: `cut` were sent before the outage, `down` during the outage, and `after` later. */
  readonly cut: Record<string, number>;
  readonly down: Record<string, number>;
  readonly after: Record<string, number>;
  /** Failed calls by `end`. */
  readonly failures: Record<string, number>;
  /** Writes that reached the backend more than once. */
  readonly writtenTwice: number;
  /** Reads that reached the backend more than once. */
  readonly readTwice: number;
  /** The time from the end of the outage until the first success after the last failure. */
  readonly recoveryMs: number;
}

/** Evaluates the calls and the backend's record for one outage. */
export function judgeOutage(
  calls: readonly MarkedCall[],
  record: ReadonlyMap<string, number>,
  outage: Outage,
): OutageVerdict {
  const failed = calls.filter((call) => !isServed(call));
  const phaseOf = ({ sentAt }: MarkedCall) => (sentAt < outage.from ? 'cut' : sentAt < outage.to ? 'down' : 'after');
  const count = (some: readonly MarkedCall[], keyOf: (call: MarkedCall) => string): Record<string, number> =>
    Object.fromEntries([...Map.groupBy(some, keyOf)].map(([key, { length }]) => [key, length]));
  const countIn = (phase: string) => count(failed.filter((call) => phaseOf(call) === phase), ({ method }) => method); // prettier-ignore
  const again = calls.filter(({ marker }) => (record.get(marker) ?? 0) > 1);
  const readTwice = again.filter(({ method }) => method === 'GET').length;
  const lastFailureAt = Math.max(outage.to, ...failed.map(({ endedAt }) => endedAt));
  const recovered = calls.find((call) => isServed(call) && call.endedAt > lastFailureAt);
  return {
    calls: calls.length,
    cut: countIn('cut'),
    down: countIn('down'),
    after: countIn('after'),
    failures: count(failed, ({ end }) => String(end)),
    writtenTwice: again.length - readTwice,
    readTwice,
    recoveryMs: recovered === undefined ? Infinity : recovered.endedAt - outage.to,
  };
}
