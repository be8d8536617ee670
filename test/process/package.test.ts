// The packages that `npm pack` makes: their files, types and installation. Needs no registry.

import assert from 'node:assert/strict';
import { execFile, execFileSync, spawnSync } from 'node:child_process';
import {
  cpSync,
  existsSync,
  globSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { basename, delimiter, dirname, join, posix, resolve } from 'node:path';
import { before, describe, test } from 'node:test';
import { pathToFileURL } from 'node:url';
import { promisify } from 'node:util';
import * as esbuild from 'esbuild';
import ts from 'typescript';
import { answer } from '../helpers/scripted-backend.ts';
import { useBackend, useFolder } from '../helpers/suites.ts';

interface Manifest {
  readonly name: string;
  readonly version: string;
  readonly scripts: Record<string, string>;
  readonly sideEffects: boolean;
  readonly bin: Record<string, string>;
}

const root = resolve(import.meta.dirname, '../..');
const PATH = [dirname(process.execPath), process.env['PATH']].join(delimiter);
const folder = useFolder();
const backend = await useBackend();
let unpacked = '';
let files: string[] = [];
let packedBytes = 0;
let manifest: Manifest;

/** Runs npm without the user's configuration; returns all that it prints. */
function npm(args: readonly string[], cwd: string): string {
  const { status, stdout, stderr } = spawnSync('npm', args, {
    cwd,
    encoding: 'utf8',
    env: {
      PATH,
      HOME: folder,
      npm_config_cache: join(folder, 'cache'),
      npm_config_update_notifier: 'false',
      npm_config_audit: 'false',
      npm_config_fund: 'false',
    },
  });
  assert.equal(status, 0, stdout + stderr);
  return stdout + stderr;
}

/** Packs the package in `from`; returns the path of the tarball. */
function pack(from: string): string {
  // Everything is built already, so npm runs no scripts.
  npm(['pack', '--ignore-scripts', '--pack-destination', folder], from);
  const [name = ''] = globSync('*.tgz', { cwd: folder });
  return join(folder, name);
}

/** Paths in the repository that are not in the package. */
const onlyInRepository =
  /^(?:ARCHITECTURE\.md|CONTRIBUTING\.md|bench|docs\/(?:decisions\.md|images)|packages|test)(?:\/|$)/;
/** The addresses of files in the repository. */
const inRepository =
  /^https:\/\/(?:github\.com\/work-item-gateway\/work-item-gateway\/(?:blob|tree)|raw\.githubusercontent\.com\/work-item-gateway\/work-item-gateway)\/main\/([^#]+)/;

/** The folders of the packages that an installed gateway needs, according to the lock file. */
function productPackages(): string[] {
  const lock = JSON.parse(readFileSync(join(root, 'package-lock.json'), 'utf8')) as {
    packages: Record<string, { dev?: boolean; link?: boolean; peer?: boolean }>;
  };
  return Object.entries(lock.packages)
    .filter(([path, { dev, link, peer }]) => path.startsWith('node_modules/') && !dev && !link && !peer)
    .map(([path]) => path);
}

function filesIn(folder: string): string[] {
  const entries = globSync('**/*', { cwd: folder, withFileTypes: true }).filter((entry) => entry.isFile());
  return entries.map(({ parentPath, name }) => join(parentPath, name).slice(folder.length + 1));
}

/** The size of the files under `folder`. */
function bytesIn(folder: string): number {
  return filesIn(folder).reduce((sum, file) => sum + statSync(join(folder, file)).size, 0);
}

before(() => {
  const tarball = pack(root);
  packedBytes = statSync(tarball).size;
  execFileSync('tar', ['xzf', tarball, '-C', folder]);
  unpacked = join(folder, 'package');
  files = filesIn(unpacked);
  manifest = JSON.parse(readFileSync(join(unpacked, 'package.json'), 'utf8')) as Manifest;
});

describe('the packed files', () => {
  test('every link of a document leads to a file of the package, or has the address of a file in the repository', () => {
    const documents = files.filter((file) => file.endsWith('.md'));
    assert.ok(documents.includes('README.md') && documents.includes('docs/operating.md'));
    let count = 0;
    for (const document of documents) {
      const text = readFileSync(join(unpacked, document), 'utf8').replace(/^```.*?^```$/gms, '');
      for (const match of text.matchAll(/\]\(([^)#\s]+)[^)]*\)|\ssrc(?:set)?="([^"]+)"/g)) {
        const target = match[1] ?? match[2] ?? '';
        const path = posix.join(posix.dirname(document), target);
        const outside = inRepository.exec(target)?.[1];
        if (/^https?:/.test(target) && outside === undefined) continue;
        const isFound =
          outside === undefined
            ? files.includes(path) || files.some((file) => file.startsWith(`${path}/`))
            : existsSync(join(root, outside));
        assert.ok(isFound, `${document} links to ${target}`);
        count += 1;
      }
    }
    assert.ok(count > 30, 'links were found');
  });

  test('the package takes at most 500 kB and has no types except the types of the core', () => {
    assert.ok(packedBytes < 500_000, `${packedBytes} bytes`);
    const types = files.filter((file) => /\.d\.c?ts$/.test(file) && !file.startsWith('dist/core/'));
    assert.deepEqual(types, []);
  });

  test('the package has one manifest, and its types cite nothing that is not in the package', () => {
    const manifests = files.filter((file) => file.endsWith('package.json') && !file.startsWith('examples'));
    assert.deepEqual(manifests, ['package.json']);
    const types = files.filter((file) => /\.d\.c?ts$/.test(file));
    const citing = types.filter((file) =>
      /\bD\d|\[(?:spec|rule)|^ *\*[.,;]/m.test(readFileSync(join(unpacked, file), 'utf8')),
    );
    assert.ok(types.length > 20);
    assert.deepEqual(citing, []);
  });

  test('the package includes all that the command needs, and no source, test or Node binary', () => {
    for (const file of [
      manifest.bin['work-item-gateway'] ?? '',
      'dist/command/api-reference/page/index.html',
      'dist/dashboard/page/index.html',
      'LICENSE',
    ]) {
      assert.ok(files.includes(file), file);
    }
    assert.deepEqual(
      files.filter((file) => onlyInRepository.test(file) || /^(?:scripts|node_modules)\/|\.(?:tgz|sqlite)$/.test(file)),
      [],
    );
  });
});

describe('the manifest', () => {
  test('the manifest says that no module has side effects, and no file is imported for them', () => {
    assert.equal(manifest.sideEffects, false);
    const sources = globSync('packages/**/*.ts', { cwd: root });
    assert.ok(sources.length > 100);
    assert.deepEqual(
      sources.filter((file) => /^import '/m.test(readFileSync(join(root, file), 'utf8'))),
      [],
    );
  });

  test('the manifest has no install script', () => {
    const stages = Object.keys(manifest.scripts).filter((name) =>
      /^(?:pre|post)?(?:install|prepare)$|^prepublish$/.test(name),
    );
    assert.deepEqual(stages, []);
  });
});

describe('types and code for users of the package', () => {
  const imports = `
    import Fastify from 'fastify';
    import gateway, { createGatewayServer, frameworkErrors, workItemGateway } from 'work-item-gateway';
    import type { CallOutcome, GatewayObserver, GatewayServer, GuardOptions, WorkItemGatewayOptions } from 'work-item-gateway';`;
  const use = `
    const guards: GuardOptions = {
      authIssuer: 'https://login.example/',
      authAudience: ['work-items'],
      authJwksUrl: new URL('https://login.example/keys'),
      authScopes: { read: 'items.read' },
      rateLimit: '100/60s',
      backendIdentityHeader: 'x-user',
    };
    const options: WorkItemGatewayOptions = { backendUrl: 'http://localhost:5104', requestBytesMax: 5 };
    export const guarded: WorkItemGatewayOptions = { ...options, ...guards };
    export const server: GatewayServer = createGatewayServer({ backendUrl: 'http://localhost:5104' });
    export let observer: GatewayObserver | undefined;
    export const outcome: CallOutcome = 'ok';
    const app = Fastify({ frameworkErrors });
    export const secure = Fastify({ https: {}, frameworkErrors });
    void app.register(gateway, options);
    void app.register(workItemGateway, { ...options, prefix: '/v1' });
    void app.inject('/v1/api/work-items/x').then((reply) => {
      console.log(reply.statusCode, reply.body);
      return app.close();
    });
    // @ts-expect-error wrong type of an option
    export const wrong: WorkItemGatewayOptions = { backendUrl: 5 };
    // @ts-expect-error the type of the plugin is not "any"
    export const none: number = gateway;`;
  const required = `
    import required = require('work-item-gateway');
    export const isSame: boolean = required.workItemGateway === gateway;`;
  const fetchUse = `
    import { createFetchHandler, type FetchHandler, type FetchHandlerOptions } from 'work-item-gateway/fetch';
    const options: FetchHandlerOptions = { backendUrl: 'http://localhost:5104', corsOrigins: ['*'] };
    const call: FetchHandler = createFetchHandler(options);
    void call(new Request('http://localhost/api/work-items/x')).then(async (response) => {
      console.log(response.status, await response.text());
      await call.close();
    });
    // @ts-expect-error unknown option
    export const other: FetchHandlerOptions = { backendUrl: '', timeout: 5 };
    // @ts-expect-error the parameter must be a Request, not a string
    export const unasked = () => call('/');`;
  const nodeUse = `
    import { createServer } from 'node:http';
    import type { AddressInfo } from 'node:net';
    import { createNodeHandler, type NodeHandler, type NodeHandlerOptions } from 'work-item-gateway/node';
    const options: NodeHandlerOptions = { backendUrl: 'http://localhost:5104', prefix: '/v1' };
    const handler: NodeHandler = createNodeHandler(options);
    const server = createServer(handler).listen(0, () => {
      const { port } = server.address() as AddressInfo;
      void fetch('http://localhost:' + port + '/v1/api/work-items/x').then(async (response) => {
        console.log(response.status, await response.text());
        server.close();
        await handler.close();
      });
    });
    // @ts-expect-error unknown option
    export const other: NodeHandlerOptions = { backendUrl: '', timeout: 5 };`;
  /** Compiles in a folder without Fastify, and with the strictest options. */
  const strictUse = `
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
  const sources: Record<string, string> = {
    'fetch.cts': fetchUse,
    'fetch.mts': fetchUse,
    'node.cts': nodeUse,
    'node.mts': nodeUse,
    'use.cts': imports + required + use,
    'use.mts': imports + use,
  };
  let consumer = '';
  let strict = '';
  // Shared by all compilations.
  const parsed = new Map<string, ts.SourceFile | undefined>();

  before(() => {
    consumer = join(folder, 'consumer');
    const modules = join(consumer, 'node_modules');
    cpSync(unpacked, join(modules, 'work-item-gateway'), { recursive: true });
    for (const name of ['fastify', '@types']) symlinkSync(join(root, 'node_modules', name), join(modules, name));
    for (const [name, text] of Object.entries(sources)) writeFileSync(join(consumer, name), text);
    strict = join(folder, 'strict');
    cpSync(unpacked, join(strict, 'node_modules/work-item-gateway'), { recursive: true });
    for (const name of ['use.mts', 'use.cts']) writeFileSync(join(strict, name), strictUse);
  });

  function compile(names: readonly string[], options: ts.CompilerOptions, place = consumer): ts.Program {
    const all: ts.CompilerOptions = {
      target: ts.ScriptTarget.ES2022,
      strict: true,
      esModuleInterop: true,
      types: ['node'],
      typeRoots: [join(root, 'node_modules/@types')],
      outDir: place,
      ...options,
    };
    const host = ts.createCompilerHost(all);
    const getSourceFile = host.getSourceFile.bind(host);
    host.getSourceFile = (name, languageVersion, ...others) => {
      const key = `${name} ${JSON.stringify(languageVersion, ['impliedNodeFormat', 'languageVersion'])}`;
      if (!parsed.has(key)) parsed.set(key, getSourceFile(name, languageVersion, ...others));
      return parsed.get(key);
    };
    const program = ts.createProgram({ rootNames: names.map((name) => join(place, name)), options: all, host });
    const ours = program.getSourceFiles().filter(({ fileName }) => fileName.startsWith(place));
    assert.ok(ours.length > 2, 'the package has types');
    const problems = [
      ...program.getOptionsDiagnostics().filter(({ category }) => category === ts.DiagnosticCategory.Error),
      ...ours.flatMap((file) => [...program.getSyntacticDiagnostics(file), ...program.getSemanticDiagnostics(file)]),
    ];
    assert.equal(
      ts.formatDiagnostics(problems, {
        getCanonicalFileName: (name) => name,
        getCurrentDirectory: () => place,
        getNewLine: () => '\n',
      }),
      '',
    );
    return program;
  }

  const { ModuleKind, ModuleResolutionKind } = ts;
  let program: ts.Program | undefined;
  for (const [name, files, options] of [
    ['node16', Object.keys(sources), { module: ModuleKind.Node16, moduleResolution: ModuleResolutionKind.Node16 }],
    [
      'bundler',
      ['use.mts', 'fetch.mts', 'node.mts'],
      { module: ModuleKind.ESNext, moduleResolution: ModuleResolutionKind.Bundler },
    ],
    [
      'node10',
      ['use.cts'],
      {
        module: ModuleKind.CommonJS,
        // eslint-disable-next-line @typescript-eslint/no-deprecated -- still in use
        moduleResolution: ModuleResolutionKind.Node10,
        ignoreDeprecations: '6.0',
      },
    ],
  ] as const) {
    test(`types compile under ${name}: ${files.join(' and ')}`, () => {
      const compiled = compile(files, options);
      program ??= compiled;
    });
  }

  test('types compile under nodenext without Fastify, and options may be undefined with exactOptionalPropertyTypes', () => {
    const lib = ['lib.es2023.d.ts', 'lib.esnext.disposable.d.ts'];
    const options = { lib, exactOptionalPropertyTypes: true, noUncheckedIndexedAccess: true };
    compile(['use.mts', 'use.cts'], { module: ModuleKind.NodeNext, ...options }, strict);
  });

  test('every option has a comment in the published types', () => {
    assert.ok(program);
    const checker = program.getTypeChecker();
    const names: string[] = [];
    for (const file of program.getSourceFiles().filter(({ fileName }) => fileName.startsWith(consumer))) {
      for (const statement of file.statements.filter(ts.isInterfaceDeclaration)) {
        const name = statement.name.text;
        if (/^(?:WorkItemGateway|GatewayServer|FetchHandler|NodeHandler)Options$/.test(name)) {
          names.push(name);
          const options = checker.getTypeAtLocation(statement).getProperties();
          assert.ok(options.length > 30, name);
          for (const option of options) {
            assert.notEqual(option.getDocumentationComment(checker).length, 0, `${name}: ${option.name}`);
          }
        }
      }
    }
    assert.equal(new Set(names).size, 4);
  });

  test('CommonJS and ES modules export the same names, and the compiled code runs', () => {
    assert.ok(program);
    const checker = program.getTypeChecker();
    const [forRequire, forImport] = ['index.d.cts', 'index.d.ts'].map((name) => {
      const file = program?.getSourceFile(join(consumer, 'node_modules/work-item-gateway/dist/core/hosts', name));
      assert.ok(file);
      const symbol = checker.getSymbolAtLocation(file);
      assert.ok(symbol);
      return checker.getExportsOfModule(symbol).map((each) => each.name);
    });
    assert.deepEqual(forRequire?.toSorted(), forImport?.toSorted());
    assert.ok(forImport?.includes('createGatewayServer'));
    for (const source of Object.keys(sources)) {
      const name = source.replace(/ts$/, 'js');
      program.emit(program.getSourceFile(join(consumer, source)));
      const { stdout, stderr } = spawnSync(process.env['GATEWAY_NODE'] ?? process.execPath, [name], {
        cwd: consumer,
        encoding: 'utf8',
      });
      assert.equal(stderr, '');
      assert.equal(stdout, '400 {"error":"Invalid ID format"}\n', name);
    }
  });
});

test('the installation in an empty folder prints no warning, and the installed command runs', () => {
  // Installed without dependencies, because npm would fetch them from a registry. They are copied afterwards.
  const local = join(folder, 'local');
  cpSync(unpacked, local, { recursive: true });
  writeFileSync(join(local, 'package.json'), JSON.stringify({ ...manifest, dependencies: {}, devDependencies: {} }));
  rmSync(join(folder, `${manifest.name}-${manifest.version}.tgz`));
  const tarball = pack(local);
  const target = join(folder, 'target');
  mkdirSync(target);
  const printed = npm(['install', '--offline', '--prefix', target, tarball], target);
  assert.doesNotMatch(printed, /warn/i);
  for (const path of productPackages()) cpSync(join(root, path), join(target, path), { recursive: true });
  const command = join(target, 'node_modules/.bin/work-item-gateway');
  const version = execFileSync(command, ['--version'], { cwd: target, encoding: 'utf8', env: { PATH } });
  assert.equal(version, `${manifest.version}\n`);

  const paths = productPackages();
  assert.ok(paths.length > 15 && paths.length <= 34, `${paths.length} packages`);
  const installed = [...paths, 'node_modules/work-item-gateway'];
  const bytes = installed.reduce((sum, path) => sum + bytesIn(join(target, path)), 0);
  assert.ok(bytes > 1_000_000 && bytes <= 12_000_000, `${bytes} bytes`);

  // OpenTelemetry, an optional peer dependency, is not installed here, so `serve` refuses to start.
  const env = { PATH, OTEL_EXPORTER_OTLP_ENDPOINT: 'http://localhost:4318' };
  const serve = ['serve', '--backend-url', 'http://localhost:1'];
  const traced = spawnSync(command, serve, { cwd: target, encoding: 'utf8', env });
  assert.equal(traced.status, 1);
  assert.match(
    traced.stderr,
    /^error: OTEL_EXPORTER_OTLP_ENDPOINT needs packages that are not installed: run `npm install @opentelemetry\/core /,
  );
  // `openapi` starts nothing, so it works without OpenTelemetry.
  const document = execFileSync(command, ['openapi'], { cwd: target, encoding: 'utf8', env });
  assert.match(document, /^\{\s*"openapi":/);
});

describe('@work-item-gateway/core, one package without dependencies for embedding', () => {
  interface CoreManifest {
    readonly version: string;
    readonly dependencies?: object;
    readonly peerDependencies: Readonly<Record<string, string>>;
    readonly peerDependenciesMeta: Readonly<Record<string, { readonly optional: boolean }>>;
    readonly exports: Readonly<Record<string, unknown>>;
  }
  let user = '';
  let installed = '';
  const readCore = () => JSON.parse(readFileSync(join(installed, 'package.json'), 'utf8')) as CoreManifest;
  before(() => {
    user = join(folder, 'user');
    mkdirSync(user);
    npm(['pack', '--pack-destination', user, join(root, 'dist/core')], user);
    const [tarball = ''] = globSync('*.tgz', { cwd: user });
    npm(['install', '--offline', '--prefix', user, join(user, tarball)], user);
    installed = join(user, 'node_modules/@work-item-gateway/core');
  });

  /** Runs a module that uses the package; returns its output. */
  async function run(text: string): Promise<{ stdout: string; stderr: string }> {
    writeFileSync(join(user, 'index.mjs'), text);
    return await promisify(execFile)(process.env['GATEWAY_NODE'] ?? process.execPath, ['index.mjs'], { cwd: user });
  }

  test('npm installs one package of at most 1 MB, without a dependency', () => {
    assert.deepEqual(globSync('*', { cwd: join(user, 'node_modules') }), ['@work-item-gateway']);
    const [{ length }, bytes] = [filesIn(installed), bytesIn(installed)];
    assert.ok(length > 50 && bytes <= 1_000_000, `${length} files, ${bytes} bytes`);
    const { dependencies, peerDependencies, peerDependenciesMeta, version } = readCore();
    assert.equal(dependencies, undefined);
    assert.deepEqual(Object.keys(peerDependencies), ['fastify', 'ioredis', 'jose']);
    for (const name of Object.keys(peerDependencies)) {
      assert.equal(peerDependenciesMeta[name]?.optional, true, name);
    }
    assert.equal(version, manifest.version);
  });

  test('every entry can be imported and required, and has the expected exports', async () => {
    const names = Object.keys(readCore().exports).filter((name) => name !== './package.json');
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

  describe('bundled by esbuild, without any other package', () => {
    const options = `backendUrl: '${backend.url}', log: false`;
    const programs: Record<string, (name: string) => string> = {
      '.': (name) => `
        import { createGatewayServer } from '${name}';
        async function run() {
          const server = createGatewayServer({ ${options} });
          const { url } = await server.listen(0);
          const response = await fetch(url + '/api/work-items/5');
          console.log(response.status, await response.text());
          await server.close();
        }`,
      './fetch': (name) => `
        import { createFetchHandler } from '${name}';
        async function run() {
          const call = createFetchHandler({ ${options} });
          const response = await call(new Request('http://localhost/api/work-items/5'));
          console.log(response.status, await response.text());
          await call.close();
        }`,
      './node': (name) => `
        import { createServer } from 'node:http';
        import { createNodeHandler } from '${name}';
        async function run() {
          const handler = createNodeHandler({ ${options} });
          const server = createServer(handler);
          await new Promise((done) => server.listen(0, done));
          const response = await fetch('http://localhost:' + server.address().port + '/api/work-items/5');
          console.log(response.status, await response.text());
          server.close();
          await handler.close();
        }`,
      './fastify': (name) => `
        import { workItemGateway } from '${name}';
        async function run() {
          const { default: Fastify } = await import(process.argv[2]);
          const app = Fastify();
          await app.register(workItemGateway, { ${options} });
          const response = await app.inject('/api/work-items/5');
          console.log(response.statusCode, response.body);
          await app.close();
        }`,
    };

    /** Bundles a program that uses the package; returns the file and the paths that it is made of. */
    async function bundle(text: string, format: 'esm' | 'cjs'): Promise<{ file: string; inputs: string[] }> {
      const file = join(user, `bundle.${format === 'esm' ? 'mjs' : 'cjs'}`);
      const result = await esbuild.build({
        stdin: { contents: `${text}\nrun();`, resolveDir: user },
        ...{ bundle: true, platform: 'node', format, outfile: file, metafile: true, logLevel: 'silent' },
        // `import.meta` is empty in CommonJS.
        logOverride: { 'empty-import-meta': 'silent' },
      });
      assert.deepEqual([...result.errors, ...result.warnings], []);
      return { file, inputs: Object.values(result.metafile.outputs).flatMap(({ inputs }) => Object.keys(inputs)) };
    }

    /** Runs the bundle where nothing is installed; returns its output. */
    async function runBundle(file: string): Promise<{ stdout: string; stderr: string }> {
      const place = mkdtempSync(join(folder, 'bundle-'));
      const target = join(place, basename(file));
      renameSync(file, target);
      const fastify = pathToFileURL(join(root, 'node_modules/fastify/fastify.js')).href;
      return await promisify(execFile)(process.env['GATEWAY_NODE'] ?? process.execPath, [target, fastify], {
        cwd: place,
      });
    }

    test('each entry has a program here', () => {
      const entries = Object.keys(readCore().exports).filter((name) => name !== './package.json');
      assert.deepEqual(entries.toSorted(), Object.keys(programs).toSorted());
    });

    for (const [entry, write] of Object.entries(programs)) {
      for (const format of ['esm', 'cjs'] as const) {
        test(`${entry} as ${format}: the bundle calls the backend`, async () => {
          backend.answersOnce(answer('{"id":5}'));
          const { file, inputs } = await bundle(write(`@work-item-gateway/core${entry.slice(1)}`), format);
          // Unused modules are left out.
          assert.equal(
            inputs.some((path) => path.endsWith('fastify/fastify.js')),
            entry === './fastify',
            inputs.join(),
          );
          assert.deepEqual(await runBundle(file), { stdout: '200 {"id":5}\n', stderr: '' });
        });
      }
    }

    for (const [name, guard] of [
      ['jose', "authIssuer: 'https://login.example/', authAudience: ['a'], authJwksUrl: 'https://login.example/keys'"],
      ['ioredis', "rateLimit: '1/1s', rateLimitRedisUrl: 'redis://localhost:1', clientAddress: () => '192.0.2.1'"],
    ] as const) {
      for (const format of ['esm', 'cjs'] as const) {
        test(`as ${format}, an option that needs ${name} gives a 500, and the log line names the package`, async () => {
          const { file } = await bundle(
            `import { createFetchHandler } from '@work-item-gateway/core/fetch';
            async function run() {
              const call = createFetchHandler({ backendUrl: '${backend.url}', ${guard} });
              const headers = { authorization: 'Bearer a.b.c' };
              console.log((await call(new Request('http://localhost/api/work-items', { headers }))).status);
              await call.close();
            }`,
            format,
          );
          const { stdout, stderr } = await runBundle(file);
          assert.equal(stdout, '500\n');
          assert.match(stderr, new RegExp(`needs the package ${name}: run \`npm install ${name}\``));
        });
      }
    }
  });

  for (const [option, name, options] of [
    ['authIssuer', 'jose', "authIssuer: 'https://login.example/', authAudience: ['a'], authJwksUrl: 'https://login.example/keys'"],
    ['rateLimitRedisUrl', 'ioredis', "rateLimit: '1/1s', rateLimitRedisUrl: 'redis://localhost:1'"],
  ] as const) {
    test(`${option} without ${name} is an error that names the package to install`, async () => {
      const { stdout } = await run(`
        import { createGatewayServer } from '@work-item-gateway/core';
        try {
          createGatewayServer({ backendUrl: '${backend.url}', ${options} });
        } catch (error) {
          console.log(error.message);
        }`);
      const problem = `${option} needs the package ${name}: run \`npm install ${name}\``;
      assert.equal(stdout, `Cannot create the gateway: ${problem}.\n`);
    });
  } // prettier-ignore
});
