// Starts a gateway in any of its hosts, in front of a scripted backend.

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer, type RequestListener } from 'node:http';
import type { AddressInfo } from 'node:net';
import { serve } from '@hono/node-server';
import type { FastifyInstance } from 'fastify';
import type { Guard } from '../../packages/core/call/guard.ts';
import { listen } from '../../packages/core/hosts/common/listen.ts';
import { createFetchHandler, type FetchHandlerOptions } from '../../packages/core/hosts/fetch/fetch.ts';
import { serveHttp2 } from '../../packages/core/hosts/http2/http2.ts';
import {
  createGatewayServer,
  workItemGateway,
  type CallRecord,
  type GatewayObserver,
  type GatewayServerOptions,
  type WorkItemGatewayOptions,
} from '../../packages/core/hosts/index.ts';
import { createNodeHandler, type NodeHandler } from '../../packages/core/hosts/node/node.ts';
import { corsRows } from '../../packages/core/options/cors-options.ts';
import { limitRows } from '../../packages/core/options/limits.ts';
import { joinObservers } from '../../packages/core/hosts/common/observers.ts';
import { createGateway } from '../../packages/core/hosts/common/create-gateway.ts';
import { gatewayRows } from '../../packages/core/options/gateway-options.ts';
import { readOptions, type ValuesOf } from '../../packages/core/options/rows.ts';
import { ClientListener } from '../../packages/core/hosts/clients/client-listener.ts';
import { anyCertificate } from './certificates.ts';
import { startCommand } from './command.ts';
import { Fastify } from './fastify.ts';
import { Http2Client } from './http2-client.ts';
import './node-states.ts';
import './connection-states.ts';
import './overwrite-released.ts';
import { RawClient, request, type CallOptions } from './raw-client.ts';
import { answer, ScriptedBackend } from './scripted-backend.ts';

/** The events that an observer has received. */
export interface Told {
  readonly ended: CallRecord[];
  readonly bugs: [error: unknown, record: CallRecord | undefined][];
  readonly malformed: { requestId: string; status: number; reason: string; client: string | undefined }[];
  readonly stalled: CallRecord[];
  readonly outages: [what: string, cause: string | undefined][];
}

/** Called after the observer has recorded an event. */
export type EventListener = (event: keyof Told) => void;

export function createObserver(onEvent: EventListener = () => undefined) {
  const told: Told = { ended: [], bugs: [], malformed: [], stalled: [], outages: [] };
  const keep = <Event extends keyof Told>(event: Event, entry: Told[Event][number]): void => {
    told[event].push(entry as never);
    onEvent(event);
  };
  const observer = {
    onCallEnd: (record) => keep('ended', record),
    onBug: (error, record) => keep('bugs', [error, record]),
    onMalformed: (requestId, { status }, reason, client) => keep('malformed', { requestId, status, reason, client }),
    onStall: (record) => keep('stalled', record),
    onOutage: (what, cause) => keep('outages', [what, cause]),
  } satisfies GatewayObserver;
  return { told, observer };
}

/** The settings of all hosts; `tls` is for the server only, `clientAddress` for `fetch` only. */
export type Settings = Partial<GatewayServerOptions & FetchHandlerOptions>;

/** The parts of a gateway that come from its host. */
interface Surroundings {
  /** Used by `http1` and `http2` only. */
  readonly guards?: readonly Guard[];
  readonly identityHeader?: string | undefined;
  /** Makes the listener of a Node server from the handler. */
  readonly mount?: (handler: NodeHandler) => RequestListener;
  /** The Fastify server; default: a new server. */
  readonly app?: FastifyInstance;
  /** Adds the plugin to `app`; default: at its root, with the settings. */
  readonly register?: (backendUrl: string) => PromiseLike<unknown>;
  /** The command's environment variables. */
  readonly environment?: NodeJS.ProcessEnv;
}

type AllSettings = Settings & { readonly backendUrl: string | URL; readonly observer?: GatewayObserver | undefined };

/** Starts a server from the parts that `createGatewayServer` and the command use. */
async function startParts(
  { observer, ...options }: AllSettings,
  { guards = [], identityHeader = '' }: Surroundings,
  protocol: 'http1' | 'http2',
) {
  const table = { ...gatewayRows, ...corsRows, ...limitRows };
  const read = readOptions(options, table);
  assert.deepEqual(read.problems, []);
  const values = read.values as ValuesOf<typeof table>;
  const gateway = createGateway(values, { observer: joinObservers(undefined, observer), guards, identityHeader });
  const secure = () => ({ tls: anyCertificate(), protocols: { h2: serveHttp2(values, gateway) } });
  const clients = new ClientListener(values, gateway, protocol === 'http2' ? secure() : undefined);
  const listener = await listen(clients.listener, '127.0.0.1', 0, { host: 'host', port: 'port' });
  return {
    gateway,
    clients,
    port: listener.port,
    drain: async (signal: AbortSignal) => {
      gateway.isDraining = true;
      await listener.close();
      await clients.drain(signal, () => gateway.inFlight === 0);
    },
    close: async () => {
      await listener.close();
      gateway.isCutting = true;
      clients.closeAll();
      await gateway.backend.close();
    },
  };
}

/** How each host starts, on a free port. */
export const starters = {
  server: async (options: AllSettings) => {
    const server = createGatewayServer(options);
    const { port } = await server.listen(0, '127.0.0.1');
    return { server, port, close: () => server.close() };
  },

  http1: (settings: AllSettings, surroundings: Surroundings) => startParts(settings, surroundings, 'http1'),

  http2: async (settings: AllSettings, surroundings: Surroundings) => {
    const started = await startParts(settings, surroundings, 'http2');
    return {
      ...started,
      connect: () => Http2Client.open(started.port),
      call: async (method: string, path: string, options?: CallOptions) => {
        await using client = await Http2Client.open(started.port);
        return await client.call(method, path, options);
      },
    };
  },

  /** In Hono's server for web-standard handlers, which uses node:http. */
  fetch: async (options: AllSettings) => {
    const handler = createFetchHandler({ clientAddress: () => '127.0.0.1', ...options });
    // Shorter than Node's default, since some tests wait until an idle connection is closed.
    const serverOptions = { keepAliveTimeout: 3_000, keepAliveTimeoutBuffer: 0 };
    const server = serve({ fetch: handler, port: 0, hostname: '127.0.0.1', serverOptions });
    await once(server, 'listening');
    const close = async () => {
      server.close();
      if ('closeAllConnections' in server) server.closeAllConnections();
      await handler.close();
    };
    return { handler, port: (server.address() as AddressInfo).port, close };
  },

  node: async (options: AllSettings, { mount = (each) => each }: Surroundings) => {
    const handler = createNodeHandler(options);
    const server = createServer(mount(handler)).listen(0, '127.0.0.1');
    await once(server, 'listening');
    const close = async () => {
      server.close();
      server.closeAllConnections();
      await handler.close();
    };
    return { handler, port: (server.address() as AddressInfo).port, close };
  },

  plugin: async (options: AllSettings, { app = Fastify(), register }: Surroundings) => {
    await (register?.(String(options.backendUrl)) ?? app.register(workItemGateway, options as WorkItemGatewayOptions));
    await app.listen({ host: '127.0.0.1', port: 0 });
    const close = async () => {
      app.server.closeAllConnections();
      await app.close();
    };
    return { port: (app.server.address() as AddressInfo).port, close };
  },

  command: async (options: AllSettings, { environment }: Surroundings) => {
    const command = await startCommand({ ...environmentOf(options), ...environment });
    return { command, port: command.port, close: () => command.stop() };
  },
};

export type HostName = keyof typeof starters;
type Started<H extends HostName> = Awaited<ReturnType<(typeof starters)[H]>>;

/** The hosts whose settings include the guards. They run in the test's process. */
export const hostNames = ['server', 'plugin', 'fetch', 'node'] as const;

/** Converts `{ requestBytesMax: 10 }` to `{ REQUEST_BYTES_MAX: '10' }`. */
function environmentOf(settings: AllSettings): Record<string, string> {
  const given = Object.entries(settings).filter(([name]) => !['observer', 'log'].includes(name)) as [
    string,
    string | number,
  ][];
  return Object.fromEntries(
    given.map(([name, value]) => [name.replace(/[A-Z]/g, (letter) => `_${letter}`).toUpperCase(), String(value)]),
  );
}

interface GatewayOptions<H extends HostName> extends Surroundings {
  /** Default: the server. */
  readonly host?: H;
  readonly settings?: Settings;
  readonly onEvent?: EventListener | undefined;
}

/** Starts a scripted backend that answers `{"id":5}`, then a gateway; disposing of the result closes both. */
export async function startGateway<H extends HostName = 'server'>({
  host = 'server' as H,
  settings = {},
  onEvent,
  ...surroundings
}: GatewayOptions<H> = {}) {
  const backend = await ScriptedBackend.start();
  backend.answers(answer('{"id":5}'));
  const { told, observer } = createObserver(onEvent);
  const start = starters[host] as (settings: AllSettings, surroundings: Surroundings) => Promise<Started<H>>;
  const started = await start({ backendUrl: backend.url, observer, log: false, ...settings }, surroundings).catch(
    async (error: unknown) => {
      await backend.stop();
      throw error;
    },
  );
  const { port } = started;
  const own = {
    backend,
    told,
    connect: () => RawClient.open(port),
    call: (method: string, path: string, options?: CallOptions) => request(port, method, path, options),
  };
  const dispose = async () => {
    await started.close();
    await backend.stop();
  };
  const all = { ...own, ...started, [Symbol.asyncDispose]: dispose };
  return all as Omit<typeof own, keyof Started<H>> & Started<H> & AsyncDisposable;
}
