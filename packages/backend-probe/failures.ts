// Explains failed calls to the backend: the request, the backend's response, the reply to the client and the fix. Texts
// from the backend are shortened and escaped.

import { backendPath, type OperationName } from '../core/operations.ts';
import { escapeControls } from '../core/text/escape.ts';
import { troubleOfCall, troubles, type Trouble, type TroubleCode } from '../figures/troubles.ts';
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

/** Explains why `call` failed: with the words of the table, or of the first refinement that applies. */
export function explainFailure(call: Call, backendUrl: URL): Finding {
  const [refined, , words] = refinements.find(([, applies]) => applies(call)) ?? [];
  const code = refined ?? troubleOf(call);
  const { title, step } = { ...troubles[code], ...words?.(call, backendUrl) };
  return createFinding(call, code, title, step);
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
  const why = cause === undefined || reason === 'status' || outcome === 'not-json' ? '' : `: ${show(cause, 400)}`;
  if (answer === undefined) return `${hasBytes ? 'no readable answer' : 'no answer'}${why}`;
  const fields = tellingFields.flatMap((name) => {
    const value = answer.fields.get(name);
    // The query of a redirect may have a secret.
    const shown = name === 'location' ? value?.replace(/[?#].*/s, '') : value;
    return shown === undefined ? [] : [`${name}: ${show(shown)}`];
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

/** A code that only the whole answer shows, or other words for a code. Missing words are those of the table. */
type Refinement = readonly [
  code: TroubleCode,
  applies: (call: Call) => boolean,
  words?: (call: Call, backendUrl: URL) => Partial<Trouble>,
];

const fieldOf = ({ answer }: Call, name: string): string => answer?.fields.get(name) ?? '';

const startOf = ({ answer }: Call): string => answer?.bodyStart.toString('latin1') ?? '';

const isEmpty = ({ answer, reason }: Call): boolean => answer?.status === 204 || reason === 'empty-body';

const statusOf = ({ answer }: Call): number => answer?.status ?? 0;

const troubleOf = (call: Call): TroubleCode => troubleOfCall({ ...call, backendStatus: call.answer?.status });

const isNotJson = ({ outcome }: Call): boolean => outcome === 'not-json';

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
const refinements: readonly Refinement[] = [
  ['http2-only', (call) => (call.outcome === 'unreachable' || [400, 403, 426, 505].includes(statusOf(call))) && isOnlyHttp2(call)],
  ['malformed-answer', ({ outcome, reason, hasBytes }) => outcome === 'unreachable' && hasBytes && reason !== 'tls'],
  ['no-connection', (call) => !call.hasBytes && call.isReused && call.outcome === 'unreachable', () => ({
    title: troubles['connection-lost'].title,
    step: 'Earlier requests were answered on this connection. Either the backend failed, or it closes idle connections too soon and without notice. Let it keep them open longer than BACKEND_IDLE_TIMEOUT_MS, or answer with `connection: close`.' })],
  ['no-connection', (call) => troubleOf(call) === 'no-connection', () => ({ title: `${troubles['no-connection'].title} at all` })],
  ['empty-success', (call) => isNotJson(call) && isEmpty(call) && call.operation.name === 'create', (call) => ({
    title: 'the backend creates items, but clients get 500',
    step: `The item is created, yet clients see a failure and may create it twice. The backend must answer a create with the new item as JSON${fieldOf(call, 'location') === '' ? '' : '; the gateway does not follow its location header'}.` })],
  ['empty-success', (call) => isNotJson(call) && isEmpty(call)],
  ['compressed', (call) => isNotJson(call) && (!/^(?:identity)?$/i.test(fieldOf(call, 'content-encoding')) || startOf(call).startsWith('\x1f\x8b'))],
  ['html', (call) => isNotJson(call) && (/html|xml/i.test(fieldOf(call, 'content-type')) || /^\s*</.test(startOf(call)))],
  ['not-utf-8', (call) => isNotJson(call) && (/charset="?(?!utf-?8\b)/i.test(fieldOf(call, 'content-type')) || /^(?:\0|.\0|\xff\xfe|\xfe\xff)/s.test(startOf(call)))],
  ['redirect', (call) => call.reason === 'status' && statusOf(call) < 400, (call, backendUrl) => ({ step: adviseOnRedirect(call, backendUrl) })],
  ['wants-authentication', (call) => [401, 407].includes(statusOf(call)), (call) => {
    const challenge = fieldOf(call, 'www-authenticate') || fieldOf(call, 'proxy-authenticate');
    const scheme = /^\s*([A-Za-z]+)/.exec(challenge)?.[1];
    const { step } = troubles['wants-authentication'];
    return { step: scheme === undefined ? step : step.replace('credentials.', `credentials, so it cannot use ${scheme}.`) };
  }],
  ['bad-request', (call) => statusOf(call) === 400 && call.operation.on === 'item' && !call.operation.takesBody, () => ({
    step: "Does the backend require ids that are not integers? The backend's log gives the reason." })],
  ['method-refused', (call) => [405, 501].includes(statusOf(call)), (call) => ({
    title: call.operation.name === 'update' && !/\bPUT\b/i.test(fieldOf(call, 'allow'))
      ? 'the backend requires PATCH, or does not support updates'
      : `the backend does not accept ${call.operation.method} on this path`,
    step: adviseOnMethod(call) })],
];

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
