#!/usr/bin/env node
// Entry point of the command. Only this file and cluster/worker.ts call process.exit.

import { holdSignals } from './service/held-signals.ts';

// Loading the other files takes 0.1 s or more. Signals that arrive meanwhile are handled afterwards.
const signals = holdSignals(process);

// The version is checked now, because loading the other files on an older Node fails with an unhelpful stack.
const [major = 0, minor = 0] = process.versions.node.split('.').map(Number);
if (major < 22 || (major === 22 && minor < 19)) {
  process.stderr.write(`error: work-item-gateway needs Node 22.19 or newer; this is Node ${process.versions.node}\n`);
  process.exit(1);
}

let outputError: NodeJS.ErrnoException | undefined;
process.stdout.on('error', (error) => {
  outputError ??= error;
});
// A failed write to standard error cannot be reported anywhere.
process.stderr.on('error', () => undefined);

const environment = { ...process.env };
// With the value 0 Node warns that certificates are not verified, although this program verifies all of them [D40].
delete process.env['NODE_TLS_REJECT_UNAUTHORIZED'];
// The exporter of traces would add these headers, which may be for another collector [D49].
delete process.env['OTEL_EXPORTER_OTLP_HEADERS'];
delete process.env['OTEL_EXPORTER_OTLP_TRACES_HEADERS'];

const { isatty } = await import('node:tty');
const { runCli } = await import('./cli/cli.ts');
const { parts } = await import('./command-parts.ts');
let exitCode = 1;
try {
  const terminal = {
    environment,
    pid: process.pid,
    script: process.argv[1],
    // A terminal that does not know its size reports 0.
    columns: process.stdout.columns || undefined,
    signals,
    isInteractive: isatty(0) || isatty(1) || isatty(2),
    write: (text: string) => process.stdout.write(text),
    writeError: (text: string) => process.stderr.write(text),
  };
  exitCode = await runCli(process.argv.slice(2), terminal, parts);
} catch (error) {
  // An internal error at the start or stop. Uncaught, it would reach the listeners for uncaught errors, which only
  // request a stop, and the process would stay alive [D28].
  process.stderr.write(`error: ${error instanceof Error ? (error.stack ?? error.message) : String(error)}\n`);
}
// A pipe has room for 64 KiB; an exit now would lose the output beyond that. The log is not awaited here, because it has
// its own time limit for a slow reader [D53].
if (process.stdout.writableLength > 0) {
  // During the wait for the reader, a signal ends the process.
  signals.release();
  await new Promise((resolve) => process.stdout.write('', resolve));
}
// A stream emits its errors one turn of the event loop later, so the process waits for that turn.
await new Promise(setImmediate);
// EPIPE is no failure: the reader has closed the pipe and needs no more output.
if (outputError !== undefined && outputError.code !== 'EPIPE') {
  process.stderr.write(`error: the output could not be written completely: ${outputError.message}\n`);
  exitCode ||= 1;
}
process.exit(exitCode);
