// The gateway as a node:http handler, `(request, response, next)`, for Express, Connect, NestJS and Node's own server. Node
// parses and writes HTTP. The call itself runs the same code as in the other hosts.

import type { IncomingMessage, ServerResponse } from 'node:http';

import { route } from '../../call/route.ts';
import type { GuardOptions } from '../../options/guard-options.ts';
import { HostMistake } from '../common/failure-lines.ts';
import { createHostGateway, hostRows } from '../common/host-gateway.ts';
import { corsRows, type CorsOptions } from '../../options/cors-options.ts';
import { handlerRows } from '../../options/host-options.ts';
import type { observerRows } from '../../options/observer-options.ts';
import type { GatewayLimits } from '../../options/gateway-options.ts';
import type { OptionsOf } from '../../options/rows.ts';
import { isHttp2, NodeExchange } from './node-exchange.ts';
import { createNodeHost } from './node-host.ts';

export interface NodeHandlerOptions
  extends GatewayLimits, CorsOptions, GuardOptions, OptionsOf<typeof handlerRows & typeof observerRows> {}

export interface NodeHandler {
  /**
   * Answers requests for `/api/work-items` and `/api/work-items/{id}`. Any other path goes to `next`, or gets 404 if `next`
   * is missing. Uses the path that the client sent (`originalUrl`), wherever the handler is mounted.
   */
  (request: IncomingMessage, response: ServerResponse, next?: (error?: unknown) => void): void;
  /** Closes the connections to the backend. Calls in flight and all later calls fail. Close the server first. */
  close(): Promise<void>;
  /** The same as `close`, for `await using`. */
  [Symbol.asyncDispose](): Promise<void>;
}

/** Creates a handler with its own connections to the backend. Throws a `TypeError` that lists every invalid option. */
export function createNodeHandler(options: NodeHandlerOptions): NodeHandler {
  const table = { ...handlerRows, ...hostRows, ...corsRows };
  const { gateway, values, end } = createHostGateway(options, table);
  const host = createNodeHost(gateway, values);
  // Every path with an operation has a reply to OPTIONS.
  const isOurs = (target: string): boolean =>
    target.startsWith('/') && route('OPTIONS', target, gateway.routeOptions).refusal?.status !== 404;
  const handler = (request: HostedRequest, response: ServerResponse, next?: (error?: unknown) => void): void => {
    const target = request.originalUrl ?? request.url ?? '';
    // A target in absolute form goes to `next`, because middleware may have read and checked another path [D60].
    if (next !== undefined && !isOurs(target)) {
      next();
      return;
    }
    // Middleware has replied already, and then called `next` by mistake.
    if (response.headersSent) return;
    const exchange = new NodeExchange(host, request, response, target);
    if (isHttp2(request)) {
      exchange.fail(
        new HostMistake('createNodeHandler supports only HTTP/1.1: use it in a server of node:http or node:https'),
      );
      return;
    }
    exchange.inTurn(() => {
      const incoming = exchange.accept(exchange.readHead());
      if (incoming !== undefined) exchange.start(incoming);
    });
  };
  return Object.assign(handler, { close: end, [Symbol.asyncDispose]: end });
}

/** Express and Connect strip the mount path from `url` and keep the original target in `originalUrl`. */
type HostedRequest = IncomingMessage & { readonly originalUrl?: string };
