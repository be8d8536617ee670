// Limits on the bytes of an HTTP/2 client that are read in one event-loop turn [D58].

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

/** Returns a meter that has read the preface. */
function begin(): FrameMeter {
  const meter = new FrameMeter();
  assert.equal(meter.take(preface, { ...allowance }), preface.length);
  return meter;
}

/** Returns the number of bytes taken in each turn, until all bytes are taken. */
function takeAll(meter: FrameMeter, bytes: Buffer): number[] {
  const taken: number[] = [];
  for (let at = 0; at < bytes.length; at += taken.at(-1) ?? 0) {
    taken.push(meter.take(bytes.subarray(at), { ...allowance }));
    assert.notEqual(taken.at(-1), 0, 'each turn takes bytes');
  }
  return taken;
}

const head = (length: number, stream = 1): Buffer =>
  frame(frameTypes.headers, flags.endHeaders | flags.endStream, stream, Buffer.alloc(length));

describe('one turn', () => {
  test('takes at most the allowed head bytes of a HEADERS frame, and takes other frames completely', () => {
    assert.deepEqual(takeAll(begin(), head(2500)), [frameHead + 1000, 1000, 500]);
    const data = frame(frameTypes.data, 0, 1, Buffer.alloc(16_000));
    assert.deepEqual(takeAll(begin(), data), [data.length]);
  });

  test('limits the bytes of several heads and of CONTINUATION frames together', () => {
    assert.deepEqual(takeAll(begin(), Buffer.concat([head(600, 1), head(600, 3)])), [2 * frameHead + 1000, 200]);
    const inPieces = Buffer.concat([
      frame(frameTypes.headers, 0, 1, Buffer.alloc(600)),
      frame(frameTypes.continuation, flags.endHeaders, 1, Buffer.alloc(600)),
    ]);
    assert.deepEqual(takeAll(begin(), inPieces), [2 * frameHead + 1000, 200]);
  });

  test('limits the numbers of frames and of heads', () => {
    const pings = Buffer.concat(Array.from({ length: 15 }, () => frame(frameTypes.ping, 0, 0, Buffer.alloc(8))));
    assert.deepEqual(takeAll(begin(), pings), [10 * 17, 5 * 17]);
    const heads = Buffer.concat([1, 3, 5, 7].map((stream) => head(1, stream)));
    assert.deepEqual(takeAll(begin(), heads), [30, 10]);
  });

  test('reports which head is incomplete (1 for the first), or 0 if no head is incomplete', () => {
    const meter = begin();
    const bytes = Buffer.concat([head(100, 1), head(100, 3), head(100, 5)]);
    const seen: number[] = [];
    let from = 0;
    for (const end of [50, 109, 150, 250, 327]) {
      assert.equal(meter.take(bytes.subarray(from, end), { ...allowance }), end - from);
      seen.push(meter.openHead);
      from = end;
    }
    assert.deepEqual(seen, [1, 0, 2, 3, 0]);
  });
});

describe('the fields of a head are counted as they arrive [RFC 7541, 6]', () => {
  const whole = flags.endHeaders | flags.endStream;
  const blocks: [name: string, block: Buffer, fields: number][] = [
    ['an empty block', Buffer.alloc(0), 0],
    ['literal fields, some of them empty', fieldBlock([['a', '1'], ['', ''], ['b', ''], ['', 'x']]), 4],
    ['names and values of more than 126 bytes', fieldBlock([['a', 'x'.repeat(127)], ['b'.repeat(300), 'x'.repeat(5000)]]), 2],
    ['references to entries of the table', firstOfTable(5), 5],
    ['references with an index of more than one byte', Buffer.of(0xff, 0x00, 0xff, 0x80, 0x01), 2],
    ['a field that is added to the table, and two references to it', Buffer.concat([indexedField('a', '1'), firstOfTable(2)]), 3],
    ['fields whose name is in the table: with indexing, without indexing, never indexed', Buffer.of(0x41, 1, 0x61, 0x01, 1, 0x61, 0x11, 1, 0x61), 3],
    ['fields whose name has an index of more than one byte', Buffer.of(0x7f, 0x00, 1, 0x61, 0x0f, 0x80, 0x01, 0, 0x1f, 0x01, 0), 3],
    ['a never indexed field with a literal name', Buffer.of(0x10, 1, 0x61, 1, 0x62), 1],
    ['Huffman-coded text, whose first bit is not part of the length', Buffer.of(0x00, 0x81, 0x1f, 0x82, 0xff, 0xff, 0x82), 2],
    ['a table size update, which is not a field, and two fields', Buffer.of(0x20, 0x3f, 0xe1, 0x1f, 0x82, 0x82), 2],
    ['a reference to entry 0, which does not exist, and a field', Buffer.of(0x80, 0x82), 2],
    ['a field whose name has the index 16, and another field', Buffer.of(0x50, 1, 0x61, 0x82), 2],
  ]; // prettier-ignore

  for (const [name, block, fields] of blocks) {
    test(`the count is ${fields} for ${name}`, () => {
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
        for (let at = 0; at < bytes.length; at += size) takeAll(meter, bytes.subarray(at, at + size));
        assert.deepEqual(
          [1, 3, 5].map((stream) => meter.fieldsOf(stream)),
          [fields, fields, fields],
          `in pieces of ${size} bytes`,
        );
      }
    });
  }

  test('when the count of a head is read, the counts of all earlier heads are dropped; an unknown head has no count', () => {
    const meter = begin();
    takeAll(meter, Buffer.concat([1, 3, 5, 7].map((stream) => headers(stream, [['a', '1']]))));
    const fields = [3, 1, 5].map((stream) => meter.fieldsOf(stream));
    assert.deepEqual(fields, [1, undefined, undefined]);
  });

  test('the last 256 unread counts are kept', () => {
    const [meter, other] = [begin(), begin()];
    for (let stream = 1; stream <= 601; stream += 2) {
      for (const each of [meter, other]) takeAll(each, headers(stream, [['a', '1']]));
    }
    assert.deepEqual([meter.fieldsOf(91), other.fieldsOf(89)], [1, undefined]);
  });
});

describe('DATA over the expected length', () => {
  const data = (length: number, stream = 1, padding?: number): Buffer =>
    padding === undefined
      ? frame(frameTypes.data, 0, stream, Buffer.alloc(length))
      : frame(frameTypes.data, flags.padded, stream, Buffer.from([padding, ...Buffer.alloc(length + padding)]));

  /** Returns a meter that expects 5 bytes on stream 1. `excess` lists the streams that receive more than expected. */
  function expecting(): { meter: FrameMeter; excess: number[] } {
    const meter = begin();
    const excess: number[] = [];
    meter.onExcess = (stream) => excess.push(stream);
    takeAll(meter, headers(1, [['a', '1']], flags.endHeaders));
    assert.equal(meter.stop, 'body');
    meter.expectData(1, 5);
    return { meter, excess };
  }

  test('take() stops after the head of a request with a body; the next call continues with what is left of the allowance', () => {
    const meter = begin();
    const head = headers(1, [['a', '1']], flags.endHeaders);
    const pings = Buffer.concat(Array.from({ length: 15 }, () => frame(frameTypes.ping, 0, 0, Buffer.alloc(8))));
    const left = { ...allowance };
    assert.equal(meter.take(Buffer.concat([head, pings]), left), head.length);
    assert.equal(meter.stop, 'body');
    assert.equal(meter.take(pings, left), 9 * 17);
    assert.equal(meter.stop, undefined);
  });

  test('the expected bytes, with and without padding, and DATA of other streams are taken', () => {
    const { meter, excess } = expecting();
    const bytes = Buffer.concat([data(2), data(0), data(3, 1, 4), data(100, 3), data(0, 1, 9), data(0)]);
    assert.equal(meter.take(bytes, { ...allowance }), bytes.length);
    assert.deepEqual([excess, meter.stop], [[], undefined]);
  });

  for (const padding of [undefined, 0, 3]) {
    test(`a frame with one byte too many (padding ${padding}) stops the turn within the frame; reading continues when the stream is forgotten`, () => {
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
