// Makes calls through the gateway's own code, as requests of a client that are never on a wire, and keeps what came of
// each: the client's reply, the outcome, and the backend's answer as it arrived.

import { once } from 'node:events';

import type { CallRecord } from '../core/call/call-record.ts';
import type { Gateway } from '../core/call/gateway.ts';
import type { CorsValues } from '../core/hosts/options/cors-options.ts';
import { createGateway, gatewayRows, type GatewayValues } from '../core/hosts/options/options.ts';
import { defaultsOf } from '../core/hosts/options/rows.ts';
import type { ClientTls, SocketTap } from '../core/http1/client-connection.ts';
import type { Transport } from '../core/http1/transport.ts';
import {
  backendPath,
  collectionPath,
  operations,
  type Operation,
  type OperationName,
} from '../core/operations.ts';
import type { CallOutcome } from '../core/outcomes.ts';
import type { Reason } from '../core/reasons.ts';
import { withoutEndSlashes } from '../core/text/addresses.ts';
import { backendPeer } from '../figures/backend-status.ts';
import { readRawAnswer, type RawAnswer } from './answer.ts';

/** The settings of the gateway in question, without those that are about clients: the backend is in question here. */
export type GatewayInForce = Omit<GatewayValues, 'backendTls' | keyof typeof ofClients | keyof CorsValues>;

// Beside those of CORS, which do nothing without an `Origin`.
const { allowedHosts, trustedProxies } = defaultsOf(gatewayRows);
const ofClients = { allowedHosts, trustedProxies };

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

/** What has arrived on one connection for the call that is being made. */
interface Arrivals {
  readonly socket: Parameters<SocketTap>[0];
  writtenBefore: number;
  bytes: Buffer;
  isEndedByBackend: boolean;
}

/** Calls to one backend, one at a time. */
export class Calls {
  // Of all calls in this process: each has a request id of its own, by which the backend's log finds it.
  static #count = 0;
  /** In the order in which they were made. */
  readonly made: Call[] = [];
  readonly #gateway: Gateway;
  readonly #basePath: string;
  #arrivals: Arrivals[] = [];
  #onEnd: (record: CallRecord) => void = () => undefined;
  #fault: unknown;

  /** When `end` is aborted, it closes. */
  constructor(settings: GatewayInForce, tls: ClientTls | undefined, end?: AbortSignal) {
    const { backendUrl } = settings;
    this.#basePath = basePathOf(backendUrl);
    this.#gateway = createGateway(
      { ...settings, ...ofClients, backendTls: backendUrl.protocol === 'https:' ? tls : undefined },
      {
        observer: {
          onCallEnd: (record) => {
            this.#onEnd(record);
          },
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

  /** Makes one request of `name`; `id` stands in its path. Rejects only with a fault of our own. */
  async make(name: OperationName, id = '', body?: Buffer): Promise<Call> {
    const operation = operations.find((each) => each.name === name);
    if (operation === undefined) {
      throw new Error(`there is no operation ${name}`);
    }
    const path = operation.on === 'collection' ? '' : `/${encodeURIComponent(id)}`;
    this.#arrivals = this.#arrivals.filter(({ socket }) => !socket.destroyed);
    for (const each of this.#arrivals) {
      each.writtenBefore = each.socket.bytesWritten;
      each.bytes = Buffer.alloc(0);
    }
    const { promise: ended, resolve } = Promise.withResolvers<CallRecord>();
    this.#onEnd = resolve;
    const startedAt = performance.now();
    const reply = this.#request(operation, path, body);
    const record = await ended;
    if (record.outcome === 'bug' || this.#fault !== undefined) {
      throw new Error('the gateway itself failed', { cause: this.#fault ?? record.cause });
    }
    // Of the connection on which the request went out last: what still comes on others belongs to earlier answers.
    const used = this.#arrivals.findLast(({ socket, writtenBefore }) => socket.bytesWritten > writtenBefore);
    const bytes = used?.bytes ?? Buffer.alloc(0);
    const call: Call = {
      operation,
      path: `${this.#basePath}${backendPath}${path}`,
      outcome: record.outcome,
      reason: record.reason,
      cause: typeof record.cause === 'string' ? record.cause : undefined,
      reply: { ...reply },
      answer: readRawAnswer(bytes),
      hasBytes: bytes.length > 0,
      durationMs: record.backendDurationMs ?? performance.now() - startedAt,
    };
    this.made.push(call);
    return call;
  }

  // Gives the reply, which is there when the request has ended.
  #request({ method }: Operation, path: string, body: Buffer | undefined): Call['reply'] {
    const taken = { status: 0, body: Buffer.alloc(0) };
    const transport: Transport = {
      holdBody: () => undefined,
      readBody: () => {
        if (body !== undefined) {
          // The receiver's from then on.
          incoming.onBody(Buffer.from(body));
        }
        incoming.onBodyEnd();
      },
      reply: ({ head, pieces }, onTaken) => {
        taken.status = head.status;
        // A copy: the memory of the pieces takes other bytes after that.
        taken.body = Buffer.concat(pieces);
        onTaken();
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
    return taken;
  }

  /** Waits for `ms` at most until the connection of the last call has closed; gives whether the backend closed it. */
  async isClosedByBackend(ms: number): Promise<boolean> {
    const last = this.#arrivals.at(-1);
    if (last?.socket.destroyed === false) {
      const over = new AbortController();
      // Not `AbortSignal.timeout`, which would let the process end: an idle socket does not keep it alive.
      const timer = setTimeout(() => {
        over.abort();
      }, ms);
      await once(last.socket, 'close', { signal: over.signal }).catch(() => undefined);
      clearTimeout(timer);
    }
    return last?.isEndedByBackend ?? false;
  }

  /** Closes every connection; a call that is being made fails. */
  async close(): Promise<void> {
    await this.#gateway.backend.close();
  }

  readonly #tap: SocketTap = (socket) => {
    const arrivals: Arrivals = { socket, writtenBefore: 0, bytes: Buffer.alloc(0), isEndedByBackend: false };
    this.#arrivals.push(arrivals);
    const onEnd = (): void => {
      arrivals.isEndedByBackend = true;
    };
    socket.on('end', onEnd).on('error', onEnd);
    return (bytes) => {
      const room = keptBytesMax - arrivals.bytes.length;
      if (room > 0) {
        arrivals.bytes = Buffer.concat([arrivals.bytes, bytes.subarray(0, room)]);
      }
    };
  };
}

/** The path before that of every call; empty for none. */
export function basePathOf({ pathname }: URL): string {
  return withoutEndSlashes(pathname);
}
