// Explains failed calls to the backend: the request, the backend's response, the reply to the client and the fix. Texts
// from the backend are shortened and escaped.

import { backendPath, type OperationName } from '../core/operations.ts';
import type { CallOutcome } from '../core/outcomes.ts';
import { escapeControls } from '../core/text/escape.ts';
import type { Call } from './calls.ts';

/** A fact about the backend that a call showed. The JSON report has the same property names. */
export interface Finding {
  /** A fixed code by which programs recognize the cause. */
  readonly code: string;
  /** `breaks`: clients cannot use an operation as specified, or it was not tried. A warning does not fail the check. */
  readonly severity: 'breaks' | 'warning';
  readonly operations: OperationName[];
  readonly title: string;
  /** The request to the backend. */
  readonly asked: string;
  /** The backend's response. */
  readonly came: string;
  /** The reply that clients get. */
  readonly clients: string;
  readonly advice: string;
}

/** Explains why `call` failed, with the first row of `failures` that applies. */
export function explainFailure(call: Call, backendUrl: URL): Finding {
  const applies = ([, when, , , onlyIf]: Failure): boolean =>
    when.some((each) => each === call.outcome || each === call.answer?.status) && onlyIf?.(call, backendUrl) !== false;
  const [code, , title, advice] = failures.find(applies) ?? otherFailure;
  const given = typeof advice === 'string' ? advice : advice(call, backendUrl);
  return createFinding(call, code, title.replace('{method}', call.operation.method), given);
}

/** Makes a finding that `call` showed. By default, `severity` is `breaks` and `clients` describes the call's reply. */
export function createFinding(
  call: Call,
  code: string,
  title: string,
  advice: string,
  severity: Finding['severity'] = 'breaks',
  clients = describeReply(call),
): Finding {
  const { method, name } = call.operation;
  const asked = `${method} ${call.path}`;
  return { code, severity, operations: [name], title, asked, came: describeAnswer(call), clients, advice };
}

/** Makes text from the backend safe to show: escapes it and shortens it to `lengthMax`. */
export function show(text: string, lengthMax = 120): string {
  const safe = escapeControls(text);
  return safe.length > lengthMax ? `${safe.slice(0, lengthMax)}...` : safe;
}

// The header fields that most often explain a failure.
const tellingFields = [
  ...['location', 'content-type', 'content-encoding', 'content-length', 'allow'],
  ...['www-authenticate', 'proxy-authenticate', 'retry-after', 'server'],
];

function describeAnswer(call: Call): string {
  const { answer, reason, cause, hasBytes, outcome } = call;
  // Allows 400 characters, because TLS errors quote the certificate.
  const why = cause === undefined || reason === 'status' ? '' : `: ${show(cause, 400)}`;
  if (answer === undefined) return `${hasBytes ? 'no readable answer' : 'no answer'}${why}`;
  const fields = tellingFields.flatMap((name) => {
    const value = answer.fields.get(name);
    return value === undefined ? [] : [`${name}: ${show(value)}`];
  });
  const body = answer.framing === 'none' ? ['no body'] : [];
  return `${[`status ${answer.status}`, ...body, ...fields, ...quoteProblem(call)].join('; ')}${outcome === 'ok' ? '' : why}`;
}

/**
 * Quotes a problem's title [RFC 9457] and the names of the refused fields. Leaves out everything else, because `detail`
 * and extensions can have secrets, such as the text of an exception.
 */
function quoteProblem(call: Call): string[] {
  if ((call.answer?.status ?? 0) < 400) return [];
  try {
    const problem = JSON.parse(call.answer?.bodyStart.toString() ?? '') as { title?: unknown; errors?: unknown } | null;
    if (typeof problem?.title !== 'string') return [];
    const { title, errors } = problem;
    const isByField = typeof errors === 'object' && errors !== null && !Array.isArray(errors);
    const names = isByField ? Object.keys(errors).filter((name) => name !== '') : [];
    return [`title: ${show(title)}`, ...(names.length === 0 ? [] : [`errors in: ${show(names.join(', '))}`])];
  } catch {
    return [];
  }
}

export function describeReply({ reply, operation, outcome }: Call): string {
  // The body of a success is left out, because it may be long and explains nothing.
  return outcome === 'ok' && operation.passesAnswer
    ? `${reply.status} with the backend's body`
    : `${reply.status} ${reply.body.toString('utf8')}`;
}

/** A row applies to a call if `when` contains its outcome or status, and `onlyIf` is undefined or returns true. */
type Failure = readonly [
  code: string,
  when: readonly (CallOutcome | number)[],
  title: string,
  advice: string | ((call: Call, backendUrl: URL) => string),
  onlyIf?: (call: Call, backendUrl: URL) => boolean,
];

const fieldOf = ({ answer }: Call, name: string): string => answer?.fields.get(name) ?? '';

const startOf = ({ answer }: Call): string => answer?.bodyStart.toString('latin1') ?? '';

const isEmpty = ({ answer, reason }: Call): boolean => answer?.status === 204 || reason === 'empty-body';

const isOnCollection = ({ operation }: Call): boolean => operation.on === 'collection';

// The texts are those of Kestrel and Node.
const isOnlyHttp2 = (call: Call): boolean =>
  call.isHttp2 ||
  call.reason === 'no-http1' ||
  call.answer?.status === 505 ||
  // Apache offers HTTP/2 with every answer, so other statuses with this field say nothing.
  (call.answer?.status === 426 && /\bh2/i.test(fieldOf(call, 'upgrade'))) ||
  /HTTP\/2 only endpoint|Unknown ALPN Protocol, expected `h2`/.test(startOf(call));

// The order matters, because the first row that applies to a call explains it.
// prettier-ignore
const failures: readonly Failure[] = [
  ['http2-only', ['unreachable', 400, 403, 426, 505], 'the backend speaks only HTTP/2',
    'The gateway calls the backend with HTTP/1.1. Turn on HTTP/1.1 for this port (Kestrel: HttpProtocols.Http1AndHttp2), or set BACKEND_URL to a port that has it.',
    isOnlyHttp2],
  ['tls', ['unreachable'], 'no TLS connection to the backend',
    'The certificate must be valid for the name in BACKEND_URL (or BACKEND_SERVER_NAME), and its CA must be trusted (BACKEND_CA_FILE); the gateway never skips this check. If the backend requires a client certificate, set BACKEND_CERT_FILE and BACKEND_KEY_FILE.',
    ({ reason }, { protocol }) => reason === 'tls' && protocol === 'https:'],
  ['no-connection', ['unreachable'], 'the backend does not answer at all',
    'Is the backend running? Is BACKEND_URL its address? Can this machine reach it? Does it expect https?',
    ({ hasBytes, isReused }) => !hasBytes && !isReused],
  ['no-connection', ['unreachable'], 'the backend closed the connection instead of answering',
    'Earlier requests were answered on this connection. Either the backend failed, or it closes idle connections too soon and without notice. Let it keep them open longer than BACKEND_IDLE_TIMEOUT_MS, or answer with `connection: close`.',
    ({ hasBytes }) => !hasBytes],
  ['malformed-answer', ['unreachable'], 'the answer is incomplete, invalid or ambiguous HTTP/1.1',
    'The backend, or a proxy in front of it, breaks the framing of HTTP or closes the connection in the middle of an answer. Fix the backend or the proxy. The gateway never passes on part of an answer.'],
  ['timed-out', ['timed-out'], 'no complete answer in time',
    'The connection attempt got no answer within BACKEND_CONNECT_TIMEOUT_MS. Possible causes: a firewall, a wrong address, or a backend that accepts no more connections.',
    ({ reason }) => reason === 'connect-timeout'],
  ['timed-out', ['timed-out'], 'no complete answer in time',
    'The backend hangs, or is slower than BACKEND_TIMEOUT_MS allows. Make the backend faster, or raise that setting.'],
  ['too-large', ['too-large'], 'the answer is larger than allowed',
    'Raise RESPONSE_BYTES_MAX and BUFFERED_BYTES_MAX, or make the backend send smaller answers.'],
  ['own-limit', ['body-too-large', 'overload'], 'the gateway turns the request away because of its own limits',
    'Is REQUEST_BYTES_MAX below the size of the item, or ulimit -n too low?'],
  ['empty-success', ['not-json'], 'the backend creates items, but clients get 500', (call) =>
    `The item is created, yet clients see a failure and may create it twice. The backend must answer a create with the new item as JSON${fieldOf(call, 'location') === '' ? '' : '; the gateway does not follow its location header'}.`,
    (call) => isEmpty(call) && call.operation.name === 'create'],
  ['empty-success', ['not-json'], 'the answer is a success without a body',
    'The backend must answer with JSON; an empty list is [].', isEmpty],
  ['compressed', ['not-json'], 'the answer is compressed, which the gateway does not support',
    'The gateway sends no accept-encoding and decompresses nothing. Turn compression off for calls of the gateway, in the backend or in a proxy in front of it.',
    (call) => !/^(?:identity)?$/i.test(fieldOf(call, 'content-encoding')) || startOf(call).startsWith('\x1f\x8b')],
  ['html', ['not-json'], 'the answer is a page, not JSON',
    'Usually this is a sign-in page, an error page with status 200, or another site. Is BACKEND_URL the address of the work-item backend itself, with the right base path?',
    (call) => /html|xml/i.test(fieldOf(call, 'content-type')) || /^\s*</.test(startOf(call))],
  ['not-utf-8', ['not-json'], 'the answer is not in UTF-8',
    'JSON must be UTF-8 (RFC 8259, section 8.1). Make the backend send UTF-8, not UTF-16 or another charset.',
    (call) => /charset="?(?!utf-?8\b)/i.test(fieldOf(call, 'content-type')) || /^(?:\0|.\0|\xff\xfe|\xfe\xff)/s.test(startOf(call))],
  ['not-json', ['not-json'], 'the answer is a success, but not JSON',
    'The body must be one JSON text (RFC 8259): no NaN, no comments, no single quotes, nothing before or after it.'],
  ['redirect', ['refused'], 'the backend answers with a redirect, which the gateway does not follow', adviseOnRedirect,
    ({ answer }) => answer !== undefined && answer.status < 400],
  ['wants-authentication', [401, 407], 'the backend requires authentication', (call) => {
    const challenge = fieldOf(call, 'www-authenticate') || fieldOf(call, 'proxy-authenticate');
    const scheme = /^\s*([A-Za-z]+)/.exec(challenge)?.[1];
    return `The gateway sends no credentials${scheme === undefined ? '' : `, so it cannot use ${scheme}`}. Make the backend accept the gateway's address without credentials (IIS: anonymous authentication for these paths), or set BACKEND_CERT_FILE to give the gateway a client certificate.`;
  }],
  ['forbidden', [403], 'the backend denies the gateway access',
    "Allow the gateway's address in the backend. A backend that requires a client certificate may also answer 403. In that case set BACKEND_CERT_FILE."],
  ['no-such-path', [404, 410], 'the backend does not have this path',
    'Does BACKEND_URL lack a base path, or have a wrong one? The gateway appends /api/WorkItem, with exactly these capital letters.',
    isOnCollection],
  ['item-not-found', [404, 410], 'an existing item is not found by its id',
    'The backend must serve /api/WorkItem/<id> for the ids in its list and in its answers to creates.'],
  ['method-refused', [405, 501], 'the backend requires PATCH, or does not support updates', adviseOnMethod,
    (call) => call.operation.name === 'update' && !/\bPUT\b/i.test(fieldOf(call, 'allow'))],
  ['method-refused', [405, 501], 'the backend does not accept {method} on this path', adviseOnMethod],
  ['media-type', [406, 415], 'the backend does not accept JSON',
    'The gateway sends content-type: application/json and no accept header. The backend must accept such requests.'],
  ['wants-length-or-size', [411, 413, 414, 431], 'the request is too large for the backend',
    'The gateway sends a body with its exact length. Raise the limit of the backend, or of the proxy in front of it.'],
  ['wrong-name', [421], 'the backend does not serve the host name in BACKEND_URL',
    'The gateway sends the host in BACKEND_URL as `host`, and uses BACKEND_SERVER_NAME only for TLS. Set BACKEND_URL to the name that the backend serves.'],
  ['rate-limited', [429], 'the backend limits the rate of requests',
    "All calls come from the gateway's address and share that limit. Raise the limit for the gateway, and limit clients with RATE_LIMIT instead."],
  ['body-refused', [400, 409, 422], 'the backend refuses the item that was sent',
    "Use --body to give an item that the backend accepts, as JSON or as a file. The item needs every required field. The backend's log says what was missing.",
    ({ operation }) => operation.takesBody],
  ['bad-request', [400], 'the backend considers the request malformed',
    'Does the port in BACKEND_URL require https? Some servers answer plain http with 400. Some do not accept the host in BACKEND_URL.',
    (call, { protocol }) => isOnCollection(call) && protocol === 'http:'],
  ['bad-request', [400], 'the backend considers the request malformed',
    "Does the backend require ids that are not integers? The backend's log gives the reason."],
  ['behind-is-away', [503], 'the backend, or a proxy in front of it, is unavailable',
    'The backend or the proxy is overloaded, starting, or in maintenance. The `server` header, if there is one, shows whether the backend or the proxy sent this answer.'],
  ['behind-is-away', [502, 504], 'a proxy answers, but not the backend behind it',
    'Check the backend: it may be down, overloaded, or in maintenance.'],
  ['server-error', ['refused'], 'the backend fails',
    "The fault is in the backend. See the backend's log at the time of this call.",
    ({ answer }) => answer !== undefined && answer.status >= 500],
];

// prettier-ignore
const otherFailure: Failure = ['no-success', [], 'the backend answers, but not with a success',
  'The log of the backend says why. Only a status from 200 to 299 is a success.'];

function adviseOnMethod(call: Call): string {
  const allow = fieldOf(call, 'allow');
  return `The gateway always uses ${call.operation.method} for this operation. The backend must accept this method${allow === '' ? '' : ` (now the backend allows ${show(allow)})`}. On IIS, the WebDAV module refuses PUT and DELETE: remove that module.`;
}

function adviseOnRedirect(call: Call, backendUrl: URL): string {
  const location = fieldOf(call, 'location');
  const from = new URL(backendUrl.origin + call.path);
  const to = URL.canParse(location, from.href) ? new URL(location, from.href) : undefined;
  if (to === undefined) return 'The redirect names no valid location.';
  const belowBase = call.path.slice(call.path.lastIndexOf(backendPath));
  const base = to.pathname.endsWith(belowBase) ? to.origin + to.pathname.slice(0, -belowBase.length) : undefined;
  return base !== undefined &&
    /^https?:$/.test(to.protocol) &&
    to.search === '' &&
    !(to.origin === from.origin && to.pathname === from.pathname)
    ? `Set BACKEND_URL to ${base}.`
    : to.pathname === `${from.pathname}/`
      ? 'The backend requires a slash at the end of the path. The gateway never sends this slash: make the backend accept the path without it.'
      : 'Often this is a sign-in page. The backend must accept calls of the gateway without a sign-in.';
}
