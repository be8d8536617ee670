// The gateways that suites test: a server in this process, the built command in another process, and the other hosts.

import { spawn, type ChildProcess } from 'node:child_process';
import { resolve } from 'node:path';
import { after, afterEach, before, beforeEach, describe, type TestContext } from 'node:test';
import assert from 'node:assert/strict';
import type { GatewayObserver } from '../../packages/core/hosts/index.ts';
import { Changes, DEADLINE_MS, poll } from './changes.ts';
import { killAtExit } from './children.ts';
import { startHost } from './guarded-hosts.ts';
import { Http2Client, noHttp2, startHttp2 } from './http2-client.ts';
import { beforeBackend } from './in-process.ts';
import { RawClient, request, type CallOptions, type Reply } from './raw-client.ts';
import { answer, type ScriptedBackend } from './scripted-backend.ts';

/** The settings that all targets have. */
export interface GatewaySettings {
  /** Default: the scripted backend. */
  readonly backendUrl?: string;
  readonly requestBytesMax?: number;
  readonly responseBytesMax?: number;
  readonly backendTimeoutMs?: number;
  readonly backendConnectTimeoutMs?: number;
  readonly backendIdleTimeoutMs?: number;
  readonly inFlightMax?: number;
  readonly bufferedBytesMax?: number;
  readonly itemIdParsing?: 'leading' | 'whole';
  readonly allowedHosts?: readonly string[];
  readonly corsOrigins?: readonly string[];
  readonly corsCredentials?: boolean;
  readonly corsMaxAgeS?: number;
}

/** One line of the command's log. */
export type LogLine = Readonly<Record<string, unknown>>;

/** For example, TEST_TARGETS=in-process selects one target. npm sets the other variable. */
const wantedTargets =
  process.env['TEST_TARGETS'] ?? (process.env['npm_lifecycle_event'] === 'test:quick' ? 'in-process' : undefined);
const wantedKinds = wantedTargets?.split(',');
const isWanted = (kind: TargetKind): boolean => wantedKinds?.includes(kind) ?? true;
const root = resolve(import.meta.dirname, '../..');

/** How the process is started. */
export interface ProcessLimits {
  /** Open files and sockets: `ulimit -n`. */
  readonly descriptors?: number;
  /** Started by the npm script of the same name, in a new process group. */
  readonly isUnderNpm?: boolean;
  /** The descriptor of its standard output; default: a pipe to the test. */
  readonly stdout?: number | 'pipe';
  /** Flags of Node. */
  readonly nodeFlags?: readonly string[];
  /** Descriptors that it inherits as 3, 4, …, with LISTEN_FDS and LISTEN_PID, as from a service manager. */
  readonly passed?: readonly number[];
  /** The start of a command line that runs the rest, on another host for example. */
  readonly runner?: readonly string[];
  /** The folder of a built version; default: this repository. */
  readonly root?: string;
}

/** A process of the built command. */
export class Command implements AsyncDisposable {
  readonly process: ChildProcess;
  readonly exited: Promise<{ code: number | null; signal: NodeJS.Signals | null }>;
  readonly logs: LogLine[] = [];
  stdout = '';
  stderr = '';
  port = 0;
  adminPort = 0;
  readonly #changes = new Changes();
  readonly #isUnderNpm: boolean;
  #isExited = false;
  #lineBegun = '';

  constructor(args: readonly string[], environment: NodeJS.ProcessEnv, limits: ProcessLimits = {}) {
    const { isUnderNpm = false, stdout = 'pipe', nodeFlags = [], passed = [], runner = [] } = limits;
    this.#isUnderNpm = isUnderNpm;
    const node = process.env['GATEWAY_NODE'] ?? process.execPath;
    const main = resolve(limits.root ?? root, 'dist/command/main.js');
    const command = isUnderNpm
      ? ['npm', 'run', args[0] ?? '', '--', ...args.slice(1)]
      : [...runner, node, ...nodeFlags, main, ...args];
    const preparations = [
      ...(limits.descriptors === undefined ? [] : [`ulimit -n ${limits.descriptors}`]),
      ...(passed.length === 0 ? [] : [`export LISTEN_FDS=${passed.length} LISTEN_PID=$$`]),
    ];
    const script = [...preparations, 'exec "$0" "$@"'].join(' && ');
    const [program = '', ...rest] = preparations.length === 0 ? command : ['/bin/sh', '-c', script, ...command];
    const child = spawn(program, rest, {
      env: { PATH: process.env['PATH'], ...environment },
      stdio: ['ignore', stdout, 'pipe', ...passed],
      ...(isUnderNpm && { cwd: root, detached: true }),
    });
    this.process = killAtExit(child);
    this.process.stdout?.on('data', (data: Buffer) => {
      const text = data.toString('utf8');
      this.stdout += text;
      this.#readLines(text);
      this.#changes.notify();
    });
    this.process.stderr?.on('data', (data: Buffer) => {
      this.stderr += data.toString('utf8');
      this.#changes.notify();
    });
    this.exited = new Promise((resolveExit) => {
      this.process.on('close', (code, signal) => {
        this.#isExited = true;
        this.#changes.notify();
        resolveExit({ code, signal });
      });
    });
  }

  get output(): string {
    return `stdout: ${this.stdout}\nstderr: ${this.stderr}`;
  }

  get isRunning(): boolean {
    return !this.#isExited;
  }

  /** Resolves with the first line of the log that `isIt` accepts, already logged or not. */
  log(isIt: (line: LogLine) => boolean, expected: string, limitMs = DEADLINE_MS): Promise<LogLine> {
    return this.#changes.until(
      () => {
        const line = this.logs.find(isIt);
        if (!line && this.#isExited) throw new Error(`the process ended before ${expected}\n${this.output}`);
        return line;
      },
      () => `${expected}\n${this.output}`,
      limitMs,
    );
  }

  /** The exit code; rejects when the process runs longer than `limitMs`. */
  async exitCode(limitMs = DEADLINE_MS): Promise<number | null> {
    await this.#changes.until(
      () => this.#isExited || undefined,
      () => `the process ends\n${this.output}`,
      limitMs,
    );
    return this.process.exitCode;
  }

  signal(name: NodeJS.Signals): void {
    this.process.kill(name);
  }

  /** Signals npm and its children, as Ctrl-C does; does nothing when all have ended. */
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
    // Two texts differ at least in the CPU time. Polling without a pause would need memory in the gateway.
    await poll(async () => {
      await new Promise((resolvePause) => setTimeout(resolvePause, 25));
      ({ text } = await this.admin('/metrics'));
      return text !== before;
    }, 'a new text of /metrics');
    return text;
  }

  /** Drains the process; kills it after 5 s. */
  async stop(): Promise<void> {
    if (this.#isExited) return;
    this.signal('SIGTERM');
    const timer = setTimeout(() => this.signal('SIGKILL'), 5000);
    await this.exited;
    clearTimeout(timer);
  }

  /** Kills the process, since most tests need no drain. */
  async [Symbol.asyncDispose](): Promise<void> {
    if (this.#isExited) return;
    if (this.#isUnderNpm) this.signalGroup('SIGKILL');
    else this.signal('SIGKILL');
    await this.exited;
  }

  #readLines(text: string): void {
    const lines = (this.#lineBegun + text).split('\n');
    this.#lineBegun = lines.pop() ?? '';
    for (const line of lines) if (line.startsWith('{')) this.logs.push(JSON.parse(line) as LogLine);
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
  const ready = await command
    .log((line) => line['msg'] === 'ready', 'the log line `ready`', limitMs)
    .catch(async (error: unknown) => {
      await command[Symbol.asyncDispose]();
      throw error;
    });
  command.port = Number(new URL(String(ready['url'])).port);
  command.adminPort = Number(new URL(String(ready['adminUrl'])).port);
  return command;
}

/** `{ requestBytesMax: 10 }` as `{ REQUEST_BYTES_MAX: '10' }`. */
export function environmentOf(settings: GatewaySettings): Record<string, string> {
  return Object.fromEntries(
    Object.entries(settings).map(([name, value]) => [
      name.replace(/[A-Z]/g, (letter) => `_${letter}`).toUpperCase(),
      String(value),
    ]),
  );
}

type TargetKind = 'in-process' | 'command' | 'plugin' | 'fetch' | 'node' | 'http2';

/** The selected targets, for cases that start a target with their own settings. */
export const targetKinds = (['in-process', 'command'] as const).filter(isWanted);

/** A connection for complete requests. */
export interface Caller extends AsyncDisposable {
  readonly isOpen: boolean;
  call(method: string, path: string, options?: CallOptions): Promise<Reply>;
}

/** A running gateway and its scripted backend. */
export class Target implements AsyncDisposable {
  readonly kind: TargetKind;
  readonly backend: ScriptedBackend;
  readonly port: number;
  /** The process, when this target is the command. */
  readonly command: Command | undefined;
  readonly stop: () => Promise<void>;

  private constructor(
    kind: TargetKind,
    { backend, port, ...server }: Pick<Target, 'backend' | 'port'> & AsyncDisposable,
    command: Command | undefined,
  ) {
    this.kind = kind;
    this.backend = backend;
    this.port = port;
    this.stop = () => Promise.resolve(server[Symbol.asyncDispose]());
    this.command = command;
  }

  static async start(kind: TargetKind, settings: GatewaySettings, environment: NodeJS.ProcessEnv): Promise<Target> {
    let command: Command | undefined;
    const server = await beforeBackend(async ({ url }) => {
      const options = { backendUrl: url, ...settings };
      if (kind === 'http2') return await startHttp2(options);
      if (kind === 'plugin') return await startHost('plugin', options);
      if (kind !== 'command') {
        return await startHost(kind === 'in-process' ? 'server' : kind, { observer: silent, ...options });
      }
      const started = (command = await startCommand({ ...environmentOf(options), ...environment }));
      return { port: started.port, close: () => started.stop() };
    });
    return new Target(kind, server, command);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.stop();
  }

  connect(): Promise<RawClient> {
    assert.notEqual(this.kind, 'http2', 'raw bytes are for HTTP/1.1');
    return RawClient.open(this.port);
  }

  /** A connection for calls, in the target's protocol. */
  client(): Promise<Caller> {
    return this.kind === 'http2' ? Http2Client.open(this.port) : RawClient.open(this.port);
  }

  /** Sends one request on a new connection. */
  async call(method: string, path: string, options?: CallOptions): Promise<Reply> {
    await using client = await this.client();
    return await client.call(method, path, options);
  }

  /** Fails when `act` leads to a backend call. Makes a known call afterwards, which must be the only recorded one. */
  async withoutBackendCall<T>(act: () => Promise<T>): Promise<T> {
    const before = this.backend.requests.length;
    const result = await act();
    await this.settle();
    const calls = this.backend.requests.slice(before, -1).map(({ method, target }) => `${method} ${target}`);
    assert.deepEqual(calls, [], 'no backend call may be made');
    return result;
  }

  /** Makes a known call through the gateway. When it resolves, all earlier backend calls have arrived. */
  async settle(): Promise<void> {
    const id = `settle-${(settled += 1)}`;
    const reply = await this.call('GET', '/api/work-items', { headers: [['X-Request-Id', id]] });
    assert.equal(reply.status, 200, 'the gateway serves a good call');
    const last = this.backend.requests.at(-1);
    assert.equal(last?.header('x-request-id'), id, 'the last backend call is the one just made');
  }
}

let settled = 0;

// Otherwise the tests would print each failure.
const silent: GatewayObserver = {
  onCallEnd: () => undefined,
  onMalformed: () => undefined,
  onStall: () => undefined,
  onBug: () => undefined,
};

/** For suites in which a `Request` can express most cases. */
export const withFetch: TargetKind[] = ['in-process', 'command', 'fetch'];

/** The same and HTTP/2, for cases that send complete requests in any protocol. */
export const withHttp2: TargetKind[] = [...withFetch, 'http2'];

/** Skips the case for the fetch handler, since a `Request` cannot express it; `reason` says why. */
export function isBeyondRequest(context: TestContext, target: Target, reason: string): boolean {
  if (target.kind === 'fetch') context.skip(`a Request cannot express it: ${reason}`);
  return target.kind === 'fetch';
}

/** Runs the cases of `define` against each target. A target starts once for all cases; each case resets the backend. */
export function forEachTarget(
  define: (target: () => Target) => void,
  settings: GatewaySettings = {},
  {
    kinds = ['in-process', 'command'],
    environment = {},
  }: { kinds?: TargetKind[]; environment?: NodeJS.ProcessEnv } = {},
): void {
  for (const kind of kinds.filter(isWanted)) {
    describe(kind, { skip: kind === 'http2' ? noHttp2 : false }, () => {
      let target: Target | undefined;
      const current = () => {
        assert.ok(target, 'the target is started');
        return target;
      };
      before(async () => {
        target = await Target.start(kind, settings, environment);
      });
      beforeEach(() => {
        current().backend.reset();
        current().backend.answers(answer('[]'));
      });
      afterEach(() => {
        assert.deepEqual(current().backend.violations, [], 'only plain requests reach the backend');
        if (current().command) assert.ok(current().command?.isRunning, 'the process still runs');
      });
      after(async () => {
        await target?.stop();
        if (target?.command) assert.equal(target.command.stderr, '', 'nothing on stderr');
      });
      define(current);
    });
  }
}

/** As `forEachTarget`, also against the plugin and the handlers: for cases about operations. */
export function forEveryTarget(define: (target: () => Target) => void, settings: GatewaySettings = {}): void {
  forEachTarget(define, settings, { kinds: ['in-process', 'command', 'plugin', 'fetch', 'node'] });
}

/** As `forEveryTarget`, also over HTTP/2: for cases that send complete requests. */
export function forEveryProtocol(define: (target: () => Target) => void): void {
  forEachTarget(define, {}, { kinds: ['in-process', 'command', 'plugin', 'fetch', 'node', 'http2'] });
}
