// Every file under deploy/ is used by a test or a script, and docs/deploying.md names only such files.

import assert from 'node:assert/strict';
import { existsSync, globSync, readFileSync, statSync } from 'node:fs';
import { basename, dirname, join, resolve } from 'node:path';
import { test } from 'node:test';

const root = resolve(import.meta.dirname, '../..');
const read = (path: string): string => readFileSync(join(root, path), 'utf8');
const files = globSync('deploy/**/*', { cwd: root }).filter((path) => statSync(join(root, path)).isFile());
const users = globSync(['test/**/*.{ts,yml}', 'scripts/**/*.ts', 'package.json'], {
  cwd: root,
  exclude: ['**/node_modules/**', 'test/deploy/files.test.ts'],
}).map(read);

/** True when a test or a script names the file: by its path, or by its folder and name. */
function isUsed(path: string): boolean {
  // kubernetes.test.ts renders and decodes all files of the kustomizations.
  if (path.startsWith('deploy/kubernetes/')) return path.endsWith('.yaml');
  const [folder, name] = [dirname(path), basename(path)];
  const isNamed = (text: string) => [`/${path}'`, `'${path}'`, `\`${path}\``].some((each) => text.includes(each));
  return users.some((text) => isNamed(text) || (text.includes(`'${folder}'`) && text.includes(`'${name}'`)));
}

test('every file under deploy/ is used by a test or a script', () => {
  assert.ok(files.length > 25, String(files.length));
  const unused = files.filter((path) => !isUsed(path));
  assert.deepEqual(unused, []);
});

test('no health check starts a program often, the image listens on all addresses, and SIGUSR1 cannot open the debugger', () => {
  const image = read('Dockerfile');
  const [, seconds] = /^HEALTHCHECK .*--interval=(\d+)s\b/m.exec(image) ?? [];
  assert.ok(Number(seconds) >= 30);
  for (const path of files.filter((each) => each.endsWith('.yaml'))) assert.doesNotMatch(read(path), /^ *exec:/m, path);
  assert.match(image, /^ENV .* HOST=::$/m);
  assert.match(image, /^ENTRYPOINT \["\/usr\/local\/bin\/node", "--disable-sigusr1", /m);
});

test('docs/deploying.md names only files that exist and that a test uses', () => {
  const text = read('docs/deploying.md');
  const namesIn = (pattern: RegExp) => [...new Set([...text.matchAll(pattern)].map(([, name = '']) => name))];
  const paths = namesIn(/(?<![\w/-])((?:deploy|scripts|examples)\/[\w./-]*\w)/g);
  assert.ok(paths.length > 1);
  for (const path of paths) assert.ok(existsSync(join(root, path)) && (!files.includes(path) || isUsed(path)), path);
  const names = namesIn(/(?<![\w/.-])([\w-]+\.(?:service|socket|env|cfg|ya?ml|json))(?![\w-])/g);
  // Files that the reader creates; test/examples/documents.test.ts runs their contents.
  const saved = namesIn(/save this as `([\w.-]+)`/g);
  const others = names.filter((name) => !saved.includes(name));
  assert.ok(others.length > 2, String(others));
  for (const name of others)
    assert.ok(
      files.some((path) => basename(path) === name && isUsed(path)),
      name,
    );
  // The Dockerfile is not under deploy/. `npm run test:image` builds it.
  assert.ok(text.includes('`Dockerfile`') && read('test/deploy/image.ts').includes("'build',"));
});
