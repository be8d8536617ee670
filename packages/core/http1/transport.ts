// The interfaces between a transport, which receives requests, and a handler, which never sees a socket. Our
// HTTP/1.1 server, the HTTP/2 server and the adapters for other hosts are transports.

import type { BorrowedBytes } from './borrowed-bytes.ts';
import type { Ledger } from './connection.ts';
import type { Flaw, RequestHead } from './head.ts';

/** The constant part of a reply's head. */
export interface ReplyHead {
  readonly status: number;
  /** As name, value, name, value. */
  readonly headers: readonly string[];
  /** The status line and the headers in the syntax of HTTP/1.1. */
  readonly start: string;
}

/** A reply to a client. Its bytes are sent unchanged. */
export interface Reply {
  readonly head: ReplyHead;
  /** Headers that differ from reply to reply, as name, value, name, value. */
  readonly added: readonly string[];
  readonly requestId: string;
  readonly body: BorrowedBytes;
  /** True if the connection closes after the reply. Protocols with concurrent requests ignore this. */
  readonly closes: boolean;
  /** True if the gateway is stopping, so that the client should send its next requests on another connection [D33]. */
  readonly drains: boolean;
}

export interface Transport {
  /** Pauses the body until `readBody` or `reply` is called. Bytes that arrive in the meantime are stored. */
  holdBody(): void;
  /** Starts or resumes the delivery of the body. Sends `100 Continue` if the client expects it. */
  readBody(): void;
  /**
   * Sends the reply and drops the rest of the request's body. Releases the reply's body once. If `reply` throws, nothing
   * has been sent, and the caller releases the body.
   */
  reply(reply: Reply): void;
  cut(): void;
}

/** Receives the events of one request: `start`, then `onBody` any number of times, then `onBodyEnd` or `onBroken`. */
export interface RequestReceiver {
  /** Starts the request. Called before any of its body is delivered. */
  start(): void;
  /** The next bytes of the body. The receiver may keep them. `onBody` may also be called after the reply. */
  onBody(piece: Buffer): void;
  onBodyEnd(): void;
  /** The body cannot be read to its end. */
  onBroken(reason: BrokenReason): void;
  /** The client has left or, with a `cause`, has got its reply from the host. Nothing follows. */
  onGone(cause?: Error): void;
  /** The client stopped reading the reply and was disconnected. */
  onStall(): void;
}

/** The reason why a request cannot continue: it is malformed or late, or there is no room for its body. */
export type BrokenReason = Flaw | 'timeout' | 'overload';

export interface RequestHandler {
  /** Returns the receiver for a request. The transport then calls its `start`. */
  accept(head: RequestHead, transport: Transport, client: Requester): RequestReceiver;
  /** Returns the reply to a malformed or late request. */
  refuse(reason: BrokenReason, client: Requester): Reply;
  /** Receives the exceptions that no `RequestReceiver` has caught. */
  onFault(error: unknown): void;
  /** Counts the memory that connections hold; undefined if it is not counted, because there are few connections. */
  readonly budget?: Ledger | undefined;
}

export interface Requester {
  /** The client's address; undefined if the OS did not report it. */
  readonly address: string | undefined;
  /** The origin that the host's own CORS allows for this request. Missing if the gateway's CORS decides. */
  readonly allowedOrigin?: string | undefined;
}
