// The versions of Fastify that the package supports and that the tests use.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import { versions } from './hosts.ts';

const manifest = JSON.parse(readFileSync(new URL('../../package.json', import.meta.url), 'utf8')) as Record<
  'peerDependencies' | 'devDependencies',
  Record<string, string>
>;

test("the oldest and the newest Fastify of the package's range are tested", () => {
  const oldest = versions.oldest().version;
  const newest = versions.newest().version;
  const major = Number(newest.split('.')[0]);
  assert.equal(manifest.peerDependencies['fastify'], `>=${oldest} <${major + 1}`);
  assert.equal(manifest.devDependencies['fastify'], `^${newest}`);
  assert.notEqual(oldest, newest);
});
