// One request from top to bottom: match, check, forward, reply. Every difference between operations comes
// from the table; every byte that a client gets comes from replies.ts or from a checked answer.

import type { IncomingMessage, ServerResponse } from 'node:http';

import type { Exchange, Outcome, OutcomeHandler } from '../backend/client.ts';
import { giveBackBlocks } from '../blocks.ts';
import { RequestBody } from '../body.ts';
import { isCrossSiteWrite } from '../guards/cross-site.ts';
import { ClientConnection, type Turn } from './client-connection.ts';
import { TooMuchHeldError, type GatheredBody } from './gathered-body.ts';
import type { Gateway } from './gateway.ts';
import { parseItemId } from './item-id.ts';
import { backendPath, isRead, operations, type Operation } from './operations.ts';
import { outcomeOfAnswer, type BackendOutcome, type CallOutcome } from './outcomes.ts';
import { failureReplies, notFoundReplies, replies, type FixedReply, type Pages } from './replies.ts';
import {
  absoluteForm,
  createRequestId,
  describePath,
  readRequestHead,
  type RequestHead,
} from './request-head.ts';

/** What is known of a request when it has ended. Never a body, never a header's value but request id and client. */
export interface CallRecord {
  readonly requestId: string;
  /** Undefined where no operation was called: an unknown path, a method that the path does not have. */
  readonly operation: Operation | undefined;
  readonly method: string;
  /** The target's path, without its query: safe to show [D52]. */
  readonly path: string;
  /** The client's address, as far as it is known; behind trusted proxies that which they say [D52]. */
  readonly client: string | undefined;
  /** The reply's status; 0 when the client had gone, or was cut off by our stop, before there was one. */
  readonly status: number;
  readonly outcome: CallOutcome;
  /** Why the backend's answer was of no use, or the error behind a `bug`. */
  readonly cause: unknown;
  /** What came of the call to the backend; undefined where it was not called, `cancelled` when its client left. */
  readonly backendOutcome: BackendOutcome | undefined;
  /** From the request's head to the reply being handed to the socket. */
  readonly durationMs: number;
  /** From sending to the outcome; undefined where the backend was not called. */
  readonly backendDurationMs: number | undefined;
  readonly requestBytes: number;
  readonly replyBytes: number;
}

const noContent = 204;
const json = 'application/json';
// Above this, copying costs more than the second part of a write.
const oneWriteBytesMax = 16_384;
// How long a client may go on sending after a reply that closes its connection.
const lingerMs = 5_000;

export class Call implements Turn, CallRecord, OutcomeHandler {
  operation: Operation | undefined;
  status = 0;
  outcome: CallOutcome = 'ok';
  cause: unknown;
  durationMs = 0;
  backendOutcome: BackendOutcome | undefined;
  backendDurationMs: number | undefined;
  requestBytes = 0;
  replyBytes = 0;
  /** False where a host's hooks may not have run: then it is no operation, whatever its target [D60]. */
  isRouted = true;
  /** The body, where hooks of a host have read it. */
  gatheredBody: GatheredBody | undefined;

  readonly #gateway: Gateway;
  readonly #connection: ClientConnection;
  readonly #request: IncomingMessage;
  readonly #response: ServerResponse;
  readonly #inheritedHeaders: readonly string[];
  readonly #startedAt = performance.now();

  #head: RequestHead = unreadHead;
  #backendPath = '';
  #exchange: Exchange | undefined;
  #exchangeStartedAt = 0;
  #isInFlight = false;
  #isClientGone = false;
  #hasEnded = false;
  // The request's body: who reads it, and what has come of it.
  #bodyState: 'unread' | 'reading' | 'read' | 'dropping' = 'unread';
  readonly #body = new RequestBody();
  // Bytes counted against the gateway's budget for this call's bodies.
  #heldBytes = 0;
  // What the answer lies in.
  #blocks: readonly Buffer[] = noBlocks;
  #contentType = json;
  #mustClose = false;
  #owesContinue = false;
  #isLingering = false;
  #hasStarted = false;
  #interruption: FixedReply | undefined;
  #fault: { readonly error: unknown } | undefined;

  constructor(
    gateway: Gateway,
    request: IncomingMessage,
    response: ServerResponse,
    inheritedHeaders: readonly string[],
  ) {
    this.#gateway = gateway;
    this.#connection = ClientConnection.of(request.socket);
    this.#request = request;
    this.#response = response;
    this.#inheritedHeaders = inheritedHeaders;
  }

  get requestId(): string {
    // A fault came before the head was read: the reply needs an id all the same.
    if (this.#head === unreadHead) {
      this.#head = { ...unreadHead, requestId: createRequestId() };
    }
    return this.#head.requestId;
  }

  get method(): string {
    return this.#request.method ?? '';
  }

  get path(): string {
    return describePath(this.#request.url ?? '');
  }

  get client(): string | undefined {
    return this.#gateway.findClient(this.#connection, this.#request);
  }

  get #calledOperation(): Operation {
    if (this.operation === undefined) {
      throw new Error('no operation was matched');
    }
    return this.operation;
  }

  /** Puts the request in line behind those that the same client sent before it. */
  enqueue(): void {
    this.#connection.enqueue(this);
  }

  /** As `enqueue`, for a request that met a fault of our own before it came here [D28]. */
  enqueueFault(error: unknown): void {
    this.#fault = { error };
    this.enqueue();
  }

  start(): void {
    this.#hasStarted = true;
    if (this.#fault !== undefined) {
      this.#failWithBug(this.#fault.error);
      return;
    }
    try {
      this.#head = readRequestHead(this.#request);
      if (this.#interruption === undefined) {
        this.#match();
      } else {
        this.#reply(this.#interruption, 'bad-request');
      }
    } catch (error) {
      this.#failWithBug(error);
    }
  }

  // Match: may it come in at all, then the path, then the method, then the id [D4 to D6, D9].
  #match(): void {
    const head = this.#head;
    // Until it is sent the body was not asked for, and whether it comes all the same cannot be known.
    this.#owesContinue =
      head.expectation === 'continue' &&
      this.#gateway.answersExpectations &&
      this.gatheredBody?.isContinued !== true;
    if (head.isAmbiguous) {
      this.#mustClose = true;
      this.#refuse(replies.badRequest, 'bad-request');
      return;
    }
    if (head.asksForUpgrade) {
      // What the client sends behind it would be lost in Node's parser, and later replies out of step.
      this.#mustClose = true;
    }
    if (head.expectation === 'unknown') {
      this.#refuse(replies.expectationFailed, 'bad-request');
      return;
    }
    if (
      isCrossSiteWrite(this.method, head.secFetchSite) ||
      !this.#gateway.answersTo(this.#request.url ?? '', head.host)
    ) {
      this.#refuse(replies.forbidden, 'forbidden');
      return;
    }
    const path = pathOf(this.#request.url ?? '');
    const { collectionPath } = this.#gateway;
    const table = operationsAt(path, collectionPath);
    if (table === undefined) {
      this.#replyWithoutOperation(this.#gateway.pages?.replyTo(path, this.method) ?? replies.notFound);
    } else {
      const isItem = table === itemOperations;
      this.#matchMethod(table, isItem ? path.slice(collectionPath.length + 1) : undefined);
    }
  }

  #matchMethod(table: OperationsOfPath, segment: string | undefined): void {
    const operation = table.byMethod.get(this.method);
    const asksForOptions = this.method === 'OPTIONS';
    if (!this.isRouted && (operation !== undefined || asksForOptions)) {
      this.#replyWithoutOperation(replies.notFound);
      return;
    }
    if (operation === undefined) {
      this.#replyWithoutOperation(asksForOptions ? table.options : table.methodNotAllowed);
      return;
    }
    this.operation = operation;
    if (segment === undefined) {
      this.#backendPath = backendPath;
    } else {
      const id = parseItemId(segment, this.#gateway.options.itemIdParsing);
      if (id === undefined) {
        this.#refuse(replies.invalidId, 'invalid-id');
        return;
      }
      this.#backendPath = `${backendPath}/${id}`;
    }
    if (this.#gateway.isFull) {
      this.#refuse(replies.overload, 'overload');
    } else if (operation.takesBody) {
      this.#readBody();
    } else {
      this.#dropBody();
      this.#forward(undefined);
    }
  }

  // Check: the body is gathered, and looked at as it comes [spec 4, rule 6; D10, D11, D13].
  #readBody(): void {
    const head = this.#head;
    if (head.contentLength !== undefined && head.contentLength > this.#gateway.options.requestBytesMax) {
      this.#refuse(replies.bodyTooLarge, 'body-too-large');
      return;
    }
    this.#bodyState = 'reading';
    const body = this.gatheredBody ?? this.#request;
    if (this.gatheredBody === undefined) {
      if (this.#owesContinue) {
        this.#owesContinue = false;
        this.#response.writeContinue();
      }
    } else {
      // What hooks have left of it, nobody else reads.
      this.#mustClose ||= !this.gatheredBody.isWhole;
      body.on('error', (error: Error) => {
        this.#failToReadBody(error);
      });
    }
    body.on('data', (piece: Buffer) => {
      try {
        this.#takeBodyPiece(piece);
      } catch (error) {
        this.#failWithBug(error);
      }
    });
    body.on('end', () => {
      this.#onBodyEnd();
    });
  }

  #failToReadBody(error: Error): void {
    if (error instanceof TooMuchHeldError) {
      this.#refuse(replies.overload, 'overload');
    } else {
      this.#failWithBug(error);
    }
  }

  #takeBodyPiece(piece: Buffer): void {
    this.requestBytes += piece.length;
    if (this.#bodyState !== 'reading') {
      this.#closeWhenTooLarge();
      return;
    }
    if (this.requestBytes > this.#gateway.options.requestBytesMax) {
      this.#refuse(replies.bodyTooLarge, 'body-too-large');
      return;
    }
    if (!this.#gateway.budget.take(piece.length)) {
      this.#refuse(replies.overload, 'overload');
      return;
    }
    this.#heldBytes += piece.length;
    this.#body.write(piece);
  }

  #onBodyEnd(): void {
    if (this.#bodyState !== 'reading') {
      return;
    }
    this.#bodyState = 'read';
    try {
      if (!this.#body.isJson()) {
        this.#reply(failureReplies[this.#calledOperation.name], 'invalid-body');
        return;
      }
      const pieces = this.#body.takePieces();
      const [first] = pieces;
      this.#forward(first !== undefined && pieces.length === 1 ? first : Buffer.concat(pieces));
    } catch (error) {
      this.#failWithBug(error);
    }
  }

  // A body that no operation takes is dropped as it comes; past the limit the connection closes [D11].
  #dropBody(): void {
    const head = this.#head;
    if (!head.hasBody || this.#bodyState === 'read') {
      this.#bodyState = 'read';
      return;
    }
    if ((head.contentLength ?? this.requestBytes) > this.#gateway.options.requestBytesMax) {
      this.#mustClose = true;
    }
    if (this.#bodyState === 'unread') {
      this.#request.on('data', (piece: Buffer) => {
        this.requestBytes += piece.length;
        this.#closeWhenTooLarge();
      });
    }
    this.#bodyState = 'dropping';
  }

  #closeWhenTooLarge(): void {
    if (this.requestBytes > this.#gateway.options.requestBytesMax) {
      this.#mustClose = true;
      if (this.#hasEnded && !this.#isLingering) {
        this.#connection.socket.destroy();
      }
    }
  }

  // Forward: one call to the backend [spec 4].
  #forward(body: Buffer | undefined): void {
    // There was room when the head came; a body can take its time.
    if (!this.#gateway.enter()) {
      this.#reply(replies.overload, 'overload');
      return;
    }
    this.#isInFlight = true;
    const operation = this.#calledOperation;
    const head = this.#head;
    this.#exchangeStartedAt = performance.now();
    this.#exchange = this.#gateway.backend.send(
      {
        method: operation.method,
        path: this.#backendPath,
        body,
        requestId: head.requestId,
        traceContext: head.traceContext,
        needsAnswer: operation.passesAnswer,
      },
      this,
    );
  }

  // Reply: the answer, or the row of the table that the failure has [spec 4 and 7].
  onOutcome(outcome: Outcome): void {
    try {
      const operation = this.#calledOperation;
      this.#noteBackendOutcome(outcome.kind);
      if (outcome.kind === 'ok') {
        this.#heldBytes += outcome.length;
        this.#blocks = outcome.blocks;
        if (operation.passesAnswer) {
          this.#end(operation.successStatus, outcome.pieces, outcome.length, 'ok', []);
        } else {
          this.#reply(replies.success, 'ok');
        }
        return;
      }
      if (outcome.kind === 'unreachable' && this.#gateway.isCutting) {
        // By ourselves, and not by the backend [D51].
        this.backendOutcome = 'cancelled';
        this.#reply(failureReplies[operation.name], 'shutdown');
        return;
      }
      this.cause = outcome.cause;
      const name =
        outcome.kind === 'refused'
          ? outcomeOfAnswer(outcome.status, operation.notFoundMessage !== undefined)
          : outcome.kind;
      this.backendOutcome = name;
      this.#reply((outcome.status === 404 ? notFoundReplies : failureReplies)[operation.name], name);
    } catch (error) {
      this.#failWithBug(error);
    }
  }

  onFault(error: unknown): void {
    this.#failWithBug(error);
  }

  #noteBackendOutcome(outcome: BackendOutcome): void {
    this.backendOutcome = outcome;
    this.backendDurationMs = performance.now() - this.#exchangeStartedAt;
  }

  /** The request has arrived to its last byte. */
  get hasWholeRequest(): boolean {
    return this.#request.complete;
  }

  /** The rest of the request will not come, or is not HTTP: `reply`, or the one decided already; then closed. */
  interrupt(reply: FixedReply): void {
    this.#mustClose = true;
    this.#connection.isClosing = true;
    if (!this.#hasStarted) {
      this.#interruption = reply;
    } else if (this.#bodyState === 'reading') {
      this.#bodyState = 'read';
      this.#reply(reply, 'bad-request');
    }
  }

  leave(): void {
    this.#isClientGone = true;
    // A write that has been sent runs to its end and its answer is dropped [D21].
    if (this.#exchange === undefined || (this.operation !== undefined && isRead(this.operation))) {
      if (this.#exchange !== undefined) {
        this.#exchange.cancel();
        this.#noteBackendOutcome('cancelled');
      }
      // Thousands may leave at once: the calls of all of them are cancelled before the first is recorded.
      setImmediate(() => {
        this.#end(0, [], 0, 'client-gone', []);
      });
    }
  }

  #replyWithoutOperation(reply: FixedReply): void {
    this.#refuse(reply, reply.status < 400 ? 'ok' : 'no-operation');
  }

  // A reply that is decided before the body was read.
  #refuse(reply: FixedReply, outcome: CallOutcome): void {
    this.#dropBody();
    this.#reply(reply, outcome);
  }

  #reply(reply: FixedReply, outcome: CallOutcome): void {
    this.#contentType = reply.contentType ?? json;
    this.#end(reply.status, [reply.body], reply.body.length, outcome, reply.headers);
  }

  #failWithBug(error: unknown): void {
    this.cause = error;
    this.#bodyState = this.#bodyState === 'reading' ? 'read' : this.#bodyState;
    this.#exchange?.cancel();
    if (this.#response.headersSent || this.#hasEnded) {
      this.outcome = 'bug';
      this.#gateway.notifyBug(error, this);
      this.#connection.socket.destroy();
      return;
    }
    this.#mustClose = true;
    this.operation ??= operationsAt(
      pathOf(this.#request.url ?? ''),
      this.#gateway.collectionPath,
    )?.byMethod.get(this.method);
    this.#reply(this.#faultReply, 'bug');
  }

  get #faultReply(): FixedReply {
    return this.operation === undefined ? replies.internalError : failureReplies[this.operation.name];
  }

  #end(
    status: number,
    pieces: readonly Buffer[],
    length: number,
    outcome: CallOutcome,
    headers: readonly string[],
  ): void {
    if (this.#hasEnded) {
      return;
    }
    this.#hasEnded = true;
    this.#leavePlace();
    this.outcome = outcome;
    if (this.#isClientGone || this.#connection.socket.destroyed) {
      if (outcome === 'ok' || outcome === 'client-gone') {
        this.outcome = this.#gateway.isCutting ? 'shutdown' : 'client-gone';
      }
    } else {
      try {
        this.#write(status, pieces, length, headers);
      } catch (error) {
        this.#failToWrite(error);
      }
    }
    this.#dropBodies();
    this.durationMs = performance.now() - this.#startedAt;
    this.#gateway.notifyEnd(this);
    this.#connection.answeredEarly = this.#request.complete ? undefined : this.#request;
    this.#connection.finish(this);
  }

  #leavePlace(): void {
    if (this.#isInFlight) {
      this.#isInFlight = false;
      this.#gateway.exit();
    }
  }

  // A fault in writing: the operation's 500 as long as nothing has been written, otherwise the connection is cut.
  #failToWrite(error: unknown): void {
    this.cause = error;
    this.outcome = 'bug';
    this.#mustClose = true;
    const { status, body, headers } = this.#faultReply;
    try {
      if (!this.#response.headersSent) {
        this.#contentType = json;
        this.#write(status, [body], body.length, headers);
        return;
      }
    } catch {
      // The first fault is the one to look for.
    }
    this.#connection.socket.destroy();
  }

  #write(status: number, pieces: readonly Buffer[], length: number, headers: readonly string[]): void {
    const response = this.#response;
    this.status = status;
    this.replyBytes = length;
    // Node closes by itself after a request that asked so, and where a 100 was expected and not sent.
    const closes =
      this.#mustClose || this.#gateway.isDraining || !response.shouldKeepAlive || this.#owesContinue;
    const rawHeaders = [
      'cache-control',
      'no-store',
      'x-content-type-options',
      'nosniff',
      'x-request-id',
      this.requestId,
    ];
    if (status !== noContent) {
      rawHeaders.push('content-type', this.#contentType, 'content-length', String(length));
    }
    rawHeaders.push(...headers, ...this.#inheritedHeaders);
    if (closes) {
      rawHeaders.push('connection', 'close');
      this.#connection.close();
    }
    response.writeHead(status, rawHeaders);
    if (closes) {
      this.#linger();
    }
    const [first] = pieces;
    if (pieces.length === 1 && first !== undefined && length <= oneWriteBytesMax) {
      // A string goes out in one write with the head, a buffer in a vector of two; latin1 is one byte a
      // character, whatever the bytes mean (measured on a 432 B item: 12 % less processor time a request).
      response.end(first.toString('latin1'), 'latin1');
    } else if (pieces.length <= 1) {
      response.end(first);
    } else {
      response.cork();
      for (const piece of pieces) {
        response.write(piece);
      }
      response.end();
    }
    this.#connection.unwrittenReply = response.writableFinished ? undefined : response;
    const socket = this.#connection.socket;
    if (socket.writableLength > 0) {
      this.#gateway.stallWatch.watch(socket, this);
    }
  }

  // What the system has not taken yet of the reply stays counted, and its memory untouched, until it has gone.
  #dropBodies(): void {
    this.#body.drop();
    if (this.#isClientGone || this.#response.writableLength === 0) {
      this.#giveBack();
    } else if (this.#heldBytes > 0) {
      this.#response.once('close', () => {
        this.#giveBack();
      });
    }
  }

  #giveBack(): void {
    this.#gateway.budget.giveBack(this.#heldBytes);
    giveBackBlocks(this.#blocks);
  }

  // Closing at once would reset the connection under what the client is still sending, and it might never
  // read the reply. So our side ends, what comes is dropped, and then it closes for good.
  #linger(): void {
    this.#isLingering = true;
    const { socket } = this.#connection;
    if (this.#request.complete) {
      this.#connection.dropRest();
    }
    // What Node calls when the last reply of a connection has been written. When the client ends its side too, the
    // socket closes by itself.
    socket.destroySoon = () => {
      socket.end();
      const timer = setTimeout(() => socket.destroy(), lingerMs).unref();
      socket.once('close', () => {
        clearTimeout(timer);
      });
    };
  }
}

const noBlocks: readonly Buffer[] = [];

const unreadHead: RequestHead = {
  isAmbiguous: true,
  requestId: '',
  traceContext: [],
  expectation: 'none',
  asksForUpgrade: false,
  hasBody: false,
  host: undefined,
  secFetchSite: undefined,
  contentLength: undefined,
};

const slash = 0x2f;

// The target's path: absolute-form is served [D27], the query is ignored [D8].
function pathOf(target: string): string {
  let path = target;
  if (path.charCodeAt(0) !== slash) {
    path = path.replace(absoluteForm, '');
  }
  const query = path.indexOf('?');
  return query === -1 ? path : path.slice(0, query);
}

interface OperationsOfPath {
  readonly byMethod: ReadonlyMap<string, Operation>;
  readonly options: FixedReply;
  readonly methodNotAllowed: FixedReply;
}

const collectionOperations: OperationsOfPath = {
  byMethod: operationsOn('collection'),
  options: replies.collectionOptions,
  methodNotAllowed: replies.collectionMethodNotAllowed,
};

const itemOperations: OperationsOfPath = {
  byMethod: operationsOn('item'),
  options: replies.itemOptions,
  methodNotAllowed: replies.itemMethodNotAllowed,
};

function operationsOn(path: Operation['on']): ReadonlyMap<string, Operation> {
  const byMethod = new Map<string, Operation>();
  for (const operation of operations.filter((each) => each.on === path)) {
    byMethod.set(operation.method, operation);
    if (operation.method === 'GET') {
      // HEAD is as GET; Node leaves the body out [D7].
      byMethod.set('HEAD', operation);
    }
  }
  return byMethod;
}

// What can be called at a path; undefined where it is unknown [D4, D5].
function operationsAt(path: string, collection: string): OperationsOfPath | undefined {
  if (path === collection) {
    return collectionOperations;
  }
  const isItem =
    path.startsWith(collection) &&
    path.charCodeAt(collection.length) === slash &&
    !path.includes('/', collection.length + 1);
  return isItem ? itemOperations : undefined;
}

/** The fixed reply to a request line whose method is no method that the parser knows [D5, D6]. */
export function replyToUnknownMethod(
  target: string,
  collection: string,
  pages: Pages | undefined,
): FixedReply {
  const path = pathOf(target);
  return (
    operationsAt(path, collection)?.methodNotAllowed ??
    pages?.replyTo(path, unknownMethod) ??
    replies.notFound
  );
}

const unknownMethod = '';
