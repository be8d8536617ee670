// A Stryker test runner for node:test. Each mutant has its own processes, so that it is active from the first line on
// and cannot affect the next mutant. These processes run the tests that cover the mutant, batch by batch.

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

// With more tests than this, selecting them costs more than running all of their files.
const namesMax = 200;

interface Covered {
  /** A test's id is its file and its name. */
  readonly tests: readonly string[];
  readonly coverage: MutantCoverage;
  /** Mutants covered while modules were loaded, before the first test. */
  readonly loaded?: readonly string[];
}

/** The coverage that coverage.js has written. */
function readCoverage(): Covered {
  const text = readFileSync(coveragePath, 'utf8');
  rmSync(coveragePath);
  return JSON.parse(text) as Covered;
}

/** Every mutant in `sources`. For a command, all of them count as covered, since a killed command writes no coverage. */
function allMutants(sources: RegExp): Record<string, number> {
  const texts = globSync('packages/**/*.ts')
    .filter((path) => sources.test(path))
    .map((path) => readFileSync(path, 'utf8'));
  return Object.fromEntries([...texts.join('').matchAll(/stryMutAct_9fa48\("(\d+)"\)/g)].map((match) => [match[1], 1]));
}

/** Makes the tests start the source instead of the built command, with the mutant active. */
function commandEnvironment(mutant = ''): NodeJS.ProcessEnv {
  const variables = `NODE_COMPILE_CACHE='${compiledPath}' ${INSTRUMENTER_CONSTANTS.ACTIVE_MUTANT_ENV_VARIABLE}=${mutant}`;
  writeFileSync(
    commandPath,
    // If the first argument is a flag such as `-p`, the script runs Node itself, because tests read Node's version.
    `#!/bin/sh\ncase "$1" in -*) exec '${process.execPath}' "$@" ;; esac\nshift\nexec env ${variables} '${process.execPath}' '${resolve('packages/command/main.ts')}' "$@"\n`,
    { mode: 0o755 },
  );
  return { GATEWAY_NODE: commandPath, TEST_TARGETS: 'command' };
}

// A pattern may end with line numbers.
const lines = /:\d+(?::\d+)?-\d+(?::\d+)?$/;

/** The batches for the mutated files; no other batch needs to run. */
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
      (isOutside(batch) ? [batch.name] : batch.files).map((file) => ({ ...batch, file })),
    );
    for (const run of runs) {
      const { file, files, of, target, isCommand, isTimed = false } = run;
      const name = idOf(file, target);
      const result = await runTests(isOutside(run) ? files : [file], {
        cwd: process.cwd(),
        failures: isTimed ? 3 : 1,
        // Recording coverage takes many times as long as the tests.
        patience: 10,
        environment: isCommand
          ? commandEnvironment()
          : { MUTATION_COVERAGE: coveragePath, MUTATION_FILE: name, ...targetEnvironment(target) },
        nodeArguments: isOutside(run) ? [] : ['--import', './test/mutation/coverage.js'],
      });
      if (result.kind !== 'passed') {
        return {
          status: DryRunStatus.Error,
          errorMessage: `${name}, without a mutant, ${result.kind}: ${result.test}`,
        };
      }
      const covered = isOutside(run)
        ? { tests: [name], coverage: { static: {}, perTest: { [name]: allMutants(of) } } }
        : readCoverage();
      for (const id of covered.tests) {
        const timeSpentMs = result.ms / covered.tests.length;
        results.set(id, { id, name: id, timeSpentMs, status: TestStatus.Success });
      }
      Object.assign(coverage.perTest, covered.coverage.perTest);
      // Mutants covered while a file loads are assigned to all tests of the file: if a test of another file covers such a
      // mutant while it runs, the mutant is removed from the static coverage below.
      const inside = new Set(Object.values(covered.coverage.perTest).flatMap((hits) => Object.keys(hits)));
      for (const mutant of covered.loaded ?? []) {
        if (inside.has(mutant)) continue;
        for (const id of covered.tests) (coverage.perTest[id] ??= {})[mutant] = 1;
        coveredInside.add(mutant);
      }
      if (!isOutside(run)) {
        for (const hits of Object.values(covered.coverage.perTest)) {
          for (const mutant of Object.keys(hits)) coveredInside.add(mutant);
        }
      }
      for (const [mutant, hits] of Object.entries(covered.coverage.static)) {
        coverage.static[mutant] = (coverage.static[mutant] ?? 0) + hits;
      }
    }
    // A mutant that is covered by tests and also between tests runs only against the tests that cover it: running
    // all tests takes far longer and kills no more mutants. Tests of the command are not included, since their
    // coverage is unknown.
    coverage.static = Object.fromEntries(
      Object.entries(coverage.static).filter(([mutant]) => !coveredInside.has(mutant)),
    );
    return { status: DryRunStatus.Complete, tests: [...results.values()], mutantCoverage: coverage };
  }

  async mutantRun(options: MutantRunOptions): Promise<MutantRunResult> {
    const result = await this.#run(options);
    // Logged now, because Stryker lists survivors only at the end.
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
    for (const batch of batches) {
      const { name, files, of, target, isCommand, isTimed = false } = batch;
      if (!of.test(activeMutant.fileName)) continue;
      const wanted = isOutside(batch)
        ? { files: testFilter?.includes(name) === false ? [] : files, names: [] }
        : chooseTests(files, target, testFilter);
      if (wanted.files.length === 0) continue;
      nrOfTests += 1;
      const result = await runTests(wanted.files, {
        cwd: process.cwd(),
        failures: isTimed ? 3 : 1,
        names: wanted.names,
        environment: isCommand
          ? commandEnvironment(activeMutant.id)
          : { [INSTRUMENTER_CONSTANTS.ACTIVE_MUTANT_ENV_VARIABLE]: activeMutant.id, ...targetEnvironment(target) },
      });
      if (result.kind === 'hung') return { status: MutantRunStatus.Timeout, reason: result.test };
      if (result.kind === 'failed') {
        return { status: MutantRunStatus.Killed, killedBy: [], failureMessage: result.test, nrOfTests };
      }
    }
    return { status: MutantRunStatus.Survived, nrOfTests };
  }
}

/** Tells whether the gateway runs in other processes than the tests. */
function isOutside({ isCommand = false, isForked = false }: Batch): boolean {
  return isCommand || isForked;
}

/** The start of the ids of the tests of `file` that run against `target`. */
function idOf(file: string, target: Batch['target']): string {
  return target === undefined ? file : `${target}: ${file}`;
}

function targetEnvironment(target: Batch['target']): NodeJS.ProcessEnv {
  return target === undefined ? {} : { TEST_TARGETS: target };
}

/** The files with tests in `ids`, and the names of these tests; no names, if all tests of the files must run. */
function chooseTests(
  files: readonly string[],
  target: Batch['target'],
  ids: readonly string[] | undefined,
): { files: readonly string[]; names: readonly string[] } {
  if (ids === undefined) return { files, names: [] };
  const names: string[] = [];
  const chosen = files.filter((file) => {
    const prefix = `${idOf(file, target)} `;
    const own = ids.filter((id) => id.startsWith(prefix)).map((id) => id.slice(prefix.length));
    names.push(...own);
    return own.length > 0;
  });
  return { files: chosen, names: names.length > namesMax ? [] : names };
}

export const strykerPlugins = [declareClassPlugin(PluginKind.TestRunner, 'node-test', NodeTestRunner)];
