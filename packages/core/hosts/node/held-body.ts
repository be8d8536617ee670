// A request's body that is gathered before its call begins, since the host's hooks come first: bounded in size and time,
// counted against the gateway's budget, and handed over whole.

import type { IncomingMessage } from 'node:http';
import type { Readable } from 'node:stream';

import { Deadline, type Deadlines, type DeadlineOwner } from '../../backend/deadlines.ts';
import type { BufferBudget } from '../../body/budget.ts';
import { appendBytes } from '../../http1/growing-buffer.ts';
import type { RequestHead } from '../../http1/head.ts';
import type { Incoming } from '../../http1/transport.ts';
import { queueForTurn } from '../../http1/turns.ts';
import { piecesPerTurn } from '../common/piece-turns.ts';

const noBytes = Buffer.alloc(0);

export class HeldBody implements DeadlineOwner {
  readonly #budget: BufferBudget;
  readonly #bytesMax: number;
  readonly #deadlines: Deadlines;
  readonly #deadline = new Deadline(this);
  #finish: (error?: Error) => void = () => undefined;
  #bytes: Buffer = noBytes;
  #state: 'gathering' | 'whole' | 'over-limit' | 'over-budget' | 'too-late' | 'dropped' = 'gathering';

  /** Its time begins with `gather`; `deadlines` says how long it is. */
  constructor(budget: BufferBudget, bytesMax: number, deadlines: Deadlines) {
    this.#budget = budget;
    this.#bytesMax = bytesMax;
    this.#deadlines = deadlines;
  }

  /**
   * Takes what comes from `payload`, and calls `done` when that has ended, is more than may be held, or comes too late. An error of the
   * stream goes to `done` where it has a status of its own, so that the host answers with that; any other leaves a body
   * that is not whole, and so no JSON. A client that leaves has no call.
   */
  gather(payload: Readable, request: IncomingMessage, done: (error?: Error) => void): void {
    let isDone = false;
    const finish = (error?: Error): void => {
      if (!isDone) {
        isDone = true;
        this.#deadline.clear();
        done(error);
      }
    };
    this.#finish = finish;
    // What has been read before is lost: no part of a body may be taken for the whole.
    if (payload.readableEnded || payload.readableDidRead) {
      this.#state = 'whole';
      finish();
      return;
    }
    if (payload === request && Number(request.headers['content-length'] ?? 0) > this.#bytesMax) {
      this.#endWith('over-limit');
      payload.resume();
      finish();
      return;
    }
    this.#deadlines.start(this.#deadline);
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
        if (
          this.#state === 'gathering' &&
          !this.#add(typeof piece === 'string' ? Buffer.from(piece) : piece)
        ) {
          finish();
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
        finish();
      })
      // A stream of the host's may break with anything, and with nothing.
      .on('error', (error?: (Error & { statusCode?: number }) | null) => {
        const isRefusal = (error?.statusCode ?? 0) >= 400;
        this.#endWith('whole');
        if (!request.destroyed || request.complete) {
          finish(isRefusal ? (error as Error) : undefined);
        }
      });
  }

  onDeadlinePassed(): void {
    this.#endWith('too-late');
    this.#finish();
  }

  // False when no more is wanted.
  #add(piece: unknown): boolean {
    if (!(piece instanceof Uint8Array)) {
      return this.#endWith('whole');
    }
    if (this.#bytes.length + piece.length > this.#bytesMax) {
      return this.#endWith('over-limit');
    }
    if (!this.#budget.take(piece.length)) {
      return this.#endWith('over-budget');
    }
    this.#bytes = appendBytes(this.#bytes, piece, 0);
    return true;
  }

  #endWith(state: 'whole' | 'over-limit' | 'over-budget' | 'too-late'): false {
    this.#forget();
    this.#state = state;
    return false;
  }

  /** What the head has to announce, so that the call decides as it would without hooks. */
  announcedLength(head: RequestHead): RequestHead['bodyLength'] {
    if (this.#state === 'over-limit') {
      return this.#bytesMax + 1;
    }
    if (this.#state === 'too-late') {
      return 'chunked';
    }
    return this.#state === 'over-budget' ? head.bodyLength : this.#bytes.length;
  }

  /** Gives everything to `incoming`, which counts it by itself. */
  handOver(incoming: Incoming): void {
    const bytes = this.#bytes;
    const state = this.#state;
    this.drop();
    if (state === 'over-budget' || state === 'too-late') {
      incoming.onBroken(state === 'too-late' ? 'timeout' : 'overload');
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
    this.#forget();
    this.#state = 'dropped';
  }

  #forget(): void {
    this.#budget.giveBack(this.#bytes.length);
    this.#bytes = noBytes;
  }
}
