// Programs that tests run in other processes.

import { spawn, type ChildProcess, type SpawnOptions } from 'node:child_process';
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { after } from 'node:test';
import { Changes, DEADLINE_MS, poll } from './changes.ts';
import { isRefused } from './raw-client.ts';

const running = new Set<ChildProcess>();
const killAll = (): void => {
  for (const child of running) child.kill('SIGKILL');
};
process.on('exit', killAll);
// If a test fails, its programs may go on. They would keep the test's process alive until its time limit.
if (process.argv[1]?.endsWith('.test.ts') === true) after(() => void setTimeout(killAll, 10_000).unref());

// Debian installs servers in folders that a user's PATH may not have.
const folders = [
  ...(process.env['PATH'] ?? '').split(':'),
  '/usr/local/bin',
  '/usr/bin',
  '/usr/local/sbin',
  '/usr/sbin',
];

/** The path of an installed program, or undefined. */
export function findProgram(name: string): string | undefined {
  return folders.map((folder) => join(folder, name)).find((program) => existsSync(program));
}

/** Kills `child` when the test's process exits. */
export function killAtExit<Child extends ChildProcess>(child: Child): Child {
  running.add(child);
  return child.once('exit', () => running.delete(child));
}

/** A process and its output; disposing of the `Program` kills the process. */
export class Program implements AsyncDisposable {
  readonly process: ChildProcess;
  /** Resolves when the process has ended and all of its output has been read. */
  readonly exited: Promise<{ code: number | null; signal: NodeJS.Signals | null }>;
  stdout = '';
  stderr = '';
  /** `stdout` and `stderr` together, in the order of arrival. */
  output = '';
  readonly #changes = new Changes();
  #isExited = false;

  constructor([program = '', ...args]: readonly string[], options: SpawnOptions = {}) {
    this.process = killAtExit(spawn(program, args, { stdio: ['ignore', 'pipe', 'pipe'], ...options }));
    for (const name of ['stdout', 'stderr'] as const) {
      this.process[name]?.setEncoding('utf8').on('data', (text: string) => {
        this[name] += text;
        this.output += text;
        this.#changes.notify();
      });
    }
    this.exited = new Promise((resolve) => {
      this.process.once('close', (code, signal) => {
        this.#isExited = true;
        resolve({ code, signal });
        this.#changes.notify();
      });
    });
  }

  get isRunning(): boolean {
    return !this.#isExited;
  }

  /** Resolves when `attempt` returns a value after some output; rejects if the process ends first. */
  until<T>(attempt: () => T | undefined, expected: string, limitMs = DEADLINE_MS): Promise<T> {
    return this.#changes.until(
      () => {
        const value = attempt();
        if (value === undefined && this.#isExited) throw new Error(`ended before ${expected}:\n${this.output}`);
        return value;
      },
      () => `${expected}:\n${this.output}`,
      limitMs,
    );
  }

  /** Resolves with the first match of `pattern` in the output. */
  prints(pattern: RegExp, limitMs?: number): Promise<RegExpExecArray> {
    return this.until(() => pattern.exec(this.output) ?? undefined, `it prints ${String(pattern)}`, limitMs);
  }

  /** Resolves when a server listens on `port`. */
  async listens(port: number, limitMs?: number): Promise<void> {
    const attempt = async (): Promise<boolean> => {
      if (this.#isExited) throw new Error(`ended before it listened on ${port}:\n${this.output}`);
      return !(await isRefused(port));
    };
    await poll(attempt, `it listens on ${port}`, limitMs);
  }

  /** The exit code; rejects when the process runs longer than `limitMs`. */
  async exitCode(limitMs = DEADLINE_MS): Promise<number | null> {
    await this.#changes.until(
      () => this.#isExited || undefined,
      () => `the process ends:\n${this.output}`,
      limitMs,
    );
    return this.process.exitCode;
  }

  signal(name: NodeJS.Signals): void {
    this.process.kill(name);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    if (this.#isExited) return;
    this.signal('SIGKILL');
    await this.exited;
  }
}
