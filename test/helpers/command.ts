// The built command in another process.

import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { resolve } from 'node:path';
import { DEADLINE_MS, poll } from './changes.ts';
import { overwriteFlag } from './overwrite-released.ts';
import { figureIn } from './process-figures.ts';
import { Program } from './program.ts';
import { RawClient, request, type CallOptions, type Reply } from './raw-client.ts';

/** One line of the command's log. */
export type LogLine = Readonly<Record<string, unknown>>;

const root = resolve(import.meta.dirname, '../..');

const givenNode = process.env['GATEWAY_NODE'];
const nodeOfCommand = givenNode ?? process.execPath;
/** `process.versions` of the Node that runs the command. */
export const versionsOfCommand =
  givenNode === undefined
    ? process.versions
    : (JSON.parse(
        execFileSync(givenNode, ['-p', 'JSON.stringify(process.versions)'], { encoding: 'utf8' }),
      ) as NodeJS.ProcessVersions);

/** How the process is started. */
export interface ProcessLimits {
  /** Open files and sockets: `ulimit -n`. */
  readonly descriptors?: number;
  /** True: npm starts the process, by the script with the command's name, in a new process group. */
  readonly isUnderNpm?: boolean;
  /** The descriptor of the process's standard output; default: a pipe to the test. */
  readonly stdout?: number | 'pipe';
  /** Flags of Node. */
  readonly nodeFlags?: readonly string[];
  /** The process inherits these descriptors as 3, 4 and so on; LISTEN_FDS and LISTEN_PID are set accordingly. */
  readonly passed?: readonly number[];
  /** Put before the command line: a program that runs this command line, for example on another host. */
  readonly runner?: readonly string[];
  /** The folder of a built version; default: this repository. */
  readonly root?: string;
}

function commandLine(args: readonly string[], limits: ProcessLimits): readonly string[] {
  const { isUnderNpm = false, nodeFlags = [], passed = [], runner = [] } = limits;
  const main = resolve(limits.root ?? root, 'dist/command/main.js');
  const command = isUnderNpm
    ? ['npm', 'run', args[0] ?? '', '--', ...args.slice(1)]
    : [...runner, nodeOfCommand, overwriteFlag, ...nodeFlags, main, ...args];
  const preparations = [
    ...(limits.descriptors === undefined ? [] : [`ulimit -n ${limits.descriptors}`]),
    ...(passed.length === 0 ? [] : [`export LISTEN_FDS=${passed.length} LISTEN_PID=$$`]),
  ];
  return preparations.length === 0
    ? command
    : ['/bin/sh', '-c', [...preparations, 'exec "$0" "$@"'].join(' && '), ...command];
}

/** A process of the built command. */
export class Command extends Program {
  port = 0;
  adminPort = 0;
  readonly #isUnderNpm: boolean;
  readonly #logs: LogLine[] = [];
  #read = 0;

  constructor(args: readonly string[], environment: NodeJS.ProcessEnv, limits: ProcessLimits = {}) {
    const { isUnderNpm = false, stdout = 'pipe', passed = [] } = limits;
    super(commandLine(args, limits), {
      env: { PATH: process.env['PATH'], ...environment },
      stdio: ['ignore', stdout, 'pipe', ...passed],
      ...(isUnderNpm && { cwd: root, detached: true }),
    });
    this.#isUnderNpm = isUnderNpm;
  }

  /** The lines of the log so far. */
  get logs(): readonly LogLine[] {
    const end = this.stdout.lastIndexOf('\n') + 1;
    for (const line of this.stdout.slice(this.#read, end).split('\n')) {
      if (line.startsWith('{')) this.#logs.push(JSON.parse(line) as LogLine);
    }
    this.#read = end;
    return this.#logs;
  }

  /** Resolves with the first line of the log that `isIt` accepts, also if it was logged before. */
  log(isIt: (line: LogLine) => boolean, expected: string, limitMs?: number): Promise<LogLine> {
    return this.until(() => this.logs.find(isIt), expected, limitMs);
  }

  /** Signals npm and its children, as Ctrl-C does; does nothing when all these processes have ended. */
  signalGroup(name: NodeJS.Signals): void {
    assert.ok(this.#isUnderNpm && this.process.pid !== undefined);
    try {
      process.kill(-this.process.pid, name);
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'ESRCH') throw error;
    }
  }

  call(method: string, path: string, options?: CallOptions): Promise<Reply> {
    return request(this.port, method, path, options);
  }

  connect(): Promise<RawClient> {
    return RawClient.open(this.port);
  }

  /** A request to the admin listener. */
  admin(path: string): Promise<Reply> {
    return request(this.adminPort, 'GET', path);
  }

  /** A text of /metrics that was created after this call; the gateway caches the text for a second. */
  async metrics(): Promise<string> {
    const { text: before } = await this.admin('/metrics');
    let text = before;
    // A new text differs at least in the CPU time. Polling without a pause would make the gateway need more memory.
    await poll(async () => {
      await new Promise((resolvePause) => setTimeout(resolvePause, 25));
      ({ text } = await this.admin('/metrics'));
      return text !== before;
    }, 'a new text of /metrics');
    return text;
  }

  /** Drains the process; kills it after 5 s. */
  async stop(): Promise<void> {
    this.signal('SIGTERM');
    const timer = setTimeout(() => this.signal('SIGKILL'), 5000);
    await this.exited;
    clearTimeout(timer);
  }

  /** Kills the process, since most tests need no drain. */
  override async [Symbol.asyncDispose](): Promise<void> {
    if (this.isRunning && this.#isUnderNpm) this.signalGroup('SIGKILL');
    await super[Symbol.asyncDispose]();
  }
}

/** Runs the command; its environment inherits PATH only. */
export function runCommand(
  args: readonly string[],
  environment: NodeJS.ProcessEnv = {},
  limits: ProcessLimits = {},
): Command {
  return new Command(args, environment, limits);
}

/** Runs the command until it ends by itself. */
export async function runToEnd(
  args: readonly string[],
  environment: NodeJS.ProcessEnv = {},
  limits: ProcessLimits = {},
) {
  await using command = runCommand(args, environment, limits);
  const code = await command.exitCode();
  return { code, stdout: command.stdout, stderr: command.stderr, output: command.output };
}

/** Starts the gateway on free ports; resolves when it logs that it is ready. */
export async function startCommand(
  environment: NodeJS.ProcessEnv,
  limits: ProcessLimits = {},
  limitMs = DEADLINE_MS,
): Promise<Command> {
  const command = runCommand(
    ['serve'],
    { HOST: '127.0.0.1', PORT: '0', ADMIN_HOST: '127.0.0.1', ADMIN_PORT: '0', LOG_FORMAT: 'json', ...environment },
    limits,
  );
  const ready = await logged(command, 'ready', limitMs).catch(async (error: unknown) => {
    await command[Symbol.asyncDispose]();
    throw error;
  });
  command.port = Number(new URL(String(ready['url'])).port);
  command.adminPort = Number(new URL(String(ready['adminUrl'])).port);
  return command;
}

/** The value of a metric, read from a new text of `/metrics`; `name` has no prefix. Takes up to a second. */
export async function figureOf(command: Command, name: string): Promise<number | undefined> {
  return figureIn(await command.metrics(), `work_item_gateway_${name}`);
}

/** Resolves when `/readyz` reports that the gateway drains. */
export function isDraining(command: Command): Promise<void> {
  return poll(async () => (await command.admin('/readyz')).status === 503, '/readyz is 503');
}

/** Resolves with the first log line that has this message. */
export function logged(command: Command, message: string | RegExp, limitMs?: number): Promise<LogLine> {
  const isIt = ({ msg }: LogLine) => (typeof message === 'string' ? msg === message : message.test(String(msg)));
  return command.log(isIt, `the log line ${String(message)}`, limitMs);
}

/** True for the log line at the end of a successful reload. */
export function isReloaded({ msg }: LogLine): boolean {
  return String(msg).startsWith('reloaded');
}
