// The processes of the fleet, each on its host.

import { writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { poll } from '../helpers/changes.ts';
import { startCommand, type Command } from '../helpers/command.ts';
import { treeOf } from '../helpers/process-figures.ts';
import { Program } from '../helpers/program.ts';
import { redisPrograms } from '../helpers/redis.ts';
import { addressOf, runnerOf, type HostName } from './network.ts';

/** The longest time that a step waits for a state. */
export const stepLimitMs = 30_000;
const redisProgram = redisPrograms[0]?.program ?? '';
/** The value that deploy/haproxy.cfg requires. */
const shutdownDelayMs = 3_000;

/** Signals a process and all its descendants, except those that have ended. */
function signalTree(pid: number | undefined, name: NodeJS.Signals): void {
  for (const each of treeOf(pid)) {
    try {
      process.kill(each, name);
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'ESRCH') throw error;
    }
  }
}

/** A program on a host of the fleet. */
export class HostProgram extends Program {
  /** Resolves when the program's output contains `ready`. */
  static async start(host: HostName, command: readonly string[], ready: RegExp): Promise<HostProgram> {
    const started = new HostProgram([...runnerOf(host), ...command]);
    await started.prints(ready, stepLimitMs);
    return started;
  }

  /** Signals the program and all its children. */
  override signal(name: NodeJS.Signals): void {
    signalTree(this.process.pid, name);
  }

  override async [Symbol.asyncDispose](): Promise<void> {
    if (this.isRunning) this.signal('SIGCONT');
    await super[Symbol.asyncDispose]();
  }
}

const redisPort = 6379;

/** Starts Redis on its host as the primary, or as a replica of `primary`. */
export async function startRedis(host: 'redis-1' | 'redis-2', primary?: HostName): Promise<HostProgram> {
  const replica = primary === undefined ? [] : ['--replicaof', `${addressOf(primary)} ${redisPort}`];
  return await HostProgram.start(
    host,
    [
      ...[redisProgram, '--port', String(redisPort), '--bind', addressOf(host), '--protected-mode', 'no', '--save', ''],
      // A replica writes a file, so it needs a folder.
      ...['--dir', tmpdir(), '--replica-announce-ip', addressOf(host), ...replica],
    ],
    /Ready to accept connections/,
  );
}

/** Starts a Sentinel on the host of a gateway. If two of three get no answer from the primary for a second, they replace it. */
export async function startSentinel(host: HostName, folder: string): Promise<HostProgram> {
  const configuration = [
    'port 26379',
    `bind ${addressOf(host)}`,
    'protected-mode no',
    `sentinel announce-ip ${addressOf(host)}`,
    `sentinel monitor items ${addressOf('redis-1')} ${redisPort} 2`,
    'sentinel down-after-milliseconds items 1000',
    'sentinel failover-timeout items 5000',
    '',
  ].join('\n');
  // A Sentinel changes its configuration file, so each Sentinel has its own file.
  const file = join(folder, `${host}-sentinel.conf`);
  writeFileSync(file, configuration);
  return await HostProgram.start(host, [redisProgram, file, '--sentinel'], /\+monitor/);
}

/** A gateway of the fleet, with its successive processes. */
export class Gateway implements AsyncDisposable {
  readonly host: HostName;
  readonly commands: Command[] = [];
  readonly #environment: NodeJS.ProcessEnv;

  constructor(host: HostName, environment: NodeJS.ProcessEnv) {
    this.host = host;
    const address = addressOf(host);
    this.#environment = {
      ...environment,
      HOST: address,
      PORT: '3000',
      ADMIN_HOST: address,
      ADMIN_PORT: '9464',
      INSTANCE_NAME: host,
      SHUTDOWN_DELAY_MS: String(shutdownDelayMs),
    };
  }

  get command(): Command {
    const last = this.commands.at(-1);
    if (last === undefined) throw new Error(`${this.host} was never started`);
    return last;
  }

  /** `root`: the folder of the version to start; default: this one. */
  async start(root?: string): Promise<void> {
    const limits = { runner: runnerOf(this.host), ...(root !== undefined && { root }) };
    this.commands.push(await startCommand(this.#environment, limits, stepLimitMs));
  }

  /** Resolves when the gateway has served a write. */
  async serves(): Promise<void> {
    const created = /^work_item_gateway_requests_total\{operation="create",status="201"\} [1-9]/m;
    await this.shows((text) => created.test(text), 'serves calls');
  }

  /** SIGTERM drains the gateway. SIGKILL kills it with its workers. */
  async stop(signal: NodeJS.Signals = 'SIGTERM'): Promise<void> {
    if (signal === 'SIGKILL') this.signal('SIGKILL');
    else this.command.signal(signal);
    const code = await this.command.exitCode(shutdownDelayMs + stepLimitMs);
    if (signal === 'SIGTERM' && code !== 0)
      throw new Error(`${this.host} ended with ${code}, not 0:\n${this.command.output}`);
  }

  /** Signals the primary process and its workers. */
  signal(name: NodeJS.Signals): void {
    signalTree(this.command.process.pid, name);
  }

  /** Resolves when `isSo` accepts the gateway's metrics. */
  async shows(isSo: (metrics: string) => boolean, expected: string): Promise<void> {
    const attempt = async (): Promise<boolean> => {
      if (!this.command.isRunning) throw new Error(`${this.host} has ended:\n${this.command.output}`);
      // Right after a start, the listener may still be that of the previous process, and the fetch may fail.
      return isSo(await this.metrics().catch(() => ''));
    };
    await poll(attempt, `${this.host} ${expected}`, stepLimitMs);
  }

  async metrics(): Promise<string> {
    // Limits the fetches: the gateway updates its metrics only once a second.
    await new Promise((done) => setTimeout(done, 100));
    const response = await fetch(`http://${addressOf(this.host)}:9464/metrics`, { signal: AbortSignal.timeout(5_000) });
    return await response.text();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const command of this.commands) {
      if (!command.isRunning) continue;
      this.signal('SIGCONT');
      await command[Symbol.asyncDispose]();
    }
  }
}
