// How much of what a client of HTTP/2 sends is one turn's work [D58].

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { FrameMeter, type Allowance } from '../../src/adapters/frame-meter.ts';
import { flags, frame, frameTypes, preface } from '../helpers/http2-frames.ts';

const allowance: Allowance = { frames: 10, heads: 3, headBytes: 1000 };
const frameHead = 9;

/** A meter behind the preface. */
function begin(): FrameMeter {
  const meter = new FrameMeter();
  assert.equal(meter.take(preface, allowance), preface.length);
  return meter;
}

/** How much is taken in each go, until all of `bytes` is. */
function goes(meter: FrameMeter, bytes: Buffer): number[] {
  const taken: number[] = [];
  for (let at = 0; at < bytes.length; at += taken.at(-1) ?? 0) {
    taken.push(meter.take(bytes.subarray(at), allowance));
    assert.notEqual(taken.at(-1), 0, 'each go takes something');
  }
  return taken;
}

const head = (length: number, stream = 1): Buffer =>
  frame(frameTypes.headers, flags.endHeaders | flags.endStream, stream, Buffer.alloc(length));

describe('what is taken of frames in one go', () => {
  test('a frame of a head goes as far as the bytes of heads do, others go through', () => {
    assert.deepEqual(goes(begin(), head(2500)), [frameHead + 1000, 1000, 500]);
    const data = frame(frameTypes.data, 0, 1, Buffer.alloc(16_000));
    assert.deepEqual(goes(begin(), data), [data.length]);
  });

  test('the bytes of several heads, and of CONTINUATION, are counted together', () => {
    assert.deepEqual(goes(begin(), Buffer.concat([head(600, 1), head(600, 3)])), [2 * frameHead + 1000, 200]);
    const inPieces = Buffer.concat([
      frame(frameTypes.headers, 0, 1, Buffer.alloc(600)),
      frame(frameTypes.continuation, flags.endHeaders, 1, Buffer.alloc(600)),
    ]);
    assert.deepEqual(goes(begin(), inPieces), [2 * frameHead + 1000, 200]);
  });

  test('frames and heads are counted as well', () => {
    const pings = Buffer.concat(
      Array.from({ length: 15 }, () => frame(frameTypes.ping, 0, 0, Buffer.alloc(8))),
    );
    assert.deepEqual(goes(begin(), pings), [10 * 17, 5 * 17]);
    const heads = Buffer.concat([1, 3, 5, 7].map((stream) => head(1, stream)));
    assert.deepEqual(goes(begin(), heads), [30, 10]);
  });

  test('the head that is under way has a number of its own, and none when it is whole', () => {
    const meter = begin();
    const bytes = Buffer.concat([head(100, 1), head(100, 3), head(100, 5)]);
    const seen: number[] = [];
    let from = 0;
    for (const end of [50, 109, 150, 250, 327]) {
      assert.equal(meter.take(bytes.subarray(from, end), allowance), end - from);
      seen.push(meter.headUnderWay);
      from = end;
    }
    assert.deepEqual(seen, [1, 0, 2, 3, 0]);
  });
});
