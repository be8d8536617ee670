// Signals at the worst moments: before the start is over, several at once, during a reload and a drain. D33.

import assert from 'node:assert/strict';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { after, afterEach, beforeEach, describe, test } from 'node:test';
import { poll } from '../helpers/changes.ts';
import { holdCall } from '../helpers/held-call.ts';
import { assertReply } from '../helpers/expected.ts';
import { childrenOf, figureIn, stateOf } from '../helpers/process-figures.ts';
import { isRefused } from '../helpers/raw-client.ts';
import { answer, ScriptedBackend } from '../helpers/scripted-backend.ts';
import { runCommand, startCommand, type Command, type LogLine } from '../helpers/targets.ts';

const folder = mkdtempSync(join(tmpdir(), 'work-item-gateway-'));
after(() => {
  rmSync(folder, { recursive: true });
});

let backend: ScriptedBackend;
beforeEach(async () => {
  backend = await ScriptedBackend.start();
  backend.answers(answer('[]'));
});
afterEach(() => backend.stop());

function start(environment: NodeJS.ProcessEnv = {}): Promise<Command> {
  return startCommand({ BACKEND_URL: backend.url, WORKERS: '2', ...environment });
}

let strikes = 0;

/** The process that is first to load `file` gets `signal` as it does. */
function strike(file: string, signal: NodeJS.Signals): NodeJS.ProcessEnv {
  strikes += 1;
  const injection = resolve(import.meta.dirname, '../helpers/strike.ts');
  return {
    NODE_OPTIONS: `--disable-warning=ExperimentalWarning --import ${injection}`,
    STRIKE_AT: file,
    STRIKE_SIGNAL: signal,
    STRIKE_ONCE: join(folder, String(strikes)),
  };
}

const freePorts = { PORT: '0', ADMIN_PORT: '0', EMBEDDED_BACKEND_PORT: '0', LOG_FORMAT: 'json' };

function isReloaded(line: LogLine): boolean {
  return String(line['msg']).startsWith('reloaded');
}

function isDraining(command: Command): Promise<void> {
  return poll(async () => (await command.admin('/readyz')).status === 503, '/readyz turns 503');
}

function isServedBy(command: Command, workers: number): Promise<void> {
  return poll(async () => {
    return figureIn(await command.metrics(), 'work_item_gateway_workers') === workers;
  }, `${workers} workers`);
}

describe('before the gateway is ready', () => {
  for (const [args, environment] of [
    [['serve'], {}],
    [['serve'], { WORKERS: '2' }],
    [['dev'], {}],
    [['backend'], {}],
  ] as const) {
    for (const signal of ['SIGTERM', 'SIGINT'] as const) {
      test(`${signal} ends ${args[0]} in order, exit code 0: ${JSON.stringify(environment)} [D33]`, async () => {
        const command = runCommand(args, { ...freePorts, ...environment, ...strike('/cli.js', signal) });
        assert.equal(await command.exitCode(), 0, command.output);
        assert.equal(command.stderr, '');
      });
    }
  }

  for (const workers of ['1', '2']) {
    test(`SIGHUP is a reload that waits until then: WORKERS=${workers}`, async () => {
      await using command = await start({ WORKERS: workers, ...strike('/cli.js', 'SIGHUP') });
      await command.log(isReloaded, 'the reload ends');
      assertReply(await command.call('GET', '/api/work-items'), 200, '[]');
    });
  }

  test('a command that takes no signals is ended by one, as any program', async () => {
    backend.answers(async ({ closed }) => {
      await closed;
    });
    const environment = { BACKEND_URL: backend.url, ...strike('/cli.js', 'SIGTERM') };
    await using command = runCommand(['check'], environment);
    assert.deepEqual(await command.exited, { code: null, signal: 'SIGTERM' });
  });

  for (const signal of ['SIGTERM', 'SIGHUP'] as const) {
    test(`${signal} for the whole group may end a worker that starts: another one takes its place`, async () => {
      await using command = await start(strike('/worker.js', signal));
      assertReply(await command.call('GET', '/api/work-items'), 200, '[]');
      assert.equal(childrenOf(command.process.pid)?.length ?? 2, 2);
      assert.ok(!command.logs.some(({ level }) => level === 'error'), command.output);
    });
  }
});

describe('a reload', () => {
  const moments: [name: string, come: (command: Command) => Promise<unknown>][] = [
    ['at once', () => Promise.resolve()],
    [
      'as a new worker starts',
      (command) => poll(() => childrenOf(command.process.pid)?.length !== 2, 'a third process'),
    ],
    ['as the new worker takes over', (command) => isServedBy(command, 3)],
  ];
  for (const [name, come] of moments) {
    test(`SIGTERM during it, ${name}: calls in flight on each worker finish, exit code 0 [D33]`, async () => {
      await using command = await start();
      const held = [await holdCall(backend, command), await holdCall(backend, command)];
      command.signal('SIGHUP');
      await come(command);
      command.signal('SIGTERM');
      await isDraining(command);
      for (const { client, open } of held) {
        open();
        assertReply(await client.reply(), 200, '{"id":5}');
      }
      assert.equal(await command.exitCode(), 0, command.output);
      assert.ok(!command.logs.some(({ level }) => level === 'error'), command.output);
    });
  }

  test('a primary process that is stopped in it for longer than its workers may take holds it against none', async () => {
    await using command = await start({ SHUTDOWN_TIMEOUT_MS: '1000' });
    const { client, open } = await holdCall(backend, command);
    command.signal('SIGHUP');
    await poll(() => (childrenOf(command.process.pid)?.length ?? 3) > 2, 'a third process');
    command.signal('SIGSTOP');
    open();
    assertReply(await client.reply(), 200, '{"id":5}');
    client.destroy();
    await new Promise((resolve_) => setTimeout(resolve_, 2_500));
    command.signal('SIGCONT');
    await command.log(isReloaded, 'the reload ends');
    await isServedBy(command, 2);
    assert.ok(!command.logs.some(({ level }) => level === 'error'), command.output);
    command.signal('SIGTERM');
    assert.equal(await command.exitCode(), 0);
  });

  for (const [when, isFirst] of [
    ['at all', true],
    ['after one has been replaced', false],
  ] as const) {
    test(`it is given up when a new worker does not start ${when}, and both serve with the old settings`, async () => {
      const file = join(folder, `given-up-${String(isFirst)}.env`);
      writeFileSync(file, '');
      const environment = strike('/worker.js', 'SIGKILL');
      const marker = environment['STRIKE_ONCE'] ?? '';
      // As if a worker had been struck already.
      writeFileSync(marker, '');
      await using command = await start({ SETTINGS_FILE: file, ...environment });
      const held = [await holdCall(backend, command), await holdCall(backend, command)];
      writeFileSync(file, 'REQUEST_BYTES_MAX=10\n');
      if (isFirst) rmSync(marker);
      command.signal('SIGHUP');
      if (!isFirst) {
        await isServedBy(command, 3);
        rmSync(marker);
      }
      for (const { client, open } of held) {
        open();
        assertReply(await client.reply(), 200, '{"id":5}');
        client.destroy();
      }
      const line = await command.log(
        ({ msg }) => String(msg).startsWith('reload given up'),
        'the line of it',
      );
      assert.equal(line['level'], 'error');
      await poll(() => childrenOf(command.process.pid)?.length === 2, 'two processes');
      await isServedBy(command, 2);
      for (let calls = 0; calls < 4; calls += 1) {
        const reply = await command.call('POST', '/api/work-items', { body: '{"title":"long"}' });
        assert.equal(reply.status, 201);
      }
      assert.ok(!command.logs.some(isReloaded));
      // The next one is not held up by it.
      command.signal('SIGHUP');
      const { changed } = await command.log(isReloaded, 'a reload that goes well');
      assert.deepEqual(changed, { requestBytesMax: '10485760 → 10' });
    });
  }

  test('many of them and SIGTERM: exit code 0 [D33]', async () => {
    await using command = await start();
    for (let signals = 0; signals < 200; signals += 1) command.signal('SIGHUP');
    command.signal('SIGTERM');
    for (let signals = 0; signals < 200; signals += 1) command.signal('SIGHUP');
    assert.equal(await command.exitCode(), 0, command.output);
  });
});

describe('a drain', () => {
  for (const workers of ['1', '2']) {
    for (const signals of [
      ['SIGTERM', 'SIGHUP'],
      ['SIGHUP', 'SIGTERM'],
    ] as const) {
      test(`${signals.join(' and ')} together: a call in flight finishes, exit code 0: WORKERS=${workers} [D33]`, async () => {
        await using command = await start({ WORKERS: workers });
        const { client, open } = await holdCall(backend, command);
        for (const signal of signals) command.signal(signal);
        await isDraining(command);
        command.signal('SIGHUP');
        open();
        assertReply(await client.reply(), 200, '{"id":5}');
        assert.equal(await command.exitCode(), 0, command.output);
      });
    }
  }

  test('a worker that is killed in it cuts its own calls alone, holds nothing up, and is told by exit code 1', async () => {
    await using command = await start();
    const held = [await holdCall(backend, command), await holdCall(backend, command)];
    command.signal('SIGTERM');
    await isDraining(command);
    const [victim] = childrenOf(command.process.pid) ?? [];
    if (victim === undefined) return;
    process.kill(victim, 'SIGKILL');
    const ends = await Promise.all(
      held.map(async ({ client, open }) => {
        await Promise.race([
          client.closed(),
          poll(() => childrenOf(command.process.pid)?.length === 1, 'its end'),
        ]);
        open();
        return await client.reply().then(
          ({ text }) => text,
          () => 'cut',
        );
      }),
    );
    assert.deepEqual(ends.toSorted(), ['cut', '{"id":5}']);
    assert.equal(await command.exitCode(), 1, command.output);
    await command.log(({ level, worker }) => level === 'warn' && worker === victim, 'its end is logged');
  });

  test('a primary process that is stopped in it for longer than the timeout does not hold that against anybody: exit code 0', async () => {
    await using command = await start({ SHUTDOWN_TIMEOUT_MS: '2000' });
    const pids = childrenOf(command.process.pid) ?? [];
    const { client, open } = await holdCall(backend, command);
    command.signal('SIGTERM');
    await poll(() => isRefused(command.port), 'every worker drains');
    command.signal('SIGSTOP');
    open();
    assertReply(await client.reply(), 200, '{"id":5}');
    client.destroy();
    // Both are gone; only the primary process does not know.
    await poll(() => pids.every((pid) => stateOf(pid) === 'Z'), 'the workers end');
    await new Promise((resolve_) => setTimeout(resolve_, 2_500));
    command.signal('SIGCONT');
    assert.equal(await command.exitCode(), 0, command.output);
  });
});
