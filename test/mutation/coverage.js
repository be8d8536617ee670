// Loaded before the tests in the dry run: lists the mutants that each test covers, and the mutants covered between tests.

import { writeFileSync } from 'node:fs';
import { afterEach, beforeEach } from 'node:test';
import process from 'node:process';

const namespace = (globalThis.__stryker__ ??= {});
const file = process.env['MUTATION_FILE'];
const tests = [];
let loaded;
beforeEach((test) => {
  loaded ??= Object.keys(namespace.mutantCoverage?.static ?? {});
  namespace.currentTestId = `${file} ${test.name}`;
  tests.push(namespace.currentTestId);
});
afterEach(() => {
  namespace.currentTestId = undefined;
});
process.on('exit', () => {
  const coverage = { static: {}, perTest: {}, ...namespace.mutantCoverage };
  writeFileSync(process.env['MUTATION_COVERAGE'], JSON.stringify({ tests, coverage, loaded }));
});
