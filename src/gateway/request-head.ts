// Reads what the gateway needs from a request's head, and holds the one rule about heads that two parsers
// could read differently: unambiguous, or 400 [D27]. Node's parser has refused the worst already (both
// content-length and transfer-encoding, two lengths, bare line feeds, folded lines); what it lets through
// and this gateway does not is here. It decides nothing about operations.

import { randomUUID } from 'node:crypto';
import type { IncomingMessage } from 'node:http';
import { isIPv6 } from 'node:net';

import { escapeNonAscii } from '../escape.ts';

export interface RequestHead {
  /** Two parsers could read this head differently, or it is not valid HTTP/1.1 [D27]. */
  readonly isAmbiguous: boolean;
  /** The client's checked `x-request-id`, or a new one [D25]. */
  readonly requestId: string;
  /** W3C trace context, checked and ready to be sent on as name, value, ...; empty when there is none [D12]. */
  readonly traceContext: readonly string[];
  readonly expectation: 'none' | 'continue' | 'unknown';
  /** Another protocol is asked for. It is not spoken here, and Node reads no further request after this one. */
  readonly asksForUpgrade: boolean;
  /** A body is announced: a length above zero, or chunks. */
  readonly hasBody: boolean;
  /** The value of `Host`; undefined without one. */
  readonly host: string | undefined;
  /** Every `sec-fetch-site` that came, with commas between them; undefined without one [D56]. */
  readonly secFetchSite: string | undefined;
  /** The announced length in bytes; undefined for chunks and without a body. */
  readonly contentLength: number | undefined;
}

const requestIdForm = /^[A-Za-z0-9._~-]{1,128}$/;
// RFC 9110, 7.2 with RFC 3986, 3.2.2: a registered name, IPv4 address or bracketed IPv6 address, and a port.
// Without the comma, which RFC 3986 allows and a parser of lists would read as two hosts.
const hostForm = /^(?:\[([0-9A-Fa-f:.]+)\]|(?:[A-Za-z0-9._~!$&'()*+;=-]|%[0-9A-Fa-f]{2})*)(?::(\d{0,5}))?$/;
/** The start of an absolute-form target, its host and port as the first group [D27]. */
export const absoluteForm = /^https?:\/\/([^/?]*)/i;
// W3C Trace Context, 3.2: version, trace-id, parent-id, flags; a later version may have more behind them.
const traceParentForm = /^([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?$/;
// W3C Trace Context, 3.3.1.3: list members of a key and a value of printable ASCII.
const traceStateMemberForm =
  /^[ \t]*(?:[a-z0-9][a-z0-9_\-*/@]{0,255}=[ -+\--<>-~]{0,255}[!-+\--<>-~])?[ \t]*$/;
const noTraceContext: readonly string[] = [];

/** What `request`'s head says; never throws. */
export function readRequestHead(request: IncomingMessage): RequestHead {
  let host: string | undefined;
  let hostCount = 0;
  let isHostValid = true;
  let transferEncoding: string | undefined;
  let contentLength: number | undefined;
  let secFetchSite: string | undefined;
  let requestId: string | undefined;
  let requestIdCount = 0;
  let traceParent: string | undefined;
  let traceParentCount = 0;
  let traceState: string | undefined;
  let expectation: RequestHead['expectation'] = 'none';
  let asksForUpgrade = false;

  const rawHeaders = request.rawHeaders;
  for (let index = 0; index < rawHeaders.length; index += 2) {
    const name = rawHeaders[index] ?? '';
    const value = rawHeaders[index + 1] ?? '';
    // The length decides first: most headers of a request are none of these and cost one comparison.
    switch (name.length) {
      case 4:
        if (isName(name, 'host')) {
          host = value;
          hostCount += 1;
          isHostValid &&= isAuthority(value);
        }
        break;
      case 6:
        if (isName(name, 'expect')) {
          expectation =
            value.toLowerCase() === '100-continue' && expectation === 'none' ? 'continue' : 'unknown';
        }
        break;
      case 7:
        asksForUpgrade ||= isName(name, 'upgrade');
        break;
      case 10:
        if (isName(name, 'tracestate')) {
          traceState = traceState === undefined ? value : `${traceState},${value}`;
        }
        break;
      case 11:
        if (isName(name, 'traceparent')) {
          traceParentCount += 1;
          traceParent = value;
        }
        break;
      case 12:
        if (isName(name, 'x-request-id')) {
          requestIdCount += 1;
          requestId = value;
        }
        break;
      case 14:
        if (isName(name, 'content-length')) {
          contentLength = Number(value);
        } else if (isName(name, 'sec-fetch-site')) {
          secFetchSite = secFetchSite === undefined ? value : `${secFetchSite},${value}`;
        }
        break;
      case 17:
        if (isName(name, 'transfer-encoding')) {
          transferEncoding = transferEncoding === undefined ? value : `${transferEncoding}, ${value}`;
        }
        break;
    }
  }

  const minorVersion = request.httpVersionMajor === 1 ? request.httpVersionMinor : -1;
  return {
    isAmbiguous:
      (minorVersion !== 1 && minorVersion !== 0) ||
      hostCount > 1 ||
      (hostCount === 0 && minorVersion === 1) ||
      !isHostValid ||
      // Exactly one coding, `chunked`: behind any other the end of the body is a matter of opinion; and
      // HTTP/1.0 knows no codings (RFC 9112, 6.1).
      (transferEncoding !== undefined &&
        (minorVersion === 0 ||
          contentLength !== undefined ||
          transferEncoding.toLowerCase() !== 'chunked')) ||
      !isTarget(request.url ?? '', request.method),
    requestId:
      requestId !== undefined && requestIdCount === 1 && requestIdForm.test(requestId)
        ? requestId
        : createRequestId(),
    traceContext:
      traceParent !== undefined && traceParentCount === 1
        ? checkTraceContext(traceParent, traceState)
        : noTraceContext,
    // A client of HTTP/1.0 knows no 100: it would take it for its reply (RFC 9110, 10.1.1).
    expectation: expectation === 'continue' && request.httpVersionMinor === 0 ? 'none' : expectation,
    asksForUpgrade,
    hasBody: transferEncoding !== undefined || (contentLength !== undefined && contentLength > 0),
    host,
    secFetchSite,
    contentLength: transferEncoding === undefined ? contentLength : undefined,
  };
}

let lastAuthority = '';

// An empty one is valid in Host (RFC 9110, 7.2), a port of no host is not.
function isAuthority(value: string): boolean {
  // A client sends the same one again and again.
  if (value === lastAuthority) {
    return true;
  }
  const match = hostForm.exec(value);
  if (
    match === null ||
    value.startsWith(':') ||
    Number(match[2] ?? 0) > 65_535 ||
    (match[1] !== undefined && !isIPv6(match[1])) ||
    !hasGoodEscapes(value)
  ) {
    return false;
  }
  lastAuthority = value;
  return true;
}

// Origin-form, absolute-form with a host and nothing else before its path, or `*` for OPTIONS (RFC 9112, 3.2). A
// fragment is never part of a target: some parsers cut there and some do not.
function isTarget(target: string, method: string | undefined): boolean {
  if (target.includes('#')) {
    return false;
  }
  if (target.startsWith('/')) {
    return true;
  }
  if (target === '*') {
    return method === 'OPTIONS';
  }
  const authority = absoluteForm.exec(target)?.[1];
  return authority !== undefined && !/^(?::|$)/.test(authority) && isAuthority(authority);
}

/** Whether every escape is one, and of UTF-8: what others cannot decode they may read as anything [D60]. */
export function hasGoodEscapes(text: string): boolean {
  if (!text.includes('%')) {
    return true;
  }
  try {
    decodeURIComponent(text);
    return true;
  } catch {
    return false;
  }
}

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

/** A new request id: a random UUID [D25]. */
export function createRequestId(): string {
  return randomUUID();
}

function isName(name: string, lowerCaseName: string): boolean {
  return name === lowerCaseName || name.toLowerCase() === lowerCaseName;
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
  // Written anew, in the one version that this gateway has checked (W3C Trace Context, 4.3).
  const traceContext = ['traceparent', `00-${traceId}-${parentId}-${flags}`];
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
