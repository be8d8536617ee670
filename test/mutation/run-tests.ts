// Runs test files in one process, up to the first failure.

import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { createInterface } from 'node:readline';
import { hangCpuMs, hangMs, skippedTests, testDeadlineMs } from './test-files.ts';

/** The cache of compiled code. Without it, a short run spends half of its processor time on compiling. */
export const compiledPath = resolve(import.meta.dirname, '../../build/mutation/compiled');

export type TestsResult =
  | { readonly kind: 'passed'; readonly ms: number }
  | { readonly kind: 'failed' | 'hung'; readonly ms: number; readonly test: string };

export interface TestsOptions {
  /** The number of runs that must fail before the result is a failure; 1 by default. */
  readonly failures?: number;
  /** Factor for the time that a test may take; 1 by default. */
  readonly patience?: number;
  readonly cwd: string;
  readonly environment?: NodeJS.ProcessEnv;
  readonly nodeArguments?: readonly string[];
  /** The names of the tests to run; all tests if empty. */
  readonly names?: readonly string[];
}

/** Runs `files`. When the promise resolves, their process group has ended. */
export async function runTests(files: readonly string[], options: TestsOptions): Promise<TestsResult> {
  let result = await runOnce(files, options);
  for (let count = 1; count < (options.failures ?? 1) && result.kind === 'failed'; count += 1) {
    result = await runOnce(files, options);
  }
  return result;
}

async function runOnce(files: readonly string[], options: TestsOptions): Promise<TestsResult> {
  const startedAt = performance.now();
  const patience = options.patience ?? 1;
  const patterns = [
    ...(options.names ?? []).map((name) => ['name', name] as const),
    ...skippedTests.map((name) => ['skip', name] as const),
  ].map(([kind, name]) => `--test-${kind === 'name' ? 'name' : 'skip'}-pattern=^${escapeRegExp(name)}$`);
  const main = join(import.meta.dirname, 'test-main.js');
  const args = [...(options.nodeArguments ?? []), '--test-reporter=tap', ...patterns, main, ...files];
  const child = spawn(process.execPath, args, {
    cwd: options.cwd,
    // In its own process group, so that its children can be killed with it.
    detached: true,
    stdio: ['ignore', 'pipe', 'ignore'],
    env: {
      ...process.env,
      // A surrounding test runner sets NODE_TEST_CONTEXT, which would change the output.
      NODE_TEST_CONTEXT: undefined,
      NODE_COMPILE_CACHE: compiledPath,
      TEST_TARGETS: 'in-process',
      TEST_DEADLINE_MS: String(testDeadlineMs),
      ...options.environment,
    },
  });
  let result: TestsResult | undefined;
  let lastTest = 'no test';
  let lastTestAt = startedAt;
  let cpuMsThen = 0;
  // Kills only once, because another process may get the pid of an ended process.
  const end = (kind: TestsResult['kind'], test: string): void => {
    if (result !== undefined) return;
    const ms = Math.round(performance.now() - startedAt);
    result = kind === 'passed' ? { kind, ms } : { kind, ms, test };
    clearInterval(timer);
    try {
      if (child.pid !== undefined) process.kill(-child.pid, 'SIGKILL');
    } catch {
      // The process group has ended.
    }
  };
  const timer = setInterval(() => {
    const isStuck = performance.now() - lastTestAt > patience * hangMs;
    const isBusy = cpuMsOf(child.pid) - cpuMsThen > patience * hangCpuMs;
    if (isStuck || isBusy) end('hung', `after: ${lastTest}`);
  }, 500);
  createInterface({ input: child.stdout }).on('line', (line) => {
    const match = /^\s*(not )?ok \d+ - (.*)$/.exec(line);
    // A known fault of Node, marked `todo`, is not a failure.
    if (match === null || / # TODO\b/.test(line)) return;
    lastTest = match[2] ?? '';
    lastTestAt = performance.now();
    cpuMsThen = cpuMsOf(child.pid);
    if (match[1] !== undefined) end('failed', lastTest);
  });
  const [code] = (await once(child, 'exit')) as [number | null];
  end(code === 0 ? 'passed' : 'failed', `the process ended with ${code}, after: ${lastTest}`);
  return result ?? { kind: 'failed', ms: 0, test: lastTest };
}

function escapeRegExp(text: string): string {
  return text.replace(/[\\^$.*+?()[\]{}|/-]/g, '\\$&');
}

/** Processor time of a process in milliseconds; 0 if unknown. */
function cpuMsOf(pid: number | undefined): number {
  try {
    const fields = readFileSync(`/proc/${pid}/stat`, 'utf8').split(') ')[1]?.split(' ') ?? [];
    // User and system time, in 1/100 s.
    return (Number(fields[11]) + Number(fields[12])) * 10;
  } catch {
    return 0;
  }
}
