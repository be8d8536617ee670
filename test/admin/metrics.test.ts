// /metrics is valid from the first scrape on, and promtool accepts it.

import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { before, describe, test } from 'node:test';
import { createRegistry } from '../../packages/command/metrics/metrics.ts';
import { operations } from '../../packages/core/operations.ts';
import { Figures } from '../../packages/figures/figures.ts';
import { createReport, joinReports } from '../dashboard/report.ts';
import { createCallRecord } from '../helpers/call-record.ts';
import { startCommand } from '../helpers/command.ts';
import { useBackend } from '../helpers/suites.ts';

const noPromtool =
  spawnSync('promtool', ['--version']).status !== 0 && 'promtool is not installed: apt-get install prometheus';

const backend = await useBackend();

for (const WORKERS of ['1', '2']) {
  describe(`WORKERS=${WORKERS}`, () => {
    let first: string;
    before(async () => {
      await using command = await startCommand({ BACKEND_URL: backend.url, WORKERS });
      first = (await command.admin('/metrics')).text;
    });

    test('every figure of the first scrape is a plausible number', () => {
      const lines = first.split('\n').filter((line) => line !== '' && !line.startsWith('#'));
      assert.ok(lines.length > 100);
      for (const line of lines) {
        const value = Number(line.split(' ').at(-1));
        assert.ok(Number.isFinite(value), line);
        // Only process_start_time_seconds may be a large number, because it is a date.
        assert.ok(!/_seconds(?:\{.*)? /.test(line) || line.startsWith('process_start_') || value < 1e6, line);
      }
    });

    test('promtool finds no problem', { skip: noPromtool }, () => {
      const check = spawnSync('promtool', ['check', 'metrics'], { input: first, encoding: 'utf8' });
      assert.equal(`${check.stdout}${check.stderr}`, '');
      assert.equal(check.status, 0);
    });
  });
}

test('a histogram has the count and the sum of its durations, in seconds', async () => {
  const figures = new Figures();
  for (const durationMs of [500, 1_000, 2_000]) {
    figures.record(
      createCallRecord({
        operation: operations[0],
        durationMs,
        backendOutcome: 'ok',
        backendDurationMs: durationMs / 2,
      }),
    );
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
