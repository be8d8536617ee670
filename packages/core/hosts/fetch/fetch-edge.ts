// What `work-item-gateway/fetch` is where there are no sockets: on edge runtimes. Their own `fetch` is no way to the
// backend: it adds headers, follows redirects, decompresses, and says nothing of a malformed answer [D16, D23].

import type { createFetchHandler as create } from './fetch.ts';

/** Throws: there is no way to the backend here. */
export const createFetchHandler: typeof create = () => {
  throw new Error(
    'The gateway needs sockets, which this runtime does not have: run it on Node.js, Bun or Deno. ' +
      "In Next.js a route does so with `export const runtime = 'nodejs'`.",
  );
};
