// Runs the test files that are given as arguments, one after another, in this process.

import { resolve } from 'node:path';
import process from 'node:process';
import { pathToFileURL } from 'node:url';

for (const file of process.argv.slice(2)) await import(pathToFileURL(resolve(file)).href);
