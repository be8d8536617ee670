// Counts the spans of a batch that the collector rejected. The exporter reports such a batch as a success and writes
// the number only to OpenTelemetry's log, so this file reads that log. It parses the JSON object of the OTLP
// specification (`rejectedSpans` of ExportTracePartialSuccess) and ignores the wording of messages.
// test/unit/rejected-spans.test.ts fails if the exporter stops logging that object.

import { diag, DiagLogLevel } from '@opentelemetry/api';

// Number of rejected spans of the latest batch. The exporter logs this number and reports the success in the same turn.
let rejectedSpans = 0;

/** Starts to read OpenTelemetry's log. The log is then not written anywhere. */
export function watchRejectedSpans(): void {
  const nothing = (): void => undefined;
  const warn = (...words: unknown[]): void => {
    rejectedSpans = words.map(readRejectedSpans).find((count) => count > 0) ?? rejectedSpans;
  };
  const log = { error: nothing, warn, info: nothing, debug: nothing, verbose: nothing };
  diag.setLogger(log, { logLevel: DiagLogLevel.WARN, suppressOverrideMessage: true });
}

/** Returns the number of rejected spans of the batch just reported as a success, and resets it. */
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
