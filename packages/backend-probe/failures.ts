// Explains failed calls to the backend: the request, the backend's response, the client's reply and the fix. Texts from the
// backend are shortened and escaped.

import type { OperationName } from '../core/operations.ts';
import { escapeControls } from '../core/text/escape.ts';
import { basePathOf, type Call } from './calls.ts';

/** A fact about the backend that a call showed. The JSON report has these names. */
export interface Finding {
  /** Identifies the cause for programs. Never changes. */
  readonly code: string;
  /** `breaks`: clients cannot use an operation as specified. A warning does not fail the check. */
  readonly severity: 'breaks' | 'warning';
  readonly operations: readonly OperationName[];
  readonly title: string;
  /** The request to the backend. */
  readonly asked: string;
  /** The backend's response. */
  readonly came: string;
  /** The client's reply. */
  readonly clients: string;
  readonly advice: string;
}

type Advice = string | ((call: Call, backendUrl: URL) => string);
type Failure = readonly [code: string, isSo: (call: Call, backendUrl: URL) => boolean, title: string, advice: Advice];

/** Explains why `call` failed, by the first matching row of `failures`. */
export function explainFailure(call: Call, backendUrl: URL): Finding {
  const [code, , title, advice] = failures.find(([, isSo]) => isSo(call, backendUrl)) ?? otherFailure;
  return createFinding(call, {
    code,
    title: title.replace('{method}', call.operation.method),
    advice: typeof advice === 'string' ? advice : advice(call, backendUrl),
  });
}

/** Makes a finding that `call` showed. By default it breaks the operation, and clients get the reply of `call`. */
export function createFinding(
  call: Call,
  words: Pick<Finding, 'code' | 'title' | 'advice'> & Partial<Pick<Finding, 'severity' | 'clients'>>,
): Finding {
  const { operation, path } = call;
  const { code, severity = 'breaks', title, clients = describeReply(call), advice } = words;
  const asked = `${operation.method} ${path}`;
  return { code, severity, operations: [operation.name], title, asked, came: describeAnswer(call), clients, advice };
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

function describeAnswer({ answer, reason, cause, hasBytes, outcome }: Call): string {
  // A cause may be long, because TLS errors quote the certificate.
  const why = cause === undefined || reason === 'status' ? '' : `: ${show(cause, 400)}`;
  if (answer === undefined) return `${hasBytes ? 'no readable answer' : 'no answer'}${why}`;
  const fields = tellingFields.flatMap((name) => {
    const value = answer.fields.get(name);
    return value === undefined ? [] : [`${name}: ${show(value)}`];
  });
  const body = answer.framing === 'none' ? ['no body'] : [];
  return `${[`status ${answer.status}`, ...body, ...fields].join('; ')}${outcome === 'ok' ? '' : why}`;
}

export function describeReply({ reply, operation, outcome }: Call): string {
  // The body of a success may be long and explains nothing.
  return outcome === 'ok' && operation.passesAnswer
    ? `${reply.status} with the backend's body`
    : `${reply.status} ${reply.body.toString('utf8')}`;
}

const isStatus =
  (...statuses: number[]) =>
  ({ answer, outcome }: Call): boolean =>
    answer !== undefined && outcome !== 'not-json' && statuses.includes(answer.status);

const isRefused =
  (statusMin: number, statusMax: number) =>
  ({ answer, outcome }: Call): boolean =>
    outcome === 'refused' && answer !== undefined && answer.status >= statusMin && answer.status <= statusMax;

const isNotJson =
  (isSo: (call: Call, start: Buffer) => boolean) =>
  (call: Call): boolean =>
    call.outcome === 'not-json' && isSo(call, call.answer?.bodyStart ?? Buffer.alloc(0));

const isEmpty = isNotJson(({ answer, reason }) => answer?.status === 204 || reason === 'empty-body');

const isCompressed = isNotJson(
  (call, start) =>
    !/^(?:identity)?$/i.test(fieldOf(call, 'content-encoding')) || (start[0] === 0x1f && start[1] === 0x8b),
);

const isPage = isNotJson(
  (call, start) =>
    /html|xml/i.test(fieldOf(call, 'content-type')) || start.toString('latin1').trimStart().startsWith('<'),
);

const isNotUtf8 = isNotJson(
  (call, start) =>
    /charset="?(?!utf-?8\b)/i.test(fieldOf(call, 'content-type')) ||
    /^(?:\0|.\0|\xff\xfe|\xfe\xff)/s.test(start.toString('latin1', 0, 2)),
);

const isOf =
  (name: OperationName, isSo: (call: Call) => boolean) =>
  (call: Call): boolean =>
    call.operation.name === name && isSo(call);

const fieldOf = ({ answer }: Call, name: string): string => answer?.fields.get(name) ?? '';

const isOnCollection = ({ operation }: Call): boolean => operation.on === 'collection';

// The order matters, because the first row that matches a call explains it.
// prettier-ignore
const failures: readonly Failure[] = [
  ['tls', ({ reason }, { protocol }) => reason === 'tls' && protocol === 'https:', 'no TLS connection to the backend',
    'The certificate must be valid for the name in BACKEND_URL (or BACKEND_SERVER_NAME), and its CA must be trusted (BACKEND_CA_FILE); the gateway never skips this check. If the backend requires a client certificate, set BACKEND_CERT_FILE and BACKEND_KEY_FILE.'],
  ['no-connection', ({ outcome, hasBytes }) => outcome === 'unreachable' && !hasBytes, 'the backend does not answer at all',
    'Is the backend running? Is BACKEND_URL its address? Can this machine reach it? Does it expect https?'],
  ['malformed-answer', ({ outcome }) => outcome === 'unreachable', 'the answer is not complete, unambiguous HTTP/1.1',
    'The backend, or a proxy in front of it, breaks the framing of HTTP or closes the connection in the middle of an answer. Fix the backend or the proxy. The gateway never passes on part of an answer.'],
  ['timed-out', ({ reason }) => reason === 'connect-timeout', 'no complete answer in time',
    'The connection attempt got no answer within BACKEND_CONNECT_TIMEOUT_MS. Possible causes: a firewall, a wrong address, or a backend that accepts no more connections.'],
  ['timed-out', ({ outcome }) => outcome === 'timed-out', 'no complete answer in time',
    'The backend hangs, or is slower than BACKEND_TIMEOUT_MS allows. Make the backend faster, or raise that setting.'],
  ['too-large', ({ outcome }) => outcome === 'too-large', 'the answer is larger than allowed',
    'Raise RESPONSE_BYTES_MAX and BUFFERED_BYTES_MAX, or make the backend send smaller answers.'],
  ['own-limit', ({ outcome }) => outcome === 'body-too-large' || outcome === 'overload',
    'the gateway turns the request away because of its own limits',
    'Is REQUEST_BYTES_MAX below the size of the item, or ulimit -n too low?'],
  ['empty-success', isOf('create', isEmpty), 'creates succeed, but clients get 500', (call) =>
    `The item is created, yet clients see a failure and may create it twice. The backend must answer a create with the new item as JSON${fieldOf(call, 'location') === '' ? '' : '; the gateway does not follow its location header'}.`],
  ['empty-success', isEmpty, 'the answer is a success without a body',
    'The backend must answer with JSON; an empty list is [].'],
  ['compressed', isCompressed, 'the answer is compressed, which the gateway does not support',
    'The gateway sends no accept-encoding and decompresses nothing. Turn compression off for calls of the gateway, in the backend or in a proxy in front of it.'],
  ['html', isPage, 'the answer is a page, not JSON',
    'Usually this is a sign-in page, an error page with status 200, or another site. Is BACKEND_URL the address of the work-item backend itself, with the right base path?'],
  ['not-utf-8', isNotUtf8, 'the answer is not in UTF-8',
    'JSON must be UTF-8 (RFC 8259, section 8.1). Make the backend send UTF-8, not UTF-16 or another charset.'],
  ['not-json', ({ outcome }) => outcome === 'not-json', 'the answer is a success, but not JSON',
    'The body must be one JSON text (RFC 8259): no NaN, no comments, no single quotes, nothing before or after it.'],
  ['redirect', isRefused(100, 399), 'the backend redirects, which the gateway does not follow', adviseOnRedirect],
  ['wants-authentication', isStatus(401, 407), 'the backend requires authentication', (call) => {
    const challenge = fieldOf(call, 'www-authenticate') || fieldOf(call, 'proxy-authenticate');
    const scheme = /^\s*([A-Za-z]+)/.exec(challenge)?.[1];
    return `The gateway sends no credentials${scheme === undefined ? '' : `, so no ${scheme} either`}. Make the backend accept the gateway's address without credentials (IIS: anonymous authentication for these paths), or set BACKEND_CERT_FILE to give the gateway a client certificate.`;
  }],
  ['forbidden', isStatus(403), 'the backend denies the gateway access',
    "Allow the gateway's address in the backend. A backend that requires a client certificate may also answer 403. In that case set BACKEND_CERT_FILE."],
  ['no-such-path', (call) => isStatus(404, 410)(call) && isOnCollection(call), 'the backend does not have this path',
    'Does BACKEND_URL lack a base path, or have one too many? The gateway appends /api/WorkItem, with exactly these capital letters.'],
  ['item-not-found', isStatus(404, 410), 'an existing item is not found by its id',
    'The backend must serve /api/WorkItem/<id> for the ids in its list and in its answers to creates.'],
  ['method-refused', isOf('update', (call) => isStatus(405, 501)(call) && !/\bPUT\b/i.test(fieldOf(call, 'allow'))),
    'the backend requires PATCH, or does not support updates', adviseOnMethod],
  ['method-refused', isStatus(405, 501), 'the backend does not accept {method} on this path', adviseOnMethod],
  ['media-type', isStatus(406, 415), 'the backend does not accept JSON',
    'The gateway sends content-type: application/json and no accept header. The backend must accept such requests.'],
  ['wants-length-or-size', isStatus(411, 413, 414, 431), 'the request is too large for the backend',
    'The gateway sends a body with its exact length. Raise the limit of the backend, or of the proxy in front of it.'],
  ['wrong-name', isStatus(421), 'the backend does not serve that host name',
    'The gateway sends the host in BACKEND_URL as `host`, and uses BACKEND_SERVER_NAME only for TLS. Set BACKEND_URL to the name that the backend serves.'],
  ['rate-limited', isStatus(429), 'the backend limits the rate of requests',
    "All calls come from the gateway's address and share that limit. Raise the limit for the gateway, and limit clients with RATE_LIMIT instead."],
  ['body-refused', (call) => isStatus(400, 409, 422)(call) && call.operation.takesBody,
    'the backend refuses the item that was sent',
    "Use --body to give an item that the backend accepts, as JSON or as a file. It needs every required field. The backend's log says what was missing."],
  ['bad-request', (call, { protocol }) => isStatus(400)(call) && isOnCollection(call) && protocol === 'http:',
    'the backend considers the request malformed',
    'Does that port require https in BACKEND_URL? Some servers answer plain http with 400. Some do not accept the host in BACKEND_URL.'],
  ['bad-request', isStatus(400), 'the backend considers the request malformed',
    'Does the backend use ids of another form? Its log gives the reason.'],
  ['behind-is-away', isStatus(503), 'the backend, or a proxy in front of it, is unavailable',
    'The backend or the proxy is overloaded, starting, or in maintenance. The `server` header, if there is one, shows which of the two answers.'],
  ['behind-is-away', isStatus(502, 504), 'a proxy answers, but not the backend behind it',
    'Check the backend: it may be down, overloaded, or in maintenance.'],
  ['server-error', isRefused(500, 999), 'the backend fails',
    "The fault is in the backend. See the backend's log for this time."],
];

const otherFailure: Failure = [
  'no-success',
  () => true,
  'the backend answers without success',
  'The log of the backend says why. Only a status from 200 to 299 is a success.',
];

function adviseOnMethod(call: Call): string {
  const allow = fieldOf(call, 'allow');
  return `The gateway always uses ${call.operation.method} for this operation. The backend must accept this method${allow === '' ? '' : ` (it allows ${show(allow)})`}. On IIS, the WebDAV module refuses PUT and DELETE: remove that module.`;
}

function adviseOnRedirect(call: Call, backendUrl: URL): string {
  const location = fieldOf(call, 'location');
  const from = new URL(backendUrl.origin + call.path);
  const to = URL.canParse(location, from.href) ? new URL(location, from.href) : undefined;
  if (to === undefined) return 'The redirect names no valid location.';
  const belowBase = call.path.slice(basePathOf(backendUrl).length);
  const base = to.pathname.endsWith(belowBase) ? to.origin + to.pathname.slice(0, -belowBase.length) : undefined;
  return base !== undefined &&
    /^https?:$/.test(to.protocol) &&
    to.search === '' &&
    !(to.origin === from.origin && to.pathname === from.pathname)
    ? `Set BACKEND_URL to ${base}.`
    : to.pathname === `${from.pathname}/`
      ? 'The backend requires a slash at the end of the path, which the gateway never sends: make it accept both.'
      : 'Often this is a sign-in page. The backend must accept calls of the gateway without a sign-in.';
}
