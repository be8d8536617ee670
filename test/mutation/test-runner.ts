// The Stryker test runner for this project, for node:test. Each mutant has processes of its own, so that it is in
// force from the first line on and cannot disturb the next; they run the tests that come by it, batch by batch.

import { appendFileSync, globSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { INSTRUMENTER_CONSTANTS, type MutantCoverage, type StrykerOptions } from '@stryker-mutator/api/core';
import { commonTokens, declareClassPlugin, PluginKind } from '@stryker-mutator/api/plugin';
import {
  DryRunStatus,
  MutantRunStatus,
  TestStatus,
  type DryRunResult,
  type MutantRunOptions,
  type MutantRunResult,
  type TestResult,
  type TestRunner,
  type TestRunnerCapabilities,
} from '@stryker-mutator/api/test-runner';

import { compiledPath, runTests } from './run-tests.ts';
import { batches, type Batch } from './test-files.ts';

const coveragePath = join(tmpdir(), `mutation-coverage-${process.pid}.json`);
const logPath = resolve(import.meta.dirname, '../../build/mutation/mutants.log');
const commandPath = join(tmpdir(), `mutation-command-${process.pid}`);

// Beyond so many, choosing tests is more work than running those that come with them.
const namesMax = 200;

interface Covered {
  /** A test's id is its file and its name. */
  readonly tests: readonly string[];
  readonly coverage: MutantCoverage;
  /** The mutants that came by before the first test, as the modules were loaded. */
  readonly loaded?: readonly string[];
}

/** What coverage.js has left behind. */
function readCoverage(): Covered {
  const text = readFileSync(coveragePath, 'utf8');
  rmSync(coveragePath);
  return JSON.parse(text) as Covered;
}

/** A command that is killed leaves no coverage behind: it counts as having come by every mutant in `sources`. */
function allMutants(sources: RegExp): Record<string, number> {
  const texts = globSync('packages/**/*.ts')
    .filter((path) => sources.test(path))
    .map((path) => readFileSync(path, 'utf8'));
  return Object.fromEntries(
    [...texts.join('').matchAll(/stryMutAct_9fa48\("(\d+)"\)/g)].map((match) => [match[1], 1]),
  );
}

/** Has the tests start the source where they would start the built command, with the mutant in force. */
function commandEnvironment(mutant = ''): NodeJS.ProcessEnv {
  const variables = `NODE_COMPILE_CACHE='${compiledPath}' ${INSTRUMENTER_CONSTANTS.ACTIVE_MUTANT_ENV_VARIABLE}=${mutant}`;
  writeFileSync(
    commandPath,
    // Tests also ask the Node that runs the command for its version.
    `#!/bin/sh\ncase "$1" in -*) exec '${process.execPath}' "$@" ;; esac\nshift\nexec env ${variables} '${process.execPath}' '${resolve('packages/command/main.ts')}' "$@"\n`,
    { mode: 0o755 },
  );
  return { GATEWAY_NODE: commandPath, TEST_TARGETS: 'command' };
}

// A pattern may name lines of its file.
const lines = /:\d+(?::\d+)?-\d+(?::\d+)?$/;

/** The batches that decide about what is mutated: the others need not run, nor pass. */
function batchesFor(patterns: readonly string[]): readonly Batch[] {
  const files = patterns
    .filter((pattern) => !pattern.startsWith('!'))
    .flatMap((pattern) => globSync(pattern.replace(lines, '')));
  return batches.filter(({ of }) => files.some((file) => of.test(file)));
}

class NodeTestRunner implements TestRunner {
  static readonly inject: [typeof commonTokens.options] = [commonTokens.options];
  readonly #batches: readonly Batch[];

  constructor(options: StrykerOptions) {
    this.#batches = batchesFor(options.mutate);
  }

  capabilities(): TestRunnerCapabilities {
    return { reloadEnvironment: true };
  }

  async dryRun(): Promise<DryRunResult> {
    const results = new Map<string, TestResult>();
    const coverage: MutantCoverage = { static: {}, perTest: {} };
    const coveredInside = new Set<string>();
    const runs = this.#batches.flatMap((batch) =>
      (batch.isCommand ? [batch.name] : batch.files).map((name) => ({ ...batch, name })),
    );
    for (const { name, files, of, isCommand = false, isTimed = false } of runs) {
      const result = await runTests(isCommand ? files : [name], {
        cwd: process.cwd(),
        failures: isTimed ? 3 : 1,
        // Counting what is covered costs many times the tests themselves.
        patience: 10,
        environment: isCommand
          ? commandEnvironment()
          : { MUTATION_COVERAGE: coveragePath, MUTATION_FILE: name },
        nodeArguments: isCommand ? [] : ['--import', './test/mutation/coverage.js'],
      });
      if (result.kind !== 'passed') {
        return {
          status: DryRunStatus.Error,
          errorMessage: `${name}, without a mutant, ${result.kind}: ${result.test}`,
        };
      }
      const covered = isCommand
        ? { tests: [name], coverage: { static: {}, perTest: { [name]: allMutants(of) } } }
        : readCoverage();
      for (const id of covered.tests) {
        const timeSpentMs = result.ms / covered.tests.length;
        results.set(id, { id, name: id, timeSpentMs, status: TestStatus.Success });
      }
      Object.assign(coverage.perTest, covered.coverage.perTest);
      // All tests of a file judge what it loads: another file may load the same in the middle of a test.
      const inside = new Set(Object.values(covered.coverage.perTest).flatMap((hits) => Object.keys(hits)));
      for (const mutant of covered.loaded ?? []) {
        if (inside.has(mutant)) continue;
        for (const id of covered.tests) (coverage.perTest[id] ??= {})[mutant] = 1;
        coveredInside.add(mutant);
      }
      if (!isCommand) {
        for (const hits of Object.values(covered.coverage.perTest)) {
          for (const mutant of Object.keys(hits)) coveredInside.add(mutant);
        }
      }
      for (const [mutant, hits] of Object.entries(covered.coverage.static)) {
        coverage.static[mutant] = (coverage.static[mutant] ?? 0) + hits;
      }
    }
    // What happens between tests as well is judged by the tests: all of them would take far longer and find no more. Tests
    // of the command are not counted among these: of what they come by nothing is known.
    coverage.static = Object.fromEntries(
      Object.entries(coverage.static).filter(([mutant]) => !coveredInside.has(mutant)),
    );
    return { status: DryRunStatus.Complete, tests: [...results.values()], mutantCoverage: coverage };
  }

  async mutantRun(options: MutantRunOptions): Promise<MutantRunResult> {
    const result = await this.#run(options);
    // Stryker names the survivors only when all is done.
    const { fileName, location, mutatorName, replacement } = options.activeMutant;
    const place = `${fileName.slice(fileName.lastIndexOf('/packages/') + 1)}:${location.start.line + 1}:${location.start.column + 1}`;
    const reason = 'failureMessage' in result ? result.failureMessage : '';
    appendFileSync(
      logPath,
      `${[result.status, place, mutatorName, replacement, reason].join(' | ').replaceAll('\n', ' ')}\n`,
    );
    return result;
  }

  async #run({ activeMutant, testFilter }: MutantRunOptions): Promise<MutantRunResult> {
    let nrOfTests = 0;
    for (const { name, files, of, isCommand = false, isTimed = false } of batches) {
      if (!of.test(activeMutant.fileName)) continue;
      const wanted = isCommand
        ? { files: testFilter?.includes(name) === false ? [] : files, names: [] }
        : chooseTests(files, testFilter);
      if (wanted.files.length === 0) continue;
      nrOfTests += 1;
      const result = await runTests(wanted.files, {
        cwd: process.cwd(),
        failures: isTimed ? 3 : 1,
        names: wanted.names,
        environment: isCommand
          ? commandEnvironment(activeMutant.id)
          : { [INSTRUMENTER_CONSTANTS.ACTIVE_MUTANT_ENV_VARIABLE]: activeMutant.id },
      });
      if (result.kind === 'hung') {
        return { status: MutantRunStatus.Timeout, reason: result.test };
      }
      if (result.kind === 'failed') {
        return { status: MutantRunStatus.Killed, killedBy: [], failureMessage: result.test, nrOfTests };
      }
    }
    return { status: MutantRunStatus.Survived, nrOfTests };
  }
}

/** Of `files` those with a test that is wanted, and its name; all tests when `ids` is undefined or there are many. */
function chooseTests(
  files: readonly string[],
  ids: readonly string[] | undefined,
): { files: readonly string[]; names: readonly string[] } {
  if (ids === undefined) return { files, names: [] };
  const names: string[] = [];
  const chosen = files.filter((file) => {
    const prefix = `${file} `;
    const own = ids.filter((id) => id.startsWith(prefix)).map((id) => id.slice(prefix.length));
    names.push(...own);
    return own.length > 0;
  });
  return { files: chosen, names: names.length > namesMax ? [] : names };
}

export const strykerPlugins = [declareClassPlugin(PluginKind.TestRunner, 'node-test', NodeTestRunner)];
