// The gateway as a handler for node:http, `(request, response, next)`: for Express, Connect, NestJS, and Node's own server.
// Node reads and writes HTTP; from the request's head on it is the same call as everywhere.

import type { IncomingMessage, ServerResponse } from 'node:http';

import type { GuardOptions } from '../../guards/options/guard-options.ts';
import { HostMistake } from '../common/failure-lines.ts';
import { createHostGateway, hostRows } from '../common/host-gateway.ts';
import { corsRows, type CorsOptions } from '../options/cors-options.ts';
import { observer, prefix } from '../options/host-options.ts';
import { timeLimitRows } from '../options/limits.ts';
import type { GatewayLimits } from '../options/options.ts';
import type { OptionsOf } from '../options/rows.ts';
import { NodeExchange } from './node-exchange.ts';
import { createNodeHost } from './node-host.ts';

const nodeRows = {
  /** What stands before `/api/work-items` in the path that the client sends. Default: nothing. */
  prefix: { kind: prefix },
  /** For a request's body, in milliseconds; past it 408, and closed [D35]. Default 30,000. */
  requestTimeoutMs: timeLimitRows.requestTimeoutMs,
  /** Is told of every request that ends. Default: each failure is a line of `console.error`. */
  observer: { kind: observer },
};

export interface NodeHandlerOptions
  extends GatewayLimits, CorsOptions, GuardOptions, OptionsOf<typeof nodeRows> {}

export interface NodeHandler {
  /**
   * Answers a request under `/api/work-items`. Any other goes to `next`, or gets 404 where there is no `next`. The path is
   * the one that the client sent (`originalUrl`), wherever the handler is mounted.
   */
  (request: IncomingMessage, response: ServerResponse, next?: (error?: unknown) => void): void;
  /** Closes the connections to the backend; calls in flight fail, and so does every later one. Close the server first. */
  close(): Promise<void>;
}

/** A handler with its own connections to the backend. Throws a `TypeError` that names every option that is wrong. */
export function createNodeHandler(options: NodeHandlerOptions): NodeHandler {
  const table = { ...nodeRows, ...hostRows, ...corsRows };
  const { gateway, values, end } = createHostGateway(options, table);
  const host = createNodeHost(gateway, values);
  const { collectionPath } = gateway.routeOptions;
  const isOurs = (target: string): boolean =>
    target.startsWith(collectionPath) && ['', '/', '?'].includes(target.charAt(collectionPath.length));
  const handler = (
    request: HostedRequest,
    response: ServerResponse,
    next?: (error?: unknown) => void,
  ): void => {
    const target = request.originalUrl ?? request.url ?? '';
    // Middleware reads some absolute-form targets in another way, so it may not have seen this path [D60].
    if (next !== undefined && !isOurs(target)) {
      next();
      return;
    }
    // The host has refused the request, and called `next` by mistake.
    if (response.headersSent) {
      return;
    }
    const exchange = new NodeExchange(host, request, response, target);
    if (request.httpVersionMajor !== 1) {
      exchange.fail(
        new HostMistake('createNodeHandler speaks HTTP/1.1: put it into a server of node:http or node:https'),
      );
      return;
    }
    exchange.inTurn(() => {
      const incoming = exchange.accept(exchange.readHead());
      if (incoming !== undefined) {
        exchange.start(incoming);
      }
    });
  };
  return Object.assign(handler, { close: end });
}

/** Express and Connect take from `url` what they have mounted a handler under, and keep what was sent in `originalUrl`. */
type HostedRequest = IncomingMessage & { readonly originalUrl?: string };
