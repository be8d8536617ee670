// A client that writes any bytes in any pieces and reads one reply at a time. It knows the framing of a
// reply and nothing else: no retries, no redirects, no normalising.

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
  /** The value of a header that occurs once; undefined when it does not occur; throws when it occurs twice. */
  header(name: string): string | undefined;
}

export interface CallOptions {
  readonly headers?: Headers;
  /** Sent with its `content-length`, unless `headers` brings a framing of its own. */
  readonly body?: string | Uint8Array;
}

/** Text as bytes, one byte a character: what a test writes is what goes out. */
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
    socket.on('end', () => {
      this.#ending ??= 'end';
      this.#changes.notify();
    });
    socket.on('error', () => {
      this.#ending ??= 'reset';
      this.#changes.notify();
    });
    socket.on('close', () => {
      this.#ending ??= 'end';
      this.#changes.notify();
    });
  }

  /** From `localAddress` where there is one: on Linux any of 127.0.0.0/8 will do. */
  static open(port: number, host = '127.0.0.1', localAddress?: string): Promise<RawClient> {
    return new Promise((resolve, reject) => {
      const socket = connect({ port, host, allowHalfOpen: true, ...(localAddress && { localAddress }) });
      socket.once('error', reject);
      socket.once('connect', () => {
        socket.off('error', reject);
        resolve(new RawClient(socket));
      });
    });
  }

  /** Over TLS; rejects when the handshake fails. `options` are those of `tls.connect`. */
  static openSecure(port: number, options: ConnectionOptions): Promise<RawClient> {
    return new Promise((resolve, reject) => {
      const socket = connectTls({
        port,
        host: '127.0.0.1',
        allowHalfOpen: true,
        ...options,
      } as ConnectionOptions);
      socket.once('error', reject);
      socket.once('secureConnect', () => {
        socket.off('error', reject);
        resolve(new RawClient(socket));
      });
    });
  }

  /** The socket itself, for what is about TLS: of a client that `openSecure` has opened. */
  get secureSocket(): TLSSocket {
    if (!(this.#socket instanceof TLSSocket)) throw new Error('not a connection over TLS');
    return this.#socket;
  }

  /** Sends bytes as they are; text goes one byte a character. */
  send(bytes: string | Uint8Array): void {
    this.#socket.write(bytesOf(bytes));
  }

  /** Sends each piece on its own, after the one before has left. */
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
   * Throws when the connection ends first or the reply is not whole within `limitMs`.
   */
  reply({
    hasBody = true,
    limitMs = DEADLINE_MS,
  }: { hasBody?: boolean; limitMs?: number } = {}): Promise<Reply> {
    let needed = 0;
    return this.#changes.until(
      () => {
        // A large reply is joined and looked at once, not at each of its pieces.
        if (this.#ending === undefined && this.#received.length + this.#arrivingLength < needed)
          return undefined;
        const parsed = parseReply(this.#unread(), hasBody, this.#ending !== undefined);
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

  /** How the gateway ended this connection: `end` (FIN) or `reset`. Fails when it does not within `limitMs`. */
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

  /** What has come and is not part of a reply that was read. */
  get unread(): Buffer {
    return this.#unread();
  }

  /** Waits until at least `count` bytes have come in all. */
  receives(count: number, limitMs = DEADLINE_MS): Promise<number> {
    return this.#changes.until(
      () => (this.bytesReceived >= count ? this.bytesReceived : undefined),
      () => `${count} bytes received; ${this.bytesReceived} came`,
      limitMs,
    );
  }

  /** Takes no byte from the network until `resume`. */
  pause(): void {
    this.#socket.pause();
  }

  resume(): void {
    this.#socket.resume();
  }

  /** Says that nothing more will be sent (FIN), and goes on reading. */
  end(): void {
    this.#socket.end();
  }

  /** Goes away with FIN, both ways. */
  destroy(): void {
    this.#socket.destroy();
  }

  /** Goes away with RST. */
  reset(): void {
    this.#socket.resetAndDestroy();
  }

  [Symbol.asyncDispose](): Promise<void> {
    this.#socket.destroy();
    return Promise.resolve();
  }

  #unread(): Buffer {
    if (this.#arriving.length > 0) {
      this.#received = Buffer.concat([this.#received, ...this.#arriving]);
      this.#arriving = [];
      this.#arrivingLength = 0;
    }
    return this.#received;
  }

  #seen(): string {
    return `received so far: ${JSON.stringify(this.#unread().toString('latin1').slice(0, 500))}`;
  }
}

/** Nobody takes connections on this port of 127.0.0.1. */
export async function isRefused(port: number): Promise<boolean> {
  try {
    (await RawClient.open(port)).destroy();
    return false;
  } catch {
    return true;
  }
}

/** One request on a connection of its own. */
export async function request(
  port: number,
  method: string,
  path: string,
  options: CallOptions = {},
): Promise<Reply> {
  await using client = await RawClient.open(port);
  return await client.call(method, path, options);
}

/** The reply at the start of `bytes` and its length; or the number of bytes needed before it is worth looking again. */
function parseReply(
  bytes: Buffer,
  hasBody: boolean,
  isEnded: boolean,
): { reply: Reply; length: number } | number {
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
  const header = (name: string): string | undefined => {
    const values = headers.filter(([key]) => key.toLowerCase() === name).map(([, value]) => value);
    if (values.length > 1) throw new Error(`${name} occurs ${values.length} times`);
    return values[0];
  };
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

/** Waits for its end; by an error, too, which `once` would throw. */
export async function closed(socket: Socket): Promise<void> {
  await new Promise<void>((resolve) => {
    socket.once('close', () => {
      resolve();
    });
  });
}
