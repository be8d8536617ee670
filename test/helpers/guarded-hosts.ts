// The gateway in each of its hosts, over real sockets.

import { once } from 'node:events';
import type { AddressInfo } from 'node:net';
import { serve } from '@hono/node-server';
import { createFetchHandler, type FetchHandlerOptions } from '../../packages/core/hosts/fetch/fetch.ts';
import { createNodeHandler } from '../../packages/core/hosts/node/node.ts';
import { createGatewayServer, workItemGateway, type GatewayServerOptions } from '../../packages/core/hosts/index.ts';
import { Fastify } from './fastify.ts';
import { beforeBackend, createObserver } from './in-process.ts';
import { startNode } from './node-host.ts';

/** Options that every host has. */
export type HostOptions = Partial<Omit<GatewayServerOptions & FetchHandlerOptions, 'prefix' | 'tls'>>;
type WithBackend = HostOptions & { readonly backendUrl: string | URL };

export const hostNames = ['server', 'plugin', 'fetch', 'node'] as const;
export type HostName = (typeof hostNames)[number];
/** Creates a host with these options without starting it; rejects if the options are invalid. */
export async function makeHost(name: HostName, options: HostOptions): Promise<void> {
  const { clientAddress, ...others } = { backendUrl: 'http://localhost:5104', ...options };
  if (name === 'server') createGatewayServer(others);
  else if (name === 'fetch') createFetchHandler({ clientAddress: clientAddress ?? (() => undefined), ...others });
  else if (name === 'node') createNodeHandler(others);
  else await Fastify().register(workItemGateway, others);
}

/** Starts a host that serves only the gateway, on a free port. */
export async function startHost(name: HostName, { clientAddress, ...options }: WithBackend) {
  if (name === 'server') {
    const server = createGatewayServer(options);
    const { port } = await server.listen(0, '127.0.0.1');
    return { port, close: () => server.close() };
  }
  if (name === 'fetch') return await startFetch({ ...options, ...(clientAddress && { clientAddress }) });
  if (name === 'node') return await startNode(options);
  const app = Fastify();
  await app.register(workItemGateway, options);
  await app.listen({ host: '127.0.0.1', port: 0 });
  return { port: (app.server.address() as AddressInfo).port, close: () => app.close() };
}

/** The fetch handler in a server for web-standard handlers: Hono's, on node:http. */
async function startFetch(options: FetchHandlerOptions) {
  const handler = createFetchHandler(options);
  // Shorter than Node's default, since some tests wait until an idle connection is closed.
  const serverOptions = { keepAliveTimeout: 3_000, keepAliveTimeoutBuffer: 0 };
  const server = serve({ fetch: handler, port: 0, hostname: '127.0.0.1', serverOptions });
  await once(server, 'listening');
  const close = async () => {
    server.close();
    if ('closeAllConnections' in server) server.closeAllConnections();
    await handler.close();
  };
  return { port: (server.address() as AddressInfo).port, close };
}

/** A host in front of a scripted backend that answers `{"id":5}`. `clientAddress` returns 127.0.0.1 for each client. */
export function serveHost(name: HostName, options: HostOptions = {}) {
  return beforeBackend(async ({ url }) => {
    const { told, observer } = createObserver();
    const outages: [what: string, cause: string | undefined][] = [];
    const onOutage = (what: string, cause: string | undefined) => outages.push([what, cause]);
    const own = { backendUrl: url, clientAddress: () => '127.0.0.1', observer: { ...observer, onOutage } };
    return { told, outages, ...(await startHost(name, { ...own, ...options })) };
  });
}
