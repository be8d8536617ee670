// The gateway in each of its hosts, with the guards that a test asks for: over real sockets, before a scripted backend.

import type { AddressInfo } from 'node:net';
import { createFetchHandler, type FetchHandlerOptions } from '../../packages/core/hosts/fetch/fetch.ts';
import { createNodeHandler } from '../../packages/core/hosts/node/node.ts';
import {
  createGatewayServer,
  workItemGateway,
  type GatewayServerOptions,
} from '../../packages/core/hosts/index.ts';
import { Fastify } from './fastify.ts';
import { serveFetchHandler } from './fetch-host.ts';
import { createObserver, type Told } from './in-process.ts';
import { serveNodeHandler } from './node-host.ts';
import { RawClient, request, type CallOptions, type Reply } from './raw-client.ts';
import { answer, ScriptedBackend } from './scripted-backend.ts';

/** Options that every host has. */
export type HostOptions = Partial<Omit<GatewayServerOptions & FetchHandlerOptions, 'prefix' | 'tls'>>;

export type HostName = 'server' | 'plugin' | 'fetch' | 'node';
export const hostNames: readonly HostName[] = ['server', 'plugin', 'fetch', 'node'];

export interface GuardedHost extends AsyncDisposable {
  readonly backend: ScriptedBackend;
  readonly told: Told;
  readonly outages: [what: string, cause: string | undefined][];
  readonly port: number;
  call(method: string, path: string, options?: CallOptions): Promise<Reply>;
  connect(): Promise<RawClient>;
  close(): Promise<void>;
}

/** Makes a host of these options and does not start it: throws, or rejects, where they are wrong. */
export async function makeHost(name: HostName, options: HostOptions): Promise<void> {
  const { clientAddress, ...others } = { backendUrl: 'http://localhost:5104', ...options };
  if (name === 'server') {
    createGatewayServer(others);
  } else if (name === 'fetch') {
    createFetchHandler({ clientAddress: clientAddress ?? (() => undefined), ...others });
  } else if (name === 'node') {
    createNodeHandler(others);
  } else {
    await Fastify().register(workItemGateway, others);
  }
}

/** Serves `{"id":5}` behind guards. Whoever calls comes from 127.0.0.1, which the fetch handler is told. */
export async function serveHost(name: HostName, options: HostOptions = {}): Promise<GuardedHost> {
  const backend = await ScriptedBackend.start();
  backend.answers(answer('{"id":5}'));
  const { told, observer } = createObserver();
  const outages: GuardedHost['outages'] = [];
  const all = {
    backendUrl: backend.url,
    observer: {
      ...observer,
      onOutage: (what: string, cause: string | undefined) => {
        outages.push([what, cause]);
      },
    },
    ...options,
  };
  try {
    const { port, close } = await start(name, all);
    return {
      backend,
      told,
      outages,
      port,
      call: (method, path, callOptions) => request(port, method, path, callOptions),
      connect: () => RawClient.open(port),
      close,
      [Symbol.asyncDispose]: async () => {
        await close();
        await backend.stop();
      },
    };
  } catch (error) {
    await backend.stop();
    throw error;
  }
}

async function start(name: HostName, options: HostOptions & { readonly backendUrl: string | URL }) {
  const { clientAddress = () => '127.0.0.1', ...others } = options;
  if (name === 'server') {
    const server = createGatewayServer(others);
    const { port } = await server.listen(0, '127.0.0.1');
    return { port, close: () => server.close() };
  }
  if (name === 'fetch') {
    const { port, stop } = await serveFetchHandler({ clientAddress, ...others });
    return { port, close: stop };
  }
  if (name === 'node') {
    const { port, stop } = await serveNodeHandler(others);
    return { port, close: stop };
  }
  const app = Fastify();
  await app.register(workItemGateway, others);
  await app.listen({ host: '127.0.0.1', port: 0 });
  return { port: (app.server.address() as AddressInfo).port, close: () => app.close() };
}
