// Stryker's configuration. Run from the root of the repository.

import type { PartialStrykerOptions } from '@stryker-mutator/api/core';
import { filesOf, notMutated } from './parts.ts';

const options: PartialStrykerOptions = {
  // Not scanner.as.ts: it runs as WebAssembly, where Stryker cannot switch mutants. See scanner.ts.
  mutate: [...Object.values(filesOf).flat(), notMutated],
  testRunner: 'node-test',
  plugins: ['./test/mutation/test-runner.ts'],
  coverageAnalysis: 'perTest',
  // More than the number of cores, since the tests of many mutants mostly wait.
  concurrency: 4,
  // Upper bounds only: the runner has its own time limits for each test.
  timeoutMS: 60_000,
  timeoutFactor: 5,
  dryRunTimeoutMinutes: 10,
  ignorePatterns: ['/build', '/dist', '/bench', '/test/mutation/node_modules', '/test/mutation/results'],
  disableTypeChecks: false,
  tempDirName: 'build/mutation/sandbox',
  reporters: ['clear-text', 'json', 'html', 'progress-append-only'],
  clearTextReporter: { reportTests: false, reportMutants: false, allowEmojis: false },
  jsonReporter: { fileName: 'build/mutation/report.json' },
  htmlReporter: { fileName: 'build/mutation/report.html' },
  allowConsoleColors: false,
  checkers: [],
};

export default options;
