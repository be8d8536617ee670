// Makes calls to the backend through the gateway's own code, without a client connection. Records the reply that a
// client would get, the outcome and the backend's answer.

import { once } from 'node:events';

import type { CallRecord } from '../core/call/call-record.ts';
import type { Gateway } from '../core/call/gateway.ts';
import { startDeadline } from '../core/hosts/common/process-deadline.ts';
import type { ClientTls, SocketTap } from '../core/hosts/dialing/open-socket.ts';
import { createGateway } from '../core/hosts/common/create-gateway.ts';
import type { GatewayValues } from '../core/options/gateway-options.ts';
import { ChunkReader } from '../core/http1/chunk-reader.ts';
import { parseConnection } from '../core/http1/grammar.ts';
import type { Transport } from '../core/http1/transport.ts';
import { backendPath, collectionPath, operations, type Operation, type OperationName } from '../core/operations.ts';
import { withoutEndSlashes } from '../core/text/addresses.ts';
import { backendPeer } from '../figures/backend-status.ts';

/** The gateway's settings, without `allowedHosts`, which concerns only clients. TLS options are passed separately. */
export type GatewayInForce = Omit<GatewayValues, 'backendTls' | 'allowedHosts'>;

export interface Call extends Pick<CallRecord, 'outcome' | 'reason'> {
  readonly operation: Operation;
  readonly path: string;
  readonly cause: string | undefined;
  readonly reply: { readonly status: number; readonly body: Buffer };
  /** The backend's answer; undefined if its head did not arrive completely. */
  readonly answer: Answer | undefined;
  readonly hasBytes: boolean;
  readonly isHttp2: boolean;
  readonly isReused: boolean;
  readonly durationMs: number;
}

interface Answer {
  readonly version: string;
  readonly status: number;
  /** Values by lower-case name. Several values of one name are joined by commas. */
  readonly fields: ReadonlyMap<string, string>;
  /** How the end of the body is found; `none`: the answer has no body. */
  readonly framing: 'chunked' | 'length' | 'until-close' | 'none';
  readonly closesConnection: boolean;
  /** The start of the body, without chunk sizes. */
  readonly bodyStart: Buffer;
  readonly isWhole: boolean;
}

// This many bytes of an answer are kept, which is enough for a head (at most 1 MiB) and the start of the body.
const keptBytesMax = 1_081_344;
// How long to wait for the body of a failure, in ms. The gateway's call has then ended, because the head decides.
const bodyWaitMs = 1_000;

/** The bytes that arrived on one connection during the current call. */
interface Arrivals {
  readonly socket: Parameters<SocketTap>[0];
  /** True if an earlier call sent a request on this connection. */
  isReused: boolean;
  writtenBefore: number;
  bytes: Buffer;
  onBytes: () => void;
}

/** Calls to one backend, one at a time. */
export class Calls {
  // Counts the calls of all instances, so that each call has its own request id in the backend's log.
  static #count = 0;
  readonly made: Call[] = [];
  readonly #gateway: Gateway;
  readonly #listPath: string;
  #arrivals: Arrivals[] = [];
  #onEnd: (record: CallRecord) => void = () => undefined;
  #fault: unknown;

  /** Aborting `end` closes every connection. */
  constructor(settings: GatewayInForce, tls: ClientTls | undefined, end?: AbortSignal) {
    const { backendUrl } = settings;
    this.#listPath = withoutEndSlashes(backendUrl.pathname) + backendPath;
    this.#gateway = createGateway(
      { ...settings, allowedHosts: [], backendTls: backendUrl.protocol === 'https:' ? tls : undefined },
      {
        observer: {
          onCallEnd: (record) => this.#onEnd(record),
          onMalformed: () => undefined,
          onStall: () => undefined,
          onBug: (error) => {
            this.#fault ??= error;
          },
        },
        peer: backendPeer,
        tap: this.#tap,
      },
    );
    end?.addEventListener('abort', () => void this.close(), { once: true });
  }

  /** Makes one request of the operation `name`, with `id` in its path. Rejects only for a bug of the gateway. */
  async make(name: OperationName, id = '', body?: Buffer): Promise<Call> {
    const operation = operations.find((each) => each.name === name);
    if (operation === undefined) throw new Error(`there is no operation ${name}`);
    const path = operation.on === 'collection' ? '' : `/${encodeURIComponent(id)}`;
    this.#arrivals = this.#arrivals.filter(({ socket }) => !socket.destroyed);
    for (const each of this.#arrivals) {
      each.isReused ||= each.socket.bytesWritten > each.writtenBefore;
      each.writtenBefore = each.socket.bytesWritten;
      each.bytes = Buffer.alloc(0);
    }
    const startedAt = performance.now();
    const { record, reply } = await this.#request(operation.method, path, body);
    if (record.outcome === 'bug' || this.#fault !== undefined) {
      throw new Error('the gateway itself failed', { cause: this.#fault ?? record.cause });
    }
    // The answer came on the newest connection that carried this request. Other connections may still receive the rest
    // of an earlier answer.
    const used = this.#arrivals.findLast(({ socket, writtenBefore }) => socket.bytesWritten > writtenBefore);
    if (used !== undefined) await receiveFailure(used);
    const bytes = used?.bytes ?? Buffer.alloc(0);
    const call: Call = {
      operation,
      path: this.#listPath + path,
      outcome: record.outcome,
      reason: record.reason,
      cause: typeof record.cause === 'string' ? record.cause : undefined,
      reply,
      answer: readAnswer(bytes),
      hasBytes: bytes.length > 0,
      isHttp2: isHttp2Frame(bytes),
      isReused: used?.isReused === true,
      durationMs: record.backendDurationMs ?? performance.now() - startedAt,
    };
    this.made.push(call);
    return call;
  }

  async #request(method: string, path: string, body: Buffer | undefined) {
    const { promise: ended, resolve } = Promise.withResolvers<CallRecord>();
    this.#onEnd = resolve;
    let reply = { status: 0, body: Buffer.alloc(0) };
    const transport: Transport = {
      holdBody: () => undefined,
      readBody: () => {
        // A copy, because the gateway owns every buffer that it receives.
        if (body !== undefined) incoming.onBody(Buffer.from(body));
        incoming.onBodyEnd();
      },
      reply: ({ head, body: bytes }) => {
        reply = { status: head.status, body: bytes.copy() };
      },
      cut: () => undefined,
    };
    const incoming = this.#gateway.accept(
      {
        method,
        target: `${collectionPath}${path}`,
        bodyLength: body?.length ?? 0,
        expectation: 'none',
        persists: true,
        version: '1.1',
        fields: ['host', 'localhost', 'x-request-id', `contract-${(Calls.#count += 1)}`],
      },
      transport,
      { address: undefined },
    );
    incoming.start();
    return { record: await ended, reply };
  }

  /** Waits up to `ms` for the connection of the last call to close. Returns true if the backend closed it. */
  async isClosedByBackend(ms: number): Promise<boolean> {
    const { socket } = this.#arrivals.at(-1) ?? {};
    if (socket === undefined) return false;
    if (!socket.destroyed) {
      const over = new AbortController();
      // A referenced timer keeps the process alive; `AbortSignal.timeout` and an idle socket do not.
      const callOff = startDeadline(ms, () => over.abort());
      await once(socket, 'close', { signal: over.signal }).catch(() => undefined);
      callOff();
    }
    return socket.readableEnded || socket.errored !== null;
  }

  /** Closes every connection. A call in flight fails. */
  async close(): Promise<void> {
    await this.#gateway.backend.close();
  }

  readonly #tap: SocketTap = (socket) => {
    const arrivals: Arrivals = {
      socket,
      isReused: false,
      writtenBefore: socket.bytesWritten,
      bytes: Buffer.alloc(0),
      onBytes: () => undefined,
    };
    this.#arrivals.push(arrivals);
    return (bytes) => {
      const kept = bytes.subarray(0, keptBytesMax - arrivals.bytes.length);
      arrivals.bytes = Buffer.concat([arrivals.bytes, kept]);
      arrivals.onBytes();
    };
  };
}

/** Waits for the rest of a failure, because its body may have the backend's reason. */
async function receiveFailure(arrivals: Arrivals): Promise<void> {
  const { socket } = arrivals;
  const isDone = (): boolean => {
    const answer = readAnswer(arrivals.bytes);
    return answer === undefined || answer.status < 400 || answer.isWhole || arrivals.bytes.length >= keptBytesMax;
  };
  if (socket.destroyed || isDone()) return;
  const { promise: done, resolve } = Promise.withResolvers<undefined>();
  const end = (): void => resolve(undefined);
  const timer = setTimeout(end, bodyWaitMs);
  socket.once('close', end);
  arrivals.onBytes = () => {
    if (isDone()) end();
  };
  await done;
  clearTimeout(timer);
  socket.off('close', end);
}

// A frame of the connection [RFC 9113, 4.1]: SETTINGS, which a server sends first, or GOAWAY.
function isHttp2Frame(bytes: Buffer): boolean {
  return bytes.length >= 9 && [4, 7].includes(bytes[3] ?? 0) && bytes.readUInt32BE(5) === 0;
}

const headEnd = '\r\n\r\n';

/**
 * Returns the final answer in `bytes`; undefined if its head is incomplete or has no valid status line. The gateway's own
 * reader does not suffice: it keeps only the framing fields, and nothing of a malformed head.
 */
function readAnswer(bytes: Buffer): Answer | undefined {
  const end = bytes.indexOf(headEnd);
  const [first = '', ...lines] = end === -1 ? [] : bytes.toString('latin1', 0, end).split('\r\n');
  const [, version, digits] = /^HTTP\/(\d\.\d) (\d{3})(?: |$)/.exec(first) ?? [];
  if (version === undefined) return undefined;
  const status = Number(digits);
  const rest = bytes.subarray(end + headEnd.length);
  // Skip interim answers [D15].
  if (status < 200 && status !== 101) return readAnswer(rest);
  const fields = new Map<string, string>();
  for (const line of lines) {
    const colon = line.indexOf(':');
    const name = line.slice(0, colon).toLowerCase();
    const before = fields.get(name);
    const value = line.slice(colon + 1).trim();
    fields.set(name, before === undefined ? value : `${before}, ${value}`);
  }
  const framing =
    status === 204 || status === 304
      ? 'none'
      : fields.has('transfer-encoding')
        ? 'chunked'
        : fields.has('content-length')
          ? 'length'
          : 'until-close';
  const { closes, keepsAlive } = parseConnection(fields.get('connection') ?? '');
  const closesConnection = closes || (version === '1.0' && !keepsAlive) || framing === 'until-close';
  const { bodyStart, isWhole } =
    framing === 'chunked'
      ? readChunks(rest)
      : { bodyStart: rest, isWhole: framing === 'none' || rest.length >= Number(fields.get('content-length')) };
  return { version, status, fields, framing, closesConnection, bodyStart, isWhole };
}

function readChunks(bytes: Buffer): Pick<Answer, 'bodyStart' | 'isWhole'> {
  const pieces: Buffer[] = [];
  const reader = new ChunkReader({ onBody: (piece) => pieces.push(Buffer.from(piece)) });
  // A copy, because the reader moves small chunks together.
  reader.read(Buffer.from(bytes), 0);
  return { bodyStart: Buffer.concat(pieces), isWhole: reader.isOver || reader.flaw !== undefined };
}
