// Prints the notes of a version: its entry in CHANGELOG.md without the heading. Fails if there is no entry.

import { readFileSync } from 'node:fs';
import { join, resolve } from 'node:path';

/** The entry of `version` in `changelog`, or undefined if it has none, or only an unreleased one. */
export function findNotes(changelog: string, version: string): string | undefined {
  const entries = changelog.split(/^## /m).slice(1);
  const entry = entries.find((each) => each.startsWith(`${version}\n`));
  return entry?.slice(version.length).trim();
}

if (import.meta.main) {
  const [version = ''] = process.argv.slice(2);
  const root = resolve(import.meta.dirname, '../..');
  const notes = findNotes(readFileSync(join(root, 'CHANGELOG.md'), 'utf8'), version);
  if (notes === undefined || notes === '') throw new Error(`CHANGELOG.md has no entry for ${version}`);
  console.log(notes);
}
