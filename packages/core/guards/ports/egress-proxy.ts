// The proxy for requests to the issuer of tokens and to the collector of traces: the proxy that Node itself uses, if the
// variable NODE_USE_ENV_PROXY is 1. Calls to the backend and to Redis use no proxy.

import type { Agent, ProxyEnv } from 'node:http';

/** Returns the variables that name Node's proxy. Undefined if Node uses no proxy, or cannot (before 22.21 and 24.5). */
export function findProxyEnv(globalAgent: Agent): ProxyEnv | undefined {
  // Node passes this option to its global agents. A program can also set it, by `http.setGlobalProxyFromEnv`.
  const { options } = globalAgent as { readonly options?: { readonly proxyEnv?: ProxyEnv } };
  return options?.proxyEnv;
}
