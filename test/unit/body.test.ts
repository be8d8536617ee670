// A body as it comes in pieces: the same bytes, the same verdict, and no more memory than it should take.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { blockBytes, giveBackBlocks, takeBlock } from '../../packages/core/body/blocks.ts';
import { AnswerBody, RequestBody } from '../../packages/core/body/body.ts';
import { createRandom } from '../helpers/json-texts.ts';

for (const SomeBody of [RequestBody, AnswerBody]) {
  test(`${SomeBody.name}: in pieces of all sizes it is the same bytes and the same verdict`, () => {
    const random = createRandom(11);
    const below = (limit: number): number => Math.floor(random() * limit);
    for (let run = 0; run < 300; run += 1) {
      const isValid = run % 2 === 0;
      const text = `[${'"Käse",12.5,'.repeat(below(6000))}${isValid ? '1]' : '1'}`;
      const bytes = Buffer.from(text);
      const body = new SomeBody();
      for (let at = 0; at < bytes.length;) {
        // Tiny, around the limits, and large, in any order.
        const size = [1 + below(4), 4094 + below(4), 1 + below(40_000)][below(3)] ?? 1;
        const piece = Buffer.from(bytes.subarray(at, at + size));
        assert.equal(body.write(piece), true);
        if (SomeBody === AnswerBody) piece.fill(0);
        at += size;
      }
      assert.equal(body.length, bytes.length);
      assert.equal(body.isJson(), isValid);
      assert.ok(Buffer.concat(body.takePieces()).equals(bytes));
      assert.equal(body.length, 0);
    }
  });

  test(`${SomeBody.name}: what can never become JSON is known at once, and kept all the same`, () => {
    const body = new SomeBody();
    assert.equal(body.write(Buffer.from('[1,')), true);
    assert.equal(body.write(Buffer.from(']')), false);
    assert.equal(body.write(Buffer.from('1]')), false);
    assert.equal(body.isJson(), false);
    assert.equal(Buffer.concat(body.takePieces()).toString(), '[1,]1]');
  });

  test(`${SomeBody.name}: nothing at all is no JSON`, () => {
    assert.equal(new SomeBody().isJson(), false);
    assert.deepEqual(new SomeBody().takePieces(), []);
  });
}

test('one piece is kept as it is, not copied', () => {
  const body = new RequestBody();
  const piece = Buffer.from('{}');
  body.write(piece);
  assert.equal(body.takePieces()[0], piece);
});

test('a million pieces of one byte are a hundred pieces', () => {
  const body = new RequestBody();
  for (let count = 0; count < 1_000_000; count += 1) body.write(Buffer.from('1'));
  assert.ok(body.takePieces().length <= 100);
});

test('small and large pieces in turn leave no half-empty buffers behind', () => {
  const body = new RequestBody();
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

test('an answer in pieces of one byte takes as many blocks as it fills', () => {
  const body = new AnswerBody();
  const piece = Buffer.from('1');
  for (let count = 0; count < 3 * blockBytes; count += 1) body.write(piece);
  assert.equal(body.blocks.length, 3);
  // The first piece was kept by itself, as most are.
  assert.deepEqual(
    body.takePieces().map(({ length }) => length),
    [1, blockBytes, blockBytes, blockBytes - 1],
  );
});

test('a small answer takes no block', () => {
  const body = new AnswerBody();
  body.write(Buffer.from('{}'));
  assert.deepEqual(body.blocks, []);
  assert.deepEqual(body.takePieces(), [Buffer.from('{}')]);
});

test('an answer of one large piece is looked at whole where it lies in its block', () => {
  const body = new AnswerBody();
  const text = Buffer.from(JSON.stringify('x'.repeat(blockBytes - 2)));
  body.write(text);
  assert.equal(body.isJson(), true);
  const { blocks } = body;
  assert.equal(blocks.length, 1);
  const pieces = body.takePieces();
  assert.deepEqual(pieces, [text]);
  assert.equal(pieces[0]?.buffer, blocks[0]?.buffer);
});

test('blocks go to the next answer when they are given back, and not before', () => {
  const large = Buffer.alloc(10_000, '1');
  const dropped = new AnswerBody();
  dropped.write(large);
  const [block] = dropped.blocks;
  dropped.drop();
  assert.deepEqual(dropped.blocks, []);
  assert.equal(takeBlock(), block);

  const taken = new AnswerBody();
  taken.write(large);
  const { blocks } = taken;
  taken.takePieces();
  taken.drop();
  assert.notEqual(takeBlock(), blocks[0]);
  giveBackBlocks(blocks);
  assert.equal(takeBlock(), blocks[0]);
});

test('no more than 16 MiB of blocks stand by', () => {
  const blocks = Array.from({ length: 300 }, takeBlock);
  assert.equal(new Set(blocks).size, 300);
  giveBackBlocks(blocks);
  const again = new Set(Array.from({ length: 300 }, takeBlock));
  assert.equal(blocks.filter((block) => again.has(block)).length, (16 * 1024 * 1024) / blockBytes);
});
