// What is in examples/, as its readers have it: installed from the package that `npm pack` makes, in a folder elsewhere,
// and started as a process of its own.

import assert from 'node:assert/strict';
import { execFile, execFileSync, spawn, spawnSync, type ChildProcess } from 'node:child_process';
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
import { Changes, poll } from './changes.ts';
import { isRefused, request, type CallOptions, type Reply } from './raw-client.ts';

const root = resolve(import.meta.dirname, '../..');
// Of whoever runs the tests, with the project's Node first, and without what the test runner tells its own processes.
const environment: NodeJS.ProcessEnv = {
  ...process.env,
  PATH: [dirname(process.execPath), process.env['PATH']].join(delimiter),
  NEXT_TELEMETRY_DISABLED: '1',
};
for (const name of ['NODE_TEST_CONTEXT', 'NODE_OPTIONS', 'NODE_ENV', 'PORT']) {
  Reflect.deleteProperty(environment, name);
}
const notThere = /\b(?:ENOTFOUND|EAI_AGAIN|ECONNREFUSED|ECONNRESET|ETIMEDOUT|ENETUNREACH|ENOTCACHED)\b/;
// On a busy machine.
const deadlineMs = 200_000;

/** What docs/hosts.md has its reader write for `host`; fails when that has not as many lines as it says there. */
export function linesOfDocument(host: string): string {
  const document = readFileSync(join(root, 'docs/hosts.md'), 'utf8');
  const [section = ''] = document.split(/^### /m).filter((each) => each.startsWith(host));
  const code = /^```[jt]s\n(.*?)^```$/ms.exec(section)?.[1] ?? '';
  const lines = code.split('\n').filter((line) => line !== '' && !line.startsWith('//'));
  const stated = new RegExp(`^\\| ${host}[^|]*\\|[^|]*\\| +(\\d+) \\|`, 'm').exec(document)?.[1];
  assert.equal(lines.length, Number(stated), `${host}: lines of code`);
  assert.ok(lines.length <= 8, `${host}: no more than eight`);
  return code;
}

/** `code` of a document on another port, before another backend. */
export function runnable(code: string, port: number, backendUrl: string): string {
  return code.replaceAll('3000', String(port)).replaceAll('http://localhost:5104', backendUrl);
}

/** An example with all that it needs. */
export class Example implements Disposable {
  readonly folder: string;

  private constructor(folder: string) {
    this.folder = folder;
  }

  /** Installs `examples/<name>`; where that cannot be, since there is no registry, gives the reason. */
  static install(name: string): Example | string {
    const example = Example.#create();
    const { folder } = example;
    try {
      const place = join(folder, name);
      cpSync(join(root, 'examples', name), place, {
        recursive: true,
        filter: (path) => !['node_modules', '.next'].includes(basename(path)),
      });
      const options = ['--prefer-offline', '--no-audit', '--no-fund'];
      const { status, output } = runNpm(['install', ...options, example.#pack()], place);
      if (status !== 0) {
        assert.match(output, notThere);
        example[Symbol.dispose]();
        return `the packages of examples/${name} cannot be installed here: ${notThere.exec(output)?.[0] ?? ''}`;
      }
      return new Example(place);
    } catch (error) {
      example[Symbol.dispose]();
      throw error;
    }
  }

  /** An empty folder with the packed package, and beside it the packages of this repository: no registry is asked. */
  static link(): Example {
    const example = Example.#create();
    const modules = join(example.folder, 'node_modules');
    mkdirSync(modules);
    execFileSync('tar', ['xzf', example.#pack(), '-C', modules]);
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
    return example;
  }

  static #create(): Example {
    return new Example(mkdtempSync(join(tmpdir(), 'work-item-gateway-example-')));
  }

  /** Makes the package; gives its path. */
  #pack(): string {
    // What `npm pack` would build before has been built.
    const packed = runNpm(['pack', '--ignore-scripts', '--pack-destination', this.folder], root);
    assert.equal(packed.status, 0, packed.output);
    const [tarball = ''] = globSync('*.tgz', { cwd: this.folder });
    return join(this.folder, tarball);
  }

  /** Runs one of its programs to the end. */
  run(program: string, args: readonly string[]): void {
    const { status, stdout, stderr } = spawnSync(this.#find(program), args, {
      cwd: this.folder,
      env: environment,
      encoding: 'utf8',
      timeout: deadlineMs,
    });
    assert.equal(status, 0, stdout + stderr);
  }

  /** Runs one of its programs, Node or bash, to its own end, and gives what it has written to standard output. */
  async output(program: string, args: readonly string[], variables: NodeJS.ProcessEnv = {}): Promise<string> {
    const { stdout } = await promisify(execFile)(this.#find(program), args, {
      cwd: this.folder,
      env: { ...this.#environment, ...variables },
      timeout: deadlineMs,
    });
    return stdout;
  }

  /** Puts a file into its folder. */
  write(name: string, text: string): void {
    writeFileSync(join(this.folder, name), text);
  }

  /** Starts one of its programs, Node or bash, before a backend; it is there when it has said where it listens, or does so on `port`. */
  async start(
    program: string,
    args: readonly string[],
    backendUrl: string,
    variables: NodeJS.ProcessEnv = {},
    port?: number,
  ): Promise<RunningExample> {
    const running = new RunningExample(
      spawn(this.#find(program), args, {
        cwd: this.folder,
        env: { ...this.#environment, PORT: '0', BACKEND_URL: backendUrl, ...variables },
        stdio: ['ignore', 'pipe', 'pipe'],
      }),
    );
    await running.listens(port);
    return running;
  }

  #find(program: string): string {
    return ['node', 'bash'].includes(program) ? program : join(this.#programs, program);
  }

  get #programs(): string {
    return join(this.folder, 'node_modules/.bin');
  }

  get #environment(): NodeJS.ProcessEnv {
    return {
      ...environment,
      PATH: [dirname(process.execPath), this.#programs, environment['PATH']].join(delimiter),
    };
  }

  [Symbol.dispose](): void {
    const { folder } = this;
    rmSync(dirname(folder) === tmpdir() ? folder : dirname(folder), { recursive: true });
  }
}

export class RunningExample implements AsyncDisposable {
  output = '';
  readonly #process: ChildProcess;
  readonly #changes = new Changes();
  #port = 0;
  readonly #exited: Promise<void>;

  constructor(child: ChildProcess) {
    this.#process = child;
    running.add(child);
    for (const stream of [child.stdout, child.stderr]) {
      stream?.on('data', (data: Buffer) => {
        this.output += data.toString('utf8');
        this.#changes.notify();
      });
    }
    this.#exited = new Promise((done) => {
      child.on('close', () => {
        running.delete(child);
        this.#changes.notify();
        done();
      });
    });
  }

  get port(): number {
    return this.#port;
  }

  get url(): string {
    return `http://127.0.0.1:${this.#port}`;
  }

  async listens(known?: number): Promise<void> {
    if (known !== undefined) {
      await poll(
        async () => {
          assert.equal(this.#process.exitCode, null, this.output);
          return !(await isRefused(known));
        },
        `it listens on ${known}`,
        deadlineMs,
      );
      this.#port = known;
      return;
    }
    this.#port = await this.#changes.until(
      () => {
        assert.equal(this.#process.exitCode, null, this.output);
        const port = /https?:\/\/[a-z0-9.[\]:-]*:([1-9][0-9]*)/.exec(this.output)?.[1];
        return port === undefined ? undefined : Number(port);
      },
      () => `it says where it listens: ${this.output}`,
      deadlineMs,
    );
  }

  /** One request on a connection of its own. */
  call(method: string, path: string, options?: CallOptions): Promise<Reply> {
    return request(this.#port, method, path, options);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#process.kill('SIGKILL');
    await this.#exited;
  }
}

const running = new Set<ChildProcess>();
process.on('exit', () => {
  for (const child of running) child.kill('SIGKILL');
});

function runNpm(args: readonly string[], cwd: string): { status: number | null; output: string } {
  const { status, stdout, stderr } = spawnSync('npm', args, {
    cwd,
    env: environment,
    encoding: 'utf8',
    timeout: deadlineMs,
  });
  return { status, output: stdout + stderr };
}
