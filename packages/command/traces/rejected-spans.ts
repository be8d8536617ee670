// How many spans of a batch the collector has rejected. The exporter reports such a batch as taken, and the number to
// OpenTelemetry's log only, so this file reads that log. It looks for the object of the OTLP specification (`rejectedSpans` of
// ExportTracePartialSuccess), never at the words. test/unit/rejected-spans.test.ts fails when the exporter stops logging it.

import { diag, DiagLogLevel } from '@opentelemetry/api';

// Of the batch whose reply is being read. In the same turn as the line in the log, the exporter reports that batch as taken.
let rejectedSpans = 0;

/** Begins to read OpenTelemetry's log, and keeps it from being written anywhere. */
export function watchRejectedSpans(): void {
  const nothing = (): void => undefined;
  const warn = (...words: unknown[]): void => {
    rejectedSpans = words.map(readRejectedSpans).find((count) => count > 0) ?? rejectedSpans;
  };
  const log = { error: nothing, warn, info: nothing, debug: nothing, verbose: nothing };
  diag.setLogger(log, { logLevel: DiagLogLevel.WARN, suppressOverrideMessage: true });
}

/** The rejected spans of the batch that has just been reported as taken; each is given once. */
export function takeRejectedSpans(): number {
  const rejected = rejectedSpans;
  rejectedSpans = 0;
  return rejected;
}

function readRejectedSpans(text: unknown): number {
  if (typeof text !== 'string' || !text.startsWith('{')) {
    return 0;
  }
  try {
    const { rejectedSpans: rejected } = JSON.parse(text) as { rejectedSpans?: unknown };
    const count = Number(rejected);
    return count > 0 ? count : 0;
  } catch {
    return 0;
  }
}
