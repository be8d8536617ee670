// Signals at difficult moments: during the start, a reload or a drain, or together with other signals [D33].

import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { join, resolve } from 'node:path';
import { test } from 'node:test';
import { poll } from '../helpers/changes.ts';
import { type Command, isDraining, isReloaded, runCommand, runToEnd, startCommand } from '../helpers/command.ts';
import { assertReply } from '../helpers/expected.ts';
import { childrenOf, stateOf, treeOf } from '../helpers/process-figures.ts';
import { Program } from '../helpers/program.ts';
import { useBackend, useFolder } from '../helpers/suites.ts';
import { holdCall } from './held-call.ts';

const notLinux = process.platform !== 'linux' && 'only Linux has /proc/*/children';
const root = resolve(import.meta.dirname, '../..');
const folder = useFolder();
const backend = await useBackend();

function start(environment: NodeJS.ProcessEnv = {}): Promise<Command> {
  return startCommand({ BACKEND_URL: backend.url, WORKERS: '2', ...environment });
}

let strikes = 0;

/**
 * Returns environment variables. They send `signal` to the first process that loads `skip` + 1 files with `file` in their
 * paths.
 */
function strike(file: string, signal: NodeJS.Signals, skip = 0): NodeJS.ProcessEnv {
  strikes += 1;
  const injection = resolve(import.meta.dirname, './strike.ts');
  return {
    NODE_OPTIONS: `--disable-warning=ExperimentalWarning --import ${injection}`,
    STRIKE_AT: file,
    STRIKE_SIGNAL: signal,
    STRIKE_SKIP: String(skip),
    STRIKE_ONCE: join(folder, String(strikes)),
  };
}

const freePorts = { PORT: '0', ADMIN_PORT: '0', EMBEDDED_BACKEND_PORT: '0', LOG_FORMAT: 'json' };

for (const [name, environment] of [
  ['serve', { WORKERS: '2' }],
  ['dev', {}],
  ['backend', {}],
] as const) {
  test(`SIGTERM before ${name} is ready ends it with exit code 0 [D33]`, async () => {
    const settings = { ...freePorts, ...environment, ...strike('/command/cli-', 'SIGTERM') };
    const { code, stderr, output } = await runToEnd([name], settings);
    assert.deepEqual([code, stderr], [0, ''], output);
    assert.doesNotMatch(output, /"msg":"ready"/);
  });
}

test('SIGTERM ends `check`, which handles no signals', async () => {
  backend.answers(({ closed }) => closed);
  const environment = { BACKEND_URL: backend.url, ...strike('/command/cli-', 'SIGTERM') };
  await using command = runCommand(['check'], environment);
  assert.deepEqual(await command.exited, { code: null, signal: 'SIGTERM' });
});

// In a process namespace of its own, the command is process 1, for which Linux drops signals without a listener.
const asProcess1 = ['unshare', '--user', '--map-root-user', '--pid', '--fork', '--kill-child'];
const noProcess1 = spawnSync('unshare', [...asProcess1.slice(1), 'true']).status !== 0 && 'unshare is not installed';

// File 0 is main.js. Before it is loaded, nothing can listen for signals.
for (const skip of [0, 1, 2, 4, 6]) {
  test(
    `SIGTERM before file ${skip} is loaded ends process 1 with exit code 0 [D33]`,
    { skip: noProcess1 },
    async () => {
      const settings = { ...freePorts, WORKERS: '2', ...strike('/dist/command/', 'SIGTERM', skip) };
      const { code, stderr, output } = await runToEnd(['serve'], settings, { runner: asProcess1 });
      assert.deepEqual([code, stderr], [0, ''], output);
      assert.doesNotMatch(output, /"msg":"ready"/);
    },
  );
}

for (const skip of [1, 3, 6]) {
  test(`SIGHUP before file ${skip} is loaded causes a reload after the start [D65]`, async () => {
    await using command = await start({ WORKERS: '1', ...strike('/dist/command/', 'SIGHUP', skip) });
    await command.log(isReloaded, 'the reload ends');
  });
}

test('SIGTERM under `npm run`, before the first file of the gateway is loaded, ends the command with exit code 0 [D33]', async () => {
  const settings = { ...freePorts, ...strike('/packages/command/main.ts', 'SIGTERM') };
  await using command = new Program([process.execPath, resolve(root, 'scripts/start.cjs'), 'serve'], {
    env: { PATH: process.env['PATH'], ...settings },
  });
  assert.equal(await command.exitCode(), 0, command.output);
  assert.doesNotMatch(command.output, /"msg":"ready"/);
});

test('SIGUSR1 opens no debugger of the primary process or of a worker, and all go on serving', async () => {
  await using command = await start(strike('/dist/command/', 'SIGUSR1', 1));
  const pids = treeOf(command.process.pid);
  for (const pid of pids) process.kill(pid, 'SIGUSR1');
  for (let round = 0; round < 4; round += 1) {
    assertReply(await command.call('GET', '/api/work-items'), 200, '[]');
  }
  assert.deepEqual(treeOf(command.process.pid), pids);
  command.signal('SIGTERM');
  assert.equal(await command.exitCode(), 0, command.output);
  // Node writes here when it opens the debugger.
  assert.equal(command.stderr, '');
});

test('a SIGTERM among 400 SIGHUPs ends the process with exit code 0 [D33]', async () => {
  await using command = await start();
  for (let signals = 0; signals <= 400; signals += 1) command.signal(signals === 200 ? 'SIGTERM' : 'SIGHUP');
  assert.equal(await command.exitCode(), 0, command.output);
});

for (const signals of [
  ['SIGTERM', 'SIGHUP'],
  ['SIGHUP', 'SIGTERM'],
] as const) {
  test(`after ${signals.join(' and ')} together, a call in flight finishes, and the exit code is 0 [D33]`, async () => {
    await using command = await start();
    const { client, open } = await holdCall(backend, command);
    for (const signal of signals) command.signal(signal);
    await isDraining(command);
    command.signal('SIGHUP');
    open();
    assertReply(await client.reply(), 200, '{"id":5}');
    assert.equal(await command.exitCode(), 0, command.output);
  });
}

test(
  'a worker that is killed during a drain cuts only its own calls, and the exit code is 1',
  { skip: notLinux },
  async () => {
    await using command = await start();
    const held = [await holdCall(backend, command), await holdCall(backend, command)];
    command.signal('SIGTERM');
    await isDraining(command);
    const [victim] = childrenOf(command.process.pid) ?? [];
    assert.ok(victim);
    process.kill(victim, 'SIGKILL');
    await command.log(({ level, worker }) => level === 'warn' && worker === victim, "the worker's end is logged");
    for (const { open } of held) open();
    const ends = await Promise.all(
      held.map(({ client }) =>
        client.reply().then(
          ({ text }) => text,
          () => 'cut',
        ),
      ),
    );
    assert.deepEqual(ends.toSorted(), ['cut', '{"id":5}']);
    assert.equal(await command.exitCode(), 1, command.output);
  },
);

test(
  'if SIGSTOP pauses the primary process for longer than SHUTDOWN_TIMEOUT_MS during a drain, this process still ends with exit code 0',
  { skip: notLinux },
  async () => {
    await using command = await start({ SHUTDOWN_TIMEOUT_MS: '2000' });
    const pids = childrenOf(command.process.pid) ?? [];
    assert.equal(pids.length, 2);
    const { client, open } = await holdCall(backend, command);
    command.signal('SIGTERM');
    await poll(() => childrenOf(command.process.pid)?.length === 1, 'the idle worker has ended');
    command.signal('SIGSTOP');
    open();
    assertReply(await client.reply(), 200, '{"id":5}');
    client.destroy();
    await poll(() => pids.every((pid) => [undefined, 'Z'].includes(stateOf(pid))), 'the workers end');
    // Waits until more than half a second after the deadline: otherwise the process would not extend the deadline.
    await new Promise((resolve_) => setTimeout(resolve_, 2_500));
    command.signal('SIGCONT');
    assert.equal(await command.exitCode(), 0, command.output);
  },
);
