// The rules of ARCHITECTURE.md: imports have no cycle, and the kernel is small and imports nothing outside itself.

import assert from 'node:assert/strict';
import { globSync, readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { test } from 'node:test';
import { batches, skippedTests } from '../mutation/test-files.ts';

const root = join(import.meta.dirname, '../..');

interface Source {
  readonly path: string;
  readonly text: string;
  /** The imported files. This list and `packages` include imports of types. */
  readonly files: readonly string[];
  readonly packages: readonly string[];
}

const importPattern = /(?:from|import\(|import|require\()\s*'([^']+)'/g;

const sources: readonly Source[] = globSync('packages/**/*.{ts,js}', { cwd: root })
  .filter((path) => !path.includes('/swagger-ui/') && !path.endsWith('.as.ts'))
  .map((path) => {
    const text = readFileSync(join(root, path), 'utf8');
    const names = [...text.matchAll(importPattern)].map(([, name = '']) => name);
    return {
      path,
      text,
      files: names.filter((name) => name.startsWith('.')).map((name) => join(dirname(path), name)),
      packages: names.filter((name) => !name.startsWith('.') && !name.startsWith('node:')),
    };
  });

/** The core without its optional parts, which are the hosts and the guards. */
const kernel = sources.filter(({ path }) => /^packages\/core\/(?!hosts\/|guards\/)/.test(path));

test('imports between folders have no cycle', () => {
  const imports = new Map<string, Map<string, string>>();
  for (const { path, files } of sources) {
    const from = dirname(path);
    for (const file of files) {
      const to = dirname(file);
      if (to !== from) {
        const known = imports.get(from) ?? new Map<string, string>();
        imports.set(from, known.set(to, `${path} imports ${file}`));
      }
    }
  }
  assert.ok(imports.size > 15);
  const finished = new Set<string>();
  const visit = (folder: string, way: readonly string[]): void => {
    for (const [to, why] of imports.get(folder) ?? []) {
      assert.ok(
        !way.includes(to),
        `a circle: ${[...way.slice(way.indexOf(to)), to].join(' -> ')}; the last arrow: ${why}`,
      );
      if (!finished.has(to)) visit(to, [...way, to]);
    }
    finished.add(folder);
  };
  for (const folder of imports.keys()) visit(folder, [folder]);
});

test('imports between files, types included, have no cycle', () => {
  const imports = new Map(sources.map(({ path, files }) => [path, files]));
  for (const start of imports.keys()) {
    const reached = new Set<string>();
    const open = [...(imports.get(start) ?? [])];
    for (let path = open.pop(); path !== undefined; path = open.pop()) {
      assert.notEqual(path, start, `${start} imports itself`);
      if (!reached.has(path)) {
        reached.add(path);
        open.push(...(imports.get(path) ?? []));
      }
    }
  }
});

test('the kernel imports no file outside itself, and no package', () => {
  const paths = new Set(kernel.map(({ path }) => path));
  assert.deepEqual(
    kernel.flatMap(({ path, files, packages }) =>
      [...files.filter((file) => !paths.has(file)), ...packages].map((name) => `${path} imports ${name}`),
    ),
    [],
  );
});

test('the core imports no other package folder', () => {
  const found = sources
    .filter(({ path }) => path.startsWith('packages/core/'))
    .flatMap(({ path, files }) =>
      files.filter((file) => !file.startsWith('packages/core/')).map((file) => `${path} imports ${file}`),
    );
  assert.deepEqual(found, []);
});

test('the kernel has at most 5,700 lines, comments included', () => {
  const lines = kernel.reduce((sum, { text }) => sum + text.split('\n').length - 1, 0);
  assert.ok(lines > 5_000, `only ${lines} lines were found`);
  assert.ok(lines <= 5_700, `the kernel has ${lines} lines: remove code to add more`);
});

test('no source file compares the text of a cause, because reasons and flaws have identifiers', () => {
  const comparison =
    /\bcause\)?\.(?:starts|ends)With|\bcause\)?\.(?:includes|match)|(?<!typeof (?:\w+\.)?)\bcause\b [!=]== '|\.test\((?:\w+\.)?cause\b/;
  assert.match("this.cause === 'an empty body'", comparison);
  assert.deepEqual(
    sources.filter(({ text }) => comparison.test(text)).map(({ path }) => path),
    [],
  );
});

test('every export is used', () => {
  const users = globSync(['packages/**/*.{ts,js}', '{test,bench,scripts}/**/*.{ts,js}'], {
    cwd: root,
    exclude: ['**/node_modules/**', '**/swagger-ui/**'],
  }).map((path) => ({ path, words: new Set(readFileSync(join(root, path), 'utf8').match(/\w+/g)) }));
  const unused = sources.flatMap(({ path, text }) =>
    [...text.matchAll(/^export (?:async )?(?:const|function|class|interface|type) (\w+)/gm)]
      .map(([, name = '']) => name)
      .filter((name) => !users.some((user) => user.path !== path && user.words.has(name)))
      .map((name) => `${path}: ${name}`),
  );
  assert.deepEqual(unused, []);
});

test('all test files and skipped titles in the lists of the mutation tests exist', () => {
  const files = [...new Set(batches.flatMap((batch) => batch.files))];
  assert.ok(files.length > 50);
  const texts = files.map((path) => readFileSync(join(root, path), 'utf8')).join('');
  for (const title of skippedTests) assert.ok(texts.includes(`test('${title}'`), title);
});
