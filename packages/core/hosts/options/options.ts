// The gateway's own options, and the gateway that comes of them.

import type { Peer } from '../../backend/describe-error.ts';
import { BackendClient } from '../../backend/client.ts';
import { BufferBudget } from '../../body/budget.ts';
import { createTrustedProxies } from '../../admission/client-address.ts';
import { Gateway, type GatewayObserver } from '../../call/gateway.ts';
import type { Guard } from '../../call/guard.ts';
import type { Tracer } from '../../call/tracer.ts';
import type { ClientTls, SocketTap } from '../../http1/client-connection.ts';
import { collectionPath } from '../../operations.ts';
import { corsRows, createCors, type CorsValues } from './cors-options.ts';
import { addressRanges, backendAddress, choice, hostNames, type ValueKind } from './kinds.ts';
import { callLimitRows } from './limits.ts';
import { Problem } from './problem.ts';
import type { OptionRow, OptionsOf, ValuesOf } from './rows.ts';

const tlsNames = ['ca', 'cert', 'key', 'serverName'];

const backendTls: ValueKind<ClientTls> = {
  accept: (given: unknown) =>
    isClientTls(given) ? given : new Problem(`must be an object with ${tlsNames.join(', ')}, each a text`),
};

function isClientTls(given: unknown): given is ClientTls {
  return (
    typeof given === 'object' &&
    given !== null &&
    Object.entries(given).every(
      ([name, value]) => tlsNames.includes(name) && ['string', 'undefined'].includes(typeof value),
    )
  );
}

const ownRows = {
  backendUrl: { kind: backendAddress, isRequired: true },
  /**
   * For an `https:` backend, all of it PEM text [D40]: `ca`, the authorities to trust; `cert` and `key`, a client's
   * certificate; `serverName`, the name that its certificate must have. Default: what Node trusts, the name in `backendUrl`.
   */
  backendTls: { kind: backendTls },
  /**
   * The names under which clients call, beside IP addresses, `localhost` and names under `.localhost`; a request under
   * another one is 403 [D57]. Default: none, and then any name will do.
   */
  allowedHosts: {
    kind: hostNames,
    default: '',
    help: 'Names under which clients may call; without any, all are right. For instance `items.example.com`: then a request whose `Host` is no IP address, not `localhost`, no name under `.localhost`, not {host} and none of these is answered with 403, whatever its port. A request without a name is served.',
  },
  /** `leading` (default): `12abc` is 12; `whole`: it is not an id [D1, D3]. */
  itemIdParsing: {
    kind: choice('leading', 'whole'),
    default: 'leading',
    help: 'How an id is read; `leading` takes 12abc for 12, `whole` answers it with 400.',
  },
  /**
   * Addresses and ranges (CIDR) of proxies whose `x-forwarded-for` says who the client is, for records and log [D52].
   * Default: none.
   */
  trustedProxies: {
    kind: addressRanges,
    default: '',
    help: "Load balancers and proxies in front; for instance `10.0.0.0/8,192.168.1.7,2001:db8::/32`. Where one of them calls, the client's address is what their `x-forwarded-for` says, read from the right up to the first address that is not theirs. From nobody else is that header read.",
  },
} satisfies Readonly<Record<string, OptionRow>>;

// By name, so that comments of options stay in the published types.
export const gatewayRows: typeof ownRows & typeof callLimitRows = { ...ownRows, ...callLimitRows };

/** Where the backend is, who may call, and every limit. */
export interface GatewayLimits extends OptionsOf<typeof gatewayRows> {
  /** The backend's base address, `http:` or `https:`; it may carry a base path. */
  readonly backendUrl: string | URL;
}

/** What is wrong with `backendTls` for that address. */
export function findBackendTlsProblems({
  backendTls: tls,
  backendUrl,
}: Partial<ValuesOf<typeof gatewayRows>>): string[] {
  if (tls === undefined) {
    return [];
  }
  if (backendUrl?.protocol !== 'https:') {
    return ['backendTls needs an https address in backendUrl'];
  }
  const { ca, cert, key } = tls;
  if ((cert === undefined) !== (key === undefined)) {
    return ['cert and key of backendTls belong together'];
  }
  try {
    process.getBuiltinModule('node:tls').createSecureContext({ ca, cert, key });
    return [];
  } catch (error) {
    return [`backendTls cannot be used: ${(error as Error).message}`];
  }
}

/** What whoever carries the calls puts around a gateway. */
export interface GatewaySurroundings {
  /** Is told of every request that ends. */
  readonly observer: GatewayObserver;
  /** Stands before `/api/work-items`. Default: nothing. */
  readonly prefix?: string | undefined;
  /** Are asked in this order about requests of operations. Default: nobody is. */
  readonly guards?: readonly Guard[];
  /** Name of the header that tells the backend whom the guards have found [D48]; empty (default) for none. */
  readonly identityHeader?: string;
  /** Default: nothing is traced [D49]. */
  readonly tracer?: Tracer | undefined;
  /** How the user names the backend in causes of failures. */
  readonly peer?: Peer | undefined;
  /** Looks on at what arrives from the backend. Default: nothing does. */
  readonly tap?: SocketTap;
}

/** What a gateway is made of. A host without CORS of its own leaves that out. */
export type GatewayValues = ValuesOf<typeof gatewayRows> & Partial<CorsValues>;

/** A gateway with its own connections to the backend. */
export function createGateway(
  values: GatewayValues,
  { observer, prefix = '', guards = [], identityHeader = '', tracer, peer, tap }: GatewaySurroundings,
): Gateway {
  const budget = new BufferBudget(values.bufferedBytesMax);
  const backend = new BackendClient({
    backendUrl: values.backendUrl,
    tls: values.backendTls,
    timeoutMs: values.backendTimeoutMs,
    connectTimeoutMs: values.backendConnectTimeoutMs,
    idleTimeoutMs: values.backendIdleTimeoutMs,
    responseBytesMax: values.responseBytesMax,
    identityHeader: identityHeader === '' ? undefined : identityHeader,
    budget,
    peer,
    tap,
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
