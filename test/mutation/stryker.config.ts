// What Stryker mutates, and how. Run from the root of the repository.

import type { PartialStrykerOptions } from '@stryker-mutator/api/core';

import { filesOf, notMutated } from './parts.ts';

const options: PartialStrykerOptions = {
  // scanner.as.ts runs as WebAssembly, which Stryker's switches cannot enter: see scanner.ts.
  mutate: [...Object.values(filesOf).filter((files) => files !== ''), notMutated],
  testRunner: 'node-test',
  plugins: ['./test/mutation/test-runner.ts'],
  coverageAnalysis: 'perTest',
  // Many a mutant is waited for and not worked for.
  concurrency: 4,
  // The runner has time limits of its own, for each test; these only bound those.
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
