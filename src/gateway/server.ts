// The HTTP server of clients: the limits that Node keeps for us, and what it hands over that is no ordinary
// request. What becomes of a request is the business of whoever listens.

import type { RequestListener, Server } from 'node:http';
import type { Socket } from 'node:net';

import { createServer } from '../node-http.ts';
import { ClientConnections } from './client-connections.ts';
import type { Gateway } from './gateway.ts';
import { parseInPortions } from './portions.ts';

export interface GatewayServerOptions {
  /** For a request's head, in milliseconds [D35]. Default 10,000. */
  readonly requestHeadersTimeoutMs?: number;
  /** Largest request head, in bytes; past it 431 [D27]. Default 16,384. */
  readonly requestHeadBytesMax?: number;
  /** For a request's head and body together, in milliseconds [D35]. Default 30,000. */
  readonly requestTimeoutMs?: number;
  /** Between two requests of a connection, in milliseconds [D35]. Default 72,000. */
  readonly idleTimeoutMs?: number;
  /** Connections open at once; past it those longest at rest make room, or the newcomer is closed [D26]. Default 10,000. */
  readonly connectionsMax?: number;
}

const timeoutCheckIntervalMs = 250;
const connectionsOfServers = new WeakMap<Server, ClientConnections>();

/** A server with those limits, not yet listening; `gateway` may be set later, before the first connection. */
export function createGatewayServer(
  options: GatewayServerOptions,
  own: { readonly gateway: Pick<Gateway, 'handleConnect'> | undefined },
  onRequest: RequestListener,
): Server {
  const {
    requestHeadBytesMax = 16_384,
    requestHeadersTimeoutMs = 10_000,
    requestTimeoutMs = 30_000,
    idleTimeoutMs = 72_000,
    connectionsMax = 10_000,
  } = options;
  const server = createServer(
    {
      // Checked by request-head.ts, so that the reply is ours.
      requireHostHeader: false,
      insecureHTTPParser: false,
      maxHeaderSize: requestHeadBytesMax,
      noDelay: true,
      headersTimeout: Math.min(requestHeadersTimeoutMs, requestTimeoutMs),
      requestTimeout: requestTimeoutMs,
      keepAliveTimeout: idleTimeoutMs,
      keepAliveTimeoutBuffer: 0,
      // Node looks at its time limits only so often, by default every 30 s [D35].
      connectionsCheckingInterval: timeoutCheckIntervalMs,
    } as Parameters<typeof createServer>[0],
    onRequest,
  );
  // No header may be dropped unseen: a second Host could hide behind the limit [D27].
  server.maxHeadersCount = 0;
  // Both are decided in call.ts, with everything else about a request.
  server.on('checkContinue', onRequest);
  server.on('checkExpectation', onRequest);
  // eslint-disable-next-line @typescript-eslint/no-unsafe-class-instance-assignment -- a server of net has no others
  server.on('connect', (_request, socket) => own.gateway?.handleConnect(socket as Socket));
  // A head that has begun within the idle time has its own time to come.
  const connections = new ClientConnections(connectionsMax, idleTimeoutMs + requestHeadersTimeoutMs);
  connectionsOfServers.set(server, connections);
  server.on('connection', (socket) => {
    connections.admit(socket);
    if (!socket.destroyed) {
      parseInPortions(socket);
    }
  });
  return server;
}

/** The connections of a server made here, for the drain and the figures. */
export function connectionsOf(server: Server): ClientConnections {
  const connections = connectionsOfServers.get(server);
  if (connections === undefined) {
    throw new Error('the server was not made here');
  }
  return connections;
}
