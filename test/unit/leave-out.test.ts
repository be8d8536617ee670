// Each part that a build may leave out can be left out: `npm run leave-out` tells what else is tried there.

import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { join } from 'node:path';
import { test } from 'node:test';
import { promisify } from 'node:util';
import { noOpenssl } from '../helpers/certificates.ts';

const script = join(import.meta.dirname, '../../scripts/leave-out.ts');
const run = promisify(execFile);

for (const part of [
  'dashboard',
  'contract-check',
  'stand-in-backend',
  'tokens',
  'rate-limit',
  'fastify',
  'http2',
  'fetch',
  'traces',
  'cluster',
]) {
  test(
    `without ${part} types compile, the command serves, and it says what is missing`,
    { skip: part === 'http2' && noOpenssl },
    async () => {
      const { stdout } = await run(process.execPath, [script, part]);
      assert.match(stdout, new RegExp(`^${part}: \\d+ files compile without it, the command serves`));
    },
  );
}
