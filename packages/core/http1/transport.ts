// What a request's receiver and whoever carries the request say to each other. Everything that serves requests, HTTP/1.1
// of our own or a library's, is a `Transport`; nobody behind it sees a socket.

import type { Flaw, RequestHead } from './head.ts';

/** The part of a reply's head that is the same each time. */
export interface ReplyHead {
  readonly status: number;
  /** As name, value, name, value. */
  readonly headers: readonly string[];
  /** The status line and the headers, as HTTP/1.1 writes them. */
  readonly start: string;
}

/** A reply to a client: its bytes are sent as they are. */
export interface Reply {
  readonly head: ReplyHead;
  /** Headers that differ from reply to reply, as name, value, name, value. */
  readonly added: readonly string[];
  readonly requestId: string;
  readonly pieces: readonly Buffer[];
  /** Of all pieces, in bytes. */
  readonly length: number;
  /** A connection that carries one request at a time is closed behind it. */
  readonly closes: boolean;
  /** The client shall send its next requests on another connection: the gateway stops [D33]. */
  readonly drains: boolean;
}

/** Carries one request and its reply. */
export interface Transport {
  /** Nothing is told of the body before `readBody` or `reply` is called; what comes of it waits in the socket. */
  holdBody(): void;
  /** Asks for the body: `100 Continue` is sent where it is owed. */
  readBody(): void;
  /**
   * Sends the reply. `onTaken` is called once, at once or later: the system has the bytes, or nobody wants them any more.
   * What is still to come of the request's body is dropped. Throws when nothing has been sent.
   */
  reply(reply: Reply, onTaken: () => void): void;
  /** Cuts the connection at once. */
  cut(): void;
}

/** What is told of one request: `start`, then `onBody` any number of times, then `onBodyEnd` or `onBroken`. */
export interface Incoming {
  /** Its turn has come. None of the body has come yet. */
  start(): void;
  /** The next bytes of the body, which are the receiver's from now on. Also those that come behind the reply. */
  onBody(piece: Buffer): void;
  onBodyEnd(): void;
  /** The rest of the body does not come, or is not HTTP. */
  onBroken(reason: Broken): void;
  /** The client has gone. Nothing follows. */
  onGone(): void;
  /** The client has stopped taking the reply, and was disconnected. */
  onStall(): void;
}

/** Why a request does not go on: it is malformed, did not come in time, or there is no room for its body. */
export type Broken = Flaw | 'timeout' | 'overload';

/** Whoever answers requests. */
export interface RequestHandler {
  /** Takes a request, which is started next. */
  accept(head: RequestHead, transport: Transport, client: Client): Incoming;
  /** The reply to bytes that are no request, or that did not come in time. */
  refuse(reason: Broken, client: Client): Reply;
  /** Something has thrown outside of a request. */
  onFault(error: unknown): void;
}

/** Where a request comes from. */
export interface Client {
  /** The address of the other end of the connection; undefined where the system no longer knows it. */
  readonly address: string | undefined;
}
