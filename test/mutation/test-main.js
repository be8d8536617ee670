// Runs the test files that are named as arguments, one after the other in this process.

import { resolve } from 'node:path';
import process from 'node:process';
import { pathToFileURL } from 'node:url';

for (const file of process.argv.slice(2)) await import(pathToFileURL(resolve(file)).href);
