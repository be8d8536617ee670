// Bodies that arrive in pieces. The sizes of the pieces change neither the bytes nor the JSON check. Memory is limited.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { AnswerBody, blockBytes, giveBackBlocks, RequestBody, takeBlock } from '../../packages/core/body/body.ts';
import { createRandom } from '../json/texts.ts';

for (const Body of [RequestBody, AnswerBody]) {
  test(`${Body.name}: pieces of any size give the same bytes and the same result of isJson`, () => {
    const random = createRandom(11);
    const below = (limit: number): number => Math.floor(random() * limit);
    for (let run = 0; run < 300; run += 1) {
      const isValid = run % 2 === 0;
      const text = `[${'"Käse",12.5,'.repeat(below(6000))}${isValid ? '1]' : '1'}`;
      const bytes = Buffer.from(text);
      const body = new Body();
      for (let at = 0; at < bytes.length;) {
        // Tiny, about 4,096 bytes, or large, in random order.
        const size = [1 + below(4), 4094 + below(4), 1 + below(40_000)][below(3)] ?? 1;
        const piece = Buffer.from(bytes.subarray(at, at + size));
        assert.equal(body.write(piece), true);
        if (Body === AnswerBody) piece.fill(0);
        at += size;
      }
      assert.equal(body.length, bytes.length);
      assert.equal(body.isJson(), isValid);
      assert.ok(Buffer.concat(body.takePieces()).equals(bytes));
      assert.equal(body.length, 0);
    }
  });

  test(`${Body.name}: write returns false as soon as the JSON is invalid, and keeps the bytes`, () => {
    const body = new Body();
    assert.equal(body.write(Buffer.from('[1,')), true);
    assert.equal(body.write(Buffer.from(']')), false);
    assert.equal(body.write(Buffer.from('1]')), false);
    assert.equal(body.isJson(), false);
    assert.equal(Buffer.concat(body.takePieces()).toString(), '[1,]1]');
  });

  test(`${Body.name}: an empty body is not JSON`, () => {
    assert.equal(new Body().isJson(), false);
    assert.deepEqual(new Body().takePieces(), []);
  });
}

test('a single piece is not copied', () => {
  const body = new RequestBody();
  const piece = Buffer.from('{}');
  body.write(piece);
  assert.equal(body.takePieces()[0], piece);
});

test('a million pieces of one byte are joined into at most a hundred pieces', () => {
  const body = new RequestBody();
  for (let count = 0; count < 1_000_000; count += 1) body.write(Buffer.from('1'));
  assert.ok(body.takePieces().length <= 100);
});

test('alternating small and large pieces leave no half-empty buffers', () => {
  const body = new RequestBody();
  let expected = 0;
  for (let count = 0; count < 200; count += 1) {
    body.write(Buffer.from('1'));
    body.write(Buffer.alloc(4096, '1'));
    expected += 4097;
  }
  const held = new Map(body.takePieces().map(({ buffer }) => [buffer, buffer.byteLength]));
  const bytes = [...held.values()].reduce((sum, each) => sum + each, 0);
  assert.ok(bytes < expected * 1.3, `${bytes} bytes allocated for a body of ${expected}`);
});

test('an answer in one-byte pieces uses only as many blocks as its bytes fill', () => {
  const body = new AnswerBody();
  const piece = Buffer.from('1');
  for (let count = 0; count < 3 * blockBytes; count += 1) body.write(piece);
  assert.equal(body.blocks.length, 3);
  // The first piece is kept without a block, because most answers have only one piece.
  const lengths = body.takePieces().map(({ length }) => length);
  assert.deepEqual(lengths, [1, blockBytes, blockBytes, blockBytes - 1]);
});

test('a small answer uses no block', () => {
  const body = new AnswerBody();
  body.write(Buffer.from('{}'));
  assert.deepEqual(body.blocks, []);
  assert.deepEqual(body.takePieces(), [Buffer.from('{}')]);
});

test('an answer of one large piece is checked in its block, without a copy', () => {
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

test('blocks are reused only after they are given back', () => {
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

test('at most 16 MiB of unused blocks are kept', () => {
  const blocks = Array.from({ length: 300 }, takeBlock);
  assert.equal(new Set(blocks).size, 300);
  giveBackBlocks(blocks);
  const again = new Set(Array.from({ length: 300 }, takeBlock));
  assert.equal(blocks.filter((block) => again.has(block)).length, (16 * 1024 * 1024) / blockBytes);
});
