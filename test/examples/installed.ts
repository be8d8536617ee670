// Installs the examples in temporary folders with the package that `npm pack` makes, and starts them as processes.

import assert from 'node:assert/strict';
import { execFile, execFileSync, spawnSync } from 'node:child_process';
import * as fs from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, delimiter, dirname, join, resolve } from 'node:path';
import { promisify } from 'node:util';
import { Program } from '../helpers/program.ts';
import { request, type CallOptions, type Reply } from '../helpers/raw-client.ts';

const root = resolve(import.meta.dirname, '../..');
// The environment of the tests, with the project's Node first in PATH and without the test runner's variables.
const environment: NodeJS.ProcessEnv = {
  ...process.env,
  PATH: [dirname(process.execPath), process.env['PATH']].join(delimiter),
  NEXT_TELEMETRY_DISABLED: '1',
};
for (const name of ['NODE_TEST_CONTEXT', 'NODE_OPTIONS', 'NODE_ENV', 'PORT']) Reflect.deleteProperty(environment, name);
const notThere = /\b(?:ENOTFOUND|EAI_AGAIN|ECONNREFUSED|ECONNRESET|ETIMEDOUT|ENETUNREACH|ENOTCACHED)\b/;
// Long enough for a busy machine; a build of Next.js needs 12 s of processor time.
const deadlineMs = 200_000;
export const buildLimitMs = 400_000;

/** The code for `host` in docs/hosts.md. Fails if its number of lines is not the number that the document states. */
export function linesOfDocument(host: string): string {
  const document = fs.readFileSync(join(root, 'docs/hosts.md'), 'utf8');
  const [section = ''] = document.split(/^### /m).filter((each) => each.startsWith(host));
  const code = /^```[jt]s\n(.*?)^```$/ms.exec(section)?.[1] ?? '';
  const lines = code.split('\n').filter((line) => line !== '' && !line.startsWith('//'));
  const stated = new RegExp(`^\\| ${host}[^|]*\\|[^|]*\\| +(\\d+) \\|`, 'm').exec(document)?.[1];
  assert.equal(lines.length, Number(stated), `${host}: lines of code`);
  assert.ok(lines.length <= 8, `${host}: at most eight lines of code`);
  return code;
}

/** `code` with another port and backend URL. */
export function runnable(code: string, port: number, backendUrl: string): string {
  return code.replaceAll('3000', String(port)).replaceAll('http://localhost:5104', backendUrl);
}

/** Asserts status and body only, for hosts that add headers for the connection and caches. */
export function assertBytes(reply: Reply, status: number, body: string): void {
  assert.deepEqual([reply.status, reply.text], [status, body]);
}

/** An installed example. */
export class Example {
  readonly folder: string;
  /** The `skip` option of the example's tests: false, or the reason if no registry can be reached. */
  readonly skip: string | false;

  private constructor(folder: string, skip: string | false) {
    this.folder = folder;
    this.skip = skip;
  }

  /** Installs `examples/<name>`. */
  static install(name: string): Example {
    const place = join(createFolder(), name);
    const filter = (path: string) => !['node_modules', '.next'].includes(basename(path));
    fs.cpSync(join(root, 'examples', name), place, { recursive: true, filter });
    const { status, output } = run('npm', ['install', '--prefer-offline', '--no-audit', '--no-fund', pack()], place);
    const [reason] = notThere.exec(output) ?? [];
    assert.ok(status === 0 || reason !== undefined, output);
    const skip = status !== 0 && `the packages of examples/${name} cannot be installed here: ${reason}`;
    return new Example(place, skip);
  }

  /** A folder with the packed package and links to this repository's packages; needs no registry. */
  static link(): Example {
    const folder = createFolder();
    const [modules, own] = [folder, root].map((each) => join(each, 'node_modules')) as [string, string];
    fs.mkdirSync(join(modules, '.bin'), { recursive: true });
    execFileSync('tar', ['xzf', pack(), '-C', modules]);
    fs.renameSync(join(modules, 'package'), join(modules, 'work-item-gateway'));
    const programs = fs.readdirSync(join(own, '.bin')).filter((each) => each !== 'node');
    const names = fs.readdirSync(own).filter((each) => !each.startsWith('.'));
    for (const name of [...names, ...programs.map((each) => `.bin/${each}`)]) {
      fs.symlinkSync(join(own, name), join(modules, name));
    }
    fs.symlinkSync('../work-item-gateway/dist/command/main.js', join(modules, '.bin/work-item-gateway'));
    return new Example(folder, false);
  }

  /** Runs one of the example's programs until it exits. */
  run(program: string, args: readonly string[]): void {
    const { status, output } = run(this.#find(program), args, this.folder);
    assert.equal(status, 0, output);
  }

  /** Runs `node`, `bash` or one of the example's programs until it exits; returns its standard output. */
  async output(program: string, args: readonly string[], variables: NodeJS.ProcessEnv = {}): Promise<string> {
    const env = { ...this.#environment, ...variables };
    const options = { cwd: this.folder, env, timeout: deadlineMs };
    return (await promisify(execFile)(this.#find(program), args, options)).stdout;
  }

  /** Writes a file into the example's folder, or into a folder in it. */
  write(name: string, text: string): void {
    const path = join(this.folder, name);
    fs.mkdirSync(dirname(path), { recursive: true });
    fs.writeFileSync(path, text);
  }

  /** Starts `node`, `bash` or an example's program; resolves when it listens on `port` or has printed its own port. */
  async start(
    program: string,
    args: readonly string[],
    backendUrl: string,
    variables: NodeJS.ProcessEnv = {},
    port?: number,
  ): Promise<RunningExample> {
    const env = { ...this.#environment, PORT: '0', BACKEND_URL: backendUrl, ...variables };
    const running = new RunningExample([this.#find(program), ...args], { cwd: this.folder, env });
    if (port !== undefined) await running.listens(port, deadlineMs);
    const address = /https?:\/\/[a-z0-9.[\]:-]*:([1-9][0-9]*)/;
    running.port = port ?? Number((await running.prints(address, deadlineMs))[1]);
    return running;
  }

  #find(program: string): string {
    return ['node', 'bash'].includes(program) ? program : join(this.folder, 'node_modules/.bin', program);
  }

  get #environment(): NodeJS.ProcessEnv {
    const folders = [dirname(process.execPath), join(this.folder, 'node_modules/.bin'), environment['PATH']];
    return { ...environment, PATH: folders.join(delimiter) };
  }
}

function createFolder(): string {
  const folder = fs.mkdtempSync(join(tmpdir(), 'work-item-gateway-example-'));
  process.once('exit', () => fs.rmSync(folder, { recursive: true, force: true }));
  return folder;
}

let packed: string | undefined;

/** Makes the package, once for all examples of a test file, and returns its path. `dist/` is already built. */
function pack(): string {
  if (packed === undefined) {
    const folder = createFolder();
    const { status, output } = run('npm', ['pack', '--ignore-scripts', '--pack-destination', folder], root);
    assert.equal(status, 0, output);
    packed = join(folder, fs.readdirSync(folder).find((name) => name.endsWith('.tgz')) ?? '');
  }
  return packed;
}

export class RunningExample extends Program {
  port = 0;

  get url(): string {
    return `http://127.0.0.1:${this.port}`;
  }

  /** Sends one request on a new connection. */
  call(method: string, path: string, options?: CallOptions): Promise<Reply> {
    return request(this.port, method, path, options);
  }
}

function run(program: string, args: readonly string[], cwd: string): { status: number | null; output: string } {
  const options = { cwd, env: environment, encoding: 'utf8', timeout: deadlineMs } as const;
  const { status, stdout, stderr } = spawnSync(program, args, options);
  return { status, output: stdout + stderr };
}
