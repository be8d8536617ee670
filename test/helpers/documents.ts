// What a document prints to be typed in, for tests that try it as it stands there.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';

/** The blocks of code in `document`, without fences and indentation. */
export function codeBlocks(document: string): string[] {
  const text = readFileSync(join(import.meta.dirname, '../..', document), 'utf8');
  return [...text.matchAll(/^( *)```[^\n]*\n(.*?)^\1```$/gms)].map(([, indentation = '', block = '']) =>
    block.replaceAll(new RegExp(`^${indentation}`, 'gm'), ''),
  );
}

/** The one block of code in `document` that has `part` in it. */
export function codeBlock(document: string, part: string): string {
  const blocks = codeBlocks(document).filter((block) => block.includes(part));
  assert.equal(blocks.length, 1, `${document} has one block with ${part}`);
  return blocks[0] ?? '';
}

/** `text` with each of `changes`, from what stands there once to what a test has in its place. */
export function replaceEach(text: string, changes: Readonly<Record<string, string>>): string {
  return Object.entries(changes).reduce((changed, [from, to]) => {
    assert.equal(changed.split(from).length, 2, `${from} stands once in\n${changed}`);
    return changed.replace(from, () => to);
  }, text);
}
