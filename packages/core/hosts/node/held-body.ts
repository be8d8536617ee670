// Buffers a request body while the host's hooks run, within the size limit and the gateway's budget.

import type { IncomingMessage } from 'node:http';
import type { Readable } from 'node:stream';

import { Deadline, type DeadlineOwner } from '../../backend/deadlines.ts';
import { Pieces } from '../../body/pieces.ts';
import type { RequestHead } from '../../http1/head.ts';
import type { RequestReceiver } from '../../http1/transport.ts';
import { queueForTurn } from '../../http1/turns.ts';
import { isAsAnnounced, wrongLength } from '../common/announced-length.ts';
import { piecesPerTurn } from '../common/piece-turns.ts';
import type { NodeHost } from './node-host.ts';
import { countRead } from './requests-ahead.ts';

type Problem = 'over-limit' | 'overload' | 'timeout' | 'wrong-length';

export class HeldBody implements DeadlineOwner {
  readonly #host: NodeHost;
  readonly #deadline = new Deadline(this);
  /** True if a hook has read the body, or a part of it. */
  wasRead = false;
  // The callback of `gather`; undefined once it has been called.
  #done: ((error?: Error) => void) | undefined;
  readonly #pieces = new Pieces();
  #length = 0;
  #heldBytes = 0;
  #isGathering = true;
  #problem: Problem | undefined;

  constructor(host: NodeHost) {
    this.#host = host;
  }

  /**
   * Reads `payload`. Calls `done` when the body is complete, exceeds a limit or is late. Does not call `done` if the
   * client disconnects. If the stream fails with an error whose `statusCode` is 400 or more, `done` gets that error,
   * and the host replies. After any other error the body counts as empty. A call that needs a body then fails.
   */
  gather(payload: Readable, request: IncomingMessage, done: (error?: Error) => void): void {
    if (request.socket.destroyed) return;
    countRead(request.socket, 0);
    this.#done = done;
    // Bytes that a hook has read are lost, so the remaining bytes are not used.
    if (payload.readableEnded || payload.readableDidRead) {
      this.wasRead = true;
      this.#endWith(undefined);
      return;
    }
    const { gateway, bodyDeadlines } = this.#host;
    if (payload === request && Number(request.headers['content-length'] ?? 0) > gateway.requestBytesMax) {
      payload.resume();
      this.#endWith('over-limit');
      return;
    }
    bodyDeadlines.start(this.#deadline);
    // A hook's stream can have the next chunk ready each time. So after every `piecesPerTurn` chunks, reading pauses
    // until a later turn of the event loop [D58]. If the body exceeds a limit, is late or has an invalid chunk, the
    // rest of the stream is read and dropped, but only until the client's own request has been read completely.
    let pieces = 0;
    const takeTurn = (): void => {
      if (this.#isGathering || !(request.readableEnded || request.destroyed)) payload.resume();
    };
    payload
      .on('data', (piece: unknown) => {
        if (this.#isGathering)
          this.#add(typeof piece === 'string' ? Buffer.from(piece, payload.readableEncoding ?? 'utf8') : piece);
        pieces += 1;
        if (payload === request) countRead(request.socket, Buffer.byteLength(piece as Buffer));
        if (payload !== request && pieces % piecesPerTurn === 0) {
          payload.pause();
          queueForTurn({ takeTurn });
        }
      })
      .on('end', () => {
        // Hooks may change the length. Fastify's `receivedEncodedLength` is the length that their stream has read.
        const { receivedEncodedLength } = payload as Readable & { receivedEncodedLength?: number };
        const received = receivedEncodedLength ?? (payload === request ? this.#length : undefined);
        const isRight = received === undefined || isAsAnnounced(request.headers['content-length'], received);
        if (isRight || !this.#isGathering) {
          this.#finish();
        } else {
          this.#endWith('wrong-length');
        }
      })
      // A hook's stream can fail with any value as its error, or without an error.
      .on('error', (error?: (Error & { statusCode?: number }) | null) => {
        const isRefusal = (error?.statusCode ?? 0) >= 400;
        this.#forget(undefined);
        if (!request.destroyed || request.complete) this.#finish(isRefusal ? (error as Error) : undefined);
      });
  }

  onDeadlinePassed(): void {
    this.#endWith('timeout');
  }

  #add(piece: unknown): void {
    const { budget, requestBytesMax } = this.#host.gateway;
    if (!(piece instanceof Uint8Array)) {
      this.#endWith(undefined);
      return;
    }
    const bytes = Buffer.from(piece.buffer, piece.byteOffset, piece.length);
    const memory = this.#pieces.bytesFor(bytes);
    this.#length += bytes.length;
    if (this.#length > requestBytesMax) {
      this.#endWith('over-limit');
    } else if (memory > 0 && !budget.take(memory)) {
      this.#endWith('overload');
    } else {
      this.#heldBytes += memory;
      this.#pieces.add(bytes);
    }
  }

  /** The body length for the head. The call needs to know only whether the body is over the limit. */
  get announcedLength(): RequestHead['bodyLength'] {
    return this.#problem === 'over-limit' ? this.#host.gateway.requestBytesMax + 1 : 'chunked';
  }

  /** Passes the body to `incoming`. From then on `incoming` counts the bytes against the budget. */
  handOver(incoming: RequestReceiver): void {
    const pieces = this.#pieces.list;
    const problem = this.#problem;
    this.drop();
    if (problem !== undefined && problem !== 'over-limit') {
      incoming.onBroken(problem === 'wrong-length' ? wrongLength : problem);
      return;
    }
    for (const piece of pieces) {
      incoming.onBody(piece);
    }
    incoming.onBodyEnd();
  }

  drop(): void {
    this.#deadline.clear();
    this.#forget(undefined);
  }

  #endWith(problem: Problem | undefined): void {
    this.#forget(problem);
    this.#finish();
  }

  #forget(problem: Problem | undefined): void {
    this.#host.gateway.budget.giveBack(this.#heldBytes);
    this.#heldBytes = 0;
    this.#length = 0;
    this.#pieces.drop();
    this.#isGathering = false;
    this.#problem = problem;
  }

  #finish(error?: Error): void {
    const done = this.#done;
    this.#done = undefined;
    this.#deadline.clear();
    done?.(error);
  }
}
