// The gateway as a Fastify plugin, for our own service and for anyone's server, and the server options that
// complete it. Fastify routes and runs the host's hooks; from the handler on it is gateway.ts and call.ts.

import { createServer, type Server } from 'node:http';
import type { FastifyInstance, FastifyPluginCallback, FastifyReply, FastifyServerOptions } from 'fastify';

import { BackendClient } from '../backend/client.ts';
import { BufferBudget } from '../buffer-budget.ts';
import type { CallRecord } from './call.ts';
import { ClientConnection } from './client-connection.ts';
import { Gateway, type GatewayObserver } from './gateway.ts';
import type { ItemIdParsing } from './item-id.ts';
import { collectionPath } from './operations.ts';

export interface WorkItemGatewayOptions {
  /** The backend's base address, `http:` or `https:`; it may carry a base path. */
  readonly backendUrl: string | URL;
  /** `leading` (default): `12abc` is 12; `whole`: it is not an id [D1, D3]. */
  readonly itemIdParsing?: ItemIdParsing;
  /** Largest request body, in bytes [D11]. Default 10 MiB. */
  readonly requestBytesMax?: number;
  /** Largest answer that is passed through, in bytes [D18]. Default 64 MiB. */
  readonly responseBytesMax?: number;
  /** Bytes of bodies held at once, requests and answers together; past it 503. Default 1 GiB. */
  readonly bufferedBytesMax?: number;
  /** Calls under way at once; one more gets 503 [D26]. Default 1,024. */
  readonly inFlightMax?: number;
  /** From sending a call to the last byte of its answer, in milliseconds [D19]. Default 30,000. */
  readonly backendTimeoutMs?: number;
  /** For connecting to the backend, in milliseconds [D19]. Default 5,000. */
  readonly backendConnectTimeoutMs?: number;
  /** How long an idle connection to the backend is kept, in milliseconds. Default 4,000. */
  readonly backendIdleTimeoutMs?: number;
  /** How long a client may take no byte of its reply, in milliseconds [D35]. Default 30,000. */
  readonly replyStallTimeoutMs?: number;
  /** Is told of every request that ends. Default: failures go to the Fastify instance's logger. */
  readonly observer?: GatewayObserver;
}

export interface GatewayServerOptions {
  /** For a request's head, in milliseconds [D35]. Default 10,000. */
  readonly requestHeadersTimeoutMs?: number;
  /** Largest request head, in bytes; past it 431 [D27]. Default 16,384. */
  readonly requestHeadBytesMax?: number;
  /** For a request's head and body together, in milliseconds [D35]. Default 30,000. */
  readonly requestTimeoutMs?: number;
  /** Between two requests of a connection, in milliseconds [D35]. Default 72,000. */
  readonly idleTimeoutMs?: number;
}

// Servers made by gatewayServerOptions, and the gateway that answers what is no operation there.
const ownServers = new WeakMap<Server, { gateway: Gateway | undefined }>();
const timeoutCheckIntervalMs = 250;

/**
 * Options for `Fastify()` that make the whole server the gateway's: unknown paths, malformed HTTP, bad
 * escapes and slow clients are answered as decisions D5, D27 and D35 say. Without them the plugin answers
 * what lies under `/api/work-items` and leaves everything else to its host.
 */
export function gatewayServerOptions(options: GatewayServerOptions = {}): FastifyServerOptions {
  const {
    requestHeadBytesMax = 16_384,
    requestHeadersTimeoutMs = 10_000,
    requestTimeoutMs = 30_000,
    idleTimeoutMs = 72_000,
  } = options;
  return {
    logger: false,
    exposeHeadRoutes: false,
    return503OnClosing: false,
    forceCloseConnections: true,
    keepAliveTimeout: idleTimeoutMs,
    requestTimeout: requestTimeoutMs,
    serverFactory: (handler) => {
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
        handler,
      );
      // No header may be dropped unseen: a second Host could hide behind the limit [D27].
      server.maxHeadersCount = 0;
      const own: { gateway: Gateway | undefined } = { gateway: undefined };
      ownServers.set(server, own);
      // Both are decided in call.ts, with everything else about a request.
      server.on('checkContinue', handler);
      server.on('checkExpectation', handler);
      server.on('connect', (_request, socket) => own.gateway?.handleConnect(socket));
      return server;
    },
    clientErrorHandler(this: FastifyInstance, error, socket) {
      const gateway = ownServers.get(this.server)?.gateway;
      if (gateway === undefined) {
        socket.destroy();
      } else {
        gateway.handleClientError(error, socket);
      }
    },
    // A malformed escape: where it stands in an id it is 400 like any other bad id [D1].
    frameworkErrors: (_error, request, reply) => {
      const gateway = ownServers.get(request.server.server)?.gateway;
      if (gateway === undefined) {
        reply.raw.writeHead(400).end();
      } else {
        reply.hijack();
        gateway.handle(request.raw, reply.raw);
      }
    },
  };
}

/** Serves the five operations under `/api/work-items`. */
export const workItemGateway: FastifyPluginCallback<
  WorkItemGatewayOptions & { readonly onMounted?: (gateway: Gateway) => void }
> = (fastify, options, done) => {
  const own = ownServers.get(fastify.server);
  const budget = new BufferBudget(options.bufferedBytesMax ?? 1_073_741_824);
  const backend = new BackendClient({
    backendUrl: new URL(options.backendUrl),
    timeoutMs: options.backendTimeoutMs ?? 30_000,
    connectTimeoutMs: options.backendConnectTimeoutMs ?? 5_000,
    idleTimeoutMs: options.backendIdleTimeoutMs ?? 4_000,
    responseBytesMax: options.responseBytesMax ?? 67_108_864,
    budget,
  });
  const gateway = new Gateway(
    {
      itemIdParsing: options.itemIdParsing ?? 'leading',
      requestBytesMax: options.requestBytesMax ?? 10_485_760,
      inFlightMax: options.inFlightMax ?? 1_024,
      replyStallTimeoutMs: options.replyStallTimeoutMs ?? 30_000,
    },
    backend,
    budget,
    options.observer ?? logFailures(fastify.log),
    (fastify.prefix === '/' ? '' : fastify.prefix) + collectionPath,
    own !== undefined,
  );
  options.onMounted?.(gateway);

  // The bytes decide, never the content-type [D10]: Fastify must neither parse a body nor refuse its type.
  fastify.removeAllContentTypeParsers();
  fastify.addContentTypeParser('*', (_request, _payload, parsed) => {
    parsed(null);
  });
  fastify.addHook('onRequest', (request, _reply, next) => {
    request.raw.headers['content-type'] = 'application/json';
    next();
  });

  const method = fastify.supportedMethods;
  const handler = (request: { raw: FastifyReply['request']['raw'] }, reply: FastifyReply): void => {
    const inheritedHeaders = own === undefined ? flatten(reply.getHeaders()) : noHeaders;
    reply.hijack();
    gateway.handle(request.raw, reply.raw, inheritedHeaders);
  };
  fastify.route({ method, url: collectionPath, handler });
  fastify.route({ method, url: `${collectionPath}/*`, handler });
  if (own !== undefined) {
    own.gateway = gateway;
    fastify.setNotFoundHandler(handler);
    // Fastify's own would send the error's message [D28].
    fastify.setErrorHandler((error, request, reply) => {
      reply.hijack();
      gateway.handleFault(request.raw, reply.raw, error);
    });
  }
  fastify.addHook('onClose', async () => {
    await backend.close();
  });
  done();
};

const noHeaders: readonly string[] = [];
// Ours on every reply [D24]; a host's hook does not replace them.
const ownHeaders = new Set([
  'content-type',
  'content-length',
  'cache-control',
  'x-content-type-options',
  'x-request-id',
  'transfer-encoding',
  'connection',
]);

// Headers that the host's hooks have set, such as those of CORS.
function flatten(headers: ReturnType<FastifyReply['getHeaders']>): readonly string[] {
  const flat: string[] = [];
  for (const [name, value] of Object.entries(headers)) {
    if (value !== undefined && !ownHeaders.has(name)) {
      for (const each of Array.isArray(value) ? value : [value]) {
        flat.push(name, String(each));
      }
    }
  }
  return flat;
}

function logFailures(log: {
  warn: (details: object, message: string) => void;
  error: (details: object, message: string) => void;
}): GatewayObserver {
  const describe = (record: CallRecord) => ({
    requestId: record.requestId,
    operation: record.operation?.name,
    status: record.status,
    outcome: record.outcome,
  });
  return {
    onCallEnd: (record) => {
      if (record.outcome === 'bug') {
        log.error({ ...describe(record), err: record.cause }, 'a fault of the gateway');
      } else if (record.cause !== undefined) {
        log.warn({ ...describe(record), cause: record.cause }, 'backend call failed');
      }
    },
    onMalformed: () => undefined,
    onBug: (error, record) => {
      log.error({ ...describe(record), err: error }, 'a fault of the gateway after its reply had begun');
    },
  };
}

/** The connections of a server made by gatewayServerOptions, for the drain [D33]. */
export function trackConnections(server: Server): Set<ClientConnection> {
  const connections = new Set<ClientConnection>();
  server.on('connection', (socket) => {
    const connection = ClientConnection.of(socket);
    connections.add(connection);
    socket.once('close', () => connections.delete(connection));
  });
  return connections;
}
