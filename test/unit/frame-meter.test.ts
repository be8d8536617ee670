// How much of what a client of HTTP/2 sends is one turn's work [D58].

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { FrameMeter, type Allowance } from '../../packages/core/hosts/http2/frame-meter.ts';
import {
  fieldBlock,
  firstOfTable,
  flags,
  frame,
  frameTypes,
  headers,
  indexedField,
  preface,
} from '../helpers/http2-frames.ts';

const allowance: Readonly<Allowance> = { frames: 10, heads: 3, headBytes: 1000 };
const frameHead = 9;

/** A meter behind the preface. */
function begin(): FrameMeter {
  const meter = new FrameMeter();
  assert.equal(meter.take(preface, { ...allowance }), preface.length);
  return meter;
}

/** How much is taken in each go, until all of `bytes` is. */
function goes(meter: FrameMeter, bytes: Buffer): number[] {
  const taken: number[] = [];
  for (let at = 0; at < bytes.length; at += taken.at(-1) ?? 0) {
    taken.push(meter.take(bytes.subarray(at), { ...allowance }));
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
      assert.equal(meter.take(bytes.subarray(from, end), { ...allowance }), end - from);
      seen.push(meter.headUnderWay);
      from = end;
    }
    assert.deepEqual(seen, [1, 0, 2, 3, 0]);
  });
});

describe('fields of a head are counted as they come [RFC 7541, 6]', () => {
  const whole = flags.endHeaders | flags.endStream;
  const blocks: [name: string, block: Buffer, fields: number][] = [
    ['none', Buffer.alloc(0), 0],
    ['fields in full, empty ones among them', fieldBlock([['a', '1'], ['', ''], ['b', ''], ['', 'x']]), 4],
    ['a text of more than 126 bytes', fieldBlock([['a', 'x'.repeat(127)], ['b'.repeat(300), 'x'.repeat(5000)]]), 2],
    ['an entry of the table', firstOfTable(5), 5],
    ['an entry with a number of two bytes', Buffer.of(0xff, 0x00, 0xff, 0x80, 0x01), 2],
    ['a field that is put into the table', Buffer.concat([indexedField('a', '1'), firstOfTable(2)]), 3],
    ['a name of the table: put in, not put in, never put in', Buffer.of(0x41, 1, 0x61, 0x01, 1, 0x61, 0x11, 1, 0x61), 3],
    ['a name of the table with a number of two bytes', Buffer.of(0x7f, 0x00, 1, 0x61, 0x0f, 0x80, 0x01, 0, 0x1f, 0x01, 0), 3],
    ['a name in full that is never put in', Buffer.of(0x10, 1, 0x61, 1, 0x62), 1],
    ['text in the code of Huffman, whose first bit is not of its length', Buffer.of(0x00, 0x81, 0x1f, 0x82, 0xff, 0xff, 0x82), 2],
    ['a size of the table is no field', Buffer.of(0x20, 0x3f, 0xe1, 0x1f, 0x82), 1],
  ]; // prettier-ignore

  for (const [name, block, fields] of blocks) {
    test(`${name}: ${fields}`, () => {
      const padded = frame(frameTypes.headers, whole | flags.padded | flags.priority, 3, Buffer.concat([Buffer.of(7), Buffer.alloc(5, 0x82), block, Buffer.alloc(7, 0x82)])); // prettier-ignore
      const middle = block.length >> 1;
      const bytes = Buffer.concat([
        frame(frameTypes.headers, whole, 1, block),
        padded,
        frame(frameTypes.data, flags.padded, 3, Buffer.alloc(9, 0x82)),
        frame(frameTypes.headers, flags.endStream, 5, block.subarray(0, middle)),
        frame(frameTypes.continuation, flags.endHeaders, 5, block.subarray(middle)),
      ]);
      for (let size = 1; size <= bytes.length; size += 1) {
        const meter = begin();
        for (let at = 0; at < bytes.length; at += size) goes(meter, bytes.subarray(at, at + size));
        assert.deepEqual(
          [1, 3, 5].map((stream) => meter.fieldsOf(stream)),
          [fields, fields, fields],
          `in pieces of ${size}`,
        );
      }
    });
  }

  test('heads are told in their order: those before are passed over, an unknown one has no number', () => {
    const meter = begin();
    goes(meter, Buffer.concat([1, 3, 5, 7].map((stream) => headers(stream, [['a', '1']]))));
    assert.deepEqual(
      [3, 1, 5].map((stream) => meter.fieldsOf(stream)),
      [1, undefined, undefined],
    );
  });

  test('of heads that nobody asks for the last 256 are kept', () => {
    const meter = begin();
    for (let stream = 1; stream <= 601; stream += 2) goes(meter, headers(stream, [['a', '1']]));
    assert.equal(meter.fieldsOf(91), 1);
    const other = begin();
    for (let stream = 1; stream <= 601; stream += 2) goes(other, headers(stream, [['a', '1']]));
    assert.equal(other.fieldsOf(89), undefined);
  });
});

describe('DATA beyond the length that is expected', () => {
  const data = (length: number, stream = 1, padding?: number): Buffer =>
    padding === undefined
      ? frame(frameTypes.data, 0, stream, Buffer.alloc(length))
      : frame(
          frameTypes.data,
          flags.padded,
          stream,
          Buffer.from([padding, ...Buffer.alloc(length + padding)]),
        );

  /** A meter that expects 5 bytes on stream 1, and the streams with more. */
  function expecting(): { meter: FrameMeter; excess: number[] } {
    const meter = begin();
    const excess: number[] = [];
    meter.onExcess = (stream) => excess.push(stream);
    goes(meter, headers(1, [['a', '1']], flags.endHeaders));
    assert.equal(meter.stop, 'body');
    meter.expectData(1, 5);
    return { meter, excess };
  }

  test('a go ends behind the head of a request with a body, and goes on with what is left of it', () => {
    const meter = begin();
    const head = headers(1, [['a', '1']], flags.endHeaders);
    const pings = Buffer.concat(
      Array.from({ length: 15 }, () => frame(frameTypes.ping, 0, 0, Buffer.alloc(8))),
    );
    const left = { ...allowance };
    assert.equal(meter.take(Buffer.concat([head, pings]), left), head.length);
    assert.equal(meter.stop, 'body');
    assert.equal(meter.take(pings, left), 9 * 17);
    assert.equal(meter.stop, undefined);
  });

  test('as much as is expected, with padding and without, goes through; so does DATA of other streams', () => {
    const { meter, excess } = expecting();
    const bytes = Buffer.concat([data(2), data(0), data(3, 1, 4), data(100, 3), data(0, 1, 9), data(0)]);
    assert.equal(meter.take(bytes, { ...allowance }), bytes.length);
    assert.deepEqual([excess, meter.stop], [[], undefined]);
  });

  for (const padding of [undefined, 0, 3]) {
    test(`one byte more, padding ${padding}: stops in that frame until the stream is forgotten`, () => {
      const { meter, excess } = expecting();
      const before = data(5);
      const bytes = Buffer.concat([before, data(1, 1, padding), data(2)]);
      const end = meter.take(bytes, { ...allowance });
      assert.ok(end > before.length && end <= before.length + frameHead + 1 + 1, `${end}`);
      assert.deepEqual([excess, meter.stop], [[1], 'excess']);
      meter.forget(3);
      assert.equal(meter.stop, 'excess');
      meter.forget(1);
      assert.equal(meter.stop, undefined);
      assert.equal(meter.take(bytes.subarray(end), { ...allowance }), bytes.length - end);
      assert.deepEqual(excess, [1]);
    });
  }
});
