// The log: one line a request, JSON for machines and short lines for a terminal. Never a body, never a
// header's value but the request id.

import { pino, type DestinationStream, type Logger } from 'pino';
import { PinoPretty } from 'pino-pretty';

import type { CallRecord } from './gateway/call.ts';

export type { Logger } from 'pino';

export interface LogOptions {
  readonly logLevel: string;
  readonly logFormat: 'auto' | 'pretty' | 'json';
}

export interface Log {
  readonly logger: Logger;
  /** Writes what is still held; to be called before the process exits. */
  readonly flush: () => void;
}

// Lines are gathered into writes of about this size, and wait at most this long.
const gatherBytes = 4_096;
const gatherMs = 100;
// When nobody takes the lines they are held up to here, then dropped: a log must not end the process.
const heldBytesMax = 16_777_216;

/** A log on standard output. */
export function createLog({ logLevel, logFormat }: LogOptions): Log {
  const isPretty = logFormat === 'pretty' || (logFormat === 'auto' && process.stdout.isTTY);
  const destination = isPretty ? createPrettyDestination() : createJsonDestination();
  const logger = pino(
    {
      level: logLevel,
      timestamp: pino.stdTimeFunctions.isoTime,
      formatters: { level: (label) => ({ level: label }), bindings: ({ pid }) => ({ pid: pid as number }) },
    },
    destination.stream,
  );
  return { logger, flush: destination.flush };
}

interface Destination {
  readonly stream: DestinationStream;
  readonly flush: () => void;
}

function createJsonDestination(): Destination {
  const stream = pino.destination({
    dest: 1,
    sync: false,
    minLength: gatherBytes,
    periodicFlush: gatherMs,
    maxLength: heldBytesMax,
  });
  // Whoever read the lines has gone; the gateway has not.
  stream.on('error', () => undefined);
  return {
    stream,
    flush: () => {
      try {
        stream.flushSync();
      } catch {
        // Not open yet, or its reader has gone: there is nowhere left to say so.
      }
    },
  };
}

function createPrettyDestination(): Destination {
  const stream = PinoPretty({
    colorize: process.stdout.isTTY && process.env['NO_COLOR'] === undefined,
    ignore:
      'pid,hostname,requestId,operation,method,status,outcome,durationMs,backendMs,requestBytes,replyBytes,cause',
    translateTime: 'SYS:HH:MM:ss.l',
    singleLine: true,
    sync: true,
    messageFormat: (line, messageKey) => describeLine(line, String(line[messageKey])),
  });
  return { stream, flush: () => undefined };
}

function describeLine(line: Readonly<Record<string, unknown>>, message: string): string {
  if (line['status'] === undefined) {
    return message;
  }
  const text = (name: string): string => String(line[name]);
  // Bytes that were no request have neither a method nor a duration.
  if (line['durationMs'] === undefined) {
    return `${message}: ${text('status')} ${text('requestId')}`;
  }
  const backend = line['backendMs'] === undefined ? '' : `, backend ${text('backendMs')} ms`;
  const cause = line['cause'] === undefined ? '' : `: ${text('cause')}`;
  const name = line['operation'] === undefined ? text('method') : text('operation');
  return `${name} ${text('status')} ${text('outcome')}${cause} (${text('durationMs')} ms${backend}, ${text('replyBytes')} bytes) ${text('requestId')}`;
}

/** Writes the line of a request that has ended: `warn` when the backend failed, `error` for a fault of ours. */
export function logCall(logger: Logger, call: CallRecord): void {
  const isFailure =
    call.outcome === 'overload' ||
    (call.cause !== undefined && call.outcome !== 'not-found' && call.outcome !== 'bug');
  if (!isFailure && call.outcome !== 'bug' && !logger.isLevelEnabled('info')) {
    return;
  }
  const line = {
    requestId: call.requestId,
    operation: call.operation?.name,
    method: call.method,
    status: call.status,
    outcome: call.outcome,
    durationMs: roundMs(call.durationMs),
    backendMs: call.backendDurationMs === undefined ? undefined : roundMs(call.backendDurationMs),
    requestBytes: call.requestBytes,
    replyBytes: call.replyBytes,
  };
  if (call.outcome === 'bug') {
    logger.error({ ...line, err: call.cause }, 'a fault of the gateway');
  } else if (isFailure) {
    logger.warn(
      { ...line, cause: call.cause },
      call.outcome === 'overload' ? 'turned away' : 'backend call failed',
    );
  } else {
    logger.info(line, 'request');
  }
}

function roundMs(ms: number): number {
  return Math.round(ms * 1_000) / 1_000;
}
