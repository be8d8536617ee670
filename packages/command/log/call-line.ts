// The line of a request that has ended: what pino makes of `logger.info(fields, 'request')`, byte by byte, at a third of the
// cost. There is one a request, and few of its values can need an escape: an id has letters, digits and `._~-` [D25], a client is
// an IP address; path and agent are printable ASCII. This file alone reads pino's symbols; test/unit/log.test.ts compares the
// line with pino's own, and so fails when pino changes.

import { pino, type DestinationStream, type Logger } from 'pino';

import type { CallRecord } from '../../core/call/call-record.ts';
import { escapeControls } from '../../core/text/escape.ts';

// pino exports these symbols, but does not promise what it keeps under them.
type LoggerParts = Logger & {
  readonly [pino.symbols.streamSym]: DestinationStream;
  readonly [pino.symbols.timeSym]: () => string;
  readonly [pino.symbols.chindingsSym]: string;
};

/** Writes the line at the level `info`, which must be enabled. */
export function writeCall(logger: Logger, call: CallRecord, showsClient: boolean): void {
  const parts = logger as LoggerParts;
  const operation = call.operation === undefined ? '' : `,"operation":"${call.operation.name}"`;
  const client = showsClient ? writeClient(call) : '';
  const backendMs =
    call.backendDurationMs === undefined ? '' : `,"backendMs":${writeMs(call.backendDurationMs)}`;
  const cause = call.cause === undefined ? '' : `,"cause":${escapeControls(JSON.stringify(call.cause))}`;
  parts[pino.symbols.streamSym].write(
    `{"level":"info"${parts[pino.symbols.timeSym]()}${parts[pino.symbols.chindingsSym]},"requestId":"${call.requestId}"${operation},"method":"${call.method}","path":${quote(call.path)},"http":"${call.http}"${client},"status":${call.status},"outcome":"${call.outcome}","durationMs":${writeMs(call.durationMs)}${backendMs},"requestBytes":${call.requestBytes},"replyBytes":${call.replyBytes}${cause},"msg":"request"}\n`,
  );
}

function writeClient(call: CallRecord): string {
  const { client, subject, agent } = call;
  return `${client === undefined ? '' : `,"client":"${client}"`}${subject === undefined ? '' : `,"subject":${JSON.stringify(subject)}`}${agent === undefined ? '' : `,"agent":${quote(agent)}`}`;
}

// Printable ASCII as JSON.
function quote(text: string): string {
  return needsEscape.test(text) ? JSON.stringify(text) : `"${text}"`;
}

const needsEscape = /["\\]/;

/** Milliseconds with three digits after the point. */
export function roundMs(ms: number): number {
  return Math.round(ms * 1_000) / 1_000;
}

// `roundMs` as text. Text of a number that is no integer takes ten times as long to make as that of two that are.
function writeMs(ms: number): string {
  const us = Math.round(ms * 1_000);
  const whole = Math.floor(us / 1_000);
  return `${whole}${fractions[us - whole * 1_000] ?? ''}`;
}

// Of a thousandth: '', '.001' ... '.01' ... '.1' ... '.999'.
const fractions = Array.from({ length: 1_000 }, (_, thousandth) => String(thousandth / 1_000).slice(1));
