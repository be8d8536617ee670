// A backend that records the exact bytes of every request and answers from a script. The faults have toxiproxy's names.

import { once } from 'node:events';
import { createServer, type AddressInfo, type Server, type Socket } from 'node:net';
import { Changes, DEADLINE_MS } from './changes.ts';
import { bytesOf, type Headers } from './raw-client.ts';

export interface BackendRequest {
  /** Connections are numbered from 0, in the order of arrival. */
  readonly connection: number;
  /** Above 0 on a reused connection. */
  readonly indexOnConnection: number;
  /** Includes the empty line. */
  readonly head: string;
  readonly method: string;
  readonly target: string;
  readonly headers: Headers;
  readonly body: Buffer;
  /** The first value of a header, or undefined. */
  header(name: string): string | undefined;
}

/** One request and the connection to answer it on. */
export class Exchange {
  readonly request: BackendRequest;
  readonly socket: Socket;
  readonly closed: Promise<void>;

  constructor(request: BackendRequest, socket: Socket, closed: Promise<void>) {
    this.request = request;
    this.socket = socket;
    this.closed = closed;
  }

  get isClosed(): boolean {
    return this.socket.destroyed || !this.socket.writable;
  }

  /** Resolves when the bytes have left, or the connection is closed. */
  async write(bytes: string | Uint8Array): Promise<void> {
    if (this.isClosed) return;
    const written = new Promise<unknown>((resolve) => this.socket.write(bytesOf(bytes), resolve));
    await Promise.race([written, this.closed]);
  }

  /** Resolves after `ms`, or when the connection is closed. */
  async pause(ms: number): Promise<void> {
    const { promise, resolve } = Promise.withResolvers<undefined>();
    const timer = setTimeout(resolve, ms, undefined);
    await Promise.race([promise, this.closed]);
    clearTimeout(timer);
  }
}

/** Answers one request. The backend reads the connection's next request when the promise has resolved. */
export type Answer = (exchange: Exchange) => Promise<void> | void;

export interface AnswerParts {
  readonly status?: number;
  readonly headers?: Headers;
}

/** The bytes of a well-formed answer with an exact length; a string body is UTF-8. */
export function answerBytes(body: string | Uint8Array, { status = 200, headers = [] }: AnswerParts = {}): Buffer {
  const bytes = Buffer.from(body);
  const lines = [
    `HTTP/1.1 ${String(status).padStart(3, '0')} Scripted`,
    'Content-Type: application/json; charset=utf-8',
    ...headers.map(([name, value]) => `${name}: ${value}`),
    `Content-Length: ${bytes.length}`,
    '',
    '',
  ];
  return Buffer.concat([bytesOf(lines.join('\r\n')), bytes]);
}

/** A well-formed answer. */
export function answer(body: string | Uint8Array, parts?: AnswerParts): Answer {
  return (exchange) => exchange.write(answerBytes(body, parts));
}

/** An answer without a body: ASP.NET's answer to PUT and DELETE. */
export const noContent: Answer = (exchange) => exchange.write('HTTP/1.1 204 No Content\r\n\r\n');

/** Exactly these bytes; the connection stays open. */
export function raw(...pieces: (string | Uint8Array)[]): Answer {
  return async (exchange) => {
    for (const piece of pieces) await exchange.write(piece);
  };
}

/** Exactly these bytes, then FIN. */
export function rawThenClose(bytes: string | Uint8Array): Answer {
  return async (exchange) => {
    await exchange.write(bytes);
    exchange.socket.end();
  };
}

/** toxiproxy `timeout`: the request is read and never answered. */
export const timeout: Answer = (exchange) => exchange.closed;

/** Answers with `then` when the gate is open. */
export function behind(gate: { readonly opened: Promise<void> }, then: Answer): Answer {
  return async (exchange) => {
    await gate.opened;
    await then(exchange);
  };
}

/** toxiproxy `latency`: answers with `then` after `ms`. */
export function latency(ms: number, then: Answer): Answer {
  return async (exchange) => {
    await exchange.pause(ms);
    await then(exchange);
  };
}

/** toxiproxy `bandwidth`: sends a hundredth of `bytesPerSecond` every 10 ms. */
export function bandwidth(bytesPerSecond: number, bytes: string | Uint8Array): Answer {
  const size = Math.max(1, Math.floor(bytesPerSecond / 100));
  return inPieces(bytes, size, (exchange) => exchange.pause(10));
}

/** toxiproxy `slicer`: `size` bytes per write. */
export function slicer(bytes: string | Uint8Array, size = 1): Answer {
  return inPieces(bytes, size, () => new Promise((resolve) => setImmediate(resolve)));
}

function inPieces(text: string | Uint8Array, size: number, pause: (exchange: Exchange) => Promise<void>): Answer {
  return async (exchange) => {
    const bytes = bytesOf(text);
    for (let start = 0; start < bytes.length && !exchange.isClosed; start += size) {
      await exchange.write(bytes.subarray(start, start + size));
      await pause(exchange);
    }
  };
}

/** toxiproxy `slow_close`: the connection is closed `ms` after the last byte. */
export function slowClose(ms: number, bytes: string | Uint8Array): Answer {
  return async (exchange) => {
    await exchange.write(bytes);
    await exchange.pause(ms);
    exchange.socket.end();
  };
}

/** toxiproxy `limit_data`: FIN after the first `count` bytes. */
export function limitData(count: number, bytes: string | Uint8Array): Answer {
  return rawThenClose(bytesOf(bytes).subarray(0, count));
}

/** toxiproxy `reset_peer`: RST after the first `count` bytes. */
export function resetPeer(count = 0, bytes: string | Uint8Array = ''): Answer {
  return async (exchange) => {
    if (count > 0) await exchange.write(bytesOf(bytes).subarray(0, count));
    exchange.socket.resetAndDestroy();
  };
}

/** Bytes that are not HTTP. */
export const garbage: Answer = raw(Uint8Array.from({ length: 512 }, (_, index) => (index * 167 + 13) % 256));

/** Two answers to one request, in one write. */
export function twoAnswers(first: Uint8Array, second: Uint8Array): Answer {
  return raw(Buffer.concat([first, second]));
}

/** Informational answers and the final one, in one write. */
export function informational(statuses: readonly number[], final: string | Uint8Array): Answer {
  const heads = statuses.map((status) => `HTTP/1.1 ${status} Informational\r\nX-Hint: 1\r\n\r\n`).join('');
  return raw(Buffer.concat([bytesOf(heads), bytesOf(final)]));
}

/** `start`, then `again` every millisecond until the connection is closed. */
export function endless(start: string, again: string): Answer {
  return async (exchange) => {
    await exchange.write(start);
    while (!exchange.isClosed) {
      await exchange.write(again);
      await exchange.pause(1);
    }
  };
}

/** An answer whose `content-length` is wrong by `difference`; then FIN. */
export function wrongLength(difference: number, body: string): Answer {
  const length = Buffer.byteLength(body) + difference;
  return rawThenClose(`HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: ${length}\r\n\r\n${body}`);
}

/** A chunked answer from raw chunk bytes, malformed or not. */
export function chunked(chunks: string, { status = 200 }: AnswerParts = {}): Answer {
  return raw(
    `HTTP/1.1 ${status} Scripted\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n${chunks}`,
  );
}

export class ScriptedBackend {
  /** Complete requests, in the order of arrival. */
  requests: BackendRequest[] = [];
  /** Received heads that the gateway must never send, whatever a client sends. */
  violations: string[] = [];
  /** Sent on each new connection: an answer before the request. */
  greeting: Buffer | undefined;
  /** Sent when the head has arrived, before the body. */
  answersAtHead: Answer | undefined;

  readonly #changes = new Changes();
  /** Open connections, by their number. */
  readonly #connections = new Map<number, Socket>();
  #connectionsTaken = 0;
  #server: Server | undefined;
  readonly #host: string;
  #port: number;
  #answer: Answer = answer('{}');
  #once: Answer[] = [];
  #taken = 0;
  #errors: Error[] = [];

  private constructor(host: string, port: number) {
    this.#host = host;
    this.#port = port;
  }

  static async start({ host = '127.0.0.1', port = 0 } = {}): Promise<ScriptedBackend> {
    const backend = new ScriptedBackend(host, port);
    await backend.restart();
    return backend;
  }

  get port(): number {
    return this.#port;
  }

  get url(): string {
    return `http://${this.#host.includes(':') ? `[${this.#host}]` : this.#host}:${this.#port}`;
  }

  /** Connections accepted so far, closed ones included. */
  get connectionsTaken(): number {
    return this.#connectionsTaken;
  }

  get connectionsOpen(): number {
    return this.#connections.size;
  }

  /** True when the connection with that number has closed. */
  isClosed(number: number): boolean {
    return number < this.#connectionsTaken && !this.#connections.has(number);
  }

  /** Sets the answer to every request from now on. */
  answers(each: Answer): this {
    this.#answer = each;
    return this;
  }

  /** Sets the answers to the next requests, one each. */
  answersOnce(...each: Answer[]): this {
    this.#once.push(...each);
    return this;
  }

  /** Forgets the record and the script; connections stay open. */
  reset(): void {
    this.requests = [];
    this.violations = [];
    this.greeting = undefined;
    this.answersAtHead = undefined;
    this.#answer = answer('{}');
    this.#once = [];
    this.#taken = 0;
  }

  /** The next request that `nextRequest` has not returned yet. */
  nextRequest(limitMs = DEADLINE_MS): Promise<BackendRequest> {
    return this.#changes.until(
      () => {
        const next = this.requests[this.#taken];
        if (next) this.#taken += 1;
        return next;
      },
      () => `a backend call; ${this.requests.length} came, ${this.#taken} of them expected`,
      limitMs,
    );
  }

  /** Resolves when `isSo` returns true. `isSo` is called at each request and at each end of a connection. */
  async until(isSo: () => boolean, expected: string, limitMs = DEADLINE_MS): Promise<void> {
    const attempt = () => (isSo() ? true : undefined);
    await this.#changes.until(attempt, () => expected, limitMs);
  }

  /** Resolves when the gateway has closed the connection with that number. */
  connectionClosed(number: number, limitMs = DEADLINE_MS): Promise<void> {
    return this.until(() => this.isClosed(number), `connection ${number} closed`, limitMs);
  }

  /** Refuses new connections; open ones stay. */
  stopListening(): void {
    this.#server?.close();
  }

  /** toxiproxy `down`: closes the port and every connection, by RST if `reset`. */
  async stop({ reset = false }: { reset?: boolean } = {}): Promise<void> {
    const server = this.#server;
    this.#server = undefined;
    const closed = server && new Promise((resolve) => server.close(resolve));
    for (const socket of this.#connections.values()) {
      if (reset && !socket.destroyed) socket.resetAndDestroy();
      else socket.destroy();
    }
    await closed;
    const [error] = this.#errors;
    if (error) throw error;
  }

  /** Listens again, on the same port. */
  async restart(): Promise<void> {
    const server = createServer({ noDelay: true, allowHalfOpen: false }, (socket) => this.#take(socket));
    server.listen({ port: this.#port, host: this.#host, ipv6Only: this.#host === '::1' });
    await once(server, 'listening');
    this.#server = server;
    this.#port = (server.address() as AddressInfo).port;
  }

  /** Closes every open connection by FIN; the port stays open. */
  closeConnections(): void {
    for (const socket of this.#connections.values()) socket.end();
  }

  #take(socket: Socket): void {
    const connection = this.#connectionsTaken;
    this.#connectionsTaken += 1;
    this.#connections.set(connection, socket);
    const { promise: closed, resolve: close } = Promise.withResolvers<undefined>();
    let received = Buffer.alloc(0);
    let indexOnConnection = 0;
    let isAnswering = false;
    let isHeadAnswered = false;
    socket.on('error', () => undefined);
    socket.on('close', () => {
      this.#connections.delete(connection);
      close(undefined);
      this.#changes.notify();
    });
    if (this.greeting) socket.write(this.greeting);
    const read = () => {
      if (isAnswering) return;
      const head = parseHead(received);
      if (!head) return;
      if (!head.isPlain) this.violations.push(head.request.head);
      const exchange = (body: Buffer) =>
        new Exchange({ ...head.request, body, connection, indexOnConnection }, socket, closed);
      if (this.answersAtHead && !isHeadAnswered) {
        isHeadAnswered = true;
        void this.answersAtHead(exchange(Buffer.alloc(0)));
      }
      if (received.length < head.length) return;
      const whole = exchange(Buffer.from(received.subarray(head.headLength, head.length)));
      received = received.subarray(head.length);
      indexOnConnection += 1;
      isAnswering = true;
      this.requests.push(whole.request);
      this.#changes.notify();
      const respond = isHeadAnswered ? () => undefined : (this.#once.shift() ?? this.#answer);
      isHeadAnswered = false;
      void Promise.resolve(respond(whole))
        .catch((error: unknown) => this.#errors.push(error instanceof Error ? error : new Error(String(error))))
        .then(() => {
          isAnswering = false;
          read();
        });
    };
    let pieces: Buffer[] = [];
    socket.on('data', (data: Buffer) => {
      pieces.push(data);
      // A large body is joined once, when all of it has arrived.
      const head = parseHead(received);
      const pieceLength = pieces.reduce((sum, { length }) => sum + length, 0);
      if (head && received.length + pieceLength < head.length) return;
      received = Buffer.concat([received, ...pieces]);
      pieces = [];
      read();
    });
  }
}

/** Parses the head at the start of `bytes`. A head that is not plain is a violation by the gateway. */
function parseHead(bytes: Buffer) {
  const headLength = bytes.indexOf('\r\n\r\n') + 4;
  if (headLength < 4) return undefined;
  const head = bytes.toString('latin1', 0, headLength);
  const [requestLine = '', ...lines] = head.slice(0, -4).split('\r\n');
  const [, method = requestLine, target = ''] = /^([A-Z]+) (\/[\x21-\x7e]*) HTTP\/1\.1$/.exec(requestLine) ?? [];
  const headers = lines.map((line): [string, string] => {
    const colon = line.indexOf(':');
    return [line.slice(0, colon), line.slice(colon + 1).trim()];
  });
  const valuesOf = (name: string) => headers.filter(([key]) => key.toLowerCase() === name).map(([, value]) => value);
  const [length = '0', ...otherLengths] = valuesOf('content-length');
  const isPlain =
    target !== '' &&
    lines.every((line) => /^[A-Za-z0-9-]+: [\x20-\x7e]*$/.test(line)) &&
    otherLengths.length === 0 &&
    /^[0-9]+$/.test(length) &&
    valuesOf('transfer-encoding').length === 0 &&
    valuesOf('host').length === 1;
  return {
    request: { head, method, target, headers, header: (name: string) => valuesOf(name)[0] },
    isPlain,
    headLength,
    length: headLength + (isPlain ? Number(length) : 0),
  };
}
