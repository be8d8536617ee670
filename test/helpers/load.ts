// The load generator of the benchmarks, the restarts and the fleet: keep-alive connections, each with one call at a time. In a
// closed loop a connection calls again after each reply. At a constant rate, calls are due at fixed times. No call is repeated.
// Every reply is checked: its status, and its body or the body's length. Chunked bodies are not checked.

import { connect, type Socket } from 'node:net';
import { connect as connectTls } from 'node:tls';
import { Changes } from './changes.ts';

/** A request and the reply that it must get. */
export interface Shot {
  /** Head and body. */
  readonly request: Uint8Array;
  /** The status of a success; default: 200 to 299. */
  readonly status?: number;
  /** The body of a success, or its length; default: any. */
  readonly body?: Uint8Array | number;
}

/** The status. `none`: the connection ended before the reply was complete. */
export type End = number | 'none' | 'timeout' | 'no connection' | 'wrong reply';

/** A call that has ended; times are on the clock of `performance.now()`. */
export interface Call<S extends Shot = Shot> {
  readonly shot: S;
  readonly dueAt: number;
  readonly sentAt: number;
  readonly endedAt: number;
  readonly end: End;
  /** Why the call is not a success. */
  readonly failure: string | undefined;
}

/** The address to which clients connect. */
export interface Place {
  readonly port: number;
  readonly host?: string;
  /** The local address of the clients' connections. */
  readonly localAddress?: string;
  /** The CA of a place with TLS, as PEM. */
  readonly ca?: string | undefined;
}

export interface LoadOptions<S extends Shot> {
  readonly place: Place;
  /** At most this many calls at the same time. */
  readonly connections: number;
  /** True: all connections are used in turn from the start. False: a call opens a connection only if none is idle. */
  readonly isEager?: boolean;
  /** Calls a second; default: a closed loop. */
  readonly rate?: number;
  /** The time of the first call; default: now. */
  readonly startsAt?: number;
  /** False: calls that could not be made in time are left out. */
  readonly catchesUp?: boolean;
  /** Calls are due at multiples of this time. */
  readonly slotMs?: number;
  /** Runs `tick` at each slot until the returned function is called; default: a timer. */
  readonly startTicks?: (tick: () => void) => () => void;
  readonly timeoutMs?: number;
  /** Returns the next call of the connection with this number; undefined ends the load. */
  readonly nextShot: (connection: number) => S | undefined;
  readonly onEnd: (call: Call<S>) => void;
}

const lastChunk = '\r\n0\r\n\r\n';
// Special values of `#remaining`, which is otherwise a number of bytes.
const inHead = -1;
const inChunks = -2;
// Shared by all sockets: each read is processed before the next one starts.
const readBuffer = Buffer.allocUnsafeSlow(256 * 1024);

class Connection<S extends Shot> {
  readonly number: number;
  readonly #options: LoadOptions<S>;
  readonly #onEnd: (connection: Connection<S>, call: Call<S>) => void;
  #socket: Socket | undefined;
  #isConnected = false;
  #shot: S | undefined;
  #dueAt = 0;
  #sentAt = 0;
  #timer: NodeJS.Timeout | undefined;
  #head = '';
  #status = 0;
  #closes = false;
  #remaining = inHead;
  /** Collected only if the expected body is given. */
  #body: Buffer[] = [];
  #lastBytes = '';
  #failure: string | undefined;

  constructor(number: number, options: LoadOptions<S>, onEnd: (connection: Connection<S>, call: Call<S>) => void) {
    this.number = number;
    this.#options = options;
    this.#onEnd = onEnd;
    if (options.isEager === true) this.#open();
  }

  send(shot: S, dueAt: number): void {
    const socket = this.#socket ?? this.#open();
    const { timeoutMs } = this.#options;
    this.#shot = shot;
    this.#dueAt = dueAt;
    this.#sentAt = performance.now();
    this.#head = '';
    this.#remaining = inHead;
    if (timeoutMs !== undefined) this.#timer = setTimeout(() => this.#lose('timeout', 'no reply in time'), timeoutMs);
    socket.write(shot.request);
  }

  close(): void {
    this.#socket?.destroy();
    this.#socket = undefined;
    clearTimeout(this.#timer);
  }

  #open(): Socket {
    const { port, host = '127.0.0.1', localAddress, ca } = this.#options.place;
    const callback = (length: number): boolean => {
      if (socket === this.#socket) this.#read(length);
      return true;
    };
    const onread = { buffer: readBuffer, callback };
    const options = { port, host, noDelay: true, onread, ...(localAddress !== undefined && { localAddress }) };
    const socket = ca === undefined ? connect(options) : connectTls({ ...options, ca });
    this.#socket = socket;
    this.#isConnected = false;
    socket.once('connect', () => {
      this.#isConnected = true;
      this.#sentAt = performance.now();
    });
    for (const event of ['error', 'end', 'close'] as const) {
      socket.on(event, (error?: unknown) => {
        if (socket !== this.#socket) return;
        const reason = error instanceof Error ? error.message : 'closed by the server';
        if (this.#remaining === Infinity && event === 'end') this.#finish();
        else this.#lose('none', `a connection was lost before the reply: ${reason}`);
      });
    }
    return socket;
  }

  #read(length: number): void {
    const shot = this.#shot;
    if (shot === undefined) {
      // Makes the next call fail.
      this.#failure = 'a reply without a request';
      return;
    }
    let at = 0;
    if (this.#remaining === inHead) {
      const text = this.#head + readBuffer.toString('latin1', 0, Math.min(length, 4096));
      const end = text.indexOf('\r\n\r\n');
      if (end < 0) {
        this.#head = text;
        return;
      }
      at = end + 4 - this.#head.length;
      this.#readHead(text, end, shot);
    }
    if (this.#remaining === inChunks) {
      this.#lastBytes = (this.#lastBytes + readBuffer.toString('latin1', at, length)).slice(-lastChunk.length);
      if (this.#lastBytes === lastChunk) this.#remaining = 0;
    } else {
      if (typeof shot.body === 'object') this.#body.push(Buffer.from(readBuffer.subarray(at, length)));
      if (length - at > this.#remaining) this.#failure = 'the reply is longer than its content-length';
      this.#remaining = Math.max(0, this.#remaining - (length - at));
    }
    if (this.#remaining === 0) this.#finish();
  }

  #readHead(text: string, end: number, { status, body }: S): void {
    const head = text.slice(0, end);
    this.#status = Number(text.slice(9, 12));
    this.#closes = /\r\nconnection: *close/i.test(head);
    this.#body = [];
    this.#lastBytes = '';
    const length = /\r\ncontent-length: *(\d+)/i.exec(head)?.[1];
    if (length !== undefined) this.#remaining = Number(length);
    else if (this.#status === 204) this.#remaining = 0;
    else this.#remaining = /\r\ntransfer-encoding: *chunked/i.test(head) ? inChunks : Infinity;
    const isExpected = status === undefined ? isSuccess(this.#status) : this.#status === status;
    const isLong = typeof body === 'number' && length !== undefined && this.#remaining !== body;
    if (!isExpected || isLong) this.#failure = `not the expected reply: ${text.slice(0, end + 300)}`;
  }

  #finish(): void {
    const expected = this.#shot?.body;
    const isChunked = this.#lastBytes !== '';
    if (this.#failure === undefined && typeof expected === 'object' && !isChunked) {
      const body = Buffer.concat(this.#body);
      if (!body.equals(expected)) this.#failure = `not its own reply: ${body.toString()}`;
    }
    if (this.#closes || this.#remaining === Infinity) this.close();
    this.#end(this.#failure !== undefined && isSuccess(this.#status) ? 'wrong reply' : this.#status);
  }

  // The loss of an idle connection is not a failure: the next call opens another one.
  #lose(end: 'none' | 'timeout', reason: string): void {
    this.close();
    if (this.#shot === undefined) return;
    this.#failure = reason;
    this.#end(this.#isConnected ? end : 'no connection');
  }

  #end(end: End): void {
    const shot = this.#shot;
    if (shot === undefined) return;
    this.#shot = undefined;
    clearTimeout(this.#timer);
    const [dueAt, sentAt, failure] = [this.#dueAt, this.#sentAt, this.#failure];
    this.#failure = undefined;
    this.#onEnd(this, { shot, dueAt, sentAt, endedAt: performance.now(), end, failure });
  }
}

export const isSuccess = (end: End): boolean => typeof end === 'number' && end >= 200 && end <= 299;

export class Load<S extends Shot> {
  readonly #options: LoadOptions<S>;
  readonly #connections: Connection<S>[] = [];
  readonly #idle: Connection<S>[] = [];
  readonly #changes = new Changes();
  readonly #startsAt: number;
  readonly #periodMs: number;
  #stopTicks: () => void = () => undefined;
  /** The time when the next call is due, in ms after `#startsAt`. */
  #nextDueMs = 0;
  #endsAt = Infinity;
  #inFlight = 0;

  constructor(options: LoadOptions<S>) {
    this.#options = options;
    const { rate, connections, startsAt = performance.now(), startTicks = startTimer } = options;
    this.#startsAt = startsAt;
    this.#periodMs = rate === undefined ? 0 : 1_000 / rate;
    if (rate === undefined || options.isEager === true)
      while (this.#connections.length < connections) this.#idle.push(this.#connect());
    if (rate !== undefined) this.#stopTicks = startTicks(() => this.#makeDue());
    else for (const connection of this.#idle.splice(0)) this.#call(connection, startsAt);
  }

  /** Makes no further call; resolves when the calls in flight have ended. */
  async stop(): Promise<void> {
    this.#endsAt = -Infinity;
    await this.ended();
    this.close();
  }

  /** Makes all calls that are due by now. Returns the number of calls that have no reply after `limitMs`. */
  async finish(limitMs: number): Promise<number> {
    this.#endsAt = performance.now();
    await this.ended(limitMs).catch(() => undefined);
    return this.#inFlight + Math.max(0, Math.ceil((this.#endsAt - this.#dueAt()) / this.#periodMs));
  }

  /** Resolves when no call is due or in flight, after `stop`, `finish` or the last shot. */
  async ended(limitMs = 120_000): Promise<void> {
    await this.#changes.until(
      () => (this.#inFlight === 0 && this.#dueAt() > this.#endsAt ? true : undefined),
      () => `${this.#inFlight} calls in flight end`,
      limitMs,
    );
  }

  /** Closes all connections immediately. */
  close(): void {
    this.#endsAt = -Infinity;
    this.#stopTicks();
    for (const connection of this.#connections) connection.close();
  }

  #connect(): Connection<S> {
    const made = new Connection(this.#connections.length, this.#options, (connection, call) => {
      this.#inFlight -= 1;
      this.#options.onEnd(call);
      if (this.#options.rate === undefined) {
        this.#call(connection, call.endedAt);
      } else {
        this.#idle.push(connection);
        this.#makeDue();
      }
      this.#changes.notify();
    });
    this.#connections.push(made);
    return made;
  }

  #call(connection: Connection<S>, dueAt: number): void {
    const shot = dueAt > this.#endsAt ? undefined : this.#options.nextShot(connection.number);
    if (shot === undefined) {
      this.#endsAt = -Infinity;
      return;
    }
    this.#inFlight += 1;
    connection.send(shot, dueAt);
  }

  /** The time when the next call is due. */
  #dueAt(): number {
    const { slotMs = 0 } = this.#options;
    return this.#startsAt + (slotMs === 0 ? this.#nextDueMs : Math.ceil(this.#nextDueMs / slotMs) * slotMs);
  }

  #makeDue(): void {
    const { catchesUp = true, connections } = this.#options;
    const now = performance.now();
    for (;;) {
      const dueAt = this.#dueAt();
      if (dueAt > now || dueAt > this.#endsAt) return;
      const isFull = this.#connections.length === connections;
      const connection = this.#idle.shift() ?? (isFull ? undefined : this.#connect());
      if (connection === undefined) return;
      if (!catchesUp) this.#nextDueMs = now - this.#startsAt;
      this.#nextDueMs += this.#periodMs;
      this.#call(connection, dueAt);
    }
  }
}

export function startTimer(tick: () => void): () => void {
  const timer = setInterval(tick, 1);
  return () => clearInterval(timer);
}
