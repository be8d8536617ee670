#!/usr/bin/env node
// `exec` for shells that have none, which is cmd.exe: runs `exec node FILE ARGUMENT...` by loading FILE in this
// process. A POSIX shell never comes here: its own `exec` goes before any program of that name.

'use strict';

const { resolve } = require('node:path');
const { pathToFileURL } = require('node:url');

const [program, file, ...rest] = process.argv.slice(2);
if (program !== 'node' || file === undefined) {
  process.stderr.write('error: only `exec node FILE` is known here\n');
  process.exitCode = 1;
} else {
  process.argv = [process.execPath, resolve(file), ...rest];
  void import(pathToFileURL(resolve(file)).href);
}
