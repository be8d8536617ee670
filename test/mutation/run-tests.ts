// Runs test files together in one process, up to their first failure.

import { spawn } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { createInterface } from 'node:readline';

import { hangCpuMs, hangMs, skippedTests, testDeadlineMs } from './test-files.ts';

/** Half of the processor time of a short run is compiling, unless that is kept. */
export const compiledPath = resolve(import.meta.dirname, '../../build/mutation/compiled');

export type TestsResult =
  | { readonly kind: 'passed'; readonly ms: number }
  | { readonly kind: 'failed' | 'hung'; readonly ms: number; readonly test: string };

export interface TestsOptions {
  /** How often a failure must come to be one; 1 when undefined. */
  readonly failures?: number;
  /** How much longer than usual may pass without the end of a test; 1 when undefined. */
  readonly patience?: number;
  readonly cwd: string;
  readonly environment?: NodeJS.ProcessEnv;
  readonly nodeArguments?: readonly string[];
  /** The tests that are wanted; all when there are none. */
  readonly names?: readonly string[];
}

/** Gives what came of `files`; their process and whatever that started are gone then. */
export async function runTests(files: readonly string[], options: TestsOptions): Promise<TestsResult> {
  let result = await runOnce(files, options);
  for (let count = 1; count < (options.failures ?? 1) && result.kind === 'failed'; count += 1) {
    result = await runOnce(files, options);
  }
  return result;
}

function runOnce(files: readonly string[], options: TestsOptions): Promise<TestsResult> {
  const startedAt = performance.now();
  const patience = options.patience ?? 1;
  const child = spawn(
    process.execPath,
    [
      ...(options.nodeArguments ?? []),
      '--test-reporter=tap',
      ...(options.names ?? []).map((name) => `--test-name-pattern=^${escapeRegExp(name)}$`),
      ...skippedTests.map((pattern) => `--test-skip-pattern=${pattern}`),
      join(import.meta.dirname, 'test-main.js'),
      ...files,
    ],
    {
      cwd: options.cwd,
      // A group of its own, so that what it has started can be ended with it.
      detached: true,
      stdio: ['ignore', 'pipe', 'ignore'],
      env: {
        ...process.env,
        // Left by a test runner around us, it would change what is reported.
        NODE_TEST_CONTEXT: undefined,
        NODE_COMPILE_CACHE: compiledPath,
        TEST_TARGETS: 'in-process',
        TEST_DEADLINE_MS: String(testDeadlineMs),
        ...options.environment,
      },
    },
  );
  return new Promise((resolveResult, reject) => {
    let result: TestsResult | undefined;
    let lastTest = 'no test';
    let lastTestAt = startedAt;
    let cpuMsThen = 0;
    const ms = () => Math.round(performance.now() - startedAt);
    // Once: the number of a process that has gone may soon be that of another.
    const end = (how: TestsResult) => {
      if (result !== undefined) return;
      result = how;
      clearInterval(timer);
      try {
        if (child.pid !== undefined) process.kill(-child.pid, 'SIGKILL');
      } catch {
        // It has gone by itself.
      }
    };
    const timer = setInterval(() => {
      const isStuck = performance.now() - lastTestAt > patience * hangMs;
      if (isStuck || cpuMsOf(child.pid) - cpuMsThen > patience * hangCpuMs) {
        end({ kind: 'hung', ms: ms(), test: `behind: ${lastTest}` });
      }
    }, 500);
    createInterface({ input: child.stdout }).on('line', (line) => {
      const match = /^\s*(not )?ok \d+ - (.*)$/.exec(line);
      // A known fault of Node, marked `todo`, is no failure.
      if (match === null || / # TODO\b/.test(line)) return;
      lastTest = match[2] ?? '';
      lastTestAt = performance.now();
      cpuMsThen = cpuMsOf(child.pid);
      if (match[1] !== undefined) end({ kind: 'failed', ms: ms(), test: lastTest });
    });
    child.once('error', reject);
    child.once('exit', (code) => {
      end(
        code === 0
          ? { kind: 'passed', ms: ms() }
          : { kind: 'failed', ms: ms(), test: `the process ended with ${code}, behind: ${lastTest}` },
      );
      if (result !== undefined) resolveResult(result);
    });
  });
}

function escapeRegExp(text: string): string {
  return text.replace(/[\\^$.*+?()[\]{}|/-]/g, '\\$&');
}

/** Processor time that a process has used, in milliseconds; 0 where the system does not say. */
function cpuMsOf(pid: number | undefined): number {
  try {
    const fields = readFileSync(`/proc/${pid}/stat`, 'utf8').split(') ')[1]?.split(' ') ?? [];
    // In hundredths of a second, user and system.
    return (Number(fields[11]) + Number(fields[12])) * 10;
  } catch {
    return 0;
  }
}
