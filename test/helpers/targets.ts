// What the suites run against: a server in this process, and the built command in a process of its own; where no host
// has a say in it, the plugin in a Fastify server as well.

import { spawn, type ChildProcess } from 'node:child_process';
import type { AddressInfo } from 'node:net';
import { resolve } from 'node:path';
import { after, afterEach, before, beforeEach, describe, type TestContext } from 'node:test';
import assert from 'node:assert/strict';
import {
  createGatewayServer,
  workItemGateway,
  type GatewayObserver,
} from '../../packages/core/hosts/index.ts';
import { Changes, DEADLINE_MS, poll } from './changes.ts';
import { Fastify } from './fastify.ts';
import { serveFetchHandler } from './fetch-host.ts';
import { Http2Client, serveHttp2Before, noHttp2 } from './http2-client.ts';
import { serveNodeHandler } from './node-host.ts';
import { RawClient, request, type CallOptions, type Reply } from './raw-client.ts';
import { answer, ScriptedBackend } from './scripted-backend.ts';

/** The settings that both targets understand. */
export interface GatewaySettings {
  /** In place of the scripted backend's. */
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

/** TEST_TARGETS=in-process, for instance, leaves the others out. */
const wantedKinds = process.env['TEST_TARGETS']?.split(',');
const isWanted = (kind: TargetKind): boolean => wantedKinds?.includes(kind) ?? true;
const root = resolve(import.meta.dirname, '../..');
const running = new Set<ChildProcess>();
process.on('exit', () => {
  for (const child of running) child.kill('SIGKILL');
});

/** How the process is started, and what the system lets it have. */
export interface ProcessLimits {
  /** Open files and sockets: `ulimit -n`. */
  readonly descriptors?: number;
  /** From the sources, by the npm script that is called as the command is, in a process group of its own. */
  readonly isUnderNpm?: boolean;
  /** Descriptor of ours that is its standard output, or (default) a pipe to the test. */
  readonly stdout?: number | 'pipe';
  /** For Node, before the program. */
  readonly nodeFlags?: readonly string[];
  /** Descriptors of ours that it gets as 3, 4, …, with LISTEN_FDS and LISTEN_PID, as a service manager does it. */
  readonly passed?: readonly number[];
}

/** The built command in a process of its own. */
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
  #lineStart = 0;

  constructor(
    args: readonly string[],
    environment: NodeJS.ProcessEnv,
    { descriptors, isUnderNpm = false, stdout = 'pipe', nodeFlags = [], passed = [] }: ProcessLimits = {},
  ) {
    this.#isUnderNpm = isUnderNpm;
    const command = isUnderNpm
      ? ['npm', 'run', args[0] ?? '', '--', ...args.slice(1)]
      : [
          process.env['GATEWAY_NODE'] ?? process.execPath,
          ...nodeFlags,
          resolve(root, 'dist/command/main.js'),
          ...args,
        ];
    const preparations = [
      ...(descriptors === undefined ? [] : [`ulimit -n ${descriptors}`]),
      ...(passed.length === 0 ? [] : [`export LISTEN_FDS=${passed.length} LISTEN_PID=$$`]),
    ];
    const limited =
      preparations.length === 0
        ? command
        : ['/bin/sh', '-c', [...preparations, 'exec "$0" "$@"'].join(' && '), ...command];
    this.process = spawn(limited[0] ?? '', limited.slice(1), {
      env: { PATH: process.env['PATH'], ...environment },
      stdio: ['ignore', stdout, 'pipe', ...passed],
      ...(isUnderNpm && { cwd: root, detached: true }),
    });
    running.add(this.process);
    this.process.stdout?.on('data', (data: Buffer) => {
      this.stdout += data.toString('utf8');
      this.#readLines();
      this.#changes.notify();
    });
    this.process.stderr?.on('data', (data: Buffer) => {
      this.stderr += data.toString('utf8');
      this.#changes.notify();
    });
    this.exited = new Promise((resolveExit) => {
      this.process.on('close', (code, signal) => {
        running.delete(this.process);
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

  /** The first line of the log, from now or from before, that `isIt` accepts. */
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

  /** The exit code, or a failure when the process lives longer than `limitMs`. */
  exitCode(limitMs = DEADLINE_MS): Promise<number | null> {
    return this.#changes
      .until(
        () => (this.#isExited ? { code: this.process.exitCode } : undefined),
        () => `the process ends\n${this.output}`,
        limitMs,
      )
      .then(({ code }) => code);
  }

  signal(name: NodeJS.Signals): void {
    this.process.kill(name);
  }

  /** To npm and to all that it has started, as Ctrl-C does it; nothing when all of it has ended. */
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

  /** The text of /metrics, made after this was called: for a second everybody is given the same. */
  async metrics(): Promise<string> {
    const { text: before } = await this.admin('/metrics');
    let text = before;
    // Processor time has passed from one to the next; to ask without a pause would cost the gateway memory.
    await poll(async () => {
      await new Promise((resolvePause) => setTimeout(resolvePause, 25));
      ({ text } = await this.admin('/metrics'));
      return text !== before;
    }, 'another /metrics is made');
    return text;
  }

  /** Ends the process by its own drain; kills it when that takes too long. */
  async stop(): Promise<void> {
    if (this.#isExited) return;
    this.signal('SIGTERM');
    const timer = setTimeout(() => {
      this.signal('SIGKILL');
    }, 5000);
    await this.exited;
    clearTimeout(timer);
  }

  /** Kills the process: for a test that is over and whose drain is not what it looks at. */
  async [Symbol.asyncDispose](): Promise<void> {
    if (this.#isExited) return;
    if (this.#isUnderNpm) this.signalGroup('SIGKILL');
    else this.signal('SIGKILL');
    await this.exited;
  }

  #readLines(): void {
    for (let end = this.stdout.indexOf('\n', this.#lineStart); end >= 0;) {
      const line = this.stdout.slice(this.#lineStart, end);
      this.#lineStart = end + 1;
      if (line.startsWith('{')) this.logs.push(JSON.parse(line) as LogLine);
      end = this.stdout.indexOf('\n', this.#lineStart);
    }
  }
}

/** Runs the command with these arguments and environment, and nothing inherited but PATH. */
export function runCommand(
  args: readonly string[],
  environment: NodeJS.ProcessEnv = {},
  limits: ProcessLimits = {},
): Command {
  return new Command(args, environment, limits);
}

/** Starts the gateway alone on free ports and resolves when it says that it is ready. */
export async function startCommand(
  environment: NodeJS.ProcessEnv,
  limits: ProcessLimits = {},
  limitMs = DEADLINE_MS,
): Promise<Command> {
  const command = runCommand(
    ['serve'],
    {
      HOST: '127.0.0.1',
      PORT: '0',
      ADMIN_HOST: '127.0.0.1',
      ADMIN_PORT: '0',
      LOG_FORMAT: 'json',
      ...environment,
    },
    limits,
  );
  const ready = await command
    .log((line) => line['msg'] === 'ready', 'the line that says ready', limitMs)
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

/** The targets that are wanted, for cases that need one with settings of its own. */
export const targetKinds = (['in-process', 'command'] as const).filter(isWanted);

/** A connection on which whole requests are made. */
export interface Caller extends AsyncDisposable {
  readonly isOpen: boolean;
  call(method: string, path: string, options?: CallOptions): Promise<Reply>;
}

/** A running gateway and the scripted backend behind it. */
export class Target implements AsyncDisposable {
  readonly kind: TargetKind;
  readonly backend: ScriptedBackend;
  readonly port: number;
  /** The process, when this target is the command. */
  readonly command: Command | undefined;
  readonly stop: () => Promise<void>;

  private constructor(
    kind: TargetKind,
    backend: ScriptedBackend,
    port: number,
    stop: () => Promise<void>,
    command?: Command,
  ) {
    this.kind = kind;
    this.backend = backend;
    this.port = port;
    this.stop = stop;
    this.command = command;
  }

  static async start(
    kind: TargetKind,
    settings: GatewaySettings,
    environment: NodeJS.ProcessEnv,
  ): Promise<Target> {
    const backend = await ScriptedBackend.start();
    try {
      if (kind === 'command') {
        const command = await startCommand({
          BACKEND_URL: backend.url,
          ...environmentOf(settings),
          ...environment,
        });
        const stop = async () => {
          await command.stop();
          await backend.stop();
        };
        return new Target(kind, backend, command.port, stop, command);
      }
      if (kind === 'plugin') {
        const app = Fastify();
        await app.register(workItemGateway, { backendUrl: backend.url, ...settings });
        await app.listen({ host: '127.0.0.1', port: 0 });
        const stop = async () => {
          await app.close();
          await backend.stop();
        };
        return new Target(kind, backend, (app.server.address() as AddressInfo).port, stop);
      }
      if (kind === 'fetch' || kind === 'node') {
        const serveHandler = kind === 'fetch' ? serveFetchHandler : serveNodeHandler;
        const host = await serveHandler({ backendUrl: backend.url, observer: silent, ...settings });
        const stop = async () => {
          await host.stop();
          await backend.stop();
        };
        return new Target(kind, backend, host.port, stop);
      }
      if (kind === 'http2') {
        const server = await serveHttp2Before(backend, settings);
        const stop = async () => {
          await server[Symbol.asyncDispose]();
          await backend.stop();
        };
        return new Target(kind, backend, server.port, stop);
      }
      const server = createGatewayServer({ backendUrl: backend.url, observer: silent, ...settings });
      const { port } = await server.listen(0, '127.0.0.1');
      const stop = async () => {
        await server.close();
        await backend.stop();
      };
      return new Target(kind, backend, port, stop);
    } catch (error) {
      await backend.stop();
      throw error;
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.stop();
  }

  connect(): Promise<RawClient> {
    assert.notEqual(this.kind, 'http2', 'bytes are those of HTTP/1.1');
    return RawClient.open(this.port);
  }

  /** A connection for calls, whatever is spoken on it. */
  client(): Promise<Caller> {
    return this.kind === 'http2' ? Http2Client.open(this.port) : RawClient.open(this.port);
  }

  /** One request on a connection of its own. */
  async call(method: string, path: string, options?: CallOptions): Promise<Reply> {
    await using client = await this.client();
    return await client.call(method, path, options);
  }

  /** Fails when `act` led to a backend call: a known call is sent after it, and must be the only one in the record. */
  async withoutBackendCall<T>(act: () => Promise<T>): Promise<T> {
    const before = this.backend.requests.length;
    const result = await act();
    await this.settle();
    const calls = this.backend.requests.slice(before, -1).map(({ method, target }) => `${method} ${target}`);
    assert.deepEqual(calls, [], 'no backend call may be made');
    return result;
  }

  /** A known call through the gateway: whatever was sent to the backend before it has arrived there when this is back. */
  async settle(): Promise<void> {
    const id = `settle-${(settled += 1)}`;
    const reply = await this.call('GET', '/api/work-items', { headers: [['X-Request-Id', id]] });
    assert.equal(reply.status, 200, 'the gateway serves a good call');
    const last = this.backend.requests.at(-1);
    assert.equal(last?.header('x-request-id'), id, 'the last backend call is the one just made');
  }
}

let settled = 0;

// Otherwise the failures of every case would be lines of the tests.
const silent: GatewayObserver = {
  onCallEnd: () => undefined,
  onMalformed: () => undefined,
  onStall: () => undefined,
  onBug: () => undefined,
};

/** Beside the server in this process and the command: for cases that a `Request` can express, apart from a few. */
export const withFetch: TargetKind[] = ['in-process', 'command', 'fetch'];

/** The same, for cases that make whole calls: their bytes are not those of one protocol. */
export const withHttp2: TargetKind[] = [...withFetch, 'http2'];

/** Skips the case for the fetch handler, and says so: a `Request` cannot express it, for this `reason`. */
export function isBeyondRequest(context: TestContext, target: Target, reason: string): boolean {
  if (target.kind === 'fetch') {
    context.skip(reason);
  }
  return target.kind === 'fetch';
}

/**
 * Runs the cases that `define` makes against a server in this process and against the built command, each started once
 * for all of them. The backend's record and script are fresh in each case.
 */
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
        if (current().command) assert.ok(current().command?.isRunning, 'the process lives');
      });
      after(async () => {
        await target?.stop();
        if (target?.command) {
          assert.equal(target.command.stderr, '', 'nothing on stderr');
        }
      });
      define(current);
    });
  }
}

/** As `forEachTarget`, and against the plugin and the handlers: for cases that are about operations, and not about what is around them. */
export function forEveryTarget(define: (target: () => Target) => void, settings: GatewaySettings = {}): void {
  forEachTarget(define, settings, { kinds: ['in-process', 'command', 'plugin', 'fetch', 'node'] });
}

/** As `forEveryTarget`, and over HTTP/2: for cases that make whole calls, and are not about a connection. */
export function forEveryProtocol(define: (target: () => Target) => void): void {
  forEachTarget(define, {}, { kinds: ['in-process', 'command', 'plugin', 'fetch', 'node', 'http2'] });
}
