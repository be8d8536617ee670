// The fetch handler in a server for web-standard handlers that people use: Hono's, on node:http.

import { once } from 'node:events';
import type { AddressInfo } from 'node:net';
import { serve, type ServerType } from '@hono/node-server';
import { createFetchHandler, type FetchHandlerOptions } from '../../packages/core/hosts/fetch/fetch.ts';

/** A server with nothing but the handler in it, on a free port. */
export async function serveFetchHandler(options: FetchHandlerOptions) {
  const handler = createFetchHandler(options);
  const server: ServerType = serve({
    fetch: handler,
    port: 0,
    hostname: '127.0.0.1',
    // Tests that wait for the end of a connection wait no longer.
    serverOptions: { keepAliveTimeout: 3_000, keepAliveTimeoutBuffer: 0 },
  });
  await once(server, 'listening');
  return {
    port: (server.address() as AddressInfo).port,
    handler,
    stop: async () => {
      server.close();
      if ('closeAllConnections' in server) {
        server.closeAllConnections();
      }
      await handler.close();
    },
  };
}
