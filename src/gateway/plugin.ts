// The gateway as a Fastify plugin, for our own service and for anyone's server, and the server options that
// complete it. Fastify routes and runs the host's hooks; from the handler on it is gateway.ts and call.ts.

import type { IncomingMessage, Server, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import type {
  FastifyInstance,
  FastifyPluginCallback,
  FastifyReply,
  FastifyRequest,
  FastifyServerOptions,
} from 'fastify';

import { Arrivals } from './arrivals.ts';
import type { CallRecord } from './call.ts';
import { GatheredBody, isUntouched } from './gathered-body.ts';
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

/** A server made by gatewayServerOptions, and what answers there what is no operation. */
interface OwnServer {
  mounted: { readonly gateway: Gateway; readonly arrivals: Arrivals } | undefined;
}

const ownServers = new WeakMap<Server, OwnServer>();

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
      const own: OwnServer = { mounted: undefined };
      const handleConnect = (socket: Socket): void => {
        answerLast(own, socket, (gateway) => {
          gateway.handleConnect(socket);
        });
      };
      const server = createGatewayServer(options, { gateway: { handleConnect } }, handler);
      ownServers.set(server, own);
      return server;
    },
    clientErrorHandler(this: FastifyInstance, error, socket) {
      answerLast(ownServers.get(this.server), socket, (gateway) => {
        gateway.handleClientError(error, socket, this.server);
      });
    },
    rewriteUrl(this: FastifyInstance, request) {
      const target = request.url ?? '';
      const isMounted = ownServers.get(this.server)?.mounted !== undefined;
      const routable = isMounted ? toRoutable(target) : target;
      if (routable !== target) {
        rewrittenTargets.set(request, target);
      }
      return routable;
    },
    // What Fastify cannot route, such as a target that it cannot read. No hook has run: it is no operation [D60].
    frameworkErrors: (_error, request, reply) => {
      const mounted = ownServers.get(request.server.server)?.mounted;
      reply.hijack();
      if (mounted === undefined) {
        reply.raw.writeHead(400).end();
      } else {
        mounted.arrivals.inTurn(request.raw, () => {
          mounted.gateway.handleUnrouted(takeBack(request), reply.raw);
        });
      }
    },
  };
}

// Bytes that are no request are answered behind the requests that came before them.
function answerLast(own: OwnServer | undefined, socket: Socket, act: (gateway: Gateway) => void): void {
  const mounted = own?.mounted;
  if (mounted === undefined) {
    socket.destroy();
  } else {
    mounted.arrivals.afterRequests(socket, () => {
      act(mounted.gateway);
    });
  }
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

  // eslint-disable-next-line @typescript-eslint/unbound-method -- looked for, not called
  const { routing } = fastify;
  const arrivals = new Arrivals((server) => server.listeners('request').includes(routing), own !== undefined);
  const inTurn = (
    request: FastifyRequest,
    reply: FastifyReply,
    act: (raw: IncomingMessage) => void,
  ): void => {
    reply.hijack();
    arrivals.inTurn(request.raw, () => {
      act(takeBack(request));
    });
  };

  // The bytes decide, never the content-type [D10]: Fastify must neither parse a body nor refuse its type. Hooks may
  // want to know that, so it is another only while Fastify looks at it.
  fastify.removeAllContentTypeParsers();
  const contentTypes = new WeakMap<IncomingMessage, string | undefined>();
  fastify.addHook('preParsing', ({ raw }, _reply, payload, next) => {
    if (!bodyless.has(raw.method)) {
      contentTypes.set(raw, raw.headers['content-type']);
      raw.headers['content-type'] = 'application/json';
    }
    next(null, payload);
  });
  const gatheredBodies = new WeakMap<IncomingMessage, GatheredBody>();
  fastify.addContentTypeParser('*', ({ raw }, payload, parsed) => {
    const contentType = contentTypes.get(raw);
    if (contentType === undefined) {
      delete raw.headers['content-type'];
    } else {
      raw.headers['content-type'] = contentType;
    }
    if (isUntouched(raw, payload)) {
      parsed(null);
      return;
    }
    const body = new GatheredBody(raw, payload, gateway.options.requestBytesMax, gateway.budget);
    body.isContinued = continuations.get(raw)?.isSent === true;
    gatheredBodies.set(raw, body);
    arrivals.whenOver(raw, () => body.destroy());
    body.gather((refusal) => {
      parsed(refusal ?? null);
    });
  });
  if (own !== undefined) {
    fastify.addHook('onRequest', ({ raw }, reply, next) => {
      if (raw.headers.expect?.toLowerCase() === '100-continue' && raw.httpVersionMinor > 0) {
        continuations.set(raw, new Continuation(raw, reply.raw));
      }
      next();
    });
  }

  const method = fastify.supportedMethods;
  const handler = (request: FastifyRequest, reply: FastifyReply): void => {
    const inheritedHeaders = own === undefined ? flatten(reply.getHeaders()) : noHeaders;
    continuations.get(request.raw)?.stop();
    inTurn(request, reply, (raw) => {
      gateway.handle(raw, reply.raw, inheritedHeaders, gatheredBodies.get(raw));
    });
  };
  fastify.route({ method, url: collectionPath, handler });
  fastify.route({ method, url: `${collectionPath}/*`, handler });
  if (own !== undefined) {
    own.mounted = { gateway, arrivals };
    // Hooks may let pass what Fastify found no route for.
    fastify.setNotFoundHandler((request, reply) => {
      inTurn(request, reply, (raw) => {
        gateway.handleUnrouted(raw, reply.raw);
      });
    });
    fastify.setErrorHandler((error, request, reply) => {
      if (isRefusal(error, reply)) {
        // To the next error handler: the host's, or Fastify's own.
        void reply.send(error);
      } else {
        // That would send the error's message [D28].
        inTurn(request, reply, (raw) => {
          gateway.handleFault(raw, reply.raw, error);
        });
      }
    });
  }
  fastify.addHook('onClose', async () => {
    arrivals.stop();
    gateway.isCutting = true;
    await gateway.backend.close();
  });
  done();
};

// Of these Fastify reads no body, and no content-type.
const bodyless: ReadonlySet<string | undefined> = new Set(['GET', 'HEAD', 'TRACE']);

/** Sends the 100 that a client waits for when a hook begins to read its body: otherwise that is the call's to decide. */
class Continuation {
  isSent = false;
  readonly #request: IncomingMessage;
  readonly #response: ServerResponse;

  constructor(request: IncomingMessage, response: ServerResponse) {
    this.#request = request;
    this.#response = response;
    request.on('newListener', this.#onListener);
  }

  readonly #onListener = (event: string | symbol): void => {
    if (event === 'data' || event === 'readable') {
      this.stop();
      this.isSent = true;
      this.#response.writeContinue();
    }
  };

  stop(): void {
    this.#request.off('newListener', this.#onListener);
  }
}

const continuations = new WeakMap<IncomingMessage, Continuation>();

/** Whether a hook has said which status its error is to have. */
function isRefusal(error: unknown, reply: FastifyReply): boolean {
  const { statusCode, status } = Object(error) as {
    readonly statusCode?: unknown;
    readonly status?: unknown;
  };
  const meant = [statusCode, status, reply.statusCode].find(
    (each) => typeof each === 'number' && each >= 400 && each <= 599,
  );
  return meant !== undefined && meant !== 500;
}

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
    path: record.path,
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
