// The troubles of a running gateway, each with a title and the next step for operators. The dashboard's verdict, the metric
// `work_item_gateway_trouble` (which the alerts quote), the command `check` and docs/errors.md use this table.

import type { CallRecord } from '../core/call/call-record.ts';
import type { CallOutcome } from '../core/outcomes.ts';
import type { Reason } from '../core/reasons.ts';

export interface Trouble {
  readonly title: string;
  readonly step: string;
}

/** A failed call has the trouble of its reason or of the answer's status, or else of its outcome. */
interface Row extends Trouble {
  readonly reasons?: readonly Reason[];
  readonly statuses?: readonly number[];
  readonly outcomes?: readonly CallOutcome[];
}

// prettier-ignore
const rows = {
  'no-connection': { title: 'the backend does not answer', outcomes: ['unreachable'],
    step: 'Check that the backend is running, that BACKEND_URL is its address, and that this machine can reach it.' },
  'connection-lost': { title: 'the backend closed the connection instead of answering', reasons: ['connection-reset', 'connection-closed'],
    step: 'Did the backend fail or restart? Does it expect https? Does it close idle connections sooner than BACKEND_IDLE_TIMEOUT_MS?' },
  'connect-timed-out': { title: 'the backend accepts no connection in time', reasons: ['connection-timed-out', 'connect-timeout'],
    step: 'Is BACKEND_URL right? Does a firewall drop the packets, or does the backend accept no more connections?' },
  'expired-certificate': { title: "the backend's certificate has expired", reasons: ['certificate-expired'],
    step: "Renew the backend's certificate. If it is valid, correct this machine's clock." },
  'tls': { title: 'no TLS connection to the backend', reasons: ['tls'],
    step: 'If the backend speaks TLS, its certificate must be valid for the name in BACKEND_URL (or BACKEND_SERVER_NAME), and its CA must be trusted (BACKEND_CA_FILE). If the backend requires a client certificate, set BACKEND_CERT_FILE and BACKEND_KEY_FILE.' },
  'http2-only': { title: 'the backend speaks only HTTP/2', reasons: ['no-http1'], statuses: [505],
    step: 'The gateway calls the backend with HTTP/1.1. Turn on HTTP/1.1 for this port (Kestrel: HttpProtocols.Http1AndHttp2), or set BACKEND_URL to a port that has it.' },
  'malformed-answer': { title: 'the answer is incomplete, invalid or ambiguous HTTP/1.1', reasons: ['malformed', 'cut-number'],
    step: 'The backend, or a proxy in front of it, breaks the framing of HTTP or closes the connection in the middle of an answer. Fix the backend or the proxy.' },
  'timed-out': { title: 'no complete answer in time', reasons: ['answer-timeout'], outcomes: ['timed-out'],
    step: 'The backend hangs, or is slower than BACKEND_TIMEOUT_MS allows. Make the backend faster, or raise that setting.' },
  'too-large': { title: 'the answer is larger than allowed', outcomes: ['too-large'],
    step: 'Raise RESPONSE_BYTES_MAX and BUFFERED_BYTES_MAX, or make the backend send smaller answers.' },
  'own-limit': { title: 'the gateway turns the request away because of its own limits', outcomes: ['body-too-large', 'overload'],
    step: 'Is REQUEST_BYTES_MAX below the size of the item, or ulimit -n too low?' },
  'empty-success': { title: 'the answer is a success without a body', reasons: ['empty-body'],
    step: 'The backend must answer with JSON; an empty list is [].' },
  'compressed': { title: 'the answer is compressed',
    step: 'The gateway sends no accept-encoding and decompresses nothing. Turn compression off for calls of the gateway, in the backend or in a proxy in front of it.' },
  'html': { title: 'the answer is a page, not JSON', reasons: ['page'],
    step: 'Usually this is a sign-in page, an error page with status 200, or another site. Is BACKEND_URL the address of the work-item backend itself, with the right base path?' },
  'not-utf-8': { title: 'the answer is not in UTF-8',
    step: 'JSON must be UTF-8 (RFC 8259, section 8.1). Make the backend send UTF-8, not UTF-16 or another charset.' },
  'not-json': { title: 'the answer is a success, but not JSON', outcomes: ['not-json'],
    step: 'The body must be one JSON text (RFC 8259) in UTF-8, not compressed: no NaN, no comments, nothing before or after it.' },
  'redirect': { title: 'the backend answers with a redirect',
    step: 'Run `work-item-gateway check` to see where it leads: to a sign-in page, https, or another base path. Set BACKEND_URL to it, or make the backend accept calls without a sign-in.' },
  'wants-authentication': { title: 'the backend requires authentication', statuses: [401, 407],
    step: 'The gateway sends no credentials. Make the backend accept calls of the gateway without them (IIS: anonymous authentication for these paths), or set BACKEND_CERT_FILE.' },
  'forbidden': { title: 'the backend denies the gateway access', statuses: [403],
    step: "Allow the gateway's address in the backend. A backend that requires a client certificate may also answer 403. In that case set BACKEND_CERT_FILE." },
  'no-such-path': { title: 'the backend does not have this path',
    step: 'Does BACKEND_URL lack a base path, or have a wrong one? The gateway appends /api/WorkItem, with exactly these capital letters.' },
  'item-not-found': { title: 'an existing item is not found by its id',
    step: 'The backend must serve /api/WorkItem/<id> for the ids in its list and in its answers to creates.' },
  'method-refused': { title: 'the backend does not accept the method of this operation', statuses: [405, 501],
    step: 'The backend must accept GET, POST, PUT and DELETE. On IIS, the WebDAV module refuses PUT and DELETE: remove that module.' },
  'media-type': { title: 'the backend does not accept JSON', statuses: [406, 415],
    step: 'The gateway sends content-type: application/json and no accept header. The backend must accept such requests.' },
  'wants-length-or-size': { title: 'the request is too large for the backend', statuses: [411, 413, 414, 431],
    step: 'The gateway sends a body with its exact length. Raise the limit of the backend, or of the proxy in front of it.' },
  'wrong-name': { title: 'the backend does not serve the host name in BACKEND_URL', statuses: [421],
    step: 'The gateway sends the host in BACKEND_URL as `host`, and uses BACKEND_SERVER_NAME only for TLS. Set BACKEND_URL to the name that the backend serves.' },
  'rate-limited': { title: 'the backend limits the rate of requests', statuses: [429],
    step: "All calls come from the gateway's address and share that limit. Raise the limit for the gateway, and limit clients with RATE_LIMIT instead." },
  'body-refused': { title: 'the backend refuses the item that was sent',
    step: "Use --body to give an item that the backend accepts, as JSON or as a file. The item needs every required field. The backend's log says what was missing." },
  'bad-request': { title: 'the backend considers the request malformed', statuses: [400],
    step: "Does the port in BACKEND_URL require https? Does the backend accept its host name? Otherwise the backend's log gives the reason." },
  'behind-is-away': { title: 'the backend, or a proxy in front of it, is unavailable', statuses: [503],
    step: 'The backend or the proxy is overloaded, starting, or in maintenance. The `server` header, if there is one, shows which of them sent this answer.' },
  'proxy-alone': { title: 'a proxy answers, but not the backend behind it', statuses: [502, 504],
    step: 'Check the backend: it may be down, overloaded, or in maintenance.' },
  'server-error': { title: 'the backend fails calls',
    step: "The fault is in the backend. Search the backend's log for the request id of a failed call." },
  'no-success': { title: 'the backend answers, but not with a success',
    step: 'The log of the backend says why. Only a status from 200 to 299 is a success.' },
  'no-call-succeeds': { title: 'no call succeeds',
    step: 'Compare BACKEND_URL with the address and base path of the backend: run `work-item-gateway check`. If it finds nothing, clients request only items that do not exist.' },
  'no-token': { title: 'most calls have no token',
    step: 'Clients must send a token of AUTH_ISSUER with each call, as `authorization: Bearer TOKEN`.' },
  'token-audience': { title: 'most tokens are for another audience',
    step: "Compare AUTH_AUDIENCE with the claim aud of the clients' tokens." },
  'token-issuer': { title: 'most tokens are from another issuer',
    step: "Compare AUTH_ISSUER with the claim `iss` of the clients' tokens." },
  'token-algorithm': { title: 'most tokens have a signature of another algorithm',
    step: "Compare AUTH_ALGORITHMS with `alg` in the header of the clients' tokens." },
  'token-key': { title: "most tokens are not signed with the issuer's keys",
    step: "Does AUTH_JWKS_URL or AUTH_JWKS_FILE have the keys that sign the clients' tokens?" },
  'token-time': { title: 'most tokens have expired or are not yet valid',
    step: "Compare the clocks of this machine and of the issuer. Clients must renew their tokens in time." },
  'token-type': { title: 'most tokens are of another type',
    step: "Compare AUTH_TOKEN_TYPE with `typ` in the header of the clients' tokens." },
  'token-form': { title: 'most tokens are malformed',
    step: "Clients must send the issuer's access token, which must be a JWT with the claim `exp`." },
  'missing-scope': { title: 'most tokens lack a scope',
    step: 'Compare AUTH_SCOPES with the scopes that the issuer gives to the clients.' },
  'foreign-calls': { title: 'most calls come for another host name, or from pages of another site',
    step: 'Add the host name that clients use to ALLOWED_HOSTS, and the origin of the pages to CORS_ORIGINS.' },
  'over-rate-limit': { title: 'the rate limit refuses most calls',
    step: "Raise RATE_LIMIT. If many clients share one address, list the proxy in TRUSTED_PROXIES." },
  'draining': { title: 'the gateway is draining',
    step: 'Wait: the gateway stops when these calls end, at the latest after SHUTDOWN_DELAY_MS plus SHUTDOWN_TIMEOUT_MS.' },
  'bug': { title: 'the gateway has a bug',
    step: 'Report the bug with the stack trace from the log.' },
  'no-keys': { title: 'the gateway has no keys to verify tokens',
    step: 'Does the issuer answer at AUTH_JWKS_URL, and can this machine reach it? The log has the cause.' },
  'overload': { title: 'the gateway turns calls away',
    step: 'Is the backend slow? If not, raise IN_FLIGHT_MAX or BUFFERED_BYTES_MAX, or add a gateway. If the log gives EMFILE as the cause, raise ulimit -n.' },
  'nearly-full': { title: 'the gateway is nearly full',
    step: 'Is the backend slow? If not, raise IN_FLIGHT_MAX or BUFFERED_BYTES_MAX, or add a gateway.' },
  'slow-backend': { title: 'the backend is slow',
    step: "Find the slow operation on the dashboard, then check the backend's load." },
  'slow-gateway': { title: 'calls are slow outside the backend',
    step: "Check the CPU load of the gateway's machine, and the clients' network." },
  'short-of-cpu': { title: 'the gateway is short of CPU time',
    step: 'Raise WORKERS, give the machine more CPU cores, or add a gateway.' },
  'log-lost': { title: 'log lines were lost',
    step: "Free space on the log's disk, or restart the program that reads the gateway's output." },
  'worker-died': { title: 'a worker died',
    step: "Search the log for the worker's end. If it was killed or aborted, memory ran out: compare the worker's memory with what the machine has." },
} as const satisfies Readonly<Record<string, Row>>;

export type TroubleCode = keyof typeof rows;

const entries = Object.entries(rows) as [TroubleCode, Row][];

export const troubles = Object.fromEntries(
  entries.map(([code, { title, step }]) => [code, { title, step }]),
) as Readonly<Record<TroubleCode, Trouble>>;

// The outcome or the status decides for the reasons that no row has.
const byReason = codesBy(({ reasons }) => reasons);
const byStatus = codesBy(({ statuses }) => statuses);
const byOutcome = codesBy(({ outcomes }) => outcomes);

function codesBy<Key>(keysOf: (row: Row) => readonly Key[] | undefined): ReadonlyMap<Key, TroubleCode> {
  return new Map(entries.flatMap(([code, row]) => (keysOf(row) ?? []).map((key) => [key, code] as const)));
}

export type FailedCall = Pick<CallRecord, 'outcome'> &
  Partial<Pick<CallRecord, 'operation' | 'reason' | 'backendStatus'>>;

export function troubleOfCall({ outcome, reason, backendStatus, operation }: FailedCall): TroubleCode {
  if (reason === 'status' && backendStatus !== undefined) return troubleOfStatus(backendStatus, operation);
  return (reason && byReason.get(reason)) ?? byOutcome.get(outcome) ?? 'no-success';
}

function troubleOfStatus(status: number, operation: CallRecord['operation']): TroubleCode {
  const isOnItem = operation?.on === 'item';
  if (status < 400) return 'redirect';
  if (status === 404 || status === 410) return isOnItem ? 'item-not-found' : 'no-such-path';
  if (operation?.takesBody === true && [400, 409, 422].includes(status)) return 'body-refused';
  return byStatus.get(status) ?? (status >= 500 ? 'server-error' : 'no-success');
}

export function troubleOfReason(reason: Reason | undefined): TroubleCode {
  return (reason && byReason.get(reason)) ?? 'no-connection';
}

/** The outcomes of refused clients [D71], each with its trouble; that of `invalid-token` depends on the flaw. */
export const refusals = {
  'no-token': 'no-token',
  'invalid-token': 'token-form',
  'insufficient-scope': 'missing-scope',
  forbidden: 'foreign-calls',
  'rate-limited': 'over-rate-limit',
} as const satisfies Partial<Record<CallOutcome, TroubleCode>>;

type Refusal = keyof typeof refusals;

export const refusalOutcomes = Object.keys(refusals) as readonly Refusal[];

/** The commonest failure of calls to the backend in the last minute. */
export interface Failing {
  readonly code: TroubleCode;
  readonly operation: string | undefined;
  readonly cause: string | undefined;
}

/** A trouble that has not passed for five minutes [D71]. */
export interface Passing {
  readonly code: TroubleCode;
  readonly count: number;
  /** The last time, in milliseconds since 1970, to 5 s. */
  readonly at: number;
}

/** The last minute in which more than half of the calls were refused [D71]. `count`: refused calls. */
export interface Refused extends Passing {
  readonly calls: number;
  readonly outcome: Refusal;
}

export interface CurrentTroubles {
  readonly unreachable: TroubleCode | undefined;
  readonly failing: Failing | undefined;
  readonly hasNoSuccess: boolean;
  readonly clients: Refused | undefined;
  readonly log: Passing | undefined;
  readonly workers: Passing | undefined;
}
