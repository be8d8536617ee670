// The memory of the JSON checker: it keeps one bit for each level of nesting and no part of the body [D13].

import assert from 'node:assert/strict';
import { copyFileSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { pathToFileURL } from 'node:url';
import { isJson, JsonChecker } from '../../packages/core/json/json.ts';

const levels = 10_000_000;

function writeTimes(checker: JsonChecker, text: string, times: number): void {
  const perPiece = Math.max(1, Math.floor(50_000 / text.length));
  const piece = Buffer.from(text.repeat(perPiece));
  let left = times;
  for (; left >= perPiece; left -= perPiece) assert.equal(checker.write(piece), true);
  assert.equal(checker.write(Buffer.from(text.repeat(left))), true);
}

/** The number of bytes outside of the JavaScript heap, where the checker's stack and the scanner's memory are. */
function arrayBuffers(): number {
  return process.memoryUsage().arrayBuffers;
}

test('ten million levels of nesting are checked in one piece; in pieces, the checker needs one bit for each level', () => {
  const bytes = Buffer.alloc(2 * levels, '[');
  bytes.fill(']', levels);
  assert.equal(isJson(bytes), true);
  bytes[bytes.length - 1] = 0x7d;
  assert.equal(isJson(bytes), false);
  assert.equal(isJson(bytes.subarray(0, -1)), false);

  const perPiece = 10_000;
  const piece = Buffer.from('{"a":['.repeat(perPiece / 2));
  const before = arrayBuffers();
  const checker = new JsonChecker();
  for (let depth = perPiece; depth <= levels; depth += perPiece) {
    assert.equal(checker.write(piece), true);
    const held = arrayBuffers() - before;
    if (held > (depth / 8) * 1.25 + 100_000) assert.fail(`${held} bytes held for ${depth} levels`);
  }
  assert.equal(checker.write(Buffer.from('1')), true);
  writeTimes(checker, ']}', levels / 2);
  assert.equal(checker.end(), true);
});

test('a wrong closing bracket is detected at any depth', () => {
  for (const depth of [1, 63, 64, 65, 128, 129, 5000, 70_000, 200_000]) {
    const checker = new JsonChecker();
    writeTimes(checker, '[', depth);
    assert.equal(checker.write(Buffer.from('{"a":')), true);
    writeTimes(checker, '[', depth);
    assert.equal(checker.write(Buffer.from('1')), true);
    writeTimes(checker, ']', depth);
    assert.equal(checker.write(Buffer.from(']')), false, `${depth} levels`);
  }
});

test('levels may be closed in pieces of any size', () => {
  for (const depth of [32, 63, 64, 65, 128]) {
    for (const size of [1, 63, 64, 65, 128]) {
      const checker = new JsonChecker();
      writeTimes(checker, '[', depth);
      writeTimes(checker, '{"a":', depth);
      const end = Buffer.from(`1${'}'.repeat(depth)}${']'.repeat(depth)}`);
      assert.equal(checker.write(end.subarray(0, 1)), true);
      for (let at = 1; at < end.length; at += size) checker.write(end.subarray(at, at + size));
      assert.equal(checker.end(), true, `${2 * depth} levels in pieces of ${size} bytes`);
    }
  }
});

test('a text of 64 MB in pieces, and ten thousand unfinished texts, need less than 1 MiB outside of the heap', () => {
  const before = arrayBuffers();
  const checker = new JsonChecker();
  checker.write(Buffer.from('['));
  writeTimes(checker, `${JSON.stringify({ title: 'é'.repeat(490) })},`, 65_536);
  assert.ok(arrayBuffers() - before < 1_048_576);
  assert.equal(checker.write(Buffer.from('0]')), true);
  assert.equal(checker.end(), true);
  const piece = Buffer.from('{"a":[1,2,{"b":"' + 'x'.repeat(200));
  const checkers = Array.from({ length: 10_000 }, () => new JsonChecker());
  for (const each of checkers) assert.equal(each.write(piece), true);
  assert.ok(arrayBuffers() - before < 1_048_576, `${checkers.length} checkers`);
});

test('if the scanner is not built, importing the checker fails, and the error names the command that builds the scanner', async () => {
  const directory = mkdtempSync(join(tmpdir(), 'json-'));
  try {
    const copy = join(directory, 'json.ts');
    copyFileSync(new URL('../../packages/core/json/json.ts', import.meta.url), copy);
    await assert.rejects(import(pathToFileURL(copy).href), (error: Error) => {
      assert.match(error.message, /^The JSON scanner is not built \(.*scanner\.wasm\): run `npm run build:scanner`\.$/);
      assert.equal((error.cause as NodeJS.ErrnoException).code, 'ENOENT');
      return true;
    });
  } finally {
    rmSync(directory, { recursive: true });
  }
});

test("the scanner's memory has a fixed size", async () => {
  const { WebAssembly: webAssembly } = globalThis as unknown as {
    WebAssembly: { instantiate: (code: Uint8Array) => Promise<{ instance: { exports: { memory: Memory } } }> };
  };
  const code = readFileSync(new URL('../../packages/core/json/scanner.wasm', import.meta.url));
  const { memory } = (await webAssembly.instantiate(code)).instance.exports;
  assert.equal(memory.buffer.byteLength, 131_072);
  assert.throws(() => memory.grow(1), RangeError);
});

interface Memory {
  readonly buffer: ArrayBuffer;
  grow(pages: number): number;
}
