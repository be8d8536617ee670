// Faults of our own in the built command, put in from outside (helpers/faults.ts): D28. Inside a request it is the
// operation's 500 and counted; outside of any the process stops in order, with exit code 1, and never lives on half
// dead.

import assert from 'node:assert/strict';
import { resolve } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { poll } from '../helpers/changes.ts';
import { holdCall } from '../helpers/held-call.ts';
import { assertReply, operations } from '../helpers/expected.ts';
import { figureIn } from '../helpers/process-figures.ts';
import { requestBytes } from '../helpers/raw-client.ts';
import { answer, ScriptedBackend } from '../helpers/scripted-backend.ts';
import { runCommand, startCommand, type Command } from '../helpers/targets.ts';

const injection = resolve(import.meta.dirname, '../helpers/faults.ts');

let backend: ScriptedBackend;
before(async () => {
  backend = await ScriptedBackend.start();
  backend.answers(answer('{"id":5}'));
});
after(() => backend.stop());

function environmentOf(faults: readonly string[]): NodeJS.ProcessEnv {
  return {
    BACKEND_URL: backend.url,
    NODE_OPTIONS: `--disable-warning=ExperimentalWarning --import ${injection}`,
    FAULTS: faults.join(),
  };
}

function start(faults: readonly string[], environment: NodeJS.ProcessEnv = {}): Promise<Command> {
  return startCommand({ ...environmentOf(faults), ...environment });
}

/** Throws the switch and waits until it has been thrown. */
async function turn(command: Command, to: 'on' | 'off'): Promise<void> {
  const { length } = command.stderr;
  command.signal('SIGUSR2');
  await poll(() => command.stderr.slice(length).includes(`fault ${to}\n`), `the fault is ${to}`);
}

async function figure(command: Command, name: string): Promise<number | undefined> {
  return figureIn(await command.metrics(), `work_item_gateway_${name}`);
}

describe('inside a request', () => {
  // Whether the one who meets the fault can know it as ours; and whether its 500 can be written.
  const parts: [name: string, isBug: boolean, isReplied: boolean][] = [
    ['scanner', true, true],
    ['backend connection', true, true],
    ['backend socket', true, true],
    ['beginning of a reply', true, false],
    ['end of a reply', true, false],
  ];
  const others = ['log', 'accept'];

  let command: Command;
  before(async () => {
    command = await start([...parts.map(([name]) => name), ...others], { HOST: 'localhost' });
    // On a connection to the backend that is there nothing has to be connected.
    backend.answers(answer('{"id":5}', { headers: [['Connection', 'close']] }));
  });
  after(async () => {
    backend.answers(answer('{"id":5}'));
    await command.stop();
    assert.equal(await command.exitCode(), 0);
  });

  async function withFault(act: () => Promise<void>): Promise<number> {
    const before = (await figure(command, 'bugs_total')) ?? 0;
    await turn(command, 'on');
    await act();
    await turn(command, 'off');
    assert.ok(command.isRunning);
    for (const { method, path, options, status, body } of operations) {
      assertReply(await command.call(method, path, options), status, body);
    }
    assert.equal(await figure(command, 'requests_in_flight'), 0);
    assert.equal(await figure(command, 'buffered_bytes'), 0);
    await poll(
      async () => (await figure(command, 'backend_connections')) === 0,
      'no connection is left over',
    );
    return ((await figure(command, 'bugs_total')) ?? 0) - before;
  }

  for (const [name, isBug, isReplied] of parts) {
    const what = isReplied ? "is the operation's 500, without a word of it" : 'cuts the connection';
    test(`a fault in the ${name} ${what}, and the next call is served [D28]`, async () => {
      // Nobody asks whether a delete's body or answer is JSON.
      const met = operations.filter((each) => name !== 'scanner' || each.name !== '5 delete');
      const bugs = await withFault(async () => {
        for (const { method, path, options, failure } of met) {
          await using client = await command.connect();
          client.send(requestBytes(method, path, options));
          if (isReplied) {
            const reply = await client.reply();
            assertReply(reply, 500, failure);
            assert.doesNotMatch(JSON.stringify(reply.headers), /SECRET/);
          } else {
            await client.closed();
          }
        }
      });
      assert.equal(bugs, isBug ? met.length : 0);
      if (isBug) {
        await command.log(
          ({ err }) => JSON.stringify(err ?? '').includes(`SECRET ${name}`),
          'the fault is logged',
        );
      }
    });
  }

  test('a fault in the log costs no client its reply, and is over when it is over [D28]', async () => {
    const bugs = await withFault(async () => {
      await using client = await command.connect();
      for (const { method, path, options, status, body } of operations) {
        assertReply(await client.call(method, path, options), status, body);
      }
      client.send('nonsense\r\n\r\n');
      assert.equal((await client.reply()).status, 400);
      await client.closed();
    });
    assert.equal(bugs, operations.length + 1);
  });

  test('a connection that cannot be taken is no reason to stop, and told at most once a second [D28]', async () => {
    await withFault(() => Promise.resolve());
    const isLine = ({ msg }: { msg?: unknown }) => msg === 'a connection could not be taken';
    await command.log(isLine, 'the line of it');
    assert.ok(command.logs.filter(isLine).length <= 2, 'one for each of two servers');
  });
});

describe('outside of any request', () => {
  for (const fault of ['rejection', 'exceptions', 'log and exceptions']) {
    test(`${fault}: logged, calls under way finish, exit code 1 [D28]`, async () => {
      await using command = await start([fault]);
      const { client, open } = await holdCall(backend, command);
      await turn(command, 'on');
      await poll(async () => (await command.admin('/readyz')).status === 503, 'it drains');
      if (!fault.startsWith('log')) {
        const line = await command.log(({ level }) => level === 'fatal', 'the line of the fault');
        assert.match(JSON.stringify(line['err']), /SECRET/);
      }
      assert.ok(command.isRunning, 'a call is under way');
      open();
      assertReply(await client.reply(), 200, '{"id":5}');
      assert.equal(await command.exitCode(), 1);
    });
  }

  test('a fault while starting, with the listeners there already: exit code 1 [D28]', async () => {
    await using command = runCommand(['serve'], {
      ...environmentOf(['log']),
      FAULT_FROM_START: 'log',
      PORT: '0',
      ADMIN_PORT: '0',
      LOG_FORMAT: 'json',
    });
    assert.equal(await command.exitCode(), 1);
    assert.match(command.stderr, /SECRET log/);
  });

  test('a fault in a drain that a signal began: the call finishes, exit code 1 [D28, D33]', async () => {
    await using command = await start(['rejection']);
    const { client, open } = await holdCall(backend, command);
    command.signal('SIGTERM');
    await poll(async () => (await command.admin('/readyz')).status === 503, 'it drains');
    await turn(command, 'on');
    await command.log(({ level }) => level === 'fatal', 'the line of the fault');
    open();
    assertReply(await client.reply(), 200, '{"id":5}');
    assert.equal(await command.exitCode(), 1);
  });

  test('a fault of the drain itself, and a call that never ends, keep no process alive [D28, D33]', async () => {
    await using command = await start(['drain'], { SHUTDOWN_TIMEOUT_MS: '300' });
    const { client } = await holdCall(backend, command);
    await turn(command, 'on');
    command.signal('SIGTERM');
    assert.equal(await command.exitCode(), 1);
    assert.match(command.stdout, /SECRET drain/);
    await client.closed();
  });
});
