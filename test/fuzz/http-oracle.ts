// The reference for our readers: Node's HTTP/1.1 parser in strict mode, as a server and a client over streams in
// memory. Many connections are read at the same time, since each needs a few turns of the event loop.

import { createServer, request, type IncomingMessage, type ServerResponse } from 'node:http';
import { Duplex } from 'node:stream';

export interface JudgedMessage {
  /** Method and target, or the status. */
  readonly start: string;
  /** In order of arrival; names in lower case. */
  readonly fields: readonly (readonly [name: string, value: string])[];
  readonly body: Buffer;
  readonly isWhole: boolean;
  /** True if the connection stays open after the message; undefined if unknown. */
  readonly persists: boolean | undefined;
  readonly isOld: boolean;
}

export interface Judgement {
  readonly messages: readonly JudgedMessage[];
  /** The code of the parser's error. */
  readonly error: string | undefined;
}

interface Recorded {
  message: IncomingMessage;
  body: Buffer[];
  persists: boolean | undefined;
}

// The `Wire` behind each socket that Node's server reports.
const wires = new WeakMap<object, Wire>();

class Wire extends Duplex {
  static {
    // The methods that Node calls on a socket.
    for (const name of ['setTimeout', 'setNoDelay', 'setKeepAlive', 'ref', 'unref']) {
      Reflect.set(Wire.prototype, name, function (this: Wire) {
        return this;
      });
    }
  }

  readonly recorded: Recorded[] = [];
  error: string | undefined;

  constructor() {
    // Each direction ends independently.
    super({ allowHalfOpen: true, autoDestroy: false });
    wires.set(this, this);
  }

  override _read(): void {
    // Nothing to do: `push` delivers the bytes.
  }

  override _write(_chunk: unknown, _encoding: unknown, callback: () => void): void {
    callback();
  }

  record(message: IncomingMessage, persists: boolean | undefined): void {
    const recorded: Recorded = { message, body: [], persists };
    this.recorded.push(recorded);
    message.on('data', (piece: Buffer) => recorded.body.push(piece)).on('error', () => undefined);
  }

  judge(): Judgement {
    return {
      messages: this.recorded.map(({ message, body, persists }) => ({
        start: message.method == null ? String(message.statusCode) : `${message.method} ${message.url ?? ''}`,
        fields: message.rawHeaders.flatMap((name, index, all): [string, string][] =>
          index % 2 === 0 ? [[name.toLowerCase(), all[index + 1] ?? '']] : [],
        ),
        body: Buffer.concat(body),
        isWhole: message.complete,
        persists,
        isOld: message.httpVersion === '1.0',
      })),
      error: this.error,
    };
  }
}

const limits = { insecureHTTPParser: false, maxHeaderSize: 1_048_576 };

const server = createServer({ ...limits, requireHostHeader: false, highWaterMark: 1_048_576 });
server.maxHeadersCount = 0;
function onRequest(message: IncomingMessage, response: ServerResponse): void {
  wires.get(message.socket)?.record(message, response.shouldKeepAlive);
}
for (const event of ['request', 'checkContinue', 'checkExpectation']) {
  server.on(event, onRequest);
}
server.on('connect', (message: IncomingMessage, socket: Duplex) => wires.get(socket)?.record(message, undefined));
server.on('clientError', (error: NodeJS.ErrnoException, socket: Duplex) => {
  const wire = wires.get(socket);
  if (wire !== undefined) wire.error ??= error.code ?? error.message;
});

function openRequests(bytes: Uint8Array): Wire {
  const wire = new Wire();
  server.emit('connection', wire);
  wire.push(Buffer.from(bytes));
  return wire;
}

function openAnswer(bytes: Uint8Array, isEnded: boolean): Wire {
  const wire = new Wire();
  const sent = request({
    ...limits,
    createConnection: () => wire,
    host: 'localhost',
    method: 'GET',
    headers: { connection: 'keep-alive' },
  });
  sent.maxHeadersCount = 0;
  sent
    .on('response', (message) => wire.record(message, sent.shouldKeepAlive))
    .on('upgrade', (message) => wire.record(message, undefined))
    .on('error', (error: NodeJS.ErrnoException) => {
      wire.error ??= error.code ?? error.message;
    })
    .end();
  // Deferred, because Node rejects an answer that arrives before its request has been sent.
  setImmediate(() => {
    wire.push(Buffer.from(bytes));
    if (isEnded) wire.push(null);
  });
  return wire;
}

async function judgeAll(wires: readonly Wire[], turns: number): Promise<Judgement[]> {
  for (let turn = 0; turn < turns; turn += 1) {
    await new Promise((resolve) => setImmediate(resolve));
  }
  const judgements = wires.map((wire) => wire.judge());
  for (const wire of wires) {
    wire.on('error', () => undefined).destroy();
  }
  return judgements;
}

/** Reads each of `texts` with Node's server, as a connection that stays open. */
export function judgeRequests(texts: readonly Uint8Array[], turns = 4): Promise<Judgement[]> {
  return judgeAll(texts.map(openRequests), turns);
}

/** Reads each of `texts` with Node's client, as the answer to a GET. */
export function judgeAnswers(texts: readonly Uint8Array[], isEnded: boolean, turns = 6): Promise<Judgement[]> {
  return judgeAll(
    texts.map((bytes) => openAnswer(bytes, isEnded)),
    turns,
  );
}
