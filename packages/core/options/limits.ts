// The options for size limits and timeouts.

import { integer, milliseconds, msMax } from './kinds.ts';
import { omit, type OptionRow } from './rows.ts';

// Far below the size of Node's largest buffer, because a whole body must sometimes fit into one buffer.
const bytesMax = 2_147_483_647;

export const sizeLimitRows = {
  /**
   * Maximum number of client connections. Beyond it, the connections that are idle longest are closed, or the new
   * connection if none is idle [D26]. Default 10,000.
   */
  connectionsMax: {
    kind: integer('connections', 1, 1_000_000),
    default: 10_000,
    help: 'Maximum number of client connections; beyond it, the connections idle longest are closed, or the new connection if none is idle.',
  },
  /** Largest request head, in bytes; larger ones get 431 [D27]. Default 16,384. */
  requestHeadBytesMax: {
    kind: integer('bytes', 1_024, 1_048_576),
    default: 16_384,
    help: 'Largest request head; larger ones get 431. Over HTTP/1.1 every byte of the head counts. Over HTTP/2 the names, the values and 4 bytes for each field count.',
  },
  /** Largest request body, in bytes; larger ones get 413 [D11]. Default 10 MiB. */
  requestBytesMax: {
    kind: integer('bytes', 1, bytesMax),
    default: 10_485_760,
    help: 'Largest request body; larger ones get 413.',
  },
  /** Largest answer that is passed through, in bytes; for larger ones the client gets 500 [D18]. Default 64 MiB. */
  responseBytesMax: {
    kind: integer('bytes', 1, bytesMax),
    default: 67_108_864,
    help: "Largest answer of the backend that is passed through; for a larger answer the client gets the operation's 500.",
  },
  /** Largest number of calls in flight to the backend; beyond it a call gets 503 [D26]. Default 1,024. */
  inFlightMax: {
    kind: integer('calls', 1, 1_000_000),
    default: 1_024,
    help: 'Maximum number of calls in flight to the backend; beyond it a call gets 503.',
  },
  /**
   * Maximum memory for all that clients and the backend make the gateway hold, in bytes [D69]. Beyond it, a new call or a
   * growing request body gets 503; for a growing answer the client gets 500. Default 1 GiB.
   */
  bufferedBytesMax: {
    kind: integer('bytes', 1, 1_099_511_627_776),
    default: 1_073_741_824,
    help: "Maximum memory for bodies, answers, unread replies and requests sent ahead; beyond it a new call or a growing request body gets 503, and a growing answer becomes the operation's 500.",
  },
} satisfies Readonly<Record<string, OptionRow>>;

export const timeLimitRows = {
  /** Timeout in ms from sending a call to the last byte of its answer; then the client gets 500 [D19]. Default 30,000. */
  backendTimeoutMs: {
    kind: milliseconds,
    default: 30_000,
    help: "Timeout from sending a call to the last byte of its answer; then the client gets the operation's 500.",
  },
  /** Timeout in ms for connecting to the backend; then the client gets 500 [D19]. Default 5,000. */
  backendConnectTimeoutMs: {
    kind: milliseconds,
    default: 5_000,
    help: "Timeout for connecting to the backend; then the client gets the operation's 500.",
  },
  /** Idle timeout of connections to the backend, in milliseconds. Default 4,000. */
  backendIdleTimeoutMs: {
    kind: milliseconds,
    default: 4_000,
    help: "How long an idle connection to the backend is kept open; set it below the backend's own idle timeout. A shorter time announced by the backend takes precedence.",
  },
  /** Maximum age of a connection to the backend for a new call, in ms [D68]. 0: no limit. Default 600,000. */
  backendConnectionAgeMaxMs: {
    kind: integer('ms', 0, msMax),
    default: 600_000,
    help: 'Maximum age of a connection to the backend for a new call; 0 means no limit. After this time the gateway follows a changed DNS record.',
  },
  /** Timeout in ms for receiving a request head; then the client gets 408 [D35]. Default 10,000. */
  requestHeadersTimeoutMs: {
    kind: milliseconds,
    default: 10_000,
    help: 'Timeout for receiving a request head; then the client gets 408 and the connection is closed.',
  },
  /** Timeout in ms for receiving a request's head and body together; then the client gets 408 [D35]. Default 30,000. */
  requestTimeoutMs: {
    kind: milliseconds,
    default: 30_000,
    help: "Timeout for receiving a request's head and body together; then the client gets 408 and the connection is closed.",
  },
  /** How many ms a client may read nothing of its reply; then its connection is closed [D35]. Default 60,000. */
  replyStallTimeoutMs: {
    kind: milliseconds,
    default: 60_000,
    help: 'How long a client may read nothing of its reply; then its connection is closed.',
  },
  /** Idle timeout of client connections between two requests, in milliseconds [D35]. Default 72,000. */
  idleTimeoutMs: {
    kind: milliseconds,
    default: 72_000,
    help: "How long a client connection may be idle between two requests; set it above the load balancer's idle timeout.",
  },
} satisfies Readonly<Record<string, OptionRow>>;

export const limitRows: typeof sizeLimitRows & typeof timeLimitRows = { ...sizeLimitRows, ...timeLimitRows };

/**
 * The limits that all hosts share. `requestTimeoutMs` is omitted because each host has its own row for it. The other
 * omitted limits need the gateway's own server.
 */
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
  help: 'How long requests in flight may take after the shutdown delay; requests that take longer are cut, and the exit code is 1.',
} satisfies OptionRow;
