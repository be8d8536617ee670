// V8's optimizing compilers in the built command: they wait until it has started, and no longer.

import assert from 'node:assert/strict';
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { assertReply } from '../helpers/expected.ts';
import { poll } from '../helpers/changes.ts';
import { request } from '../helpers/raw-client.ts';
import { answer, ScriptedBackend } from '../helpers/scripted-backend.ts';
import { runCommand, startCommand } from '../helpers/targets.ts';

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

/** Flags that have V8 write down what it compiles, and a count of that. */
function trace(name: string): { nodeFlags: string[]; countCompiled: () => number } {
  const file = join(folder, name);
  return {
    nodeFlags: ['--trace-opt', '--redirect-code-traces', `--redirect-code-traces-to=${file}`],
    countCompiled: () =>
      existsSync(file) ? readFileSync(file, 'latin1').split('[compiling method').length - 1 : 0,
  };
}

// Nearly a hundred where nothing waits.
const startMax = 10;

for (const workers of ['1', '2']) {
  test(`with WORKERS=${workers} what runs once is not compiled, what serves clients is`, async () => {
    const { nodeFlags, countCompiled } = trace(workers);
    const environment = { BACKEND_URL: backend.url, WORKERS: workers, LOG_LEVEL: 'info' };
    await using command = await startCommand(environment, { nodeFlags });
    const atStart = countCompiled();
    assert.ok(atStart <= startMax, `${atStart} functions were compiled`);
    await poll(async () => {
      assertReply(await command.call('GET', '/api/work-items'), 200, '[]');
      return countCompiled() >= atStart + 20;
    }, 'functions are compiled');
  });
}

test('the embedded backend is not compiled while it starts, and is when it serves', async () => {
  const { nodeFlags, countCompiled } = trace('backend');
  const environment = { EMBEDDED_BACKEND_HOST: '127.0.0.1', EMBEDDED_BACKEND_PORT: '0', LOG_FORMAT: 'json' };
  await using command = runCommand(['backend'], environment, { nodeFlags });
  const { url } = await command.log((line) => typeof line['url'] === 'string', 'the line that says ready');
  const atStart = countCompiled();
  assert.ok(atStart <= startMax, `${atStart} functions were compiled`);
  const { port } = new URL(String(url));
  await poll(async () => {
    assert.equal((await request(Number(port), 'GET', '/api/WorkItem')).text, '[]');
    return countCompiled() >= atStart + 20;
  }, 'functions are compiled');
});
