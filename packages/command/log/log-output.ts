// Writes log lines in batches and never blocks a caller. Limits the memory for lines that are not written yet. Lines that
// cannot be written are dropped and counted [D53]. pino's destination (sonic-boom) does not suffice: after a failed write it
// keeps the lines and counts none as lost, a full pipe pauses it for 100 ms, and it costs 2.7 us a line instead of 0.3.

import { constants, fstatSync, openSync, write } from 'node:fs';
import { isatty } from 'node:tty';

import { startDeadline } from '../../core/hosts/common/process-deadline.ts';

/**
 * Writes as many bytes from the start of `bytes` as the output has room for. If there is no room, fails with EAGAIN
 * instead of waiting.
 */
export type Write = (bytes: Buffer, done: (error: NodeJS.ErrnoException | null, written: number) => void) => void;

interface LogOutputOptions {
  readonly write: Write;
  /**
   * Longest time that a line waits for further lines, in ms. Waiting saves writes: one write costs as much as making
   * about twenty lines.
   */
  readonly gatherMs: number;
  /** Largest batch, in bytes; a longer line is a batch of its own. */
  readonly gatherBytesMax: number;
  readonly heldBytesMax: number;
  readonly describeGap: (lines: number) => string;
}

// Limits of the pause after a write that found no room. The pause doubles with each further attempt.
const pauseMsMin = 1;
const pauseMsMax = 100;

interface Batch {
  bytes: Buffer;
  readonly lines: number;
  /** Number of dropped lines that this batch reports. */
  readonly gap: number;
  isBegun: boolean;
}

export class LogOutput {
  onDrop: (lines: number) => void = () => undefined;

  readonly #options: LogOutputOptions;
  // Each line is encoded immediately, because lines collected in a string would be scanned three
  // times: when measured, when joined and when encoded.
  readonly #gathered: Buffer;
  #length = 0;
  #lines = 0;
  #gap = 0;
  #timer: NodeJS.Timeout | undefined;
  readonly #batches: Batch[] = [];
  #heldBytes = 0;
  // True during a write, and during the pause after a write that found no room.
  #isBusy = false;
  #pauseMs = pauseMsMin;
  // Set at the limit of held bytes, and reset when at most half of the limit is held. So the log has one gap instead of
  // many.
  #isFull = false;
  // Number of dropped lines that are not reported yet.
  #missing = 0;
  // True if a batch was dropped after a part of it had been written. Then the output may end within a line, and the next
  // batch begins with a line end.
  #isTorn = false;
  #onEmpty: ((nothing: undefined) => void) | undefined;

  constructor(options: LogOutputOptions) {
    this.#options = options;
    this.#gathered = Buffer.allocUnsafeSlow(options.gatherBytesMax);
  }

  /** Accepts one line, or several lines that belong together. Each line has its line end. */
  write(line: string): void {
    if (this.#isFull || !fits(line, this.#options.heldBytesMax - this.#heldBytes)) {
      // Only a write resets `#isFull`. If no bytes are held, no write follows, so `#isFull` stays false.
      this.#isFull = this.#heldBytes > 0;
      this.#drop(1);
      return;
    }
    this.#describeGap();
    this.#gather(line, 1, 0);
  }

  /** Writes the gathered lines without waiting for more. */
  flush(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    if (this.#length > 0) {
      // A copy, so that a few waiting lines take only as much memory as they need.
      this.#add(Buffer.from(this.#gathered.subarray(0, this.#length)), this.#lines, this.#gap);
      this.#length = this.#lines = this.#gap = 0;
    }
    this.#writeNext();
  }

  /** Resolves when everything is written, or after `limitMs`. Lines not written by then are lost. */
  async end(limitMs: number): Promise<void> {
    this.flush();
    if (this.#batches.length === 0) return;
    const { promise, resolve } = Promise.withResolvers<undefined>();
    this.#onEmpty = resolve;
    const callOff = startDeadline(limitMs, () => resolve(undefined));
    await promise;
    callOff();
  }

  #drop(lines: number): void {
    if (lines === 0) return;
    this.#missing += lines;
    this.onDrop(lines);
  }

  #describeGap(): void {
    const gap = this.#missing;
    if (gap === 0) return;
    this.#missing = 0;
    // The report begins its batch, so that its line end does not count if a part of the batch is dropped.
    this.flush();
    this.#gather(this.#options.describeGap(gap), 0, gap);
  }

  #gather(line: string, lines: number, gap: number): void {
    const { gatherMs, gatherBytesMax } = this.#options;
    if (!fits(line, gatherBytesMax - this.#length)) this.flush();
    if (!fits(line, gatherBytesMax)) {
      const bytes = Buffer.from(line);
      this.#heldBytes += bytes.length;
      this.#add(bytes, lines, gap);
      this.#writeNext();
      return;
    }
    const bytes = this.#gathered.write(line, this.#length);
    this.#length += bytes;
    this.#lines += lines;
    this.#gap += gap;
    this.#heldBytes += bytes;
    this.#timer ??= setTimeout(() => this.flush(), gatherMs).unref();
  }

  #add(bytes: Buffer, lines: number, gap: number): void {
    this.#batches.push({ bytes, lines, gap, isBegun: false });
  }

  #writeNext(): void {
    const batch = this.#batches[0];
    if (batch === undefined || this.#isBusy) return;
    if (this.#isTorn && !batch.isBegun) {
      this.#isTorn = false;
      batch.bytes = Buffer.concat([lineEnd, batch.bytes]);
      this.#heldBytes += lineEnd.length;
    }
    this.#isBusy = true;
    this.#options.write(batch.bytes, (error, written) => {
      this.#onWritten(batch, error, written);
    });
  }

  #onWritten(batch: Batch, error: NodeJS.ErrnoException | null, written: number): void {
    if (error?.code === 'EAGAIN' || (error === null && written === 0)) {
      setTimeout(() => {
        this.#isBusy = false;
        this.#writeNext();
      }, this.#pauseMs).unref();
      this.#pauseMs = Math.min(pauseMsMax, this.#pauseMs * 2);
      return;
    }
    this.#isBusy = false;
    this.#pauseMs = pauseMsMin;
    const gone = error === null ? written : batch.bytes.length;
    this.#heldBytes -= gone;
    if (error !== null) {
      // The batch is dropped without a second attempt, because the disk may stay full, or the reader may be gone. The
      // next batch is tried.
      this.#isTorn ||= batch.isBegun || batch.bytes[0] === newline;
      this.#missing += batch.isBegun ? 0 : batch.gap;
      const unwritten = batch.isBegun ? batch.bytes.filter((byte) => byte === newline).length : Infinity;
      this.#drop(Math.min(batch.lines, unwritten));
    }
    batch.isBegun = true;
    batch.bytes = batch.bytes.subarray(gone);
    if (batch.bytes.length === 0) this.#batches.shift();
    if (this.#isFull && this.#heldBytes <= this.#options.heldBytesMax / 2) {
      this.#isFull = false;
      this.#describeGap();
    }
    this.#writeNext();
    if (this.#batches.length === 0) this.#onEmpty?.(undefined);
  }
}

/** True if the UTF-8 bytes of `text` fit into `room`. A UTF-16 code unit has at most three bytes, so few texts are measured. */
function fits(text: string, room: number): boolean {
  return text.length * 3 <= room || Buffer.byteLength(text) <= room;
}

const newline = 0x0a;
const lineEnd = Buffer.of(newline);

export function writeToStandardOutput(): Write {
  const descriptor = openStandardOutput();
  return (bytes, done) => write(descriptor, bytes, 0, bytes.length, null, done);
}

// Pipes, sockets and terminals must not block, because a blocked write occupies a thread of Node's pool, and the process
// cannot exit before that thread ends. On Linux a pipe or terminal is opened again as non-blocking. The original stays
// blocking for other processes, such as the shell or npm. Otherwise, accessing the property `process.stdout` makes
// pipes and sockets non-blocking.
function openStandardOutput(): number {
  const isTerminal = isatty(1);
  if (isTerminal || fstatSync(1).isFIFO()) {
    try {
      return openSync('/proc/self/fd/1', constants.O_WRONLY | constants.O_NONBLOCK | constants.O_NOCTTY);
    } catch {
      // The system is not Linux, or the pipe belongs to another user.
    }
  }
  return isTerminal ? 1 : process.stdout.fd;
}
