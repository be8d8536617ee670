// The packages that npm makes: their files, types and installation. Needs no registry.

import assert from 'node:assert/strict';
import { execFile, execFileSync, spawnSync } from 'node:child_process';
import { cpSync, existsSync, globSync, mkdirSync, readFileSync, statSync, symlinkSync, writeFileSync } from 'node:fs';
import { delimiter, dirname, join, posix, resolve } from 'node:path';
import { test } from 'node:test';
import { promisify } from 'node:util';
import * as esbuild from 'esbuild';
import ts from 'typescript';
import { useBackend, useFolder } from '../helpers/suites.ts';

interface Manifest {
  readonly name: string;
  readonly version: string;
  readonly scripts: Record<string, string>;
  readonly sideEffects: boolean;
  readonly types: string;
  readonly dependencies?: object;
  readonly peerDependencies: Readonly<Record<string, string>>;
  readonly peerDependenciesMeta: Readonly<Record<string, { readonly optional: boolean }>>;
  readonly exports: Readonly<Record<string, unknown>>;
}

const run = promisify(execFile);
const root = resolve(import.meta.dirname, '../..');
const PATH = [dirname(process.execPath), process.env['PATH']].join(delimiter);
const node = process.env['GATEWAY_NODE'] ?? process.execPath;
const folder = useFolder();
const backend = await useBackend('{"id":5}');

/** Runs npm without the user's configuration; returns all that it prints. */
async function npm(cwd: string, ...args: string[]): Promise<string> {
  const quiet = { npm_config_update_notifier: 'false', npm_config_audit: 'false', npm_config_fund: 'false' };
  const env = { PATH, HOME: folder, npm_config_cache: join(folder, 'cache'), ...quiet };
  const { stdout, stderr } = await run('npm', args, { cwd, env });
  return stdout + stderr;
}

const readManifest = (place: string) => JSON.parse(readFileSync(join(place, 'package.json'), 'utf8')) as Manifest;

function filesIn(place: string): string[] {
  const entries = globSync('**/*', { cwd: place, withFileTypes: true }).filter((entry) => entry.isFile());
  return entries.map(({ parentPath, name }) => join(parentPath, name).slice(place.length + 1));
}

const bytesIn = (place: string) => filesIn(place).reduce((sum, file) => sum + statSync(join(place, file)).size, 0);

// Everything is built already, so npm runs no scripts.
await npm(root, 'pack', '--ignore-scripts', '--pack-destination', folder);
const tarball = join(folder, globSync('*.tgz', { cwd: folder })[0] ?? '');
execFileSync('tar', ['xzf', tarball, '-C', folder]);
const unpacked = join(folder, 'package');
const files = filesIn(unpacked);
const manifest = readManifest(unpacked);
const types = files.filter((file) => /\.d\.c?ts$/.test(file));

// Installed without dependencies, because npm would fetch them from a registry. They are copied afterwards.
writeFileSync(join(unpacked, 'package.json'), JSON.stringify({ ...manifest, dependencies: {}, devDependencies: {} }));
/** A project in which the package is installed. */
const project = join(folder, 'project');
/** A project in which only @work-item-gateway/core is installed. */
const coreProject = join(folder, 'core-project');
for (const place of [project, coreProject]) mkdirSync(place);
const install = (place: string, from: string) =>
  npm(place, 'install', '--offline', '--install-links', '--prefix', place, from);
const printed = await install(project, unpacked);
await install(coreProject, join(root, 'dist/core'));
const core = join(coreProject, 'node_modules/@work-item-gateway/core');
const entries = Object.keys(readManifest(core).exports).filter((name) => name !== './package.json');

/** Paths in the repository that are not in the package. */
const onlyInRepository =
  /^(?:ARCHITECTURE\.md|CONTRIBUTING\.md|bench|docs\/(?:decisions\.md|images)|packages|test|scripts|node_modules)(?:\/|$)|\.(?:tgz|sqlite)$/;
/** The addresses of files in the repository. */
const inRepository =
  /^https:\/\/(?:github\.com\/work-item-gateway\/work-item-gateway\/(?:blob|tree)|raw\.githubusercontent\.com\/work-item-gateway\/work-item-gateway)\/main\/([^#]+)/;

test('every link of a document leads to a file of the package, or has the address of a file in the repository', () => {
  const links = files
    .filter((file) => file.endsWith('.md'))
    .flatMap((document) => {
      const text = readFileSync(join(unpacked, document), 'utf8').replace(/^```.*?^```$/gms, '');
      const matches = text.matchAll(/\]\(([^)#\s]+)[^)]*\)|\ssrc(?:set)?="([^"]+)"/g);
      return [...matches].map((match) => [document, match[1] ?? match[2] ?? ''] as const);
    });
  const broken = links.filter(([document, target]) => {
    const outside = inRepository.exec(target)?.[1];
    if (outside !== undefined) return !existsSync(join(root, outside));
    const path = posix.join(posix.dirname(document), target);
    return !/^https?:/.test(target) && !files.some((file) => file === path || file.startsWith(`${path}/`));
  });
  assert.ok(links.length > 30);
  assert.deepEqual(broken, []);
});

test('the package has at most 500 kB, all that the command needs, and no source, test or Node binary', () => {
  assert.ok(statSync(tarball).size < 500_000);
  const needed = ['dist/command/api-reference/page/index.html', 'dist/dashboard/page/index.html', 'LICENSE'];
  for (const file of [...needed, 'README.md', 'docs/operating.md']) assert.ok(files.includes(file), file);
  const unneeded = files.filter((file) => onlyInRepository.test(file));
  assert.deepEqual(unneeded, []);
  const manifests = files.filter((file) => file.endsWith('package.json') && !file.startsWith('examples'));
  assert.deepEqual(manifests, ['package.json']);
});

test('the package has only the types of the core, and they cite nothing that is not in the package', () => {
  assert.ok(types.length > 20 && types.includes(posix.normalize(manifest.types)));
  const citing = /\bD\d|\[(?:spec|rule)|^ *\*[.,;]/m;
  assert.deepEqual(
    types.filter((file) => !file.startsWith('dist/core/') || citing.test(readFileSync(join(unpacked, file), 'utf8'))),
    [],
  );
});

test('the manifest says that no module has side effects, which is true, and it has no install script', () => {
  assert.equal(manifest.sideEffects, false);
  const sources = globSync('packages/**/*.ts', { cwd: root });
  assert.ok(sources.length > 100);
  assert.deepEqual(
    sources.filter((file) => /^import '/m.test(readFileSync(join(root, file), 'utf8'))),
    [],
  );
  const stage = /^(?:pre|post)?(?:install|prepare)$|^prepublish$/;
  assert.deepEqual(
    Object.keys(manifest.scripts).filter((name) => stage.test(name)),
    [],
  );
});

/** Programs that use the package. Each prints the reply to a call, or the replies to two. */
const server = `
  import { createGatewayServer } from 'work-item-gateway';
  import type { CallOutcome, GatewayObserver, GatewayServer, GuardOptions } from 'work-item-gateway';
  export const guards: GuardOptions = {
    authIssuer: 'https://login.example/',
    authAudience: ['work-items'],
    authJwksUrl: new URL('https://login.example/keys'),
    authScopes: { read: 'items.read' },
    rateLimit: '100/60s',
    backendIdentityHeader: 'x-user',
  };
  export let observer: GatewayObserver | undefined;
  export const outcome: CallOutcome = 'ok';
  const server: GatewayServer = createGatewayServer({ backendUrl: '${backend.url}', log: false });
  void server.listen(0).then(async ({ url }) => {
    const response = await fetch(url + '/api/work-items/5');
    console.log(response.status, await response.text());
    await server.close();
  });`;
const required = `
  import required = require('work-item-gateway');
  export const isSame: boolean = required.createGatewayServer === createGatewayServer;`;
const plugin = `
  import Fastify from 'fastify';
  import gateway, { frameworkErrors, workItemGateway, type WorkItemGatewayOptions } from 'work-item-gateway/fastify';
  const options: WorkItemGatewayOptions = { backendUrl: '${backend.url}', log: false, requestBytesMax: 5 };
  export const guarded: WorkItemGatewayOptions = { ...options, rateLimit: '100/60s' };
  export const secure = Fastify({ https: {}, frameworkErrors });
  const app = Fastify({ frameworkErrors });
  void app.register(gateway, options);
  void app.register(workItemGateway, { ...options, prefix: '/v1' });
  void app.inject('/v1/api/work-items/5').then((reply) => {
    console.log(reply.statusCode, reply.body);
    return app.close();
  });
  // @ts-expect-error wrong type of an option
  export const wrong: WorkItemGatewayOptions = { backendUrl: 5 };
  // @ts-expect-error the type of the plugin is not "any"
  export const none: number = gateway;`;
const handlers = `
  import { createServer } from 'node:http';
  import type { AddressInfo } from 'node:net';
  import { createFetchHandler, type FetchHandler, type FetchHandlerOptions } from 'work-item-gateway/fetch';
  import { createNodeHandler, type NodeHandler, type NodeHandlerOptions } from 'work-item-gateway/node';
  const options: NodeHandlerOptions & FetchHandlerOptions = { backendUrl: '${backend.url}', log: false, corsOrigins: ['*'] };
  const call: FetchHandler = createFetchHandler(options);
  const handler: NodeHandler = createNodeHandler({ ...options, prefix: '/v1' });
  const server = createServer(handler).listen(0, async () => {
    const { port } = server.address() as AddressInfo;
    const response = await call(new Request('http://localhost/api/work-items/5'));
    console.log(response.status, await response.text());
    const other = await fetch('http://localhost:' + port + '/v1/api/work-items/5');
    console.log(other.status, await other.text());
    server.close();
    await handler.close();
    await call.close();
  });
  // @ts-expect-error unknown option
  export const one: FetchHandlerOptions = { backendUrl: '', timeout: 5 };
  // @ts-expect-error unknown option
  export const another: NodeHandlerOptions = { backendUrl: '', timeout: 5 };
  // @ts-expect-error the parameter must be a Request, not a string
  export const unasked = () => call('/');`;
const replies = '200 {"id":5}\n'.repeat(4);
/** Compiles without Fastify, and with the strictest options. */
const strict = `
  import plugin, { createGatewayServer, workItemGateway } from 'work-item-gateway';
  import type { CallLine, CallRecord, GatewayErrorCode, GatewayObserver, GatewayServerOptions, WorkItemGatewayOptions } from 'work-item-gateway';
  import { createFetchHandler, type FetchHandler } from 'work-item-gateway/fetch';
  import * as fastify from 'work-item-gateway/fastify';
  import { createNodeHandler } from 'work-item-gateway/node';
  export const same: typeof fastify.workItemGateway = workItemGateway ?? plugin;
  const unset = {
    ...{ allowedHosts: undefined, authIssuer: undefined, authScopes: { read: undefined }, backendTls: { ca: undefined } },
    ...{ inFlightMax: undefined, itemIdParsing: undefined, log: undefined, rateLimit: undefined, requestTimeoutMs: undefined },
    observer: { onCallEnd: undefined },
  };
  export const options: [GatewayServerOptions, WorkItemGatewayOptions] = [
    { backendUrl: 'http://localhost:5104', corsOrigins: undefined, tls: undefined, ...unset },
    { backendUrl: 'http://localhost:5104', shutdownTimeoutMs: undefined, ...unset },
  ];
  export async function use(record: CallRecord): Promise<void> {
    await using server = createGatewayServer(options[0]);
    await using call = createFetchHandler({ prefix: undefined, clientAddress: undefined, ...options[0], tls: undefined } as never);
    await using handler = createNodeHandler({ backendUrl: 'http://localhost:5104', ...unset, prefix: undefined });
    await call(new Request('http://localhost/api/work-items'), '192.0.2.1');
    const line: CallLine = record.toJSON();
    const name: 'list' | 'create' | 'read' | 'update' | 'delete' | undefined = line.operation ?? record.operation?.name;
    console.log(server, handler, name, line.backendMs);
  }
  // Other hosts pass a second argument of their own.
  export const route: (request: Request, context: { params: Promise<object> }) => Promise<Response> = null! as FetchHandler;
  export const options3 = createFetchHandler({
    backendUrl: 'http://localhost:5104',
    clientAddress: (_request, info: { address: string } | undefined) => info?.address,
  });
  export const observer: GatewayObserver = { onCallEnd: ({ path }) => console.log(path), onOutage: async () => {} };
  export const code: GatewayErrorCode = 'ERR_GATEWAY_OPTIONS';
  // @ts-expect-error unknown function
  export const misspelt: GatewayObserver = { onCallEnded: () => undefined };`;
const sources: Readonly<Record<string, string>> = {
  ...{ 'server.cts': server + required, 'server.mts': server },
  ...{ 'plugin.cts': plugin, 'plugin.mts': plugin },
  ...{ 'handlers.cts': handlers, 'handlers.mts': handlers },
  ...{ 'strict.cts': strict, 'strict.mts': strict },
};
const typeRoots = [join(root, 'node_modules/@types')];
const withFastify = join(project, 'app');
const withoutFastify = join(project, 'strict');
for (const place of [withFastify, withoutFastify]) {
  mkdirSync(place);
  for (const [name, text] of Object.entries(sources)) writeFileSync(join(place, name), text);
}
linkFastify(withFastify);

function linkFastify(place: string): void {
  mkdirSync(join(place, 'node_modules'));
  symlinkSync(join(root, 'node_modules/fastify'), join(place, 'node_modules/fastify'));
}

/** Runs the modules in `place` in one process. */
async function runModules(place: string, names: readonly string[]) {
  const runner = join(place, 'run.mjs');
  writeFileSync(runner, names.map((name) => `import './${name}';\n`).join(''));
  return await run(node, [runner], { cwd: place });
}

const modules = ['server.mts', 'plugin.mts', 'handlers.mts'] as const;
const commonJs = ['server.cts', 'plugin.cts', 'handlers.cts'] as const;
for (const [module, place, names, more] of [
  ['node16', withFastify, [...commonJs, ...modules], { skipLibCheck: true }],
  ['esnext', withFastify, modules, { moduleResolution: 'bundler', noEmit: true, skipLibCheck: true }],
  [
    'nodenext',
    withoutFastify,
    ['strict.cts', 'strict.mts'],
    { lib: ['es2023', 'esnext.disposable'], exactOptionalPropertyTypes: true, noUncheckedIndexedAccess: true },
  ],
] as const) {
  test(`types compile under ${module}: ${names.join(', ')}`, () => {
    const compilerOptions = { module, strict: true, target: 'es2022', types: ['node'], typeRoots, ...more };
    writeFileSync(join(place, 'tsconfig.json'), JSON.stringify({ compilerOptions, files: names }));
    const tsc = join(root, 'node_modules/typescript-7/bin/tsc');
    const { stdout } = spawnSync(process.execPath, [tsc, '-p', place], { encoding: 'utf8' });
    assert.equal(stdout, '');
  });
}

test('the compiled code calls the backend, as CommonJS and as ES modules', async () => {
  const names = [...commonJs, ...modules].map((name) => name.replace('ts', 'js'));
  assert.deepEqual(await runModules(withFastify, names), { stdout: replies + replies, stderr: '' });
});

test('every option has a comment in the published types', () => {
  const hosts = join(project, 'node_modules/work-item-gateway/dist/core/hosts');
  const entries = ['index.d.ts', 'fetch/fetch.d.ts', 'node/node.d.ts'].map((name) => join(hosts, name));
  const program = ts.createProgram(entries, { module: ts.ModuleKind.Node16, lib: ['lib.es5.d.ts'], types: [] });
  const checker = program.getTypeChecker();
  const declarations = program
    .getSourceFiles()
    .flatMap(({ statements }) => statements.filter(ts.isInterfaceDeclaration));
  const found = declarations.filter(({ name }) =>
    /^(?:WorkItemGateway|GatewayServer|FetchHandler|NodeHandler)Options$/.test(name.text),
  );
  assert.equal(found.length, 4);
  for (const each of found) {
    const options = checker.getTypeAtLocation(each).getProperties();
    assert.ok(options.length > 30);
    const silent = options.filter((option) => option.getDocumentationComment(checker).length === 0);
    assert.deepEqual(
      silent.map(({ name }) => name),
      [],
    );
  }
});

test('the installation in an empty folder prints no warning, and the installed command runs', async () => {
  assert.doesNotMatch(printed, /warn/i);
  const lock = JSON.parse(readFileSync(join(root, 'package-lock.json'), 'utf8')) as {
    packages: Record<string, { dev?: boolean; link?: boolean; peer?: boolean }>;
  };
  const dependencies = Object.entries(lock.packages)
    .filter(([path, { dev, link, peer }]) => path.startsWith('node_modules/') && !dev && !link && !peer)
    .map(([path]) => path);
  assert.ok(dependencies.length > 15 && dependencies.length <= 34, `${dependencies.length} packages`);
  for (const path of dependencies) cpSync(join(root, path), join(project, path), { recursive: true });
  const bytes = [...dependencies, 'node_modules/work-item-gateway'].map((path) => bytesIn(join(project, path)));
  const sum = bytes.reduce((total, each) => total + each, 0);
  assert.ok(sum > 1_000_000 && sum <= 12_000_000, `${sum} bytes`);

  const command = join(project, 'node_modules/.bin/work-item-gateway');
  // `openapi` starts nothing, so it works without OpenTelemetry, an optional peer dependency. `serve` refuses to start.
  const env = { PATH, OTEL_EXPORTER_OTLP_ENDPOINT: 'http://localhost:4318' };
  const version = await run(command, ['--version'], { cwd: project, env });
  assert.equal(version.stdout, `${manifest.version}\n`);
  const { stdout: document } = await run(command, ['openapi'], { cwd: project, env });
  assert.match(document, /^\{\s*"openapi":/);
  const serve = ['serve', '--backend-url', 'http://localhost:1'];
  const traced = spawnSync(command, serve, { cwd: project, encoding: 'utf8', env });
  assert.equal(traced.status, 1);
  const problem =
    'OTEL_EXPORTER_OTLP_ENDPOINT needs packages that are not installed: run `npm install @opentelemetry/core ';
  assert.ok(traced.stderr.startsWith(`error: ${problem}`), traced.stderr);
});

test('@work-item-gateway/core is one package of at most 1 MB, without a dependency', () => {
  assert.deepEqual(globSync('*', { cwd: join(coreProject, 'node_modules') }), ['@work-item-gateway']);
  assert.ok(filesIn(core).length > 50 && bytesIn(core) <= 1_000_000);
  const { dependencies, peerDependencies, peerDependenciesMeta, version } = readManifest(core);
  assert.deepEqual([dependencies, version], [undefined, manifest.version]);
  assert.deepEqual(Object.keys(peerDependencies), ['fastify', 'ioredis', 'jose']);
  for (const name of Object.keys(peerDependencies)) assert.equal(peerDependenciesMeta[name]?.optional, true, name);
});

const guardOptions = {
  jose: "authIssuer: 'https://login.example/', authAudience: ['a'], authJwksUrl: 'https://login.example/keys'",
  ioredis: "rateLimit: '1/1s', rateLimitRedisUrl: 'redis://localhost:1'",
};

test('every entry of the core can be imported and required, and an option that needs a missing package is an error', async () => {
  assert.deepEqual(entries, ['.', './fetch', './fastify', './node']);
  writeFileSync(
    join(coreProject, 'index.mjs'),
    `
    import { createRequire } from 'node:module';
    const require = createRequire(import.meta.url);
    const namesOf = (entry) => Object.keys(entry).filter((name) => !/^(?:module\\.exports|__esModule)$/.test(name)).sort().join();
    for (const entry of ${JSON.stringify(entries)}) {
      const name = '@work-item-gateway/core' + entry.slice(1);
      const [imported, required] = [await import(name), require(name)];
      console.log(entry, namesOf(imported), namesOf(imported) === namesOf(required), Object.keys(required).every((each) => each === '__esModule' || imported[each] === required[each]));
    }
    const { createGatewayServer } = await import('@work-item-gateway/core');
    for (const options of [{ ${guardOptions.jose} }, { ${guardOptions.ioredis} }]) {
      try {
        createGatewayServer({ backendUrl: 'http://localhost:1', ...options });
      } catch (error) {
        console.log(error.message);
      }
    }`,
  );
  const { stdout } = await run(node, ['index.mjs'], { cwd: coreProject });
  assert.deepEqual(stdout.trimEnd().split('\n'), [
    '. createGatewayServer,default,frameworkErrors,workItemGateway true true',
    './fetch createFetchHandler true true',
    './fastify default,frameworkErrors,workItemGateway true true',
    './node createNodeHandler true true',
    'Cannot create the gateway: authIssuer needs the package jose: run `npm install jose`.',
    'Cannot create the gateway: rateLimitRedisUrl needs the package ioredis: run `npm install ioredis`.',
  ]);
});

for (const format of ['esm', 'cjs'] as const) {
  test(`esbuild bundles programs that use the core, without any other package: ${format}`, async () => {
    const [from, outdir] = [join(coreProject, format), join(folder, format)];
    mkdirSync(from);
    const needing = (options: string) => `
      import { createFetchHandler } from 'work-item-gateway/fetch';
      const call = createFetchHandler({ backendUrl: '${backend.url}', ${options}, clientAddress: () => '192.0.2.1' });
      const headers = { authorization: 'Bearer a.b.c' };
      call(new Request('http://localhost/api/work-items', { headers })).then(({ status }) => {
        console.log(status);
        return call.close();
      });`;
    const programs = {
      server,
      plugin,
      handlers,
      jose: needing(guardOptions.jose),
      redis: needing(guardOptions.ioredis),
    };
    for (const [name, text] of Object.entries(programs)) {
      writeFileSync(join(from, `${name}.ts`), text.replaceAll("'work-item-gateway", "'@work-item-gateway/core"));
    }
    const extension = format === 'esm' ? '.mjs' : '.cjs';
    const names = Object.keys(programs);
    const result = await esbuild.build({
      entryPoints: names.map((name) => join(from, `${name}.ts`)),
      ...{ bundle: true, platform: 'node', format, outdir, outExtension: { '.js': extension }, external: ['fastify'] },
      ...{ metafile: true, logLevel: 'silent' },
      // `import.meta` is empty in CommonJS.
      logOverride: { 'empty-import-meta': 'silent' },
    });
    assert.deepEqual([...result.errors, ...result.warnings], []);
    // Unused modules are left out.
    const withPlugin = Object.entries(result.metafile.outputs).filter(([, { inputs }]) =>
      Object.keys(inputs).some((path) => path.endsWith('fastify/fastify.js')),
    );
    const paths = withPlugin.map(([path]) => posix.basename(path));
    assert.deepEqual(paths, [`plugin${extension}`]);
    linkFastify(outdir);
    const { stdout, stderr } = await runModules(
      outdir,
      names.map((name) => `${name}${extension}`),
    );
    assert.equal(stdout.split('\n').toSorted().join('\n'), `\n${replies}500\n500`);
    for (const name of Object.keys(guardOptions)) {
      assert.ok(stderr.includes(`needs the package ${name}: run \`npm install ${name}\``), stderr);
    }
  });
}
