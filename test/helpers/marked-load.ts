// Keep-alive clients that read and write at a constant rate. Each call has its own request id and a recorded result; no
// call is repeated.

import { Changes } from './changes.ts';
import { RawClient, requestBytes } from './raw-client.ts';
import { now } from './restarting-backend.ts';

export interface MarkedCall {
  readonly method: 'GET' | 'POST' | 'PUT' | 'DELETE';
  readonly marker: string;
  readonly sentAt: number;
  readonly endedAt: number;
  /** The reason if it failed. */
  readonly failure: string | undefined;
}

export interface MarkedLoadOptions {
  /** Calls a second. */
  readonly rate: number;
  /** Concurrent calls; further calls wait. */
  readonly connectionsMax?: number;
  readonly timeoutMs?: number;
}

// Half of the calls are reads.
const turns = [
  ['GET', '/api/work-items/7', undefined],
  ['POST', '/api/work-items', '{"title":"Paint the fence"}'],
  ['GET', '/api/work-items', undefined],
  ['PUT', '/api/work-items/7', '{"title":"Paint the fence"}'],
  ['GET', '/api/work-items/7', undefined],
  ['DELETE', '/api/work-items/7', undefined],
] as const;

let loadCount = 0;

export class MarkedLoad {
  /** Calls in the order of their ends. */
  readonly calls: MarkedCall[] = [];
  readonly #port: number;
  readonly #options: Required<MarkedLoadOptions>;
  readonly #prefix = `load-${process.pid}-${(loadCount += 1)}`;
  readonly #idle: RawClient[] = [];
  readonly #changes = new Changes();
  readonly #underWay = new Set<Promise<void>>();
  readonly #startedAt = now();
  readonly #timer: NodeJS.Timeout;
  #made = 0;

  constructor(port: number, options: MarkedLoadOptions) {
    this.#port = port;
    this.#options = { connectionsMax: 256, timeoutMs: 5_000, ...options };
    this.#timer = setInterval(() => this.#makeDue(), 1);
  }

  /** Resolves when `count` more calls that `isOne` accepts have ended. */
  async more(count: number, isOne: (call: MarkedCall) => boolean = () => true, limitMs?: number): Promise<void> {
    let from = this.calls.length;
    let seen = 0;
    await this.#changes.until(
      () => {
        for (; from < this.calls.length; from += 1) {
          const call = this.calls[from];
          if (call !== undefined && isOne(call)) seen += 1;
        }
        return seen >= count ? true : undefined;
      },
      () => `${count} more such calls; ${seen} came, and ${this.calls.length} calls in all`,
      limitMs,
    );
  }

  /** Stops calling; resolves when the calls in flight have ended. */
  async stop(): Promise<readonly MarkedCall[]> {
    clearInterval(this.#timer);
    await Promise.all(this.#underWay);
    for (const client of this.#idle) client.destroy();
    return this.calls;
  }

  #makeDue(): void {
    const due = Math.floor(((now() - this.#startedAt) * this.#options.rate) / 1000);
    while (this.#made < due && this.#underWay.size < this.#options.connectionsMax) {
      const made = this.#makeCall(this.#made);
      this.#made += 1;
      this.#underWay.add(made);
      void made.finally(() => this.#underWay.delete(made));
    }
  }

  async #makeCall(index: number): Promise<void> {
    const turn = turns[index % turns.length] ?? turns[0];
    const [method, path, body] = turn;
    const marker = `${this.#prefix}-${index}`;
    const end = (sentAt: number, failure?: string): void => {
      this.calls.push({ method, marker, sentAt, endedAt: now(), failure });
      this.#changes.notify();
    };
    let client = this.#takeIdle();
    let sentAt = now();
    if (client === undefined) {
      try {
        client = await RawClient.open(this.#port);
      } catch (error) {
        end(sentAt, `not connected: ${describe(error)}`);
        return;
      }
      sentAt = now();
    }
    client.send(
      requestBytes(method, path, { headers: [['X-Request-Id', marker]], ...(body !== undefined && { body }) }),
    );
    try {
      const reply = await client.reply({ limitMs: this.#options.timeoutMs });
      const isOwn = (method !== 'GET' && method !== 'POST') || reply.text === `{"marker":"${marker}"}`;
      if (reply.status < 200 || reply.status > 299) end(sentAt, `status ${reply.status}`);
      else end(sentAt, isOwn ? undefined : `not its own reply: ${reply.text.slice(0, 100)}`);
      if (reply.header('connection')?.toLowerCase() === 'close') client.destroy();
      else this.#idle.push(client);
    } catch (error) {
      end(sentAt, now() - sentAt >= this.#options.timeoutMs ? 'timeout' : `reset: ${describe(error)}`);
      client.destroy();
    }
  }

  // A closed idle connection is not a failure: no request was in flight on it.
  #takeIdle(): RawClient | undefined {
    for (;;) {
      const client = this.#idle.shift();
      if (client === undefined || client.isOpen) return client;
      client.destroy();
    }
  }
}

function describe(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

/** The time in which no backend listened, on the clock of `now`; it may be empty. */
export interface Outage {
  readonly from: number;
  readonly to: number;
}

export interface Verdict {
  readonly calls: number;
  /** Failed calls by method: sent before the outage, during it and after it. */
  readonly cut: Record<string, number>;
  readonly down: Record<string, number>;
  readonly after: Record<string, number>;
  /** Failures by kind. */
  readonly failures: Record<string, number>;
  /** Writes that reached the backend more than once. */
  readonly writtenTwice: number;
  /** Reads that reached the backend more than once. */
  readonly readTwice: number;
  /** From `to` to the first success after the last failure. */
  readonly recoveryMs: number;
}

/** Evaluates the calls and the backend's record for one outage. */
export function judge(calls: readonly MarkedCall[], record: ReadonlyMap<string, number>, outage: Outage): Verdict {
  const cut: Record<string, number> = {};
  const down: Record<string, number> = {};
  const after: Record<string, number> = {};
  const failures: Record<string, number> = {};
  let writtenTwice = 0;
  let readTwice = 0;
  let lastFailureAt = outage.to;
  for (const { method, marker, sentAt, endedAt, failure } of calls) {
    if ((record.get(marker) ?? 0) > 1) {
      if (method === 'GET') readTwice += 1;
      else writtenTwice += 1;
    }
    if (failure === undefined) continue;
    const phase = sentAt < outage.from ? cut : sentAt < outage.to ? down : after;
    phase[method] = (phase[method] ?? 0) + 1;
    const kind = failure.split(':', 1)[0] ?? failure;
    failures[kind] = (failures[kind] ?? 0) + 1;
    lastFailureAt = Math.max(lastFailureAt, endedAt);
  }
  const recovered = calls.find((call) => call.failure === undefined && call.endedAt > lastFailureAt);
  return {
    calls: calls.length,
    cut,
    down,
    after,
    failures,
    writtenTwice,
    readTwice,
    recoveryMs: recovered === undefined ? Infinity : recovered.endedAt - outage.to,
  };
}
