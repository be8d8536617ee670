// A body as it comes in pieces: the same bytes, the same verdict, and no more memory than it should take.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Body } from '../../src/body.ts';
import { createRandom } from '../helpers/json-texts.ts';

test('in pieces of all sizes it is the same bytes and the same verdict', () => {
  const random = createRandom(11);
  const below = (limit: number): number => Math.floor(random() * limit);
  for (let run = 0; run < 300; run += 1) {
    const isValid = run % 2 === 0;
    const text = `[${'"Käse",12.5,'.repeat(below(6000))}${isValid ? '1]' : '1'}`;
    const bytes = Buffer.from(text);
    const body = new Body();
    for (let at = 0; at < bytes.length;) {
      // Tiny, around the limits, and large, in any order.
      const size = [1 + below(4), 4094 + below(4), 1 + below(40_000)][below(3)] ?? 1;
      assert.equal(body.write(bytes.subarray(at, at + size)), true);
      at += size;
    }
    assert.equal(body.length, bytes.length);
    assert.equal(body.isJson(), isValid);
    assert.ok(Buffer.concat(body.takePieces()).equals(bytes));
    assert.equal(body.length, 0);
  }
});

test('what can never become JSON is known at once, and kept all the same', () => {
  const body = new Body();
  assert.equal(body.write(Buffer.from('[1,')), true);
  assert.equal(body.write(Buffer.from(']')), false);
  assert.equal(body.write(Buffer.from('1]')), false);
  assert.equal(body.isJson(), false);
  assert.equal(Buffer.concat(body.takePieces()).toString(), '[1,]1]');
});

test('nothing at all is no JSON', () => {
  assert.equal(new Body().isJson(), false);
  assert.deepEqual(new Body().takePieces(), []);
});

test('one piece is kept as it is, not copied', () => {
  const body = new Body();
  const piece = Buffer.from('{}');
  body.write(piece);
  assert.equal(body.takePieces()[0], piece);
});

test('a million pieces of one byte are a hundred pieces', () => {
  const body = new Body();
  for (let count = 0; count < 1_000_000; count += 1) body.write(Buffer.from('1'));
  assert.ok(body.takePieces().length <= 100);
});

test('small and large pieces in turn leave no half-empty buffers behind', () => {
  const body = new Body();
  let expected = 0;
  for (let count = 0; count < 200; count += 1) {
    body.write(Buffer.from('1'));
    body.write(Buffer.alloc(4096, '1'));
    expected += 4097;
  }
  const held = new Map(body.takePieces().map(({ buffer }) => [buffer, buffer.byteLength]));
  const bytes = [...held.values()].reduce((sum, each) => sum + each, 0);
  assert.ok(bytes < expected * 1.3, `${bytes} bytes held for ${expected}`);
});
