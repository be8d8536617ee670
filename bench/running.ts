// Starts and stops the processes of a run, and waits until they are ready. Contenders are pinned to one core, the backend
// and the load generator to another core. Stops only processes that it started, by their ids.
import { fork, spawn, spawnSync, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { closeSync, mkdirSync, openSync, readFileSync } from 'node:fs';
import { request as requestHttp } from 'node:http';
import { request as requestHttps } from 'node:https';
import { availableParallelism } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { findFreePort } from '../test/helpers/haproxy.ts';
import { treeOf } from '../test/helpers/process-figures.ts';
import { SEARCH_PATH, type Contender } from './contenders.ts';

const READY_LIMIT_MS = 20_000;
const STOP_LIMIT_MS = 3_000;

/** True if the machine has two cores and a tool to pin processes to them. */
export const isPinned =
  process.platform === 'linux' && availableParallelism() > 1 && spawnSync('taskset', ['-c', '0', 'true']).status === 0;

export function pin(core: number, command: string, args: string[]): [string, string[]] {
  return isPinned ? ['taskset', ['-c', String(core), command, ...args]] : [command, args];
}

export interface Reply {
  status: number;
  body: Buffer;
}

export interface CallOptions {
  method?: string;
  body?: Uint8Array | undefined;
  /** The PEM text of a CA; if it is set, the connection uses TLS. */
  ca?: string | undefined;
}

/** Makes one call on a new connection. */
export async function call(port: number, path: string, options: CallOptions = {}): Promise<Reply> {
  const { method = 'GET', body, ca } = options;
  const headers = body ? { 'content-type': 'application/json', 'content-length': body.length } : {};
  const all = { host: '127.0.0.1', port, method, path, headers, agent: false, timeout: 15_000 };
  const outgoing = ca === undefined ? requestHttp(all) : requestHttps({ ...all, ca });
  outgoing.on('timeout', () => outgoing.destroy(new Error('no reply in 15 s')));
  outgoing.end(body);
  return new Promise((resolve, reject) => {
    outgoing.on('error', reject).on('response', (answer) => {
      const chunks: Buffer[] = [];
      answer.on('data', (chunk: Buffer) => chunks.push(chunk)).on('error', reject);
      answer.on('end', () => resolve({ status: answer.statusCode ?? 0, body: Buffer.concat(chunks) }));
    });
  });
}

const children = new Set<ChildProcess>();

async function stopChild(child: ChildProcess): Promise<void> {
  children.delete(child);
  if (child.pid === undefined || child.exitCode !== null || child.signalCode !== null) return;
  const tree = treeOf(child.pid);
  const exited = once(child, 'exit');
  child.kill('SIGTERM');
  const late = Symbol();
  if ((await Promise.race([exited, delay(STOP_LIMIT_MS, late, { ref: false })])) !== late) return;
  for (const pid of tree) {
    try {
      process.kill(pid, 'SIGKILL');
    } catch {
      // The process has already ended.
    }
  }
  await exited;
}

/** Stops all processes that still run. */
export async function stopAll(): Promise<void> {
  await Promise.all([...children].map(stopChild));
}

export interface Running {
  contender: Contender;
  port: number;
  /** The root of the contender's process tree. */
  pid: number;
  ca: string | undefined;
  stop: () => Promise<void>;
}

export interface StartOptions {
  /** Settings in addition to those of the contender. */
  env?: Record<string, string>;
  /** Default: the port of the common backend. */
  backendPort?: number;
  /** The contender may use all cores, not only the first. */
  onAllCores?: boolean;
  /** The CA of a contender with TLS, as PEM. */
  ca?: string | undefined;
  /** The file descriptor for the contender's standard output; default: a file in `folder`. */
  stdout?: number | undefined;
}

/** Starts a contender and waits until it answers. If it does not answer, throws an error with the end of its output. */
export async function startContender(
  contender: Contender,
  folder: string,
  options: StartOptions & { backendPort: number },
): Promise<Running> {
  const { backendPort, env = {}, onAllCores = false, ca, stdout } = options;
  const port = await findFreePort();
  mkdirSync(folder, { recursive: true });
  const { command, args, env: ownEnv, cwd } = contender.start({ port, backendPort, folder });
  const output = join(folder, `output-${port}.txt`);
  const file = openSync(output, 'w');
  const [program, programArgs] = onAllCores ? [command, args] : pin(0, command, args);
  const child = spawn(program, programArgs, {
    cwd,
    env: { ...process.env, ...ownEnv, ...env, PATH: SEARCH_PATH },
    stdio: ['ignore', stdout ?? file, file],
  });
  closeSync(file);
  children.add(child);
  child.on('error', () => undefined);
  const { pid } = child;
  const deadline = Date.now() + READY_LIMIT_MS;
  for (;;) {
    const reply = await call(port, '/api/work-items/17', { ca }).catch(() => undefined);
    // A gateway that requires tokens answers 401.
    if ((reply?.status === 200 || reply?.status === 401) && pid !== undefined)
      return { contender, port, pid, ca, stop: () => stopChild(child) };
    if (child.exitCode !== null || pid === undefined || Date.now() > deadline) {
      await stopChild(child);
      throw new Error(`${contender.name} did not start:\n${readFileSync(output, 'utf8').slice(-2_000)}`);
    }
    await delay(2);
  }
}

/** A process of the benchmark, pinned to the second core. It answers each order with a report. */
export class Helper<Order extends object, Report extends object> {
  readonly #child: ChildProcess;

  private constructor(child: ChildProcess) {
    this.#child = child;
  }

  /** Resolves with the helper and its first report. */
  static async start<Order extends object, Report extends object>(
    script: string,
  ): Promise<[Helper<Order, Report>, Report]> {
    const [execPath, execArgv] = pin(1, process.execPath, []);
    const options = { execPath, execArgv, serialization: 'advanced' } as const;
    const child = fork(join(import.meta.dirname, script), options);
    children.add(child);
    const helper = new Helper<Order, Report>(child);
    return [helper, await helper.#next()];
  }

  /** Sends an order and resolves with the report. Rejects if the helper reports a failure. */
  order(order: Order): Promise<Report> {
    const report = this.#next();
    this.#child.send(order);
    return report;
  }

  #next(): Promise<Report> {
    return new Promise((resolve, reject) => {
      const onExit = (): void => reject(new Error('a helper process of the benchmark ended'));
      this.#child.once('exit', onExit);
      this.#child.once('message', (message: Report | { failure: string }) => {
        this.#child.off('exit', onExit);
        if ('failure' in message) reject(new Error(message.failure));
        else resolve(message);
      });
    });
  }
}
