// Runs the code blocks of the user documents in an empty folder with the package, and calls the servers that they start.
// Ports, host names and npm commands are replaced. Other tests run some of the blocks.

import assert from 'node:assert/strict';
import { createServer, type RequestListener, type Server } from 'node:http';
import { createServer as createTlsServer } from 'node:https';
import { once } from 'node:events';
import type { AddressInfo } from 'node:net';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, describe, test } from 'node:test';
import { parse } from 'yaml';
import { noOpenssl } from '../helpers/certificates.ts';
import { codeBlocks } from '../helpers/documents.ts';
import { Example, linesOfDocument, type RunningExample } from './installed.ts';
import { findFreePort } from '../helpers/haproxy.ts';
import { createPair, goodToken, keySetOf } from '../helpers/issuer.ts';
import { poll } from '../helpers/changes.ts';
import { defaultOf } from '../../packages/command/settings/settings.ts';
import { parseItemId } from '../../packages/core/call/item-id.ts';
import { findProgram } from '../helpers/program.ts';
import { isRefused, type Headers } from '../helpers/raw-client.ts';

const noCurl = findProgram('curl') === undefined && 'curl is not installed; on Debian: apt-get install curl';

const root = join(import.meta.dirname, '../..');
const example = Example.link();
const pair = createPair('one', 'ES256');
const claims = { iss: 'https://login.example.com/', aud: 'https://items.example.com', scope: 'items.read' };
const token = goodToken(pair, undefined, claims);
const bearer: Headers = [['Authorization', `Bearer ${token}`]];
const list = '/api/work-items';

const portOf = (server: Server): number => (server.address() as AddressInfo).port;
async function listen(server: Server): Promise<Disposable & { readonly port: number }> {
  await once(server.listen(0, '127.0.0.1'), 'listening');
  const stop = () => {
    server.close();
    server.closeAllConnections();
  };
  return { port: portOf(server), [Symbol.dispose]: stop };
}

const answersOfIssuer: Readonly<Record<string, string>> = {
  '/.well-known/openid-configuration':
    '{"issuer":"https://login.example.com/","jwks_uri":"https://login.example.com/oauth/jwks"}',
  '/oauth/jwks': keySetOf(pair),
  '/oauth/token': JSON.stringify({ access_token: token }),
};
const issuer = await listen(createServer(({ url = '' }, response) => response.end(answersOfIssuer[url])));
after(() => issuer[Symbol.dispose]());

/** The ports and processes of a block. The processes end when the block has been tested. */
class Place implements AsyncDisposable {
  readonly port: number;
  readonly #adminPort: number;
  readonly #backendPort: number;
  readonly #running = new AsyncDisposableStack();

  private constructor([port = 0, adminPort = 0, backendPort = 0]: readonly number[]) {
    [this.port, this.#adminPort, this.#backendPort] = [port, adminPort, backendPort];
  }

  static async open(): Promise<Place> {
    return new Place(await Promise.all([findFreePort(), findFreePort(), findFreePort()]));
  }

  /** Replaces ports, issuer and commands in a block by those of this test. */
  here(block: string): string {
    return block
      .replaceAll('3000', String(this.port))
      .replaceAll('9464', String(this.#adminPort))
      .replaceAll('5104', String(this.#backendPort))
      .replaceAll(/https:\/\/login\.example\.com(?=\/oauth|\/\.well-known)/g, `http://127.0.0.1:${issuer.port}`)
      .replaceAll('https://items.example.com/', `http://localhost:${this.port}/`)
      .replaceAll(/\bnpm start\b/g, 'work-item-gateway dev')
      .replaceAll(/\bnpm run (\w+)(?: --)?/g, 'work-item-gateway $1');
  }

  /** Starts a server by a shell command; with `waits`, resolves when the command has written its addresses. */
  async start(line: string): Promise<RunningExample> {
    const command = this.here(line.replaceAll('\\\n', ' ').trim()).replace(
      'work-item-gateway',
      'exec work-item-gateway',
    );
    const isBackend = command.endsWith(' backend');
    const running = await this.#run('bash', ['-c', command], isBackend ? this.#backendPort : this.port);
    // The admin listener opens last.
    if (!isBackend) await poll(async () => !(await isRefused(this.#adminPort)), 'the admin listener is open');
    return running;
  }

  /** Starts the embedded backend, then a gateway by a shell command. */
  async startBoth(line: string): Promise<RunningExample> {
    await this.start('work-item-gateway backend');
    return await this.start(line);
  }

  /** Starts the embedded backend and a file of JavaScript. */
  async startFile(...code: readonly string[]): Promise<RunningExample> {
    await this.start('work-item-gateway backend');
    example.write('server.mjs', this.here(code.join('\n')));
    return await this.#run('node', ['server.mjs'], this.port);
  }

  async #run(program: string, args: readonly string[], port: number): Promise<RunningExample> {
    const [adminPort, backendPort] = [String(this.#adminPort), String(this.#backendPort)];
    const variables = { PORT: String(this.port), ADMIN_PORT: adminPort, EMBEDDED_BACKEND_PORT: backendPort };
    const backendUrl = `http://localhost:${backendPort}`;
    return this.#running.use(await example.start(program, args, backendUrl, variables, port));
  }

  /** Runs shell commands to their end. */
  async output(lines: string, variables: NodeJS.ProcessEnv = {}): Promise<string> {
    return await example.output('bash', ['-c', this.here(lines)], variables);
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.#running.disposeAsync();
  }
}

type Run = (place: Place, block: string) => Promise<void> | void;

const manifest = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8')) as {
  readonly peerDependencies: Readonly<Record<string, string>>;
  readonly repository: { readonly url: string };
};

/** The commands of a block, without comments. */
const commandsIn = (block: string): string[] =>
  block
    .replaceAll('\\\n', ' ')
    .split('\n')
    .filter((line) => line !== '' && !line.startsWith('#'));

/** The commands of a console block, with their output. */
const sessionsIn = (block: string): { command: string; printed: string }[] =>
  block
    .split(/^\$ /m)
    .slice(1)
    .map((session) => {
      const [, command = '', printed = ''] = /^((?:[^\n]*\\\n)*[^\n]*)\n(.*)$/s.exec(session) ?? [];
      return { command, printed };
    });

/** The block of a document that contains `part`. */
const blockOf = (document: string, part: string): string =>
  codeBlocks(document).find((block) => block.includes(part)) ?? assert.fail(part);

const get = async (server: RunningExample, path = list, headers: Headers = []): Promise<[number, string]> => {
  const { status, text } = await server.call('GET', path, { headers });
  return [status, text];
};

const serves: Run = async (place, block) => {
  const server = await place.startFile(block);
  assert.deepEqual(await get(server), [200, '[]']);
  const created = await server.call('POST', list, { body: '{"title":"First"}' });
  assert.deepEqual([created.status, created.text], [201, '{"id":1,"title":"First"}']);
};

const needsToken = async (server: RunningExample): Promise<void> => {
  assert.equal((await get(server))[0], 401);
  assert.equal((await get(server, list, bearer))[0], 200);
};

const needsSession = async (server: RunningExample): Promise<void> => {
  assert.deepEqual(await get(server), [401, '{"error":"Unauthorized"}']);
  assert.deepEqual(await get(server, list, [['Cookie', 'session=ada']]), [200, '[]']);
};

const hasOtherErrors = async (server: RunningExample): Promise<void> => {
  const text = '{"title":"Invalid ID format","status":400}';
  const refused = await server.call('GET', `${list}/x`);
  assert.deepEqual([refused.status, refused.text, refused.header('content-length')], [400, text, String(text.length)]);
  const failed = await server.call('PUT', `${list}/5`, { body: 'no JSON' });
  assert.deepEqual([failed.status, failed.text], [500, '{"title":"Failed to update work item","status":500}']);
  const head = await server.call('HEAD', `${list}/x`);
  assert.deepEqual([head.status, head.text], [400, '']);
  assert.deepEqual(await get(server), [200, '[]']);
};

async function assertLimit(server: RunningExample): Promise<void> {
  for (let count = 0; count < 100; count += 1) assert.equal((await get(server))[0], 200);
  assert.equal((await get(server))[0], 429);
}

/** Asserts that each command prints the lines shown after it. Numbers of seconds may differ. */
async function assertHeads(place: Place, block: string): Promise<void> {
  const plain = (line: string) => line.replace(/^(retry-after: |.*;t=)\d+$/, '$1');
  for (const { command, printed } of sessionsIn(block)) {
    const lines = (await place.output(`${command} -s`)).split('\r\n').map(plain);
    const shown = printed.replaceAll('...\n', '').trim().split('\n').map(plain);
    const printedLines = lines.filter((line) => shown.includes(line));
    assert.deepEqual(printedLines, shown);
  }
}

/** Runs a block that starts a server with TLS. Returns the output of each later command, or its exit code. */
async function runTls(place: Place, block: string): Promise<string[]> {
  const [start = '', ...others] = commandsIn(block);
  const server = await place.start(start);
  await poll(() => server.output.includes('Ctrl-C'), 'the server is ready');
  const printed = [];
  for (const line of others) {
    printed.push(await place.output(line).catch((error: unknown) => `exit ${(error as { code: number }).code}`));
  }
  return printed;
}

/** A service of a Compose file. */
interface Service {
  readonly build: string;
  readonly environment: Readonly<Record<string, string>>;
  readonly command?: string;
  readonly ports?: readonly string[];
}

const toLoopback = (value: string): string => value.replace(/^::$/, '127.0.0.1').replace('//backend:', '//127.0.0.1:');
const elsewhere = (file: string): string => `run by ${file}`;
const withNext = elsewhere('test/examples/documents.test.ts, with the next block');
const onSystemd = 'needs root and systemd; test/deploy/systemd.test.ts runs the units';

const importing = (what: string, from: string): string => `import ${what} from '${from}';`;
const nodeStart = importing('{ createNodeHandler }', 'work-item-gateway/node');
const honoStart = [
  importing('{ serve }', '@hono/node-server'),
  importing('{ createFetchHandler }', 'work-item-gateway/fetch'),
];
const honoEnd = 'serve({ fetch: call, port: 3000 });';
const expressStart = [importing('express', 'express'), nodeStart, 'const app = express();'];
const fastifyStart = [importing('Fastify', 'fastify'), importing('{ workItemGateway }', 'work-item-gateway')];
const findUser = "const findUser = (cookie) => (cookie === 'session=ada' ? 'ada' : undefined);";

// For each code block: a text that identifies it, and the block's test or the reason why it is not run.
const rows: Readonly<Record<string, Readonly<Record<string, Run | string>>>> = {
  'README.md': {
    'npm ci && npm start': async (place, block) => {
      const [cloned, started, ...calls] = sessionsIn(place.here(block));
      const address = manifest.repository.url.replace(/^git\+|\.git$/g, '');
      assert.equal(cloned?.command, `git clone ${address} && cd ${address.split('/').at(-1)}`);
      const server = await place.start('npm start');
      await poll(() => server.output.includes('Ctrl-C'), 'the server is ready');
      for (const line of started?.printed.split('\n') ?? []) assert.ok(server.output.includes(line), line);
      assert.equal(calls.length, 3);
      for (const { command, printed } of calls) assert.equal(`${await place.output(`${command} -s`)}\n`, printed);
    },
    'npm run serve': async (place, block) => {
      assert.deepEqual(await get(await place.start(block), `${list}/x`), [400, '{"error":"Invalid ID format"}']);
    },
  },
  'docs/hosts.md': {
    'export { call as GET, call as POST': elsewhere('test/examples/nextjs.test.ts'),
    'const app = Fastify(': serves,
    'express()': serves,
    NestFactory: elsewhere('test/examples/nestjs.test.ts'),
    "createServer } from 'node:http';\nimport { createNodeHandler }": async (place, block) => {
      const text = readFileSync(join(root, 'docs/hosts.md'), 'utf8');
      const calls = /Then\s`(curl [^`]+)` shows `([^`]+)`, and\s`(curl [^`]+)` makes/.exec(text) ?? [];
      const [, look = '', shown, make = ''] = calls;
      await place.startFile(block);
      assert.equal(await place.output(`${look} -s`), shown);
      assert.equal(await place.output(`${make} -s`), '{"id":1,"title":"First"}');
    },
    'const app = new Hono()': serves,
    'export default { port': elsewhere('test/examples/runtimes.test.ts'),
    'Deno.serve': elsewhere('test/examples/runtimes.test.ts'),
    'next();': async (place, block) => {
      await needsSession(await place.startFile(...expressStart, findUser, block, 'app.listen(3000);'));
    },
    "request.headers.get('cookie')": async (place, block) => {
      await needsSession(await place.startFile(...honoStart, findUser, block, honoEnd));
    },
    "addHook('onSend'": async (place, block) => {
      const end = `await app.register(workItemGateway, { backendUrl: 'http://localhost:5104' });
        await app.listen({ port: 3000 });`;
      await hasOtherErrors(await place.startFile(...fastifyStart, 'const app = Fastify();', block, end));
    },
    "headers.delete('content-length')": async (place, block) => {
      await hasOtherErrors(await place.startFile(...honoStart, block, honoEnd));
    },
    'outcome unreachable': async (place, block) => {
      const server = await place.startFile(blockOf('docs/hosts.md', 'createServer(').replace('5104', '1'));
      await get(server, `${list}/5`);
      await poll(() => server.output.includes('\n'), 'the line of the failure');
      const plain = (line: string) => line.replaceAll(/\(request id [^)]*\)|Cause: .*$/gm, '').trim();
      assert.equal(plain(server.output), plain(block));
    },
    'toJSON()': async (place, block) => {
      const server = await place.startFile(...honoStart, block, honoEnd);
      await get(server, `${list}/5`);
      await poll(() => server.output.includes('"msg":"call"'), 'the line of the call');
      const shown = /"requestId":"[^"]+","operation":"read","method":"GET","path":"\/api\/work-items\/5"/;
      assert.match(server.output, shown);
    },
    'fastify.inject(': async (place, block) => {
      const start = [
        importing('assert', 'node:assert/strict'),
        importing('{ createServer }', 'node:http'),
        importing('{ test }', 'node:test'),
        importing('{ Hono }', 'hono'),
        ...[...fastifyStart, ...honoStart.slice(1), nodeStart],
      ];
      example.write('route.test.mjs', [...start, block].join('\n'));
      assert.match(await place.output('node --test --test-reporter=tap route.test.mjs'), /^# pass 1$/m);
    },
    "once('SIGTERM'": async (place, block) => {
      const backend = createServer();
      const called = once(backend, 'request') as Promise<Parameters<RequestListener>>;
      using listener = await listen(backend);
      const code = [
        importing('{ createServer }', 'node:http'),
        nodeStart,
        block.replace('5104', String(listener.port)),
      ];
      const server = await place.startFile(...code);
      const reply = get(server);
      const [, response] = await called;
      server.process.kill('SIGTERM');
      await poll(() => isRefused(place.port), 'the server listens no more');
      response.end('["in flight"]');
      assert.deepEqual(await reply, [200, '["in flight"]']);
      assert.deepEqual(await server.exited, { code: 0, signal: null });
    },
    'createGatewayServer(': async (place, block) => {
      await needsToken(await place.startFile(block));
    },
    'backendUrl: process.env.BACKEND_URL': async (place, block) => {
      example.write('route.mjs', place.here(`${honoStart[1] ?? ''}\n${block}`));
      const end = honoEnd.replace('call', 'GET');
      await needsToken(await place.startFile(honoStart[0] ?? '', importing('{ GET }', './route.mjs'), end));
    },
    'getConnInfo(context)': async (place, block) => {
      const more = [importing('{ getConnInfo }', '@hono/node-server/conninfo'), importing('{ Hono }', 'hono')];
      const end = honoEnd.replace('call', 'app.fetch');
      await assertLimit(await place.startFile(...honoStart, ...more, 'const app = new Hono();', block, end));
    },
    useBigInt: elsewhere('test/docs/typed-client.test.ts'),
    'npx orval': elsewhere('test/docs/typed-client.test.ts'),
    'import { readWorkItem }': elsewhere('test/docs/typed-client.test.ts'),
  },
  'docs/aspnet-core.md': { ApiController: 'needs .NET', BeginScope: 'needs .NET' },
  'docs/security.md': {
    'CN=My authority': async (place, block) => {
      await place.output(`set -e\n${block}`);
      assert.match(readFileSync(join(example.folder, 'client.pem'), 'utf8'), /BEGIN CERTIFICATE/);
    },
    'npm start\ncurl --cacert ca.pem https': async (place, block) => {
      const [item = '', refused] = await runTls(place, block);
      assert.match(item, /^\{"id":1,/);
      assert.equal(refused, 'exit 52', 'an empty reply');
    },
    'TLS_CLIENT_CA_FILE=ca.pem': async (place, block) => {
      const [item = '', refused = ''] = await runTls(place, block);
      assert.match(item, /^\{"id":1,/);
      assert.match(refused, /^exit \d+$/);
    },
    'BACKEND_SERVER_NAME=': async (place, block) => {
      const [, made = ''] = codeBlocks('docs/security.md')[0]?.split('\n\n') ?? [];
      await place.output(made.replaceAll('localhost', 'items.internal').replaceAll('gateway', 'backend'));
      const [ca, cert, key] = ['ca', 'backend', 'backend-key'].map((name) =>
        readFileSync(join(example.folder, `${name}.pem`)),
      );
      const options = { ca, cert, key, requestCert: true };
      using backend = await listen(createTlsServer(options, (_request, response) => response.end('["over TLS"]')));
      const server = await place.start(block.replace('10.0.0.7:5104', `127.0.0.1:${backend.port}`));
      assert.deepEqual(await get(server), [200, '["over TLS"]']);
    },
    'openid-configuration': async (place, block) => {
      const shown = block.split('\n').flatMap((line) => (line.startsWith('# ') ? [line.slice(2)] : []));
      assert.deepEqual((await place.output(block)).trim().split('\n'), shown);
    },
    'AUTH_SCOPES=': withNext,
    'TOKEN=$(curl': async (place, block) => {
      await needsToken(await place.startBoth(blockOf('docs/security.md', 'AUTH_SCOPES=')));
      const printed = await place.output(block, { CLIENT: 'a', SECRET: 'b' });
      assert.deepEqual(printed.match(/(?<=HTTP\/1\.1 )\d+/g), ['401', '200', '403']);
      for (const [, challenge = ''] of block.matchAll(/\d{3}, (Bearer .*)$/gm)) {
        assert.ok(printed.includes(`www-authenticate: ${challenge}\r\n`), challenge);
      }
    },
    'HTTP2=true': async (place, block) => {
      const [printed = ''] = await runTls(place, block);
      assert.match(printed, /^\{"id":1,.*\}2\n$/);
    },
    'alpn h2,http/1.1': elsewhere('test/docs/haproxy-lines.test.ts'),
    'serve --cors-origins': withNext,
    'access-control-request-method': async (place, block) => {
      const server = await place.start(blockOf('docs/security.md', 'serve --cors-origins'));
      const origin = 'https://app.example.com';
      const reply = await server.call('GET', `${list}/x`, { headers: [['Origin', origin]] });
      assert.equal(reply.header('access-control-allow-origin'), origin);
      await assertHeads(place, block);
    },
    'serve --rate-limit 100/60s\n': withNext,
    'HTTP/1.1 429': async (place, block) => {
      await assertLimit(await place.startBoth(blockOf('docs/security.md', 'serve --rate-limit 100/60s\n')));
      await assertHeads(place, block);
    },
    'option forwardfor': elsewhere('test/docs/haproxy-lines.test.ts'),
    '--trusted-proxies': elsewhere('test/docs/haproxy-lines.test.ts'),
    'RATE_LIMIT_REDIS_URL=': async (place, block) => {
      // The block's Redis does not exist here, so the gateway counts by itself.
      const server = await place.startBoth(`${commandsIn(block).join(' ')} npm run serve`);
      assert.deepEqual(await get(server), [200, '[]']);
    },
    'work-item-gateway check': elsewhere('test/process/own-authority.test.ts'),
    'ACL SETUSER': elsewhere('test/docs/redis-user.test.ts'),
  },
  'docs/operating.md': {
    '"reachable":false': withNext,
    '"msg":"backend call failed"': async (place, block) => {
      const server = await place.start('work-item-gateway serve');
      const ready = await place.output('curl -s http://localhost:9464/readyz');
      assert.deepEqual(keysOf(ready), keysOf(blockOf('docs/operating.md', '"reachable":false')));
      await server.call('PUT', `${list}/12`, { body: '{}', headers: [['User-Agent', 'curl/8.5.0']] });
      const line = (): string | undefined => /^.*"backend call failed"\}$/m.exec(server.output)?.[0];
      await poll(() => line() !== undefined, 'the line of the failure');
      const withoutToken = keysOf(block).filter((key) => key !== 'subject');
      assert.deepEqual(keysOf(line() ?? ''), withoutToken);
    },
    'npm install @opentelemetry': (_place, block) => {
      const named = block.trim().split(' ').slice(2);
      assert.ok(named.length > 0);
      for (const name of named) assert.ok(name in manifest.peerDependencies, name);
    },
    'check --contract': elsewhere('test/contract/command.test.ts'),
  },
  'docs/deploying.md': {
    'docker build': 'run by test/deploy/image.ts, with buildah and podman',
    'services:': async (place, block) => {
      assert.equal(block.trim().split('\n').length, 15);
      const { services } = parse(block) as { services: Record<'gateway' | 'backend', Service> };
      const [port, adminPort] = [defaultOf('port', 'serve'), defaultOf('adminPort', 'serve')];
      assert.deepEqual(services.gateway.ports, [`${port}:${port}`, `127.0.0.1:${adminPort}:${adminPort}`]);
      for (const { build, environment, command = 'serve' } of [services.backend, services.gateway]) {
        assert.equal(build, '.', 'the image is built in the repository');
        const variables = Object.entries(environment).map(([name, value]) => `${name}=${toLoopback(value)}`);
        await place.start(`${variables.join(' ')} work-item-gateway ${command}`);
      }
      assert.match(await place.output('curl -si http://localhost:3000/api/work-items'), /^HTTP\/1.1 200 .*\r\n\[\]$/s);
      assert.match(await place.output('curl -si http://localhost:9464/readyz'), /^HTTP\/1.1 200 /);
    },
    'kubectl apply': 'needs a cluster; test/deploy/kubernetes.test.ts checks the manifests',
    'sudo install -D': onSystemd,
    'systemctl reload work-item-gateway': onSystemd,
    'systemctl disable --now': onSystemd,
    'haproxy -c -f': elsewhere('test/deploy/haproxy.test.ts'),
  },
  'CONTRIBUTING.md': {
    'git clone': "needs the repository's host",
    "['1,5', '1']": (_place, block) => {
      const [, id = '', sent = ''] = /\['(.*)', '(.*)'\]/.exec(block) ?? [];
      assert.equal(parseItemId(encodeURIComponent(id), 'leading'), sent);
    },
    'node --test test/spec/item-id.test.ts': 'run by npm test',
    'rateLimitFallback: {': (_place, block) => {
      const source = readFileSync(join(root, 'packages/core/options/guard-options.ts'), 'utf8');
      const lines = block.split('\n').filter((line) => /^ *\w+: /.test(line) && !line.includes('…'));
      assert.equal(lines.length, 3);
      const row = source.slice(source.indexOf(`  ${lines[0] ?? ''}`)).slice(0, 200);
      for (const line of lines) assert.ok(row.includes(line.trim()), line);
    },
    'cosign verify': 'needs a release',
  },
};

function keysOf(json: string): string[] {
  return Object.keys(JSON.parse(json) as object).toSorted();
}

for (const [document, blocks] of Object.entries(rows)) {
  describe(document, { skip: noOpenssl || noCurl }, () => {
    test('each code block is tested or has a reason why it is not run', () => {
      const parts = Object.keys(blocks);
      const found = codeBlocks(document).map((block) => parts.find((part) => block.includes(part)));
      assert.deepEqual(found, parts, 'the rows have the order of the blocks');
    });

    for (const [index, [part, run]] of Object.entries(blocks).entries()) {
      test(part.split('\n')[0], { skip: typeof run === 'string' && run }, async () => {
        assert.ok(typeof run === 'function');
        await using place = await Place.open();
        await run(place, codeBlocks(document)[index] ?? '');
      });
    }
  });
}

test('docs/hosts.md: the table has the right number of lines for each host', () => {
  for (const host of ['Next.js', 'Fastify', 'Express 5', 'NestJS', 'Node.js', 'Hono', 'Bun', 'Deno']) {
    assert.ok(linesOfDocument(host).length > 0);
  }
});
