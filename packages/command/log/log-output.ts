// Where the lines of the log go. They are gathered into few writes, and nobody ever waits for one: what cannot be
// written is dropped and counted, and what is held is bounded [D53]. It knows neither JSON nor levels.

import { constants, fstatSync, openSync, write } from 'node:fs';
import { isatty } from 'node:tty';

/** Writes the first bytes of `bytes`, as many as there is room for, and never waits for room: then it is EAGAIN. */
export type Write = (
  bytes: Buffer,
  done: (error: NodeJS.ErrnoException | null, written: number) => void,
) => void;

interface LogOutputOptions {
  readonly write: Write;
  /** How long a line waits for others: a write costs as much as some twenty lines do. */
  readonly gatherMs: number;
  /** Lines are gathered up to this size: whole ones, or one that is longer. */
  readonly gatherBytesMax: number;
  /** Bytes held at most. */
  readonly heldBytesMax: number;
  /** The line that stands where so many lines are missing. */
  readonly describeGap: (lines: number) => string;
}

// How soon there is another attempt where there was no room.
const pauseMsMin = 1;
const pauseMsMax = 100;

interface Batch {
  /** What is not written yet. */
  bytes: Buffer;
  /** What they lie in, to be used again when they are written. */
  readonly block: Buffer | undefined;
  readonly lines: number;
  /** So many of them are said to be missing in it. */
  readonly gap: number;
  isBegun: boolean;
}

export class LogOutput {
  /** Is told of lines that had to be dropped. */
  onDrop: (lines: number) => void = () => undefined;

  readonly #options: LogOutputOptions;
  // Lines are put into a block as bytes at once: a string of many lines would be gone through twice more.
  #block: Buffer | undefined;
  #spareBlock: Buffer | undefined;
  #gathered = { bytes: 0, lines: 0, gap: 0 };
  #timer: NodeJS.Timeout | undefined;
  readonly #batches: Batch[] = [];
  #heldBytes = 0;
  #state: 'idle' | 'writing' | 'pausing' = 'idle';
  #pauseMs = pauseMsMin;
  // From the moment on in which no more can be held, until half of it is written: so that a gap is one, and not many.
  #isFull = false;
  // Lines dropped that no line has said yet.
  #missing = 0;
  // The last batch was cut off within a line.
  #isTorn = false;
  #onEmpty: ((nothing: undefined) => void) | undefined;

  constructor(options: LogOutputOptions) {
    this.#options = options;
  }

  /** A line would be dropped: whoever has to work for it can spare that. */
  get isFull(): boolean {
    return this.#isFull;
  }

  /** Takes one line, or several that belong together, with the line end. */
  write(line: string): void {
    if (this.#isFull || !this.#hasRoom(line)) {
      // Where nothing is held nothing will be written, and nothing would end it.
      this.#isFull = this.#heldBytes > 0;
      this.#drop(1);
      return;
    }
    this.#describeGap();
    this.#gather(line, 1, 0);
  }

  /** Hands over what is gathered without waiting for more. */
  flush(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    if (this.#gathered.bytes > 0) {
      this.#pushGathered();
      this.#gathered = { bytes: 0, lines: 0, gap: 0 };
    }
    this.#writeNext();
  }

  /** Resolves when everything is written, or after `limitMs`, when what is left is lost. */
  async end(limitMs: number): Promise<void> {
    this.flush();
    if (this.#batches.length > 0) {
      const { promise, resolve } = Promise.withResolvers<undefined>();
      this.#onEmpty = resolve;
      const timer = setTimeout(resolve, limitMs, undefined);
      await promise;
      clearTimeout(timer);
    }
  }

  #drop(lines: number): void {
    if (lines > 0) {
      this.#missing += lines;
      this.onDrop(lines);
    }
  }

  #describeGap(): void {
    if (this.#missing > 0) {
      const gap = this.#missing;
      this.#missing = 0;
      this.#gather(this.#options.describeGap(gap), 0, gap);
    }
  }

  #hasRoom(line: string): boolean {
    const room = this.#options.heldBytesMax - this.#heldBytes;
    return line.length * utf8BytesMax <= room || Buffer.byteLength(line) <= room;
  }

  #gather(line: string, lines: number, gap: number): void {
    const { gatherBytesMax } = this.#options;
    const room = gatherBytesMax - this.#gathered.bytes;
    if (line.length * utf8BytesMax > room) {
      const bytes = Buffer.byteLength(line);
      if (bytes > room) {
        this.flush();
      }
      if (bytes > gatherBytesMax) {
        this.#heldBytes += bytes;
        this.#pushBatch(Buffer.from(line), undefined, lines, gap);
        this.#writeNext();
        return;
      }
    }
    if (this.#block === undefined) {
      this.#block = this.#spareBlock ?? Buffer.allocUnsafeSlow(gatherBytesMax);
      this.#spareBlock = undefined;
    }
    const bytes = this.#block.write(line, this.#gathered.bytes);
    this.#gathered.bytes += bytes;
    this.#gathered.lines += lines;
    this.#gathered.gap += gap;
    this.#heldBytes += bytes;
    this.#timer ??= setTimeout(() => {
      this.flush();
    }, this.#options.gatherMs).unref();
  }

  // A block that is not half full is copied from: many of them, held for a reader that is slow, would take many times
  // the memory that their lines need.
  #pushGathered(): void {
    const block = this.#block ?? noBytes;
    const { bytes: length, lines, gap } = this.#gathered;
    const bytes = block.subarray(0, length);
    if (length < block.length / 2) {
      this.#pushBatch(Buffer.from(bytes), undefined, lines, gap);
    } else {
      this.#block = undefined;
      this.#pushBatch(bytes, block, lines, gap);
    }
  }

  #pushBatch(bytes: Buffer, block: Buffer | undefined, lines: number, gap: number): void {
    this.#batches.push({ bytes, block, lines, gap, isBegun: false });
  }

  #writeNext(): void {
    const batch = this.#batches[0];
    if (batch === undefined || this.#state !== 'idle') {
      return;
    }
    if (this.#isTorn && !batch.isBegun) {
      // The next line does not become part of the torn one.
      this.#isTorn = false;
      batch.bytes = Buffer.concat([lineEnd, batch.bytes]);
      this.#heldBytes += lineEnd.length;
    }
    this.#state = 'writing';
    this.#options.write(batch.bytes, (error, written) => {
      this.#state = 'idle';
      this.#onWritten(batch, error, written);
    });
  }

  #onWritten(batch: Batch, error: NodeJS.ErrnoException | null, written: number): void {
    if (error?.code === 'EAGAIN' || (error === null && written === 0)) {
      this.#state = 'pausing';
      setTimeout(() => {
        this.#state = 'idle';
        this.#writeNext();
      }, this.#pauseMs).unref();
      this.#pauseMs = Math.min(pauseMsMax, this.#pauseMs * 2);
      return;
    }
    this.#pauseMs = pauseMsMin;
    const gone = error === null ? written : batch.bytes.length;
    this.#heldBytes -= gone;
    if (error !== null) {
      // No second attempt: the next lines are one, and the disk may be full, or the reader gone, for ever.
      this.#isTorn ||= batch.isBegun;
      this.#missing += batch.isBegun ? 0 : batch.gap;
      this.#drop(batch.isBegun ? Math.min(batch.lines, countLineEnds(batch.bytes)) : batch.lines);
    }
    batch.isBegun = true;
    batch.bytes = batch.bytes.subarray(gone);
    if (batch.bytes.length === 0) {
      this.#batches.shift();
      this.#spareBlock ??= batch.block;
    }
    if (this.#isFull && this.#heldBytes <= this.#options.heldBytesMax / 2) {
      this.#isFull = false;
      this.#describeGap();
    }
    this.#writeNext();
    if (this.#batches.length === 0) {
      this.#onEmpty?.(undefined);
    }
  }
}

// A character of a string is at most so many bytes in UTF-8.
const utf8BytesMax = 3;
const noBytes = Buffer.alloc(0);
const newline = 0x0a;
const lineEnd = Buffer.of(newline);

function countLineEnds(bytes: Buffer): number {
  let count = 0;
  for (let at = bytes.indexOf(newline); at >= 0; at = bytes.indexOf(newline, at + 1)) {
    count += 1;
  }
  return count;
}

/** Writes to standard output. */
export function writeToStandardOutput(): Write {
  const descriptor = openStandardOutput();
  return (bytes, done) => {
    write(descriptor, bytes, 0, bytes.length, null, done);
  };
}

// A write that waits for a reader that has stopped waits in a thread of Node's pool, and a process that exits waits for
// that thread, for ever. So pipes, sockets and terminals must not block. A pipe or a terminal is opened once more where
// the system lets us (Linux), so that nobody else who has it (the shell, npm) finds it changed. Otherwise Node makes
// pipes and sockets non-blocking when it is asked for the stream.
function openStandardOutput(): number {
  const isTerminal = isatty(1);
  if (isTerminal || fstatSync(1).isFIFO()) {
    try {
      return openSync('/proc/self/fd/1', constants.O_WRONLY | constants.O_NONBLOCK | constants.O_NOCTTY);
    } catch {
      // Another system, or a pipe that another user has made.
    }
  }
  return isTerminal ? 1 : process.stdout.fd;
}
