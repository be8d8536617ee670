// V8's optimizing compilers in the built command: they run only after the start.

import assert from 'node:assert/strict';
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { assertReply } from '../helpers/expected.ts';
import { poll } from '../helpers/changes.ts';
import { useBackend, useFolder } from '../helpers/command-tests.ts';
import { request } from '../helpers/raw-client.ts';
import { runCommand, startCommand } from '../helpers/targets.ts';

const folder = useFolder();
const backend = await useBackend();

/** Flags that make V8 record its compilations in a file, and a function that counts them. */
function trace(name: string): { nodeFlags: string[]; countCompiled: () => number } {
  const file = join(folder, name);
  return {
    nodeFlags: ['--trace-opt', '--redirect-code-traces', `--redirect-code-traces-to=${file}`],
    countCompiled: () => (existsSync(file) ? readFileSync(file, 'latin1').split('[compiling method').length - 1 : 0),
  };
}

// If the compilers ran during the start, they would compile nearly a hundred functions.
const startMax = 10;

for (const workers of ['1', '2']) {
  test(`WORKERS=${workers}: startup code is not compiled, code that serves clients is`, async () => {
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

test('the embedded backend: startup code is not compiled, code that serves requests is', async () => {
  const { nodeFlags, countCompiled } = trace('backend');
  const environment = { EMBEDDED_BACKEND_HOST: '127.0.0.1', EMBEDDED_BACKEND_PORT: '0', LOG_FORMAT: 'json' };
  await using command = runCommand(['backend'], environment, { nodeFlags });
  const { url } = await command.log((line) => typeof line['url'] === 'string', 'ready');
  const atStart = countCompiled();
  assert.ok(atStart <= startMax, `${atStart} functions were compiled`);
  const { port } = new URL(String(url));
  await poll(async () => {
    assert.equal((await request(Number(port), 'GET', '/api/WorkItem')).text, '[]');
    return countCompiled() >= atStart + 20;
  }, 'functions are compiled');
});
