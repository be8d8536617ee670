// Each optional part can be left out of a build, as `npm run leave-out` does it.

import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { join } from 'node:path';
import { test } from 'node:test';
import { promisify } from 'node:util';
import { noOpenssl } from '../helpers/certificates.ts';

test('without any one of the parts, the rest compiles, serves, and names the missing part', async () => {
  const parts = [
    ...['dashboard', 'contract-check', 'stand-in-backend', 'tokens', 'rate-limit', 'fastify'],
    ...(noOpenssl ? [] : ['http2']),
    ...['fetch', 'traces', 'cluster'],
  ];
  const script = join(import.meta.dirname, '../../scripts/leave-out.ts');
  const { stdout } = await promisify(execFile)(process.execPath, [script, ...parts]);
  const lines = stdout
    .trimEnd()
    .split('\n')
    .map((line) => line.replace(/ \(\d+ s\)$/, ''));
  assert.deepEqual(
    lines,
    parts.map((part) => `${part}: without it types compile, the command serves`),
  );
});
