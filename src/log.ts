// The log: one line a request, JSON for machines and short lines for a terminal. Never a body, never a
// header's value but the request id.

import { createRequire } from 'node:module';

import { pino, type DestinationStream, type Logger } from 'pino';

import type { CallRecord } from './gateway/call.ts';
import { outcomes } from './gateway/outcomes.ts';

export type { Logger } from 'pino';

export interface LogOptions {
  readonly logLevel: string;
  readonly logFormat: 'auto' | 'pretty' | 'json';
  /** Other processes write to the same output. Default: false. */
  readonly isShared?: boolean;
}

export interface Log {
  readonly logger: Logger;
  /** Writes what is still held; to be called before the process exits. */
  readonly flush: () => void;
}

// Lines are gathered into writes of up to this size, and wait at most this long: a write costs as much as some twenty
// lines do. Where several processes write to one pipe, what is larger than PIPE_BUF could be mixed with a line of
// another (POSIX, write()).
const gatherBytesMax = 65_536;
const sharedGatherBytesMax = 4_096;
const gatherMs = 100;
// When nobody takes the lines they are held up to here, then dropped: a log must not end the process.
const heldBytesMax = 16_777_216;

/** A log on standard output. */
export function createLog({ logLevel, logFormat, isShared = false }: LogOptions): Log {
  const isPretty = logFormat === 'pretty' || (logFormat === 'auto' && process.stdout.isTTY);
  const destination = isPretty ? createPrettyDestination() : createJsonDestination(isShared);
  return { logger: createLogger(logLevel, destination.stream), flush: destination.flush };
}

/** The logger of one output; `now` gives the time in ms. */
export function createLogger(level: string, stream: DestinationStream, now = Date.now): Logger {
  return pino(
    {
      level,
      timestamp: createIsoTime(now),
      formatters: { level: (label) => ({ level: label }), bindings: ({ pid }) => ({ pid: pid as number }) },
    },
    stream,
  );
}

/** As pino's `isoTime`; a date is formatted once a second instead of once a line. */
function createIsoTime(now: () => number): () => string {
  let second = NaN;
  let upToSecond = '';
  return () => {
    const ms = now();
    const msOfSecond = ms % 1_000;
    if (ms - msOfSecond !== second) {
      second = ms - msOfSecond;
      upToSecond = new Date(second).toISOString().slice(0, -'000Z'.length);
    }
    return `,"time":"${upToSecond}${String(msOfSecond).padStart(3, '0')}Z"`;
  };
}

interface Destination {
  readonly stream: DestinationStream;
  readonly flush: () => void;
}

function createJsonDestination(isShared: boolean): Destination {
  const output = pino.destination({
    dest: 1,
    sync: false,
    maxLength: heldBytesMax,
    // What it joins while a write is under way has the same bound.
    ...(isShared && { maxWrite: sharedGatherBytesMax }),
  });
  // Whoever read the lines has gone; the gateway has not.
  output.on('error', () => undefined);
  const gatherer = new LineGatherer(output, isShared ? sharedGatherBytesMax : gatherBytesMax);
  return {
    stream: gatherer,
    flush: () => {
      try {
        gatherer.flush();
        output.flushSync();
      } catch {
        // Not open yet, or its reader has gone: there is nowhere left to say so.
      }
    },
  };
}

/**
 * Hands lines on in pieces of whole lines, each of `bytesMax` bytes at most, or one line that is longer. The stream
 * that writes them has the same (`minLength`), but counts what it holds anew with every line.
 */
export class LineGatherer implements DestinationStream {
  readonly #output: DestinationStream;
  readonly #bytesMax: number;
  #held = '';
  #heldBytes = 0;

  constructor(output: DestinationStream, bytesMax: number) {
    this.#output = output;
    this.#bytesMax = bytesMax;
    setInterval(() => {
      this.flush();
    }, gatherMs).unref();
  }

  write(line: string): void {
    const bytes = Buffer.byteLength(line);
    if (this.#heldBytes + bytes > this.#bytesMax) {
      this.flush();
    }
    this.#held += line;
    this.#heldBytes += bytes;
  }

  flush(): void {
    if (this.#heldBytes > 0) {
      const held = this.#held;
      this.#held = '';
      this.#heldBytes = 0;
      this.#output.write(held);
    }
  }
}

function createPrettyDestination(): Destination {
  // For a terminal only: 40 files and 7 MB that no server needs.
  const { PinoPretty } = createRequire(import.meta.url)('pino-pretty') as typeof import('pino-pretty');
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

/** Writes the line of a request that has ended, at the level that its outcome has [D51]. */
export function logCall(logger: Logger, call: CallRecord): void {
  const { level, message } = outcomes[call.outcome];
  if (level === 'info') {
    if (logger.isLevelEnabled('info')) {
      writeCall(logger as LoggerParts, call);
    }
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
  if (level === 'error') {
    logger.error({ ...line, err: call.cause }, message);
  } else {
    logger.warn({ ...line, cause: call.cause }, message);
  }
}

// What pino makes of `logger.info(line, 'request')`, byte by byte, at a third of the cost: this line is written once
// a request, and no value but a rejected call's cause can need an escape (an id that a client sends has letters, digits and `._~-` [D25]).
function writeCall(logger: LoggerParts, call: CallRecord): void {
  const operation = call.operation === undefined ? '' : `,"operation":"${call.operation.name}"`;
  const backendMs =
    call.backendDurationMs === undefined ? '' : `,"backendMs":${roundMs(call.backendDurationMs)}`;
  const cause = call.cause === undefined ? '' : `,"cause":${JSON.stringify(call.cause)}`;
  logger[pino.symbols.streamSym].write(
    `{"level":"info"${logger[pino.symbols.timeSym]()}${logger[pino.symbols.chindingsSym]},"requestId":"${call.requestId}"${operation},"method":"${call.method}","status":${call.status},"outcome":"${call.outcome}","durationMs":${roundMs(call.durationMs)}${backendMs},"requestBytes":${call.requestBytes},"replyBytes":${call.replyBytes}${cause},"msg":"request"}\n`,
  );
}

/** What pino says of a logger under symbols that it exports. */
type LoggerParts = Logger & {
  readonly [pino.symbols.streamSym]: DestinationStream;
  readonly [pino.symbols.timeSym]: () => string;
  readonly [pino.symbols.chindingsSym]: string;
};

function roundMs(ms: number): number {
  return Math.round(ms * 1_000) / 1_000;
}
