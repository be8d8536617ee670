// Starts and stops the processes of a run, and waits until they are ready. Contenders are pinned to one core, backend and load
// generator to another. Stops only processes that it started, by their ids.
import { fork, spawn, spawnSync, type ChildProcess } from 'node:child_process';
import { closeSync, mkdirSync, openSync, readFileSync } from 'node:fs';
import { request as requestHttp, type IncomingMessage } from 'node:http';
import { request as requestHttps } from 'node:https';
import { createServer } from 'node:net';
import { availableParallelism } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import type { AttackOrder, AttackReport } from './attacker.ts';
import type { BackendOrder, BackendReport } from './backend.ts';
import { SEARCH_PATH, type Contender } from './contenders.ts';
import type { LoadOrder, LoadReport, LoadResult } from './load.ts';
import { listProcessTree } from './processes.ts';

const READY_LIMIT_MS = 20_000;
const STOP_LIMIT_MS = 3_000;

/** True if the machine has two cores and a tool to pin processes to them. */
export const isPinned =
  process.platform === 'linux' &&
  availableParallelism() > 1 &&
  spawnSync('taskset', ['-c', '0', 'true']).status === 0;

export function pin(core: number, command: string, args: string[]): [string, string[]] {
  return isPinned ? ['taskset', ['-c', String(core), command, ...args]] : [command, args];
}

/** Returns a currently free port. */
export async function findFreePort(): Promise<number> {
  const server = createServer();
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const address = server.address();
  await new Promise((resolve) => server.close(resolve));
  if (typeof address !== 'object' || !address) throw new Error('no free port');
  return address.port;
}

export interface Reply {
  status: number;
  body: Buffer;
}

/** Makes one call on a new connection. With `ca`, the PEM text of a CA, the connection uses TLS. */
export function call(
  port: number,
  method: string,
  path: string,
  body?: Uint8Array,
  ca?: string,
): Promise<Reply> {
  return new Promise((resolve, reject) => {
    const headers = body ? { 'content-type': 'application/json', 'content-length': body.length } : {};
    const options = { host: '127.0.0.1', port, method, path, headers, agent: false, timeout: 15_000 };
    const onAnswer = (answer: IncomingMessage): void => {
      const chunks: Buffer[] = [];
      answer.on('data', (chunk: Buffer) => chunks.push(chunk));
      answer.on('end', () => resolve({ status: answer.statusCode ?? 0, body: Buffer.concat(chunks) }));
      answer.on('error', reject);
    };
    const outgoing =
      ca === undefined ? requestHttp(options, onAnswer) : requestHttps({ ...options, ca }, onAnswer);
    outgoing.on('timeout', () => outgoing.destroy(new Error('no reply in 15 s')));
    outgoing.on('error', reject);
    outgoing.end(body);
  });
}

const children = new Set<ChildProcess>();

async function stopChild(child: ChildProcess): Promise<void> {
  children.delete(child);
  if (child.pid === undefined || child.exitCode !== null || child.signalCode !== null) return;
  const tree = listProcessTree(child.pid);
  const exited = new Promise<void>((resolve) => child.once('exit', () => resolve()));
  child.kill('SIGTERM');
  await Promise.race([exited, delay(STOP_LIMIT_MS, undefined, { ref: false })]);
  if (child.exitCode !== null || child.signalCode !== null) return;
  for (const pid of tree) {
    try {
      process.kill(pid, 'SIGKILL');
    } catch {
      // Already ended.
    }
  }
  await exited;
}

/** Stops all processes that still run. */
export async function stopAll(): Promise<void> {
  await Promise.all([...children].map(stopChild));
}

export interface RunningContender {
  contender: Contender;
  port: number;
  /** Root of its process tree; 0 without a process. */
  pid: number;
  stop: () => Promise<void>;
}

/**
 * Starts a contender, on the first core or on all, and waits until it answers. Throws the end of its output if it does
 * not answer. A contender with TLS needs `ca`, the CA of its certificate as PEM.
 */
export async function startContender(
  contender: Contender,
  backendPort: number,
  folder: string,
  on: 'first core' | 'all cores' = 'first core',
  ca?: string,
): Promise<RunningContender> {
  if (contender.name === 'direct')
    return { contender, port: backendPort, pid: 0, stop: () => Promise.resolve() };
  mkdirSync(folder, { recursive: true });
  const port = await findFreePort();
  const { command, args, env, cwd } = contender.start({ port, backendPort, folder });
  const output = join(folder, 'output.txt');
  const file = openSync(output, 'w');
  const [program, programArgs] = on === 'first core' ? pin(0, command, args) : [command, args];
  const child = spawn(program, programArgs, {
    cwd,
    env: { ...process.env, ...env, PATH: SEARCH_PATH },
    stdio: ['ignore', file, file],
  });
  closeSync(file);
  children.add(child);
  child.on('error', () => undefined);
  const { pid } = child;
  const deadline = Date.now() + READY_LIMIT_MS;
  for (;;) {
    const status = await call(port, 'GET', '/api/work-items/17', undefined, ca).then(
      (reply) => reply.status,
      () => 0,
    );
    // A gateway that requires tokens answers 401.
    if ((status === 200 || status === 401) && pid !== undefined)
      return { contender, port, pid, stop: () => stopChild(child) };
    if (child.exitCode !== null || pid === undefined || Date.now() > deadline) {
      await stopChild(child);
      throw new Error(`${contender.name} did not start:\n${readFileSync(output, 'utf8').slice(-2_000)}`);
    }
    await delay(50);
  }
}

function forkHelper(script: string): ChildProcess {
  const [execPath, execArgv] = pin(1, process.execPath, []);
  const child = fork(join(import.meta.dirname, script), { execPath, execArgv, serialization: 'advanced' });
  children.add(child);
  return child;
}

function nextMessage<T>(child: ChildProcess): Promise<T> {
  return new Promise((resolve, reject) => {
    const onExit = (): void => reject(new Error('a helper process of the benchmark ended'));
    child.once('exit', onExit);
    child.once('message', (message) => {
      child.off('exit', onExit);
      resolve(message as T);
    });
  });
}

export class Backend {
  readonly port: number;
  readonly pid: number;
  private readonly child: ChildProcess;

  private constructor(child: ChildProcess, port: number) {
    this.child = child;
    this.port = port;
    this.pid = child.pid ?? 0;
  }

  static async start(): Promise<Backend> {
    const child = forkHelper('backend.ts');
    const { port } = await nextMessage<BackendReport>(child);
    return new Backend(child, port);
  }

  order(order: BackendOrder): Promise<BackendReport> {
    const report = nextMessage<BackendReport>(this.child);
    this.child.send(order);
    return report;
  }
}

export class Attacker {
  readonly pid: number;
  private readonly child: ChildProcess;

  private constructor(child: ChildProcess) {
    this.child = child;
    this.pid = child.pid ?? 0;
  }

  static async start(): Promise<Attacker> {
    const child = forkHelper('attacker.ts');
    await nextMessage(child);
    return new Attacker(child);
  }

  begin(order: AttackOrder): void {
    this.child.send(order);
  }

  /** Ends the attack. Resolves with its numbers of connections and streams. */
  stop(): Promise<AttackReport> {
    const report = nextMessage<AttackReport>(this.child);
    this.child.send({ stop: true } satisfies AttackOrder);
    return report;
  }
}

export class Load {
  readonly pid: number;
  private readonly child: ChildProcess;

  private constructor(child: ChildProcess) {
    this.child = child;
    this.pid = child.pid ?? 0;
  }

  static async start(): Promise<Load> {
    const child = forkHelper('load.ts');
    await nextMessage(child);
    return new Load(child);
  }

  /** Makes one run. Rejects if a reply is wrong. */
  async run(order: LoadOrder): Promise<LoadResult> {
    const reported = nextMessage<LoadReport>(this.child);
    this.child.send(order);
    const report = await reported;
    if ('failure' in report) throw new Error(report.failure);
    if ('result' in report) return report.result;
    throw new Error('the load generator started twice');
  }
}
