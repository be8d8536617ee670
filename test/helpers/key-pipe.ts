// A key file that is a named pipe: a process that reads the file waits until the test answers. Linux only.

import { execFileSync } from 'node:child_process';
import { closeSync, openSync, writeSync } from 'node:fs';
import { poll } from './changes.ts';
import { hasOpen } from './process-figures.ts';

export class KeyPipe implements Disposable {
  readonly path: string;
  #end: number | undefined;

  constructor(path: string) {
    execFileSync('mkfifo', [path]);
    this.path = path;
    this.#open();
  }

  // With `r+`, the opening does not wait for a reader.
  #open(): void {
    this.#end = openSync(this.path, 'r+');
  }

  /** Resolves with the one of these processes that waits for keys. */
  async readerAmong(pids: readonly number[]): Promise<number> {
    const find = () => pids.find((pid) => hasOpen(pid, this.path));
    await poll(() => find() !== undefined, 'a process reads the keys');
    return find() ?? 0;
  }

  /** Answers all processes that wait for keys. Later readers wait until `reopen` is called. */
  end(text: string): void {
    if (this.#end === undefined) return;
    writeSync(this.#end, text);
    closeSync(this.#end);
    this.#end = undefined;
  }

  /** Waits until the process has read the answer, then accepts the next reader. */
  async reopen(pid: number): Promise<void> {
    await poll(() => !hasOpen(pid, this.path), 'the process has read the keys');
    this.#open();
  }

  [Symbol.dispose](): void {
    this.end('');
  }
}
