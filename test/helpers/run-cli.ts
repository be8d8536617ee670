// Runs a command of the gateway in the test's process, because a start of the built command takes 0.25 s of processor time.

import { EventEmitter } from 'node:events';
import { runCli } from '../../packages/command/cli/cli.ts';
import { parts } from '../../packages/command/command-parts.ts';
import { holdSignals } from '../../packages/command/service/held-signals.ts';

/** For commands that end by themselves. */
export async function runHere(
  args: readonly string[],
  environment: NodeJS.ProcessEnv = {},
  script = '/usr/bin/work-item-gateway',
  columns?: number,
) {
  const written = { stdout: '', stderr: '' };
  const terminal = {
    environment,
    pid: process.pid,
    script,
    columns,
    isInteractive: false,
    signals: holdSignals(new EventEmitter() as NodeJS.Process),
    write: (text: string) => {
      written.stdout += text;
    },
    writeError: (text: string) => {
      written.stderr += text;
    },
  };
  const code = await runCli(args, terminal, parts);
  return { code, ...written, output: `stdout: ${written.stdout}\nstderr: ${written.stderr}` };
}
