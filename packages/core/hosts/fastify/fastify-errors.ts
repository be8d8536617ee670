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
  if (error.code === 'FST_ERR_BAD_URL') {
    for (const routes of mounted.get(request.server.server) ?? []) {
      const { refusal } = route(method, url, routes);
      // Of a path that is nobody's, and of a method that is asked for what there is, Fastify says what it always does.
      if (refusal !== undefined && refusal.status >= 400 && refusal.status !== 404) {
        const given = request.headers['x-request-id'];
        const requestId = typeof given === 'string' && isRequestId(given) ? given : createRequestId();
        const fields = listReplyHeaders({
          head: refusal,
          added: [],
          requestId,
          length: refusal.body.length,
        });
        reply.code(refusal.status);
        for (let index = 0; index < fields.length; index += 2) {
          reply.header(fields[index] ?? '', fields[index + 1] ?? '');
        }
        reply.send(refusal.body as never);
        return;
      }
    }
  }
  reply.send(error as never);
}
