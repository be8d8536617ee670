// Makes calls through the gateway's own code, as requests of a client that are never on a wire, and keeps what came of
// each: the client's reply, the outcome, and the backend's answer as it arrived.

import { BackendClient } from '../core/backend/client.ts';
import { BufferBudget } from '../core/body/budget.ts';
import type { CallRecord } from '../core/call/call-record.ts';
import { Gateway } from '../core/call/gateway.ts';
import type { ItemIdParsing } from '../core/call/item-id.ts';
import {
  backendPath,
  collectionPath,
  operations,
  type Operation,
  type OperationName,
} from '../core/operations.ts';
import type { CallOutcome } from '../core/outcomes.ts';
import type { Reason } from '../core/reasons.ts';
import type { ClientTls, SocketTap } from '../core/http1/client-connection.ts';
import type { Incoming, Reply, Transport } from '../core/http1/transport.ts';
import { readRawAnswer, type RawAnswer } from './answer.ts';
import { withoutEndSlashes } from '../core/text/addresses.ts';
import { backendPeer } from '../figures/backend-peer.ts';

/** Of the gateway that is asked about: those of its settings that a call depends on. */
export interface GatewayInForce {
  readonly backendUrl: URL;
  readonly itemIdParsing: ItemIdParsing;
  readonly backendTimeoutMs: number;
  readonly backendConnectTimeoutMs: number;
  readonly backendIdleTimeoutMs: number;
  readonly requestBytesMax: number;
  readonly responseBytesMax: number;
  readonly bufferedBytesMax: number;
  readonly inFlightMax: number;
}

/** One request and what came of it. */
export interface Call {
  readonly operation: Operation;
  /** Of the call to the backend, with the base path. */
  readonly path: string;
  readonly outcome: CallOutcome;
  /** Why the answer was of no use; undefined for a success. */
  readonly reason: Reason | undefined;
  readonly cause: string | undefined;
  /** What a client got. */
  readonly reply: { readonly status: number; readonly body: Buffer };
  /** Undefined where no whole head of an answer came. */
  readonly answer: RawAnswer | undefined;
  /** Something came that could be looked at, whole or not. */
  readonly hasBytes: boolean;
  readonly durationMs: number;
}

// A head has at most 16 KiB, and of the body only its beginning is looked at.
const keptBytesMax = 32_768;

// What has arrived on one connection for the call that is being made.
interface Arrivals {
  readonly socket: Parameters<SocketTap>[0];
  writtenBefore: number;
  pieces: Buffer[];
  length: number;
}

/** Calls to one backend, one at a time. */
export class Calls {
  /** In the order in which they were made. */
  readonly made: Call[] = [];
  readonly #gateway: Gateway;
  readonly #backend: BackendClient;
  readonly #basePath: string;
  readonly #arrivals = new Set<Arrivals>();
  readonly #onEnd = new Map<string, (record: CallRecord) => void>();
  #count = 0;
  #fault: unknown;

  constructor(settings: GatewayInForce, tls: ClientTls | undefined) {
    this.#basePath = basePathOf(settings.backendUrl);
    const budget = new BufferBudget(settings.bufferedBytesMax);
    this.#backend = new BackendClient({ ...backendOptions(settings, tls), budget, tap: this.#tap });
    this.#gateway = new Gateway(
      {
        allowedHosts: [],
        itemIdParsing: settings.itemIdParsing,
        requestBytesMax: settings.requestBytesMax,
        inFlightMax: settings.inFlightMax,
        trustedProxies: undefined,
        // Guards are about clients; here it is the backend that is asked about.
        guards: [],
        cors: undefined,
        tracer: undefined,
      },
      this.#backend,
      budget,
      {
        onCallEnd: (record) => this.#onEnd.get(record.requestId)?.(record),
        onMalformed: () => undefined,
        onStall: () => undefined,
        onBug: (error) => {
          this.#fault ??= error;
        },
      },
      collectionPath,
    );
  }

  /** Makes one request of `name`; `id` stands in its path. Rejects only with a fault of our own. */
  async make(name: OperationName, id = '', body?: Buffer): Promise<Call> {
    const operation = operationNamed(name);
    const path = operation.on === 'collection' ? '' : `/${encodeURIComponent(id)}`;
    for (const each of this.#arrivals) {
      each.writtenBefore = each.socket.bytesWritten;
      each.pieces = [];
      each.length = 0;
    }
    const transport = new InMemory(body);
    const requestId = `contract-${(this.#count += 1)}`;
    const ended = new Promise<CallRecord>((resolve) => {
      this.#onEnd.set(requestId, resolve);
    });
    const startedAt = performance.now();
    transport.begin(
      this.#gateway.accept(
        {
          method: operation.method,
          target: `${collectionPath}${path}`,
          bodyLength: body?.length ?? 0,
          expectation: 'none',
          persists: true,
          version: '1.1',
          fields: ['host', 'localhost', 'x-request-id', requestId],
        },
        transport,
        { address: undefined },
      ),
    );
    const record = await ended;
    this.#onEnd.delete(requestId);
    if (record.outcome === 'bug' || this.#fault !== undefined) {
      throw new Error('the gateway itself failed', { cause: this.#fault ?? record.cause });
    }
    const bytes = this.#arrivedBytes();
    const call: Call = {
      operation,
      path: `${this.#basePath}${backendPath}${path}`,
      outcome: record.outcome,
      reason: record.reason,
      cause: typeof record.cause === 'string' ? record.cause : undefined,
      reply: transport.taken,
      answer: readRawAnswer(bytes),
      hasBytes: bytes.length > 0,
      durationMs: record.backendDurationMs ?? performance.now() - startedAt,
    };
    this.made.push(call);
    return call;
  }

  /** Closes every connection; a call that is being made fails. */
  async close(): Promise<void> {
    await this.#backend.close();
  }

  // The connection on which the request went out last: what still comes on others belongs to earlier answers.
  #arrivedBytes(): Buffer {
    let bytes = Buffer.alloc(0);
    for (const { socket, writtenBefore, pieces } of this.#arrivals) {
      if (socket.bytesWritten > writtenBefore) {
        bytes = Buffer.concat(pieces);
      }
      if (socket.destroyed) {
        this.#arrivals.forEach((each) => each.socket === socket && this.#arrivals.delete(each));
      }
    }
    return bytes;
  }

  readonly #tap: SocketTap = (socket) => {
    const arrivals: Arrivals = { socket, writtenBefore: 0, pieces: [], length: 0 };
    this.#arrivals.add(arrivals);
    return (bytes) => {
      const room = keptBytesMax - arrivals.length;
      if (room > 0) {
        const piece = Buffer.from(bytes.subarray(0, room));
        arrivals.pieces.push(piece);
        arrivals.length += piece.length;
      }
    };
  };
}

/** The path before that of every call; empty for none. */
export function basePathOf({ pathname }: URL): string {
  return withoutEndSlashes(pathname);
}

/** What a client of this backend is made of, but for its budget. */
export function backendOptions(
  settings: GatewayInForce,
  tls: ClientTls | undefined,
): Omit<ConstructorParameters<typeof BackendClient>[0], 'budget' | 'tap'> {
  return {
    backendUrl: settings.backendUrl,
    tls,
    timeoutMs: settings.backendTimeoutMs,
    connectTimeoutMs: settings.backendConnectTimeoutMs,
    idleTimeoutMs: settings.backendIdleTimeoutMs,
    responseBytesMax: settings.responseBytesMax,
    peer: backendPeer,
  };
}

function operationNamed(name: OperationName): Operation {
  const found = operations.find((each) => each.name === name);
  if (found === undefined) {
    throw new Error(`there is no operation ${name}`);
  }
  return found;
}

// Carries one request and its reply without a connection.
class InMemory implements Transport {
  taken: { readonly status: number; readonly body: Buffer } = { status: 0, body: Buffer.alloc(0) };
  readonly #body: Buffer | undefined;
  #incoming: Incoming | undefined;

  constructor(body: Buffer | undefined) {
    this.#body = body;
  }

  begin(incoming: Incoming): void {
    this.#incoming = incoming;
    incoming.start();
  }

  holdBody(): void {
    // Nothing comes before it is asked for.
  }

  readBody(): void {
    if (this.#body !== undefined) {
      // The receiver's from then on.
      this.#incoming?.onBody(Buffer.from(this.#body));
    }
    this.#incoming?.onBodyEnd();
  }

  reply({ head: { status }, pieces }: Reply, onTaken: () => void): void {
    // A copy: the memory of the pieces takes other bytes after that.
    this.taken = { status, body: Buffer.concat(pieces) };
    onTaken();
  }

  cut(): void {
    // There is no connection.
  }
}
