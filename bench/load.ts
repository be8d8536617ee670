// The load generator: keep-alive connections over plain node:net or node:tls, each with one request at a time. Checks the
// status and length of every reply (of a chunked one, the status); a wrong reply ends the run. In a closed loop, a connection sends its next request after
// each reply. At a constant rate, requests are due by a schedule, and the latency is measured from the due time. So a stall of
// the contender shows in every call that it delays. The parent process orders one run at a time over IPC.
import { connect, type Socket } from 'node:net';
import { connect as connectTls } from 'node:tls';
import { Worker } from 'node:worker_threads';
import { processorMs } from './processes.ts';

export interface Shot {
  /** The whole request, head and body. */
  request: Uint8Array;
  status: number;
  bodyLength: number;
}

export interface LoadOrder {
  port: number;
  /** CA of the contender's certificate, as PEM; undefined for no TLS. */
  ca?: string | undefined;
  connections: number;
  /** Each connection sends these requests in turn and starts at a different one. */
  shots: Shot[];
  warmupMs: number;
  /** Closed loop only: the warm-up lasts until this number of replies, but at most `WARMUP_LIMIT_MS`. */
  warmupRequests: number;
  measureMs: number;
  /** Requests per second for a constant rate, 0 for a closed loop. */
  rate: number;
  /** Root of the process tree whose CPU time is counted; 0 for none. */
  pid: number;
}

export interface LoadResult {
  requests: number;
  /** Actual length of the measured time. */
  elapsedMs: number;
  processorMs: number;
  /** Constant rate only: the latency of each request, from the time it was due. */
  latenciesMs: number[];
  /** Constant rate only: requests without a reply two seconds after the end of the measured time. */
  unanswered: number;
}

const LAST_CHUNK = '\r\n0\r\n\r\n';
const SLOT_MS = 0.25;
const RUN_LIMIT_MS = 120_000;
const WARMUP_LIMIT_MS = 10_000;
// Shared by all sockets: each read is processed before the next one starts.
const readBuffer = Buffer.allocUnsafeSlow(256 * 1024);

interface Owner {
  /** Called when the connection is free again. */
  onReply: (connection: Connection) => void;
  onFailure: (message: string) => void;
}

class Connection {
  shotIndex: number;
  dueAt = 0;
  private socket: Socket;
  private expected: Shot | undefined;
  private head = '';
  /** Remaining bytes of the body; -1 while the head is read, -2 for a chunked body. */
  private remaining = -1;
  /** The last bytes of a chunked body. */
  private end = '';
  private closing = false;
  private closeAfterReply = false;
  private readonly port: number;
  private readonly ca: string | undefined;
  private readonly owner: Owner;

  constructor({ port, ca }: LoadOrder, shotIndex: number, owner: Owner) {
    this.port = port;
    this.ca = ca;
    this.shotIndex = shotIndex;
    this.owner = owner;
    this.socket = this.open();
  }

  send(shot: Shot): void {
    this.expected = shot;
    this.head = '';
    this.remaining = -1;
    this.socket.write(shot.request);
  }

  close(): void {
    this.closing = true;
    this.socket.destroy();
  }

  private open(): Socket {
    const options = {
      port: this.port,
      host: '127.0.0.1',
      noDelay: true,
      onread: {
        buffer: readBuffer,
        callback: (length: number) => {
          this.read(length);
          return true;
        },
      },
    };
    const socket = this.ca === undefined ? connect(options) : connectTls({ ...options, ca: this.ca });
    socket.on('error', (error) => this.lose(socket, error.message));
    socket.on('end', () => this.lose(socket, 'closed by the contender'));
    return socket;
  }

  private lose(socket: Socket, reason: string): void {
    if (this.closing || socket !== this.socket) return;
    if (this.expected) {
      this.owner.onFailure(`a connection was lost before the reply: ${reason}`);
      return;
    }
    this.socket = this.open();
  }

  private read(length: number): void {
    if (this.closing) return;
    let at = 0;
    if (this.remaining === -1) {
      const text = this.head + readBuffer.toString('latin1', 0, Math.min(length, 4096));
      const end = text.indexOf('\r\n\r\n');
      if (end < 0) {
        this.head = text;
        return;
      }
      at = end + 4 - this.head.length;
      if (!this.readHead(text, end)) return;
    }
    if (this.remaining === -2) this.readChunks(readBuffer.toString('latin1', at, length));
    else if (length - at > this.remaining) this.owner.onFailure('the reply is longer than its content-length');
    else this.remaining -= length - at;
    if (this.remaining === 0) this.finish();
  }

  private readHead(text: string, end: number): boolean {
    const expected = this.expected;
    if (!expected) {
      this.owner.onFailure(`a reply without a request: ${text.slice(0, 200)}`);
      return false;
    }
    const status = Number(text.slice(9, 12));
    const length = /\r\ncontent-length: *(\d+)/i.exec(text);
    if (length) this.remaining = Number(length[1]);
    else this.remaining = status === 204 ? 0 : -2;
    if (status !== expected.status || (this.remaining !== expected.bodyLength && this.remaining !== -2)) {
      this.owner.onFailure(`not the expected reply: ${text.slice(0, end + 300)}`);
      return false;
    }
    this.closeAfterReply = /\r\nconnection: *close/i.test(text);
    this.end = '';
    return true;
  }

  /** Sees only the end of the last chunk: verify.ts has compared the bytes. */
  private readChunks(text: string): void {
    this.end = (this.end + text).slice(-LAST_CHUNK.length);
    if (this.end === LAST_CHUNK) this.remaining = 0;
  }

  private finish(): void {
    this.expected = undefined;
    if (this.closeAfterReply) {
      this.socket.destroy();
      this.socket = this.open();
    }
    this.owner.onReply(this);
  }
}

async function run(order: LoadOrder): Promise<LoadResult> {
  const { promise, resolve, reject } = Promise.withResolvers<LoadResult>();
  const { shots, rate } = order;
  let requests = 0;
  let measuring = false;
  let startedAt = 0;
  let processorAtStart = 0;
  const latencies: number[] = [];
  const connections: Connection[] = [];
  const idle: Connection[] = [];
  const waiting: number[] = [];
  const timers: NodeJS.Timeout[] = [];
  let metronome: Worker | undefined;
  const stop = new Int32Array(new SharedArrayBuffer(4));

  function nextShot(connection: Connection): Shot {
    const shot = shots[connection.shotIndex++ % shots.length];
    if (!shot) throw new Error('no shots');
    return shot;
  }

  const owner: Owner = {
    onFailure: (message) => reject(new Error(message)),
    onReply:
      rate === 0
        ? (connection) => {
            requests += 1;
            connection.send(nextShot(connection));
          }
        : (connection) => {
            if (measuring && connection.dueAt >= startedAt)
              requests = latencies.push(performance.now() - connection.dueAt);
            const dueAt = waiting.shift();
            if (dueAt === undefined) idle.push(connection);
            else sendDue(connection, dueAt);
          },
  };

  function sendDue(connection: Connection, dueAt: number): void {
    connection.dueAt = dueAt;
    connection.send(nextShot(connection));
  }

  function startMeasuring(): void {
    requests = 0;
    processorAtStart = processorMs(order.pid);
    measuring = true;
    startedAt = performance.now();
  }

  function finishMeasuring(unanswered: number): void {
    const elapsedMs = performance.now() - startedAt;
    const spentMs = processorMs(order.pid) - processorAtStart;
    resolve({ requests, elapsedMs, processorMs: spentMs, unanswered, latenciesMs: latencies });
  }

  for (let index = 0; index < order.connections; index++) connections.push(new Connection(order, index * 7, owner));

  if (rate === 0) {
    for (const connection of connections) connection.send(nextShot(connection));
    const begin = performance.now();
    const warmUp = (): void => {
      const passed = performance.now() - begin;
      if (requests < order.warmupRequests && passed < WARMUP_LIMIT_MS) {
        timers.push(setTimeout(warmUp, 50));
        return;
      }
      startMeasuring();
      timers.push(setTimeout(() => finishMeasuring(0), order.measureMs));
    };
    timers.push(setTimeout(warmUp, order.warmupMs));
  } else {
    idle.push(...connections);
    const begin = performance.now() + 50;
    const measureFrom = begin + order.warmupMs;
    const end = measureFrom + order.measureMs;
    let slot = 0;
    let owed = 0;
    const perSlot = (rate * SLOT_MS) / 1000;
    metronome = new Worker(new URL('./metronome.ts', import.meta.url), { workerData: { slotMs: SLOT_MS, stop } });
    metronome.on('error', reject);
    metronome.on('message', () => {
      const now = performance.now();
      for (;;) {
        // All requests of a slot are due at its beginning.
        const slotAt = begin + slot * SLOT_MS;
        if (slotAt > now) return;
        if (slotAt > end) {
          const inTime = waiting.length === 0 && idle.length === connections.length;
          if (measuring && (inTime || now > end + 2_000)) {
            finishMeasuring(waiting.length + connections.length - idle.length);
            measuring = false;
          }
          return;
        }
        if (!measuring && slotAt >= measureFrom) {
          startMeasuring();
          startedAt = measureFrom;
        }
        slot += 1;
        for (owed += perSlot; owed >= 1; owed -= 1) {
          const connection = idle.shift();
          if (connection) sendDue(connection, slotAt);
          else waiting.push(slotAt);
        }
      }
    });
  }
  timers.push(setTimeout(() => reject(new Error('the run took too long')), RUN_LIMIT_MS));

  try {
    return await promise;
  } finally {
    for (const timer of timers) clearTimeout(timer);
    for (const connection of connections) connection.close();
    Atomics.store(stop, 0, 1);
    Atomics.notify(stop, 0);
    await metronome?.terminate();
  }
}

process.on('message', (order: LoadOrder) => {
  run(order).then(
    (result) => process.send?.(result),
    (error: unknown) => process.send?.({ failure: error instanceof Error ? error.message : String(error) }),
  );
});
process.on('disconnect', () => process.exit());
process.send?.({});
