// What /metrics says is in order for those who read it, from the first scrape on, and for Prometheus' own linter.

import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { after, before, describe, test } from 'node:test';
import { answer, ScriptedBackend } from '../helpers/scripted-backend.ts';
import { startCommand } from '../helpers/targets.ts';

const promtool = spawnSync('promtool', ['--version']).status === 0;

let backend: ScriptedBackend;
before(async () => {
  backend = await ScriptedBackend.start();
  backend.answers(answer('[]'));
});
after(() => backend.stop());

for (const WORKERS of ['1', '2']) {
  describe(`WORKERS=${WORKERS}`, () => {
    let first: string;
    before(async () => {
      await using command = await startCommand({ BACKEND_URL: backend.url, WORKERS });
      first = (await command.admin('/metrics')).text;
    });

    test('every figure of the first scrape is a number that can be', () => {
      const lines = first.split('\n').filter((line) => line !== '' && !line.startsWith('#'));
      assert.ok(lines.length > 100);
      for (const line of lines) {
        const value = Number(line.split(' ').at(-1));
        assert.ok(Number.isFinite(value), line);
        // Of times, only the start of the process is many years.
        assert.ok(!/_seconds(?:\{.*)? /.test(line) || line.startsWith('process_start_') || value < 1e6, line);
      }
    });

    test('promtool finds nothing wrong with it', (t) => {
      if (!promtool) {
        t.skip('there is no promtool here: apt-get install prometheus');
        return;
      }
      const { status, stdout, stderr } = spawnSync('promtool', ['check', 'metrics'], {
        input: first,
        encoding: 'utf8',
      });
      assert.equal(`${stdout}${stderr}`, '');
      assert.equal(status, 0);
    });
  });
}
