// Packs the package and installs it from its tarball in a separate folder, as users get it.

import { execFile } from 'node:child_process';
import { cpSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';

export const root = resolve(import.meta.dirname, '../..');

export const readJson = (path: string): unknown => JSON.parse(readFileSync(path, 'utf8'));

export interface Ended {
  readonly code: number;
  readonly stdout: string;
  readonly stderr: string;
}

/** Runs a program to its end, for at most ten minutes. */
export function run(program: string, args: readonly string[], cwd: string): Promise<Ended> {
  return new Promise((done) => {
    execFile(program, args, { cwd, maxBuffer: 2 ** 27, timeout: 600_000 }, (error, stdout, stderr) => {
      const code = error === null ? 0 : typeof error.code === 'number' ? error.code : 1;
      done({ code, stdout, stderr: error !== null && stderr === '' ? error.message : stderr });
    });
  });
}

/** Runs a program like `run`; throws unless it exits with 0. */
export async function runWell(program: string, args: readonly string[], cwd: string): Promise<Ended> {
  const ended = await run(program, args, cwd);
  if (ended.code !== 0) {
    throw new Error(`${program} ${args.join(' ')} ended with ${ended.code}\n${ended.stdout}${ended.stderr}`);
  }
  return ended;
}

export interface Installed {
  /** Path of the tarball. */
  readonly tarball: string;
  /** Folder in which only this package is installed. */
  readonly folder: string;
  /** npm's warnings, without warnings that `npm prefix` prints too: they do not concern this package. */
  readonly warnings: readonly string[];
}

export function createFolder(): string {
  return mkdtempSync(join(tmpdir(), 'work-item-gateway-release-'));
}

/** Builds and packs the repository into `folder`, and installs the package in a folder below it. */
export async function packAndInstall(folder: string): Promise<Installed> {
  await runWell('npm', ['pack', '--pack-destination', folder], root);
  const name = readdirSync(folder).find((each) => each.endsWith('.tgz')) ?? '';
  const tarball = join(folder, name);
  const target = join(folder, 'installed');
  mkdirSync(target);
  writeFileSync(join(target, 'package.json'), JSON.stringify({ name: 'installed', version: '1.0.0', private: true }));
  const usual = (await run('npm', ['prefix'], target)).stderr.split('\n');
  const { stdout, stderr } = await runWell('npm', ['install', '--no-audit', '--no-fund', tarball], target);
  const warnings = `${stdout}\n${stderr}`
    .split('\n')
    .filter((line) => /warn|deprecated/i.test(line) && !usual.includes(line));
  return { tarball, folder: target, warnings };
}

export const sbomFormats = ['cyclonedx', 'spdx'] as const;

/** Creates the package's software bill of materials (SBOM) as JSON. It lists the packages that npm installs. */
export async function createSbom({ folder }: Installed, format: (typeof sbomFormats)[number]): Promise<string> {
  const source = join(folder, 'node_modules/work-item-gateway');
  const target = join(mkdtempSync(join(folder, 'sbom-')), 'work-item-gateway');
  mkdirSync(target);
  cpSync(join(source, 'package.json'), join(target, 'package.json'));
  await runWell('npm', ['pkg', 'delete', 'devDependencies'], target);
  await runWell('npm', ['install', '--package-lock-only', '--no-audit', '--no-fund'], target);
  const options = ['--sbom-format', format, '--sbom-type', 'application'];
  return (await runWell('npm', ['sbom', '--package-lock-only', ...options], target)).stdout;
}
