// The codes of the errors that hosts throw at developers. Errors of the OS keep the code of the OS.

/**
 * - `ERR_GATEWAY_OPTIONS`: the options are invalid
 * - `ERR_GATEWAY_KEYS`: `authJwksFile` has no keys
 * - `ERR_GATEWAY_LISTEN`: the server cannot listen, or `listen` was called twice
 * - `ERR_GATEWAY_CLOSED`: the server was closed
 * - `ERR_GATEWAY_REQUEST`: the fetch handler got something other than a `Request`
 * - `ERR_GATEWAY_RUNTIME`: the runtime has no sockets
 * - `ERR_GATEWAY_HOST`: a mistake in the code of the host, or in its setup
 */
export type GatewayErrorCode =
  `ERR_GATEWAY_${'OPTIONS' | 'KEYS' | 'LISTEN' | 'CLOSED' | 'REQUEST' | 'RUNTIME' | 'HOST'}`;

export function withCode<E extends Error>(code: GatewayErrorCode, error: E): E & { readonly code: GatewayErrorCode } {
  return Object.assign(error, { code });
}
