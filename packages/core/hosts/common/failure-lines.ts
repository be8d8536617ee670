// The log of hosts. It writes one line per failure, so that an embedded gateway never fails silently [D50].
// The number of lines per period is limited, because every call fails while the backend is down.

import { describeError } from '../../backend/describe-error.ts';
import type { CallRecord } from '../../call/call-record.ts';
import type { GatewayObserver } from '../../call/gateway.ts';
import { outcomes } from '../../outcomes.ts';
import { outageTexts } from '../../guards/ports/ports.ts';
import { escapeControls } from '../../text/escape.ts';
import type { GatewayErrorCode } from './gateway-error.ts';
import { catchRejection } from './observers.ts';

/** Largest number of lines in a period. After the period, one line reports how many further failures were not written. */
export const linesMax = 10;
export const periodMs = 10_000;
const lineLengthMax = 2_000;

/**
 * Creates an observer that calls `write` with a line for each failure of the backend or the gateway [D51]. Client errors
 * get no line.
 */
export function writeFailureLines(write: (line: string) => unknown = writeToConsole): GatewayObserver {
  let written = 0;
  let skipped = 0;
  const endPeriod = (): void => {
    const count = skipped;
    written = skipped = 0;
    try {
      if (count > 0) writeLine(`${count} more failed in the last ${periodMs / 1_000} s (not shown)`);
    } catch {
      // No caller could handle an error of `write`, which would end the process.
    }
  };
  const writeLine = (text: string): void => {
    if (written === linesMax) {
      skipped += 1;
      return;
    }
    written += 1;
    if (written === 1) {
      // The timer must not keep the process alive.
      setTimeout(endPeriod, periodMs).unref();
    }
    const line = escapeControls(`work-item-gateway: ${text}`);
    catchRejection(write(line.length > lineLengthMax ? `${line.slice(0, lineLengthMax)}…` : line), () => undefined);
  };
  return {
    onCallEnd: (record) => {
      const { fault } = outcomes[record.outcome];
      if (fault === 'backend' || fault === 'gateway') {
        writeLine(describeFailure(record));
      } else if (record.cause instanceof HostReplied) {
        writeLine(`${describeRequest(record)} got no reply from the gateway: ${record.cause.message}.`);
      }
    },
    onMalformed: () => undefined,
    onStall: () => undefined,
    onBug: (error, record) => {
      const request = record === undefined ? '' : ` to ${describeRequest(record)}`;
      writeLine(`bug: a fault after the reply${request}.${describeCause(error)}`);
    },
    onOutage: (what, cause) => {
      const { begins, ends } = outageTexts[what];
      writeLine(cause === undefined ? `${ends}.` : `${begins}. Cause: ${cause}.`);
    },
  };
}

// Passes a single argument, so that `console.error` does not interpret `%`.
function writeToConsole(line: string): void {
  console.error(line);
}

/** A mistake in the code of the host. The message says how to correct it. */
export class HostMistake extends Error {
  readonly code: GatewayErrorCode = 'ERR_GATEWAY_HOST';
}

export function createBodyMistake(): HostMistake {
  return new HostMistake(
    'the host has already read the request body: mount the handler before express.json() and other code that reads bodies (in Fastify, a preParsing hook must pass the body on)',
  );
}

/** The cause in a record if the client got its reply from other code of the host. */
export class HostReplied extends Error {
  constructor() {
    super('other code of the host replied first, for example because its time limit is shorter than backendTimeoutMs');
  }
}

// Example: `GET /api/work-items/5 (request id 0b5f…) got 500, outcome unreachable: no complete, well-formed answer.
// Cause: connect ECONNREFUSED 127.0.0.1:5104.`
function describeFailure(record: CallRecord): string {
  const { status, outcome, cause } = record;
  const got = status === 0 ? 'got no reply' : `got ${status}`;
  const result = `${describeRequest(record)} ${got}, outcome ${outcome}`;
  return cause instanceof HostMistake
    ? `${result}: ${cause.stack ?? cause.message}`
    : `${result}: ${outcomes[outcome].meaning}.${describeCause(cause)}`;
}

function describeRequest({ method, path, requestId }: CallRecord): string {
  return `${method} ${path} (request id ${requestId})`;
}

function describeCause(cause: unknown): string {
  if (cause === undefined) return '';
  return ` Cause: ${cause instanceof Error ? (cause.stack ?? cause.message) : describeError(cause)}.`;
}
