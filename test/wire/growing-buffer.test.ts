// appendBytes gathers pieces in one buffer [D58]. Its cost is tested in test/transport/server-exchanges.test.ts.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { appendBytes } from '../../packages/core/http1/growing-buffer.ts';

const noBytes = Buffer.alloc(0);

test('pieces of any size are gathered in order, and bytes returned earlier never change', () => {
  let held: Buffer = noBytes;
  const returned: { readonly bytes: Buffer; readonly text: string }[] = [];
  let expected = '';
  for (let index = 0; index < 200; index += 1) {
    const piece = String.fromCharCode(97 + (index % 26)).repeat((index * 7) % 50);
    expected += piece;
    held = appendBytes(held, Buffer.from(piece), 16);
    returned.push({ bytes: held, text: expected });
  }
  for (const { bytes, text } of returned) assert.equal(bytes.toString(), text);
});

test('a piece is copied: its memory can be reused and is not changed', () => {
  const memory = Buffer.from('one two');
  const first = appendBytes(noBytes, memory.subarray(0, 3), 4);
  const both = appendBytes(first, Buffer.from('!'), 4);
  assert.equal(memory.toString(), 'one two');
  memory.fill('x');
  assert.deepEqual([first.toString(), both.toString()], ['one', 'one!']);
  assert.equal(both.buffer, first.buffer, 'there was room');
});

test('bytes are appended to the same buffer, and copied to a new buffer when the first is full', () => {
  const all = appendBytes(noBytes, Buffer.from('abcdef'), 8);
  const more = appendBytes(all.subarray(4), Buffer.from('gh'), 8);
  assert.equal(more.buffer, all.buffer);
  const moved = appendBytes(more, Buffer.from('i'), 8);
  assert.notEqual(moved.buffer, all.buffer, 'the buffer was full');
  assert.deepEqual([all, more, moved].map(String), ['abcdef', 'efgh', 'efghi']);
});
