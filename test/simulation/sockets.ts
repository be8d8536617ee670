// Simulated TCP connections. The gateway's end is a real `net.Socket` on a simulated handle, the other end is a `Party`.
// Importing this file replaces `net.connect` and `dns.lookup`.

import assert from 'node:assert/strict';
import dns from 'node:dns';
import { syncBuiltinESMExports } from 'node:module';
import net, { Socket, type SocketConstructorOpts, type TcpNetConnectOpts } from 'node:net';
import { loop, runMicrotasks, type Chance } from './event-loop.ts';
import type { Plan } from './plan.ts';

type Network = Plan['network'];

interface Reader {
  readonly isReading: boolean;
  onBytes(bytes: Buffer): void;
  onEnd(): void;
}

/** One direction of a connection. Bytes are copied when the pipe accepts them, as the operating system does. */
class Pipe {
  /** Number of bytes that the reader has. */
  delivered = 0;
  /** Number of bytes on their way. */
  size = 0;
  onRoom = (): void => undefined;
  readonly #reader: Reader;
  readonly #network: Network;
  readonly #chance: Chance;
  #chunks: Buffer[] = [];
  #isScheduled = false;
  #isEnding = false;
  #hasEnded = false;

  constructor(reader: Reader, network: Network, chance: Chance) {
    [this.#reader, this.#network, this.#chance] = [reader, network, chance];
  }

  /** Accepts as many bytes as there is room for, and returns their number. */
  accept(bytes: Uint8Array): number {
    const length = Math.min(bytes.length, this.#network.bufferBytes - this.size);
    if (length > 0 && !this.#hasEnded) {
      this.#chunks.push(Buffer.from(bytes.subarray(0, length)));
      this.size += length;
      this.wake(undefined);
    }
    return length;
  }

  end(): void {
    this.#isEnding = true;
    this.wake(undefined);
  }

  /** Loses what has not arrived. */
  drop(): void {
    this.#chunks = [];
    this.size = 0;
    this.#hasEnded = true;
  }

  /** Delivers what has been accepted, in `ms` or when the network has carried it. */
  wake(ms: number | undefined): void {
    if (this.#isScheduled || this.#hasEnded || (this.size === 0 && !this.#isEnding)) return;
    this.#isScheduled = true;
    loop.after(ms ?? this.#chance.next() * this.#network.latencyMs, this.#deliver);
  }

  readonly #deliver = (): void => {
    this.#isScheduled = false;
    const reader = this.#reader;
    for (let reads = 0; reads < this.#network.readsPerTurn && this.size > 0 && reader.isReading; reads += 1) {
      const most = Math.min(this.size, this.#network.pieceBytes);
      const bytes = this.#take(this.#chance.is(0.6) ? most : this.#chance.int(1, most));
      this.delivered += bytes.length;
      reader.onBytes(bytes);
      runMicrotasks();
      this.onRoom();
    }
    if (!reader.isReading) return;
    if (this.size === 0 && this.#isEnding && !this.#hasEnded) {
      this.#hasEnded = true;
      reader.onEnd();
    } else {
      this.wake(this.#network.latencyMs / 16);
    }
  };

  #take(length: number): Buffer {
    const first = this.#chunks.shift() ?? Buffer.alloc(0);
    const taken = first.subarray(0, length);
    if (first.length > length) this.#chunks.unshift(first.subarray(length));
    this.size -= taken.length;
    return taken;
  }
}

function systemError(code: string, syscall: string): Error {
  return Object.assign(new Error(`${syscall} ${code}`), { code, syscall });
}

const returnZero = (): number => 0;

interface PendingWrite {
  readonly pieces: Uint8Array[];
  readonly done: (error?: Error | null) => void;
}

/** The handle below the gateway's socket. */
class Handle implements Reader {
  bytesRead = 0;
  bytesWritten = 0;
  // Set by `net.Socket`.
  reading = false;
  readonly useUserBuffer = returnZero;
  readonly ref = returnZero;
  readonly setNoDelay = returnZero;
  readonly setKeepAlive = returnZero;
  isReading = false;
  isClosed = false;
  /** The socket has emitted 'close'. */
  hasClosed = false;
  /** True if the gateway has called `unref`, as it does for an idle connection to the backend. */
  wasIdle = false;
  /** Since when the operating system has taken nothing of what is written. */
  progressAt = 0;
  /** Number of reads in this turn. */
  turnReads = 0;
  socket: GatewaySocket | undefined;
  readonly #party: Party;
  readonly #onread: SocketConstructorOpts['onread'];
  #writes: PendingWrite[] = [];
  #failure: Error | undefined;
  #readTurn = 0;

  constructor(party: Party, onread: SocketConstructorOpts['onread']) {
    [this.#party, this.#onread] = [party, onread];
  }

  /** Written buffers that the operating system has not taken. */
  get unsent(): Uint8Array[] {
    return this.#writes.flatMap(({ pieces }) => pieces);
  }

  get writeQueueSize(): number {
    return this.unsent.reduce((size, { length }) => size + length, 0);
  }

  readStart(): number {
    if (!this.isReading) {
      this.isReading = true;
      const failure = this.#failure;
      if (failure !== undefined) loop.after(0, () => this.fail(failure));
      this.#party.toGateway.wake(0);
    }
    return 0;
  }

  readStop(): number {
    this.isReading = false;
    return 0;
  }

  getpeername(out: Record<string, unknown>): number {
    Object.assign(out, { address: this.#party.address, port: 50_000, family: 'IPv4' });
    return 0;
  }

  unref(): void {
    this.wasIdle = true;
  }

  write(pieces: Uint8Array[], done: PendingWrite['done']): void {
    if (this.#party.isBroken) {
      loop.after(0, () => done(systemError('EPIPE', 'write')));
      return;
    }
    this.bytesWritten += pieces.reduce((size, each) => size + each.length, 0);
    if (this.#writes.length === 0) this.progressAt = loop.now;
    this.#writes.push({ pieces, done });
    this.flush();
  }

  /** Passes on what the operating system has room for. */
  flush(): void {
    for (let [write] = this.#writes; write !== undefined; [write] = this.#writes) {
      for (let [piece] = write.pieces; piece !== undefined; [piece] = write.pieces) {
        const length = this.#party.fromGateway.accept(piece);
        if (length > 0) this.progressAt = loop.now;
        if (length < piece.length) {
          write.pieces[0] = piece.subarray(length);
          return;
        }
        write.pieces.shift();
      }
      this.#writes.shift();
      write.done();
    }
  }

  /** The connection was reset. Without reads, Node learns of it later. */
  fail(error: Error): void {
    for (const { done } of this.#writes.splice(0)) done(systemError('ECONNRESET', 'write'));
    this.#failure = error;
    if (!this.isReading) return;
    this.#party.onDelivered('reset');
    this.socket?.destroy(error);
  }

  close(onClosed?: () => void): void {
    this.isClosed = true;
    this.isReading = false;
    const writes = this.#writes.splice(0);
    loop.after(0, () => {
      // Node passes no error for a socket that was destroyed.
      for (const { done } of writes) done(null);
      onClosed?.();
      this.hasClosed = true;
    });
    this.#party.closeGateway(writes.length > 0);
  }

  onBytes(bytes: Buffer): void {
    this.bytesRead += bytes.length;
    this.turnReads = this.#readTurn === loop.turn ? this.turnReads + 1 : 1;
    this.#readTurn = loop.turn;
    this.#party.onDelivered('bytes');
    const onread = this.#onread;
    if (onread !== undefined) (onread.buffer as Buffer).set(bytes);
    const wantsMore =
      onread === undefined ? this.socket?.push(bytes) : onread.callback(bytes.length, onread.buffer as Buffer);
    if (wantsMore !== true) this.reading = this.isReading = false;
  }

  onEnd(): void {
    const { socket } = this;
    const onEnd = (): void => this.#party.onDelivered('end');
    // While Node holds back bytes, because a body waits for its turn, it sees no end behind them.
    if (socket === undefined || socket.readableLength === 0) onEnd();
    else socket.once('end', onEnd);
    socket?.push(null);
    socket?.read(0);
  }
}

interface Encoded {
  readonly chunk: string | Uint8Array;
  readonly encoding: BufferEncoding;
}

class GatewaySocket extends Socket {
  readonly #party: Party;

  constructor(party: Party, options: object) {
    super({ ...options, handle: party.handle } as object);
    this.#party = party;
    party.handle.socket = this;
  }

  /** Replaces the method of `net.Socket` that passes bytes to its handle. */
  _writeGeneric(isList: boolean, data: unknown, encoding: BufferEncoding, done: PendingWrite['done']): void {
    const list = isList ? (data as Encoded[]) : [{ chunk: data as Encoded['chunk'], encoding }];
    const { handle } = this.#party;
    if (handle.isClosed) done(systemError('ERR_SOCKET_CLOSED', 'write'));
    else
      handle.write(
        list.map(({ chunk, encoding: of }) => (typeof chunk === 'string' ? Buffer.from(chunk, of) : chunk)),
        done,
      );
  }

  override write(bytes: string | Uint8Array, ...rest: []): boolean {
    this.#party.onWrite(Buffer.from(bytes.slice(0, 600) as string).toString('latin1'));
    const mayGoOn = super.write(bytes, ...rest);
    this.#party.recentUnsent.note(this.writableLength);
    return mayGoOn;
  }

  override _final(done: () => void): void {
    if (!this.#party.handle.isClosed) this.#party.endGateway();
    loop.after(0, done);
  }

  /** Number of listeners of all events. */
  get listenerTotal(): number {
    return this.eventNames().reduce((sum, name) => sum + this.listenerCount(name), 0);
  }
}

/** The largest of the values that were noted in the last 1.2 s, or in up to twice that time. */
class RecentMax {
  #period = 0;
  #now = 0;
  #before = 0;

  note(value: number): number {
    const period = Math.floor(loop.now / 1_200);
    if (period > this.#period) this.#before = period === this.#period + 1 ? this.#now : 0;
    this.#now = Math.max(period > this.#period ? 0 : this.#now, value);
    this.#period = period;
    return Math.max(this.#now, this.#before);
  }
}

/** A connection, from its other end: a client or the backend. */
export abstract class Party implements Reader {
  /** Bytes that the gateway has not sent. Between two sweeps of a second, it counts what it no longer holds. */
  readonly recentUnsent = new RecentMax();
  /** False while the party does not read. */
  isReading = true;
  /** The party sends nothing more. */
  isGone = false;
  /** A write of the gateway fails. */
  isBroken = false;
  isGatewayClosed = false;
  /** When the gateway closed or ended its side. */
  closedAt: number | undefined;
  address = '';
  toGateway!: Pipe;
  fromGateway!: Pipe;
  handle!: Handle;
  socket!: GatewaySocket;
  #unsent: Buffer[] = [];
  #ends = false;
  #isClosed = false;

  abstract onReceived(bytes: Buffer): void;
  /** The gateway has ended its side, or reset the connection. */
  abstract onEnd(isReset?: boolean): void;
  /** The gateway has got bytes, or the end of this side. */
  abstract onDelivered(what: 'bytes' | 'end' | 'reset'): void;
  /** The gateway writes bytes that begin with `start`. */
  abstract onWrite(start: string): void;

  /** Opens the connection. `options` are those of the gateway's socket. */
  open(address: string, network: Network, chance: Chance, options: SocketConstructorOpts): this {
    this.address = address;
    this.handle = new Handle(this, options.onread);
    this.toGateway = new Pipe(this.handle, network, chance);
    // Tiny pieces are for the gateway's readers.
    this.fromGateway = new Pipe(this, { ...network, pieceBytes: 65_536, readsPerTurn: 1 }, chance);
    this.toGateway.onRoom = () => this.#flush();
    this.fromGateway.onRoom = () => this.handle.flush();
    this.socket = new GatewaySocket(this, options);
    return this;
  }

  onBytes(bytes: Buffer): void {
    if (this.#isClosed) this.resetGateway();
    else this.onReceived(bytes);
  }

  send(bytes: Uint8Array): void {
    if (this.isGone || bytes.length === 0) return;
    this.#unsent.push(Buffer.from(bytes));
    this.#flush();
  }

  /** Ends this side when everything is sent. */
  end(): void {
    this.#ends = true;
    this.#flush();
  }

  /** Closes both sides. The gateway learns of it as it does over TCP: by an end, then a reset. */
  close(): void {
    this.end();
    this.isGone = this.#isClosed = true;
    this.read(true);
  }

  reset(): void {
    this.isGone = true;
    this.#unsent = [];
    this.resetGateway();
  }

  read(isReading: boolean): void {
    this.isReading = isReading;
    if (isReading) this.fromGateway.wake(0);
  }

  #flush(): void {
    if (this.isGatewayClosed && this.#unsent.length > 0) {
      this.#unsent = [];
      this.#resetParty();
      return;
    }
    for (let [first] = this.#unsent; first !== undefined; [first] = this.#unsent) {
      const length = this.toGateway.accept(first);
      if (length < first.length) {
        this.#unsent[0] = first.subarray(length);
        return;
      }
      this.#unsent.shift();
    }
    if (this.#ends) this.toGateway.end();
  }

  endGateway(): void {
    this.closedAt ??= loop.now;
    this.fromGateway.end();
  }

  /** The gateway closes its socket. Unread bytes, or bytes that it could not send, make a reset of it. */
  closeGateway(hasUnsent: boolean): void {
    this.isGatewayClosed = true;
    this.closedAt ??= loop.now;
    if (this.toGateway.size > 0 || hasUnsent) this.#resetParty();
    else this.fromGateway.end();
    this.toGateway.drop();
  }

  #resetParty(): void {
    if (this.isGone) return;
    this.isGone = true;
    this.fromGateway.drop();
    loop.after(0, () => this.onEnd(true));
  }

  resetGateway(): void {
    if (this.isBroken) return;
    this.isBroken = true;
    this.toGateway.drop();
    this.fromGateway.drop();
    loop.after(0, () => this.handle.fail(systemError('ECONNRESET', 'read')));
  }
}

export type Options = TcpNetConnectOpts & SocketConstructorOpts;

/** A connection to the backend that is opened or refused `afterMs` later, or never. */
export interface Dialled {
  readonly party: Party;
  readonly result: 'open' | 'refused' | 'never';
  readonly afterMs: number;
}

/** Set by each world. */
export const surroundings: { dial: (address: string, options: Options) => Dialled } = { dial: assert.fail };

function connect(options: Options): Socket {
  const { party, result, afterMs } = surroundings.dial(options.host ?? '', {
    ...options,
    manualStart: true,
  } as Options);
  const { socket } = party;
  Object.assign(socket, { connecting: true });
  if (result === 'never') return socket;
  loop.after(afterMs, () => {
    if (socket.destroyed) return;
    Object.assign(socket, { connecting: false });
    if (result === 'refused') {
      socket.destroy(systemError('ECONNREFUSED', 'connect'));
      return;
    }
    socket.emit('connect');
    socket.emit('ready');
    if (!socket.isPaused()) socket.read(0);
  });
  return socket;
}

type FoundAddresses = (error: null, addresses: readonly object[]) => void;
const lookup = (_name: string, _options: unknown, found: FoundAddresses): void =>
  queueMicrotask(() => found(null, [{ address: '198.51.100.1', family: 4 }]));
Object.assign(net, { connect });
Object.assign(dns, { lookup });
syncBuiltinESMExports();
