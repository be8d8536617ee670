// `npm run test:image` tests the container image and takes minutes. It builds the image twice from the Dockerfile, on base
// images made of Debian packages and the project's Node.js, and runs it with minimal rights. IMAGE selects an
// existing image instead, for example docker-archive:image.tar.

import assert from 'node:assert/strict';
import { execFileSync, spawnSync, type StdioOptions } from 'node:child_process';
import * as fs from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join, resolve } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { createGate, poll } from '../helpers/changes.ts';
import { findFreePort } from '../helpers/haproxy.ts';
import { Program } from '../helpers/program.ts';
import { request } from '../helpers/raw-client.ts';
import { answer, behind } from '../helpers/scripted-backend.ts';
import { useBackend } from '../helpers/suites.ts';

const root = resolve(import.meta.dirname, '../..');
const given = process.env['IMAGE'];
const tools = ['buildah', 'podman', 'runc', ...(given === undefined ? ['mmdebstrap'] : [])];
const missing = tools.filter((tool) => spawnSync(tool, ['--version']).error !== undefined);
const isRoot = process.getuid?.() === 0;
const skip =
  missing.length > 0
    ? `not installed, so nothing was tested here: ${missing.join(', ')}; on Debian: apt-get install ${missing.join(' ')}`
    : !isRoot && 'nothing was tested here: it needs root';
if (given !== undefined && skip !== false) throw new Error(skip);

const certificates = '/etc/ssl/certs/ca-certificates.crt';
const sourceDateEpoch = '1700000000';
const bytesMax = 140e6;
const startMsMax = 500;
const memory = 512 * 2 ** 20;

let folder = '';
const backend = await useBackend();

function run(program: string, args: readonly string[]): string {
  const stdio: StdioOptions = ['ignore', 'pipe', 'pipe'];
  return execFileSync(program, args, { encoding: 'utf8', stdio, maxBuffer: 64e6 }).trim();
}
const storage = (): string[] => ['--root', join(folder, 'store'), '--runroot', join(folder, 'run'), '--storage-driver', 'vfs']; // prettier-ignore
const buildah = (...args: readonly string[]): string => run('buildah', [...storage(), ...args]);
const podman = (...args: readonly string[]): string => run('podman', [...storage(), '--runtime', 'runc', ...args]);

/** Makes a base image with what the Dockerfile uses of the official Node image: Node.js, npm, a shell, binutils. */
function makeBuildBase(): void {
  const tarball = join(folder, 'build.tar');
  const packages = 'binutils,libatomic1,libstdc++6,ca-certificates';
  run('mmdebstrap', ['--variant=essential', `--include=${packages}`, '--mode=root', 'bookworm', tarball]);
  const container = buildah('from', 'scratch');
  buildah('add', '-q', container, tarball, '/');
  buildah('copy', '-q', container, process.execPath, '/usr/local/bin/node');
  const npm = dirname(dirname(fs.realpathSync(run('sh', ['-c', 'command -v npm']))));
  buildah('copy', '-q', container, npm, '/usr/local/lib/node_modules/npm');
  // To reach the registry, npm needs the certificates that this machine trusts.
  buildah('copy', '-q', container, certificates, certificates);
  const link = ['ln', '-s', '../lib/node_modules/npm/bin/npm-cli.js', '/usr/local/bin/npm'];
  buildah('run', '--isolation', 'chroot', container, '--', ...link);
  buildah('commit', '-q', '--rm', container, 'localhost/build-base');
}

/** Makes a base image that has only certificates and a passwd file. */
function makeRuntimeBase(): void {
  const from = join(folder, 'runtime');
  fs.mkdirSync(join(from, dirname(certificates)), { recursive: true });
  fs.cpSync(certificates, join(from, certificates), { dereference: true });
  fs.writeFileSync(
    join(from, 'etc/passwd'),
    'root:x:0:0:root:/root:/sbin/nologin\nnonroot:x:65532:65532:nonroot:/:/sbin/nologin\n',
  );
  const container = buildah('from', 'scratch');
  buildah('add', '-q', container, from, '/');
  buildah('commit', '-q', '--rm', container, 'localhost/runtime-base');
}

function build(name: string): void {
  const npmrc = join(folder, 'npmrc');
  const registry = run('npm', ['config', 'get', 'registry']);
  fs.writeFileSync(npmrc, `registry=${registry}\ncafile=${certificates}\n`);
  buildah(
    'build',
    ...`-q --isolation chroot --format oci --no-cache --timestamp ${sourceDateEpoch}`.split(' '),
    ...['--build-arg', 'BUILD_IMAGE=localhost/build-base'],
    ...['--build-arg', 'RUNTIME_IMAGE=localhost/runtime-base'],
    ...['--secret', `id=npmrc,src=${npmrc}`, '-t', `localhost/${name}`, root],
  );
}

const isolation = [
  ...['--cgroups=enabled', '--network=host', '--read-only', '--cap-drop=all', '--no-healthcheck'],
  // The limits are lower than Podman's defaults, which exceed the limits of this process.
  ...['--ulimit=nofile=4096:4096', '--ulimit=nproc=1024:1024', `--memory=${memory}`],
];

class Container extends Program {
  readonly name: string;
  readonly port: number;
  readonly adminPort: number;

  private constructor(name: string, port: number, adminPort: number, environment: Record<string, string>) {
    const ports = { PORT: String(port), ADMIN_PORT: String(adminPort) };
    const all = { BACKEND_URL: backend.url, HOST: '127.0.0.1', ...ports, ...environment };
    const variables = Object.entries(all).flatMap(([variable, value]) => ['--env', `${variable}=${value}`]);
    const run = ['podman', ...storage(), '--runtime', 'runc', 'run', '--rm', '--name', name];
    super([...run, ...isolation, ...variables, 'localhost/first']);
    this.name = name;
    this.port = port;
    this.adminPort = adminPort;
  }

  static async start(name: string, environment: Record<string, string> = {}): Promise<Container> {
    const container = new Container(name, await findFreePort(), await findFreePort(), environment);
    await container.prints(/"msg":"ready"/, 60_000);
    return container;
  }

  line(message: string): Record<string, unknown> | undefined {
    const lines = this.output.split('\n').filter((line) => line.startsWith('{'));
    const parsed = lines.map((line) => JSON.parse(line) as Record<string, unknown>);
    return parsed.find(({ msg }) => String(msg).startsWith(message));
  }

  override async [Symbol.asyncDispose](): Promise<void> {
    spawnSync('podman', [...storage(), '--runtime', 'runc', 'rm', '-f', this.name]);
    await this.exited;
  }
}

describe('the image', { skip }, () => {
  let mounted = '';
  before(() => {
    folder = fs.mkdtempSync(join(tmpdir(), 'work-item-gateway-'));
    if (given === undefined) {
      makeBuildBase();
      makeRuntimeBase();
      build('first');
      build('second');
    } else {
      const [id = ''] = podman('pull', '-q', given).split('\n');
      podman('tag', id, 'localhost/first');
    }
    mounted = buildah('mount', buildah('from', 'localhost/first'));
  });
  after(() => {
    spawnSync('buildah', [...storage(), 'rm', '--all']);
    fs.rmSync(folder, { recursive: true, force: true });
  });

  /** Every file and folder of the image. */
  const entries = (): string[] =>
    (fs.readdirSync(mounted, { recursive: true }) as string[]).map((path) => join(mounted, path));

  test('two builds have the same digest', { skip: given !== undefined }, () => {
    // Reads one line, because an image with two names is listed once for each name.
    const [first, second] = ['first', 'second'].map((name) =>
      buildah('images', '--format', '{{.ID}} {{.Digest}}', '--no-trunc', `localhost/${name}`)
        .split('\n')[0]
        ?.replace(/ +/, ' '),
    );
    assert.match(first ?? '', /^sha256:[0-9a-f]{64} sha256:[0-9a-f]{64}$/);
    assert.equal(first, second);
  });

  test('the image has at most 140 MB unpacked', (t) => {
    const bytes = entries()
      .map((path) => fs.lstatSync(path))
      .reduce((sum, { size }) => sum + size, 0);
    t.diagnostic(`${(bytes / 1e6).toFixed(1)} MB`);
    assert.ok(bytes > 100e6 && bytes <= bytesMax, String(bytes));
  });

  test('the user of the image can write no file, and the image has no shell', () => {
    const all = entries();
    assert.ok(all.length > 500);
    const writable = all.filter((path) => {
      const { mode, uid, gid } = fs.lstatSync(path);
      return uid !== 0 || gid !== 0 || (!fs.lstatSync(path).isSymbolicLink() && (mode & 0o022) !== 0);
    });
    assert.deepEqual(writable, []);
    for (const shell of ['bin/sh', 'usr/bin/sh', 'bin/bash', 'bin/busybox'])
      assert.ok(!fs.existsSync(join(mounted, shell)), shell);
  });

  test('scanners find the versions of all libraries in the image', () => {
    const packages = fs
      .readdirSync(join(mounted, 'var/lib/dpkg/status.d'))
      .map((name) => fs.readFileSync(join(mounted, 'var/lib/dpkg/status.d', name), 'utf8'));
    const names = packages.map((text) => /^Package: (.*)$/m.exec(text)?.[1] ?? '');
    for (const name of ['libatomic1', 'libc6', 'libgcc-s1', 'libstdc++6']) assert.ok(names.includes(name), name);
    for (const text of packages) assert.match(text, /^Version: \S+$/m);
    for (const path of ['node_modules/pino', '.']) {
      const file = join(mounted, 'opt/work-item-gateway', path, 'package.json');
      assert.match((JSON.parse(fs.readFileSync(file, 'utf8')) as { version: string }).version, /^\d+\.\d+\.\d+/);
    }
    const node = fs.readFileSync(join(mounted, 'usr/local/bin/node'));
    assert.ok(node.includes('node.js/v'));
  });

  test('labels describe the image, and its user is not root', () => {
    const [{ Config }] = JSON.parse(podman('image', 'inspect', 'localhost/first')) as [{ Config: object }];
    assert.partialDeepStrictEqual(Config, {
      ...{ User: '65532:65532', Cmd: ['serve'], Labels: { 'org.opencontainers.image.title': 'Work Item Gateway' } },
      Env: ['HOST=::'],
    });
  });

  test('the gateway serves, finishes a call on SIGTERM, and exits with 0', async () => {
    backend.answers(answer('[{"id":1}]'));
    await using container = await Container.start('smoke');
    const { port, adminPort, name } = container;
    const call = async (method: string, path = '', body?: string) => {
      const { status, text } = await request(
        port,
        method,
        `/api/work-items${path}`,
        body === undefined ? {} : { body },
      );
      return [status, text];
    };
    for (const [method, path, body, ...expected] of [
      ['GET', '', undefined, 200, '[{"id":1}]'],
      ['GET', '/1', undefined, 200, '[{"id":1}]'],
      ['POST', '', '{"title":"x"}', 201, '[{"id":1}]'],
      ['PUT', '/1', '{"title":"x"}', 200, '{"success":true}'],
      ['DELETE', '/1', undefined, 200, '{"success":true}'],
      ['GET', '/x', undefined, 400, '{"error":"Invalid ID format"}'],
    ] as const)
      assert.deepEqual(await call(method, path, body), expected);
    assert.equal((await request(adminPort, 'GET', '/readyz')).status, 200);
    // The health check of the image.
    const main = '/opt/work-item-gateway/dist/command/main.js';
    assert.equal(
      podman('exec', name, '/usr/local/bin/node', main, 'health'),
      `alive: http://localhost:${adminPort}/livez answered 200 {"status":"alive"}`,
    );
    const gate = createGate();
    const before = backend.requests.length;
    backend.answersOnce(behind(gate, answer('[]')));
    const held = call('GET');
    await backend.until(() => backend.requests.length > before, 'the held call has reached the backend');
    podman('kill', '--signal', 'TERM', name);
    await poll(() => container.line('draining') !== undefined, 'the gateway drains');
    gate.open();
    assert.deepEqual(await held, [200, '[]']);
    assert.equal(await container.exitCode(20_000), 0, container.output);
  });

  test('the gateway detects the memory limit of its container', async () => {
    await using container = await Container.start('memory');
    const warning = container.line('too little memory');
    assert.equal(warning?.['limit'], memory, container.output);
    await using enough = await Container.start('enough', { BUFFERED_BYTES_MAX: String(120 * 2 ** 20) });
    assert.equal(enough.line('too little memory'), undefined);
  });

  test('the gateway serves within 0.5 s of its start', async (t) => {
    const took: number[] = [];
    // Takes the best of several starts, because the machine may be busy.
    for (let tries = 0; tries < 5 && !took.some((ms) => ms <= startMsMax); tries += 1) {
      await using container = await Container.start(`start-${tries}`, { BUFFERED_BYTES_MAX: '1000000' });
      const startedAt = podman('inspect', '--format', '{{.State.StartedAt.UnixMilli}}', container.name);
      took.push(Date.parse(String(container.line('ready')?.['time'])) - Number(startedAt));
    }
    t.diagnostic(`${took.join(', ')} ms`);
    assert.ok(Math.min(...took) <= startMsMax, String(took));
  });
});
