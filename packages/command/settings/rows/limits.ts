// Settings: limits and time limits.

import { limit, msLimit, type Row } from '../../options/row.ts';

export const limitsRows = {
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
} as const satisfies Record<string, Row>;
