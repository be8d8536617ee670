// /metrics is valid from the first scrape on, and promtool accepts it. The pages of a build without the dashboard.

import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { test } from 'node:test';
import { createRegistry } from '../../packages/command/metrics/metrics.ts';
import { operations } from '../../packages/core/operations.ts';
import { Figures } from '../../packages/figures/figures.ts';
import { createReport, joinReports, withAdmin } from '../dashboard/report.ts';
import { createCallRecord } from '../helpers/call-record.ts';
import { startCommand } from '../helpers/command.ts';
import { request } from '../helpers/raw-client.ts';
import { useBackend } from '../helpers/suites.ts';

const noPromtool =
  spawnSync('promtool', ['--version']).status !== 0 && 'promtool is not installed: apt-get install prometheus';

const backend = await useBackend();

for (const WORKERS of ['1', '2']) {
  test(`WORKERS=${WORKERS}: every figure of the first scrape is a plausible number, and promtool finds no problem`, async (t) => {
    await using command = await startCommand({ BACKEND_URL: backend.url, WORKERS });
    const first = (await command.admin('/metrics')).text;
    const lines = first.split('\n').filter((line) => line !== '' && !line.startsWith('#'));
    assert.ok(lines.length > 100);
    for (const line of lines) {
      const value = Number(line.split(' ').at(-1));
      assert.ok(Number.isFinite(value), line);
      // Only process_start_time_seconds may be a large number, because it is a date.
      assert.ok(!/_seconds(?:\{.*)? /.test(line) || line.startsWith('process_start_') || value < 1e6, line);
    }
    await t.test('promtool', { skip: noPromtool }, () => {
      const check = spawnSync('promtool', ['check', 'metrics'], { input: first, encoding: 'utf8' });
      assert.deepEqual([check.status, `${check.stdout}${check.stderr}`], [0, '']);
    });
  });
}

test('a histogram has the count and the sum of its durations, in seconds', async () => {
  const figures = new Figures();
  for (const durationMs of [500, 1_000, 2_000]) {
    const backendCall = { backendOutcome: 'ok', backendDurationMs: durationMs / 2 } as const;
    figures.record(createCallRecord({ operation: operations[0], durationMs, ...backendCall }));
  }
  // The gateway refused this request, without a call to the backend.
  figures.record(createCallRecord({ operation: operations[0], durationMs: 250, outcome: 'rate-limited', status: 429 }));
  const text = await createRegistry(joinReports([createReport({ figures: figures.toJSON() })]), []).metrics();
  const lines = text
    .split('\n')
    .filter((line) => /_duration_seconds_(?:sum|count)\{/.test(line) && !line.endsWith(' 0'));
  assert.deepEqual(lines, [
    'work_item_gateway_request_duration_seconds_sum{operation="list"} 3.75',
    'work_item_gateway_request_duration_seconds_count{operation="list"} 4',
    'work_item_gateway_backend_call_duration_seconds_sum{operation="list"} 1.75',
    'work_item_gateway_backend_call_duration_seconds_count{operation="list"} 3',
  ]);
});

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
