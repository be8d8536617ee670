// The gateway as a Fastify plugin, for our own service and for anyone's server, and the server options that
// complete it. Fastify routes and runs the host's hooks; from the handler on it is gateway.ts and call.ts.

import type { IncomingMessage, Server } from 'node:http';
import type {
  FastifyInstance,
  FastifyPluginCallback,
  FastifyReply,
  FastifyRequest,
  FastifyServerOptions,
} from 'fastify';

import type { CallRecord } from './call.ts';
import type { Gateway, GatewayObserver } from './gateway.ts';
import { collectionPath } from './operations.ts';
import { createGateway, type GatewayLimits } from './options.ts';
import { outcomes } from './outcomes.ts';
import { absoluteForm, hasGoodEscapes } from './request-head.ts';
import { createGatewayServer, type GatewayServerOptions } from './server.ts';

export interface WorkItemGatewayOptions extends GatewayLimits {
  /** Is told of every request that ends. Default: failures go to the Fastify instance's logger. */
  readonly observer?: GatewayObserver;
}

// Servers made by gatewayServerOptions, and the gateway that answers what is no operation there.
const ownServers = new WeakMap<Server, { gateway: Gateway | undefined }>();

/**
 * Options for `Fastify()` that make the whole server the gateway's: unknown paths, malformed HTTP, bad
 * escapes and slow clients are answered as decisions D5, D27 and D35 say. Without them the plugin answers
 * what lies under `/api/work-items` and leaves everything else to its host.
 */
export function gatewayServerOptions(options: GatewayServerOptions = {}): FastifyServerOptions {
  return {
    logger: false,
    exposeHeadRoutes: false,
    return503OnClosing: false,
    forceCloseConnections: true,
    // Fastify sets these two on the server again, whoever made it.
    keepAliveTimeout: options.idleTimeoutMs ?? 72_000,
    requestTimeout: options.requestTimeoutMs ?? 30_000,
    serverFactory: (handler) => {
      const own: { gateway: Gateway | undefined } = { gateway: undefined };
      const server = createGatewayServer(options, own, handler);
      ownServers.set(server, own);
      return server;
    },
    clientErrorHandler(this: FastifyInstance, error, socket) {
      const gateway = ownServers.get(this.server)?.gateway;
      if (gateway === undefined) {
        socket.destroy();
      } else {
        gateway.handleClientError(error, socket, this.server);
      }
    },
    rewriteUrl(this: FastifyInstance, request) {
      const target = request.url ?? '';
      const hasGateway = ownServers.get(this.server)?.gateway !== undefined;
      const routable = hasGateway ? toRoutable(target) : target;
      if (routable !== target) {
        rewrittenTargets.set(request, target);
      }
      return routable;
    },
    // What Fastify cannot route, such as a target that it cannot read. No hook has run: it is no operation [D60].
    frameworkErrors: (_error, request, reply) => {
      const gateway = ownServers.get(request.server.server)?.gateway;
      reply.hijack();
      if (gateway === undefined) {
        reply.raw.writeHead(400).end();
      } else {
        gateway.handleUnrouted(takeBack(request), reply.raw);
      }
    },
  };
}

// Targets as they came, of the requests that Fastify has routed by another.
const rewrittenTargets = new WeakMap<IncomingMessage, string>();

// Fastify routes absolute-form by rules of its own, and nothing with a bad escape: no hook would run. So it gets the
// path, and an escape that cannot be decoded as the text that it is. Hooks see the path of the call in `request.url`.
function toRoutable(target: string): string {
  if (target.startsWith('/') && !target.includes('%')) {
    return target;
  }
  const originForm = target.replace(absoluteForm, '');
  const rooted = originForm === target || originForm.startsWith('/') ? originForm : `/${originForm}`;
  const pathEnd = rooted.search(/[?#]/);
  const path = pathEnd === -1 ? rooted : rooted.slice(0, pathEnd);
  return hasGoodEscapes(path) ? rooted : path.replaceAll('%', '%25') + rooted.slice(path.length);
}

/** The request with its own target: what is no id and what is no host is decided by that. */
function takeBack({ raw }: Pick<FastifyRequest, 'raw'>): IncomingMessage {
  const target = rewrittenTargets.get(raw);
  if (target !== undefined) {
    raw.url = target;
  }
  return raw;
}

/**
 * Serves the five operations under `/api/work-items`. Registering it fails with a `TypeError` that names every option
 * that is wrong, and in a server of HTTP/2.
 */
export const workItemGateway: FastifyPluginCallback<WorkItemGatewayOptions> = (fastify, options, done) => {
  const own = ownServers.get(fastify.server);
  let gateway: Gateway;
  try {
    if (fastify.initialConfig.http2 === true) {
      throw new TypeError('The gateway speaks HTTP/1.1: it cannot be mounted in a server with http2.');
    }
    gateway = createGateway(options, options.observer ?? logFailures(fastify.log), {
      // As Fastify joins them: a slash at the end of the prefix is that of the path.
      prefix: fastify.prefix.replace(/\/$/, ''),
      answersExpectations: own !== undefined,
    });
  } catch (error) {
    done(error as Error);
    return;
  }

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
  const handler = (request: FastifyRequest, reply: FastifyReply): void => {
    const inheritedHeaders = own === undefined ? flatten(reply.getHeaders()) : noHeaders;
    reply.hijack();
    gateway.handle(takeBack(request), reply.raw, inheritedHeaders);
  };
  fastify.route({ method, url: collectionPath, handler });
  fastify.route({ method, url: `${collectionPath}/*`, handler });
  if (own !== undefined) {
    own.gateway = gateway;
    // Hooks may let pass what Fastify found no route for.
    fastify.setNotFoundHandler((request, reply) => {
      reply.hijack();
      gateway.handleUnrouted(takeBack(request), reply.raw);
    });
    // Fastify's own would send the error's message [D28].
    fastify.setErrorHandler((error, request, reply) => {
      reply.hijack();
      gateway.handleFault(takeBack(request), reply.raw, error);
    });
  }
  fastify.addHook('onClose', async () => {
    gateway.isCutting = true;
    await gateway.backend.close();
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
      const { level, message } = outcomes[record.outcome];
      if (level === 'error') {
        log.error({ ...describe(record), err: record.cause }, message);
      } else if (level === 'warn') {
        log.warn({ ...describe(record), cause: record.cause }, message);
      }
    },
    onMalformed: () => undefined,
    onStall: () => undefined,
    onBug: (error, record) => {
      const details = record === undefined ? {} : describe(record);
      log.error({ ...details, err: error }, 'a fault of the gateway after its reply had begun');
    },
  };
}
