// Simulated TCP connections. The gateway's end is a real `net.Socket` on a simulated handle, the other end is a `Party`.
// Importing this file replaces `net.connect` and `dns.lookup`.

import assert from 'node:assert/strict';
import dns from 'node:dns';
import { syncBuiltinESMExports } from 'node:module';
import net, { Socket, type SocketConstructorOpts, type TcpNetConnectOpts } from 'node:net';
import { loop, runMicrotasks, type Chance } from './event-loop.ts';

/** How the network carries bytes. */
export interface Network {
  /** Longest time in ms until bytes arrive. */
  readonly latencyMs: number;
  /** Largest read, in bytes. */
  readonly pieceBytes: number;
  /** Most reads that one turn returns. More than one is the way of TLS. */
  readonly readsPerTurn: number;
  /** Bytes that the operating system keeps for a reader. */
  readonly bufferBytes: number;
}

interface Reader {
  readonly isReading: boolean;
  onBytes(bytes: Buffer): void;
  onEnd(): void;
}

/** One direction of a connection. Bytes are copied when the pipe accepts them, as the operating system does. */
class Pipe {
  /** Number of bytes that the reader has. */
  delivered = 0;
  onRoom = (): void => undefined;
  readonly #reader: Reader;
  readonly #network: Network;
  readonly #chance: Chance;
  #chunks: Buffer[] = [];
  #size = 0;
  #isScheduled = false;
  #isEnding = false;
  #hasEnded = false;

  constructor(reader: Reader, network: Network, chance: Chance) {
    this.#reader = reader;
    this.#network = network;
    this.#chance = chance;
  }

  get size(): number {
    return this.#size;
  }

  /** Accepts as many bytes as there is room for, and returns their number. */
  accept(bytes: Uint8Array): number {
    const length = Math.min(bytes.length, this.#network.bufferBytes - this.#size);
    if (length > 0 && !this.#hasEnded) {
      this.#chunks.push(Buffer.from(bytes.subarray(0, length)));
      this.#size += length;
      this.#schedule();
    }
    return length;
  }

  end(): void {
    this.#isEnding = true;
    this.#schedule();
  }

  /** Loses what has not arrived. */
  drop(): void {
    this.#chunks = [];
    this.#size = 0;
    this.#hasEnded = true;
  }

  /** The reader reads again. */
  wake(): void {
    this.#schedule(0);
  }

  #schedule(ms = this.#chance.next() * this.#network.latencyMs): void {
    if (this.#isScheduled || this.#hasEnded || (this.#size === 0 && !this.#isEnding)) return;
    this.#isScheduled = true;
    loop.after(ms, this.#deliver);
  }

  readonly #deliver = (): void => {
    this.#isScheduled = false;
    for (let reads = 0; reads < this.#network.readsPerTurn && this.#size > 0 && this.#reader.isReading; reads += 1) {
      const most = Math.min(this.#size, this.#network.pieceBytes);
      const bytes = this.#take(this.#chance.is(0.6) ? most : this.#chance.int(1, most));
      this.delivered += bytes.length;
      this.#reader.onBytes(bytes);
      runMicrotasks();
      this.onRoom();
    }
    if (!this.#reader.isReading) return;
    if (this.#size === 0 && this.#isEnding && !this.#hasEnded) {
      this.#hasEnded = true;
      this.#reader.onEnd();
    } else {
      this.#schedule(this.#network.latencyMs / 16);
    }
  };

  #take(length: number): Buffer {
    const [first = Buffer.alloc(0)] = this.#chunks;
    const taken = first.length <= length ? first : first.subarray(0, length);
    if (first.length <= length) this.#chunks.shift();
    else this.#chunks[0] = first.subarray(length);
    this.#size -= taken.length;
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
  /** True if the gateway has called `unref`, as it does for an idle connection to the backend. */
  wasIdle = false;
  socket: GatewaySocket | undefined;
  readonly userRead: SocketConstructorOpts['onread'];
  readonly connection: Connection;
  #writes: PendingWrite[] = [];

  constructor(connection: Connection, onread: SocketConstructorOpts['onread']) {
    this.connection = connection;
    this.userRead = onread;
  }

  /** Since when the operating system has taken nothing of what is written. */
  progressAt = 0;
  #failure: Error | undefined;
  #readTurn = 0;
  /** Number of reads in this turn. */
  turnReads = 0;

  /** Bytes of written buffers that the operating system has not taken. */
  get writeQueueSize(): number {
    return this.#writes.reduce((sum, { pieces }) => pieces.reduce((size, each) => size + each.length, sum), 0);
  }

  /** The part of it in buffers of more than 16 KiB, which are not copied. */
  get lentBytes(): number {
    const buffers = this.#writes.flatMap(({ pieces }) => pieces).filter(({ length }) => length > 16_384);
    return buffers.reduce((size, { length }) => size + length, 0);
  }

  readStart(): number {
    if (!this.isReading) {
      this.isReading = true;
      const failure = this.#failure;
      if (failure !== undefined) loop.after(0, () => this.fail(failure));
      this.connection.toGateway.wake();
    }
    return 0;
  }

  readStop(): number {
    this.isReading = false;
    return 0;
  }

  getpeername(out: Record<string, unknown>): number {
    Object.assign(out, { address: this.connection.address, port: 50_000, family: 'IPv4' });
    return 0;
  }

  unref(): void {
    this.wasIdle = true;
  }

  write(pieces: Uint8Array[], done: PendingWrite['done']): void {
    if (this.connection.isBroken) {
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
        const length = this.connection.fromGateway.accept(piece);
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

  shutdown(): void {
    this.connection.endGateway();
  }

  /** The connection was reset. Without reads, Node learns of it later. */
  fail(error: Error): void {
    const writes = this.#writes;
    this.#writes = [];
    for (const { done } of writes) done(systemError('ECONNRESET', 'write'));
    this.#failure = error;
    if (!this.isReading) return;
    this.connection.party.onDelivered(true);
    this.socket?.destroy(error);
  }

  close(onClosed?: () => void): void {
    this.isClosed = true;
    this.isReading = false;
    const writes = this.#writes;
    this.#writes = [];
    loop.after(0, () => {
      // Node passes no error for a socket that was destroyed.
      for (const { done } of writes) done(null);
      onClosed?.();
    });
    this.connection.closeGateway(writes.length > 0);
  }

  onBytes(bytes: Buffer): void {
    this.bytesRead += bytes.length;
    this.turnReads = this.#readTurn === loop.turn ? this.turnReads + 1 : 1;
    this.#readTurn = loop.turn;
    this.connection.party.onDelivered(false);
    const { socket, userRead: onread } = this;
    let wantsMore: boolean;
    if (onread === undefined) {
      wantsMore = socket?.push(bytes) === true;
    } else {
      const buffer = onread.buffer as Buffer;
      buffer.set(bytes);
      wantsMore = onread.callback(bytes.length, buffer);
    }
    if (!wantsMore) {
      this.reading = false;
      this.readStop();
    }
  }

  onEnd(): void {
    const { socket } = this;
    const { party } = this.connection;
    // While Node holds back bytes, because a body waits for its turn, it sees no end behind them.
    if (socket === undefined || socket.readableLength === 0) party.onDelivered(true);
    else socket.once('end', () => party.onDelivered(true));
    socket?.push(null);
    socket?.read(0);
  }
}

interface Encoded {
  readonly chunk: string | Uint8Array;
  readonly encoding: BufferEncoding;
}

class GatewaySocket extends Socket {
  readonly #handle: Handle;

  constructor(handle: Handle, options: object) {
    super({ ...options, handle } as object);
    this.#handle = handle;
    handle.socket = this;
  }

  /** Replaces the method of `net.Socket` that passes bytes to its handle. */
  _writeGeneric(isList: boolean, data: unknown, encoding: BufferEncoding, done: PendingWrite['done']): void {
    const list = isList ? (data as Encoded[]) : [{ chunk: data as Encoded['chunk'], encoding }];
    if (this.#handle.isClosed) done(systemError('ERR_SOCKET_CLOSED', 'write'));
    else
      this.#handle.write(
        list.map((each) => (typeof each.chunk === 'string' ? Buffer.from(each.chunk, each.encoding) : each.chunk)),
        done,
      );
  }

  override write(bytes: string | Uint8Array, ...rest: []): boolean {
    this.#handle.connection.party.onWrite(bytes);
    return super.write(bytes, ...rest);
  }

  override _final(done: () => void): void {
    if (!this.#handle.isClosed) this.#handle.shutdown();
    loop.after(0, done);
  }
}

/** The other end of a connection: a client or the backend. */
export abstract class Party implements Reader {
  /** False while the party does not read. */
  isReading = true;
  isGone = false;
  connection!: Connection;
  #unsent: Buffer[] = [];
  #ends = false;

  abstract onBytes(bytes: Buffer): void;
  /** The gateway has ended its side. */
  abstract onEnd(): void;
  abstract onReset(): void;
  /** The gateway has got bytes, or the end of this side. */
  abstract onDelivered(hasEnded: boolean): void;

  /** The gateway writes. */
  onWrite: (bytes: string | Uint8Array) => void = () => undefined;

  send(bytes: Uint8Array | string): void {
    if (this.isGone || bytes.length === 0) return;
    this.#unsent.push(Buffer.from(bytes as string, 'latin1'));
    this.flush();
  }

  /** Ends this side when everything is sent. */
  end(): void {
    this.#ends = true;
    this.flush();
  }

  /** Closes both sides. The gateway learns of it as it does over TCP: by an end, then a reset. */
  close(): void {
    this.end();
    this.isGone = true;
    this.connection.isPartyClosed = true;
    this.read(true);
  }

  reset(): void {
    this.isGone = true;
    this.#unsent = [];
    this.connection.resetGateway();
  }

  read(isReading: boolean): void {
    this.isReading = isReading;
    if (isReading) this.connection.fromGateway.wake();
  }

  flush(): void {
    const { connection } = this;
    if (connection.isGatewayClosed && this.#unsent.length > 0) {
      this.#unsent = [];
      connection.resetParty();
      return;
    }
    for (let [first] = this.#unsent; first !== undefined; [first] = this.#unsent) {
      const length = connection.toGateway.accept(first);
      if (length < first.length) {
        this.#unsent[0] = first.subarray(length);
        return;
      }
      this.#unsent.shift();
    }
    if (this.#ends) connection.toGateway.end();
  }
}

export class Connection {
  readonly toGateway: Pipe;
  readonly fromGateway: Pipe;
  readonly handle: Handle;
  readonly socket: GatewaySocket;
  readonly address: string;
  /** A write of the gateway fails. */
  isBroken = false;
  isGatewayClosed = false;
  /** When the gateway closed or ended its side. */
  closedAt: number | undefined;
  isPartyClosed = false;
  readonly party: Party;

  constructor(party: Party, address: string, network: Network, chance: Chance, options: SocketConstructorOpts) {
    this.party = party;
    this.address = address;
    party.connection = this;
    this.handle = new Handle(this, options.onread);
    this.toGateway = new Pipe(this.handle, network, chance);
    this.fromGateway = new Pipe(
      {
        get isReading() {
          return party.isReading;
        },
        onBytes: (bytes) => {
          if (this.isPartyClosed) this.resetGateway();
          else party.onBytes(bytes);
        },
        onEnd: () => party.onEnd(),
      },
      // Tiny pieces are for the gateway's readers.
      { ...network, pieceBytes: 65_536, readsPerTurn: 1 },
      chance,
    );
    this.toGateway.onRoom = () => party.flush();
    this.fromGateway.onRoom = () => this.handle.flush();
    this.socket = new GatewaySocket(this.handle, options);
  }

  endGateway(): void {
    this.closedAt ??= loop.now;
    this.fromGateway.end();
  }

  /** The gateway closes its socket. Unread bytes, or bytes that it could not send, make a reset of it. */
  closeGateway(hasUnsent: boolean): void {
    this.closedAt ??= loop.now;
    this.isGatewayClosed = true;
    if (this.toGateway.size > 0 || hasUnsent) this.resetParty();
    else this.fromGateway.end();
    this.toGateway.drop();
  }

  resetParty(): void {
    if (this.party.isGone) return;
    this.party.isGone = true;
    this.fromGateway.drop();
    loop.after(0, () => this.party.onReset());
  }

  resetGateway(): void {
    if (this.isBroken) return;
    this.isBroken = true;
    this.toGateway.drop();
    this.fromGateway.drop();
    loop.after(0, () => this.handle.fail(systemError('ECONNRESET', 'read')));
  }
}

/** The result of an attempt to connect. */
export interface Dialled {
  readonly party: Party;
  readonly network: Network;
  readonly chance: Chance;
  readonly result: 'open' | 'refused' | 'never';
  readonly afterMs: number;
}

/** Set by each world. */
export const surroundings = {
  dial: (address: string): Dialled => assert.fail(`no backend at ${address}`),
  lookUp: (name: string): Promise<readonly string[]> => assert.fail(`no address of ${name}`),
};

function connect(options: TcpNetConnectOpts & SocketConstructorOpts): Socket {
  const address = options.host ?? '';
  const { party, network, chance, result, afterMs } = surroundings.dial(address);
  const { socket } = new Connection(party, address, network, chance, { ...options, manualStart: true } as object);
  const isConnecting = (connecting: boolean): unknown => Object.assign(socket, { connecting });
  isConnecting(true);
  if (result === 'never') return socket;
  loop.after(afterMs, () => {
    if (socket.destroyed) return;
    isConnecting(false);
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

type FoundAddresses = (error: unknown, addresses?: readonly object[]) => void;
const lookup = (name: string, _options: unknown, found: FoundAddresses): void => {
  surroundings.lookUp(name).then((list) => found(null, list.map((address) => ({ address, family: 4 }))), found); // prettier-ignore
};
Object.assign(net, { connect });
Object.assign(dns, { lookup });
syncBuiltinESMExports();
