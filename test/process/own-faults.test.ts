// Faults inside the built command, injected by broken-node.ts [D28]. After a fault inside a request, the client gets
// the operation's 500. After a fault outside of any request, the process drains and ends with exit code 1.

import assert from 'node:assert/strict';
import { resolve } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { poll } from '../helpers/changes.ts';
import { holdCall } from './held-call.ts';
import { type Command, isDraining, logged, runCommand, startCommand } from '../helpers/command.ts';
import { assertReply, operations } from '../helpers/expected.ts';
import { figureIn } from '../helpers/process-figures.ts';
import { requestBytes } from '../helpers/raw-client.ts';
import { answer } from '../helpers/scripted-backend.ts';
import { useBackend } from '../helpers/suites.ts';

// The backend closes after each answer, so each call needs a new connection to it.
const backend = await useBackend(answer('{"id":5}', { headers: [['Connection', 'close']] }));
const environmentOf = (...faults: readonly string[]) => ({
  BACKEND_URL: backend.url,
  NODE_OPTIONS: `--disable-warning=ExperimentalWarning --import ${resolve(import.meta.dirname, './broken-node.ts')}`,
  FAULTS: faults.join(),
});

/** Switches the next fault on, or the current fault off, and waits until the process reports the change. */
async function turn(command: Command, to: 'on' | 'off'): Promise<void> {
  const { length } = command.stderr;
  command.signal('SIGUSR2');
  await poll(() => command.stderr.slice(length).includes(`fault ${to}\n`), `the fault is ${to}`);
}

describe('inside a request', () => {
  const parts = ['scanner', 'backend connection', 'backend socket', 'beginning of a reply', 'end of a reply'];
  let command: Command;
  let bugs = 0;
  before(async () => {
    command = await startCommand({ ...environmentOf(...parts, 'log', 'accept'), HOST: 'localhost' });
  });
  after(() => command[Symbol.asyncDispose]());

  /** Runs `act` with the next fault on. Then every operation must work. */
  async function withFault(act: () => Promise<void>): Promise<void> {
    await turn(command, 'on');
    await act();
    await turn(command, 'off');
    for (const { method, path, options, status, body } of operations) {
      assertReply(await command.call(method, path, options), status, body);
    }
  }

  for (const name of parts) {
    const isReplied = !name.endsWith('reply');
    const result = isReplied ? "gives the operation's 500 without details" : 'closes the connection';
    test(`a fault in the ${name} ${result}, and the next call is served [D28]`, async () => {
      // A delete has no JSON to scan, so this fault does not affect it.
      const met = operations.filter((each) => name !== 'scanner' || each.name !== '5 delete');
      bugs += met.length;
      await withFault(async () => {
        for (const { method, path, options, failure } of met) {
          await using client = await command.connect();
          client.send(requestBytes(method, path, options));
          if (isReplied) {
            const reply = await client.reply();
            assertReply(reply, 500, failure);
            assert.doesNotMatch(JSON.stringify(reply.headers), /SECRET/);
          }
          await (isReplied || client.closed());
        }
      });
      const isLogged = ({ err }: { err?: unknown }) => JSON.stringify(err ?? '').includes(`SECRET ${name}`);
      const { level, status, outcome, msg } = await command.log(isLogged, 'the line of the fault');
      if (name === 'scanner') assert.deepEqual([level, status, outcome, msg], ['error', 500, 'bug', 'internal error']);
    });
  }

  test('a fault in the log changes no reply, and log lines are written again after the fault [D28]', async () => {
    bugs += operations.length + 1;
    await withFault(async () => {
      await using client = await command.connect();
      for (const { method, path, options, status, body } of operations) {
        assertReply(await client.call(method, path, options), status, body);
      }
      client.send('nonsense\r\n\r\n');
      assert.equal((await client.reply()).status, 400);
      await client.closed();
    });
  });

  test('if a connection cannot be accepted, the gateway keeps running and logs this at most once a second [D28]', async () => {
    await withFault(() => Promise.resolve());
    const text = 'could not accept a connection';
    await logged(command, text);
    const lines = command.logs.filter(({ msg }) => msg === text);
    assert.ok(lines.length <= 2, 'at most one line for each of the two servers');
  });

  test('each fault is counted once, nothing is left of it, and the process can drain', async () => {
    let text = '';
    await poll(async () => {
      text = await command.metrics();
      return figureIn(text, 'work_item_gateway_backend_connections') === 0;
    }, 'no connection to the backend is left');
    const names = ['requests_in_flight', 'buffered_bytes', 'bugs_total'];
    const figures = names.map((name) => figureIn(text, `work_item_gateway_${name}`));
    assert.deepEqual(figures, [0, 0, bugs]);
    const counter = 'request_outcomes_total{operation="create",outcome="bug",fault="gateway"}';
    assert.match(text, new RegExp(`^work_item_gateway_${counter.replace('{', '\\{')} [1-9]`, 'm'));
    command.signal('SIGTERM');
    assert.equal(await command.exitCode(), 0);
  });
});

describe('outside of any request', () => {
  for (const [fault, isBefore] of [
    ['rejection', 'a signal'],
    ['rejection', 'nothing'],
    ['exceptions', 'nothing'],
    ['log and exceptions', 'nothing'],
  ] as const) {
    test(`after a fault (${fault}, after ${isBefore}), calls in flight finish, and the exit code is 1; the fault is logged if the log works [D28, D33]`, async () => {
      await using command = await startCommand(environmentOf(fault));
      const { client, open } = await holdCall(backend, command);
      if (isBefore === 'a signal') {
        command.signal('SIGTERM');
        await isDraining(command);
      }
      await turn(command, 'on');
      await isDraining(command);
      if (!fault.startsWith('log')) {
        const line = await command.log(({ level }) => level === 'fatal', 'the line of the fault');
        assert.match(JSON.stringify(line['err']), /SECRET/);
      }
      assert.ok(command.isRunning, 'the process runs while a call is in flight');
      open();
      assertReply(await client.reply(), 200, '{"id":5}');
      assert.equal(await command.exitCode(), 1);
    });
  }

  test('a fault during the start, after the listeners are open, ends the process with exit code 1 [D28]', async () => {
    const environment = { ...environmentOf('log'), FAULT_FROM_START: 'log', LOG_FORMAT: 'json' };
    await using command = runCommand(['serve'], { ...environment, PORT: '0', ADMIN_PORT: '0' });
    assert.equal(await command.exitCode(), 1);
    assert.match(command.stderr, /SECRET log/);
  });

  test('if the drain itself has a fault and a call never ends, the process ends with exit code 1 [D28, D33]', async () => {
    await using command = await startCommand({ ...environmentOf('drain'), SHUTDOWN_TIMEOUT_MS: '300' });
    const { client } = await holdCall(backend, command);
    await turn(command, 'on');
    command.signal('SIGTERM');
    assert.equal(await command.exitCode(), 1);
    assert.match(command.stdout, /SECRET drain/);
    await client.closed();
  });
});
