// Runs our HTTP/1.1 readers and returns the result as one value. Asserts for any bytes that the reader reports events
// in order, reads every byte of a message, and reads nothing after a flaw.

import assert from 'node:assert/strict';
import type { AnswerHead, Flaw, RequestHead } from '../../packages/core/http1/head.ts';
import { AnswerReader } from '../../packages/core/http1/answer-reader.ts';
import type { MessageReader } from '../../packages/core/http1/reader.ts';
import { RequestReader } from '../../packages/core/http1/request-reader.ts';

export interface Message<Head> {
  readonly head: Head;
  readonly body: Buffer;
  readonly isWhole: boolean;
}

export interface Reading<Head> {
  readonly messages: readonly Message<Head>[];
  readonly flaw: Flaw | undefined;
  /** The start of each message, also of an incomplete message. Empty lines before a message are part of the message. */
  readonly starts: readonly number[];
  /** The number of bytes read: up to the flaw, or to the end of the last message of the connection. */
  readonly taken: number;
  /** True if the bytes end between messages, not within a message. */
  readonly isBetween: boolean;
}

export interface ReadOptions {
  readonly headBytesMax?: number;
  /** True if the connection ends after the bytes. */
  readonly isEnded?: boolean;
}

export const headBytesMax = 16_384;

/** `bytes` cut at the ascending `cuts`. The pieces are copies, since readers write to them. */
export function cutAt(bytes: Uint8Array, cuts: readonly number[]): Buffer[] {
  const pieces: Buffer[] = [];
  let start = 0;
  for (const cut of [...cuts, bytes.length]) {
    pieces.push(Buffer.from(bytes.subarray(start, cut)));
    start = cut;
  }
  return pieces;
}

/** `bytes` in pieces of one byte. */
export function byteByByte(bytes: Uint8Array): Buffer[] {
  return Array.from(bytes, (byte) => Buffer.from([byte]));
}

interface Recorded<Head> {
  head: Head;
  body: Buffer[];
  isWhole: boolean;
}

function readAll<Head extends RequestHead | AnswerHead>(
  createReader: (
    sink: ConstructorParameters<typeof MessageReader<Head>>[0],
    headBytesMax: number,
  ) => MessageReader<Head>,
  pieces: readonly Buffer[],
  { headBytesMax: max = headBytesMax, isEnded = false }: ReadOptions,
): Reading<Head> {
  const messages: Recorded<Head>[] = [];
  let current: Recorded<Head> | undefined;
  const reader = createReader(
    {
      onHead: (head) => {
        assert.equal(current, undefined, 'a head within a message');
        current = { head, body: [], isWhole: false };
        messages.push(current);
      },
      onBody: (piece) => {
        assert.ok(current !== undefined && !current.isWhole, 'a body without a head');
        assert.ok(piece.length > 0, 'an empty piece');
        // The reader may reuse the memory after this call.
        current.body.push(Buffer.from(piece));
      },
      onEnd: () => {
        assert.ok(current !== undefined && !current.isWhole, 'an end without a head');
        current.isWhole = true;
      },
    },
    max,
  );
  let taken = 0;
  const starts = [0];
  let isOver = false;
  for (const piece of pieces) {
    for (let at = 0; at < piece.length && !isOver;) {
      const next = reader.read(piece, at);
      assert.ok(next >= at && next <= piece.length, 'a position outside of the bytes');
      taken += next - at;
      if (reader.flaw !== undefined) {
        assert.equal(reader.isDone, false, 'done and flawed');
        isOver = true;
      } else if (reader.isDone) {
        assert.ok(current?.isWhole, 'done without an end');
        isOver = !current.head.persists;
        current = undefined;
        if (!isOver) {
          reader.next();
          starts.push(taken);
          assert.ok(reader.isBeforeMessage && !reader.isDone);
        }
      } else {
        assert.equal(next, piece.length, 'bytes left unread');
      }
      at = next;
    }
  }
  if (reader.flaw !== undefined) {
    const { flaw } = reader;
    assert.equal(reader.read(Buffer.from('GET / HTTP/1.1\r\n\r\n'), 0), 0, 'bytes read after a flaw');
    assert.equal(reader.end(), false, 'a valid end after a flaw');
    assert.equal(reader.flaw, flaw);
  } else if (isEnded && !isOver) {
    const wasBefore = reader.isBeforeMessage;
    assert.equal(reader.end(), current?.isWhole ?? false);
    assert.ok(!wasBefore || !reader.isDone);
  }
  return {
    messages: messages.map(({ head, body, isWhole }) => ({ head, body: Buffer.concat(body), isWhole })),
    flaw: reader.flaw,
    starts,
    taken,
    isBetween: isOver ? reader.flaw === undefined : reader.isBeforeMessage,
  };
}

/** Reads requests, up to the last request of the connection. */
export function readRequests(pieces: readonly Buffer[], options: ReadOptions = {}): Reading<RequestHead> {
  return readAll((sink, max) => new RequestReader(sink, max), pieces, options);
}

/** Reads answers, up to the last answer of the connection. */
export function readAnswers(pieces: readonly Buffer[], options: ReadOptions = {}): Reading<AnswerHead> {
  return readAll((sink, max) => new AnswerReader(sink, max), pieces, options);
}

/** The part of a reading that does not depend on the cuts. After a flaw, `taken` depends on the cuts. */
export function comparable<Head>({ messages, flaw, taken, isBetween }: Reading<Head>): object {
  return { messages, flaw, isBetween, ...(flaw === undefined && { taken }) };
}
