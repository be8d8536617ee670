// The rules of ARCHITECTURE.md: imports have no cycle, and the kernel is small and imports nothing outside itself.

import assert from 'node:assert/strict';
import { globSync, readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { test } from 'node:test';

import ts from 'typescript';

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
  .filter((path) => !path.endsWith('.as.ts'))
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

/** The core without options, guards and hosts. */
const kernel = sources.filter(({ path }) => /^packages\/core\/(?!options\/|guards\/|hosts\/)/.test(path));

for (const [which, folderOf, folders] of [
  ['folders', dirname, 15],
  ['packages', (path: string) => path.split('/', 2).join('/'), 5],
] as const) {
  test(`imports between ${which}, dynamic ones and types included, have no cycle`, () =>
    assertNoCycle(folderOf, folders));
}

function assertNoCycle(folderOf: (path: string) => string, folders: number): void {
  const imports = new Map<string, Map<string, string>>();
  for (const { path, files } of sources) {
    const from = folderOf(path);
    for (const file of files) {
      const to = folderOf(file);
      if (to !== from) {
        const known = imports.get(from) ?? new Map<string, string>();
        imports.set(from, known.set(to, `${path} imports ${file}`));
      }
    }
  }
  assert.ok(imports.size > folders);
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
}

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

test('options import only the kernel, and guards import no host', () => {
  const imported = (from: string): string[] =>
    sources.filter(({ path }) => path.startsWith(`packages/core/${from}/`)).flatMap(({ files }) => files);
  assert.ok(imported('options').length > 20);
  assert.deepEqual(
    imported('options').filter((file) => /^packages\/(?!core\/(?!guards\/|hosts\/))/.test(file)),
    [],
  );
  assert.deepEqual(
    imported('guards').filter((file) => file.startsWith('packages/core/hosts/')),
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

/** The places that decide by the text of a message or cause: comparisons, searches and patterns, also through a variable. */
function findTextDecisions(path: string, text: string): string[] {
  const file = ts.createSourceFile(path, text, ts.ScriptTarget.Latest, true);
  const found: string[] = [];
  const names = new Set(['message', 'cause']);
  const isText = (node: ts.Node): boolean =>
    (ts.isIdentifier(node) && names.has(node.text)) ||
    (ts.isPropertyAccessExpression(node) &&
      (['message', 'cause'].includes(node.name.text) || (returnsText(node.name) && isText(node.expression)))) ||
    (ts.isElementAccessExpression(node) &&
      ts.isStringLiteral(node.argumentExpression) &&
      ['message', 'cause'].includes(node.argumentExpression.text)) ||
    (ts.isCallExpression(node) &&
      (isText(node.expression) ||
        (ts.isIdentifier(node.expression) && node.expression.text === 'String' && node.arguments.some(isText)))) ||
    (ts.isTemplateExpression(node) && node.templateSpans.some(({ expression }) => isText(expression))) ||
    ((ts.isParenthesizedExpression(node) || ts.isAsExpression(node) || ts.isNonNullExpression(node)) &&
      isText(node.expression)) ||
    (ts.isBinaryExpression(node) &&
      [ts.SyntaxKind.QuestionQuestionToken, ts.SyntaxKind.BarBarToken].includes(node.operatorToken.kind) &&
      (isText(node.left) || isText(node.right)));
  // These methods return a text that is made from the message.
  const returnsText = ({ text: name }: ts.Identifier | ts.PrivateIdentifier): boolean =>
    ['toLowerCase', 'toUpperCase', 'trim', 'slice', 'replace', 'replaceAll', 'split', 'at', 'toString'].includes(name);
  const isWord = (node: ts.Node): boolean =>
    (ts.isStringLiteralLike(node) && node.text !== '') ||
    ts.isRegularExpressionLiteral(node) ||
    (ts.isIdentifier(node) && words.has(node.text));
  const words = new Set<string>();
  const collect = (node: ts.Node): void => {
    if (ts.isVariableDeclaration(node) && node.initializer !== undefined && ts.isIdentifier(node.name)) {
      if (ts.isStringLiteralLike(node.initializer) && node.initializer.text !== '') words.add(node.name.text);
      if (isText(node.initializer) && !ts.isTemplateExpression(node.initializer)) names.add(node.name.text);
    }
    if (
      ts.isBindingElement(node) &&
      node.propertyName !== undefined &&
      ts.isIdentifier(node.propertyName) &&
      ['message', 'cause'].includes(node.propertyName.text) &&
      ts.isIdentifier(node.name)
    ) {
      names.add(node.name.text);
    }
    ts.forEachChild(node, collect);
  };
  const { EqualsEqualsEqualsToken, ExclamationEqualsEqualsToken, EqualsEqualsToken, ExclamationEqualsToken } =
    ts.SyntaxKind;
  const equality = [EqualsEqualsEqualsToken, ExclamationEqualsEqualsToken, EqualsEqualsToken, ExclamationEqualsToken];
  const decides = (node: ts.Node): boolean => {
    if (ts.isBinaryExpression(node) && equality.includes(node.operatorToken.kind)) {
      return (isText(node.left) && isWord(node.right)) || (isText(node.right) && isWord(node.left));
    }
    if (ts.isSwitchStatement(node)) return isText(node.expression);
    if (!ts.isCallExpression(node) || !ts.isPropertyAccessExpression(node.expression)) return false;
    const {
      name: { text: method },
      expression: subject,
    } = node.expression;
    return (
      ([
        'includes',
        'startsWith',
        'endsWith',
        'indexOf',
        'lastIndexOf',
        'search',
        'match',
        'matchAll',
        'localeCompare',
      ].includes(method) &&
        isText(subject)) ||
      (['test', 'exec', 'has', 'get', 'includes', 'indexOf'].includes(method) && node.arguments.some(isText))
    );
  };
  const visit = (node: ts.Node): void => {
    if (decides(node))
      found.push(
        `${path}:${file.getLineAndCharacterOfPosition(node.getStart()).line + 1}: ${node.getText().split('\n')[0] ?? ''}`,
      );
    ts.forEachChild(node, visit);
  };
  collect(file);
  visit(file);
  return found;
}

test('no source file decides by the text of a message or cause, because errors have codes and reasons', () => {
  for (const text of [
    "error.message === 'an empty body'",
    "if ('gone' !== (error as Error).message) {}",
    "const closed = 'gone'; error.message === closed",
    "const { message } = error; message.startsWith('a')",
    "const { message: text } = error; /gone/.test(text)",
    "const text = error.message.toLowerCase(); text.includes('gone')",
    "pattern.exec(String(error.message ?? ''))",
    "switch (error['message']) { case 'gone': }",
    "known.has(outcome.cause)",
    "['gone'].includes(error.message)",
    "this.cause.match(/gone/)",
    'new Map().get(`${cause}`)',
  ]) {
    assert.equal(findTextDecisions('example.ts', text).length, 1, text);
  }
  for (const text of ["cause === undefined", "message === '' ? code : message", "typeof cause === 'string'", "message.kind === 'start'", "message.replace(/a/, 'b')"]) {
    assert.deepEqual(findTextDecisions('example.ts', text), [], text);
  }
  assert.deepEqual(sources.flatMap(({ path, text }) => findTextDecisions(path, text)), []);
}); // prettier-ignore

test('every export is used', () => {
  const users = globSync(['packages/**/*.{ts,js}', '{test,bench,scripts}/**/*.{ts,js}'], {
    cwd: root,
    exclude: ['**/node_modules/**'],
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
