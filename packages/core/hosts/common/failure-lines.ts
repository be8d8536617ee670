// Failures as lines for people, where nobody has given an observer: a gateway in anyone's process that fails must not do
// it in silence [D50]. One line each, and not more than a few of them in a while: a dead backend fails every call.

import { describeError } from '../../backend/describe-error.ts';
import type { CallRecord } from '../../call/call-record.ts';
import type { GatewayObserver } from '../../call/gateway.ts';
import { outcomes, type CallOutcome } from '../../outcomes.ts';
import { outageTexts } from '../../guards/options/outages.ts';
import { escapeControls } from '../../text/escape.ts';

/** So many lines are written in so many milliseconds; further failures are counted, and told of in one line. */
export const linesMax = 10;
export const periodMs = 10_000;
// Of an error with its stack; what is longer says nothing more.
const lineLengthMax = 2_000;

/**
 * An observer that writes a line for each failure that is the backend's or the gateway's [D51], with `write`. What clients
 * do wrong is no failure, and gets none.
 */
export function writeFailureLines(write: (line: string) => void = writeToConsole): GatewayObserver {
  let written = 0;
  let left = 0;
  const endPeriod = (): void => {
    written = 0;
    if (left > 0) {
      const count = left;
      left = 0;
      writeLine(`${count} more failed in the last ${periodMs / 1_000} s; the lines above say how`);
    }
  };
  const writeLine = (text: string): void => {
    if (written === linesMax) {
      left += 1;
      return;
    }
    written += 1;
    if (written === 1) {
      // It ends a process no later.
      setTimeout(endPeriod, periodMs).unref();
    }
    const line = escapeControls(`work-item-gateway: ${text}`);
    write(line.length > lineLengthMax ? `${line.slice(0, lineLengthMax)}…` : line);
  };
  return {
    onCallEnd: (record) => {
      const { outcome } = record;
      if (isFailure(outcome)) {
        writeLine(describeFailure(record, outcome));
      }
    },
    // The client's doing.
    onMalformed: () => undefined,
    onStall: () => undefined,
    onBug: (error, record) => {
      const request = record === undefined ? '' : ` of ${describeRequest(record)}`;
      writeLine(`bug: a fault after the reply${request}. ${describeCause(error)}${advice.bug}.`);
    },
    onOutage: (what, cause) => {
      const { begins, ends } = outageTexts[what];
      writeLine(cause === undefined ? `${ends}.` : `${begins}. Cause: ${cause}.`);
    },
  };
}

// The only argument: no part of it is taken for a format.
function writeToConsole(line: string): void {
  console.error(line);
}

/** A fault that is the host's: its message says what to do there. */
export class HostMistake extends Error {}

// `unreachable: GET /api/work-items/5 (request id 0b5f…) got 500: no complete, well-formed answer. Cause: connect
// ECONNREFUSED 127.0.0.1:5104. Look whether the backend runs, and whether backendUrl is its address.`
function describeFailure(record: CallRecord, outcome: Failure): string {
  const { status, cause } = record;
  const got = status === 0 ? 'got no reply' : `got ${status}`;
  if (cause instanceof HostMistake) {
    return `${outcome}: ${describeRequest(record)} ${got}: ${cause.stack ?? cause.message}`;
  }
  const { meaning } = outcomes[outcome];
  return `${outcome}: ${describeRequest(record)} ${got}: ${meaning}. ${describeCause(cause)}${advice[outcome]}.`;
}

function describeRequest({ method, path, requestId }: CallRecord): string {
  return `${method} ${path} (request id ${requestId})`;
}

function describeCause(cause: unknown): string {
  if (cause === undefined) {
    return '';
  }
  return `Cause: ${cause instanceof Error ? (cause.stack ?? cause.message) : describeError(cause)}. `;
}

type Failure = {
  [Each in CallOutcome]: (typeof outcomes)[Each]['fault'] extends 'backend' | 'gateway' ? Each : never;
}[CallOutcome];

function isFailure(outcome: CallOutcome): outcome is Failure {
  return Object.hasOwn(advice, outcome);
}

// What to do, for whoever mounts the gateway.
const advice: Readonly<Record<Failure, string>> = {
  refused: "Look for the request id in the backend's log",
  unreachable: 'Look whether the backend runs, and whether backendUrl is its address',
  'timed-out': 'Look what the backend is busy with, or raise backendTimeoutMs or backendConnectTimeoutMs',
  'not-json': "Look for the request id in the backend's log: its answer must be JSON",
  'too-large': 'Let the backend answer with less, or raise responseBytesMax or bufferedBytesMax',
  'no-keys': "Look whether the issuer's keys can be fetched from here",
  overload: 'Raise inFlightMax, bufferedBytesMax or the limit of open files, or share the load',
  bug: 'This is a defect of the gateway: report it with this line',
};
