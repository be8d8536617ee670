// Starts, kills and restarts the process of recording-backend.ts on one port, and reads its record.

import { fork, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

/** Now, in milliseconds on the clock of `performance.now()` of this process. */
export const now = (): number => performance.now();

export interface RestartingBackendOptions {
  /** How long an answer takes. */
  readonly answerMs?: number;
  /** Where another one may listen as well: the system deals connections out between them. */
  readonly port?: number;
  /** Set before the process's own command line, such as `taskset -c 1`. */
  readonly execPath?: string;
  readonly execArgv?: string[];
}

/** To writes, which are recorded in any case: `held` until `given`, or none, and a connection that was used before is `cut`. */
export type WriteAnswers = 'given' | 'held' | 'cut';

export class RestartingBackend implements AsyncDisposable {
  readonly #folder = mkdtempSync(join(tmpdir(), 'recording-backend-'));
  readonly #file = join(this.#folder, 'record');
  readonly #options: RestartingBackendOptions;
  readonly #children = new Set<ChildProcess>();
  #child: ChildProcess | undefined;
  port = 0;
  /** How many writes had their answer withheld. */
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

  /** Starts a process on the port there was before; resolves with the moment when it listens. */
  async start(): Promise<number> {
    const { answerMs = 0, execPath = process.execPath, execArgv = [] } = this.#options;
    const child = fork(
      join(import.meta.dirname, 'recording-backend.ts'),
      [String(this.port), this.#file, String(answerMs)],
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

  /** Ends the process by this signal; resolves when it has gone. */
  async end(signal: 'SIGKILL' | 'SIGTERM'): Promise<void> {
    const child = this.#child;
    if (child === undefined) return;
    this.#child = undefined;
    const exited = once(child, 'exit');
    child.kill(signal);
    await exited;
  }

  /** Starts a second process on the port and then ends the first one by this signal; resolves with the moment before that. */
  async handOver(signal: 'SIGKILL' | 'SIGTERM'): Promise<number> {
    const old = this.#child;
    await this.start();
    const exited = old && once(old, 'exit');
    const from = now();
    old?.kill(signal);
    await exited;
    return from;
  }

  /** What becomes of the answers to writes that come from now on; of a process started later nothing is withheld. */
  answerWrites(answers: WriteAnswers): void {
    this.#child?.send(answers);
  }

  /** Has the process close its idle connections, and nothing else. */
  closeIdleConnections(): void {
    this.#child?.kill('SIGUSR2');
  }

  /** How often each request came, by its request id. */
  readRecord(): Map<string, number> {
    const counts = new Map<string, number>();
    for (const line of readFileSync(this.#file, 'utf8').split('\n')) {
      const marker = line.slice(line.indexOf(' ') + 1);
      if (marker !== '') counts.set(marker, (counts.get(marker) ?? 0) + 1);
    }
    return counts;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await Promise.all(
      [...this.#children].map(async (child) => {
        const exited = once(child, 'exit');
        child.kill('SIGKILL');
        await exited;
      }),
    );
    rmSync(this.#folder, { recursive: true, force: true });
  }
}
