// Makes calls to the backend through the gateway's own code, without a client connection. Records the reply that a
// client would get, the outcome and the bytes of the backend's answer.

import { once } from 'node:events';

import type { CallRecord } from '../core/call/call-record.ts';
import type { Gateway } from '../core/call/gateway.ts';
import type { CorsValues } from '../core/hosts/options/cors-options.ts';
import { createGateway, gatewayRows, type GatewayValues } from '../core/hosts/options/options.ts';
import { defaultsOf } from '../core/hosts/options/rows.ts';
import type { ClientTls, SocketTap } from '../core/http1/client-connection.ts';
import type { Transport } from '../core/http1/transport.ts';
import { backendPath, collectionPath, operations, type Operation, type OperationName } from '../core/operations.ts';
import type { CallOutcome } from '../core/outcomes.ts';
import type { Reason } from '../core/reasons.ts';
import { withoutEndSlashes } from '../core/text/addresses.ts';
import { backendPeer } from '../figures/backend-status.ts';
import { readRawAnswer, type RawAnswer } from './answer.ts';

/** The gateway's settings, except those that concern only clients. */
export type GatewayInForce = Omit<GatewayValues, 'backendTls' | keyof typeof ofClients | keyof CorsValues>;

// Settings for clients have no effect here and keep their defaults. Settings for CORS are not needed, because no
// request has an `Origin`.
const { allowedHosts, trustedProxies } = defaultsOf(gatewayRows);
const ofClients = { allowedHosts, trustedProxies };

export interface Call {
  readonly operation: Operation;
  /** The path at the backend, with the base path. */
  readonly path: string;
  readonly outcome: CallOutcome;
  /** Why the call failed; undefined for a success. */
  readonly reason: Reason | undefined;
  readonly cause: string | undefined;
  /** The reply that a client would get. */
  readonly reply: { readonly status: number; readonly body: Buffer };
  /** The backend's answer; undefined if its head did not arrive completely. */
  readonly answer: RawAnswer | undefined;
  /** True if the backend sent at least one byte. */
  readonly hasBytes: boolean;
  readonly durationMs: number;
}

// This many bytes of an answer are kept, which is enough for a head (at most 16 KiB) and the start of the body.
const keptBytesMax = 32_768;

/** The bytes that arrived on one connection during the current call. */
interface Arrivals {
  readonly socket: Parameters<SocketTap>[0];
  writtenBefore: number;
  bytes: Buffer;
  isEndedByBackend: boolean;
}

/** Calls to one backend, one at a time. */
export class Calls {
  // Counts all calls of this process, so that each has its own request id in the backend's log.
  static #count = 0;
  /** All calls in order. */
  readonly made: Call[] = [];
  readonly #gateway: Gateway;
  readonly #basePath: string;
  #arrivals: Arrivals[] = [];
  #onEnd: (record: CallRecord) => void = () => undefined;
  #fault: unknown;

  /** Aborting `end` closes every connection. */
  constructor(settings: GatewayInForce, tls: ClientTls | undefined, end?: AbortSignal) {
    const { backendUrl } = settings;
    this.#basePath = basePathOf(backendUrl);
    this.#gateway = createGateway(
      { ...settings, ...ofClients, backendTls: backendUrl.protocol === 'https:' ? tls : undefined },
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
    // The answer came on the newest connection that carried this request. Other connections may still receive the rest
    // of an earlier answer.
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

  // Returns an object that the reply fills in later.
  #request({ method }: Operation, path: string, body: Buffer | undefined): Call['reply'] {
    const taken = { status: 0, body: Buffer.alloc(0) };
    const transport: Transport = {
      holdBody: () => undefined,
      readBody: () => {
        if (body !== undefined) {
          // A copy, because the gateway now owns the buffer.
          incoming.onBody(Buffer.from(body));
        }
        incoming.onBodyEnd();
      },
      reply: ({ head, pieces }, onTaken) => {
        taken.status = head.status;
        // A copy, because the memory of the pieces is reused.
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

  /** Waits up to `ms` for the connection of the last call to close. Returns true if the backend closed it. */
  async isClosedByBackend(ms: number): Promise<boolean> {
    const last = this.#arrivals.at(-1);
    if (last?.socket.destroyed === false) {
      const over = new AbortController();
      // A referenced timer keeps the process alive; `AbortSignal.timeout` and an idle socket do not.
      const timer = setTimeout(() => over.abort(), ms);
      await once(last.socket, 'close', { signal: over.signal }).catch(() => undefined);
      clearTimeout(timer);
    }
    return last?.isEndedByBackend ?? false;
  }

  /** Closes every connection. A call in flight fails. */
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

/** Returns the base path in the backend's address, without a trailing slash. */
export function basePathOf({ pathname }: URL): string {
  return withoutEndSlashes(pathname);
}
