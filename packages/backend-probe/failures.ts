// Why a call to the backend can fail: for each cause how it is recognised, and what to do about it. What was asked, what came
// and what clients get is not written here but taken from the call.

import { basePathOf, type Call } from './calls.ts';
import { show } from './describe.ts';

/** What is wrong, beyond the call that showed it. */
export interface FailureWords {
  /** For programs; stays what it is. */
  readonly code: string;
  readonly title: string;
  readonly advice: string;
}

type Text = string | ((call: Call, backendUrl: URL) => string);

type Failure = readonly [isSo: (call: Call, backendUrl: URL) => boolean, title: Text, advice: Text];

/** Explains why a call that should have been a success failed: by the first row that says so. */
export function explainFailure(call: Call, backendUrl: URL): FailureWords {
  const take = (text: Text): string => (typeof text === 'string' ? text : text(call, backendUrl));
  for (const [code, [isSo, title, advice]] of Object.entries(failures)) {
    if (isSo(call, backendUrl)) {
      return { code, title: take(title), advice: take(advice) };
    }
  }
  const advice = 'Its log says why. Only 200 to 299 is a success.';
  return { code: 'no-success', title: 'the backend answers without success', advice };
}

const isStatus =
  (...statuses: number[]) =>
  ({ answer, outcome }: Call): boolean =>
    answer !== undefined && outcome !== 'not-json' && statuses.includes(answer.status);

const isNotJson =
  (isSo: (call: Call, start: Buffer) => boolean) =>
  (call: Call): boolean =>
    call.outcome === 'not-json' && isSo(call, call.answer?.bodyStart ?? Buffer.alloc(0));

const fieldOf = ({ answer }: Call, name: string): string => answer?.fields.get(name) ?? '';

const isOnCollection = ({ operation }: Call): boolean => operation.on === 'collection';

// By code.
const failures: Readonly<Record<string, Failure>> = {
  tls: [
    ({ reason }, { protocol }) => reason === 'tls' && protocol === 'https:',
    'no TLS connection to the backend',
    'The certificate must be valid for the name in BACKEND_URL (or BACKEND_SERVER_NAME) and of an authority in BACKEND_CA_FILE; the gateway never skips the check. A backend that wants a client certificate: BACKEND_CERT_FILE and BACKEND_KEY_FILE.',
  ],
  'no-connection': [
    ({ outcome, hasBytes }) => outcome === 'unreachable' && !hasBytes,
    'the backend gives no answer at all',
    'Is it running, is BACKEND_URL its address, and can this machine reach it? Is it https: that it speaks?',
  ],
  'malformed-answer': [
    ({ outcome }) => outcome === 'unreachable',
    'the answer is no whole, unambiguous HTTP/1.1',
    'The backend, or a proxy before it, breaks the framing of HTTP or closes in the middle of an answer. It must be mended there; the gateway passes on no half answer.',
  ],
  'timed-out': [
    ({ outcome }) => outcome === 'timed-out',
    'no whole answer in time',
    ({ reason }) =>
      reason === 'connect-timeout'
        ? 'Something swallows the connection: a firewall, a wrong address, or a backend that takes no more. BACKEND_CONNECT_TIMEOUT_MS is the limit.'
        : 'The backend is stalled or slower than BACKEND_TIMEOUT_MS allows. Make it faster, or raise that setting.',
  ],
  'too-large': [
    ({ outcome }) => outcome === 'too-large',
    'the answer is larger than allowed',
    'Raise RESPONSE_BYTES_MAX (and BUFFERED_BYTES_MAX with it), or have the backend answer with less.',
  ],
  'own-limit': [
    ({ outcome }) => outcome === 'body-too-large' || outcome === 'overload',
    'the gateway turns the request away by its own limits',
    'Is REQUEST_BYTES_MAX below the size of the item, or ulimit -n too low?',
  ],
  'empty-success': [
    isNotJson(({ answer, reason }) => answer?.status === 204 || reason === 'empty-body'),
    ({ operation }) =>
      operation.name === 'create'
        ? 'creates succeed but answer 500'
        : 'the answer is a success without a body',
    (call) =>
      call.operation.name === 'create'
        ? `The item is made, yet clients see a failure and may make it twice. The backend must answer a create with the new item as JSON${fieldOf(call, 'location') === '' ? '' : '; the gateway does not follow its location'}.`
        : 'The backend must answer with JSON; an empty list is [].',
  ],
  compressed: [
    isNotJson(
      (call, start) =>
        !['', 'identity'].includes(fieldOf(call, 'content-encoding').toLowerCase()) ||
        (start[0] === 0x1f && start[1] === 0x8b),
    ),
    'the answer is compressed, though nobody asked for that',
    'The gateway sends no accept-encoding and unpacks nothing. Turn compression off for its calls, in the backend or in a proxy before it.',
  ],
  html: [
    isNotJson(
      (call, start) =>
        /html|xml/i.test(fieldOf(call, 'content-type')) ||
        start.toString('latin1').trimStart().startsWith('<'),
    ),
    'the answer is a page, not JSON',
    'Most often a sign-in page, an error page with status 200, or another site: is BACKEND_URL the work-item backend itself, with the right base path?',
  ],
  'not-utf-8': [
    isNotJson(
      (call, start) =>
        /charset="?(?!utf-?8\b)/i.test(fieldOf(call, 'content-type')) ||
        start.subarray(0, 2).includes(0) ||
        (start[0] === 0xff && start[1] === 0xfe) ||
        (start[0] === 0xfe && start[1] === 0xff),
    ),
    'the answer is not in UTF-8',
    'JSON is exchanged in UTF-8 alone (RFC 8259, 8.1). Have the backend write UTF-8, not UTF-16 or another charset.',
  ],
  'not-json': [
    ({ outcome }) => outcome === 'not-json',
    'the answer is a success, but no JSON',
    'The body must be one JSON text as RFC 8259 has it: no NaN, no comments, no single quotes, nothing before or behind it.',
  ],
  redirect: [
    ({ answer, outcome }) => outcome === 'refused' && answer !== undefined && answer.status < 400,
    'the backend redirects, which the gateway does not follow',
    adviseOnRedirect,
  ],
  'wants-authentication': [
    isStatus(401, 407),
    'the backend wants to know who calls',
    (call) => {
      const scheme = /^\s*([A-Za-z]+)/.exec(
        fieldOf(call, 'www-authenticate') || fieldOf(call, 'proxy-authenticate'),
      )?.[1];
      return `The gateway sends no credentials${scheme === undefined ? '' : `, so no ${scheme} either`}. Let it in without them from its address (IIS: anonymous authentication for these paths), or by a client certificate: BACKEND_CERT_FILE.`;
    },
  ],
  forbidden: [
    isStatus(403),
    'the backend does not let the gateway in',
    'Allow the address of the gateway there. A backend that asks for a certificate may answer so too: BACKEND_CERT_FILE.',
  ],
  'no-such-path': [
    (call) => isStatus(404, 410)(call) && isOnCollection(call),
    'there is no such path at the backend',
    'Does BACKEND_URL lack a base path, or have one too much? The gateway puts /api/WorkItem behind it, written so.',
  ],
  'item-not-found': [
    isStatus(404, 410),
    'an item that is there is not found under its id',
    'The backend must serve /api/WorkItem/<id> with the ids that its list and its creates name.',
  ],
  'method-refused': [
    isStatus(405, 501),
    (call) =>
      call.operation.name === 'update' && !/\bPUT\b/i.test(fieldOf(call, 'allow'))
        ? 'this backend wants PATCH, or takes no updates'
        : `the backend does not take ${call.operation.method} there`,
    (call) =>
      `The gateway sends ${call.operation.method} and nothing else for this. The backend must take it${fieldOf(call, 'allow') === '' ? '' : ` (it allows ${show(fieldOf(call, 'allow'))})`}; on IIS, WebDAV refuses PUT and DELETE: remove that module.`,
  ],
  'media-type': [
    isStatus(406, 415),
    'the backend does not want JSON',
    'The gateway sends content-type: application/json and no accept. The backend must take the one and do without the other.',
  ],
  'wants-length-or-size': [
    isStatus(411, 413, 414, 431),
    'the request is too large for the backend',
    'The gateway sends a body with its exact length. Raise the limit of the backend, or of the proxy before it.',
  ],
  'wrong-name': [
    isStatus(421),
    'the backend is not called by that name',
    'The host in BACKEND_URL is sent as `host`, BACKEND_SERVER_NAME only in TLS: use the name that the backend serves.',
  ],
  'rate-limited': [
    isStatus(429),
    'the backend limits how often it is asked',
    'All clients come from the address of the gateway, so they share that limit: raise it for the gateway, and limit clients with RATE_LIMIT instead.',
  ],
  'body-refused': [
    (call) => isStatus(400, 409, 422)(call) && call.operation.takesBody,
    'the backend does not want the item that was sent',
    'Say with --body which item it takes, with every field that it requires: as JSON, or a file. The log of the backend says what was missing.',
  ],
  'bad-request': [
    isStatus(400),
    'the backend takes the request for malformed',
    ({ operation }, { protocol }) =>
      operation.on === 'collection' && protocol === 'http:'
        ? 'Does that port want https: in BACKEND_URL? Some servers answer plain http with 400. Some do not take the host in BACKEND_URL.'
        : 'Does the backend take ids of another form? Its log says what it did not like.',
  ],
  'behind-is-away': [
    isStatus(502, 503, 504),
    'a proxy answers, but not the backend behind it',
    'Look there: the backend is away, overloaded, or in maintenance.',
  ],
  'server-error': [
    ({ answer, outcome }) => outcome === 'refused' && answer !== undefined && answer.status >= 500,
    'the backend fails',
    'Look in its log at this time: the fault is there.',
  ],
};

function adviseOnRedirect(call: Call, backendUrl: URL): string {
  const location = fieldOf(call, 'location');
  const from = new URL(backendUrl.origin + call.path);
  const to = URL.canParse(location, from.href) ? new URL(location, from.href) : undefined;
  if (to === undefined) {
    return 'It names no place that could be understood.';
  }
  const belowBase = call.path.slice(basePathOf(backendUrl).length);
  const base = to.pathname.endsWith(belowBase)
    ? to.origin + to.pathname.slice(0, -belowBase.length)
    : undefined;
  return base !== undefined &&
    /^https?:$/.test(to.protocol) &&
    to.search === '' &&
    !(to.origin === from.origin && to.pathname === from.pathname)
    ? `Set BACKEND_URL to ${base}.`
    : to.pathname === `${from.pathname}/`
      ? 'The backend wants a slash at the end of the path, which the gateway never sends: have it take both.'
      : 'Often that is a sign-in page: the backend must let the gateway in without one.';
}
