// The gateway as a Fastify plugin. Fastify parses requests, routes them and runs the host's hooks. No call starts
// before the hooks have run [D60]. The call itself runs the same code as in the other hosts.

import type { IncomingMessage } from 'node:http';
import type { Socket } from 'node:net';
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';

import type { CallRecord } from '../../call/call-record.ts';
import type { GatewayObserver } from '../../call/gateway.ts';
import { isRequestId } from '../../call/request-context.ts';
import { outageTexts } from '../../guards/ports/ports.ts';
import type { GuardOptions } from '../../options/guard-options.ts';
import { collectionPath, operations, type Operation } from '../../operations.ts';
import { outcomes } from '../../outcomes.ts';
import { HostReplied } from '../common/failure-lines.ts';
import { mergeField } from '../common/fields.ts';
import { withCode } from '../common/gateway-error.ts';
import { createHostGateway, hostRows, type HostGateway } from '../common/host-gateway.ts';
import { stopListening } from '../common/listen.ts';
import { startDeadline } from '../common/process-deadline.ts';
import { HeldBody } from '../node/held-body.ts';
import { dropField, NodeExchange, type HostReply } from '../node/node-exchange.ts';
import { createNodeHost } from '../node/node-host.ts';
import type { RouteSchemas } from '../openapi/route-schemas.ts';
import { corsRows } from '../../options/cors-options.ts';
import { msMax } from '../../options/kinds.ts';
import { limitRows, shutdownTimeoutRow, timeLimitRows } from '../../options/limits.ts';
import type { observerRows } from '../../options/observer-options.ts';
import type { GatewayLimits } from '../../options/gateway-options.ts';
import { defaultsOf, type OptionsOf } from '../../options/rows.ts';
import { noteMounted } from './fastify-errors.ts';
import { OpenRequests } from './open-requests.ts';

const pluginRows = {
  /** Timeout for a request body, in milliseconds. A late body gets 408, and the connection closes [D35]. Default 30,000. */
  requestTimeoutMs: timeLimitRows.requestTimeoutMs,
  /** Time in ms that `app.close()` waits for calls in flight. Calls that take longer are cut [D55]. Default 10,000. */
  shutdownTimeoutMs: shutdownTimeoutRow,
};

export interface WorkItemGatewayOptions
  extends GatewayLimits, GuardOptions, OptionsOf<typeof pluginRows & typeof observerRows> {}

const table = { ...hostRows, ...pluginRows };

/** Every Fastify server and plugin scope. Described here, so that the types need no installed Fastify. */
interface FastifyScope {
  readonly prefix: string;
  readonly server: object;
}

/**
 * Serves the five operations under `/api/work-items`. Registering fails with a `TypeError` that lists every invalid
 * option. Registering also fails on an HTTP/2 server.
 */
export function workItemGateway(
  scope: FastifyScope,
  options: WorkItemGatewayOptions,
  done: (error?: Error) => void,
): void {
  const fastify = scope as FastifyInstance;
  let made: HostGateway<typeof table>;
  const logs = new WeakMap<object, Log>();
  try {
    if (fastify.initialConfig.http2 === true) {
      const text = 'The gateway supports only HTTP/1.1: it cannot be mounted in a server with http2.';
      throw withCode('ERR_GATEWAY_HOST', new TypeError(text));
    }
    made = createHostGateway(options, table, {
      createLog: () => logFailures(fastify.log, logs),
      // Drops a slash at the end of the prefix, as Fastify does, because the path after the prefix starts with a slash.
      prefix: fastify.prefix.replace(/\/$/, ''),
      // Fastify accepts these options for every plugin.
      otherNames: ['prefix', 'logLevel', 'logSerializers'],
    });
  } catch (error) {
    done(error as Error);
    return;
  }
  const { gateway, guards, values, end } = made;
  noteMounted(fastify.server, gateway.routeOptions);
  const host = createNodeHost(gateway, values);

  // The gateway ignores `content-type` [D10], so Fastify must neither parse a body nor refuse its type. While Fastify
  // checks the header, a valid type replaces the original. Then the original is restored, because hooks may need it. As
  // usual in Fastify, a body is complete before `preValidation` and later hooks run.
  const contentTypes = new WeakMap<IncomingMessage, string | undefined>();
  const restoreContentType = (raw: IncomingMessage): void => {
    const contentType = contentTypes.get(raw);
    if (contentType !== undefined) {
      raw.headers['content-type'] = contentType;
    } else if (contentTypes.has(raw)) {
      delete raw.headers['content-type'];
    }
  };
  const bodies = new WeakMap<FastifyRequest, HeldBody>();
  const openRequests = new OpenRequests();
  fastify.removeAllContentTypeParsers();
  fastify.addHook('preParsing', (request, reply, payload, next) => {
    const { raw } = request;
    noteSend(reply);
    openRequests.add(raw.socket, reply.raw, () => {
      // The body is still buffered if the head was malformed, a hook refused the request, or the client left early.
      bodies.get(request)?.drop();
    });
    if (!bodyless.has(raw.method)) {
      contentTypes.set(raw, raw.headers['content-type']);
      raw.headers['content-type'] = 'application/json';
    }
    next(null, payload);
  });
  fastify.addContentTypeParser('*', (request, payload, parsed) => {
    const { raw } = request;
    restoreContentType(raw);
    const body = new HeldBody(host);
    bodies.set(request, body);
    body.gather(payload, raw, (error) => parsed(error ?? null));
  });
  fastify.addHook('preValidation', ({ raw }, _reply, next) => {
    // If the request has no body, the parser did not run, so the header is restored here.
    restoreContentType(raw);
    next();
  });

  const handler = (request: FastifyRequest, reply: FastifyReply): void => {
    const { raw, id } = request;
    // `raw.url` is the target that Fastify's router used: the rewritten target if the host sets `rewriteUrl`.
    const exchange = new NodeExchange(host, raw, reply.raw, raw.url ?? '', new PluginReply(reply));
    exchange.inTurn(() => {
      const body = bodies.get(request);
      // Fastify's default id is not used: it is a counter, so it is not unique outside this process [D25].
      const givesId = raw.headers['x-request-id'] === undefined && isRequestId(id) && !countedId.test(id);
      const head = exchange.readHead(givesId ? id : undefined);
      // Hooks may have changed the body, so the length comes from the body, not from `content-length`.
      const incoming = exchange.accept(
        'reason' in head || body === undefined ? head : { ...head, bodyLength: body.announcedLength },
      );
      if (incoming !== undefined) {
        logs.set(incoming, request.log);
        exchange.start(incoming, body);
      }
    });
  };
  if (guards !== undefined) fastify.addHook('onReady', () => guards.start());
  // Routes have no schema, because Fastify would validate and serialize with it. Only `@fastify/swagger` gets schemas.
  let schemas: RouteSchemas | undefined;
  if (fastify.hasDecorator('swagger')) {
    fastify.addHook('onReady', async () => {
      const { createRouteSchemas } = await import('../openapi/route-schemas.ts');
      schemas = createRouteSchemas(
        // For limits that this host does not have, the schemas show the defaults. CORS is off, because the app handles it.
        { ...defaultsOf({ ...limitRows, ...corsRows }), ...values },
        fastify.prefix,
      );
    });
  }
  const shown = (operation: Operation | undefined) => ({
    swaggerTransform: ({ url }: { readonly url: string }) =>
      operation === undefined || schemas === undefined
        ? { schema: { hide: true }, url }
        : { schema: schemas(operation), url: url.replace('*', ':id') },
  });
  for (const [on, url] of [
    ['collection', collectionPath],
    ['item', `${collectionPath}/*`],
  ] as const) {
    const here = operations.filter((operation) => operation.on === on);
    for (const operation of here) {
      const { method } = operation;
      fastify.route({ method, url, handler, exposeHeadRoute: false, config: shown(operation) });
    }
    const others = fastify.supportedMethods.filter((name) => !here.some(({ method }) => method === name));
    fastify.route({ method: others, url, handler, config: shown(undefined) });
  }

  // At shutdown, Fastify closes connections on which a large reply is still being sent; with `forceCloseConnections` it
  // closes all connections. The `preClose` hook makes Fastify wait until the requests have ended, or until shortly
  // before `pluginTimeout`, Fastify's limit for a hook [D55]. A connection with an incomplete request head would delay
  // the shutdown without limit. So `openRequests` knows every connection, and the timer below cuts those that are still
  // open. `closeAllConnections` would leave TLS handshakes and upgraded connections open.
  fastify.server.on('connection', (socket: Socket) => openRequests.watch(socket));
  let callOff = (): void => undefined;
  const cut = (): Promise<void> => {
    callOff();
    return end();
  };
  fastify.addHook('preClose', async () => {
    gateway.isDraining = true;
    const startedAt = performance.now();
    callOff = startDeadline(values.shutdownTimeoutMs, () => {
      // After `cut`, calls that wait for the backend fail with 500. `lastReplyMs` later, all open connections are cut.
      void cut().then(() => {
        callOff = startDeadline(lastReplyMs, () => openRequests.cut());
      });
    });
    // Stops listening before Fastify closes the server, because under load new calls would never stop arriving.
    if (fastify.server.listening) await stopListening(fastify.server);
    const hookMs = fastify.initialConfig.pluginTimeout ?? 0;
    const limitMs = hookMs === 0 ? msMax : hookMs - Math.min(hookMarginMs, hookMs / 2);
    await openRequests.end(Math.max(0, limitMs - (performance.now() - startedAt)));
  });
  fastify.addHook('onClose', cut);
  done();
}

// Sets the same metadata as `fastify-plugin`, which is not used because it would break encapsulation.
Object.assign(workItemGateway, {
  [Symbol.for('plugin-meta')]: { name: 'work-item-gateway', fastify: '>=5.0.0 <6' },
  [Symbol.for('fastify.display-name')]: 'work-item-gateway',
});

const lastReplyMs = 50;
const hookMarginMs = 250;

// Methods for which Fastify reads neither body nor content-type.
const bodyless: ReadonlySet<string | undefined> = new Set(['GET', 'HEAD', 'TRACE']);

const countedId = /^req-[0-9a-z]+$/;

// Sends through Fastify, so that its hooks run, such as `onSend`, and its option `handlerTimeout` applies.
class PluginReply implements HostReply {
  readonly #reply: FastifyReply;

  constructor(reply: FastifyReply) {
    this.#reply = reply;
  }

  getHeader(name: string): ReturnType<HostReply['getHeader']> {
    return this.#reply.getHeader(name);
  }

  get isTaken(): boolean {
    return this.#reply.sent || begun.has(this.#reply);
  }

  send(status: number, headers: readonly string[], body: Buffer): void {
    const reply = this.#reply;
    for (const name of ['transfer-encoding', 'connection'] as const) {
      if (reply.hasHeader(name)) reply.removeHeader(name);
      dropField(reply.raw, name);
    }
    reply.code(status);
    for (let index = 0; index < headers.length; index += 2) {
      const name = headers[index] ?? '';
      reply.header(name, mergeField(name, headers[index + 1] ?? '', reply));
    }
    reply.send(body.length === 0 ? undefined : body);
  }
}

// Replies that have been sent. While they wait for an `onSend` hook, Fastify's `sent` is false.
const begun = new WeakSet<FastifyReply>();

function noteSend(reply: FastifyReply): void {
  const send = reply.send.bind(reply);
  reply.send = (payload) => {
    begun.add(reply);
    return send(payload);
  };
}

interface Log {
  info: (message: string) => void;
  warn: (details: object, message: string) => void;
  error: (details: object, message: string) => void;
}

/** Creates an observer that logs each failure with its request's logger, or with `serverLog` if there is no request. */
function logFailures(serverLog: Log, logs: WeakMap<object, Log>): GatewayObserver {
  const logOf = (record: CallRecord): Log => logs.get(record) ?? serverLog;
  const describe = (record: CallRecord) => {
    const { requestId, operation, path, http, subject, agent, status, outcome } = record;
    return { requestId, operation: operation?.name, path, http, subject, agent, status, outcome };
  };
  return {
    onCallEnd: (record) => {
      const { level, message } = outcomes[record.outcome];
      if (level !== 'info') {
        logOf(record)[level]({ ...describe(record), [level === 'error' ? 'err' : 'cause']: record.cause }, message);
      } else if (record.cause instanceof HostReplied) {
        logOf(record).warn(describe(record), record.cause.message);
      }
    },
    onMalformed: () => undefined,
    onStall: () => undefined,
    onBug: (error, record) => {
      const details = record === undefined ? {} : describe(record);
      const log = record === undefined ? serverLog : logOf(record);
      log.error({ ...details, err: error }, 'internal error after the reply had begun');
    },
    onOutage: (what, cause) => {
      const { ends, begins } = outageTexts[what];
      if (cause === undefined) {
        serverLog.info(ends);
      } else {
        serverLog.error({ cause }, begins);
      }
    },
  };
}
