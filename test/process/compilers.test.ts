// V8's optimizing compilers in the built command: they wait until it has started, and no longer.

import assert from 'node:assert/strict';
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { assertReply } from '../helpers/expected.ts';
import { poll } from '../helpers/changes.ts';
import { answer, ScriptedBackend } from '../helpers/scripted-backend.ts';
import { startCommand } from '../helpers/targets.ts';

let backend: ScriptedBackend;
let folder: string;
before(async () => {
  folder = mkdtempSync(join(tmpdir(), 'work-item-gateway-compilers-'));
  backend = await ScriptedBackend.start();
  backend.answers(answer('[]'));
});
after(async () => {
  await backend.stop();
  rmSync(folder, { recursive: true });
});

for (const workers of ['1', '2']) {
  test(`with WORKERS=${workers} what runs once is not compiled, what serves clients is`, async () => {
    const trace = join(folder, workers);
    const countCompiled = (): number =>
      existsSync(trace) ? readFileSync(trace, 'latin1').split('[compiling method').length - 1 : 0;
    await using command = await startCommand(
      { BACKEND_URL: backend.url, WORKERS: workers, LOG_LEVEL: 'info' },
      {
        nodeFlags: ['--trace-opt', '--redirect-code-traces', `--redirect-code-traces-to=${trace}`],
      },
    );
    const atStart = countCompiled();
    // Node loads the first file itself. Nearly a hundred are compiled where nothing waits.
    assert.ok(atStart <= 10, `${atStart} functions were compiled`);
    await poll(async () => {
      assertReply(await command.call('GET', '/api/work-items'), 200, '[]');
      return countCompiled() >= atStart + 20;
    }, 'functions are compiled');
  });
}
