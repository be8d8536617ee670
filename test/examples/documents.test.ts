// Runs the code blocks of the user documents in an empty folder with the package, and calls the servers that they start.
// Ports, host names and npm commands are replaced. Other tests run some of the blocks.

import assert from 'node:assert/strict';
import { createServer, type RequestListener } from 'node:http';
import { createServer as createTlsServer } from 'node:https';
import { once } from 'node:events';
import type { AddressInfo } from 'node:net';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, test } from 'node:test';
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
import { isRefused, type Headers, type Reply } from '../helpers/raw-client.ts';

const noCurl = findProgram('curl') === undefined && 'curl is not installed; on Debian: apt-get install curl';

const example = Example.link();
const pair = createPair('one', 'ES256');
const token = goodToken(pair, undefined, {
  iss: 'https://login.example.com/',
  aud: 'https://items.example.com',
  scope: 'items.read',
});
const bearer: Headers = [['Authorization', `Bearer ${token}`]];
const list = '/api/work-items';

interface Local {
  readonly url: string;
  readonly stop: () => void;
}

/** The ports and processes of a block. The processes end when the block has been tested. */
class Place implements AsyncDisposable {
  readonly port: number;
  readonly #adminPort: number;
  readonly #backendPort: number;
  readonly #issuer: Local;
  readonly #running: RunningExample[] = [];

  private constructor(ports: readonly number[], issuer: Local) {
    [this.port = 0, this.#adminPort = 0, this.#backendPort = 0] = ports;
    this.#issuer = issuer;
  }

  static async open(): Promise<Place> {
    const ports = await Promise.all([findFreePort(), findFreePort(), findFreePort()]);
    return new Place(ports, await serve(answerAsIssuer));
  }

  /** Replaces ports, issuer and commands in a block by those of this test. */
  here(block: string): string {
    return block
      .replaceAll('3000', String(this.port))
      .replaceAll('9464', String(this.#adminPort))
      .replaceAll('5104', String(this.#backendPort))
      .replaceAll(/https:\/\/login\.example\.com(?=\/oauth|\/\.well-known)/g, this.#issuer.url)
      .replaceAll('https://items.example.com/', `http://localhost:${this.port}/`)
      .replaceAll(/\bnpm start\b/g, 'work-item-gateway dev')
      .replaceAll(/\bnpm run (\w+)(?: --)?/g, 'work-item-gateway $1');
  }

  get #variables(): NodeJS.ProcessEnv {
    return {
      PORT: String(this.port),
      ADMIN_PORT: String(this.#adminPort),
      EMBEDDED_BACKEND_PORT: String(this.#backendPort),
    };
  }

  /** Starts a server by a shell command. */
  async start(line: string): Promise<RunningExample> {
    const command = this.here(line).replace('work-item-gateway', 'exec work-item-gateway');
    const isBackend = command.endsWith(' backend');
    const running = await this.#run('bash', ['-c', command], isBackend ? this.#backendPort : this.port);
    // The admin listener opens last.
    if (!isBackend) await poll(async () => !(await isRefused(this.#adminPort)), 'the admin listener is open');
    return running;
  }

  /** Starts a JavaScript or TypeScript file. */
  async startFile(name: string, block: string): Promise<RunningExample> {
    await this.start('work-item-gateway backend');
    example.write(name, this.here(block));
    return await this.#run('node', [name], this.port);
  }

  async #run(program: string, args: readonly string[], port: number): Promise<RunningExample> {
    const backendUrl = `http://localhost:${this.#backendPort}`;
    const running = await example.start(program, args, backendUrl, this.#variables, port);
    this.#running.push(running);
    return running;
  }

  /** Runs shell commands to their end. */
  async output(lines: string, variables: NodeJS.ProcessEnv = {}): Promise<string> {
    return await example.output('bash', ['-c', this.here(lines)], variables);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const running of this.#running) await running[Symbol.asyncDispose]();
    this.#issuer.stop();
  }
}

async function serve(listener: RequestListener): Promise<Local> {
  const server = createServer(listener).listen(0, '127.0.0.1');
  await once(server, 'listening');
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    stop: () => {
      server.close();
      server.closeAllConnections();
    },
  };
}

const answerAsIssuer: RequestListener = ({ url = '' }, response) => {
  const answers: Readonly<Record<string, string>> = {
    '/.well-known/openid-configuration':
      '{"issuer":"https://login.example.com/","jwks_uri":"https://login.example.com/oauth/jwks"}',
    '/oauth/jwks': keySetOf(pair),
    '/oauth/token': JSON.stringify({ access_token: token }),
  };
  response.end(answers[url]);
};

type Run = (place: Place, block: string) => Promise<void> | void;

const root = join(import.meta.dirname, '../..');
const manifest = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8')) as {
  readonly peerDependencies: Readonly<Record<string, string>>;
  readonly repository: { readonly url: string };
};

/** The commands of a block, without comments. */
function commandsIn(block: string): string[] {
  return block
    .replaceAll('\\\n', ' ')
    .split('\n')
    .filter((line) => line !== '' && !line.startsWith('#'));
}

/** The commands of a console block, with their output. */
function sessionsIn(block: string): { command: string; printed: string }[] {
  return block
    .split(/^\$ /m)
    .slice(1)
    .map((session) => {
      const [, command = '', printed = ''] = /^((?:[^\n]*\\\n)*[^\n]*)\n(.*)$/s.exec(session) ?? [];
      return { command, printed };
    });
}

const serves: Run = async (place, block) => {
  const server = await place.startFile('server.mjs', block);
  const first = await server.call('GET', list);
  assert.deepEqual([first.status, first.text], [200, '[]']);
  const created = await server.call('POST', list, { body: '{"title":"First"}' });
  assert.deepEqual([created.status, created.text], [201, '{"id":1,"title":"First"}']);
};

const needsToken = async (server: RunningExample): Promise<void> => {
  assert.equal((await server.call('GET', list)).status, 401);
  assert.equal((await server.call('GET', list, { headers: bearer })).status, 200);
};

const findUser = "const findUser = (cookie) => (cookie === 'session=ada' ? 'ada' : undefined);\n";

const fetchStart = `import { serve } from '@hono/node-server';
  import { createFetchHandler } from 'work-item-gateway/fetch';\n`;
const fetchEnd = 'serve({ fetch: call, port: 3000 });\n';

const needsSession = async (server: RunningExample): Promise<void> => {
  const refused = await server.call('GET', list);
  assert.deepEqual([refused.status, refused.text], [401, '{"error":"Unauthorized"}']);
  const headers: Headers = [['Cookie', 'session=ada']];
  const reply = await server.call('GET', list, { headers });
  assert.deepEqual([reply.status, reply.text], [200, '[]']);
};

const hasOtherErrors = async (server: RunningExample): Promise<void> => {
  const text = '{"title":"Invalid ID format","status":400}';
  const refused = await server.call('GET', `${list}/x`);
  assert.deepEqual([refused.status, refused.text], [400, text]);
  assert.equal(refused.header('content-length'), String(text.length));
  const failed = await server.call('PUT', `${list}/5`, { body: 'no JSON' });
  assert.deepEqual([failed.status, failed.text], [500, '{"title":"Failed to update work item","status":500}']);
  const head = await server.call('HEAD', `${list}/x`);
  assert.deepEqual([head.status, head.text], [400, '']);
  const reply = await server.call('GET', list);
  assert.deepEqual([reply.status, reply.text], [200, '[]']);
};

async function assertLimit(call: () => Promise<Reply>): Promise<Reply> {
  for (let count = 0; count < 100; count += 1) assert.equal((await call()).status, 200);
  const reply = await call();
  assert.equal(reply.status, 429);
  return reply;
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

function toLoopback(value: string): string {
  return value.replace(/^::$/, '127.0.0.1').replace('//backend:', '//127.0.0.1:');
}

const elsewhere = (file: string): string => `run by ${file}`;

// For each code block: a text that identifies it, and the block's test or the reason why it is not run.
const rows: Readonly<Record<string, Readonly<Record<string, Run | string>>>> = {
  'README.md': {
    'npm ci && npm start': async (place, block) => {
      const [cloned, started, ...calls] = sessionsIn(place.here(block));
      const { url } = manifest.repository;
      const address = url.replace(/^git\+|\.git$/g, '');
      assert.equal(cloned?.command, `git clone ${address} && cd ${address.split('/').at(-1)}`);
      const server = await place.start('npm start');
      await poll(() => server.output.includes('Ctrl-C'), 'the server is ready');
      for (const line of started?.printed.split('\n') ?? []) assert.ok(server.output.includes(line), line);
      assert.equal(calls.length, 3);
      for (const { command, printed } of calls) {
        assert.equal(`${await place.output(`${command} -s`)}\n`, printed);
      }
    },
    'npm run serve': async (place, block) => {
      const server = await place.start(block.trim());
      assert.equal((await server.call('GET', `${list}/x`)).text, '{"error":"Invalid ID format"}');
    },
  },
  'docs/hosts.md': {
    'export { call as GET, call as POST': elsewhere('test/examples/nextjs.test.ts'),
    'const app = Fastify(': serves,
    'express()': serves,
    NestFactory: elsewhere('test/examples/nestjs.test.ts'),
    "createServer } from 'node:http';\nimport { createNodeHandler }": serves,
    'const app = new Hono()': serves,
    'export default { port': elsewhere('test/examples/runtimes.test.ts'),
    'Deno.serve': elsewhere('test/examples/runtimes.test.ts'),
    'next();': async (place, block) => {
      const start = `import express from 'express';
        import { createNodeHandler } from 'work-item-gateway/node';
        const app = express();\n`;
      await needsSession(await place.startFile('server.mjs', `${start}${findUser}${block}app.listen(3000);\n`));
    },
    "request.headers.get('cookie')": async (place, block) => {
      await needsSession(await place.startFile('server.mjs', `${fetchStart}${findUser}${block}${fetchEnd}`));
    },
    "addHook('onSend'": async (place, block) => {
      const start = `import Fastify from 'fastify';
        import { workItemGateway } from 'work-item-gateway';
        const app = Fastify();\n`;
      const end = `await app.register(workItemGateway, { backendUrl: 'http://localhost:5104' });
        await app.listen({ port: 3000 });\n`;
      await hasOtherErrors(await place.startFile('server.mjs', `${start}${block}${end}`));
    },
    "headers.delete('content-length')": async (place, block) => {
      await hasOtherErrors(await place.startFile('server.mjs', `${fetchStart}${block}${fetchEnd}`));
    },
    'outcome unreachable': async (place, block) => {
      const code = codeBlocks('docs/hosts.md').find((each) => each.includes('createServer('));
      const server = await place.startFile('server.mjs', (code ?? '').replace('5104', '1'));
      await server.call('GET', `${list}/5`);
      await poll(() => server.output.includes('\n'), 'the line of the failure');
      const plain = (line: string) => line.replaceAll(/\(request id [^)]*\)|Cause: .*$/gm, '').trim();
      assert.equal(plain(server.output), plain(block));
    },
    'toJSON()': async (place, block) => {
      const start = `import { serve } from '@hono/node-server';
        import { createFetchHandler } from 'work-item-gateway/fetch';\n`;
      const server = await place.startFile('server.mjs', `${start}${block}serve({ fetch: call, port: 3000 });\n`);
      await server.call('GET', `${list}/5`);
      await poll(() => server.output.includes('"msg":"call"'), 'the line of the call');
      assert.match(
        server.output,
        /"requestId":"[^"]+","operation":"read","method":"GET","path":"\/api\/work-items\/5"/,
      );
    },
    'fastify.inject(': async (place, block) => {
      const start = `import assert from 'node:assert/strict';
        import { createServer } from 'node:http';
        import { test } from 'node:test';
        import Fastify from 'fastify';
        import { Hono } from 'hono';
        import { workItemGateway } from 'work-item-gateway';
        import { createFetchHandler } from 'work-item-gateway/fetch';
        import { createNodeHandler } from 'work-item-gateway/node';\n`;
      example.write('route.test.mjs', start + block);
      assert.match(await place.output('node --test --test-reporter=tap route.test.mjs'), /^# pass 1$/m);
    },
    "once('SIGTERM'": async (place, block) => {
      const backend = createServer().listen(0, '127.0.0.1');
      const called = once(backend, 'request') as Promise<Parameters<RequestListener>>;
      await once(backend, 'listening');
      try {
        const start = `import { createServer } from 'node:http';
          import { createNodeHandler } from 'work-item-gateway/node';\n`;
        const { port } = backend.address() as AddressInfo;
        const server = await place.startFile('server.mjs', start + block.replace('5104', String(port)));
        const reply = server.call('GET', list);
        const [, response] = await called;
        server.process.kill('SIGTERM');
        await poll(() => isRefused(place.port), 'the server listens no more');
        response.end('["in flight"]');
        assert.equal((await reply).text, '["in flight"]');
        assert.deepEqual(await server.exited, { code: 0, signal: null });
      } finally {
        backend.close();
        backend.closeAllConnections();
      }
    },
    'createGatewayServer(': async (place, block) => {
      await needsToken(await place.startFile('server.mjs', block));
    },
    'backendUrl: process.env.BACKEND_URL': async (place, block) => {
      example.write('route.mjs', place.here(`import { createFetchHandler } from 'work-item-gateway/fetch';\n${block}`));
      const code = `import { serve } from '@hono/node-server';\nimport { GET } from './route.mjs';\n`;
      await needsToken(await place.startFile('server.mjs', `${code}serve({ fetch: GET, port: 3000 });\n`));
    },
    'getConnInfo(context)': async (place, block) => {
      const start = `import { serve } from '@hono/node-server';
        import { getConnInfo } from '@hono/node-server/conninfo';
        import { Hono } from 'hono';
        import { createFetchHandler } from 'work-item-gateway/fetch';
        const app = new Hono();\n`;
      const code = `${start}${block}serve({ fetch: app.fetch, port: 3000 });\n`;
      const server = await place.startFile('server.mjs', code);
      await assertLimit(() => server.call('GET', list));
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
      const backend = createTlsServer(options, (_request, response) => response.end('["over TLS"]'));
      await once(backend.listen(0, '127.0.0.1'), 'listening');
      try {
        const { port } = backend.address() as AddressInfo;
        const line = block.replaceAll('\\\n', ' ').replace('10.0.0.7:5104', `127.0.0.1:${port}`);
        const server = await place.start(line.trim());
        assert.equal((await server.call('GET', list)).text, '["over TLS"]');
      } finally {
        backend.close();
        backend.closeAllConnections();
      }
    },
    'openid-configuration': async (place, block) => {
      const shown = block.split('\n').flatMap((line) => (line.startsWith('# ') ? [line.slice(2)] : []));
      assert.deepEqual((await place.output(block)).trim().split('\n'), shown);
    },
    'AUTH_SCOPES=': async (place, block) => {
      await place.start('work-item-gateway backend');
      await needsToken(await place.start(block.replaceAll('\\\n', ' ').trim()));
    },
    'TOKEN=$(curl': async (place, block) => {
      const gateway = codeBlocks('docs/security.md').find((each) => each.includes('AUTH_SCOPES='));
      await place.start('work-item-gateway backend');
      await place.start((gateway ?? '').replaceAll('\\\n', ' ').trim());
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
    'serve --cors-origins': async (place, block) => {
      const server = await place.start(block.trim());
      const headers: Headers = [['Origin', 'https://app.example.com']];
      const reply = await server.call('GET', `${list}/x`, { headers });
      assert.equal(reply.header('access-control-allow-origin'), 'https://app.example.com');
    },
    'access-control-request-method': async (place, block) => {
      await place.start('work-item-gateway serve --cors-origins https://app.example.com');
      await assertHeads(place, block);
    },
    'serve --rate-limit 100/60s\n': async (place, block) => {
      await place.start('work-item-gateway backend');
      const server = await place.start(block.trim());
      await assertLimit(() => server.call('GET', list));
    },
    'HTTP/1.1 429': async (place, block) => {
      await place.start('work-item-gateway backend');
      const server = await place.start('work-item-gateway serve --rate-limit 100/60s');
      await assertLimit(() => server.call('GET', list));
      await assertHeads(place, block);
    },
    'option forwardfor': elsewhere('test/docs/haproxy-lines.test.ts'),
    '--trusted-proxies': elsewhere('test/docs/haproxy-lines.test.ts'),
    'RATE_LIMIT_REDIS_URL=': async (place, block) => {
      await place.start('work-item-gateway backend');
      // The block's Redis does not exist here, so the gateway counts by itself.
      const server = await place.start(`${commandsIn(block).join(' ')} npm run serve`);
      assert.equal((await server.call('GET', list)).status, 200);
    },
    'work-item-gateway check': elsewhere('test/process/own-authority.test.ts'),
    'ACL SETUSER': elsewhere('test/docs/redis-user.test.ts'),
  },
  'docs/operating.md': {
    '"reachable":false': async (place, block) => {
      await place.start('work-item-gateway serve');
      const shown = await place.output('curl -s http://localhost:9464/readyz');
      assert.deepEqual(keysOf(shown), keysOf(block));
    },
    '"msg":"backend call failed"': async (place, block) => {
      const server = await place.start('work-item-gateway serve');
      await server.call('PUT', `${list}/12`, { body: '{}', headers: [['User-Agent', 'curl/8.5.0']] });
      const lines = (): string[] => server.output.split('\n').filter((each) => each.endsWith('"backend call failed"}'));
      await poll(() => lines().length > 0, 'the line of the failure');
      const withoutToken = keysOf(block).filter((key) => key !== 'subject');
      assert.deepEqual(keysOf(lines()[0] ?? ''), withoutToken);
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
      assert.deepEqual(services.gateway.ports, [
        `${defaultOf('port', 'serve')}:${defaultOf('port', 'serve')}`,
        `127.0.0.1:${defaultOf('adminPort', 'serve')}:${defaultOf('adminPort', 'serve')}`,
      ]);
      for (const { build, environment, command = 'serve' } of [services.backend, services.gateway]) {
        assert.equal(build, '.', 'the image is built in the repository');
        const variables = Object.entries(environment).map(([name, value]) => `${name}=${toLoopback(value)}`);
        await place.start(`${variables.join(' ')} work-item-gateway ${command}`);
      }
      assert.match(await place.output('curl -si http://localhost:3000/api/work-items'), /^HTTP\/1.1 200 .*\r\n\[\]$/s);
      assert.match(await place.output('curl -si http://localhost:9464/readyz'), /^HTTP\/1.1 200 /);
    },
    'kubectl apply': 'needs a cluster; test/deploy/kubernetes.test.ts checks the manifests',
    'sudo install -D': 'needs root and systemd; test/deploy/systemd.test.ts runs the units',
    'systemctl reload work-item-gateway': 'needs root and systemd; test/deploy/systemd.test.ts runs the units',
    'systemctl disable --now': 'needs root and systemd; test/deploy/systemd.test.ts runs the units',
    'haproxy -c -f': elsewhere('test/deploy/haproxy.test.ts'),
  },
  'CONTRIBUTING.md': {
    'git clone': "needs the repository's host",
    "['1,5', '1']": (_place, block) => {
      const [[id = '', sent = ''] = []] = JSON.parse(
        `[${block.trim().replace(/,$/, '').replaceAll("'", '"')}]`,
      ) as string[][];
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

test('docs/hosts.md: both calls that try out the route succeed', { skip: noCurl }, async () => {
  const calls = /Then\s`(curl [^`]+)` shows `([^`]+)`, and\s`(curl [^`]+)` makes/.exec(
    readFileSync(join(root, 'docs/hosts.md'), 'utf8'),
  );
  assert.ok(calls);
  const [, look = '', shown, make = ''] = calls;
  await using place = await Place.open();
  const code = codeBlocks('docs/hosts.md').find((each) => each.includes('createServer('));
  await place.startFile('server.mjs', code ?? '');
  assert.equal(await place.output(`${look} -s`), shown);
  assert.equal(await place.output(`${make} -s`), '{"id":1,"title":"First"}');
});
