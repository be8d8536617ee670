// Builds a gateway from the values of its options.

import type { Peer } from '../../backend/describe-error.ts';
import { BackendClient } from '../../backend/client.ts';
import { BufferBudget } from '../../body/budget.ts';
import { Gateway, type GatewayObserver } from '../../call/gateway.ts';
import type { Guard } from '../../call/guard.ts';
import type { Tracer } from '../../call/tracer.ts';
import type { OpenSocket } from '../../http1/backend-connection.ts';
import { collectionPath } from '../../operations.ts';
import { createTrustedProxies } from '../../options/address-ranges.ts';
import { corsRows, createCors } from '../../options/cors-options.ts';
import type { GatewayValues } from '../../options/gateway-options.ts';
import { createOpenSocket, tapSockets, type SocketTap } from '../dialing/open-socket.ts';

interface GatewaySurroundings {
  readonly observer: GatewayObserver;
  readonly prefix?: string | undefined;
  /** Called in this order for each request of an operation. Default: none. */
  readonly guards?: readonly Guard[];
  /** Header that passes the client's identity to the backend [D48]. Default: empty, and no header is sent. */
  readonly identityHeader?: string;
  readonly tracer?: Tracer | undefined;
  readonly peer?: Peer | undefined;
  /** Opens sockets to the backend. Default: a function with the options `backendUrl` and `backendTls`. */
  readonly open?: OpenSocket;
  /** Observes the bytes that arrive from the backend. Default: none. */
  readonly tap?: SocketTap;
  /** Shared with other gateways, whose bytes and calls count too. Default: a budget of `bufferedBytesMax`. */
  readonly budget?: BufferBudget;
}

export function createGateway(
  values: GatewayValues,
  { observer, prefix = '', guards = [], identityHeader = '', tracer, peer, tap, ...given }: GatewaySurroundings,
): Gateway {
  const { backendUrl, backendTls: tls } = values;
  const { budget = new BufferBudget(values.bufferedBytesMax), open = createOpenSocket(backendUrl, () => tls) } = given;
  const backend = new BackendClient({
    backendUrl,
    open: tap === undefined ? open : tapSockets(open, tap),
    timeoutMs: values.backendTimeoutMs,
    connectTimeoutMs: values.backendConnectTimeoutMs,
    idleTimeoutMs: values.backendIdleTimeoutMs,
    connectionAgeMaxMs: values.backendConnectionAgeMaxMs,
    responseBytesMax: values.responseBytesMax,
    identityHeader: identityHeader === '' ? undefined : identityHeader,
    budget,
    peer,
  });
  return new Gateway(
    {
      ...values,
      trustedProxies: createTrustedProxies(values.trustedProxies),
      guards,
      cors: createCors(values, values.corsMaxAgeS ?? corsRows.corsMaxAgeS.default),
      tracer,
    },
    backend,
    budget,
    observer,
    prefix + collectionPath,
  );
}
