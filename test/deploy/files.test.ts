// Every file under deploy/ is used by a test or a script.

import assert from 'node:assert/strict';
import { existsSync, globSync, readFileSync, statSync } from 'node:fs';
import { basename, dirname, join, resolve } from 'node:path';
import { test } from 'node:test';
import { parse } from 'yaml';

const root = resolve(import.meta.dirname, '../..');
const read = (path: string): string => readFileSync(join(root, path), 'utf8');
const isFile = (path: string): boolean => statSync(join(root, path)).isFile();
const users = globSync(['test/**/*.{ts,yml}', 'scripts/**/*.ts', 'package.json'], { cwd: root })
  .filter((path) => path !== 'test/deploy/files.test.ts' && !path.includes('node_modules'))
  .map((path) => ({ path, text: read(path) }));

/** A kustomization and its files. */
function partsOf(kustomization: string): string[] {
  const { resources = [], patches = [] } = parse(read(kustomization)) as {
    resources?: string[];
    patches?: { path?: string }[];
  };
  const names = [...resources, ...patches.flatMap(({ path }) => path ?? [])];
  return [kustomization, ...names.map((name) => join(dirname(kustomization), name)).filter((path) => isFile(path))];
}

// kubernetes.test.ts renders and decodes all these files.
const kustomized = new Set(globSync('deploy/kubernetes/*/kustomization.yaml', { cwd: root }).flatMap(partsOf));

/** True when a test or a script names the file: by its path, or by its folder and name. */
function isUsed(path: string): boolean {
  if (kustomized.has(path)) return users.some((user) => user.path === 'test/deploy/kubernetes.test.ts');
  const [folder, name] = [dirname(path), basename(path)];
  return users.some(
    ({ text }) =>
      text.includes(`/${path}'`) ||
      text.includes(`'${path}'`) ||
      text.includes(`\`${path}\``) ||
      (text.includes(`'${folder}'`) && text.includes(`'${name}'`)),
  );
}

test('every file under deploy/ is used by a test or a script', () => {
  const files = globSync('deploy/**/*', { cwd: root }).filter(isFile);
  assert.ok(files.length > 25, String(files.length));
  const unused = files.filter((path) => !isUsed(path));
  assert.deepEqual(unused, []);
});

test('the health check of the image runs at most once in 30 s, and the probes of Kubernetes run no program', () => {
  const [, seconds] = /^HEALTHCHECK .*--interval=(\d+)s\b/m.exec(read('Dockerfile')) ?? [];
  assert.ok(Number(seconds) >= 30);
  for (const path of globSync('deploy/kubernetes/**/*.yaml', { cwd: root })) {
    assert.doesNotMatch(read(path), /^ *exec:/m, path);
  }
});

test('the image listens on all IPv4 and IPv6 addresses, and SIGUSR1 cannot open the debugger of Node', () => {
  const text = read('Dockerfile');
  assert.match(text, /^ENV .* HOST=::$/m);
  assert.match(text, /^ENTRYPOINT \["\/usr\/local\/bin\/node", "--disable-sigusr1", /m);
});

test('docs/deploying.md names only files that exist and that a test uses', () => {
  const text = read('docs/deploying.md');
  const inDeploy = globSync('deploy/**/*', { cwd: root });
  // Paths in commands and in backticks, apart from files that the commands create.
  const paths = [...text.matchAll(/(?<![\w/-])((?:deploy|scripts|examples)\/[\w./-]*\w)/g)].map(
    ([, path = '']) => path,
  );
  assert.ok(paths.length > 1, String(paths));
  for (const path of paths) {
    assert.ok(existsSync(join(root, path)), `${path} does not exist`);
    assert.ok(isFile(path) ? isUsed(path) : path.startsWith('deploy'), `${path} is used by no test`);
  }
  const names = [...text.matchAll(/(?<![\w/.-])([\w-]+\.(?:service|socket|env|cfg|ya?ml|json))(?![\w-])/g)].map(
    ([, name = '']) => name,
  ); // prettier-ignore
  assert.ok(names.length > 3, String(names));
  // Files that the reader creates. test/examples/documents.test.ts runs their contents.
  const saved = new Set([...text.matchAll(/save this as `([\w.-]+)`/g)].map(([, name]) => name));
  for (const name of new Set(names.filter((each) => !saved.has(each)))) {
    const path = inDeploy.find((each) => basename(each) === name);
    assert.ok(path !== undefined && isUsed(path), `${name} is not a file under deploy/ that a test uses`);
  }
  // The Dockerfile is not under deploy/. `npm run test:image` builds it.
  assert.ok(text.includes('`Dockerfile`') && read('test/deploy/image.ts').includes("'build',"));
});
