// The log: one line per request, as JSON or as short lines for a terminal. It never contains a body. The only header
// values in it are the request id, a forwarded address, the user agent and the subject of a verified token.

import { isatty } from 'node:tty';

import { pino, type DestinationStream, type Logger } from 'pino';

import { escapeControls } from '../../core/text/escape.ts';
import { LogOutput, writeToStandardOutput } from './log-output.ts';
import { createPrettyFormat, type Format } from './pretty-log.ts';

export type { Logger } from 'pino';

interface LogOptions {
  readonly logLevel: string;
  readonly logFormat: 'auto' | 'pretty' | 'json';
  /** True if other processes write to the same output. Default: false. */
  readonly isShared?: boolean;
}

export interface Log {
  readonly logger: Logger;
  readonly output: LogOutput;
  /** True if the output is a terminal, unless LOG_FORMAT is json. */
  readonly hasReader: boolean;
  readonly apply: (options: Pick<LogOptions, 'logLevel' | 'logFormat'>) => void;
  /** Writes the remaining lines, for at most `limitMs` (default: 1 s). Call it before the process exits. */
  readonly end: (limitMs?: number) => Promise<void>;
}

// Longest time that a line waits for further lines. The time is shorter on a terminal, so that the line of a request
// appears before the output of the program that sent the request.
const gatherMs = 100;
const readerGatherMs = 10;
// Largest write, in bytes. The limit is lower if several processes write to one pipe, because a write above PIPE_BUF
// could be mixed with a line of another process (POSIX, write()).
const gatherBytesMax = 65_536;
const sharedGatherBytesMax = 4_096;
// Largest number of bytes held for a slow reader. Further lines are dropped, so that memory stays bounded [D53].
const heldBytesMax = 16_777_216;
const endMsMax = 1_000;

export function createLog({ logLevel, logFormat, isShared = false }: LogOptions): Log {
  const isTerminal = isatty(1);
  let format = createFormat(logFormat, isTerminal);
  const hasReader = isTerminal && logFormat !== 'json';
  const output = new LogOutput({
    write: writeToStandardOutput(),
    gatherMs: hasReader ? readerGatherMs : gatherMs,
    gatherBytesMax: isShared ? sharedGatherBytesMax : gatherBytesMax,
    heldBytesMax,
    describeGap: (lines) => describeGap(lines, format),
  });
  const logger = createLogger(logLevel, { write: (line) => output.write(format?.(line) ?? line) });
  return {
    logger,
    output,
    hasReader,
    apply: (next) => {
      format = createFormat(next.logFormat, isTerminal);
      logger.level = next.logLevel;
    },
    end: (limitMs = endMsMax) => output.end(limitMs),
  };
}

// Without pino-pretty, a terminal gets JSON lines too. With LOG_FORMAT=pretty, resolveSettings() has checked that
// pino-pretty is installed.
function createFormat(logFormat: LogOptions['logFormat'], isTerminal: boolean): Format | undefined {
  const wantsPretty = logFormat === 'pretty' || (logFormat === 'auto' && isTerminal);
  return wantsPretty ? createPrettyFormat(isTerminal && process.env['NO_COLOR'] === undefined) : undefined;
}

// Uses a logger of its own, because the line is written at every log level.
function describeGap(lines: number, format: Format | undefined): string {
  let text = '';
  createLogger('warn', {
    write: (line) => {
      text = format?.(line) ?? line;
    },
  }).warn({ droppedLines: lines }, 'log lines are missing here: standard output could not be written');
  return text;
}

/** Creates the logger of one output. `now` returns the time in ms since 1970. */
export function createLogger(level: string, stream: DestinationStream, now = Date.now): Logger {
  return pino(
    {
      level,
      timestamp: createIsoTime(now),
      // Escapes the control characters that JSON leaves unescaped, because people read JSON lines in terminals too.
      hooks: { streamWrite: (line) => `${escapeControls(line.slice(0, -1))}\n` },
      formatters: { level: (label) => ({ level: label }), bindings: ({ pid }) => ({ pid: pid as number }) },
    },
    stream,
  );
}

/** Like pino's `isoTime`, but formats the date only once a second, and the whole time only once a millisecond. */
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
