// Replies to requests whose id has a malformed escape (`/api/work-items/%zz`). Fastify refuses such a request before
// any hook or route runs, so only the server's `frameworkErrors` function sees it. No operation is called [D60].

import { createRequestId, isRequestId } from '../../call/request-context.ts';
import { route, type RouteOptions } from '../../call/route.ts';
import { listReplyHeaders } from '../common/fields.ts';

// The gateways mounted in each server.
const mounted = new WeakMap<object, RouteOptions[]>();

/** Registers a gateway that is mounted in `server`, so that `frameworkErrors` finds it. */
export function noteMounted(server: object, routes: RouteOptions): void {
  const others = mounted.get(server) ?? [];
  mounted.set(server, [...others, routes]);
}

/** The parts of a Fastify request that this file uses. Every type of server has them. */
interface UnroutedRequest {
  readonly raw: { readonly method?: string | undefined; readonly url?: string | undefined };
  readonly headers: Readonly<Record<string, unknown>>;
  readonly server: { readonly server: object };
}

/** The parts of a Fastify reply that this file uses. */
interface UnroutedReply {
  code(status: number): unknown;
  header(name: string, value: string): unknown;
  // The payload is `never`, because Fastify's own type depends on schemas, which are not used here.
  readonly send: (payload: never) => unknown;
}

/**
 * For the option `frameworkErrors` of a Fastify server. If the router cannot decode a target under a gateway's path, the
 * client gets the gateway's reply. Any other error gets Fastify's own reply.
 */
export function frameworkErrors(
  error: { readonly code: string },
  request: UnroutedRequest,
  reply: UnroutedReply,
): void {
  const { method = '', url = '' } = request.raw;
  const gateways = error.code === 'FST_ERR_BAD_URL' ? (mounted.get(request.server.server) ?? []) : [];
  const refusal = gateways
    .map((routes) => route(method, url, routes).refusal)
    // Unknown paths and OPTIONS keep Fastify's own reply.
    .find((each) => each !== undefined && each.status >= 400 && each.status !== 404);
  if (refusal === undefined) {
    reply.send(error as never);
    return;
  }
  const given = request.headers['x-request-id'];
  const requestId = typeof given === 'string' && isRequestId(given) ? given : createRequestId();
  const { status, body } = refusal;
  const fields = listReplyHeaders({ head: refusal, added: [], requestId, body });
  reply.code(status);
  for (let index = 0; index < fields.length; index += 2) {
    reply.header(fields[index] ?? '', fields[index + 1] ?? '');
  }
  reply.send(body as never);
}
