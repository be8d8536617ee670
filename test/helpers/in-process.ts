// A gateway server in the test's process, behind it a scripted backend or whatever is put in its place.

import { BackendClient } from '../../packages/core/backend/client.ts';
import type { Backend } from '../../packages/core/call/call.ts';
import { Gateway, type GatewayObserver } from '../../packages/core/call/gateway.ts';
import type { Guard } from '../../packages/core/call/guard.ts';
import { BufferBudget } from '../../packages/core/body/budget.ts';
import {
  createGatewayServer,
  type CallRecord,
  type GatewayServerOptions,
} from '../../packages/core/hosts/index.ts';
import { timeLimitRows } from '../../packages/core/hosts/options/limits.ts';
import { defaultsOf } from '../../packages/core/hosts/options/rows.ts';
import { listen } from '../../packages/core/hosts/common/listen.ts';
import { ClientServer } from '../../packages/core/http1/server.ts';
import { RawClient, request, type CallOptions } from './raw-client.ts';
import { answer, ScriptedBackend } from './scripted-backend.ts';

export interface Malformed {
  readonly requestId: string;
  readonly status: number;
  readonly reason: string;
  readonly client: string | undefined;
}

/** What an observer is told, kept. */
export interface Told {
  readonly ended: CallRecord[];
  readonly bugs: [error: unknown, record: CallRecord | undefined][];
  readonly malformed: Malformed[];
  readonly stalled: CallRecord[];
}

/** What an observer does beside keeping what it is told. */
export type Deed = (event: keyof Told) => void;

export function createObserver(deed: Deed = () => undefined): { told: Told; observer: GatewayObserver } {
  const told: Told = { ended: [], bugs: [], malformed: [], stalled: [] };
  return {
    told,
    observer: {
      onCallEnd: (record) => {
        told.ended.push(record);
        deed('ended');
      },
      onBug: (error, record) => {
        told.bugs.push([error, record]);
        deed('bugs');
      },
      onMalformed: (requestId, { status }, reason, client) => {
        told.malformed.push({ requestId, status, reason, client });
        deed('malformed');
      },
      onStall: (record) => {
        told.stalled.push(record);
        deed('stalled');
      },
    },
  };
}

/** A server of the gateway alone, before a scripted backend that answers `{"id":5}`. */
export async function serveInProcess(options: Partial<GatewayServerOptions> = {}, deed?: Deed) {
  const backend = await ScriptedBackend.start();
  backend.answers(answer('{"id":5}'));
  const { told, observer } = createObserver(deed);
  const server = createGatewayServer({ backendUrl: backend.url, observer, ...options });
  const { port } = await server.listen(0, '127.0.0.1');
  return {
    backend,
    told,
    port,
    server,
    connect: async () => await RawClient.open(port),
    call: (method: string, path: string, callOptions?: CallOptions) =>
      request(port, method, path, callOptions),
    [Symbol.asyncDispose]: async () => {
      await server.close();
      await backend.stop();
    },
  };
}

/** A server of the gateway alone, with `backend` behind it and `guards` before it; `budget` counts what it holds. */
export async function serveBefore(
  backend: Backend,
  guards: readonly Guard[] = [],
  budget = new BufferBudget(1e9),
  deed?: Deed,
) {
  const { told, observer } = createObserver(deed);
  const limits = {
    itemIdParsing: 'leading',
    requestBytesMax: 10_000_000,
    inFlightMax: 1_024,
    trustedProxies: undefined,
    allowedHosts: [],
    guards,
    cors: undefined,
    tracer: undefined,
  } as const;
  const gateway = new Gateway(limits, backend, budget, observer, '/api/work-items');
  const clients = new ClientServer(
    {
      ...limits,
      requestHeadBytesMax: 16_384,
      requestHeadersTimeoutMs: 10_000,
      requestTimeoutMs: 30_000,
      replyStallTimeoutMs: 30_000,
      idleTimeoutMs: 72_000,
      connectionsMax: 10_000,
    },
    gateway,
  );
  const listener = await listen(clients.listener, '127.0.0.1', 0, { host: 'host', port: 'port' });
  return {
    told,
    gateway,
    port: listener.port,
    connect: async () => await RawClient.open(listener.port),
    [Symbol.asyncDispose]: async () => {
      await listener.close();
      clients.closeAll();
    },
  };
}

/** The same before a scripted backend that answers `{"id":5}`. */
export async function serveGuarded(guards: readonly Guard[], identityHeader?: string, deed?: Deed) {
  const backend = await ScriptedBackend.start();
  backend.answers(answer('{"id":5}'));
  const ms = defaultsOf(timeLimitRows);
  const client = new BackendClient({
    backendUrl: new URL(backend.url),
    timeoutMs: ms.backendTimeoutMs,
    connectTimeoutMs: ms.backendConnectTimeoutMs,
    idleTimeoutMs: ms.backendIdleTimeoutMs,
    responseBytesMax: 1_000_000,
    identityHeader,
    budget: new BufferBudget(1e9),
  });
  const server = await serveBefore(client, guards, undefined, deed);
  return {
    ...server,
    backend,
    [Symbol.asyncDispose]: async () => {
      await server[Symbol.asyncDispose]();
      await client.close();
      await backend.stop();
    },
  };
}
