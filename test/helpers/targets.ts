// The forms of the gateway on which suites run: a server in this process, the built command, and the other hosts.

import { after, afterEach, before, beforeEach, describe } from 'node:test';
import assert from 'node:assert/strict';
import type { Command } from './command.ts';
import { startGateway, type HostName, type Settings } from './gateway.ts';
import { poll } from './changes.ts';
import { Http2Client, noHttp2 } from './http2-client.ts';
import { RawClient, type CallOptions, type Reply } from './raw-client.ts';
import { answer, type ScriptedBackend } from './scripted-backend.ts';

type TargetKind = 'in-process' | Exclude<HostName, 'server' | 'http1'>;

/** For example, TEST_TARGETS=in-process selects one target. `npm run test:quick` also selects it. */
const wantedTargets =
  process.env['TEST_TARGETS'] ?? (process.env['npm_lifecycle_event'] === 'test:quick' ? 'in-process' : undefined);
const wantedKinds = wantedTargets?.split(',');
const isWanted = (kind: TargetKind): boolean => wantedKinds?.includes(kind) ?? true;

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
  readonly #gateway: AsyncDisposable;

  private constructor(kind: TargetKind, gateway: Awaited<ReturnType<typeof startGateway<HostName>>>) {
    this.kind = kind;
    this.backend = gateway.backend;
    this.port = gateway.port;
    this.command = 'command' in gateway ? gateway.command : undefined;
    this.#gateway = gateway;
  }

  static async start(kind: TargetKind, settings: Settings, environment: NodeJS.ProcessEnv): Promise<Target> {
    const host = kind === 'in-process' ? 'server' : kind;
    const gateway = await startGateway<HostName>({ host, settings: { observer: undefined, ...settings }, environment });
    // The command connects once after its start [D34].
    if ('command' in gateway) await poll(() => gateway.backend.connectionsTaken > 0, 'the first connection');
    return new Target(kind, gateway);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#gateway[Symbol.asyncDispose]();
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

  /** Fails when `act` leads to a backend call. Makes a known call afterwards, which must be the only recorded call. */
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

/** Runs the cases of `define` against each target. A target starts once for all cases; each case resets the backend. */
export function forEachTarget(
  define: (target: () => Target) => void,
  settings: Settings = {},
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
        await target?.[Symbol.asyncDispose]();
        if (target?.command) assert.equal(target.command.stderr, '', 'nothing on stderr');
      });
      define(current);
    });
  }
}

/** Like `forEachTarget`, but against every target, also over HTTP/2; for cases that send complete requests. */
export function forEveryProtocol(define: (target: () => Target) => void): void {
  forEachTarget(define, {}, { kinds: ['in-process', 'command', 'plugin', 'fetch', 'node', 'http2'] });
}
