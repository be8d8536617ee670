// Installs the examples in temporary folders with the package that `npm pack` makes, and starts them as processes.

import assert from 'node:assert/strict';
import { execFile, execFileSync, spawnSync } from 'node:child_process';
import {
  cpSync,
  globSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
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
for (const name of ['NODE_TEST_CONTEXT', 'NODE_OPTIONS', 'NODE_ENV', 'PORT']) {
  Reflect.deleteProperty(environment, name);
}
const notThere = /\b(?:ENOTFOUND|EAI_AGAIN|ECONNREFUSED|ECONNRESET|ETIMEDOUT|ENETUNREACH|ENOTCACHED)\b/;
// Long enough for a busy machine.
const deadlineMs = 200_000;

/** The code for `host` in docs/hosts.md. Fails if its number of lines is not the number that the document states. */
export function linesOfDocument(host: string): string {
  const document = readFileSync(join(root, 'docs/hosts.md'), 'utf8');
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
    cpSync(join(root, 'examples', name), place, {
      recursive: true,
      filter: (path) => !['node_modules', '.next'].includes(basename(path)),
    });
    const options = ['--prefer-offline', '--no-audit', '--no-fund'];
    const { status, output } = runNpm(['install', ...options, pack()], place);
    const [reason] = notThere.exec(output) ?? [];
    assert.ok(status === 0 || reason !== undefined, output);
    const skip = status !== 0 && `the packages of examples/${name} cannot be installed here: ${reason}`;
    return new Example(place, skip);
  }

  /** A folder with the packed package and links to this repository's packages; needs no registry. */
  static link(): Example {
    const folder = createFolder();
    const modules = join(folder, 'node_modules');
    mkdirSync(modules);
    execFileSync('tar', ['xzf', pack(), '-C', modules]);
    renameSync(join(modules, 'package'), join(modules, 'work-item-gateway'));
    const own = join(root, 'node_modules');
    mkdirSync(join(modules, '.bin'));
    for (const name of readdirSync(own).filter((each) => !each.startsWith('.'))) {
      symlinkSync(join(own, name), join(modules, name));
    }
    for (const name of readdirSync(join(own, '.bin')).filter((each) => each !== 'node')) {
      symlinkSync(join(own, '.bin', name), join(modules, '.bin', name));
    }
    symlinkSync('../work-item-gateway/dist/command/main.js', join(modules, '.bin/work-item-gateway'));
    return new Example(folder, false);
  }

  /** Runs one of the example's programs until it exits. */
  run(program: string, args: readonly string[]): void {
    const { status, stdout, stderr } = spawnSync(this.#find(program), args, {
      cwd: this.folder,
      env: environment,
      encoding: 'utf8',
      timeout: deadlineMs,
    });
    assert.equal(status, 0, stdout + stderr);
  }

  /** Runs `node`, `bash` or one of the example's programs until it exits; returns its standard output. */
  async output(program: string, args: readonly string[], variables: NodeJS.ProcessEnv = {}): Promise<string> {
    const { stdout } = await promisify(execFile)(this.#find(program), args, {
      cwd: this.folder,
      env: { ...this.#environment, ...variables },
      timeout: deadlineMs,
    });
    return stdout;
  }

  /** Writes a file into the example's folder, or into a folder in it. */
  write(name: string, text: string): void {
    const path = join(this.folder, name);
    mkdirSync(dirname(path), { recursive: true });
    writeFileSync(path, text);
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
    return ['node', 'bash'].includes(program) ? program : join(this.#programs, program);
  }

  get #programs(): string {
    return join(this.folder, 'node_modules/.bin');
  }

  get #environment(): NodeJS.ProcessEnv {
    return { ...environment, PATH: [dirname(process.execPath), this.#programs, environment['PATH']].join(delimiter) };
  }
}

function createFolder(): string {
  const folder = mkdtempSync(join(tmpdir(), 'work-item-gateway-example-'));
  process.once('exit', () => rmSync(folder, { recursive: true, force: true }));
  return folder;
}

let packed: string | undefined;

/** Makes the package, once for all examples of a test file, and returns its path. `dist/` is already built. */
function pack(): string {
  if (packed === undefined) {
    const folder = createFolder();
    const { status, output } = runNpm(['pack', '--ignore-scripts', '--pack-destination', folder], root);
    assert.equal(status, 0, output);
    const [tarball = ''] = globSync('*.tgz', { cwd: folder });
    packed = join(folder, tarball);
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

function runNpm(args: readonly string[], cwd: string): { status: number | null; output: string } {
  const { status, stdout, stderr } = spawnSync('npm', args, {
    cwd,
    env: environment,
    encoding: 'utf8',
    timeout: deadlineMs,
  });
  return { status, output: stdout + stderr };
}
