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

for (const [which, groupOf, groupsMin] of [
  ['files', (path: string) => path, 150],
  ['folders', dirname, 15],
  ['packages', (path: string) => path.split('/', 2).join('/'), 5],
] as const) {
  test(`imports between ${which}, dynamic ones and types included, have no cycle`, () => {
    const imports = new Map<string, Map<string, string>>();
    for (const { path, files } of sources) {
      const from = groupOf(path);
      const known = imports.get(from) ?? new Map<string, string>();
      imports.set(from, known);
      for (const file of files) {
        if (groupOf(file) !== from || which === 'files') known.set(groupOf(file), `${path} imports ${file}`);
      }
    }
    assert.ok(imports.size > groupsMin);
    const finished = new Set<string>();
    const visit = (group: string, way: readonly string[]): void => {
      for (const [to, why] of imports.get(group) ?? []) {
        const circle = [...way.slice(way.indexOf(to)), to].join(' -> ');
        assert.ok(!way.includes(to), `a circle: ${circle}; the last arrow: ${why}`);
        if (!finished.has(to)) visit(to, [...way, to]);
      }
      finished.add(group);
    };
    for (const group of imports.keys()) visit(group, [group]);
  });
}

test('files import only what their folder may import', () => {
  const isKernel = (file: string) => kernel.some(({ path }) => path === file);
  for (const [from, mayImport, packagesMax] of [
    // The kernel imports no file outside itself, and no package.
    [/^packages\/core\/(?!options\/|guards\/|hosts\/)/, isKernel, 0],
    [/^packages\/core\/options\//, (file: string) => isKernel(file) || file.startsWith('packages/core/options/')],
    [/^packages\/core\/guards\//, (file: string) => !file.startsWith('packages/core/hosts/')],
    [/^packages\/core\//, (file: string) => file.startsWith('packages/core/')],
  ] as const) {
    const importing = sources.filter(({ path }) => from.test(path));
    assert.ok(importing.length > 10);
    for (const { path, files, packages } of importing) {
      assert.deepEqual(
        files.filter((file) => !mayImport(file)),
        [],
        path,
      );
      if (packagesMax === 0) assert.deepEqual(packages, [], path);
    }
  }
});

for (const [what, pattern, where] of [
  [
    'import a socket module',
    /(?: from |getBuiltinModule\()'node:(?:net|tls|https?|http2)'/,
    /^packages\/(?:core\/(?:admission|http1|options|guards|hosts)|command\/(?!api-reference)|dashboard|stand-in-backend)/,
  ],
  ['handle a signal', /'SIG(?:TERM|INT|HUP|USR1|PIPE)'/, /^packages\/command\//],
  [
    'compare the name of an operation',
    /[!=]==? '(?:list|create|read|update|delete)'|case '(?:list|create|read|update|delete)'/,
    /^packages\/(?!core\/(?!hosts\/openapi\/))/,
  ],
  ['import the Prometheus client', / from '@prometheus-io\/client'/, /^packages\/(?:figures|command\/metrics)\//],
  ['import commander', / from 'commander'/, /^packages\/command\/cli\/cli\.ts$/],
  ['end the process', /process\.exit\(/, /^packages\/command\/(?:main|cluster\/worker)\.ts$/],
  ['read the environment', /process\.env/, /^packages\/command\/(?:main|log\/log)\.ts$/],
  ['read the settings', /\/settings\.ts'/, /^packages\/command\/(?:cli|cluster|commands|service|settings)\//],
] as const) {
  test(`only the allowed files ${what}`, () => {
    const found = sources.filter(({ text }) => pattern.test(text)).map(({ path }) => path);
    assert.ok(found.length > 0);
    assert.deepEqual(
      found.filter((path) => !where.test(path)),
      [],
    );
  });
}

test('the kernel has at most 5,700 lines, comments included', () => {
  const lines = kernel.reduce((sum, { text }) => sum + text.split('\n').length - 1, 0);
  assert.ok(lines > 5_000, `only ${lines} lines were found`);
  assert.ok(lines <= 5_700, `the kernel has ${lines} lines: remove code to add more`);
});

/** The places that decide by the text of a message or cause: comparisons, searches and patterns, also through a variable. */
function findTextDecisions(path: string, text: string): string[] {
  const file = ts.createSourceFile(path, text, ts.ScriptTarget.Latest, true);
  const found: string[] = [];
  const fields = ['message', 'cause'];
  // The names of variables with such a text, and of variables with a constant text.
  const names = new Set(fields);
  const words = new Set<string>();
  // These methods return a text that is made from their own.
  const makers = ['toLowerCase', 'toUpperCase', 'trim', 'slice', 'replace', 'replaceAll', 'split', 'at', 'toString'];
  const finders = [
    'includes',
    'startsWith',
    'endsWith',
    'indexOf',
    'lastIndexOf',
    'search',
    'match',
    'matchAll',
    'localeCompare',
  ];
  const takers = ['test', 'exec', 'has', 'get', 'includes', 'indexOf'];
  const isText = (node: ts.Node): boolean => {
    if (ts.isIdentifier(node)) return names.has(node.text);
    if (ts.isPropertyAccessExpression(node)) {
      return fields.includes(node.name.text) || (makers.includes(node.name.text) && isText(node.expression));
    }
    if (ts.isElementAccessExpression(node)) {
      return ts.isStringLiteral(node.argumentExpression) && fields.includes(node.argumentExpression.text);
    }
    if (ts.isCallExpression(node)) {
      return isText(node.expression) || (node.expression.getText() === 'String' && node.arguments.some(isText));
    }
    if (ts.isTemplateExpression(node)) return node.templateSpans.some(({ expression }) => isText(expression));
    if (ts.isBinaryExpression(node)) {
      return /^(?:\?\?|\|\|)$/.test(node.operatorToken.getText()) && (isText(node.left) || isText(node.right));
    }
    const isWrapper = ts.isParenthesizedExpression(node) || ts.isAsExpression(node) || ts.isNonNullExpression(node);
    return isWrapper && isText(node.expression);
  };
  const isWord = (node: ts.Node): boolean =>
    (ts.isStringLiteralLike(node) && node.text !== '') ||
    ts.isRegularExpressionLiteral(node) ||
    (ts.isIdentifier(node) && words.has(node.text));
  const collect = (node: ts.Node): void => {
    if (ts.isVariableDeclaration(node) && node.initializer !== undefined && ts.isIdentifier(node.name)) {
      if (ts.isStringLiteralLike(node.initializer) && node.initializer.text !== '') words.add(node.name.text);
      if (isText(node.initializer) && !ts.isTemplateExpression(node.initializer)) names.add(node.name.text);
    }
    if (ts.isBindingElement(node) && fields.includes(node.propertyName?.getText() ?? ''))
      names.add(node.name.getText());
    ts.forEachChild(node, collect);
  };
  const decides = (node: ts.Node): boolean => {
    if (ts.isBinaryExpression(node) && /^[!=]==?$/.test(node.operatorToken.getText())) {
      return (isText(node.left) && isWord(node.right)) || (isText(node.right) && isWord(node.left));
    }
    if (ts.isSwitchStatement(node)) return isText(node.expression);
    if (!ts.isCallExpression(node) || !ts.isPropertyAccessExpression(node.expression)) return false;
    const { name, expression } = node.expression;
    return (
      (finders.includes(name.text) && isText(expression)) || (takers.includes(name.text) && node.arguments.some(isText))
    );
  };
  const visit = (node: ts.Node): void => {
    const { line } = file.getLineAndCharacterOfPosition(node.getStart());
    if (decides(node)) found.push(`${path}:${line + 1}: ${node.getText().split('\n')[0]}`);
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
