// Bodies that arrive in pieces. The sizes of the pieces change neither the bytes nor the JSON check. Memory is limited.

import assert from 'node:assert/strict';
import type { Socket } from 'node:net';
import { test } from 'node:test';
import { blockBytes, giveBackBlocks, takeBlock } from '../../packages/core/body/blocks.ts';
import { AnswerBody, RequestBody, type Body } from '../../packages/core/body/body.ts';
import { BufferBudget } from '../../packages/core/body/budget.ts';
import '../helpers/overwrite-released.ts';
import { createRandom } from '../json/texts.ts';

const budget = new BufferBudget(64 * 1024 * 1024);

const one = Buffer.from('1');

function write(body: Body, piece: Buffer): boolean {
  assert.ok(body.reserve(piece));
  return body.write(piece);
}

for (const Body of [RequestBody, AnswerBody]) {
  test(`${Body.name}: pieces of any size give the same bytes and the same result of isJson`, () => {
    const random = createRandom(11);
    const below = (limit: number): number => Math.floor(random() * limit);
    for (let run = 0; run < 300; run += 1) {
      const isValid = run % 2 === 0;
      const text = `[${'"Käse",12.5,'.repeat(below(6000))}${isValid ? '1]' : '1'}`;
      const bytes = Buffer.from(text);
      const body = new Body(budget);
      for (let at = 0; at < bytes.length;) {
        // Tiny, about 4,096 bytes, or large, in random order.
        const size = [1 + below(4), 4094 + below(4), 1 + below(40_000)][below(3)] ?? 1;
        const piece = Buffer.from(bytes.subarray(at, at + size));
        assert.equal(write(body, piece), true);
        if (Body === AnswerBody) piece.fill(0);
        at += size;
      }
      assert.equal(body.length, bytes.length);
      assert.equal(body.isJson(), isValid);
      assert.ok(body.lend().copy().equals(bytes));
      assert.deepEqual([body.length, budget.bytes], [0, 0]);
    }
  });

  test(`${Body.name}: write returns false as soon as the JSON is invalid, and keeps the bytes; memory is released once [D69]`, () => {
    const body = new Body(budget);
    const results = ['[1,', ']', '1]'].map((text) => write(body, Buffer.from(text)));
    assert.deepEqual([...results, body.isJson()], [true, false, false, false]);
    const lent = body.lend();
    assert.equal(lent.copy().toString(), '[1,]1]');
    lent.release();
    lent.release();
    assert.equal(budget.bytes, 0);
    assert.throws(() => lent.copy(), /released/);
    // An empty body is not JSON.
    assert.deepEqual([new Body(budget).isJson(), new Body(budget).lend().length], [false, 0]);
  });
}

test('RequestBody: the counted memory is the memory that the pieces keep, however they lie in larger reads [D69]', () => {
  const random = createRandom(12);
  const below = (limit: number): number => Math.floor(random() * limit);
  for (let run = 0; run < 300; run += 1) {
    const ledger = new BufferBudget(2 ** 30);
    const body = new RequestBody(ledger);
    for (let read = 0; read < 20; read += 1) {
      const memory = Buffer.allocUnsafeSlow([1 + below(10), 1 + below(9_000), 65_536][below(3)] ?? 1);
      for (let from = 0; from < memory.length;) {
        const end = Math.min(memory.length, from + 1 + below(memory.length));
        assert.ok(body.reserve(memory.subarray(from, end)));
        body.write(memory.subarray(from, end));
        from = end + below(memory.length);
      }
    }
    const { length } = body;
    const kept: Buffer[] = [];
    const lent = body.lend();
    const keep = (piece: string | Buffer) => typeof piece === 'string' || kept.push(piece);
    const socket = { cork: () => 0, uncork: () => 0, write: keep };
    lent.writeTo(socket as unknown as Socket, '');
    const buffers = new Set(kept.map(({ buffer }) => buffer));
    const allocated = [...buffers].reduce((sum, { byteLength }) => sum + byteLength, 0);
    // Shorter bodies are written as one string.
    if (length > 16_384) assert.equal(ledger.bytes, allocated);
    assert.ok(ledger.bytes <= 2 * length + 70_000, `${ledger.bytes} for ${length}`);
    lent.release();
    assert.equal(ledger.bytes, 0);
  }
});

test('a million pieces of one byte take at most 1.1 MB', () => {
  const body = new RequestBody(budget);
  const before = process.memoryUsage().arrayBuffers;
  for (let count = 0; count < 1_000_000; count += 1) write(body, one);
  const bytes = process.memoryUsage().arrayBuffers - before;
  body.drop();
  assert.ok(bytes < 1_100_000, `${bytes} bytes`);
});

test('an answer counts the blocks that its bytes take [D69]', () => {
  const [small, middle, unit] = [512, 4_096, 16_384];
  const ones = (count: number): number[] => Array<number>(count).fill(1);
  for (const [announced, pieces, counted] of [
    [2, [2], small], [0, [512], small], [0, [513], middle], [4_096, [4_096], middle], [0, [4_097], unit],
    [0, [2, 1], small], [0, [2, ...ones(511)], small + middle], [0, [2, ...ones(4_606)], small + middle],
    [0, [2, ...ones(4_607)], small + middle + unit], [0, [2, ...ones(60_000)], small + middle + 4 * unit],
    [5_000, [5_000], unit], [16_385, [5_000], 2 * unit], [65_536, [5_000, 60_536], 4 * unit], [65_537, [65_536], 4 * unit],
    [65_537, [65_536, 1], 5 * unit], [90_000, [65_536, 24_464], 6 * unit], [600_000, [5_000], 4 * unit],
  ] as const) {
    const body = new AnswerBody(budget);
    body.announcedLength = announced;
    for (const length of pieces) write(body, Buffer.alloc(length, '1'));
    assert.equal(budget.bytes, counted, `${announced} announced, ${pieces.slice(0, 2).join()}`);
    body.drop();
    body.drop();
    assert.equal(budget.bytes, 0);
  } // prettier-ignore
});

test('a piece that finds no room, or is larger than a block, counts nothing; a copy has memory of its own [D69]', () => {
  const small = new BufferBudget(blockBytes);
  const body = new AnswerBody(small);
  write(body, Buffer.alloc(blockBytes, '1'));
  assert.equal(body.reserve(one), false);
  assert.equal(small.bytes, blockBytes);
  body.drop();
  assert.equal(small.bytes, 0);
  assert.throws(() => write(new AnswerBody(budget), Buffer.alloc(blockBytes + 1, '1')), /larger than a block/);
  for (const length of [2, 5_000]) {
    const lent = new AnswerBody(budget);
    write(lent, Buffer.alloc(length, '1'));
    const copy = lent.lend().copy();
    assert.deepEqual([copy.length, copy.buffer.byteLength], [length, length]);
  }
});

test('blocks are reused only after they are given back, and tests overwrite them', () => {
  const blocks = [takeBlock(blockBytes), takeBlock(blockBytes)];
  assert.notEqual(blocks[0], blocks[1]);
  giveBackBlocks(blocks);
  assert.ok(blocks.every((block) => block.every((byte) => byte === '!'.charCodeAt(0))));
  // Not `assert.equal`, which needs minutes to compare the bytes of two blocks.
  assert.ok(takeBlock(1_000_000) === blocks[1]);
  assert.notEqual(takeBlock(40_000), blocks[0]);
  assert.ok(takeBlock(50_000) === blocks[0]);
  giveBackBlocks(blocks);
});

test('at most 16 MiB of unused blocks are kept, and blocks of one size do not displace the others', () => {
  const keptMib = (bytes: number): number => {
    const blocks = Array.from({ length: Math.ceil((20 * 1024 ** 2) / bytes) }, () => takeBlock(bytes));
    assert.equal(new Set(blocks).size, blocks.length);
    giveBackBlocks(blocks);
    const again = new Set(Array.from(blocks, () => takeBlock(bytes)));
    const kept = blocks.filter((block) => again.has(block));
    giveBackBlocks([...again]);
    return (kept.length * bytes) / 1024 ** 2;
  };
  for (const bytes of [512, blockBytes, 4_096, blockBytes]) {
    const kept = keptMib(bytes);
    assert.ok(kept <= 16 && kept > 5, `${kept} MiB of blocks of ${bytes} bytes`);
  }
});
