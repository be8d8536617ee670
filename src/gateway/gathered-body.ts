// The body of a request that a host's hooks read too, or have put another in the place of. It is read whole before the
// hooks behind them run, as Fastify's own parsers do it, and given to the call as a stream.

import type { IncomingMessage } from 'node:http';
import { finished, Readable } from 'node:stream';

import type { BufferBudget } from '../buffer-budget.ts';

/** More bytes of bodies than may be held at once. */
export class TooMuchHeldError extends Error {}

/** Whether no hook has read the body of `request`, or begun to, and none has put `payload` in its place. */
export function isUntouched(request: IncomingMessage, payload: Readable): boolean {
  return payload === request && payload.readableFlowing === null && !payload.readableDidRead;
}

export class GatheredBody extends Readable {
  /** Nothing of what came is left unread by those who read along. */
  isWhole = false;
  /** The client has been told to send it, where it waits for that. */
  isContinued = false;
  readonly #request: IncomingMessage;
  readonly #payload: Readable;
  readonly #bytesMax: number;
  readonly #budget: BufferBudget;
  readonly #pieces: Buffer[] = [];
  #heldBytes = 0;
  #failure: Error | undefined;
  #onGathered: ((refusal: Error | undefined) => void) | undefined;

  constructor(request: IncomingMessage, payload: Readable, bytesMax: number, budget: BufferBudget) {
    super();
    this.#request = request;
    this.#payload = payload;
    this.#bytesMax = bytesMax;
    this.#budget = budget;
  }

  /**
   * Reads the payload to its end, or until it has more bytes than it may have. Then `onGathered` is called, unless the
   * client has gone: with the payload's error, if that has a status for the client.
   */
  gather(onGathered: (refusal: Error | undefined) => void): void {
    const payload = this.#payload;
    this.#onGathered = onGathered;
    if (payload.readableDidRead || payload.readableEnded || payload.destroyed) {
      this.#failure = new Error('a preParsing hook has read the body and passed no other stream on');
      this.#finish(undefined);
      return;
    }
    payload.on('data', this.#take);
    finished(payload, { writable: false }, (error) => {
      if (error === undefined || error === null) {
        this.isWhole = true;
        this.#finish(undefined);
      } else if (this.#request.complete || !this.#request.destroyed) {
        this.#break(error);
      }
    });
    payload.resume();
  }

  readonly #take = (piece: unknown): void => {
    try {
      this.#keep(Buffer.isBuffer(piece) ? piece : Buffer.from(piece as string));
    } catch (error) {
      this.#break(error as Error);
    }
  };

  #keep(piece: Buffer): void {
    if (!this.#budget.take(piece.length)) {
      this.#failure = new TooMuchHeldError('too many bytes of bodies held at once');
      this.#stop();
      return;
    }
    this.#heldBytes += piece.length;
    this.#pieces.push(piece);
    if (this.#heldBytes > this.#bytesMax) {
      this.#stop();
    }
  }

  #stop(): void {
    // A hook that reads along goes on with that.
    if (this.#payload !== this.#request) {
      this.#payload.pause();
    }
    this.#finish(undefined);
  }

  // What does not come whole is no JSON, unless whoever broke it off says otherwise.
  #break(error: Error & { readonly statusCode?: unknown }): void {
    if (this.#onGathered !== undefined) {
      const { statusCode } = error;
      this.#drop();
      this.#finish(
        typeof statusCode === 'number' && statusCode >= 400 && statusCode < 500 ? error : undefined,
      );
    }
  }

  #finish(refusal: Error | undefined): void {
    const onGathered = this.#onGathered;
    this.#onGathered = undefined;
    this.#payload.off('data', this.#take);
    onGathered?.(refusal);
  }

  #drop(): void {
    this.#pieces.length = 0;
    this.#budget.giveBack(this.#heldBytes);
    this.#heldBytes = 0;
  }

  override _read(): void {
    const piece = this.#pieces.shift();
    if (piece !== undefined) {
      // Whoever reads it counts it anew.
      this.#heldBytes -= piece.length;
      this.#budget.giveBack(piece.length);
      this.push(piece);
    } else if (this.#failure === undefined) {
      this.push(null);
    } else {
      this.destroy(this.#failure);
    }
  }

  override _destroy(error: Error | null, callback: (error?: Error | null) => void): void {
    this.#onGathered = undefined;
    this.#payload.off('data', this.#take);
    this.#drop();
    callback(error);
  }
}
