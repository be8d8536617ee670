// THE settings table. Flags, environment variables, defaults, checks, `--help` and docs/settings.md all come
// from these rows [D32]; nothing else in the project reads the environment.

import { readFileSync } from 'node:fs';
import { isIPv6 } from 'node:net';
import { availableParallelism } from 'node:os';
import { parseEnv } from 'node:util';

import {
  backendUrlExample,
  quoteIfPlain,
  wishesForBackendUrl,
} from '../../core/hosts/options/accepted-values.ts';
import { limits, msMax, type LimitName } from '../../core/call/limits.ts';
import {
  hasFiles,
  readCertificateSet,
  readFileTexts,
  type CertificateFiles,
  type CertificateUse,
  type NamedFile,
} from '../certificates/certificates.ts';
import { parseAddressRanges } from '../../core/admission/client-address.ts';
import { anyOrigin, parseOrigins } from '../../core/admission/cors.ts';
import { parseHostNames } from '../../core/admission/host-names.ts';
import { rateGrammar } from '../../core/guards/rate-limit/rate.ts';
import { joinWithOr, suggest } from '../../core/hosts/options/similar.ts';
import { parseExporterHeaders, samplerNames } from '../traces/trace-settings.ts';
import { Problem } from '../../core/hosts/options/problem.ts';
import {
  findRateProblems,
  parseRateText,
  parseRedisUrl,
  showRedisUrl,
} from '../../core/hosts/options/rate-settings.ts';
import {
  findTokenProblems,
  parseAlgorithms,
  parseClaimName,
  parseIdentityHeader,
  parseKeysUrl,
  parseScopes,
  parseWord,
  parseWords,
} from '../../core/hosts/options/token-settings.ts';
import { findMissingPackages } from './optional-packages.ts';

export const commandNames = ['serve', 'dev', 'backend', 'check', 'openapi', 'health'] as const;

export type Command = (typeof commandNames)[number];

/** What settings stand together in the help and in docs/settings.md, in this order. */
export const settingGroups = {
  listening: {
    title: 'Listening',
    introduction:
      'Clients and operators have a listener each. A port that is in use ends the start; no other one is tried.',
  },
  guards: {
    title: 'Who may call',
    introduction: 'Which names, proxies and pages of other sites are let in.',
  },
  cors: {
    title: 'Pages of other origins (CORS)',
    introduction:
      'Which browser applications may call. Without these settings none of another origin may; other clients need none of them. How to set them up is in [security.md](security.md#cors).',
  },
  tls: {
    title: 'TLS',
    introduction:
      'Certificates are PEM files. All of them are read again while the gateway runs, so that new ones need no restart: [security.md](security.md) has a worked example of each.',
  },
  rateLimit: {
    title: 'Rate limit',
    introduction:
      'How many requests each client may make; off unless `RATE_LIMIT` is set. How it counts is in [security.md](security.md#rate-limit).',
  },
  tokens: {
    title: 'Tokens',
    introduction:
      'Off until `AUTH_ISSUER` is set; then every operation needs a valid token. How they work together is in [security.md](security.md#tokens).',
  },
  processes: {
    title: 'Processes',
    introduction:
      'How many processes serve clients, and where settings can stand that are to be read again while they run. Workers are described in [operating.md](operating.md).',
  },
  backend: {
    title: 'Backend',
    introduction: 'Where the work items are, and how an id becomes part of the address.',
  },
  limits: {
    title: 'Limits',
    introduction: 'What clients and the backend can make the gateway hold.',
  },
  timeLimits: {
    title: 'Time limits',
    introduction:
      'All in milliseconds. The first three are towards the backend, the others towards clients. How they fit together with those of a load balancer and of the backend is in [operating.md](operating.md).',
  },
  pages: {
    title: 'Dashboard and API reference',
    introduction: 'What the gateway shows of itself, to operators and to clients.',
  },
  shutdown: { title: 'Shutdown', introduction: 'How the process ends.' },
  log: { title: 'Log', introduction: 'What goes to standard output.' },
  traces: {
    title: 'Traces',
    introduction:
      'Spans for an OpenTelemetry collector, in the standard variables. Off without an endpoint; [operating.md](operating.md#traces) has what is in them.',
  },
  embeddedBackend: {
    title: 'Embedded backend',
    introduction:
      'For the stand-in backend of development, demonstrations and tests: see [embedded-backend.md](embedded-backend.md).',
  },
} as const;

export type SettingGroup = keyof typeof settingGroups;

interface Row {
  readonly group: SettingGroup;
  /**
   * What it sets, and what happens at the limit. `--help` shows what comes before the first semicolon or full stop: a
   * line of its own, short.
   */
  readonly help: string;
  readonly commands: readonly Command[];
}

interface IntegerRow extends Row {
  readonly kind: 'integer';
  readonly unit: 'port' | 'bytes' | 'ms' | 's' | 'calls' | 'connections';
  readonly default: number;
  readonly min: number;
  readonly max: number;
}

/** A number, or `auto` for one a core. */
interface CountRow extends Row {
  readonly kind: 'count';
  readonly default: number;
  readonly max: number;
}

interface TextRow extends Row {
  readonly kind: 'host' | 'server-name' | 'path' | 'database' | 'name';
  readonly default: string;
}

/** May hold a secret: a value that is refused is never shown, and of one in force no more than is known to be none. */
interface UrlRow extends Row {
  readonly kind: 'url';
  readonly default: string;
}

/** An address or nothing, or what is secret altogether: a value of it is never shown. */
interface OptionalUrlRow extends Row {
  readonly kind: 'optional-url' | 'secret-headers';
  readonly default: '';
}

/** From 0 to 1. */
interface RatioRow extends Row {
  readonly kind: 'ratio';
  readonly default: number;
}

interface ChoiceRow<Choice extends string = string> extends Row {
  readonly kind: 'choice';
  readonly choices: readonly Choice[];
  readonly default: Choice;
}

/** A comma list: of host names without ports, of IP addresses and ranges of them, or of origins. */
interface ListRow extends Row {
  readonly kind: 'host-names' | 'address-ranges' | 'origins';
  readonly default: '';
}

/** A text, or a comma list of texts, that a function of its own reads; empty for none. */
interface CheckedRow<Value extends string | readonly string[]> extends Row {
  readonly kind: 'checked-text' | 'checked-list';
  readonly default: string;
  readonly parse: (text: string) => Value | Problem;
  /** For the help and the documents. */
  readonly takes: string;
  readonly placeholder: string;
  /** Of what may hold a secret: what may be shown of one in force. A value that is refused is never shown. */
  readonly show?: (text: string) => string;
}

interface CheckedTextRow extends CheckedRow<string> {
  readonly kind: 'checked-text';
  /** May hold a secret, as the query of an address: no more is ever shown of it than stands before a `?`. */
  readonly isAddress?: boolean;
}

interface CheckedListRow extends CheckedRow<readonly string[]> {
  readonly kind: 'checked-list';
}

interface BooleanRow extends Row {
  readonly kind: 'boolean';
  readonly default: boolean;
  /** The commands whose default is the other one. */
  readonly invertedIn: readonly Command[];
}

type AnyRow =
  | OptionalUrlRow
  | RatioRow
  | IntegerRow
  | CountRow
  | TextRow
  | UrlRow
  | ChoiceRow
  | ListRow
  | CheckedTextRow
  | CheckedListRow
  | BooleanRow;

const nameLengthMax = 64;

const gateway: readonly Command[] = ['serve', 'dev', 'check', 'openapi'];
const admin: readonly Command[] = [...gateway, 'health'];
const everywhere: readonly Command[] = [...gateway, 'backend'];
const embedded: readonly Command[] = ['dev', 'backend'];

function ms(defaultMs: number, help: string, group: SettingGroup = 'timeLimits', min = 1): IntegerRow {
  return { kind: 'integer', group, unit: 'ms', default: defaultMs, min, max: msMax, help, commands: gateway };
}

function port(
  defaultPort: number,
  help: string,
  group: SettingGroup,
  commands: readonly Command[],
): IntegerRow {
  return { kind: 'integer', group, unit: 'port', default: defaultPort, min: 0, max: 65_535, help, commands };
}

// Of a gateway, whoever mounts it: default and bounds are not the settings' affair.
function limit(
  name: LimitName,
  unit: IntegerRow['unit'],
  help: string,
  group: SettingGroup = 'limits',
): IntegerRow {
  const { standard, min, max } = limits[name];
  return { kind: 'integer', group, unit, default: standard, min, max, help, commands: gateway };
}

function msLimit(name: LimitName, help: string, group: SettingGroup = 'timeLimits'): IntegerRow {
  return limit(name, 'ms', help, group);
}

export const settingsTable = {
  host: {
    kind: 'host',
    group: 'listening',
    default: 'localhost',
    help: 'Address to listen on for clients; `localhost` is 127.0.0.1 and ::1, `0.0.0.0` and `::` are every address.',
    commands: gateway,
  },
  port: port(
    3000,
    'Port to listen on for clients; 0 picks a free one and the start-up line says which.',
    'listening',
    gateway,
  ),
  adminHost: {
    kind: 'host',
    group: 'listening',
    default: 'localhost',
    help: 'Address to listen on for the dashboard, /livez, /readyz and /metrics.',
    commands: admin,
  },
  adminPort: port(
    9464,
    'Port to listen on for the dashboard, /livez, /readyz and /metrics; 0 picks a free one.',
    'listening',
    admin,
  ),
  allowedHosts: {
    kind: 'host-names',
    default: '',
    group: 'guards',
    help: 'Names under which clients may call; without any, all are right. For instance `items.example.com`: then a request whose `Host` is no IP address, not `localhost`, no name under `.localhost`, not HOST and none of these is answered with 403, whatever its port. A request without a name is served.',
    commands: gateway,
  },
  adminAllowedHosts: {
    kind: 'host-names',
    default: '',
    group: 'guards',
    help: 'Further names under which the admin listener is called; for instance `gateway.internal,gateway.example.com`. It answers a request whose `Host` is an IP address, `localhost`, a name under `.localhost`, ADMIN_HOST or one of these, with any port, or that has none, and others with 403.',
    commands: gateway,
  },
  trustedProxies: {
    kind: 'address-ranges',
    default: '',
    group: 'guards',
    help: "Load balancers and proxies in front; for instance `10.0.0.0/8,192.168.1.7,2001:db8::/32`. Where one of them calls, the client's address is what their `x-forwarded-for` says, read from the right up to the first address that is not theirs. From nobody else is that header read.",
    commands: gateway,
  },
  corsOrigins: {
    kind: 'origins',
    default: '',
    group: 'cors',
    help: 'Origins whose pages may call and read replies; for instance `https://app.example.com,http://localhost:5173`. Each is written as browsers send it: scheme, host and, where it is not the usual one, port. `*` alone allows every page there is. Without any, no reply has a CORS header.',
    commands: gateway,
  },
  corsCredentials: {
    kind: 'boolean',
    default: false,
    invertedIn: [],
    group: 'cors',
    help: 'Whether these pages may call with cookies and client certificates. Tokens in `Authorization` need it not. Cannot be with `*`.',
    commands: gateway,
  },
  corsMaxAgeS: limit(
    'corsMaxAgeS',
    's',
    'How long browsers may remember what OPTIONS has told them; then they ask again. Chromium caps it at 7,200 s.',
    'cors',
  ),
  rateLimit: {
    kind: 'checked-text',
    group: 'rateLimit',
    default: '',
    parse: parseRateText,
    takes: `${rateGrammar}, or nothing for any number`,
    placeholder: 'rate',
    help: 'Requests of operations that each client may make in a window; for instance `100/60s`, `1000/5m` or `10000/1h`: up to 1000000 in up to a day. The window begins with the first request. What is over is answered with 429 and does not count. All workers count together.',
    commands: gateway,
  },
  rateLimitKey: {
    kind: 'choice',
    group: 'rateLimit',
    choices: ['address', 'identity'],
    default: 'address',
    help: 'What a client is; `address` is its IP address (of IPv6 the /64), behind TRUSTED_PROXIES the forwarded one, `identity` whom its token names (`sub`).',
    commands: gateway,
  },
  rateLimitRedisUrl: {
    kind: 'checked-text',
    group: 'rateLimit',
    default: '',
    parse: parseRedisUrl,
    show: showRedisUrl,
    takes: 'a redis or rediss address, or nothing for none',
    placeholder: 'url',
    help: 'Redis or Valkey that counts for all gateways; for instance `redis://redis.internal:6379/0`, or over TLS `rediss://user:password@redis.internal`. User name and password are never shown.',
    commands: gateway,
  },
  rateLimitFallback: {
    kind: 'choice',
    group: 'rateLimit',
    choices: ['local', 'allow', 'deny'],
    default: 'local',
    help: 'What counts while Redis does not answer within 100 ms; `local`: each gateway counts by itself, `allow`: every request is let in, `deny`: every one is answered with 429.',
    commands: gateway,
  },
  authIssuer: {
    kind: 'checked-text',
    default: '',
    group: 'tokens',
    parse: parseWord,
    takes: "the issuer's name, or nothing for no tokens",
    placeholder: 'name',
    help: 'Who issues the tokens; turns them on. For instance `https://login.example.com/`: what stands in the claim `iss` of its tokens, to the letter. Then an operation without a token is answered with 401.',
    commands: gateway,
  },
  authAudience: {
    kind: 'checked-list',
    default: '',
    group: 'tokens',
    parse: parseWords,
    takes: 'names separated by commas',
    placeholder: 'names',
    help: 'For whom tokens must be; one of these must be in the claim `aud`. Required with AUTH_ISSUER: a token that the same issuer has made for another service must not do here.',
    commands: gateway,
  },
  authJwksUrl: {
    kind: 'checked-text',
    default: '',
    group: 'tokens',
    parse: parseKeysUrl,
    isAddress: true,
    takes: 'an https address, http for this machine alone, or nothing for none',
    placeholder: 'url',
    help: "Where the issuer's keys are, as a JSON Web Key Set; it is what the issuer's `/.well-known/openid-configuration` calls `jwks_uri`. Fetched in the background, without following redirects.",
    commands: gateway,
  },
  authJwksFile: {
    kind: 'path',
    default: '',
    group: 'tokens',
    help: "File with the issuer's keys, as a JSON Web Key Set; instead of AUTH_JWKS_URL. Read as often as the address would be fetched.",
    commands: gateway,
  },
  authAlgorithms: {
    kind: 'checked-list',
    default: 'RS256,ES256',
    group: 'tokens',
    parse: parseAlgorithms,
    takes:
      'some of RS256, RS384, RS512, PS256, PS384, PS512, ES256, ES384, ES512, EdDSA, Ed25519, separated by commas',
    placeholder: 'names',
    help: 'Algorithms that tokens may be signed with; others are answered with 401.',
    commands: gateway,
  },
  authClockSkewMs: msLimit(
    'authClockSkewMs',
    "How far the issuer's clock may be from ours; for the claims `exp` and `nbf`.",
    'tokens',
  ),
  authTokenType: {
    kind: 'choice',
    group: 'tokens',
    choices: ['any', 'at+jwt'],
    default: 'any',
    help: 'What the header `typ` of a token must be; `at+jwt` is that of access tokens by RFC 9068, so that no other token of the issuer will do.',
    commands: gateway,
  },
  authScopes: {
    kind: 'checked-list',
    default: '',
    group: 'tokens',
    parse: parseScopes,
    takes: 'a list of operation=scope separated by commas, or nothing for none',
    placeholder: 'list',
    help: 'Scopes that operations need; for instance `list=items.read,read=items.read,create=items.write,update=items.write,delete=items.write`. A token without it is answered with 403; an operation that is not named needs only a valid token.',
    commands: gateway,
  },
  authScopeClaim: {
    kind: 'checked-text',
    default: 'scope',
    group: 'tokens',
    parse: parseClaimName,
    takes: 'the name of a claim',
    placeholder: 'name',
    help: 'Claim that has the scopes of a token; words with spaces between them, or an array of words.',
    commands: gateway,
  },
  authJwksRefreshMs: msLimit('authJwksRefreshMs', 'From one fetch of the keys to the next.', 'tokens'),
  authJwksStaleMs: msLimit(
    'authJwksStaleMs',
    'For how long keys count that cannot be fetched anew; then a call with a token is answered with 503.',
    'tokens',
  ),
  backendIdentityHeader: {
    kind: 'checked-text',
    default: '',
    group: 'tokens',
    parse: parseIdentityHeader,
    takes: 'the name of a header, or nothing for none',
    placeholder: 'name',
    help: "Header that tells the backend who calls; for instance `x-user`. Its value is the token's claim `sub`, with everything but printable ASCII, and `%`, percent-encoded. Without that claim there is none; what a client sends under that name never gets there.",
    commands: gateway,
  },
  backendUrl: {
    kind: 'url',
    group: 'backend',
    default: 'http://localhost:5104',
    help: "The backend's base address, http or https; it may carry a base path.",
    commands: ['serve', 'check', 'openapi'],
  },
  tlsCertFile: {
    kind: 'path',
    group: 'tls',
    default: '',
    help: 'Certificate that clients are shown; together with TLS_KEY_FILE it makes the client listener https, and nothing else. A PEM file with the own certificate first, then those between it and its authority.',
    commands: gateway,
  },
  tlsKeyFile: {
    kind: 'path',
    group: 'tls',
    default: '',
    help: 'Private key of TLS_CERT_FILE; in PEM format and without a pass phrase.',
    commands: gateway,
  },
  tlsMinVersion: {
    kind: 'choice',
    group: 'tls',
    choices: ['1.2', '1.3'],
    default: '1.2',
    help: 'Oldest version of TLS that clients may speak; needs TLS_CERT_FILE.',
    commands: gateway,
  },
  tlsClientCaFile: {
    kind: 'path',
    group: 'tls',
    default: '',
    help: 'Authorities of client certificates; a client without a certificate of one of them is not let in. A PEM file; needs TLS_CERT_FILE.',
    commands: gateway,
  },
  tlsReloadMs: ms(
    10_000,
    'How often the certificate files are compared with those in force; SIGHUP does it at once. Valid ones take over for new connections, others are refused with a line in the log.',
    'tls',
  ),
  http2: {
    kind: 'boolean',
    default: false,
    invertedIn: [],
    group: 'tls',
    help: 'Whether clients that can may speak HTTP/2; the others speak HTTP/1.1 as before. Needs TLS_CERT_FILE, and Node 26.',
    commands: gateway,
  },
  backendCaFile: {
    kind: 'path',
    group: 'tls',
    default: '',
    help: "Authorities of the backend's certificate; in place of those that Node trusts. A PEM file; needs an https address in BACKEND_URL.",
    commands: ['serve', 'check', 'openapi'],
  },
  backendCertFile: {
    kind: 'path',
    group: 'tls',
    default: '',
    help: 'Certificate that the backend is shown; together with BACKEND_KEY_FILE. A PEM file with the own certificate first, then those between it and its authority.',
    commands: ['serve', 'check', 'openapi'],
  },
  backendKeyFile: {
    kind: 'path',
    group: 'tls',
    default: '',
    help: 'Private key of BACKEND_CERT_FILE; in PEM format and without a pass phrase.',
    commands: ['serve', 'check', 'openapi'],
  },
  backendServerName: {
    kind: 'server-name',
    group: 'tls',
    default: '',
    help: "Name that the backend's certificate must have; where it is not the one in BACKEND_URL.",
    commands: ['serve', 'check', 'openapi'],
  },
  workers: {
    kind: 'count',
    group: 'processes',
    default: 1,
    max: 256,
    help: 'Processes that serve clients on one port; `auto` is one a core. From 2 on a dead one is replaced, SIGHUP replaces them all one by one, and each has an equal share of CONNECTIONS_MAX, IN_FLIGHT_MAX and BUFFERED_BYTES_MAX.',
    commands: ['serve', 'check', 'openapi'],
  },
  portSharing: {
    kind: 'choice',
    group: 'processes',
    choices: ['auto', 'cluster', 'reuse-port'],
    default: 'auto',
    help: 'How workers share the port. `cluster`: the primary process takes connections and deals them out in turn; no connection is lost when a worker is replaced. `reuse-port`: each worker has a listening socket of its own, which costs less where most connections carry one call only, but resets what waits in the queue of one that closes, unless Linux runs with net.ipv4.tcp_migrate_req=1; `auto` takes it only there.',
    commands: ['serve', 'check', 'openapi'],
  },
  settingsFile: {
    kind: 'path',
    group: 'processes',
    default: '',
    help: 'File of further settings, one VARIABLE=value a line; flags and the environment go before it. Read at the start and again on SIGHUP.',
    commands: ['serve', 'check', 'openapi', 'health'],
  },
  itemIdParsing: {
    kind: 'choice',
    group: 'backend',
    choices: ['leading', 'whole'],
    default: 'leading',
    help: 'How an id is read; `leading` takes 12abc for 12, `whole` answers it with 400.',
    commands: gateway,
  },
  connectionsMax: limit(
    'connectionsMax',
    'connections',
    'Connections of clients open at once; for one more those longest at rest make room, and where none rests it is closed.',
  ),
  requestHeadBytesMax: limit(
    'requestHeadBytesMax',
    'bytes',
    'Largest request head; a larger one is answered with 431. Counted are the target and the names and values of its headers, without what stands between them.',
  ),
  requestBytesMax: limit(
    'requestBytesMax',
    'bytes',
    'Largest request body; a larger one is answered with 413.',
  ),
  responseBytesMax: limit(
    'responseBytesMax',
    'bytes',
    "Largest answer of the backend that is passed through; a larger one is the operation's 500.",
  ),
  inFlightMax: limit(
    'inFlightMax',
    'calls',
    'Calls to the backend under way at once; one more is answered with 503.',
  ),
  bufferedBytesMax: limit(
    'bufferedBytesMax',
    'bytes',
    "Bytes of bodies held at once, requests and answers together; past it a new call or a growing request body is answered with 503, a growing answer with the operation's 500.",
  ),
  backendTimeoutMs: msLimit(
    'backendTimeoutMs',
    "From sending a call to the last byte of its answer; past it the operation's 500.",
  ),
  backendConnectTimeoutMs: msLimit(
    'backendConnectTimeoutMs',
    "For connecting to the backend; past it the operation's 500.",
  ),
  backendIdleTimeoutMs: msLimit(
    'backendIdleTimeoutMs',
    'How long an idle connection to the backend is kept; keep it below what the backend does. A shorter time that the backend announces counts instead.',
  ),
  requestHeadersTimeoutMs: msLimit(
    'requestHeadersTimeoutMs',
    "For a request's head; past it 408 and the connection is closed.",
  ),
  requestTimeoutMs: msLimit(
    'requestTimeoutMs',
    "For a request's head and body together; past it 408 and the connection is closed.",
  ),
  replyStallTimeoutMs: msLimit(
    'replyStallTimeoutMs',
    'How long a client may take no byte of its reply before its connection is cut.',
  ),
  idleTimeoutMs: msLimit(
    'idleTimeoutMs',
    'How long a connection may rest between two requests; keep it above what a load balancer in front does.',
  ),
  instanceName: {
    kind: 'name',
    group: 'pages',
    default: '',
    help: "What the dashboard calls this gateway; without it, the name of the machine. It stands in its header and its tab's title, for instance `gateway-2 (staging)`.",
    commands: gateway,
  },
  docs: {
    kind: 'boolean',
    group: 'pages',
    default: false,
    invertedIn: ['dev'],
    help: 'API reference at /docs and OpenAPI document at /openapi.json for clients; without it both are 404.',
    commands: gateway,
  },
  shutdownDelayMs: ms(
    0,
    'How long to go on serving after SIGTERM; /readyz says 503 meanwhile, so that a load balancer can look elsewhere.',
    'shutdown',
    0,
  ),
  shutdownTimeoutMs: msLimit(
    'shutdownTimeoutMs',
    'How long requests under way may take after that delay; then they are cut and the exit code is 1.',
    'shutdown',
  ),
  logLevel: {
    kind: 'choice',
    group: 'log',
    choices: ['trace', 'debug', 'info', 'warn', 'error', 'fatal', 'silent'],
    default: 'info',
    help: 'Least severe log line to write; `info` has one line a request, `warn` only failures.',
    commands: everywhere,
  },
  logFormat: {
    kind: 'choice',
    group: 'log',
    choices: ['auto', 'pretty', 'json'],
    default: 'auto',
    help: '`auto` is pretty on a terminal and JSON lines otherwise.',
    commands: everywhere,
  },
  logClient: {
    kind: 'boolean',
    group: 'log',
    default: true,
    invertedIn: [],
    help: "Whether the log has clients' addresses, subjects (of their tokens) and agents; where not, the dashboard's failed calls have no addresses either.",
    commands: gateway,
  },
  otelExporterOtlpEndpoint: {
    kind: 'optional-url',
    group: 'traces',
    default: '',
    help: 'Collector that traces are exported to, by OTLP over HTTP; for instance `http://localhost:4318`, to which `/v1/traces` is added. Without it nothing is traced.',
    commands: gateway,
  },
  otelExporterOtlpHeaders: {
    kind: 'secret-headers',
    group: 'traces',
    default: '',
    help: 'Headers for the collector, such as its key; `name=value` separated by commas, percent-encoded. Never shown anywhere: set it by the variable, since a flag can be read in the list of processes.',
    commands: gateway,
  },
  otelServiceName: {
    kind: 'name',
    group: 'traces',
    default: 'work-item-gateway',
    help: 'What traces call this service.',
    commands: gateway,
  },
  otelTracesSampler: {
    kind: 'choice',
    group: 'traces',
    choices: samplerNames,
    default: 'parentbased_always_on',
    help: 'Which calls are traced; those that begin with `parentbased_` do as the client has decided where it has a trace, and as their other half says where it has none.',
    commands: gateway,
  },
  otelTracesSamplerArg: {
    kind: 'ratio',
    group: 'traces',
    default: 1,
    help: 'Share of traces that the samplers with `traceidratio` take; 0.01 is one in a hundred. The others do not look at it.',
    commands: gateway,
  },
  embeddedBackendHost: {
    kind: 'host',
    group: 'embeddedBackend',
    default: 'localhost',
    help: 'Address for the embedded backend to listen on.',
    commands: embedded,
  },
  embeddedBackendPort: port(
    5104,
    'Port for the embedded backend to listen on; 0 picks a free one.',
    'embeddedBackend',
    embedded,
  ),
  embeddedBackendDatabase: {
    kind: 'database',
    group: 'embeddedBackend',
    default: ':memory:',
    help: 'SQLite file that the embedded backend keeps its work items in; `:memory:` forgets them at the end.',
    commands: embedded,
  },
} as const satisfies Record<string, AnyRow>;

export type SettingName = keyof typeof settingsTable;

type ValueOf<R> = R extends { kind: 'integer' | 'count' | 'ratio' }
  ? number
  : R extends { kind: 'boolean' }
    ? boolean
    : R extends { kind: 'url' }
      ? URL
      : R extends { kind: 'host-names' | 'address-ranges' | 'origins' | 'checked-list' }
        ? readonly string[]
        : R extends { choices: readonly (infer Choice)[] }
          ? Choice
          : string;

/** Every setting, checked. Frozen. */
export type Settings = { readonly [Name in SettingName]: ValueOf<(typeof settingsTable)[Name]> };

/** Where a setting's value came from; `socket`: from a listening socket that was passed on, and nobody looks at the setting. */
type SettingSource = 'default' | 'file' | 'environment' | 'flag' | 'socket';

export interface ResolvedSettings {
  readonly command: Command;
  readonly settings: Settings;
  readonly sources: Readonly<Record<SettingName, SettingSource>>;
  /** What is shown in place of settings whose source is `socket`. */
  readonly sockets?: Readonly<Partial<Record<SettingName, string>>>;
}

/** What is wrong with the settings: every problem at once, each with what to do. */
export class SettingsError extends Error {
  readonly problems: readonly string[];

  constructor(problems: readonly string[]) {
    super(problems.join('\n'));
    this.name = 'SettingsError';
    this.problems = problems;
  }
}

export const settingNames = Object.keys(settingsTable) as SettingName[];

/** `requestBytesMax` -> `--request-bytes-max`. */
export function flagOf(name: SettingName): string {
  return `--${name.replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`)}`;
}

/** `requestBytesMax` -> `REQUEST_BYTES_MAX`. */
export function variableOf(name: SettingName): string {
  return name.replace(/[A-Z]/g, (letter) => `_${letter}`).toUpperCase();
}

/** The settings that `command` has. */
export function settingsOf(command: Command): SettingName[] {
  return settingNames.filter((name) =>
    (settingsTable[name].commands as readonly Command[]).includes(command),
  );
}

/** What a setting sets, in a few words. */
export function briefOf(name: SettingName): string {
  return settingsTable[name].help.replace(/[;.](?: .*)?$/s, '');
}

/** The groups that have any of `names`, in their order, each with those of them that it has. */
export function groupSettings(names: readonly SettingName[]): [SettingGroup, SettingName[]][] {
  return (Object.keys(settingGroups) as SettingGroup[])
    .map((group): [SettingGroup, SettingName[]] => [
      group,
      names.filter((name) => settingsTable[name].group === group),
    ])
    .filter(([, members]) => members.length > 0);
}

/** What a setting takes, for the help and the documents: `0 to 65535`, `leading or whole`, `an address`. */
export function describeValues(name: SettingName): string {
  const row: AnyRow = settingsTable[name];
  switch (row.kind) {
    case 'integer':
      return `${row.min} to ${row.max}`;
    case 'choice':
      return joinWithOr(row.choices);
    case 'url':
      return 'an http or https address';
    case 'optional-url':
      return 'an http or https address, or nothing for none';
    case 'secret-headers':
      return '`name=value` separated by commas, or nothing for none';
    case 'ratio':
      return 'a number from 0 to 1';
    case 'host':
      return 'a host name or IP address';
    case 'server-name':
      return 'a host name, or nothing for that of the address';
    case 'host-names':
      return 'host names separated by commas, or nothing for none';
    case 'address-ranges':
      return 'IP addresses and ranges separated by commas, or nothing for none';
    case 'origins':
      return 'origins separated by commas, `*` for any, or nothing for none';
    case 'count':
      return `1 to ${row.max} or auto`;
    case 'name':
      return `up to ${nameLengthMax} characters${row.default === '' ? ', or nothing for the name of the machine' : ''}`;
    case 'path':
      return 'a file name, or nothing for none';
    case 'database':
      return 'a file name or :memory:';
    case 'checked-text':
    case 'checked-list':
      return row.takes;
    case 'boolean':
      return 'true or false; as a flag alone it is true';
  }
}

/** What stands for a setting's value behind its flag in the help: `<port>`. */
export function placeholderOf(name: SettingName): string {
  const row: AnyRow = settingsTable[name];
  switch (row.kind) {
    case 'integer':
      return row.unit === 'calls' || row.unit === 'connections' ? 'number' : row.unit;
    case 'choice':
      return 'word';
    case 'url':
    case 'optional-url':
      return 'url';
    case 'secret-headers':
      return 'list';
    case 'ratio':
      return 'ratio';
    case 'host':
      return 'address';
    case 'server-name':
      return 'name';
    case 'host-names':
      return 'names';
    case 'address-ranges':
      return 'ranges';
    case 'origins':
      return 'origins';
    case 'name':
      return 'name';
    case 'count':
      return 'number|auto';
    case 'path':
    case 'database':
      return 'file';
    case 'checked-text':
    case 'checked-list':
      return row.placeholder;
    case 'boolean':
      return 'true|false';
  }
}

/** The words of which a setting takes one; empty where it takes something else. */
export function choicesOf(name: SettingName): readonly string[] {
  const row: AnyRow = settingsTable[name];
  return row.kind === 'choice' ? row.choices : [];
}

/** What a setting is in `command` when nobody sets it, as text. */
export function defaultOf(name: SettingName, command: Command): string {
  return String(defaultIn(settingsTable[name], command));
}

function defaultIn(row: AnyRow, command: Command): number | string | boolean {
  return row.kind === 'boolean' ? row.default !== row.invertedIn.includes(command) : row.default;
}

/** A flag that may stand alone, without a value. */
export function isSwitch(name: SettingName): boolean {
  return settingsTable[name].kind === 'boolean';
}

/** The unit of a setting's value, or undefined where it has none. */
export function unitOf(name: SettingName): string | undefined {
  const row: AnyRow = settingsTable[name];
  return row.kind === 'integer' && row.unit !== 'port' ? row.unit : undefined;
}

/** A setting in force, for people to read. */
interface DescribedSetting {
  readonly variable: string;
  readonly flag: string;
  /** Without what must not be shown. */
  readonly value: string;
  readonly unit: string | undefined;
  readonly source: SettingSource;
  readonly help: string;
}

/** The value of a setting in force, without what must not be shown. */
export function showValue(name: SettingName, settings: Settings): string {
  const value = settings[name];
  const row: AnyRow = settingsTable[name];
  if (row.kind === 'checked-text' && row.isAddress === true) {
    return String(value).replace(/\?.*/s, '');
  }
  if (row.kind === 'secret-headers') {
    return value === '' ? '' : '(not shown)';
  }
  if (row.kind === 'checked-text' && row.show !== undefined) {
    return row.show(String(value));
  }
  // Whatever the checks let through, credentials and query are not among it.
  return value instanceof URL ? value.origin + value.pathname : String(value);
}

/** The same where passed sockets take the place of some settings, as `sockets` says. */
export function withSockets(
  resolved: ResolvedSettings,
  sockets: Readonly<Partial<Record<SettingName, string>>>,
): ResolvedSettings {
  const names = Object.keys(sockets) as SettingName[];
  const sources = names.map((name) => [name, 'socket'] as const);
  return { ...resolved, sources: { ...resolved.sources, ...Object.fromEntries(sources) }, sockets };
}

/** The value of a setting in force, or of the socket that takes its place, without what must not be shown. */
export function showInForce(name: SettingName, { settings, sockets }: ResolvedSettings): string {
  return sockets?.[name] ?? showValue(name, settings);
}

/** The settings in force that the command has. */
export function describeSettings(resolved: ResolvedSettings): DescribedSetting[] {
  return settingsOf(resolved.command).map((name) => ({
    variable: variableOf(name),
    flag: flagOf(name),
    value: showInForce(name, resolved),
    unit: unitOf(name),
    source: resolved.sources[name],
    help: settingsTable[name].help,
  }));
}

/** The settings that differ. */
export function changedSettings(before: Settings, after: Settings): SettingName[] {
  return settingNames.filter((name) => String(before[name]) !== String(after[name]));
}

/** What has changed, for the log, without what must not be shown. */
export function describeChanges(before: Settings, after: Settings): Partial<Record<SettingName, string>> {
  return Object.fromEntries(
    changedSettings(before, after).map((name) => [
      name,
      `${showValue(name, before)} → ${showValue(name, after)}`,
    ]),
  );
}

/**
 * Every setting from the flags, else the environment, else the settings file, else its default. An empty
 * variable counts as unset. Problems, those in `known` first, are thrown together as one SettingsError; those with
 * certificate files too, unless `isReload` (new ones are refused without the other settings) or nothing is to be served.
 */
export function resolveSettings(
  command: Command,
  flags: Readonly<Partial<Record<SettingName, string>>>,
  environment: Readonly<Record<string, string | undefined>>,
  known: readonly string[] = [],
  isReload = false,
): ResolvedSettings {
  const problems = [...known];
  const settings: Partial<Record<SettingName, unknown>> = {};
  const sources = {} as Record<SettingName, SettingSource>;
  const used = new Set(settingsOf(command));
  const file = used.has('settingsFile')
    ? readSettingsFile(flags.settingsFile ?? environment[variableOf('settingsFile')] ?? '', problems)
    : {};
  for (const name of settingNames) {
    const row: AnyRow = settingsTable[name];
    const flag = flags[name];
    // A variable of another command's is none of this one's business, right or wrong.
    const variable = used.has(name) ? givenText(environment[variableOf(name)]) : undefined;
    const line = used.has(name) ? givenText(file[variableOf(name)]) : undefined;
    const text = flag ?? variable ?? line ?? String(defaultIn(row, command));
    sources[name] =
      flag !== undefined
        ? 'flag'
        : variable !== undefined
          ? 'environment'
          : line !== undefined
            ? 'file'
            : 'default';
    const value = parseValue(row, text);
    if (value instanceof Problem) {
      const given =
        sources[name] === 'flag'
          ? flagOf(name)
          : sources[name] === 'file'
            ? `${variableOf(name)} in the settings file`
            : variableOf(name);
      const isSecret =
        secretKinds.has(row.kind) ||
        (row.kind === 'checked-text' && (row.isAddress === true || row.show !== undefined));
      const shown = isSecret ? undefined : quoteIfPlain(text);
      problems.push(`${given} ${shown === undefined ? '' : `is ${shown}, but `}must be ${value.expectation}`);
    } else {
      settings[name] = value;
    }
  }
  if (
    used.has('port') &&
    settings.port === settings.adminPort &&
    settings.port !== 0 &&
    settings.port !== undefined &&
    settings.host === settings.adminHost
  ) {
    problems.push('PORT and ADMIN_PORT are the same, but clients and operators need one each');
  }
  problems.push(...findHalfSet(settings));
  findTlsProblems(settings as Partial<Settings>, sources, !isReload && command !== 'openapi', problems);
  const ofHttp2 = settings.http2 === true && command !== 'openapi' ? findHttp2Problem() : undefined;
  problems.push(...(ofHttp2 === undefined ? [] : [ofHttp2]));
  if (used.has('rateLimit')) {
    problems.push(
      ...findRateProblems(settings as Partial<Settings>, (name) => sources[name] !== 'default', variableOf),
    );
  }
  if (used.has('authIssuer')) {
    problems.push(
      ...findTokenProblems(settings as Partial<Settings>, (name) => sources[name] !== 'default', variableOf),
    );
  }
  if (used.has('otelExporterOtlpEndpoint')) {
    problems.push(...findMissingPackages(settings as Partial<Settings>, variableOf));
  }
  if (problems.length > 0) {
    throw new SettingsError(problems);
  }
  return { command, settings: Object.freeze(settings) as Settings, sources: Object.freeze(sources) };
}

/** Settings that need another one, or cannot be with it; those that are wrong by themselves are not looked at. */
function findHalfSet({
  corsOrigins,
  corsCredentials,
  corsMaxAgeS,
}: Partial<Record<SettingName, unknown>>): string[] {
  const problems: string[] = [];
  if (Array.isArray(corsOrigins) && corsOrigins.includes(anyOrigin) && corsCredentials === true) {
    problems.push('CORS_CREDENTIALS cannot be true where CORS_ORIGINS is *: name the origins instead');
  }
  if (Array.isArray(corsOrigins) && corsOrigins.length === 0) {
    if (corsCredentials === true) {
      problems.push('CORS_CREDENTIALS is true, but CORS_ORIGINS names no origin');
    }
    if (corsMaxAgeS !== undefined && corsMaxAgeS !== limits.corsMaxAgeS.standard) {
      problems.push('CORS_MAX_AGE_S is set, but CORS_ORIGINS names no origin');
    }
  }
  return problems;
}

const http2NodeMin = 26;

/** Why there can be no HTTP/2 on this Node, or on that of `version`; undefined where there can be [D39]. */
export function findHttp2Problem(version = process.versions.node): string | undefined {
  // By version: what older ones cannot do, streams that are answered with a list of fields and then close, shows on a
  // connection only.
  return Number.parseInt(version, 10) >= http2NodeMin
    ? undefined
    : `HTTP2 needs Node ${http2NodeMin} or newer, and this is Node ${version}: use a newer Node, or leave HTTP2 out`;
}

/** The files with the certificates of each use. */
export function certificateFilesOf(settings: Settings): Record<CertificateUse, CertificateFiles> {
  const file = (name: SettingName): NamedFile => ({
    variable: variableOf(name),
    path: String(settings[name]),
  });
  return {
    clients: { cert: file('tlsCertFile'), key: file('tlsKeyFile'), ca: file('tlsClientCaFile') },
    backend: { cert: file('backendCertFile'), key: file('backendKeyFile'), ca: file('backendCaFile') },
  };
}

const pairs = [
  ['tlsCertFile', 'tlsKeyFile'],
  ['backendCertFile', 'backendKeyFile'],
] as const;
const ofClientTls = ['tlsClientCaFile', 'tlsMinVersion', 'http2'] as const;
const ofBackendTls = ['backendCaFile', 'backendCertFile', 'backendKeyFile', 'backendServerName'] as const;

// Settings of TLS that is off or half set are problems [D41], and so are files that cannot be used. What does not belong
// to the command is at its default.
function findTlsProblems(
  settings: Partial<Settings>,
  sources: Readonly<Record<SettingName, SettingSource>>,
  readsFiles: boolean,
  problems: string[],
): void {
  const before = problems.length;
  for (const pair of pairs) {
    const missing = pair.filter((name) => settings[name] === '');
    if (missing.length === 1) {
      problems.push(
        `${pair.map(variableOf).join(' and ')} belong together: ${variableOf(missing[0] ?? pair[0])} is missing`,
      );
    }
  }
  const isSet = (name: SettingName): boolean => sources[name] !== 'default';
  if (pairs[0].every((name) => settings[name] === '')) {
    for (const name of ofClientTls.filter((each) => isSet(each) && settings[each] !== false)) {
      problems.push(
        `${variableOf(name)} needs TLS_CERT_FILE and TLS_KEY_FILE: without them clients speak plain http`,
      );
    }
  }
  if (settings.backendUrl !== undefined && settings.backendUrl.protocol !== 'https:') {
    for (const name of ofBackendTls.filter(isSet)) {
      problems.push(`${variableOf(name)} needs an https address in BACKEND_URL`);
    }
  }
  const files = certificateFilesOf(settings as Settings);
  const areAllEmpty = !Object.values(files).some(hasFiles);
  if (areAllEmpty && isSet('tlsReloadMs')) {
    problems.push('TLS_RELOAD_MS needs certificate files: there are none to be compared');
  }
  if (readsFiles && !areAllEmpty && problems.length === before) {
    for (const each of Object.values(files)) {
      const set = readCertificateSet(each, readFileTexts(each));
      problems.push(...('own' in set ? [] : set));
    }
  }
}

/** A value of these that is refused may have a secret in it. */
const secretKinds: ReadonlySet<AnyRow['kind']> = new Set(['url', 'optional-url', 'secret-headers']);

function givenText(text: string | undefined): string | undefined {
  return text === '' ? undefined : text;
}

// Blank, a comment, or an assignment.
const settingLine = /^\s*(?:#.*|[^\s=#][^=]*=.*)?$/s;

// The variables of the file, checked to be settings; a problem is added to `problems`.
function readSettingsFile(name: string, problems: string[]): NodeJS.Dict<string> {
  if (name === '') {
    return {};
  }
  let text;
  try {
    text = readFileSync(name, 'utf8');
  } catch (error) {
    const { code = String(error) } = error as NodeJS.ErrnoException;
    const shown = quoteIfPlain(name);
    problems.push(
      `SETTINGS_FILE${shown === undefined ? '' : ` is ${shown}, which`} cannot be read (${code})`,
    );
    return {};
  }
  // Node reads over what it does not understand: what somebody has turned on would be off, and nobody would know.
  for (const [index, line] of text.split('\n').entries()) {
    if (!settingLine.test(line)) {
      problems.push(`line ${index + 1} of the settings file is no VARIABLE=value`);
    }
  }
  const variables = parseEnv(text);
  const known = settingNames.filter((each) => each !== 'settingsFile').map(variableOf);
  for (const variable of Object.keys(variables).filter((each) => !known.includes(each))) {
    // A line that went wrong can have anything before its `=`, a password too.
    const named = /^[A-Z][A-Z_]{0,39}$/.test(variable) ? variable : 'a name that is not shown';
    problems.push(`${named} in the settings file is no setting that it can have${suggest(named, known)}`);
  }
  for (const variable of known.filter((each) => variables[each]?.includes('\n') === true)) {
    problems.push(`${variable} in the settings file has a quotation mark that does not end on its line`);
    // Of other lines, maybe: there is nothing in it to check.
    variables[variable] = '';
  }
  return variables;
}

function parseValue(
  row: AnyRow,
  text: string,
): number | string | boolean | URL | readonly string[] | Problem {
  switch (row.kind) {
    case 'integer': {
      const value = /^\d{1,15}$/.test(text) ? Number(text) : NaN;
      const unit = unitWords.get(row.unit) ?? '';
      return value >= row.min && value <= row.max
        ? value
        : new Problem(`a whole number from ${row.min} to ${row.max}${unit}`);
    }
    case 'choice':
      return row.choices.includes(text) ? text : new Problem(`one of ${row.choices.join(', ')}`);
    case 'url':
      return parseUrl(text);
    case 'optional-url': {
      const url = text === '' ? undefined : parseUrl(text, 'for instance http://localhost:4318');
      return url instanceof URL ? url.href : (url ?? '');
    }
    case 'secret-headers':
      return parseExporterHeaders(text) === undefined
        ? new Problem(
            'name=value separated by commas, each percent-encoded where it has more than plain text',
          )
        : text;
    case 'ratio': {
      const value = /^(?:\d{1,3}(?:\.\d{0,20})?|\.\d{1,20})$/.test(text) ? Number(text) : NaN;
      return value <= 1 ? value : new Problem('a number from 0 to 1');
    }
    case 'host':
      // An address in brackets is what URLs have; the platform wants it bare.
      return /^[A-Za-z0-9._-]+$/.test(text) || isIPv6(text)
        ? text
        : new Problem('a host name or an IP address, without brackets, port and http://');
    case 'server-name':
      return text === '' || serverName.test(text)
        ? text
        : new Problem('a host name, without port and http://');
    case 'host-names':
      return parseHostNames(text) ?? new Problem('host names separated by commas, without ports');
    case 'address-ranges':
      return (
        parseAddressRanges(text) ??
        new Problem('IP addresses and ranges separated by commas, for instance 10.0.0.0/8,192.168.1.7')
      );
    case 'origins':
      return (
        parseOrigins(text) ??
        new Problem(
          'origins as browsers send them, separated by commas, for instance https://app.example.com,http://localhost:5173: in small letters, without path, slash at the end, user name and the port that the scheme has anyway; or * alone',
        )
      );
    case 'checked-text':
    case 'checked-list':
      return row.parse(text);
    case 'count': {
      const value = text === 'auto' ? availableParallelism() : /^\d{1,15}$/.test(text) ? Number(text) : NaN;
      return value >= 1 && value <= row.max
        ? value
        : new Problem(`a whole number from 1 to ${row.max}, or auto`);
    }
    case 'name':
      // On one line, and nothing that turns the letters after it round.
      return text.length <= nameLengthMax && !/[\p{C}\p{Zl}\p{Zp}]/u.test(text)
        ? text
        : new Problem(`at most ${nameLengthMax} characters, none of them a control character`);
    case 'path':
      return text;
    case 'database':
      // SQLite takes an empty name for a database that is gone at the end.
      return text.trim() === '' ? new Problem('a file name or :memory:') : text;
    case 'boolean':
      return booleans.get(text) ?? new Problem('true or false (or on, off, 1, 0)');
  }
}

const unitWords: ReadonlyMap<IntegerRow['unit'], string> = new Map([
  ['ms', ' (milliseconds)'],
  ['s', ' (seconds)'],
  ['bytes', ' (bytes)'],
]);

// A host name, and no address: not digits alone behind the last dot.
const serverName = /^(?:[\w-]+\.)*[\w-]*[A-Za-z_-][\w-]*$/;

const booleans: ReadonlyMap<string, boolean> = new Map([
  ['true', true],
  ['on', true],
  ['1', true],
  ['false', false],
  ['off', false],
  ['0', false],
]);

function parseUrl(text: string, example = backendUrlExample): URL | Problem {
  const wishes = wishesForBackendUrl(text);
  return wishes.length > 0 ? new Problem(`${wishes.join(' and ')}, ${example}`) : new URL(text);
}
