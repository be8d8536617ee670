// Checks each part that a build may leave out. Deletes the part's folder, and its lines in the lists of parts, from a
// copy of the repository. Then checks that types compile, that the command serves, and that using the part gives an
// error that names its folder. `--suites` also runs every test that does not need the part. With names of parts as
// arguments, checks only these parts.

import { execFileSync, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { cpSync, existsSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { dirname, join, resolve } from 'node:path';
import { createInterface } from 'node:readline';
import { text } from 'node:stream/consumers';

import { CertificateFolder } from '../test/helpers/certificates.ts';

interface Part {
  readonly folder: string;
  /** A command, or environment variables, that need the part; undefined if there is neither. */
  readonly wish?: { readonly command?: readonly string[]; readonly environment?: NodeJS.ProcessEnv };
  /** Matches the tests that need the part without importing it. */
  readonly mention: RegExp;
}

const parts: Readonly<Record<string, Part>> = {
  dashboard: { folder: 'packages/dashboard', mention: /dashboard|viewer/i },
  'contract-check': {
    folder: 'packages/contract-check',
    wish: { command: ['check', '--contract'] },
    mention: /--contract|contract-check/,
  },
  'stand-in-backend': {
    folder: 'packages/stand-in-backend',
    wish: { command: ['backend'] },
    mention: /'dev'|'backend'|embedded|stand-in/i,
  },
  tokens: {
    folder: 'packages/core/guards/tokens',
    wish: {
      environment: {
        AUTH_ISSUER: 'https://issuer.test',
        AUTH_AUDIENCE: 'api',
        AUTH_JWKS_URL: 'https://issuer.test/keys',
      },
    },
    mention: /auth[A-Z_]|tokens/i,
  },
  'rate-limit': {
    folder: 'packages/core/guards/rate-limit',
    wish: { environment: { RATE_LIMIT: '1/1s' } },
    mention: /rate.?limit/i,
  },
  fastify: { folder: 'packages/core/hosts/fastify', mention: /fastify|plugin/i },
  http2: { folder: 'packages/core/hosts/http2', wish: { environment: { HTTP2: 'true' } }, mention: /http2/i },
  fetch: { folder: 'packages/core/hosts/fetch', mention: /fetch-host|createFetchHandler|fetch\.ts|nextjs/ },
  traces: {
    folder: 'packages/command/traces',
    wish: { environment: { OTEL_EXPORTER_OTLP_ENDPOINT: 'http://localhost:4318' } },
    mention: /otel|opentelemetry|traces/i,
  },
  cluster: { folder: 'packages/command/cluster', wish: { environment: { WORKERS: '2' } }, mention: /workers|cluster/i },
};

const root = resolve(import.meta.dirname, '..');
// Built by `npm ci`, and not in git.
const built = 'packages/core/json/scanner.wasm';
// These tests need all parts: documents describe all parts, and `npm run secure` and the simulation use most parts.
const testsOfAll =
  /^test\/(?:examples\/(?:documents|secure)|simulation\/simulation|builds\/leave-out|unit\/documents)\.test\.ts$/;
const index = 'packages/core/hosts/index.ts';
const lists = ['packages/command/command-parts.ts', 'packages/core/guards/guard-parts.ts', index];

const names = process.argv.slice(2).filter((word) => word !== '--suites');
const runsSuites = process.argv.includes('--suites');
const unknown = names.filter((name) => !Object.hasOwn(parts, name));
if (unknown.length > 0) {
  process.stderr.write(`error: unknown part: ${unknown.join(', ')}; parts: ${Object.keys(parts).join(', ')}\n`);
  process.exit(1);
}
// All files of the repository. The tests and their files are needed only for the suites.
const files = execFileSync('git', ['ls-files', '-co', '--exclude-standard'], { cwd: root, encoding: 'utf8' })
  .split('\n')
  .filter((path) => path !== '' && existsSync(join(root, path)));

// One copy for all parts, so that the compiler and Node use again what they know about files that stay the same.
const copy = mkdtempSync(join(tmpdir(), 'leave-out-'));
const environment = { PATH: process.env['PATH'], NODE_COMPILE_CACHE: join(copy, '.compiled') };
try {
  const needed = runsSuites ? files : files.filter((path) => /^(?:packages\/|[^/]*\.json$)/.test(path));
  for (const path of [...needed, built]) cpSync(join(root, path), join(copy, path), { recursive: true });
  symlinkSync(join(root, 'node_modules'), join(copy, 'node_modules'));
  for (const [name, part] of Object.entries(parts)) {
    if (names.length > 0 && !names.includes(name)) continue;
    try {
      await leaveOut(name, part);
    } catch (error) {
      process.exitCode = 1;
      process.stdout.write(`${name}: ${error instanceof Error ? error.message : String(error)}\n`);
    }
    for (const path of [part.folder, ...lists]) cpSync(join(root, path), join(copy, path), { recursive: true });
  }
} finally {
  rmSync(copy, { recursive: true, force: true });
}

async function leaveOut(name: string, part: Part): Promise<void> {
  const startedAt = performance.now();
  remove(part.folder);
  const [url] = await Promise.all([checkServing(name), checkTypes(part.folder)]);
  if (part.wish !== undefined) checkMessage(part, url);
  const suites = runsSuites ? `, ${runTests(part)} test files pass` : '';
  const seconds = ((performance.now() - startedAt) / 1_000).toFixed(0);
  process.stdout.write(`${name}: without it types compile, the command serves${suites} (${seconds} s)\n`);
}

function remove(folder: string): void {
  rmSync(join(copy, folder), { recursive: true });
  let removed = 0;
  for (const list of lists) {
    const text = readFileSync(join(copy, list), 'utf8');
    const kept = text.replaceAll(
      /^ {2}\w+: \(\) => import\('([^']+)'\),\n|^export [^;]*from '([^']+)';\n/gm,
      (line, loaded: string | undefined, exported: string | undefined) => {
        const isOfPart = join(dirname(list), loaded ?? exported ?? '').startsWith(`${folder}/`);
        removed += isOfPart ? 1 : 0;
        return isOfPart ? '' : line;
      },
    );
    writeFileSync(join(copy, list), kept);
  }
  // The fetch handler is a separate entry point, so it is in no list.
  if (removed === 0 && !folder.endsWith('/fetch')) throw new Error(`${folder} is in no list of parts`);
}

/** Compiles the packages of the copy, which shows that none of their files imports the part. */
async function checkTypes(folder: string): Promise<void> {
  const config = { extends: './tsconfig.json', include: ['packages'] };
  writeFileSync(join(copy, 'tsconfig.leave-out.json'), JSON.stringify(config));
  const compiler = join(root, 'node_modules/typescript-7/bin/tsc');
  const flags = ['--noEmit', '--incremental', '--tsBuildInfoFile', '.types', '-p', 'tsconfig.leave-out.json'];
  const child = spawn(process.execPath, [compiler, ...flags], { cwd: copy, stdio: ['ignore', 'pipe', 'inherit'] });
  const [output] = await Promise.all([text(child.stdout), once(child, 'close')]);
  if (child.exitCode !== 0) throw new Error(`types do not compile without ${folder}:\n${output}`);
}

/** Starts the command and calls each operation once. Returns the backend's address. */
async function checkServing(name: string): Promise<string> {
  const backend = createServer((request, response) => {
    request.resume().on('end', () => {
      response.writeHead(200, { 'content-type': 'application/json' }).end('{"id":1}');
    });
  }).listen(0, '127.0.0.1');
  await once(backend, 'listening');
  const backendUrl = `http://127.0.0.1:${(backend.address() as AddressInfo).port}`;
  const command = spawn(process.execPath, ['packages/command/main.ts', 'serve'], {
    cwd: copy,
    env: { ...environment, PORT: '0', ADMIN_PORT: '0', LOG_FORMAT: 'json', BACKEND_URL: backendUrl },
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  const exited = once(command, 'exit');
  try {
    const { url, adminUrl } = await readReady(createInterface(command.stdout));
    for (const [method, path, status] of [
      ['GET', '', 200],
      ['POST', '', 201],
      ['GET', '/1', 200],
      ['PUT', '/1', 200],
      ['DELETE', '/1', 200],
    ] as const) {
      const body = method === 'POST' || method === 'PUT' ? '{"title":"one"}' : null;
      const reply = await fetch(`${url}/api/work-items${path}`, { method, body });
      await reply.arrayBuffer();
      if (reply.status !== status) {
        throw new Error(`without ${name}, ${method} ${path} gets ${reply.status} instead of ${status}`);
      }
    }
    const page = await fetch(`${adminUrl}/`);
    const shown = await page.text();
    const isRight = name === 'dashboard' ? page.status === 404 && shown.includes('packages/dashboard') : page.ok;
    if (!isRight) {
      throw new Error(`without ${name}, / of the admin listener gets ${page.status}: ${shown.slice(0, 200)}`);
    }
    return backendUrl;
  } finally {
    command.kill();
    await exited;
    backend.closeAllConnections();
    backend.close();
  }
}

async function readReady(lines: AsyncIterable<string>): Promise<{ url: string; adminUrl: string }> {
  for await (const line of lines) {
    const { msg, url, adminUrl } = JSON.parse(line) as Readonly<Record<'msg' | 'url' | 'adminUrl', string>>;
    if (msg === 'ready') return { url, adminUrl };
  }
  throw new Error('the command ended before it was ready');
}

/** Checks that a command or setting that needs the part fails with one line that names the part's folder. */
function checkMessage({ folder, wish = {} }: Part, backendUrl: string): void {
  const { command = ['serve'], environment: wished = {} } = wish;
  using certificates = new CertificateFolder();
  const { certFile, keyFile } = wished['HTTP2'] === undefined ? {} : certificates.authority('localhost');
  const { status, stderr } = spawnSync(process.execPath, ['packages/command/main.ts', ...command], {
    cwd: copy,
    encoding: 'utf8',
    timeout: 30_000,
    env: {
      ...{ ...environment, PORT: '0', ADMIN_PORT: '0', BACKEND_URL: backendUrl },
      ...{ TLS_CERT_FILE: certFile, TLS_KEY_FILE: keyFile, ...wished },
    },
  });
  const lines = stderr
    .split('\n')
    .filter((line) => line !== '' && !line.startsWith('(node:') && !line.startsWith('(Use'));
  if (status === 0 || lines.length !== 1 || !lines[0]?.includes(`needs ${folder}, which this build leaves out`)) {
    throw new Error(`a command that needs ${folder} exits with ${String(status)} and prints:\n${stderr}`);
  }
}

/** Builds the copy and runs the tests that do not need the part. Returns their number. */
function runTests(part: Part): number {
  execFileSync(process.execPath, ['scripts/build.ts'], { cwd: copy, stdio: 'inherit' });
  const tests = findTests(part);
  const { status, stdout } = spawnSync(
    process.execPath,
    // Skips the test "every export is used", because some exports are used only by the part.
    ['--test', '--test-concurrency=4', '--test-timeout=120000', '--test-skip-pattern=every export is used', ...tests],
    { cwd: copy, encoding: 'utf8', maxBuffer: 1_073_741_824 },
  );
  if (status !== 0) throw new Error(stdout.slice(stdout.lastIndexOf('failing tests:')));
  return tests.length;
}

/** Finds the tests that do not need the part: they do not import it, directly or indirectly, and do not mention it. */
function findTests({ folder, mention }: Part): string[] {
  const texts = new Map(
    files.filter((path) => path.endsWith('.ts')).map((path) => [path, readFileSync(join(root, path), 'utf8')]),
  );
  const importsOf = (path: string): string[] =>
    [...(texts.get(path) ?? '').matchAll(/(?:from|import\(|import)\s*'(\.[^']+)'/g)].map(([, to = '']) =>
      join(dirname(path), to),
    );
  const isOfPart = (path: string): boolean => path.startsWith(`${folder}/`);
  // The package's index may export the part. Then the files that import the index need the part too.
  const needPart = new Set(importsOf(index).some(isOfPart) ? [index] : []);
  for (let before = -1; before !== needPart.size;) {
    before = needPart.size;
    for (const path of texts.keys()) {
      if (!path.startsWith('packages/') && importsOf(path).some((each) => needPart.has(each) || isOfPart(each))) {
        needPart.add(path);
      }
    }
  }
  return [...texts]
    .filter(([path]) => path.endsWith('.test.ts') && !needPart.has(path) && !testsOfAll.test(path))
    .filter(([, text]) => !mention.test(text))
    .map(([path]) => path);
}
