// Writes the log line of a finished request. A pino logger would write the same line at three times the cost. Many values
// need no escape, because a request id has only letters, digits and `._~-` [D25] and a client is an IP address. Path and
// agent are printable ASCII, so only `"` and `\` need an escape. Only this file reads pino's symbols.

import { pino, type DestinationStream, type Logger } from 'pino';

import type { CallRecord } from '../../core/call/call-record.ts';
import { outcomes } from '../../core/outcomes.ts';
import { escapeControls } from '../../core/text/escape.ts';

// pino exports these symbols but does not document the values under them.
type LoggerParts = Logger & {
  readonly [pino.symbols.streamSym]: DestinationStream;
  readonly [pino.symbols.timeSym]: () => string;
  readonly [pino.symbols.chindingsSym]: string;
};

/**
 * Writes the line of a finished request at the level of its outcome [D51]. The line has the client's address, token subject
 * and user agent only if `showsClient` is true [D62].
 */
export function logCall(logger: Logger, call: CallRecord, showsClient: boolean): void {
  const { level, message } = outcomes[call.outcome];
  if (!logger.isLevelEnabled(level)) return;
  const operation = call.operation === undefined ? '' : `,"operation":"${call.operation.name}"`;
  const client = showsClient ? writeClient(call) : '';
  const backendMs = call.backendDurationMs === undefined ? '' : `,"backendMs":${writeMs(call.backendDurationMs)}`;
  const fields = `"requestId":"${call.requestId}"${operation},"method":"${call.method}","path":${quote(call.path)},"http":"${call.http}"${client},"status":${call.status},"outcome":"${call.outcome}","durationMs":${writeMs(call.durationMs)}${backendMs},"requestBytes":${call.requestBytes},"replyBytes":${call.replyBytes}`;
  if (level === 'error') {
    // The stack of a bug needs pino's serializer.
    logger.error({ ...(JSON.parse(`{${fields}}`) as object), err: call.cause }, message);
    return;
  }
  const reason = call.reason === undefined ? '' : `,"reason":"${call.reason}"`;
  const cause = call.cause === undefined ? '' : `,"cause":${escapeControls(JSON.stringify(call.cause))}`;
  const parts = logger as LoggerParts;
  parts[pino.symbols.streamSym].write(
    `{"level":"${level}"${parts[pino.symbols.timeSym]()}${parts[pino.symbols.chindingsSym]},${fields}${reason}${cause},"msg":"${message}"}\n`,
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

// Rounds to three digits after the point, ten times as fast as formatting a fraction.
function writeMs(ms: number): string {
  const us = Math.round(ms * 1_000);
  const whole = Math.floor(us / 1_000);
  return `${whole}${fractions[us - whole * 1_000] ?? ''}`;
}

// '', '.001' ... '.01' ... '.1' ... '.999'.
const fractions = Array.from({ length: 1_000 }, (_, thousandth) => String(thousandth / 1_000).slice(1));
