// Reads and checks values of a request: its id [D25] and trace context [D12] for the backend; its path [D52], user agent
// and subject [D62] for the log.

import { escapeControls, escapeNonAscii } from '../text/escape.ts';
import { fieldValue, fieldValues, onlyFieldValue } from '../http1/head.ts';
import { RandomText } from '../text/random-text.ts';

// Random UUIDs [RFC 9562, 5.4].
const requestIds = new RandomText('xxxxxxxx-xxxx-4xxx-yxxx-xxxxxxxxxxxx');
const requestIdForm = /^[A-Za-z0-9._~-]{1,128}$/;
// W3C Trace Context, 3.2: version, trace-id, parent-id, flags; a later version may append more fields.
const traceParentForm = /^([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?$/;
// W3C Trace Context, 3.3.1.3: one list member. It is empty, or has a key, `=` and a value of printable ASCII.
const traceStateMemberForm = /^[ \t]*(?:[a-z0-9][a-z0-9_\-*/@]{0,255}=[ -+\--<>-~]{0,255}[!-+\--<>-~])?[ \t]*$/;
const noTraceContext: readonly string[] = [];
// Flags. `sampled`: the trace is sampled. `random`: the trace id is random (W3C Trace Context 2, 3.2.2.5).
const sampled = 1;
const random = 2;

// Matches most targets: a path without a query. Such a path can be shown unchanged.
const plainPath = /^\/[!-"$->@-~]{0,255}$/;
const pathLengthMax = 256;

/**
 * Returns a target's path for log and dashboard, at most 256 characters. Removes query and fragment, and the scheme
 * and authority of an absolute-form target. Escapes every byte except printable ASCII, for example as `\u00e9` [D52].
 */
export function describePath(target: string): string {
  if (plainPath.test(target)) return target;
  const path = target.replace(/^[a-z][a-z0-9+.-]*:\/\/[^/?#]*/i, '').replace(/[?#].*/s, '');
  // A target that is not a path could contain credentials, so it is not shown.
  const isPath = path.startsWith('/') || path === '*';
  return isPath ? escapeNonAscii(path.slice(0, pathLengthMax)).slice(0, pathLengthMax) : '';
}

const plainAgent = /^[ -~]{0,128}$/;
const agentLengthMax = 128;

/** Returns the client's `user-agent`, at most 128 characters, escaped like a path; undefined if there is none [D62]. */
export function describeAgent(fields: readonly string[]): string | undefined {
  const agent = fieldValue(fields, 'user-agent');
  return agent === undefined || plainAgent.test(agent)
    ? agent
    : escapeNonAscii(agent.slice(0, agentLengthMax)).slice(0, agentLengthMax);
}

// Long enough for every valid subject: OpenID Connect Core, section 2, allows 255 characters.
const subjectLengthMax = 256;

/** Returns a token's subject, at most 256 characters, with control characters escaped [D62]. */
export function describeSubject(subject: string): string {
  return escapeControls(subject.slice(0, subjectLengthMax)).slice(0, subjectLengthMax);
}

/** Returns the client's request id if it is valid, otherwise a new one [D25]. */
export function readRequestId(fields: readonly string[]): string {
  const given = onlyFieldValue(fields, 'x-request-id');
  return given !== undefined && isRequestId(given) ? given : createRequestId();
}

export function isRequestId(text: string): boolean {
  return requestIdForm.test(text);
}

export function createRequestId(): string {
  return requestIds.draw();
}

/** Returns the W3C trace context to forward, as name, value, name, value; empty if missing or invalid [D12]. */
export function readTraceContext(fields: readonly string[]): readonly string[] {
  const traceParent = onlyFieldValue(fields, 'traceparent');
  if (traceParent === undefined) return noTraceContext;
  const states = fieldValues(fields, 'tracestate');
  return checkTraceContext(traceParent, states.length === 0 ? undefined : states.join(','));
}

function checkTraceContext(traceParent: string, traceState: string | undefined): readonly string[] {
  const match = traceParentForm.exec(traceParent);
  if (match === null) return noTraceContext;
  const [, version = '', traceId = '', parentId = '', flags = '', rest] = match;
  if (version === 'ff' || (version === '00' && rest !== undefined)) return noTraceContext;
  if (/^0+$/.test(traceId) || /^0+$/.test(parentId)) return noTraceContext;
  // The field is rewritten as version 00, the only version that the gateway supports, with the known flags. In a later
  // version only the flag `sampled` is known (W3C Trace Context 2, 3.2.2.5 and 4).
  const known = Number.parseInt(flags, 16) & (version === '00' ? sampled | random : sampled);
  const traceContext = ['traceparent', `00-${traceId}-${parentId}-0${known}`];
  if (traceState !== undefined && isTraceState(traceState)) traceContext.push('tracestate', traceState);
  return traceContext;
}

function isTraceState(value: string): boolean {
  const members = value.split(',');
  return value.length <= 512 && members.length <= 32 && members.every((member) => traceStateMemberForm.test(member));
}
