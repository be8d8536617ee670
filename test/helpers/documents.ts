// Reads code blocks from the documents, for tests that run them.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';

/** The blocks of code in `document` whose language matches, without fences and indentation. */
export function codeBlocks(document: string, language = /^/): string[] {
  const text = readFileSync(join(import.meta.dirname, '../..', document), 'utf8');
  const blocks = text.matchAll(/^( *)```([^\n]*)\n(.*?)^\1```$/gms);
  return [...blocks].flatMap(([, indentation = '', name = '', block = '']) =>
    language.test(name) ? block.replaceAll(new RegExp(`^${indentation}`, 'gm'), '') : [],
  );
}

/** The only block of code in `document` that contains `part`. */
export function codeBlock(document: string, part: string): string {
  const blocks = codeBlocks(document).filter((block) => block.includes(part));
  assert.equal(blocks.length, 1, `${document} has one block with ${part}`);
  return blocks[0] ?? '';
}

/** `text` with each key of `changes` replaced by its value. Fails unless each key occurs exactly once. */
export function replaceEach(text: string, changes: Readonly<Record<string, string>>): string {
  return Object.entries(changes).reduce((changed, [from, to]) => {
    assert.equal(changed.split(from).length, 2, `${from} occurs once in\n${changed}`);
    return changed.replace(from, () => to);
  }, text);
}
