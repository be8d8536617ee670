// Mutation testing of packages/core/json/scanner.as.ts. The scanner runs as WebAssembly, where Stryker cannot switch
// mutants at run time. So each mutant is written into the source, compiled, and run against the tests of the JSON
// check. A mutant that does not compile is not counted. Run from the repository's root; `--lines 100-200` selects lines.

import { once } from 'node:events';
import { cpSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { isMainThread, parentPort, Worker, workerData } from 'node:worker_threads';
import { main as compile } from 'assemblyscript/asc';
import type { Logger } from '@stryker-mutator/api/logging';
import { Instrumenter } from '@stryker-mutator/instrumenter';
import { outputDirectory, reportOf } from './parts.ts';
import { cut, type ReportedMutant } from './report.ts';
import { runTests, type TestsResult } from './run-tests.ts';
import { batches } from './test-files.ts';

const source = 'packages/core/json/scanner.as.ts';
const laneCount = 2;
const text = readFileSync(source, 'utf8');

/** The mutants of the scanner, as Stryker makes them for TypeScript. */
async function listMutants(): Promise<ReportedMutant[]> {
  const no = () => false;
  const quiet = new Proxy({}, { get: () => no }) as Logger;
  const { mutants } = await new Instrumenter(quiet).instrument(
    // TypeScript does not allow decorators on functions. Blanks replace them, so that all positions stay the same.
    [{ name: source, mutate: true, content: text.replaceAll('@inline', '       ') }],
    { plugins: null, excludedMutations: [], ignorers: [] },
  );
  return mutants.map(({ id, mutatorName, replacement, location: { start, end } }) => ({
    id,
    mutatorName,
    replacement,
    location: {
      start: { line: start.line + 1, column: start.column + 1 },
      end: { line: end.line + 1, column: end.column + 1 },
    },
    status: 'Survived',
  }));
}

/** The source with `mutant` in it. */
function apply({ replacement, location }: ReportedMutant): string {
  const [before, , after] = cut(text, location);
  return before + replacement + after;
}

/** The flags of `npm run build:scanner` with less optimisation: they make an equivalent program in a third of a second. */
function compilerFlags(): string[] {
  const { scripts } = JSON.parse(readFileSync('package.json', 'utf8')) as { scripts: { 'build:scanner': string } };
  const words = scripts['build:scanner'].split(' ');
  return words
    .slice(words.indexOf('-o') + 2)
    .map((word) => (word === '-O3' ? '-O1' : word))
    .filter((word) => word !== '--converge');
}

/** A directory with only the JSON check and its tests. */
function makeSandbox(path: string): void {
  rmSync(path, { recursive: true, force: true });
  mkdirSync(path, { recursive: true });
  for (const part of ['package.json', 'packages/core/json', 'test/json', 'test/helpers', 'test/vectors']) {
    cpSync(part, join(path, part), { recursive: true });
  }
}

/** Compiles `scanner` and runs the tests with it; undefined if it does not compile. */
async function runWith(scanner: string, sandbox: string): Promise<TestsResult | undefined> {
  let code: Uint8Array | undefined;
  const { error } = await compile(['scanner.ts', '-o', 'scanner.wasm', ...compilerFlags()], {
    readFile: (name) => (name === 'scanner.ts' ? scanner : null),
    writeFile: (name, contents) => {
      if (name === 'scanner.wasm') code = contents as Uint8Array;
    },
    listFiles: () => [],
  });
  if (error !== null || code === undefined) return undefined;
  writeFileSync(join(sandbox, 'packages/core/json/scanner.wasm'), code);
  let result: TestsResult | undefined;
  for (const { files } of batches.filter((batch) => batch.of.test(source))) {
    result = await runTests(files, { cwd: sandbox, nodeArguments: ['--import', join(import.meta.dirname, 'seed.js')] });
    if (result.kind !== 'passed') break;
  }
  return result;
}

async function runMutant(mutant: ReportedMutant, sandbox: string): Promise<ReportedMutant> {
  const result = await runWith(apply(mutant), sandbox);
  if (result === undefined) return { ...mutant, status: 'CompileError' };
  if (result.kind === 'passed') return mutant;
  return { ...mutant, status: result.kind === 'hung' ? 'Timeout' : 'Killed', statusReason: result.test };
}

if (isMainThread) {
  const { values } = parseArgs({ options: { lines: { type: 'string', default: '1-9999' } } });
  const [first = 1, last = first] = values.lines.split('-').map(Number);
  const all = (await listMutants()).filter(({ location: { start } }) => start.line >= first && start.line <= last);
  const done: ReportedMutant[] = [];
  const waiting = all.entries();
  await Promise.all(
    Array.from({ length: laneCount }, async (_, lane) => {
      const worker = new Worker(new URL(import.meta.url), { workerData: lane });
      for (const [, mutant] of waiting) {
        worker.postMessage(mutant);
        const [result] = (await once(worker, 'message')) as [ReportedMutant];
        done.push(result);
        const { line, column } = result.location.start;
        console.log(
          `${done.length}/${all.length} ${result.status} ${line}:${column} ${result.mutatorName} ${result.replacement.slice(0, 60).replaceAll('\n', ' ')}`,
        );
      }
      await worker.terminate();
    }),
  );
  done.sort((a, b) => Number(a.id) - Number(b.id));
  writeFileSync(reportOf('scanner'), JSON.stringify({ files: { [source]: { source: text, mutants: done } } }));
} else {
  const sandbox = join(outputDirectory, `scanner-${String(workerData)}`);
  makeSandbox(sandbox);
  const unchanged = await runWith(text, sandbox);
  if (unchanged?.kind !== 'passed') throw new Error(`without a mutant: ${JSON.stringify(unchanged)}`);
  parentPort?.on('message', (mutant: ReportedMutant) => {
    void runMutant(mutant, sandbox).then((result) => parentPort?.postMessage(result));
  });
}
