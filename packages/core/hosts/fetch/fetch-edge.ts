// Replaces `work-item-gateway/fetch` in browsers and on edge runtimes, which have no sockets. Their `fetch` cannot call the
// backend, because it adds headers, follows redirects, decompresses, and hides malformed answers [D15, D22, D23].

import { withCode } from '../common/gateway-error.ts';
import type { createFetchHandler as create } from './fetch.ts';

/** Throws an `Error`, because the backend cannot be reached from this runtime. */
export const createFetchHandler: typeof create = () => {
  throw withCode(
    'ERR_GATEWAY_RUNTIME',
    new Error(
      'The gateway needs sockets, which this runtime does not have: run it on Node.js, Bun or Deno. ' +
        "In Next.js, add `export const runtime = 'nodejs'` to the route.",
    ),
  );
};
