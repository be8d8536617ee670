// The reply to an id with a malformed escape (`/api/work-items/%zz`), which Fastify refuses before any hook or route: no
// plugin hears of it, but for a function that the server is made with. Nothing here ever calls an operation [D60].

import { createRequestId, isRequestId } from '../../call/request-context.ts';
import { route, type RouteOptions } from '../../call/route.ts';
import { listReplyHeaders } from '../common/fields.ts';

// What each server has mounted.
const mounted = new WeakMap<object, RouteOptions[]>();

/** Has `frameworkErrors` of `server` know that a gateway is mounted there. */
export function noteMounted(server: object, routes: RouteOptions): void {
  const others = mounted.get(server) ?? [];
  mounted.set(server, [...others, routes]);
}

/** What is asked of Fastify's requests and replies, whichever server it is over. */
interface UnroutedRequest {
  readonly raw: { readonly method?: string | undefined; readonly url?: string | undefined };
  readonly headers: Readonly<Record<string, unknown>>;
  readonly server: { readonly server: object };
}

interface UnroutedReply {
  code(status: number): unknown;
  header(name: string, value: string): unknown;
  // Its types are for schemas, of which there are none here.
  readonly send: (payload: never) => unknown;
}

/**
 * For the option `frameworkErrors` of a Fastify server: what its router cannot read under the paths of a gateway gets the
 * gateway's reply, anything else Fastify's own.
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
  const fields = listReplyHeaders({ head: refusal, added: [], requestId, length: body.length });
  reply.code(status);
  for (let index = 0; index < fields.length; index += 2) {
    reply.header(fields[index] ?? '', fields[index + 1] ?? '');
  }
  reply.send(body as never);
}
