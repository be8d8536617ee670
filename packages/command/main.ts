#!/usr/bin/env node
// The process: arguments and environment in, exit code out. The only caller of process.exit.

// Before anything else is loaded: on an older Node that would fail with a stack that says nothing.
const [major = 0, minor = 0] = process.versions.node.split('.').map(Number);
if (major < 22 || (major === 22 && minor < 19)) {
  process.stderr.write(`error: this needs Node 22.19 or newer, and is running on ${process.version}\n`);
  process.exit(1);
}

// What runs once is not compiled (service/compilers.ts).
const { setFlagsFromString } = process.getBuiltinModule('node:v8');
setFlagsFromString('--turbo-filter=~');
setFlagsFromString('--maglev-filter=~');

// Before the rest is loaded, which takes a tenth of a second and more.
const { holdSignals } = await import('./service/held-signals.ts');
const signals = holdSignals(process);

let outputError: NodeJS.ErrnoException | undefined;
process.stdout.on('error', (error) => {
  outputError ??= error;
});
// Nobody is left to be told.
process.stderr.on('error', () => undefined);

// With `0` Node would warn that no certificate is verified, of connections that all are [D40].
const environment = { ...process.env };
delete process.env['NODE_TLS_REJECT_UNAUTHORIZED'];

const { isatty } = await import('node:tty');
const { runCli } = await import('./cli/cli.ts');
const { parts } = await import('./parts.ts');
let exitCode = 1;
try {
  const terminal = {
    environment,
    pid: process.pid,
    script: process.argv[1],
    columns: process.stdout.isTTY ? process.stdout.columns : undefined,
    signals,
    isInteractive: isatty(0) || isatty(1) || isatty(2),
    write: (text: string) => process.stdout.write(text),
    writeError: (text: string) => process.stderr.write(text),
  };
  exitCode = await runCli(process.argv.slice(2), terminal, parts);
} catch (error) {
  // A fault while starting or stopping. Left to Node it would reach the listeners for stray errors, which only
  // ask for a stop, and the process would live on half dead [D28].
  process.stderr.write(`error: ${error instanceof Error ? (error.stack ?? error.message) : String(error)}\n`);
}
// A pipe takes 64 KiB at once; an exit would lose what a command has printed beyond that. Not so the log, which never
// waits for its reader [D53].
if (process.stdout.writableLength > 0) {
  // While it waits for its reader a signal ends it.
  signals.release();
  await new Promise((resolve) => process.stdout.write('', resolve));
}
// A stream tells of its errors a moment later.
await new Promise(setImmediate);
// A reader that has gone wants no more: that is no fault.
if (outputError !== undefined && outputError.code !== 'EPIPE') {
  process.stderr.write(`error: not all of the output could be written: ${outputError.message}\n`);
  exitCode ||= 1;
}
process.exit(exitCode);
