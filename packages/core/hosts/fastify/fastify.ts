// The gateway as a Fastify plugin. Fastify reads requests, routes them and runs the host's hooks; from the handler on it
// is the same call as everywhere. Without a hook of the host having run nothing here is ever reached [D60].

import type { IncomingMessage } from 'node:http';
import type { FastifyPluginCallback, FastifyReply, FastifyRequest } from 'fastify';

import type { CallRecord } from '../../call/call-record.ts';
import type { GatewayObserver } from '../../call/gateway.ts';
import { isRequestId } from '../../call/request-context.ts';
import { outageTexts } from '../../guards/options/outages.ts';
import type { GuardOptions } from '../../guards/options/guard-options.ts';
import { collectionPath, operations, type Operation } from '../../operations.ts';
import { outcomes } from '../../outcomes.ts';
import { createHostGateway, hostRows, type HostGateway } from '../common/host-gateway.ts';
import { stopListening } from '../common/listen.ts';
import { HeldBody } from '../node/held-body.ts';
import { NodeExchange } from '../node/node-exchange.ts';
import { createNodeHost } from '../node/node-host.ts';
import type { RouteSchemas } from '../openapi/route-schemas.ts';
import { corsRows } from '../options/cors-options.ts';
import { observer } from '../options/host-options.ts';
import { msMax } from '../options/kinds.ts';
import { limitRows, shutdownTimeoutRow, timeLimitRows } from '../options/limits.ts';
import type { GatewayLimits } from '../options/options.ts';
import { defaultsOf, type OptionsOf } from '../options/rows.ts';
import { noteMounted } from './fastify-errors.ts';
import { OpenRequests } from './open-requests.ts';

const pluginRows = {
  /** For a request's body, in milliseconds; past it 408, and closed [D35]. Default 30,000. */
  requestTimeoutMs: timeLimitRows.requestTimeoutMs,
  /** How long `app.close()` waits for calls in flight, in milliseconds [D55]. Default 10,000. */
  shutdownTimeoutMs: shutdownTimeoutRow,
  /** Is told of every request that ends. Default: failures go to `request.log`. */
  observer: { kind: observer },
};

export interface WorkItemGatewayOptions extends GatewayLimits, GuardOptions, OptionsOf<typeof pluginRows> {}

const table = { ...hostRows, ...pluginRows };

/**
 * Serves the five operations under `/api/work-items`. Registering it fails with a `TypeError` that names every option
 * that is wrong, and in a server of HTTP/2.
 */
export const workItemGateway: FastifyPluginCallback<WorkItemGatewayOptions> = (fastify, options, done) => {
  let made: HostGateway<typeof table>;
  const logs = new WeakMap<object, Log>();
  try {
    if (fastify.initialConfig.http2 === true) {
      throw new TypeError('The gateway speaks HTTP/1.1: it cannot be mounted in a server with http2.');
    }
    made = createHostGateway(options, table, {
      createObserver: () => logFailures(fastify.log, logs),
      // As Fastify joins them: a slash at the end of the prefix is that of the path.
      prefix: fastify.prefix.replace(/\/$/, ''),
      // Fastify has these for every plugin.
      otherNames: ['prefix', 'logLevel', 'logSerializers'],
    });
  } catch (error) {
    done(error as Error);
    return;
  }
  const { gateway, guards, values, end } = made;
  noteMounted(fastify.server, gateway.routeOptions);
  const host = createNodeHost(gateway, values);

  // The bytes decide, never the content-type [D10]: Fastify must neither parse a body nor refuse its type. Hooks may want
  // to know that, so it is another only while Fastify looks at it. A body is whole before the hooks behind its parsing
  // run, as is usual in Fastify; what hooks have put in its place counts.
  const contentTypes = new WeakMap<IncomingMessage, string | undefined>();
  const bodies = new WeakMap<FastifyRequest, HeldBody>();
  const openRequests = new OpenRequests();
  fastify.removeAllContentTypeParsers();
  fastify.addHook('preParsing', (request, reply, payload, next) => {
    const { raw } = request;
    openRequests.add(raw.socket, reply.raw, () => {
      // Its head may have a flaw, a hook may have refused it, or the client may have left before its turn came.
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
    restoreContentType(raw, contentTypes.get(raw));
    const body = new HeldBody(host);
    bodies.set(request, body);
    if (payload.readableDidRead) {
      request.log.warn('a preParsing hook has read the body and passed nothing on: the request has none');
    }
    body.gather(payload, raw, (error) => {
      parsed(error ?? null);
    });
  });
  fastify.addHook('preValidation', ({ raw }, _reply, next) => {
    // Of a request without a body.
    if (contentTypes.has(raw)) {
      restoreContentType(raw, contentTypes.get(raw));
    }
    next();
  });

  const handler = (request: FastifyRequest, reply: FastifyReply): void => {
    const inheritedHeaders = flatten(reply.getHeaders());
    reply.hijack();
    const { raw, id } = request;
    // A host may have rewritten the target for its router.
    const exchange = new NodeExchange(host, raw, reply.raw, raw.url ?? '', inheritedHeaders);
    exchange.inTurn(() => {
      const body = bodies.get(request);
      // Fastify's own id, a count, is no id elsewhere [D25].
      const givesId = raw.headers['x-request-id'] === undefined && isRequestId(id) && !countedId.test(id);
      const head = exchange.readHead(givesId ? id : undefined);
      // What hooks have left of the body counts, and not what was announced.
      const incoming = exchange.accept(
        'reason' in head || body === undefined ? head : { ...head, bodyLength: body.announcedLength(head) },
      );
      if (incoming !== undefined) {
        logs.set(incoming, request.log);
        exchange.start(incoming, body);
      }
    });
  };
  if (guards !== undefined) {
    fastify.addHook('onReady', () => guards.start());
  }
  // Routes have no schema: Fastify would validate and serialise by it. What `@fastify/swagger` shows is given to it alone.
  let schemas: RouteSchemas | undefined;
  if (fastify.hasDecorator('swagger')) {
    fastify.addHook('onReady', async () => {
      const { createRouteSchemas } = await import('../openapi/route-schemas.ts');
      schemas = createRouteSchemas(
        // What this host has not is at its default; CORS is its own affair, and so off.
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

  // Fastify closes connections while large replies are still on their way, and all of them where it is told to; so it is
  // kept waiting for as long as it lets a hook take, and goes on waiting for those that it does not close. [D55]
  let timer: NodeJS.Timeout | undefined;
  const cut = (): Promise<void> => {
    clearTimeout(timer);
    return end();
  };
  fastify.addHook('preClose', async () => {
    gateway.isDraining = true;
    const startedAt = performance.now();
    timer = setTimeout(() => {
      // What waits for the backend has its reply then; the others wait for their clients.
      void cut().then(() =>
        setTimeout(() => {
          openRequests.cut();
        }, lastReplyMs),
      );
    }, values.shutdownTimeoutMs);
    // Now, and not when calls have ended: new ones would come for as long as there is load. The server's own `close`,
    // which comes next, calls back when the connections that there are have closed, as ever.
    if (fastify.server.listening) {
      await stopListening(fastify.server);
    }
    const hookMs = fastify.initialConfig.pluginTimeout ?? 0;
    const limitMs = hookMs === 0 ? msMax : hookMs - Math.min(hookMarginMs, hookMs / 2);
    await openRequests.end(Math.max(0, limitMs - (performance.now() - startedAt)));
  });
  fastify.addHook('onClose', cut);
  done();
};

// What `fastify-plugin` would say of it: its name, and which Fastify it is for. It stays in a scope of its own.
Object.assign(workItemGateway, {
  [Symbol.for('plugin-meta')]: { name: 'work-item-gateway', fastify: '>=5.0.0 <6' },
  [Symbol.for('fastify.display-name')]: 'work-item-gateway',
});

const lastReplyMs = 50;
const hookMarginMs = 250;

// Of these Fastify reads no body, and no content-type.
const bodyless: ReadonlySet<string | undefined> = new Set(['GET', 'HEAD', 'TRACE']);

function restoreContentType({ headers }: IncomingMessage, contentType: string | undefined): void {
  if (contentType === undefined) {
    delete headers['content-type'];
  } else {
    headers['content-type'] = contentType;
  }
}

const countedId = /^req-[0-9a-z]+$/;

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

interface Log {
  info: (message: string) => void;
  warn: (details: object, message: string) => void;
  error: (details: object, message: string) => void;
}

/** Failures, each in the log of its request; what belongs to none goes to `serverLog`. */
function logFailures(serverLog: Log, logs: WeakMap<object, Log>): GatewayObserver {
  const logOf = (record: CallRecord): Log => logs.get(record) ?? serverLog;
  const describe = (record: CallRecord) => {
    const { requestId, operation, path, http, subject, agent, status, outcome } = record;
    return { requestId, operation: operation?.name, path, http, subject, agent, status, outcome };
  };
  return {
    onCallEnd: (record) => {
      const { level, message } = outcomes[record.outcome];
      if (level === 'error') {
        logOf(record).error({ ...describe(record), err: record.cause }, message);
      } else if (level === 'warn') {
        logOf(record).warn({ ...describe(record), cause: record.cause }, message);
      }
    },
    onMalformed: () => undefined,
    onStall: () => undefined,
    onBug: (error, record) => {
      const details = record === undefined ? {} : describe(record);
      const log = record === undefined ? serverLog : logOf(record);
      log.error({ ...details, err: error }, 'a fault of the gateway after its reply had begun');
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
