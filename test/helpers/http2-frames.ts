// An HTTP/2 client that sends and reads any frames, including invalid ones. It writes HPACK fields as literals.

import { once } from 'node:events';
import type { Socket } from 'node:net';
import { connect, type TLSSocket } from 'node:tls';
import { Changes } from './changes.ts';

/** RFC 9113, 6. */
export const frameTypes = {
  data: 0x0,
  headers: 0x1,
  priority: 0x2,
  resetStream: 0x3,
  settings: 0x4,
  pushPromise: 0x5,
  ping: 0x6,
  goAway: 0x7,
  windowUpdate: 0x8,
  continuation: 0x9,
} as const;

export const flags = { endStream: 0x1, ack: 0x1, endHeaders: 0x4, padded: 0x8, priority: 0x20 } as const;

/** RFC 9113, 7. */
export const errorCodes = {
  noError: 0x0,
  protocolError: 0x1,
  internalError: 0x2,
  flowControlError: 0x3,
  streamClosed: 0x5,
  frameSizeError: 0x6,
  refusedStream: 0x7,
  cancel: 0x8,
  compressionError: 0x9,
  enhanceYourCalm: 0xb,
} as const;

/** RFC 9113, 6.5.2. */
export const settingIds = { headerTableSize: 1, initialWindowSize: 4 } as const;

export interface Frame {
  readonly type: number;
  readonly flags: number;
  readonly stream: number;
  readonly payload: Buffer;
}

export const preface = Buffer.from('PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n', 'latin1');

export function frame(type: number, frameFlags = 0, stream = 0, payload: Uint8Array = Buffer.alloc(0)): Buffer {
  const head = Buffer.alloc(9);
  head.writeUIntBE(payload.length, 0, 3);
  head.writeUInt8(type, 3);
  head.writeUInt8(frameFlags, 4);
  head.writeUInt32BE(stream, 5);
  return Buffer.concat([head, payload]);
}

type Settings = readonly (readonly [id: number, value: number])[];

/** A SETTINGS frame of these ids and values. */
export function settings(values: Settings = []): Buffer {
  const payload = Buffer.alloc(6 * values.length);
  for (const [index, [id, value]] of values.entries()) {
    payload.writeUInt16BE(id, 6 * index);
    payload.writeUInt32BE(value, 6 * index + 2);
  }
  return frame(frameTypes.settings, 0, 0, payload);
}

export function resetStream(stream: number, code: number): Buffer {
  return frame(frameTypes.resetStream, 0, stream, uint32(code));
}

export function windowUpdate(stream: number, increment: number): Buffer {
  return frame(frameTypes.windowUpdate, 0, stream, uint32(increment));
}

function uint32(value: number): Buffer {
  const bytes = Buffer.alloc(4);
  bytes.writeUInt32BE(value);
  return bytes;
}

export type Fields = readonly (readonly [name: string, value: string])[];

/** The pseudo-header fields of a request, then `others`. */
export function requestFields(method: string, path: string, others: Fields = []): Fields {
  return [[':method', method], [':scheme', 'https'], [':authority', 'gateway.localhost'], [':path', path], ...others];
}

/** A block of literal fields without indexing [RFC 7541, 6.2.2]; one byte per character. */
export function fieldBlock(fields: Fields): Buffer {
  return Buffer.concat(fields.flatMap(([name, value]) => [Buffer.of(0), ...hpackString(name), ...hpackString(value)]));
}

/** A literal field that becomes entry 62, the first of the dynamic table [RFC 7541, 6.2.1]. */
export function indexedField(name: string, value: string): Buffer {
  return Buffer.concat([Buffer.of(0x40), ...hpackString(name), ...hpackString(value)]);
}

/** `count` references to the first entry of the dynamic table, one byte each [RFC 7541, 6.1]. */
export function firstOfTable(count: number): Buffer {
  return Buffer.alloc(count, 0x80 | 62);
}

// The length is an integer with a prefix of 7 bits [RFC 7541, 5.1].
function hpackString(text: string): [length: Buffer, bytes: Buffer] {
  const bytes = [Math.min(text.length, 127)];
  let rest = text.length - 127;
  for (; rest >= 128; rest = Math.floor(rest / 128)) bytes.push((rest % 128) + 128);
  return [Buffer.from(rest < 0 ? bytes : [...bytes, rest]), Buffer.from(text, 'latin1')];
}

/** A HEADERS frame; by default it is a complete request without a body. */
export function headers(
  stream: number,
  fields: Fields,
  frameFlags: number = flags.endHeaders | flags.endStream,
): Buffer {
  return frame(frameTypes.headers, frameFlags, stream, fieldBlock(fields));
}

/** A request without a body. */
export function get(stream: number, path = '/', others: Fields = []): Buffer {
  return headers(stream, requestFields('GET', path, others));
}

/** The head of a PUT whose body follows. */
export function put(stream: number, path = '/', others: Fields = []): Buffer {
  return headers(stream, requestFields('PUT', path, others), flags.endHeaders);
}

/** DATA: these bytes, or this number of bytes. */
export function data(stream: number, bytes: string | Uint8Array | number, frameFlags = 0): Buffer {
  const payload = typeof bytes === 'number' ? Buffer.alloc(bytes, 'x') : Buffer.from(bytes);
  return frame(frameTypes.data, frameFlags, stream, payload);
}

/** The setting of a client that accepts no byte of a reply's body. */
export const closedWindow = [[settingIds.initialWindowSize, 0]] as const;
export const ping = frame(frameTypes.ping, 0, 0, Buffer.alloc(8));
export const goAway = frame(frameTypes.goAway, 0, 0, Buffer.alloc(8));

export function repeat(bytes: Uint8Array, count: number): Buffer {
  return Buffer.concat(Array.from({ length: count }, () => bytes));
}

export class FrameClient<S extends Socket = TLSSocket> implements AsyncDisposable {
  readonly socket: S;
  /** All received frames except acknowledgements. */
  readonly frames: Frame[] = [];
  /** Called for each of these frames. Tests with very many frames replace it, so that no frame is kept. */
  onFrame: (each: Frame) => void = (each) => this.frames.push(each);
  isOpen = true;
  readonly #changes = new Changes();
  #bytes = Buffer.alloc(0);

  constructor(socket: S) {
    this.socket = socket;
    socket
      .setNoDelay()
      .on('data', (bytes: Buffer) => {
        this.#read(bytes);
        this.#changes.notify();
      })
      .on('error', () => undefined)
      .on('close', () => {
        this.isOpen = false;
        this.#changes.notify();
      });
  }

  /** A TLS connection that has agreed on `h2` and sent nothing else. */
  static async open(port: number): Promise<FrameClient> {
    const socket = connect({ port, host: '127.0.0.1', ALPNProtocols: ['h2'], rejectUnauthorized: false });
    const client = new FrameClient(socket);
    await once(socket, 'secureConnect');
    return client;
  }

  /** Opens a connection and exchanges settings. */
  static async begin(port: number, values?: Settings): Promise<FrameClient> {
    const client = await FrameClient.open(port);
    await client.begin(values);
    return client;
  }

  /** Sends the preface and exchanges settings. */
  async begin(values?: Settings): Promise<void> {
    this.send(preface, settings(values));
    await this.receives((each) => each.type === frameTypes.settings && each.flags === 0, 'its settings');
    this.send(frame(frameTypes.settings, flags.ack));
  }

  send(...frames: readonly Uint8Array[]): void {
    this.socket.write(Buffer.concat(frames));
  }

  /** Sends frames; resolves when the OS has the bytes or the connection has closed. */
  async sent(...frames: readonly Uint8Array[]): Promise<void> {
    if (!this.isOpen) return;
    await new Promise<void>((resolve) => {
      this.socket.once('close', resolve);
      if (this.socket.destroyed) return;
      this.socket.write(Buffer.concat(frames), () => {
        this.socket.off('close', resolve);
        resolve();
      });
    });
  }

  #until<T>(attempt: () => T | undefined, expected: string): Promise<T> {
    const last = () => this.frames.slice(-20).map(({ type, stream, payload }) => `${type}/${stream}/${payload.toString('hex')}`); // prettier-ignore
    return this.#changes.until(attempt, () => `${expected}; the last of ${this.frames.length} frames: ${last().join(' ')}`); // prettier-ignore
  }

  /** The first received frame that `isIt` accepts. */
  receives(isIt: (each: Frame) => boolean, expected: string): Promise<Frame> {
    return this.#until(() => {
      const found = this.frames.find(isIt);
      if (found === undefined && !this.isOpen) throw new Error(`closed before ${expected}`);
      return found;
    }, expected);
  }

  /** Waits for DATA on each of these streams: the body of a reply. */
  async replies(...streams: readonly number[]): Promise<void> {
    for (const stream of streams) {
      await this.receives((each) => each.type === frameTypes.data && each.stream === stream, `a reply on ${stream}`);
    }
  }

  /** The code with which the gateway reset `stream`. */
  async resetCode(stream: number): Promise<number> {
    const isReset = (each: Frame) => each.type === frameTypes.resetStream && each.stream === stream;
    return (await this.receives(isReset, `a reset of ${stream}`)).payload.readUInt32BE(0);
  }

  /** The body that has been received on `stream` so far. */
  bodyOf(stream: number): Buffer {
    const pieces = this.frames.filter((each) => each.type === frameTypes.data && each.stream === stream);
    return Buffer.concat(pieces.map(({ payload }) => payload));
  }

  /** The last stream and the error code in the last GOAWAY, if any. */
  get goAway(): { readonly lastStream: number; readonly code: number } | undefined {
    const last = this.frames.findLast(({ type }) => type === frameTypes.goAway);
    return last && { lastStream: last.payload.readUInt32BE(0), code: last.payload.readUInt32BE(4) };
  }

  /** Resolves when the gateway has closed the connection. */
  async closed(): Promise<void> {
    await this.#until(() => (this.isOpen ? undefined : true), 'the connection is closed');
  }

  [Symbol.asyncDispose](): Promise<void> {
    this.socket.destroy();
    return Promise.resolve();
  }

  #read(bytes: Buffer): void {
    this.#bytes = Buffer.concat([this.#bytes, bytes]);
    while (this.#bytes.length >= 9) {
      const end = 9 + this.#bytes.readUIntBE(0, 3);
      if (this.#bytes.length < end) return;
      const [type, frameFlags] = [this.#bytes.readUInt8(3), this.#bytes.readUInt8(4)];
      const payload = Buffer.from(this.#bytes.subarray(9, end));
      const isAck = (type === frameTypes.settings || type === frameTypes.ping) && frameFlags === flags.ack;
      if (!isAck) this.onFrame({ type, flags: frameFlags, stream: this.#bytes.readUInt32BE(5), payload });
      this.#bytes = this.#bytes.subarray(end);
    }
  }
}
