// A request's body that is gathered before its call begins, since the host's hooks come first: bounded in size and time,
// counted against the gateway's budget, and handed over whole.

import type { IncomingMessage } from 'node:http';
import type { Readable } from 'node:stream';

import { Deadline, type DeadlineOwner } from '../../backend/deadlines.ts';
import { appendBytes } from '../../http1/growing-buffer.ts';
import type { RequestHead } from '../../http1/head.ts';
import type { Incoming } from '../../http1/transport.ts';
import { queueForTurn } from '../../http1/turns.ts';
import { piecesPerTurn } from '../common/piece-turns.ts';
import type { NodeHost } from './node-host.ts';

const noBytes = Buffer.alloc(0);

type State = 'gathering' | 'whole' | 'over-limit' | 'overload' | 'timeout' | 'dropped';

export class HeldBody implements DeadlineOwner {
  readonly #host: NodeHost;
  readonly #deadline = new Deadline(this);
  // Undefined as soon as it has been called.
  #done: ((error?: Error) => void) | undefined;
  #bytes: Buffer = noBytes;
  #state: State = 'gathering';

  constructor(host: NodeHost) {
    this.#host = host;
  }

  /**
   * Takes what comes from `payload`, and calls `done` when that has ended, is more than may be held, or comes too late. An error of the
   * stream goes to `done` where it has a status of its own, so that the host answers with that; any other leaves a body
   * that is not whole, and so no JSON. A client that leaves has no call.
   */
  gather(payload: Readable, request: IncomingMessage, done: (error?: Error) => void): void {
    this.#done = done;
    // What has been read before is lost: no part of a body may be taken for the whole.
    if (payload.readableEnded || payload.readableDidRead) {
      this.#endWith('whole');
      return;
    }
    const { gateway, bodyDeadlines } = this.#host;
    if (payload === request && Number(request.headers['content-length'] ?? 0) > gateway.requestBytesMax) {
      payload.resume();
      this.#endWith('over-limit');
      return;
    }
    bodyDeadlines.start(this.#deadline);
    request.once('close', () => {
      if (!request.complete) {
        this.drop();
      }
    });
    // A hook's stream may always have another piece: it is read in turns [D58], and after its body has been decided only
    // until the request has been read.
    let pieces = 0;
    const takeTurn = (): void => {
      if (this.#state === 'gathering' || !(request.readableEnded || request.destroyed)) {
        payload.resume();
      }
    };
    payload
      .on('data', (piece: unknown) => {
        if (this.#state === 'gathering') {
          this.#add(typeof piece === 'string' ? Buffer.from(piece) : piece);
        }
        pieces += 1;
        if (payload !== request && pieces % piecesPerTurn === 0) {
          payload.pause();
          queueForTurn({ takeTurn });
        }
      })
      .on('end', () => {
        if (this.#state === 'gathering') {
          this.#state = 'whole';
        }
        this.#finish();
      })
      // A stream of the host's may break with anything, and with nothing.
      .on('error', (error?: (Error & { statusCode?: number }) | null) => {
        const isRefusal = (error?.statusCode ?? 0) >= 400;
        this.#forget('whole');
        if (!request.destroyed || request.complete) {
          this.#finish(isRefusal ? (error as Error) : undefined);
        }
      });
  }

  onDeadlinePassed(): void {
    this.#endWith('timeout');
  }

  #add(piece: unknown): void {
    const { budget, requestBytesMax } = this.#host.gateway;
    if (!(piece instanceof Uint8Array)) {
      this.#endWith('whole');
    } else if (this.#bytes.length + piece.length > requestBytesMax) {
      this.#endWith('over-limit');
    } else if (!budget.take(piece.length)) {
      this.#endWith('overload');
    } else {
      this.#bytes = appendBytes(this.#bytes, piece, 0);
    }
  }

  /** What the head has to announce, so that the call decides as it would without hooks. */
  announcedLength(head: RequestHead): RequestHead['bodyLength'] {
    switch (this.#state) {
      case 'over-limit':
        return this.#host.gateway.requestBytesMax + 1;
      case 'timeout':
        return 'chunked';
      case 'overload':
        return head.bodyLength;
      default:
        return this.#bytes.length;
    }
  }

  /** Gives everything to `incoming`, which counts it by itself. */
  handOver(incoming: Incoming): void {
    const bytes = this.#bytes;
    const state = this.#state;
    this.drop();
    if (state === 'overload' || state === 'timeout') {
      incoming.onBroken(state);
      return;
    }
    if (bytes.length > 0) {
      incoming.onBody(bytes);
    }
    incoming.onBodyEnd();
  }

  /** Keeps nothing. */
  drop(): void {
    this.#deadline.clear();
    this.#forget('dropped');
  }

  #endWith(state: State): void {
    this.#forget(state);
    this.#finish();
  }

  #forget(state: State): void {
    this.#host.gateway.budget.giveBack(this.#bytes.length);
    this.#bytes = noBytes;
    this.#state = state;
  }

  #finish(error?: Error): void {
    const done = this.#done;
    this.#done = undefined;
    this.#deadline.clear();
    done?.(error);
  }
}
