// One request that node:http has read, and its reply: for every host whose server is Node's.

import type { IncomingMessage, ServerResponse } from 'node:http';

import { Deadline, type DeadlineOwner } from '../../backend/deadlines.ts';
import { HostMistake } from '../common/failure-lines.ts';
import { RequestFields, type Flaw, type RequestHead } from '../../http1/head.ts';
import type { Client, Incoming, Reply, Transport } from '../../http1/transport.ts';
import { fieldNameOf, listReplyHeaders } from '../common/fields.ts';
import type { HeldBody } from './held-body.ts';
import { linger } from './linger.ts';
import type { NodeHost } from './node-host.ts';

export class NodeExchange implements Transport, Client, DeadlineOwner {
  readonly #host: NodeHost;
  readonly #request: IncomingMessage;
  readonly #response: ServerResponse;
  readonly #target: string;
  readonly #inheritedHeaders: readonly string[] | undefined;
  #incoming: Incoming | undefined;
  // What the host has gathered; undefined where the body comes from the request.
  #heldBody: HeldBody | undefined;
  #bodyDeadline: Deadline | undefined;
  #hasBody = false;
  #hasReplied = false;
  #isLingering = false;
  #isBodyHeld = false;
  // Node goes on reading behind a request that asks for another protocol, and loses what came with it.
  #persists = true;

  /** `inheritedHeaders` are those of the host; undefined where they are set on the response already. */
  constructor(
    host: NodeHost,
    request: IncomingMessage,
    response: ServerResponse,
    target: string,
    inheritedHeaders?: readonly string[],
  ) {
    this.#host = host;
    this.#request = request;
    this.#response = response;
    this.#target = target;
    this.#inheritedHeaders = inheritedHeaders;
  }

  get address(): string | undefined {
    return this.#request.socket.remoteAddress;
  }

  /** Calls `begin` in this request's turn: when Node has given the response its socket, those before it have ended [D27]. */
  inTurn(begin: () => void): void {
    const run = (): void => {
      try {
        begin();
      } catch (error) {
        this.fail(error);
      }
    };
    if (this.#response.socket === null) {
      this.#response.once('socket', run);
    } else {
      run();
    }
  }

  /** Answers with the 500 of a fault of our own, or of the host [D28]. */
  fail(error: unknown): void {
    this.#host.gateway.acceptFault(this.#request.method ?? '', this.#target, this, this, error);
  }

  /**
   * The head as Node has read it. Node has found where the message ends; what two parsers could read differently all the
   * same is refused here [D27]. `ownId` is the host's id for the request, where its client has sent none.
   */
  readHead(ownId?: string): RequestHead | Flaw {
    const { rawHeaders, method = '', httpVersionMajor, httpVersionMinor } = this.#request;
    const fields = new RequestFields();
    for (let index = 0; index < rawHeaders.length; index += 2) {
      const name = fieldNameOf(rawHeaders[index] ?? '');
      // Node has answered an expectation, or left it to the host.
      if (name !== undefined && name !== 'expect') {
        fields.take(name, rawHeaders[index + 1] ?? '');
      }
    }
    if (ownId !== undefined) {
      fields.take('x-request-id', ownId);
    }
    return fields.finish(method, this.#target, httpVersionMajor === 1 ? httpVersionMinor : 0);
  }

  /** Makes a call of it; a head with a flaw gets its reply, and no call. */
  accept(head: RequestHead | Flaw): Incoming | undefined {
    const { gateway } = this.#host;
    if ('reason' in head) {
      this.reply(gateway.refuse(head, this), () => undefined);
      return undefined;
    }
    this.#persists = head.persists;
    this.#hasBody = head.bodyLength !== 0;
    this.#incoming = gateway.accept(head, this, this);
    return this.#incoming;
  }

  /** Starts the call. The body is `body`, or comes from the request. */
  start(incoming: Incoming, body?: HeldBody): void {
    this.#response.once('close', () => {
      if (!this.#hasReplied) {
        this.#hasReplied = true;
        this.#bodyDeadline?.clear();
        incoming.onGone();
      }
    });
    if (this.#response.destroyed) {
      return;
    }
    this.#heldBody = body;
    incoming.start();
    if (!this.#isBodyHeld) {
      this.#giveBody(incoming);
    }
  }

  // Of a body that comes after its reply no more is read than a body may have: then the connection closes [D11].
  #giveBody(incoming: Incoming): void {
    const request = this.#request;
    if (this.#heldBody !== undefined) {
      this.#heldBody.handOver(incoming);
      return;
    }
    if (!this.#hasBody) {
      return;
    }
    if (request.readableEnded) {
      this.#bodyDeadline?.clear();
      incoming.onBodyEnd();
      return;
    }
    let bytes = 0;
    request
      .on('data', (piece: Buffer) => {
        bytes += piece.length;
        if (!this.#hasReplied || bytes <= this.#host.gateway.requestBytesMax) {
          incoming.onBody(piece);
        } else if (!this.#isLingering) {
          request.socket.destroy();
        }
      })
      .on('end', () => {
        this.#bodyDeadline?.clear();
        incoming.onBodyEnd();
      })
      // The response closes with it.
      .on('error', () => undefined);
  }

  holdBody(): void {
    this.#isBodyHeld = true;
  }

  /** Node has sent the `100 Continue`. */
  readBody(): void {
    if (this.#heldBody === undefined) {
      if (this.#request.readableDidRead && this.#request.method !== 'DELETE') {
        throw new HostMistake(bodyWasRead);
      }
      this.#bodyDeadline = new Deadline(this);
      this.#host.bodyDeadlines.start(this.#bodyDeadline);
    }
    this.#request.resume();
    this.#releaseBody();
  }

  onDeadlinePassed(): void {
    this.#incoming?.onBroken('timeout');
  }

  #releaseBody(): void {
    const incoming = this.#incoming;
    if (this.#isBodyHeld && incoming !== undefined) {
      this.#isBodyHeld = false;
      queueMicrotask(() => {
        this.#giveBody(incoming);
      });
    }
  }

  reply(reply: Reply, onTaken: () => void): void {
    const response = this.#response;
    this.#hasReplied = true;
    this.#bodyDeadline?.clear();
    this.#releaseBody();
    const isHttp1 = this.#request.httpVersionMajor === 1;
    const closes = isHttp1 && (reply.closes || !this.#persists);
    this.#writeHead(reply, closes);
    if (closes && !this.#request.complete) {
      this.#isLingering = true;
      linger(this.#request.socket);
    }
    const [first] = reply.pieces;
    if (reply.pieces.length <= 1) {
      response.end(first);
    } else {
      response.cork();
      for (const piece of reply.pieces) {
        response.write(piece);
      }
      response.end();
    }
    const { socket } = this.#request;
    if (response.writableLength === 0 || socket.destroyed) {
      onTaken();
    } else {
      response.once('close', onTaken);
      if (this.#incoming !== undefined) {
        this.#host.stallWatch.watch(socket, this.#incoming);
      }
    }
  }

  #writeHead(reply: Reply, closes: boolean): void {
    const response = this.#response;
    const headers = listReplyHeaders(reply);
    if (closes) {
      headers.push('connection', 'close');
    }
    if (this.#inheritedHeaders !== undefined) {
      response.writeHead(reply.head.status, [...headers, ...this.#inheritedHeaders]);
      return;
    }
    // A length and chunks together are no HTTP.
    response.removeHeader('transfer-encoding');
    // One by one: what other middleware has put in the place of `writeHead` may lose a list.
    for (let index = 0; index < headers.length; index += 2) {
      response.setHeader(headers[index] ?? '', headers[index + 1] ?? '');
    }
    response.writeHead(reply.head.status);
  }

  cut(): void {
    this.#request.socket.destroy();
  }
}

const bodyWasRead =
  "the host has read the request's body before: put the handler before express.json() and whatever else reads bodies";
