// docs/settings.md is generated from the settings table.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';

import { createSettingsDoc } from '../../scripts/write-settings-doc.ts';
import { flagOf, settingNames, variableOf } from '../../packages/command/settings/settings.ts';

const written = readFileSync(new URL('../../docs/settings.md', import.meta.url), 'utf8');

test('docs/settings.md is what `npm run docs` writes [D32]', async () => {
  assert.equal(written, await createSettingsDoc(), 'docs/settings.md is stale: npm run docs');
});

for (const name of settingNames) {
  test(`docs/settings.md has an entry for ${name} with its variable and flag [D32]`, () => {
    assert.equal(written.split(`\n### \`${variableOf(name)}\`\n`).length, 2);
    assert.equal(written.match(new RegExp(`^- \`${flagOf(name)}\`[: ]`, 'gm'))?.length, 1);
  });
}
