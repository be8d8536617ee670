// A client that writes any bytes in any pieces and reads one reply at a time. It does not retry, redirect or normalise.

import { connect, type Socket } from 'node:net';
import { connect as connectTls, TLSSocket, type ConnectionOptions } from 'node:tls';
import { Changes, DEADLINE_MS } from './changes.ts';

export type Headers = readonly (readonly [name: string, value: string])[];

export interface Reply {
  readonly status: number;
  /** The status line, without its line end. */
  readonly statusLine: string;
  /** Names and values exactly as they came, in order. */
  readonly headers: Headers;
  readonly body: Buffer;
  readonly text: string;
  /** The value of a header, or undefined; throws when it occurs twice. */
  header(name: string): string | undefined;
}

export interface CallOptions {
  readonly headers?: Headers;
  /** Sent with a `content-length`, unless `headers` has this header or `transfer-encoding`. */
  readonly body?: string | Uint8Array;
}

/** Text as bytes, one byte per character. */
export function bytesOf(text: string | Uint8Array): Buffer {
  return typeof text === 'string' ? Buffer.from(text, 'latin1') : Buffer.from(text);
}

/** The bytes of one HTTP/1.1 request; a string body is sent as UTF-8. */
export function requestBytes(method: string, path: string, options: CallOptions = {}): Buffer {
  const headers: (readonly [string, string])[] = [...(options.headers ?? [])];
  const names = new Set(headers.map(([name]) => name.toLowerCase()));
  if (!names.has('host')) headers.unshift(['Host', 'gateway.localhost']);
  const body = options.body === undefined ? undefined : Buffer.from(options.body);
  if (body && !names.has('content-length') && !names.has('transfer-encoding')) {
    headers.push(['Content-Length', String(body.length)]);
  }
  const head = [`${method} ${path} HTTP/1.1`, ...headers.map(([name, value]) => `${name}: ${value}`), '', ''];
  return Buffer.concat([bytesOf(head.join('\r\n')), body ?? Buffer.alloc(0)]);
}

/** One chunk of a chunked body. */
export function chunk(data: string | Uint8Array): Buffer {
  const bytes = Buffer.from(data);
  return Buffer.concat([bytesOf(`${bytes.length.toString(16)}\r\n`), bytes, bytesOf('\r\n')]);
}

/** The same piece again and again, for a client that sends until its connection is closed. */
export function* forever(piece: Uint8Array): Generator<Uint8Array> {
  for (;;) yield piece;
}

export class RawClient implements AsyncDisposable {
  readonly #socket: Socket;
  readonly #changes = new Changes();
  #received = Buffer.alloc(0);
  #arriving: Buffer[] = [];
  #arrivingLength = 0;
  #ending: 'end' | 'reset' | undefined;
  bytesReceived = 0;

  private constructor(socket: Socket) {
    this.#socket = socket;
    socket.setNoDelay(true);
    socket.on('data', (data: Buffer) => {
      this.bytesReceived += data.length;
      this.#arriving.push(data);
      this.#arrivingLength += data.length;
      this.#changes.notify();
    });
    for (const [event, ending] of [['end', 'end'], ['error', 'reset'], ['close', 'end']] as const) {
      socket.on(event, () => {
        this.#ending ??= ending;
        this.#changes.notify();
      });
    } // prettier-ignore
  }

  /** On Linux, `localAddress` may be any of 127.0.0.0/8. */
  static open(port: number, host = '127.0.0.1', localAddress?: string): Promise<RawClient> {
    const options = { port, host, allowHalfOpen: true, ...(localAddress && { localAddress }) };
    return RawClient.#opened(connect(options), 'connect');
  }

  /** Like `open`, but over TLS; rejects when the handshake fails. `options` are those of `tls.connect`. */
  static openSecure(port: number, options: ConnectionOptions): Promise<RawClient> {
    const all = { port, host: '127.0.0.1', allowHalfOpen: true, ...options } as ConnectionOptions;
    return RawClient.#opened(connectTls(all), 'secureConnect');
  }

  static #opened(socket: Socket, event: string): Promise<RawClient> {
    return new Promise((resolve, reject) => {
      socket.once('error', reject).once(event, () => {
        socket.off('error', reject);
        resolve(new RawClient(socket));
      });
    });
  }

  /** The socket of a client that `openSecure` has opened. */
  get secureSocket(): TLSSocket {
    if (!(this.#socket instanceof TLSSocket)) throw new Error('not a connection over TLS');
    return this.#socket;
  }

  /** Sends text as one byte per character. */
  send(bytes: string | Uint8Array): void {
    this.#socket.write(bytesOf(bytes));
  }

  /** Sends each piece separately, after the previous one has left. */
  async sendPieces(pieces: Iterable<string | Uint8Array>): Promise<void> {
    for (const piece of pieces) {
      if (this.#socket.destroyed) return;
      await new Promise<void>((resolve) => this.#socket.write(bytesOf(piece), () => setImmediate(resolve)));
    }
  }

  /** Sends a request and reads its reply. */
  async call(method: string, path: string, options: CallOptions = {}): Promise<Reply> {
    this.send(requestBytes(method, path, options));
    return this.reply(method === 'HEAD' ? { hasBody: false } : {});
  }

  /**
   * The next reply on this connection, 1xx included. `hasBody: false` is for the reply to a HEAD.
   * Rejects when the connection ends first, or when the reply is incomplete after `limitMs`.
   */
  reply({ hasBody = true, limitMs = DEADLINE_MS }: { hasBody?: boolean; limitMs?: number } = {}): Promise<Reply> {
    let needed = 0;
    return this.#changes.until(
      () => {
        // Waits for all needed bytes, so that a large reply is joined and parsed once, not again for each piece.
        if (this.#ending === undefined && this.#received.length + this.#arrivingLength < needed) return undefined;
        const parsed = parseReply(this.unread, hasBody, this.#ending !== undefined);
        if (typeof parsed === 'object') {
          this.#received = this.#received.subarray(parsed.length);
          return parsed.reply;
        }
        needed = parsed;
        if (this.#ending === undefined) return undefined;
        throw new Error(`the connection ended (${this.#ending}) before a whole reply; ${this.#seen()}`);
      },
      () => `a whole reply; ${this.#seen()}`,
      limitMs,
    );
  }

  /** Resolves when the connection has ended: `end` for FIN, `reset` for RST. Rejects after `limitMs`. */
  closed(limitMs = DEADLINE_MS): Promise<'end' | 'reset'> {
    return this.#changes.until(
      () => this.#ending,
      () => `the connection is closed; ${this.#seen()}`,
      limitMs,
    );
  }

  get isOpen(): boolean {
    return this.#ending === undefined;
  }

  /** Received bytes after the last reply that was read. */
  get unread(): Buffer {
    if (this.#arriving.length > 0) {
      this.#received = Buffer.concat([this.#received, ...this.#arriving]);
      this.#arriving = [];
      this.#arrivingLength = 0;
    }
    return this.#received;
  }

  /** Waits until at least `count` bytes have been received in total. */
  receives(count: number, limitMs = DEADLINE_MS): Promise<number> {
    return this.#changes.until(
      () => (this.bytesReceived >= count ? this.bytesReceived : undefined),
      () => `${count} bytes received; ${this.bytesReceived} came`,
      limitMs,
    );
  }

  /** Stops reading until `resume`. */
  pause(): void {
    this.#socket.pause();
  }

  resume(): void {
    this.#socket.resume();
  }

  /** Sends FIN and continues to read. */
  end(): void {
    this.#socket.end();
  }

  /** Closes the connection with FIN. */
  destroy(): void {
    this.#socket.destroy();
  }

  /** Closes the connection with RST. */
  reset(): void {
    this.#socket.resetAndDestroy();
  }

  [Symbol.asyncDispose](): Promise<void> {
    this.#socket.destroy();
    return Promise.resolve();
  }

  #seen(): string {
    return `received so far: ${JSON.stringify(this.unread.toString('latin1').slice(0, 500))}`;
  }
}

/** True when nothing listens on this port of 127.0.0.1. */
export async function isRefused(port: number): Promise<boolean> {
  try {
    (await RawClient.open(port)).destroy();
    return false;
  } catch {
    return true;
  }
}

/** Sends one request on a new connection. */
export async function request(port: number, method: string, path: string, options: CallOptions = {}): Promise<Reply> {
  await using client = await RawClient.open(port);
  return await client.call(method, path, options);
}

/** The value of a header in `headers`, or undefined; throws when it occurs twice. `name` is in lower case. */
export function headerOf(headers: Headers, name: string): string | undefined {
  const values = headers.filter(([key]) => key.toLowerCase() === name).map(([, value]) => value);
  if (values.length > 1) throw new Error(`${name} occurs ${values.length} times`);
  return values[0];
}

/** The reply at the start of `bytes` and its length. If the reply is incomplete: only its final length (0: unknown). */
function parseReply(bytes: Buffer, hasBody: boolean, isEnded: boolean): { reply: Reply; length: number } | number {
  const headEnd = bytes.indexOf('\r\n\r\n');
  if (headEnd < 0) return 0;
  const [statusLine = '', ...lines] = bytes.toString('latin1', 0, headEnd).split('\r\n');
  const match = /^HTTP\/1\.1 ([0-9]{3}) /.exec(statusLine);
  if (!match) throw new Error(`not a status line: ${JSON.stringify(statusLine)}`);
  const status = Number(match[1]);
  const headers = lines.map((line): readonly [string, string] => {
    const colon = line.indexOf(':');
    if (colon < 1) throw new Error(`not a header line: ${JSON.stringify(line)}`);
    return [line.slice(0, colon), line.slice(colon + 1).trim()];
  });
  const header = (name: string): string | undefined => headerOf(headers, name);
  const start = headEnd + 4;
  const finish = (body: Buffer, length: number) => ({
    reply: { status, statusLine, headers, header, body: Buffer.from(body), text: body.toString('utf8') },
    length,
  });
  if (!hasBody || status < 200 || status === 204 || status === 304) return finish(Buffer.alloc(0), start);
  if (header('transfer-encoding') !== undefined) {
    const chunked = parseChunked(bytes, start);
    return chunked ? finish(chunked.body, chunked.end) : 0;
  }
  const contentLength = header('content-length');
  if (contentLength === undefined) return isEnded ? finish(bytes.subarray(start), bytes.length) : 0;
  if (!/^[0-9]+$/.test(contentLength)) throw new Error(`not a content-length: ${contentLength}`);
  const end = start + Number(contentLength);
  return bytes.length < end ? end : finish(bytes.subarray(start, end), end);
}

function parseChunked(bytes: Buffer, start: number): { body: Buffer; end: number } | undefined {
  const pieces: Buffer[] = [];
  for (let position = start; ;) {
    const lineEnd = bytes.indexOf('\r\n', position);
    if (lineEnd < 0) return undefined;
    const size = Number.parseInt(bytes.toString('latin1', position, lineEnd), 16);
    if (Number.isNaN(size)) throw new Error('not a chunk size');
    const next = lineEnd + 2 + size + 2;
    if (bytes.length < next) return undefined;
    if (size === 0) return { body: Buffer.concat(pieces), end: next };
    pieces.push(bytes.subarray(lineEnd + 2, lineEnd + 2 + size));
    position = next;
  }
}

/** Waits until a socket is closed, also by an error; `once` of node:events would throw the error. */
export async function closed(socket: Socket): Promise<void> {
  await new Promise((resolve) => socket.once('close', resolve));
}
