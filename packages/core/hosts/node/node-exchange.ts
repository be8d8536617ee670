// One request that node:http has read, and its reply. Every host on Node's HTTP server uses this class.

import type { IncomingMessage, ServerResponse } from 'node:http';

import { Deadline, type DeadlineOwner } from '../../backend/deadlines.ts';
import { createBodyMistake, HostReplied } from '../common/failure-lines.ts';
import { RequestFields, type Flaw, type RequestHead } from '../../http1/head.ts';
import type { Requester, RequestReceiver, Reply, Transport } from '../../http1/transport.ts';
import { isAsAnnounced, wrongLength } from '../common/announced-length.ts';
import { fieldNameOf, listReplyHeaders, mergeField, type HostHeaders } from '../common/fields.ts';
import type { HeldBody } from './held-body.ts';
import { linger } from './linger.ts';
import { isCutShort } from './upgrade-offers.ts';
import type { NodeHost } from './node-host.ts';
import { beginInTurn, countRead } from './requests-ahead.ts';

/** True for a request of node:http2. A request of node:http can name the version 2.0, but has no stream. */
export function isHttp2(request: IncomingMessage): boolean {
  return request.httpVersionMajor === 2 && 'stream' in request;
}

/** The host's own object for a reply, if the host sends replies itself. */
export interface HostReply extends HostHeaders {
  readonly isTaken: boolean;
  /** Sends a reply with `headers` (names and values), and runs the host's hooks. */
  send(status: number, headers: readonly string[], body: Buffer): void;
}

type State = 'new' | 'held' | 'body' | 'answering' | 'replied' | 'closing' | 'gone';

/**
 * The states that may follow each state.
 *
 * - `new`: the head has been read, and no byte of a body.
 * - `held`: a guard decides. The body is not read.
 * - `body`: the call gets the body.
 * - `answering`: the call has the whole request, and has not replied.
 * - `replied`: the reply has been passed on, or the host has sent its own. The rest of the body is read and dropped.
 * - `closing`: as `replied`, and Node closes the connection after the reply.
 * - `gone`: the response was closed before a reply.
 */
export const nodeExchangeStates: Readonly<Record<State, readonly State[]>> = {
  new: ['held', 'body', 'answering', 'replied', 'closing', 'gone'],
  held: ['body', 'gone'],
  body: ['answering', 'replied', 'closing', 'gone'],
  answering: ['replied', 'closing', 'gone'],
  // If the reply cannot be written, the gateway replies with 500.
  replied: ['replied', 'closing'],
  closing: ['closing'],
  gone: [],
};

export class NodeExchange implements Transport, Requester, DeadlineOwner {
  readonly address: string | undefined;
  readonly #host: NodeHost;
  readonly #request: IncomingMessage;
  readonly #response: ServerResponse;
  readonly #target: string;
  readonly #hostReply: HostReply | undefined;
  #incoming: RequestReceiver | undefined;
  #heldBody: HeldBody | undefined;
  #bodyDeadline: Deadline | undefined;
  #state: State = 'new';
  // True if the connection must close after the reply because of the request's head.
  #closes = false;

  constructor(
    host: NodeHost,
    request: IncomingMessage,
    response: ServerResponse,
    target: string,
    hostReply?: HostReply,
  ) {
    // Read now, because Node does not report it after the client has left.
    this.address = request.socket.remoteAddress;
    this.#host = host;
    this.#request = request;
    this.#response = response;
    this.#target = target;
    this.#hostReply = hostReply;
  }

  get allowedOrigin(): string | undefined {
    return (this.#hostReply ?? this.#response).getHeader(allowOrigin)?.toString();
  }

  /** Calls `begin` when all earlier requests of the connection have ended [D27] and it is the connection's turn [D58]. */
  inTurn(begin: () => void): void {
    beginInTurn(this.#request.socket, this.#response, () => {
      try {
        begin();
      } catch (error) {
        this.fail(error);
      }
    });
  }

  /** Replies with 500 after a fault of the gateway or the host [D28]. */
  fail(error: unknown): void {
    this.#host.gateway.acceptFault(this.#request.method ?? '', this.#target, this, this, error);
  }

  /**
   * Returns the head that Node has read, or its flaw. Node has checked the framing. But a head that two parsers could
   * still read differently is flawed [D27]. `ownId`: the host's request id, passed only if the client sent no id.
   */
  readHead(ownId?: string): RequestHead | Flaw {
    const { rawHeaders, method = '', httpVersionMajor, httpVersionMinor } = this.#request;
    const fields = new RequestFields();
    for (let index = 0; index < rawHeaders.length; index += 2) {
      const name = fieldNameOf(rawHeaders[index] ?? '');
      // Node or the host has already handled `Expect`.
      if (name !== undefined && name !== 'expect') fields.take(name, rawHeaders[index + 1] ?? '');
      if (name === 'upgrade' && isCutShort(this.#request)) this.#closes = true;
    }
    if (ownId !== undefined) fields.take('x-request-id', ownId);
    // Node's parser also accepts the versions 0.9 and 2.0.
    if (httpVersionMajor !== 1) {
      return { kind: 'invalid-head', reason: 'a version that is neither HTTP/1.0 nor HTTP/1.1' };
    }
    return fields.finish(method, this.#target, httpVersionMinor);
  }

  /** Creates the call. If the head is flawed, sends an error reply instead and returns undefined. */
  accept(head: RequestHead | Flaw): RequestReceiver | undefined {
    const { gateway } = this.#host;
    if ('reason' in head) {
      this.reply(gateway.refuse(head, this));
      return undefined;
    }
    if (!head.persists) this.#closes = true;
    if (head.bodyLength === 0) this.enter('answering');
    this.#incoming = gateway.accept(head, this, this);
    return this.#incoming;
  }

  /** @internal A method, so that a test can compare each change with `nodeExchangeStates`. */
  enter(state: State): void {
    this.#state = state;
    if (state !== 'held' && state !== 'body') this.#bodyDeadline?.clear();
  }

  get #hasReplied(): boolean {
    return this.#state === 'replied' || this.#state === 'closing';
  }

  /** Starts the call. Without `body`, the body is read from the request. */
  start(incoming: RequestReceiver, body?: HeldBody): void {
    const hasBody = this.#state === 'new';
    this.#response.once('close', () => {
      if (this.#hasReplied) return;
      this.enter('gone');
      incoming.onGone(this.#response.headersSent ? new HostReplied() : undefined);
    });
    if (this.#response.destroyed) return;
    countRead(this.#request.socket, 0);
    this.#heldBody = body;
    incoming.start();
    if (hasBody && this.#state !== 'held') this.#giveBody(incoming);
  }

  // Passes the body to `incoming`. After the reply, the rest of the body is read and dropped. If the body exceeds the
  // size limit, the connection is closed [D11].
  #giveBody(incoming: RequestReceiver): void {
    const request = this.#request;
    if (this.#state === 'new') this.enter('body');
    if (this.#heldBody !== undefined || request.readableEnded) {
      if (this.#heldBody === undefined) incoming.onBodyEnd();
      else this.#heldBody.handOver(incoming);
      this.#endBody();
      return;
    }
    const wasRead = request.readableDidRead;
    let bytes = 0;
    request
      .on('data', (piece: Buffer) => {
        bytes += piece.length;
        countRead(request.socket, piece.length);
        if (!this.#hasReplied || bytes <= this.#host.gateway.requestBytesMax) {
          incoming.onBody(piece);
        } else if (this.#state === 'replied') {
          request.socket.destroy();
        }
      })
      .on('end', () => {
        this.#endBody();
        if (!wasRead && !isAsAnnounced(request.headers['content-length'], bytes)) {
          incoming.onBroken(wrongLength);
        } else {
          incoming.onBodyEnd();
        }
      })
      // Ignores the error, because the response's 'close' listener handles the failure.
      .on('error', () => undefined)
      // Middleware may have paused the request.
      .resume();
  }

  #endBody(): void {
    if (this.#state === 'body') this.enter('answering');
  }

  holdBody(): void {
    if (this.#state === 'new') this.enter('held');
  }

  /** Sends no `100 Continue`, because Node has already sent it. */
  readBody(): void {
    const body = this.#heldBody;
    // Middleware that sets an encoding reads the body, or would change its bytes.
    const { readableDidRead, readableEncoding } = this.#request;
    const wasRead = body === undefined ? readableDidRead || readableEncoding !== null : body.wasRead;
    if (wasRead && this.#request.method !== 'DELETE') throw createBodyMistake();
    if (body === undefined) {
      this.#bodyDeadline = new Deadline(this);
      this.#host.bodyDeadlines.start(this.#bodyDeadline);
    }
    this.#releaseBody();
  }

  onDeadlinePassed(): void {
    this.#incoming?.onBroken('timeout');
  }

  // The call that waits for the body has not returned yet, so the body follows in a microtask.
  #releaseBody(): void {
    const incoming = this.#incoming;
    if (this.#state === 'held' && incoming !== undefined) {
      this.enter('body');
      queueMicrotask(() => this.#giveBody(incoming));
    }
  }

  reply(reply: Reply): void {
    const response = this.#response;
    const { budget } = this.#host.gateway;
    const isTaken = !this.#hasReplied && (response.headersSent || this.#hostReply?.isTaken === true);
    this.#releaseBody();
    const closes = !isTaken && !isHttp2(this.#request) && (reply.closes || this.#closes);
    this.enter(closes ? 'closing' : 'replied');
    if (isTaken) {
      reply.body.release();
      this.#incoming?.onGone(new HostReplied());
      return;
    }
    const headers = listReplyHeaders(reply);
    if (closes) headers.push('connection', 'close');
    const { status } = reply.head;
    if (this.#hostReply === undefined) this.#writeHead(status, headers);
    if (closes) linger(this.#request.socket);
    // Middleware, such as compression, may keep the bytes after Node has reported them as written.
    const bytes = reply.body.copy();
    if (this.#hostReply === undefined) {
      response.end(bytes);
    } else {
      this.#hostReply.send(status, headers, bytes);
    }
    const { socket } = this.#request;
    if (!response.writableFinished && !socket.destroyed) {
      budget.add(bytes.length);
      response.once('close', () => budget.giveBack(bytes.length));
      if (this.#incoming !== undefined)
        this.#host.stallWatch.watch(socket, this.#incoming, () => response.writableFinished);
    }
  }

  #writeHead(status: number, headers: readonly string[]): void {
    const response = this.#response;
    dropField(response, 'transfer-encoding');
    // The headers are set one by one, because middleware that replaces `writeHead` may drop a list of headers.
    for (let index = 0; index < headers.length; index += 2) {
      const name = headers[index] ?? '';
      response.setHeader(name, mergeField(name, headers[index + 1] ?? '', response));
    }
    response.writeHead(status);
  }

  cut(): void {
    this.#request.socket.destroy();
  }
}

/**
 * Removes a field that Node must set itself: HTTP forbids `transfer-encoding` together with the gateway's `content-length`.
 * After `removeHeader`, Node leaves the field out, unless the property is reset. Middleware that compresses replies removes
 * `content-length`, and then Node must chunk them.
 */
export function dropField(response: ServerResponse, name: 'transfer-encoding' | 'connection'): void {
  response.removeHeader(name);
  Reflect.set(response, name === 'connection' ? '_removedConnection' : '_removedTE', false);
}

const allowOrigin = 'access-control-allow-origin';
