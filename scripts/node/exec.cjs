#!/usr/bin/env node
// The program `exec` for cmd.exe: runs `exec node FILE ARGUMENT...` by loading FILE in this process. A POSIX shell never runs
// this program, because its builtin `exec` takes precedence.

'use strict';

const { resolve } = require('node:path');
const { pathToFileURL } = require('node:url');

const [program, file, ...rest] = process.argv.slice(2);
if (program !== 'node' || file === undefined) {
  process.stderr.write('error: only `exec node FILE` is supported\n');
  process.exitCode = 1;
} else {
  process.argv = [process.execPath, resolve(file), ...rest];
  void import(pathToFileURL(resolve(file)).href);
}
