// Gateways in the test's process, most of them in front of a scripted backend.

import { BackendClient } from '../../packages/core/backend/client.ts';
import type { Backend } from '../../packages/core/call/call.ts';
import { Gateway, type GatewayObserver } from '../../packages/core/call/gateway.ts';
import type { Guard } from '../../packages/core/call/guard.ts';
import { BufferBudget } from '../../packages/core/body/budget.ts';
import { createGatewayServer, type CallRecord, type GatewayServerOptions } from '../../packages/core/hosts/index.ts';
import { limitRows, timeLimitRows } from '../../packages/core/hosts/options/limits.ts';
import { defaultsOf } from '../../packages/core/hosts/options/rows.ts';
import { listen } from '../../packages/core/hosts/common/listen.ts';
import { ClientServer } from '../../packages/core/http1/server.ts';
import { RawClient, request, type CallOptions } from './raw-client.ts';
import { answer, ScriptedBackend } from './scripted-backend.ts';

/** The events that an observer has received. */
export interface Told {
  readonly ended: CallRecord[];
  readonly bugs: [error: unknown, record: CallRecord | undefined][];
  readonly malformed: { requestId: string; status: number; reason: string; client: string | undefined }[];
  readonly stalled: CallRecord[];
}

/** Called after the observer has recorded an event. */
export type EventListener = (event: keyof Told) => void;

export function createObserver(onEvent: EventListener = () => undefined): { told: Told; observer: GatewayObserver } {
  const told: Told = { ended: [], bugs: [], malformed: [], stalled: [] };
  const keep = <Event extends keyof Told>(event: Event, entry: Told[Event][number]): number => {
    const count = told[event].push(entry as never);
    onEvent(event);
    return count;
  };
  const observer: GatewayObserver = {
    onCallEnd: (record) => keep('ended', record),
    onBug: (error, record) => keep('bugs', [error, record]),
    onMalformed: (requestId, { status }, reason, client) => keep('malformed', { requestId, status, reason, client }),
    onStall: (record) => keep('stalled', record),
  };
  return { told, observer };
}

interface Started {
  readonly port: number;
  close(): unknown;
}

/** Starts a scripted backend that answers `{"id":5}`, then a gateway; disposing of the result closes both. */
export async function beforeBackend<S extends Started>(start: (backend: ScriptedBackend) => Promise<S>) {
  const backend = await ScriptedBackend.start();
  backend.answers(answer('{"id":5}'));
  const started = await start(backend).catch(async (error: unknown) => {
    await backend.stop();
    throw error;
  });
  const { port } = started;
  const own = {
    backend,
    connect: () => RawClient.open(port),
    call: (method: string, path: string, options?: CallOptions) => request(port, method, path, options),
  };
  const dispose = async () => {
    await started.close();
    await backend.stop();
  };
  const all = { ...own, ...started, [Symbol.asyncDispose]: dispose };
  return all as Omit<typeof own, keyof S> & S & AsyncDisposable;
}

/** A server with only the gateway, in front of a scripted backend that answers `{"id":5}`. */
export function serveInProcess(options: Partial<GatewayServerOptions> = {}, onEvent?: EventListener) {
  return beforeBackend(async (backend) => {
    const { told, observer } = createObserver(onEvent);
    const server = createGatewayServer({ backendUrl: backend.url, observer, ...options });
    const { port } = await server.listen(0, '127.0.0.1');
    return { told, server, port, close: () => server.close() };
  });
}

/** A server with only the gateway, in front of `backend`; `budget` counts the bytes that the gateway buffers. */
export async function serveBefore(
  backend: Backend,
  guards: readonly Guard[] = [],
  budget = new BufferBudget(1e9),
  onEvent?: EventListener,
) {
  const { told, observer } = createObserver(onEvent);
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
  const clients = new ClientServer({ ...defaultsOf(limitRows), ...limits }, gateway);
  const listener = await listen(clients.listener, '127.0.0.1', 0, { host: 'host', port: 'port' });
  const close = async () => {
    await listener.close();
    clients.closeAll();
  };
  return {
    told,
    gateway,
    port: listener.port,
    close,
    connect: () => RawClient.open(listener.port),
    [Symbol.asyncDispose]: close,
  };
}

/** As `serveBefore`, with a scripted backend that answers `{"id":5}`. */
export function serveGuarded(guards: readonly Guard[], identityHeader?: string, onEvent?: EventListener) {
  return beforeBackend(async ({ url }) => {
    const ms = defaultsOf(timeLimitRows);
    const client = new BackendClient({
      backendUrl: new URL(url),
      timeoutMs: ms.backendTimeoutMs,
      connectTimeoutMs: ms.backendConnectTimeoutMs,
      idleTimeoutMs: ms.backendIdleTimeoutMs,
      responseBytesMax: 1_000_000,
      identityHeader,
      budget: new BufferBudget(1e9),
    });
    const server = await serveBefore(client, guards, undefined, onEvent);
    const close = async () => {
      await server.close();
      await client.close();
    };
    return { ...server, close };
  });
}
