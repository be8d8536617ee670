// What a gateway can be given, and the gateway that comes of it. Defaults and bounds are in limits.ts.

import { backendUrlExample, wishesForBackendUrl } from './accepted-values.ts';
import { BackendClient } from '../../backend/client.ts';
import { BufferBudget } from '../../body/budget.ts';
import type { ClientTls, SocketTap } from '../../http1/client-connection.ts';
import { createTrustedProxies, isAddressRange } from '../../admission/client-address.ts';
import { anyOrigin } from '../../admission/cors.ts';
import { createCors, isOriginList, type CorsOptions } from './cors-options.ts';
import { parseHostNames } from '../../admission/host-names.ts';
import { suggest } from './similar.ts';
import { Gateway, type GatewayObserver } from '../../call/gateway.ts';
import type { Guard } from '../../call/guard.ts';
import type { ItemIdParsing } from '../../call/item-id.ts';
import { limits, limitsOf, type LimitName } from '../../call/limits.ts';
import { collectionPath } from '../../operations.ts';
import type { Tracer } from '../../call/tracer.ts';
import type { Peer } from '../../backend/describe-error.ts';

/** Where the backend is, who may call, and every limit. */
export interface GatewayLimits {
  /** The backend's base address, `http:` or `https:`; it may carry a base path. */
  readonly backendUrl: string | URL;
  /**
   * For an `https:` backend, all of it PEM text [D40]: `ca`, the authorities to trust; `cert` and `key`, a client's
   * certificate; `serverName`, the name that its certificate must have. Default: what Node trusts, the name in `backendUrl`.
   */
  readonly backendTls?: ClientTls;
  /**
   * The names under which clients call, beside IP addresses, `localhost` and names under `.localhost`; a request under
   * another one is 403 [D57]. Default: none, and then any name will do.
   */
  readonly allowedHosts?: readonly string[];
  /** `leading` (default): `12abc` is 12; `whole`: it is not an id [D1, D3]. */
  readonly itemIdParsing?: ItemIdParsing;
  /** Largest request body, in bytes [D11]. Default 10 MiB. */
  readonly requestBytesMax?: number;
  /** Largest answer that is passed through, in bytes [D18]. Default 64 MiB. */
  readonly responseBytesMax?: number;
  /** Bytes of bodies held at once, requests and answers together; past it 503. Default 1 GiB. */
  readonly bufferedBytesMax?: number;
  /** Calls under way at once; one more gets 503 [D26]. Default 1,024. */
  readonly inFlightMax?: number;
  /** From sending a call to the last byte of its answer, in milliseconds [D19]. Default 30,000. */
  readonly backendTimeoutMs?: number;
  /** For connecting to the backend, in milliseconds [D19]. Default 5,000. */
  readonly backendConnectTimeoutMs?: number;
  /** How long an idle connection to the backend is kept, in milliseconds. Default 4,000. */
  readonly backendIdleTimeoutMs?: number;
  /** How long a client may take no byte of its reply, in milliseconds [D35]. Default 30,000. */
  readonly replyStallTimeoutMs?: number;
  /**
   * Addresses and ranges (CIDR) of proxies whose `x-forwarded-for` says who the client is, for records and log [D52].
   * Default: none.
   */
  readonly trustedProxies?: readonly string[];
}

/** What whoever carries the calls puts around a gateway. */
export interface GatewaySurroundings {
  /** Is told of every request that ends. */
  readonly observer: GatewayObserver;
  /** Stands before `/api/work-items`. Default: nothing. */
  readonly prefix?: string;
  /** The names of options that are not the gateway's. Default: any name will do. */
  readonly otherNames?: readonly string[];
  /** What is wrong with the options that are not the gateway's. Default: nothing. */
  readonly problems?: readonly string[];
  /** Are asked in this order about requests of operations. Default: nobody is. */
  readonly guards?: readonly Guard[];
  /** Name of the header that tells the backend whom the guards have found [D48]. Default: it is not told. */
  readonly identityHeader?: string | undefined;
  /** Default: nothing is traced [D49]. */
  readonly tracer?: Tracer | undefined;
  /** How the user names the backend in causes of failures. */
  readonly peer?: Peer | undefined;
  /** Looks on at what arrives from the backend. Default: nothing does. */
  readonly tap?: SocketTap;
}

/**
 * A gateway with its own connections to the backend. Throws a `TypeError` that names every problem, every limit that
 * cannot be one, and every name that is known to nobody.
 */
export function createGateway(
  options: GatewayLimits & CorsOptions,
  {
    observer,
    prefix = '',
    otherNames,
    problems = [],
    guards = [],
    identityHeader,
    tracer,
    peer,
    tap,
  }: GatewaySurroundings,
): Gateway {
  checkOptions(options, otherNames, problems);
  const { requestBytesMax, inFlightMax, bufferedBytesMax, ...ofBackend } = limitsOf(options, callLimits);
  const budget = new BufferBudget(bufferedBytesMax);
  const backend = new BackendClient({
    backendUrl: new URL(options.backendUrl),
    tls: options.backendTls,
    timeoutMs: ofBackend.backendTimeoutMs,
    connectTimeoutMs: ofBackend.backendConnectTimeoutMs,
    idleTimeoutMs: ofBackend.backendIdleTimeoutMs,
    responseBytesMax: ofBackend.responseBytesMax,
    identityHeader,
    budget,
    peer,
    tap,
  });
  return new Gateway(
    {
      allowedHosts: (options.allowedHosts ?? []).flatMap((name) => parseHostNames(name) ?? []),
      itemIdParsing: options.itemIdParsing ?? 'leading',
      requestBytesMax,
      inFlightMax,
      trustedProxies: createTrustedProxies(options.trustedProxies ?? []),
      guards,
      cors: createCors(options, limitsOf(options, ['corsMaxAgeS']).corsMaxAgeS),
      tracer,
    },
    backend,
    budget,
    observer,
    prefix + collectionPath,
  );
}

const callLimits = [
  'requestBytesMax',
  'responseBytesMax',
  'bufferedBytesMax',
  'inFlightMax',
  'backendTimeoutMs',
  'backendConnectTimeoutMs',
  'backendIdleTimeoutMs',
  'replyStallTimeoutMs',
] as const satisfies readonly LimitName[];

const names: readonly string[] = [
  'backendUrl',
  'backendTls',
  'allowedHosts',
  'itemIdParsing',
  'trustedProxies',
  ...callLimits,
];

function checkOptions(
  options: GatewayLimits & CorsOptions,
  otherNames: readonly string[] | undefined,
  known: readonly string[],
): void {
  const wishes = wishesForBackendUrl(String(options.backendUrl));
  const problems = [...known];
  if (wishes.length > 0) {
    problems.push(`backendUrl must be ${wishes.join(' and ')}, ${backendUrlExample}`);
  }
  const { allowedHosts, backendTls, itemIdParsing, trustedProxies } = options;
  if (backendTls !== undefined) {
    problems.push(...findBackendTlsProblems(backendTls, String(options.backendUrl)));
  }
  if (allowedHosts !== undefined && !isListOf(allowedHosts, isHostName)) {
    problems.push('allowedHosts must be an array of host names without ports');
  }
  if (itemIdParsing !== undefined && !['leading', 'whole'].includes(itemIdParsing)) {
    problems.push("itemIdParsing must be 'leading' or 'whole'");
  }
  if (trustedProxies !== undefined && !isListOf(trustedProxies, isAddressRange)) {
    problems.push('trustedProxies must be a list of IP addresses and ranges such as 10.0.0.0/8');
  }
  problems.push(...checkCors(options));
  for (const [name, { min, max }] of Object.entries(limits)) {
    const value: unknown = Reflect.get(options, name);
    if (value !== undefined && !(Number.isInteger(value) && Number(value) >= min && Number(value) <= max)) {
      problems.push(`${name} must be a whole number from ${min} to ${max}`);
    }
  }
  const observer: unknown = Reflect.get(options, 'observer');
  if (observer !== undefined && !isObserver(observer)) {
    problems.push(`observer must be an object with the functions ${observerNames.join(', ')}`);
  }
  if (otherNames !== undefined) {
    const possible = [...names, ...otherNames];
    for (const name of Object.keys(options).filter((each) => !possible.includes(each))) {
      problems.push(`there is no ${name}${suggest(name, possible)}`);
    }
  }
  if (problems.length > 0) {
    throw new TypeError(`The gateway cannot be made: ${problems.join('; ')}.`);
  }
}

function checkCors({ corsOrigins, corsCredentials, corsMaxAgeS }: CorsOptions): string[] {
  const problems = [];
  const given: unknown = corsOrigins;
  const credentials: unknown = corsCredentials;
  const isList = given === undefined || (Array.isArray(given) && isOriginList(given));
  if (!isList) {
    problems.push("corsOrigins must be an array of origins such as https://app.example.com, or ['*']");
  }
  if (credentials !== undefined && typeof credentials !== 'boolean') {
    problems.push('corsCredentials must be true or false');
  }
  if (isList && credentials === true && corsOrigins?.includes(anyOrigin) === true) {
    problems.push('corsCredentials cannot be with the origin *');
  }
  const { standard } = limits.corsMaxAgeS;
  if ((corsOrigins ?? []).length === 0 && (credentials === true || (corsMaxAgeS ?? standard) !== standard)) {
    problems.push('corsCredentials and corsMaxAgeS need corsOrigins');
  }
  return problems;
}

function findBackendTlsProblems(tls: ClientTls, backendUrl: string): string[] {
  if (!backendUrl.startsWith('https:')) {
    return ['backendTls needs an https address in backendUrl'];
  }
  const values: Readonly<Record<string, unknown>> = { ...tls };
  const known = ['ca', 'cert', 'key', 'serverName'];
  if (!Object.entries(values).every(([name, value]) => known.includes(name) && isTextOrNone(value))) {
    return [`backendTls must be an object with ${known.join(', ')}, each a text`];
  }
  if ((tls.cert === undefined) !== (tls.key === undefined)) {
    return ['cert and key of backendTls belong together'];
  }
  try {
    const { ca, cert, key } = tls;
    process.getBuiltinModule('node:tls').createSecureContext({ ca, cert, key });
    return [];
  } catch (error) {
    return [`backendTls cannot be used: ${(error as Error).message}`];
  }
}

function isTextOrNone(value: unknown): boolean {
  return value === undefined || typeof value === 'string';
}

// One that lacks some would be told nothing, and nobody would be told of that.
const observerNames = ['onCallEnd', 'onMalformed', 'onStall', 'onBug'] satisfies (keyof GatewayObserver)[];

function isObserver(value: unknown): boolean {
  return (
    typeof value === 'object' &&
    value !== null &&
    observerNames.every((name) => typeof Reflect.get(value, name) === 'function') &&
    ['function', 'undefined'].includes(typeof Reflect.get(value, 'onOutage'))
  );
}

function isListOf(value: unknown, isOne: (each: unknown) => boolean): boolean {
  return Array.isArray(value) && value.every(isOne);
}

function isHostName(name: unknown): boolean {
  return typeof name === 'string' && parseHostNames(name)?.length === 1;
}
