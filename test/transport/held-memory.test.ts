// The memory of a gateway whose clients make it hold memory in every way, compared with the sizing formula [D69].
// `npm run memory` does the same with 2,000 connections.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { noOpenssl } from '../helpers/certificates.ts';
import { assertFits } from './held-memory.ts';

// TLS holds all that a plain connection does, and its own buffers.
for (const protocol of ['tls', 'http2'] as const) {
  test(
    `${protocol}: resident memory stays below the sizing formula, and nothing is held after the clients have left [D69]`,
    { skip: noOpenssl },
    async (t) => {
      const fits = await assertFits(protocol, 150);
      t.diagnostic(fits);
      assert.ok(fits);
    },
  );
}
