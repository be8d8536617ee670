// Compares the figures in the documents with the recorded ones in bench/results.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { makeFiles } from '../../bench/figures.ts';
import { findResults, formatResults, readResults } from '../../bench/results.ts';

const root = join(import.meta.dirname, '../..');

for (const [path, text] of await makeFiles()) {
  test(`${path} is as \`npm run figures\` writes it`, () =>
    assert.equal(readFileSync(join(root, path), 'utf8'), text, `${path} is stale: npm run figures`));
}

test('if the recorded figures change, every file changes', async () => {
  const results = readResults();
  const files = await makeFiles(results);
  for (const { name, us } of results.peers.rows) {
    for (const workload of Object.keys(us)) if (name === 'gateway') us[workload] = 2 * (us[workload] ?? 0);
  }
  for (const row of results.restart.rows) row.recoveryMaxMs += 1;
  for (const row of results.fleet.rows) row.lost += 1;
  for (const [path, text] of await makeFiles(results)) assert.notEqual(text, files.get(path), path);
});

test('the file of recorded figures has the format in which --record writes it', () =>
  assert.equal(formatResults(readResults()), readFileSync(findResults(), 'utf8')));
