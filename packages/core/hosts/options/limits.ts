// The limits of a gateway: how much it holds, and for how long it waits.

import { integer, milliseconds } from './kinds.ts';
import { omit, type SharedRow } from './rows.ts';

// A body is held in one piece at most once; the platform's largest buffer is far above this.
const bytesMax = 2_147_483_647;

export const sizeLimitRows = {
  /** Connections open at once; past it idle ones make room, or the new one is closed [D26]. Default 10,000. */
  connectionsMax: {
    kind: integer('connections', 1, 1_000_000),
    default: 10_000,
    help: 'Connections of clients open at once; for one more those longest at rest make room, and where none rests it is closed.',
  },
  /** Largest request head, in bytes; past it 431 [D27]. Default 16,384. */
  requestHeadBytesMax: {
    kind: integer('bytes', 1_024, 1_048_576),
    default: 16_384,
    help: 'Largest request head; a larger one is answered with 431. Counted are the target and the names and values of its headers, without what stands between them.',
  },
  /** Largest request body, in bytes [D11]. Default 10 MiB. */
  requestBytesMax: {
    kind: integer('bytes', 1, bytesMax),
    default: 10_485_760,
    help: 'Largest request body; a larger one is answered with 413.',
  },
  /** Largest answer that is passed through, in bytes [D18]. Default 64 MiB. */
  responseBytesMax: {
    kind: integer('bytes', 1, bytesMax),
    default: 67_108_864,
    help: "Largest answer of the backend that is passed through; a larger one is the operation's 500.",
  },
  /** Calls under way at once; one more gets 503 [D26]. Default 1,024. */
  inFlightMax: {
    kind: integer('calls', 1, 1_000_000),
    default: 1_024,
    help: 'Calls to the backend under way at once; one more is answered with 503.',
  },
  /** Bytes of bodies held at once, requests and answers together; past it 503. Default 1 GiB. */
  bufferedBytesMax: {
    kind: integer('bytes', 1, 1_099_511_627_776),
    default: 1_073_741_824,
    help: "Bytes of bodies held at once, requests and answers together; past it a new call or a growing request body is answered with 503, a growing answer with the operation's 500.",
  },
} satisfies Readonly<Record<string, SharedRow>>;

export const timeLimitRows = {
  /** From sending a call to the last byte of its answer, in milliseconds [D19]. Default 30,000. */
  backendTimeoutMs: {
    kind: milliseconds,
    default: 30_000,
    help: "From sending a call to the last byte of its answer; past it the operation's 500.",
  },
  /** For connecting to the backend, in milliseconds [D19]. Default 5,000. */
  backendConnectTimeoutMs: {
    kind: milliseconds,
    default: 5_000,
    help: "For connecting to the backend; past it the operation's 500.",
  },
  /** How long an idle connection to the backend is kept, in milliseconds. Default 4,000. */
  backendIdleTimeoutMs: {
    kind: milliseconds,
    default: 4_000,
    help: 'How long an idle connection to the backend is kept; keep it below what the backend does. A shorter time that the backend announces counts instead.',
  },
  /** For a request's head, in milliseconds [D35]. Default 10,000. */
  requestHeadersTimeoutMs: {
    kind: milliseconds,
    default: 10_000,
    help: "For a request's head; past it 408 and the connection is closed.",
  },
  /** For a request's head and body together, in milliseconds [D35]. Default 30,000. */
  requestTimeoutMs: {
    kind: milliseconds,
    default: 30_000,
    help: "For a request's head and body together; past it 408 and the connection is closed.",
  },
  /** How long a client may take no byte of its reply, in milliseconds [D35]. Default 30,000. */
  replyStallTimeoutMs: {
    kind: milliseconds,
    default: 30_000,
    help: 'How long a client may take no byte of its reply before its connection is cut.',
  },
  /** Between two requests of a connection, in milliseconds [D35]. Default 72,000. */
  idleTimeoutMs: {
    kind: milliseconds,
    default: 72_000,
    help: 'How long a connection may rest between two requests; keep it above what a load balancer in front does.',
  },
} satisfies Readonly<Record<string, SharedRow>>;

export const limitRows: typeof sizeLimitRows & typeof timeLimitRows = { ...sizeLimitRows, ...timeLimitRows };

/** The limits of calls, which every host has. Those of clients' connections are the host's own where it has a server. */
export const callLimitRows = omit(limitRows, [
  'connectionsMax',
  'requestHeadBytesMax',
  'requestHeadersTimeoutMs',
  'requestTimeoutMs',
  'idleTimeoutMs',
]);

export const shutdownTimeoutRow = {
  kind: milliseconds,
  default: 10_000,
  help: 'How long requests under way may take after that delay; then they are cut and the exit code is 1.',
} satisfies SharedRow;
