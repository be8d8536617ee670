// Starts, kills and restarts recording-backend.ts on one port, and reads its record. Also withholds answers to completed
// writes, which reveals repeated writes: if a gateway is killed then, a balancer could repeat the writes; if a backend
// closes its connection then, a gateway could.

import { fork, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { poll } from '../helpers/changes.ts';

export const now = (): number => performance.now();

export interface RestartingBackendOptions {
  /** The delay of an answer. */
  readonly answerMs?: number;
  /** Another backend may listen on the same port; the OS distributes connections. */
  readonly port?: number;
  /** Default: Node itself. May be a program that starts Node, such as `taskset`, with its arguments in `execArgv`. */
  readonly execPath?: string;
  readonly execArgv?: string[];
  /** The address on which the backend listens; default: 127.0.0.1. */
  readonly address?: string;
}

/**
 * Every request is recorded first. `given` answers as usual, `held` withholds the answers to writes until `given` is set, `cut`
 * closes a reused connection instead of answering a write, `slow` answers after 500 ms, and `half` sends only half of a body.
 */
export type Answers = 'given' | 'held' | 'cut' | 'slow' | 'half';

export class RestartingBackend implements AsyncDisposable {
  readonly #folder = mkdtempSync(join(tmpdir(), 'recording-backend-'));
  readonly #file = join(this.#folder, 'record');
  readonly #options: RestartingBackendOptions;
  readonly #children = new Set<ChildProcess>();
  #child: ChildProcess | undefined;
  port = 0;
  /** The number of withheld answers. */
  withheld = 0;

  private constructor(options: RestartingBackendOptions) {
    this.#options = options;
    this.port = options.port ?? 0;
  }

  static async start(options: RestartingBackendOptions = {}): Promise<RestartingBackend> {
    const backend = new RestartingBackend(options);
    await backend.start();
    return backend;
  }

  get url(): string {
    return `http://127.0.0.1:${this.port}`;
  }

  /** Starts a process on the same port; resolves with the time when it listens. */
  async start(): Promise<number> {
    const { answerMs = 0, execPath = process.execPath, execArgv = [], address = '127.0.0.1' } = this.#options;
    const child = fork(
      join(import.meta.dirname, 'recording-backend.ts'),
      [String(this.port), this.#file, String(answerMs), address],
      { execPath, execArgv },
    );
    this.#children.add(child);
    child.once('exit', () => this.#children.delete(child));
    const [message] = (await Promise.race([
      once(child, 'message'),
      once(child, 'exit').then(() => {
        throw new Error('the backend did not start');
      }),
    ])) as [{ port: number }];
    const listeningAt = now();
    this.port = message.port;
    this.#child = child;
    child.on('message', () => {
      this.withheld += 1;
    });
    return listeningAt;
  }

  /** Ends the process with a signal; resolves when it has exited. */
  async end(signal: 'SIGKILL' | 'SIGTERM'): Promise<void> {
    const child = this.#child;
    this.#child = undefined;
    await endProcess(child, signal);
  }

  /** Starts a second process on the port, then ends the first with a signal; resolves with the time of the signal. */
  async handOver(signal: 'SIGKILL' | 'SIGTERM'): Promise<number> {
    const old = this.#child;
    await this.start();
    const from = now();
    await endProcess(old, signal);
    return from;
  }

  /** Sets the answers of the current process. */
  answerWith(answers: Answers): void {
    this.#child?.send(answers);
  }

  /** Closes the process's idle connections. */
  closeIdleConnections(): void {
    this.#child?.kill('SIGUSR2');
  }

  /** The number of times that each request arrived, by request id. */
  readRecord(): Map<string, number> {
    const counts = new Map<string, number>();
    for (const line of readFileSync(this.#file, 'utf8').split('\n')) {
      const marker = line.slice(line.indexOf(' ') + 1);
      if (marker !== '') counts.set(marker, (counts.get(marker) ?? 0) + 1);
    }
    return counts;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await Promise.all(Array.from(this.#children, (child) => endProcess(child, 'SIGKILL')));
    rmSync(this.#folder, { recursive: true, force: true });
  }
}

async function endProcess(child: ChildProcess | undefined, signal: NodeJS.Signals): Promise<void> {
  const exited = child && once(child, 'exit');
  child?.kill(signal);
  await exited;
}

/**
 * Makes the backends withhold answers to writes (`answers`: `held` or `cut`). When `count` answers are withheld, calls
 * `then`, which kills a gateway. Afterwards the backends answer again.
 */
export async function withhold(
  backends: readonly RestartingBackend[],
  answers: Answers,
  count: number,
  then?: () => Promise<void>,
): Promise<void> {
  const sum = (): number => backends.reduce((total, { withheld }) => total + withheld, 0);
  const before = sum();
  for (const backend of backends) backend.answerWith(answers);
  await poll(() => sum() >= before + count, `${count} writes are ${answers}`, 60_000);
  await then?.();
  for (const backend of backends) backend.answerWith('given');
}

/** Makes the backends close reused connections of gateways instead of answering `count` writes. */
export async function cutDoneWrites(backends: readonly RestartingBackend[], count: number) {
  const name = 'backends close connections after writes, before the answers';
  const from = performance.now();
  await withhold(backends, 'cut', count);
  return { what: 'backend', name, from, limitMs: performance.now() - from } as const;
}
