// Writes the log line of a finished request: the same bytes as `logger.info(fields, 'request')` of pino, at a third of the
// cost. Many values need no escape, because a request id has only letters, digits and `._~-` [D25] and a client is an IP
// address. Path and agent are printable ASCII. Only this file reads pino's symbols. test/unit/log.test.ts compares its line
// with pino's.

import { pino, type DestinationStream, type Logger } from 'pino';

import type { CallRecord } from '../../core/call/call-record.ts';
import { escapeControls } from '../../core/text/escape.ts';

// pino exports these symbols but does not document the values under them.
type LoggerParts = Logger & {
  readonly [pino.symbols.streamSym]: DestinationStream;
  readonly [pino.symbols.timeSym]: () => string;
  readonly [pino.symbols.chindingsSym]: string;
};

/** Writes the line at level `info`, which must be enabled. */
export function writeCall(logger: Logger, call: CallRecord, showsClient: boolean): void {
  const parts = logger as LoggerParts;
  const operation = call.operation === undefined ? '' : `,"operation":"${call.operation.name}"`;
  const client = showsClient ? writeClient(call) : '';
  const backendMs = call.backendDurationMs === undefined ? '' : `,"backendMs":${writeMs(call.backendDurationMs)}`;
  const cause = call.cause === undefined ? '' : `,"cause":${escapeControls(JSON.stringify(call.cause))}`;
  parts[pino.symbols.streamSym].write(
    `{"level":"info"${parts[pino.symbols.timeSym]()}${parts[pino.symbols.chindingsSym]},"requestId":"${call.requestId}"${operation},"method":"${call.method}","path":${quote(call.path)},"http":"${call.http}"${client},"status":${call.status},"outcome":"${call.outcome}","durationMs":${writeMs(call.durationMs)}${backendMs},"requestBytes":${call.requestBytes},"replyBytes":${call.replyBytes}${cause},"msg":"request"}\n`,
  );
}

function writeClient(call: CallRecord): string {
  const { client, subject, agent } = call;
  return `${client === undefined ? '' : `,"client":"${client}"`}${subject === undefined ? '' : `,"subject":${JSON.stringify(subject)}`}${agent === undefined ? '' : `,"agent":${quote(agent)}`}`;
}

// Writes printable ASCII as JSON.
function quote(text: string): string {
  return needsEscape.test(text) ? JSON.stringify(text) : `"${text}"`;
}

const needsEscape = /["\\]/;

/** Rounds to three digits after the point. */
export function roundMs(ms: number): number {
  return Math.round(ms * 1_000) / 1_000;
}

// Writes the number that `roundMs` returns, ten times as fast as formatting it as a fraction.
function writeMs(ms: number): string {
  const us = Math.round(ms * 1_000);
  const whole = Math.floor(us / 1_000);
  return `${whole}${fractions[us - whole * 1_000] ?? ''}`;
}

// '', '.001' ... '.01' ... '.1' ... '.999'.
const fractions = Array.from({ length: 1_000 }, (_, thousandth) => String(thousandth / 1_000).slice(1));
