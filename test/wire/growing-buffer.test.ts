// appendBytes gathers pieces in one buffer [D58]. Its cost is tested in test/transport/server-exchanges.test.ts.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { appendBytes } from '../../packages/core/http1/growing-buffer.ts';

test('pieces are copied in order into one buffer while there is room, and bytes returned earlier never change', () => {
  let held: Buffer = Buffer.alloc(0);
  const returned: [bytes: Buffer, text: string][] = [];
  const memory = new Set<ArrayBufferLike>();
  let expected = '';
  for (let index = 0; index < 200; index += 1) {
    const piece = Buffer.from(String.fromCharCode(97 + (index % 26)).repeat((index * 7) % 50));
    expected += piece.toString();
    held = appendBytes(held, piece, 16);
    piece.fill('!');
    returned.push([held, expected]);
    memory.add(held.buffer);
  }
  for (const [bytes, text] of returned) assert.equal(bytes.toString(), text);
  assert.ok(memory.size < 20, 'few buffers');
});

test('the rest of a buffer is continued in the same memory, and copied to a new buffer when the first is full', () => {
  const all = appendBytes(Buffer.alloc(0), Buffer.from('abcdef'), 8);
  const more = appendBytes(all.subarray(4), Buffer.from('gh'), 8);
  assert.equal(more.buffer, all.buffer);
  const moved = appendBytes(more, Buffer.from('i'), 8);
  assert.notEqual(moved.buffer, all.buffer, 'the buffer was full');
  assert.deepEqual([all, more, moved].map(String), ['abcdef', 'efgh', 'efghi']);
});
