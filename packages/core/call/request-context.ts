// The parts of a request's head that go further, checked: request id [D25] and trace context [D12] to the backend, path
// [D52] and user agent [D62] to the log.

import { escapeControls, escapeNonAscii } from '../text/escape.ts';
import { fieldValue, fieldValues, onlyFieldValue } from '../http1/head.ts';
import { RandomText } from '../text/random-text.ts';

// Random UUIDs [RFC 9562, 5.4].
const requestIds = new RandomText('xxxxxxxx-xxxx-4xxx-yxxx-xxxxxxxxxxxx');
const requestIdForm = /^[A-Za-z0-9._~-]{1,128}$/;
// W3C Trace Context, 3.2: version, trace-id, parent-id, flags; a later version may have more behind them.
const traceParentForm = /^([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?$/;
// W3C Trace Context, 3.3.1.3: list members of a key and a value of printable ASCII.
const traceStateMemberForm =
  /^[ \t]*(?:[a-z0-9][a-z0-9_\-*/@]{0,255}=[ -+\--<>-~]{0,255}[!-+\--<>-~])?[ \t]*$/;
const noTraceContext: readonly string[] = [];
// Flags of a trace: it is sampled; its id is random (W3C Trace Context 2, 3.2.2.5).
const sampled = 1;
const random = 2;

// What most targets are: a path that can be shown as it is, and nothing else.
const plainPath = /^\/[!-"$->@-~]{0,255}$/;
const pathLengthMax = 256;

/**
 * The path of a target, for people: as it came, without query, fragment and what stands before it in absolute-form, at
 * most 256 characters, those that are not printable ASCII as `\u00e9` (one for each byte) [D52].
 */
export function describePath(target: string): string {
  if (plainPath.test(target)) {
    return target;
  }
  const path = target.replace(/^[a-z][a-z0-9+.-]*:\/\/[^/?#]*/i, '').replace(/[?#].*/s, '');
  // Anything else could have credentials in it.
  const isPath = path.startsWith('/') || path === '*';
  return isPath ? escapeNonAscii(path.slice(0, pathLengthMax)).slice(0, pathLengthMax) : '';
}

const plainAgent = /^[ -~]{0,128}$/;
const agentLengthMax = 128;

/** The client's `user-agent`, at most 128 characters, escaped as a path is; undefined without one [D62]. */
export function describeAgent(fields: readonly string[]): string | undefined {
  const agent = fieldValue(fields, 'user-agent');
  return agent === undefined || plainAgent.test(agent)
    ? agent
    : escapeNonAscii(agent.slice(0, agentLengthMax)).slice(0, agentLengthMax);
}

// OpenID Connect Core, 2, allows 255.
const subjectLengthMax = 256;

/** A token's subject, at most 256 characters, with control characters escaped [D62]. */
export function describeSubject(subject: string): string {
  return escapeControls(subject.slice(0, subjectLengthMax)).slice(0, subjectLengthMax);
}

/** The client's request id where it sent one that is valid, otherwise a new one [D25]. */
export function readRequestId(fields: readonly string[]): string {
  const given = onlyFieldValue(fields, 'x-request-id');
  return given !== undefined && isRequestId(given) ? given : createRequestId();
}

/** Whether `text` can be a request id [D25]. */
export function isRequestId(text: string): boolean {
  return requestIdForm.test(text);
}

/** A new request id: a random UUID [D25]. */
export function createRequestId(): string {
  return requestIds.draw();
}

/** The W3C trace context, ready to be sent on as name, value, ...; empty when there is none that is valid [D12]. */
export function readTraceContext(fields: readonly string[]): readonly string[] {
  const traceParent = onlyFieldValue(fields, 'traceparent');
  if (traceParent === undefined) {
    return noTraceContext;
  }
  const states = fieldValues(fields, 'tracestate');
  return checkTraceContext(traceParent, states.length === 0 ? undefined : states.join(','));
}

function checkTraceContext(traceParent: string, traceState: string | undefined): readonly string[] {
  const match = traceParentForm.exec(traceParent);
  if (match === null) {
    return noTraceContext;
  }
  const [, version = '', traceId = '', parentId = '', flags = '', rest] = match;
  if (version === 'ff' || (version === '00' && rest !== undefined)) {
    return noTraceContext;
  }
  if (/^0+$/.test(traceId) || /^0+$/.test(parentId)) {
    return noTraceContext;
  }
  // Written anew, in the one version that this gateway knows, with the flags that it knows; of a later version that is the
  // first alone (W3C Trace Context 2, 3.2.2.5 and 4).
  const known = Number.parseInt(flags, 16) & (version === '00' ? sampled | random : sampled);
  const traceContext = ['traceparent', `00-${traceId}-${parentId}-0${known}`];
  if (traceState !== undefined && isTraceState(traceState)) {
    traceContext.push('tracestate', traceState);
  }
  return traceContext;
}

function isTraceState(value: string): boolean {
  const members = value.split(',');
  return (
    value.length <= 512 &&
    members.length <= 32 &&
    members.every((member) => traceStateMemberForm.test(member))
  );
}
