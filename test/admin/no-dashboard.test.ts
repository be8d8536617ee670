// The admin listener of a build without the dashboard.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Figures } from '../../packages/figures/figures.ts';
import { createReport, withAdmin } from '../dashboard/report.ts';
import { request } from '../helpers/raw-client.ts';

test('in a build without the dashboard, / gets 404 with the reason, and the other admin pages work', async () => {
  await withAdmin(
    () => [createReport({ figures: new Figures().toJSON() })],
    async (port) => {
      for (const [method, path, status, text] of [
        ['GET', '/', 404, '{"error":"This build leaves out packages/dashboard"}'],
        ['GET', '/?x', 404, '{"error":"This build leaves out packages/dashboard"}'],
        ['GET', '/dashboard/main.js', 404, '{"error":"Not found"}'],
        ['GET', '/dashboard/state', 404, '{"error":"Not found"}'],
        ['HEAD', '/', 404, ''],
        ['POST', '/', 405, '{"error":"Method not allowed"}'],
        ['GET', '/livez', 200, '{"status":"alive"}'],
      ] as const) {
        const reply = await request(port, method, path);
        assert.deepEqual([reply.status, reply.text], [status, text], `${method} ${path}`);
      }
      const ready = await request(port, 'GET', '/readyz');
      assert.equal(ready.status, 200);
      assert.match((await request(port, 'GET', '/metrics')).text, /^work_item_gateway_/m);
    },
    undefined,
    { hasDashboard: false },
  );
});
