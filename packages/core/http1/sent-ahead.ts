// What a client has sent before its turn [D58]: bytes in the order in which they came, and maybe the end after them.

import { appendBytes } from './growing-buffer.ts';
import { RequestReader } from './request-reader.ts';

// From this many bytes on the client's socket is not read.
const bytesMax = 65_536;
const memoryBytesMin = 4_096;

const noBytes = Buffer.alloc(0);

export class SentAhead {
  /** The client sends nothing after these bytes. */
  hasEnded = false;
  #bytes: Buffer = noBytes;
  #isFull = false;

  get isEmpty(): boolean {
    return this.#bytes.length === 0;
  }

  /** True from the largest allowed size on until nothing is held. */
  get isFull(): boolean {
    return this.#isFull;
  }

  /** Copies `bytes`, which come last. */
  hold(bytes: Buffer): void {
    this.#bytes = appendBytes(this.#bytes, bytes, memoryBytesMin);
    this.#isFull ||= this.#bytes.length >= bytesMax;
  }

  /** Returns everything that is held. The caller gives back to `keep` what it does not use. */
  take(): Buffer {
    const bytes = this.#bytes;
    this.#bytes = noBytes;
    return bytes;
  }

  /** Holds the end of what `take` has returned. */
  keep(rest: Buffer): void {
    this.#bytes = rest;
    this.#isFull &&= rest.length > 0;
  }

  drop(): void {
    this.keep(noBytes);
  }

  /** Whether it ends within a request, by the limit on a request's head in bytes. */
  isCutOff(requestHeadBytesMax: number): boolean {
    const reader = new RequestReader(
      {
        onHead: () => undefined,
        onBody: () => undefined,
        onEnd: () => undefined,
      },
      requestHeadBytesMax,
    );
    // A copy, since the reader may write to what it reads.
    const bytes = Buffer.from(this.#bytes);
    for (let at = 0; at < bytes.length && reader.flaw === undefined;) {
      reader.next();
      at = reader.read(bytes, at);
    }
    return !reader.isDone && !reader.isBeforeMessage;
  }
}
