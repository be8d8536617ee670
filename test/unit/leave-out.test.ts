// Each optional part can be left out of a build, as `npm run leave-out` does it.

import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { join } from 'node:path';
import { test } from 'node:test';
import { promisify } from 'node:util';
import { noOpenssl } from '../helpers/certificates.ts';

const script = join(import.meta.dirname, '../../scripts/leave-out.ts');
const run = promisify(execFile);

const parts = [
  'dashboard', 'contract-check', 'stand-in-backend', 'tokens', 'rate-limit', 'fastify', 'http2', 'fetch',
  'traces', 'cluster',
]; // prettier-ignore
for (const part of parts) {
  test(
    `without ${part}, the rest compiles, serves, and names the missing part`,
    { skip: part === 'http2' && noOpenssl },
    async () => {
      const { stdout } = await run(process.execPath, [script, part]);
      assert.match(stdout, new RegExp(`^${part}: without it types compile, the command serves`));
    },
  );
}
