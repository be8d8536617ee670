// Shared by the tests of the built command: a backend, a folder for files, waits, and values of metrics.

import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, beforeEach } from 'node:test';
import { poll } from './changes.ts';
import { figureIn } from './process-figures.ts';
import { answer, ScriptedBackend, type Answer } from './scripted-backend.ts';
import { runCommand, type Command, type LogLine, type ProcessLimits } from './targets.ts';

/** A backend for all tests of a file. Before each test, its record is cleared and `script` is set as its answer. */
export async function useBackend(script: Answer = answer('[]')): Promise<ScriptedBackend> {
  const backend = await ScriptedBackend.start();
  beforeEach(() => {
    backend.reset();
    backend.answers(script);
  });
  after(() => backend.stop());
  return backend;
}

/** A folder that is removed after the tests of a file. */
export function useFolder(): string {
  const folder = mkdtempSync(join(tmpdir(), 'work-item-gateway-'));
  after(() => rmSync(folder, { recursive: true }));
  return folder;
}

/** Runs the command until it ends by itself. */
export async function runToEnd(
  args: readonly string[],
  environment: NodeJS.ProcessEnv = {},
  limits: ProcessLimits = {},
) {
  await using command = runCommand(args, environment, limits);
  const code = await command.exitCode();
  return { code, stdout: command.stdout, stderr: command.stderr, output: command.output };
}

/** The value of a metric, read from a new text of `/metrics`; `name` has no prefix. Takes up to a second. */
export async function figureOf(command: Command, name: string): Promise<number | undefined> {
  return figureIn(await command.metrics(), `work_item_gateway_${name}`);
}

/** Resolves when `/readyz` reports that the gateway drains. */
export function isDraining(command: Command): Promise<void> {
  return poll(async () => (await command.admin('/readyz')).status === 503, '/readyz is 503');
}

/** Resolves with the first log line that has this message. */
export function logged(command: Command, message: string | RegExp, limitMs?: number): Promise<LogLine> {
  const isIt = ({ msg }: LogLine) => (typeof message === 'string' ? msg === message : message.test(String(msg)));
  return command.log(isIt, `the log line ${String(message)}`, limitMs);
}

/** True for the log line at the end of a successful reload. */
export function isReloaded({ msg }: LogLine): boolean {
  return String(msg).startsWith('reloaded');
}
