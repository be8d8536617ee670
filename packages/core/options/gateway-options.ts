// The gateway's own options.

import type { CorsValues } from './cors-options.ts';
import { addressRanges, backendAddress, choice, hostNames, onlyInCode } from './kinds.ts';
import { callLimitRows } from './limits.ts';
import { Problem } from './problem.ts';
import type { OptionRow, OptionsOf, ValuesOf } from './rows.ts';

/** TLS of connections to a server. Certificates and key are PEM. The server's certificate is always verified [D40]. */
export interface ClientTls {
  /** Certificates of trusted authorities. Default: those that Node trusts. */
  readonly ca?: string | undefined;
  /** A client certificate and its private key, `key`. Set both or neither. */
  readonly cert?: string | undefined;
  readonly key?: string | undefined;
  /** The name that the server's certificate must have. Default: the host of the server's URL. */
  readonly serverName?: string | undefined;
}

const tlsNames = ['ca', 'cert', 'key', 'serverName'];

const backendTls = onlyInCode<ClientTls>((given: unknown) => {
  const isText = ([name, value]: [string, unknown]): boolean =>
    tlsNames.includes(name) && ['string', 'undefined'].includes(typeof value);
  return typeof given === 'object' && given !== null && Object.entries(given).every(isText)
    ? given
    : new Problem(`must be an object with ${tlsNames.join(', ')}, each a string`);
});

const ownRows = {
  backendUrl: { kind: backendAddress, isRequired: true },
  /**
   * TLS to an `https:` backend [D40]. PEM texts: `ca` (trusted authorities; default: Node's), `cert` and `key` (the
   * gateway's client certificate). `serverName`: the name required in the backend's certificate; default: the host in
   * `backendUrl`.
   */
  backendTls: { kind: backendTls },
  /**
   * Host names that requests may use, in addition to IP addresses, `localhost` and names under `.localhost`. A request
   * with any other name gets 403 [D57]. Default: any name is accepted.
   */
  allowedHosts: {
    kind: hostNames,
    default: '',
    help: 'Host names that requests may use; without a list, all names are accepted. For instance `items.example.com`. IP addresses, `localhost`, names under `.localhost` and {host} are always accepted. Ports are ignored. A request with any other `Host` gets 403, and one without a host name is served.',
  },
  /** `leading` (default) reads `12abc` as 12 and `1.5e+06` as 1; `whole` rejects both with 400 [D1, D3]. */
  itemIdParsing: {
    kind: choice('leading', 'whole'),
    default: 'leading',
    help: 'How an id is read; `leading` reads 12abc as 12 and 1.5e+06 as 1, `whole` rejects both with 400.',
  },
  /**
   * Addresses and ranges (CIDR) of proxies whose `x-forwarded-for` and `x-forwarded-host` are trusted [D52, D56].
   * Default: none.
   */
  trustedProxies: {
    kind: addressRanges,
    default: '',
    help: "Load balancers and proxies in front; for instance `10.0.0.0/8,192.168.1.7,2001:db8::/32`. For a connection from one of them, the client's address is the last address in `x-forwarded-for` that does not belong to such a proxy, and `x-forwarded-host` replaces `Host` in the check of a write's `Origin`.",
  },
} satisfies Readonly<Record<string, OptionRow>>;

// The type is spelt out, because an inferred type would lose the comments of the options in the published types.
export const gatewayRows: typeof ownRows & typeof callLimitRows = { ...ownRows, ...callLimitRows };

/** The options that all hosts share. The options of guards and of CORS have types of their own. */
export interface GatewayLimits extends OptionsOf<typeof gatewayRows> {
  /** The backend's base address, `http:` or `https:`; it may carry a base path. */
  readonly backendUrl: string | URL;
}

export function findBackendTlsProblems({
  backendTls: tls,
  backendUrl,
}: Partial<ValuesOf<typeof gatewayRows>>): string[] {
  if (tls === undefined) return [];
  if (backendUrl?.protocol !== 'https:') return ['backendTls needs an https address in backendUrl'];
  const { ca, cert, key } = tls;
  if ((cert === undefined) !== (key === undefined)) return ['backendTls needs both cert and key, or neither'];
  try {
    process.getBuiltinModule('node:tls').createSecureContext({ ca, cert, key });
    return [];
  } catch (error) {
    return [`backendTls cannot be used: ${(error as Error).message}`];
  }
}

/** The parsed options of a gateway. The CORS options are missing if the host leaves CORS to its framework. */
export type GatewayValues = ValuesOf<typeof gatewayRows> & Partial<CorsValues>;
