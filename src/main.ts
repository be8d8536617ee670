#!/usr/bin/env node
// The process: arguments and environment in, exit code out. The only caller of process.exit.

import { runCli } from './cli.ts';

const exitCode = await runCli(process.argv.slice(2), {
  environment: process.env,
  signals: process,
  write: (text) => process.stdout.write(text),
  writeError: (text) => process.stderr.write(text),
});
process.exit(exitCode);
