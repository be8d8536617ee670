// The package as users get it: packed, and installed from its tarball in a folder of its own. What `npm sbom` says there is
// what they have; in the repository it leaves out packages that development needs as well.

import { execFile } from 'node:child_process';
import { mkdirSync, mkdtempSync, readdirSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, join, resolve } from 'node:path';

export const root = resolve(import.meta.dirname, '../..');

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

/** The same, and throws where it fails. */
export async function runWell(program: string, args: readonly string[], cwd: string): Promise<Ended> {
  const ended = await run(program, args, cwd);
  if (ended.code !== 0) {
    throw new Error(`${program} ${args.join(' ')} ended with ${ended.code}\n${ended.stdout}${ended.stderr}`);
  }
  return ended;
}

export interface Installed {
  /** Of the tarball. */
  readonly tarball: string;
  /** Where it is installed, with nothing else. */
  readonly folder: string;
  /** What npm said to it, but for what it says to everything on this machine. */
  readonly warnings: readonly string[];
}

export function createFolder(): string {
  return mkdtempSync(join(tmpdir(), 'work-item-gateway-release-'));
}

/** Packs the repository into `folder`, which builds it, and installs it below. */
export async function packAndInstall(folder: string): Promise<Installed> {
  await runWell('npm', ['pack', '--pack-destination', folder], root);
  const name = readdirSync(folder).find((each) => each.endsWith('.tgz')) ?? '';
  const tarball = join(folder, name);
  const target = join(folder, 'installed');
  mkdirSync(target);
  writeFileSync(
    join(target, 'package.json'),
    JSON.stringify({ name: 'installed', version: '1.0.0', private: true }),
  );
  const usual = (await run('npm', ['prefix'], target)).stderr.split('\n');
  const { stdout, stderr } = await runWell('npm', ['install', '--no-audit', '--no-fund', tarball], target);
  const warnings = `${stdout}\n${stderr}`
    .split('\n')
    .filter((line) => /warn|deprecated/i.test(line) && !usual.includes(line));
  return { tarball, folder: target, warnings };
}

export const sbomFormats = ['cyclonedx', 'spdx'] as const;

/** The software bill of materials of the installed package, as JSON; it says of the tarball where it will be. */
export async function createSbom(
  { folder, tarball }: Installed,
  format: (typeof sbomFormats)[number],
): Promise<string> {
  const options = ['--sbom-format', format, '--sbom-type', 'application'];
  const { stdout } = await runWell('npm', ['sbom', ...options], folder);
  const published = `https://registry.npmjs.org/work-item-gateway/-/${basename(tarball)}`;
  return stdout.replaceAll(`file:${tarball}`, published);
}
