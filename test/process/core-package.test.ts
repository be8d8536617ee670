// @work-item-gateway/core as `npm pack` makes it: one package without dependencies, for embedding. Needs no registry.

import assert from 'node:assert/strict';
import { execFile, execFileSync } from 'node:child_process';
import { globSync, mkdirSync, mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, delimiter, join, resolve } from 'node:path';
import { after, before, test } from 'node:test';
import { promisify } from 'node:util';
import { answer, ScriptedBackend } from '../helpers/scripted-backend.ts';

interface Manifest {
  readonly name: string;
  readonly version: string;
  readonly dependencies?: object;
  readonly peerDependencies: Readonly<Record<string, string>>;
  readonly peerDependenciesMeta: Readonly<Record<string, { readonly optional: boolean }>>;
  readonly exports: Readonly<Record<string, unknown>>;
}

const root = resolve(import.meta.dirname, '../..');
const readManifest = (folder: string) =>
  JSON.parse(readFileSync(join(folder, 'package.json'), 'utf8')) as Manifest;
const node = process.env['GATEWAY_NODE'] ?? process.execPath;
let folder = '';
let installed = '';
let backend: ScriptedBackend;

before(async () => {
  backend = await ScriptedBackend.start();
  folder = mkdtempSync(join(tmpdir(), 'work-item-gateway-core-'));
  const environment = {
    PATH: [dirname(process.execPath), process.env['PATH']].join(delimiter),
    HOME: folder,
    npm_config_update_notifier: 'false',
    npm_config_audit: 'false',
    npm_config_fund: 'false',
  };
  const npm = (...args: string[]) =>
    execFileSync('npm', args, { cwd: join(folder, 'user'), env: environment, stdio: 'pipe' });
  mkdirSync(join(folder, 'user'));
  npm('pack', '--pack-destination', folder, join(root, 'dist/core'));
  const [tarball = ''] = globSync('*.tgz', { cwd: folder });
  npm('install', '--offline', join(folder, tarball));
  installed = join(folder, 'user/node_modules/@work-item-gateway/core');
});
after(async () => {
  await backend.stop();
  rmSync(folder, { recursive: true });
});

/** Runs a module that uses the package; returns its output. */
async function run(text: string): Promise<{ stdout: string; stderr: string }> {
  writeFileSync(join(folder, 'user/index.mjs'), text);
  return await promisify(execFile)(node, ['index.mjs'], { cwd: join(folder, 'user') });
}

test('one package of at most 1 MB, without a dependency', () => {
  assert.deepEqual(globSync('*', { cwd: join(folder, 'user/node_modules') }), ['@work-item-gateway']);
  const files = globSync('**/*', { cwd: installed, withFileTypes: true }).filter((entry) => entry.isFile());
  const bytes = files.reduce((sum, { parentPath, name }) => sum + statSync(join(parentPath, name)).size, 0);
  assert.ok(files.length > 50 && bytes <= 1_000_000, `${files.length} files, ${bytes} bytes`);
  const manifest = readManifest(installed);
  assert.equal(manifest.dependencies, undefined);
  assert.deepEqual(Object.keys(manifest.peerDependencies), ['fastify', 'ioredis', 'jose']);
  for (const name of Object.keys(manifest.peerDependencies)) {
    assert.equal(manifest.peerDependenciesMeta[name]?.optional, true, name);
  }
  assert.equal(manifest.version, readManifest(root).version);
});

test('each entry has its exports, by import and by require', async () => {
  const { exports } = readManifest(installed);
  const names = Object.keys(exports).filter((name) => name !== './package.json');
  assert.deepEqual(names, ['.', './fetch', './fastify', './node']);
  const { stdout } = await run(`
    import { createRequire } from 'node:module';
    const require = createRequire(import.meta.url);
    for (const entry of ${JSON.stringify(names)}) {
      const name = '@work-item-gateway/core' + entry.slice(1);
      const [imported, required] = [await import(name), require(name)];
      console.log(entry, Object.keys(imported).filter((each) => each !== 'module.exports').sort().join(), imported.createFetchHandler === required.createFetchHandler);
    }`);
  assert.equal(
    stdout,
    '. createGatewayServer,default,frameworkErrors,workItemGateway true\n' +
      './fetch createFetchHandler true\n' +
      './fastify default,frameworkErrors,workItemGateway true\n' +
      './node createNodeHandler true\n',
  );
});

test('the fetch handler answers without any other package', async () => {
  const bytes = '[{"id":12345678901234567890,"price":1.10}]';
  backend.answersOnce(answer(bytes));
  const { stdout, stderr } = await run(`
    import { createFetchHandler } from '@work-item-gateway/core/fetch';
    const call = createFetchHandler({ backendUrl: '${backend.url}' });
    const response = await call(new Request('http://localhost/api/work-items'));
    console.log(response.status, await response.text());
    await call.close();`);
  assert.equal(stdout, `200 ${bytes}\n`);
  assert.equal(stderr, '');
});

for (const [option, name, options] of [
  ['authIssuer', 'jose', "authIssuer: 'https://login.example/', authAudience: ['a'], authJwksUrl: 'https://login.example/keys'"],
  ['rateLimitRedisUrl', 'ioredis', "rateLimit: '1/1s', rateLimitRedisUrl: 'redis://localhost:1'"],
] as const) {
  test(`${option} without ${name} is an error that names the package to install`, async () => {
    const { stdout } = await run(`
      import { createGatewayServer } from '@work-item-gateway/core';
      const server = createGatewayServer({ backendUrl: '${backend.url}', ${options} });
      await server.listen({ port: 0 }).catch((error) => console.log(error.message));`);
    assert.equal(stdout, `${option} needs the package ${name}: run \`npm install ${name}\`\n`);
  });
} // prettier-ignore
