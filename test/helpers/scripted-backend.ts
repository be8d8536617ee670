// A backend that records every request as exact bytes and answers from a script: well-formed answers, and
// the faults of a bad backend or network, named as toxiproxy names them where it has them.

import { createServer, type AddressInfo, type Server, type Socket } from 'node:net';
import { Changes, DEADLINE_MS } from './changes.ts';
import { bytesOf, type Headers } from './raw-client.ts';

export interface BackendRequest {
  /** 0 for the first connection that the backend ever took, then 1, 2, ... */
  readonly connection: number;
  /** 0 for the first request of its connection: a later one came on a reused connection. */
  readonly indexOnConnection: number;
  /** The head as it came, its empty line included. */
  readonly head: string;
  readonly method: string;
  readonly target: string;
  readonly headers: Headers;
  readonly body: Buffer;
  /** The value of a header that occurs once, or undefined. */
  header(name: string): string | undefined;
}

/** One request and the means to answer it. */
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

  /** Resolves when the bytes have left, or the connection is gone. */
  write(bytes: string | Uint8Array): Promise<void> {
    if (this.isClosed) return Promise.resolve();
    const written = new Promise<void>((resolve) => {
      this.socket.write(bytesOf(bytes), () => {
        resolve();
      });
    });
    return Promise.race([written, this.closed]);
  }
}

/** Answers one request; the backend reads on from this connection when it is done. */
export type Answer = (exchange: Exchange) => Promise<void> | void;

export interface AnswerParts {
  readonly status?: number;
  readonly headers?: Headers;
}

/** The bytes of a well-formed answer with an exact length; a string body is UTF-8. */
export function answerBytes(
  body: string | Uint8Array,
  { status = 200, headers = [] }: AnswerParts = {},
): Buffer {
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

/** An answer without a body, as ASP.NET gives to PUT and DELETE. */
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

/** toxiproxy `timeout`: the request is taken and never answered. */
export const timeout: Answer = (exchange) => exchange.closed;

/** An answer that waits until the gate is opened. */
export function behind(gate: { readonly opened: Promise<void> }, then: Answer): Answer {
  return async (exchange) => {
    await gate.opened;
    await then(exchange);
  };
}

/** toxiproxy `latency`: the answer comes `ms` later. */
export function latency(ms: number, then: Answer): Answer {
  return async (exchange) => {
    await pause(ms, exchange);
    await then(exchange);
  };
}

/** toxiproxy `bandwidth`: at most so many bytes a second, in pieces of a hundredth of that. */
export function bandwidth(bytesPerSecond: number, bytes: string | Uint8Array): Answer {
  return async (exchange) => {
    const size = Math.max(1, Math.floor(bytesPerSecond / 100));
    for (const piece of slices(bytesOf(bytes), size)) {
      if (exchange.isClosed) return;
      await exchange.write(piece);
      await pause(10, exchange);
    }
  };
}

/** toxiproxy `slicer`: every byte in a write of its own, `size` bytes when given. */
export function slicer(bytes: string | Uint8Array, size = 1): Answer {
  return async (exchange) => {
    for (const piece of slices(bytesOf(bytes), size)) {
      if (exchange.isClosed) return;
      await exchange.write(piece);
      await new Promise((resolve) => setImmediate(resolve));
    }
  };
}

/** toxiproxy `slow_close`: the connection is closed only `ms` after the last byte. */
export function slowClose(ms: number, bytes: string | Uint8Array): Answer {
  return async (exchange) => {
    await exchange.write(bytes);
    await pause(ms, exchange);
    exchange.socket.end();
  };
}

/** toxiproxy `limit_data`: closed (FIN) after the first `count` bytes. */
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

/** Bytes that are no HTTP at all. */
export const garbage: Answer = raw(Uint8Array.from({ length: 512 }, (_, index) => (index * 167 + 13) % 256));

/** Two answers in one write, where one was asked for. */
export function twoAnswers(first: Uint8Array, second: Uint8Array): Answer {
  return raw(Buffer.concat([first, second]));
}

/** Informational answers, as they are given, and then the final one, all in one write. */
export function informational(statuses: readonly number[], final: string | Uint8Array): Answer {
  const heads = statuses.map((status) => `HTTP/1.1 ${status} Informational\r\nX-Hint: 1\r\n\r\n`).join('');
  return raw(Buffer.concat([bytesOf(heads), bytesOf(final)]));
}

/** A good head and a chunked body without end; `inside` is what every chunk holds. */
export function endlessBody(status = 200, inside = ' '.repeat(4096)): Answer {
  return endless(
    `HTTP/1.1 ${status} Scripted\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n`,
    `${inside.length.toString(16)}\r\n${inside}\r\n`,
  );
}

/** `start`, and then `again` for as long as the connection lives, a write a millisecond. */
export function endless(start: string, again: string): Answer {
  return async (exchange) => {
    await exchange.write(start);
    while (!exchange.isClosed) {
      await exchange.write(again);
      await pause(1, exchange);
    }
  };
}

/** An answer whose `content-length` is off by `difference`; then FIN. */
export function wrongLength(difference: number, body: string): Answer {
  const length = Buffer.byteLength(body) + difference;
  return rawThenClose(
    `HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: ${length}\r\n\r\n${body}`,
  );
}

/** A chunked answer from raw chunk bytes, malformed or not. */
export function chunked(chunks: string, { status = 200 }: AnswerParts = {}): Answer {
  return raw(
    `HTTP/1.1 ${status} Scripted\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n${chunks}`,
  );
}

interface Connection {
  readonly socket: Socket;
  readonly number: number;
}

export class ScriptedBackend {
  /** Every request that came whole, in order of arrival. */
  requests: BackendRequest[] = [];
  /** Shapes that a gateway must never produce, whatever its client sent. */
  violations: string[] = [];
  /** Bytes written as soon as a connection is taken: an answer before the request. */
  greeting: Buffer | undefined;
  /** Answers as soon as the head is there, before the body: for answers that do not wait for their request. */
  answersAtHead: Answer | undefined;

  readonly #changes = new Changes();
  /** Those that are open, by their number. */
  readonly #connections = new Map<number, Connection>();
  #connectionsTaken = 0;
  #server: Server | undefined;
  #port = 0;
  #host: string;
  #answer: Answer = answer('{}');
  #once: Answer[] = [];
  #taken = 0;
  #errors: Error[] = [];

  private constructor(host: string) {
    this.#host = host;
  }

  static async start({
    host = '127.0.0.1',
    port = 0,
  }: { host?: string; port?: number } = {}): Promise<ScriptedBackend> {
    const backend = new ScriptedBackend(host);
    backend.#port = port;
    await backend.restart();
    return backend;
  }

  get port(): number {
    return this.#port;
  }

  get url(): string {
    return `http://${this.#host.includes(':') ? `[${this.#host}]` : this.#host}:${this.#port}`;
  }

  /** How many connections were ever taken. */
  get connectionsTaken(): number {
    return this.#connectionsTaken;
  }

  get connectionsOpen(): number {
    return this.#connections.size;
  }

  /** Whether the connection of that number has closed. */
  isClosed(number: number): boolean {
    return number < this.#connectionsTaken && !this.#connections.has(number);
  }

  /** From now on every request gets this answer. */
  answers(each: Answer): this {
    this.#answer = each;
    return this;
  }

  /** The next requests get these, one each; then what `answers` says again. */
  answersOnce(...each: Answer[]): this {
    this.#once.push(...each);
    return this;
  }

  /** Forgets the record and the script; connections stay. */
  reset(): void {
    this.requests = [];
    this.violations = [];
    this.greeting = undefined;
    this.answersAtHead = undefined;
    this.#answer = answer('{}');
    this.#once = [];
    this.#taken = 0;
  }

  /** The next request that no `nextRequest` has given yet. */
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

  /** Resolves when `isSo`, which is looked at whenever something happens here. */
  async until(isSo: () => boolean, expected: string, limitMs = DEADLINE_MS): Promise<void> {
    await this.#changes.until(
      () => (isSo() ? true : undefined),
      () => expected,
      limitMs,
    );
  }

  /** Resolves when the connection of that number is closed by the gateway. */
  connectionClosed(number: number, limitMs = DEADLINE_MS): Promise<void> {
    return this.until(() => this.isClosed(number), `connection ${number} closed`, limitMs);
  }

  /** Refuses new connections; those that are open stay. */
  stopListening(): void {
    this.#server?.close();
  }

  /** toxiproxy `down`: the port is closed and every connection with it, by RST when asked. */
  async stop({ reset = false }: { reset?: boolean } = {}): Promise<void> {
    const server = this.#server;
    this.#server = undefined;
    const closed =
      server &&
      new Promise<void>((resolve) =>
        server.close(() => {
          resolve();
        }),
      );
    for (const { socket } of this.#connections.values()) {
      if (reset && !socket.destroyed) socket.resetAndDestroy();
      else socket.destroy();
    }
    await closed;
    const [error] = this.#errors;
    if (error) throw error;
  }

  /** Listens again, on the port it had. */
  async restart(): Promise<void> {
    const server = createServer({ noDelay: true, allowHalfOpen: false }, (socket) => {
      this.#take(socket);
    });
    await new Promise<void>((resolve, reject) => {
      server.once('error', reject);
      server.listen({ port: this.#port, host: this.#host, ipv6Only: this.#host === '::1' }, () => {
        resolve();
      });
    });
    this.#server = server;
    this.#port = (server.address() as AddressInfo).port;
  }

  /** Closes (FIN) every connection that is open now; the port stays open. */
  closeConnections(): void {
    for (const { socket } of this.#connections.values()) socket.end();
  }

  #take(socket: Socket): void {
    const connection: Connection = { socket, number: this.#connectionsTaken };
    this.#connectionsTaken += 1;
    this.#connections.set(connection.number, connection);
    const { promise: closed, resolve: close } = Promise.withResolvers<undefined>();
    let received = Buffer.alloc(0);
    let requests = 0;
    let isAnswering = false;
    let isHeadAnswered = false;
    socket.on('error', () => undefined);
    socket.on('close', () => {
      this.#connections.delete(connection.number);
      close(undefined);
      this.#changes.notify();
    });
    if (this.greeting) socket.write(this.greeting);
    const read = () => {
      if (isAnswering) return;
      const head = parseHead(received);
      if (!head) return;
      if (head.violation) this.violations.push(head.violation);
      if (this.answersAtHead && !isHeadAnswered) {
        isHeadAnswered = true;
        const early = {
          ...head.request,
          body: Buffer.alloc(0),
          connection: connection.number,
          indexOnConnection: requests,
        };
        void this.answersAtHead(new Exchange(early, socket, closed));
      }
      if (received.length < head.length) return;
      const body = Buffer.from(received.subarray(head.headLength, head.length));
      const request = { ...head.request, body, connection: connection.number, indexOnConnection: requests };
      received = received.subarray(head.length);
      requests += 1;
      isAnswering = true;
      this.requests.push(request);
      this.#changes.notify();
      const respond = isHeadAnswered ? () => undefined : (this.#once.shift() ?? this.#answer);
      isHeadAnswered = false;
      void Promise.resolve(respond(new Exchange(request, socket, closed)))
        .catch((error: unknown) => {
          this.#errors.push(error instanceof Error ? error : new Error(String(error)));
        })
        .then(() => {
          isAnswering = false;
          read();
        });
    };
    let pieces: Buffer[] = [];
    let pieceLength = 0;
    socket.on('data', (data: Buffer) => {
      pieces.push(data);
      pieceLength += data.length;
      // A large body is joined once, when the rest of it is there.
      const head = parseHead(received);
      if (head && received.length + pieceLength < head.length) return;
      received = Buffer.concat([received, ...pieces]);
      pieces = [];
      pieceLength = 0;
      read();
    });
  }
}

function pause(ms: number, exchange: Exchange): Promise<void> {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, ms);
    void exchange.closed.then(() => {
      clearTimeout(timer);
      resolve();
    });
  });
}

function* slices(bytes: Buffer, size: number): Generator<Buffer> {
  for (let start = 0; start < bytes.length; start += size) yield bytes.subarray(start, start + size);
}

/** What a well-behaved gateway sends is simple to read; anything else is noted, not guessed at. */
function parseHead(bytes: Buffer) {
  const headEnd = bytes.indexOf('\r\n\r\n');
  if (headEnd < 0) return undefined;
  const head = bytes.toString('latin1', 0, headEnd + 4);
  const [requestLine = '', ...lines] = head.slice(0, -4).split('\r\n');
  const match = /^([A-Z]+) (\/[\x21-\x7e]*) HTTP\/1\.1$/.exec(requestLine);
  const headers = lines.map((line): [string, string] => {
    const colon = line.indexOf(':');
    return [line.slice(0, colon), line.slice(colon + 1).trim()];
  });
  const valuesOf = (name: string) =>
    headers.filter(([key]) => key.toLowerCase() === name).map(([, value]) => value);
  const lengths = valuesOf('content-length');
  const isPlain =
    match &&
    lines.every((line) => /^[A-Za-z0-9-]+: [\x20-\x7e]*$/.test(line)) &&
    lengths.length <= 1 &&
    lengths.every((length) => /^[0-9]+$/.test(length)) &&
    valuesOf('transfer-encoding').length === 0 &&
    valuesOf('host').length === 1;
  const headLength = headEnd + 4;
  return {
    request: {
      head,
      method: match?.[1] ?? requestLine,
      target: match?.[2] ?? '',
      headers,
      header: (name: string) => valuesOf(name)[0],
    },
    violation: isPlain ? undefined : head,
    headLength,
    length: headLength + (lengths.length === 1 ? Number(lengths[0]) : 0),
  };
}
