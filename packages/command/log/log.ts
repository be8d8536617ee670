// The log: one line a request, JSON for machines and short lines for a terminal. Never a body, and of the headers' values
// only the request id, a forwarded address, the user agent and the subject of a verified token.

import { isatty } from 'node:tty';

import { pino, type DestinationStream, type Logger } from 'pino';

import { escapeControls } from '../../core/text/escape.ts';
import type { CallRecord } from '../../core/call/call-record.ts';
import { outcomes } from '../../core/outcomes.ts';
import { roundMs, writeCall } from './call-line.ts';
import { LogOutput, writeToStandardOutput } from './log-output.ts';
import { createPrettyFormat, type Format } from './pretty-log.ts';

export type { Logger } from 'pino';

interface LogOptions {
  readonly logLevel: string;
  readonly logFormat: 'auto' | 'pretty' | 'json';
  /** Other processes write to the same output. Default: false. */
  readonly isShared?: boolean;
}

export interface Log {
  readonly logger: Logger;
  /** Where the lines go; whoever counts what is dropped there sets its `onDrop`. */
  readonly output: LogOutput;
  /** Somebody sits in front of it: the lines are for people, on a terminal. */
  readonly hasReader: boolean;
  /** From now on lines have this level and format. */
  readonly apply: (options: Pick<LogOptions, 'logLevel' | 'logFormat'>) => void;
  /** Writes what is still held; to be called before the process exits, which it delays by 1 s at most, or `limitMs`. */
  readonly end: (limitMs?: number) => Promise<void>;
}

// Somebody who looks sees what one process says before what others say because of it.
const gatherMs = 100;
const readerGatherMs = 10;
// Lines are gathered into writes of up to this size. Where several processes write to one pipe, what is larger than
// PIPE_BUF could be mixed with a line of another (POSIX, write()).
const gatherBytesMax = 65_536;
const sharedGatherBytesMax = 4_096;
// When nobody takes the lines they are held up to here, then dropped: a log must not end the process [D53].
const heldBytesMax = 16_777_216;
const endMsMax = 1_000;

/** A log on standard output. */
export function createLog({ logLevel, logFormat, isShared = false }: LogOptions): Log {
  const isTerminal = isatty(1);
  let format = createFormat(logFormat, isTerminal);
  const hasReader = format !== undefined && isTerminal;
  const output = new LogOutput({
    write: writeToStandardOutput(),
    gatherMs: hasReader ? readerGatherMs : gatherMs,
    gatherBytesMax: isShared ? sharedGatherBytesMax : gatherBytesMax,
    heldBytesMax,
    describeGap: (lines) => describeGap(lines, format),
  });
  const stream: DestinationStream = {
    write: (line) => {
      // What will be dropped need not be formatted.
      output.write(format === undefined || output.isFull ? line : format(line));
    },
  };
  const logger = createLogger(logLevel, stream);
  return {
    logger,
    output,
    hasReader,
    apply: (next) => {
      format = createFormat(next.logFormat, isTerminal);
      logger.level = next.logLevel;
    },
    end: async (limitMs = endMsMax) => {
      await output.end(limitMs);
    },
  };
}

// Without pino-pretty a terminal gets JSON lines, too. LOG_FORMAT=pretty has been refused at the start then.
function createFormat(logFormat: LogOptions['logFormat'], isTerminal: boolean): Format | undefined {
  const wantsPretty = logFormat === 'pretty' || (logFormat === 'auto' && isTerminal);
  return wantsPretty ? createPrettyFormat(isTerminal && process.env['NO_COLOR'] === undefined) : undefined;
}

// Said at every level, so it has a logger of its own.
function describeGap(lines: number, format: Format | undefined): string {
  let text = '';
  createLogger('warn', {
    write: (line) => {
      text = format === undefined ? line : format(line);
    },
  }).warn({ droppedLines: lines }, 'the log could not be written: lines are missing here');
  return text;
}

/** The logger of one output; `now` gives the time in ms. */
export function createLogger(level: string, stream: DestinationStream, now = Date.now): Logger {
  return pino(
    {
      level,
      timestamp: createIsoTime(now),
      // JSON leaves some control characters as they are, and people look at JSON lines too.
      hooks: { streamWrite: (line) => `${escapeControls(line.slice(0, -1))}\n` },
      formatters: { level: (label) => ({ level: label }), bindings: ({ pid }) => ({ pid: pid as number }) },
    },
    stream,
  );
}

/** As pino's `isoTime`; a date is formatted once a second, and the text made once a millisecond, instead of once a line. */
function createIsoTime(now: () => number): () => string {
  let second = NaN;
  let upToSecond = '';
  let textMs = NaN;
  let text = '';
  return () => {
    const ms = now();
    if (ms !== textMs) {
      const msOfSecond = ms % 1_000;
      if (ms - msOfSecond !== second) {
        second = ms - msOfSecond;
        upToSecond = new Date(second).toISOString().slice(0, -'000Z'.length);
      }
      textMs = ms;
      text = `,"time":"${upToSecond}${String(msOfSecond).padStart(3, '0')}Z"`;
    }
    return text;
  };
}

/**
 * Writes the line of a request that has ended, at the level that its outcome has [D51]; where `showsClient` is false,
 * without the client's address, subject and agent [D62].
 */
export function logCall(logger: Logger, call: CallRecord, showsClient: boolean): void {
  const { level, message } = outcomes[call.outcome];
  if (level === 'info') {
    if (logger.isLevelEnabled('info')) {
      writeCall(logger, call, showsClient);
    }
    return;
  }
  const line = {
    requestId: call.requestId,
    operation: call.operation?.name,
    method: call.method,
    path: call.path,
    http: call.http,
    ...(showsClient && { client: call.client, subject: call.subject, agent: call.agent }),
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
