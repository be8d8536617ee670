// Each block of code in the documents for users, as it stands there: pasted into an empty folder with the package, run,
// and what it serves is called. Only ports and the names of machines are changed.

import assert from 'node:assert/strict';
import { createServer, type RequestListener } from 'node:http';
import { createServer as createTlsServer } from 'node:https';
import { once } from 'node:events';
import type { AddressInfo } from 'node:net';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, describe, test } from 'node:test';
import { noOpenssl } from '../helpers/certificates.ts';
import { codeBlocks } from '../helpers/documents.ts';
import { Example, linesOfDocument, type RunningExample } from '../helpers/examples.ts';
import { findFreePort } from '../helpers/haproxy.ts';
import { createPair, goodToken, keySetOf } from '../helpers/issuer.ts';
import { poll } from '../helpers/changes.ts';
import type { Headers, Reply } from '../helpers/raw-client.ts';

const example = Example.link();
const pair = createPair('one', 'ES256');
const token = goodToken(pair, undefined, {
  iss: 'https://login.example.com/',
  aud: 'https://items.example.com',
  scope: 'items.read',
});
const bearer: Headers = [['Authorization', `Bearer ${token}`]];
const list = '/api/work-items';
after(() => {
  example[Symbol.dispose]();
});

interface Local {
  readonly url: string;
  readonly stop: () => void;
}

/** What a block is run in: ports of its own, and processes that end with it. */
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

  /** A block with the ports, the issuer and the commands that there are here. */
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

  /** Starts a server by a line of the shell. */
  async start(line: string): Promise<RunningExample> {
    const command = this.here(line).replace('work-item-gateway', 'exec work-item-gateway');
    const port = command.endsWith(' backend') ? this.#backendPort : this.port;
    return await this.#run('bash', ['-c', command], port);
  }

  /** Starts what is written in a file of JavaScript or TypeScript. */
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

  /** Runs lines of the shell to their end. */
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

type Run = (place: Place, block: string) => Promise<void>;

/** The commands of a block: the first starts a server, each of the others runs to its end. */
function commandsIn(block: string): string[] {
  return block
    .replaceAll('\\\n', ' ')
    .split('\n')
    .filter((line) => line !== '' && !line.startsWith('#'));
}

/** What `console` shows: each command, and what it prints. */
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

async function assertLimit(call: () => Promise<Reply>): Promise<Reply> {
  for (let count = 0; count < 100; count += 1) assert.equal((await call()).status, 200);
  const reply = await call();
  assert.equal(reply.status, 429);
  return reply;
}

/** A server with TLS, and the commands after it; gives what each prints, or the exit code of curl. */
async function runTls(place: Place, block: string): Promise<string[]> {
  const [start = '', ...others] = commandsIn(block);
  const server = await place.start(start);
  await poll(() => server.output.includes('Ctrl-C'), 'it is ready');
  const printed = [];
  for (const line of others) {
    printed.push(
      await place.output(line).catch((error: unknown) => `exit ${(error as { code: number }).code}`),
    );
  }
  return printed;
}

const elsewhere = (file: string): string => `run by ${file}`;

// Each block by a part of it, and how it is run or why it is not.
const rows: Readonly<Record<string, readonly (readonly [part: string, run: Run | string])[]>> = {
  'README.md': [
    [
      'npm ci && npm start',
      async (place, block) => {
        const [started, ...calls] = sessionsIn(place.here(block));
        const server = await place.start('npm start');
        await poll(() => server.output.includes('Ctrl-C'), 'it is ready');
        for (const line of started?.printed.split('\n') ?? []) assert.ok(server.output.includes(line), line);
        assert.equal(calls.length, 3);
        for (const { command, printed } of calls) {
          assert.equal(`${await place.output(`${command} -s`)}\n`, printed);
        }
      },
    ],
    [
      'npm run serve',
      async (place, block) => {
        const server = await place.start(block.trim());
        assert.equal((await server.call('GET', `${list}/x`)).text, '{"error":"Invalid ID format"}');
      },
    ],
  ],
  'docs/hosts.md': [
    ['export { call as GET, call as POST', elsewhere('test/examples/nextjs.test.ts')],
    ['const app = Fastify(', serves],
    ['express()', serves],
    ['NestFactory', elsewhere('test/examples/nestjs.test.ts')],
    ['createServer(', serves],
    ['context) => call(context.req.raw));', serves],
    ['export default { port', elsewhere('test/examples/runtimes.test.ts')],
    ['Deno.serve', elsewhere('test/examples/runtimes.test.ts')],
    [
      'work-item-gateway: unreachable',
      async (place, block) => {
        const code = codeBlocks('docs/hosts.md').find((each) => each.includes('createServer('));
        const server = await place.startFile('server.mjs', (code ?? '').replace('5104', '1'));
        await server.call('GET', `${list}/5`);
        await poll(() => server.output.includes('\n'), 'a line');
        const plain = (line: string) => line.replaceAll(/\(request id [^)]*\)|Cause: .* Look/g, '').trim();
        assert.equal(plain(server.output), plain(block));
      },
    ],
    [
      'createGatewayServer(',
      async (place, block) => {
        await needsToken(await place.startFile('server.mjs', block));
      },
    ],
    [
      'await app.register(workItemGateway',
      async (place, block) => {
        const start =
          "import Fastify from 'fastify';\nimport { workItemGateway } from 'work-item-gateway';\n";
        const code = `${start}const app = Fastify();\n${block}await app.listen({ port: 3000 });\n`;
        await needsToken(await place.startFile('server.mjs', code));
      },
    ],
    [
      'backendUrl: process.env.BACKEND_URL',
      async (place, block) => {
        example.write(
          'route.mjs',
          place.here(`import { createFetchHandler } from 'work-item-gateway/fetch';\n${block}`),
        );
        const code = `import { serve } from '@hono/node-server';\nimport { GET } from './route.mjs';\n`;
        await needsToken(await place.startFile('server.mjs', `${code}serve({ fetch: GET, port: 3000 });\n`));
      },
    ],
    [
      'getConnInfo(context)',
      async (place, block) => {
        const start = `import { serve } from '@hono/node-server';
          import { getConnInfo } from '@hono/node-server/conninfo';
          import { Hono } from 'hono';
          import { createFetchHandler } from 'work-item-gateway/fetch';
          const app = new Hono();\n`;
        const code = `${start}${block}serve({ fetch: app.fetch, port: 3000 });\n`;
        const server = await place.startFile('server.mjs', code);
        await assertLimit(() => server.call('GET', list));
      },
    ],
  ],
  'docs/clients.md': [
    [
      'npx openapi-typescript',
      async (place, block) => {
        // Its first line installs what is here.
        const [, ...lines] = commandsIn(block);
        await place.start('npm start');
        await place.output(['set -e', ...lines].join('\n'));
        assert.match(readFileSync(join(example.folder, 'schema.ts'), 'utf8'), /export interface paths/);
      },
    ],
    [
      'createClient<paths>',
      async (place, block) => {
        await place.start('npm start');
        example.write('client.ts', place.here(block));
        assert.match(
          await example.output('node', ['client.ts']),
          /^\{\n {2}id: 1,\n {2}title: 'Sign-in fails/,
        );
      },
    ],
    ["from 'work-item-gateway/client'", 'shows what there is not'],
  ],
  'docs/security.md': [
    [
      'CN=My authority',
      async (place, block) => {
        await place.output(`set -e\n${block}`);
        assert.match(readFileSync(join(example.folder, 'client.pem'), 'utf8'), /BEGIN CERTIFICATE/);
      },
    ],
    [
      'npm start\ncurl --cacert ca.pem https',
      async (place, block) => {
        const [item = '', refused] = await runTls(place, block);
        assert.match(item, /^\{"id":1,/);
        assert.equal(refused, 'exit 52', 'an empty reply');
      },
    ],
    [
      'TLS_CLIENT_CA_FILE=ca.pem',
      async (place, block) => {
        const [item = '', refused = ''] = await runTls(place, block);
        assert.match(item, /^\{"id":1,/);
        assert.match(refused, /^exit \d+$/);
      },
    ],
    ['"use":"clients"', 'a line of the log'],
    [
      'BACKEND_SERVER_NAME=',
      async (place, block) => {
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
    ],
    ['unable to verify the first certificate: BACKEND_CA_FILE', 'a line of the log'],
    [
      'openid-configuration',
      async (place, block) => {
        const shown = block.split('\n').flatMap((line) => (line.startsWith('# ') ? [line.slice(2)] : []));
        assert.deepEqual((await place.output(block)).trim().split('\n'), shown);
      },
    ],
    [
      'AUTH_SCOPES=',
      async (place, block) => {
        await place.start('work-item-gateway backend');
        await needsToken(await place.start(block.replaceAll('\\\n', ' ').trim()));
      },
    ],
    [
      'TOKEN=$(curl',
      async (place, block) => {
        const gateway = codeBlocks('docs/security.md').find((each) => each.includes('AUTH_SCOPES='));
        await place.start('work-item-gateway backend');
        await place.start((gateway ?? '').replaceAll('\\\n', ' ').trim());
        const printed = await place.output(block, { CLIENT: 'a', SECRET: 'b' });
        assert.deepEqual(printed.match(/(?<=HTTP\/1\.1 )\d+/g), ['401', '200', '403']);
        for (const [, challenge = ''] of block.matchAll(/\d{3}, (Bearer .*)$/gm)) {
          assert.ok(printed.includes(`www-authenticate: ${challenge}\r\n`), challenge);
        }
      },
    ],
    [
      'HTTP2=true',
      async (place, block) => {
        const [printed = ''] = await runTls(place, block);
        assert.match(printed, /^\{"id":1,.*\}2\n$/);
      },
    ],
    ['alpn h2,http/1.1', elsewhere('test/docs/haproxy-lines.test.ts')],
    [
      'serve --cors-origins',
      async (place, block) => {
        const server = await place.start(block.trim());
        const headers: Headers = [['Origin', 'https://app.example.com']];
        const reply = await server.call('GET', `${list}/x`, { headers });
        assert.equal(reply.header('access-control-allow-origin'), 'https://app.example.com');
      },
    ],
    [
      'const reply = await fetch(',
      async (place, block) => {
        await place.start('npm start');
        example.write('page.mjs', place.here(`const token = 'any';\n${block}console.log(reply.status);\n`));
        assert.equal(await example.output('node', ['page.mjs']), '200\n');
      },
    ],
    [
      'access-control-request-method',
      async (place, block) => {
        await place.start('work-item-gateway serve --cors-origins https://app.example.com');
        for (const { command, printed } of sessionsIn(block)) {
          const lines = (await place.output(`${command} -s`)).split('\r\n');
          const shown = printed.trim().split('\n');
          assert.deepEqual(
            lines.filter((line) => shown.includes(line)),
            shown,
          );
        }
      },
    ],
    [
      'serve --rate-limit 100/60s\n',
      async (place, block) => {
        await place.start('work-item-gateway backend');
        const server = await place.start(block.trim());
        await assertLimit(() => server.call('GET', list));
      },
    ],
    [
      'HTTP/1.1 429',
      async (place, block) => {
        await place.start('work-item-gateway backend');
        const server = await place.start('work-item-gateway serve --rate-limit 100/60s');
        await assertLimit(() => server.call('GET', list));
        for (const { command, printed } of sessionsIn(block)) {
          const plain = (line: string) => line.replace(/^(retry-after: |.*;t=)\d+$/, '$1');
          const lines = (await place.output(`${command} -s`)).split('\r\n').map(plain);
          const shown = printed
            .trim()
            .split('\n')
            .filter((line) => line !== '...')
            .map(plain);
          assert.deepEqual(
            lines.filter((line) => shown.includes(line)),
            shown,
          );
        }
      },
    ],
    ['option forwardfor', elsewhere('test/docs/haproxy-lines.test.ts')],
    ['--trusted-proxies', elsewhere('test/docs/haproxy-lines.test.ts')],
    [
      'RATE_LIMIT_REDIS_URL=',
      async (place, block) => {
        await place.start('work-item-gateway backend');
        // Its Redis is not there, and so each counts by itself.
        const server = await place.start(`${commandsIn(block).join(' ')} npm run serve`);
        assert.equal((await server.call('GET', list)).status, 200);
      },
    ],
    ['work-item-gateway check', elsewhere('test/process/own-authority.test.ts')],
    ['ACL SETUSER', elsewhere('test/docs/redis-user.test.ts')],
    ['does not count: unable to verify', 'a line of check'],
  ],
};

for (const [document, blocks] of Object.entries(rows)) {
  describe(document, { skip: noOpenssl }, () => {
    test('each block of code is run, or a reason says why not', () => {
      const matches = codeBlocks(document).map((block) => blocks.findIndex(([part]) => block.includes(part)));
      assert.deepEqual(
        matches,
        blocks.map((_, index) => index),
        'in their order',
      );
    });

    for (const [index, [part, run]] of blocks.entries()) {
      test(part.split('\n')[0], { skip: typeof run === 'string' && run }, async () => {
        assert.ok(typeof run === 'function');
        await using place = await Place.open();
        await run(place, codeBlocks(document)[index] ?? '');
      });
    }
  });
}

test('docs/hosts.md: its table says how many lines each host takes', () => {
  for (const host of ['Next.js', 'Fastify', 'Express 5', 'NestJS', 'Node.js', 'Hono', 'Bun', 'Deno']) {
    assert.ok(linesOfDocument(host).length > 0);
  }
});

test('docs/hosts.md: the two calls with which a reader sees that it works', async () => {
  const calls = /Then\n`(curl [^`]+)` shows `([^`]+)`.*\n`(curl [^`]+)` makes/.exec(
    readFileSync(join(import.meta.dirname, '../../docs/hosts.md'), 'utf8'),
  );
  assert.ok(calls);
  const [, look = '', shown, make = ''] = calls;
  await using place = await Place.open();
  const code = codeBlocks('docs/hosts.md').find((each) => each.includes('createServer('));
  await place.startFile('server.mjs', code ?? '');
  assert.equal(await place.output(`${look} -s`), shown);
  assert.equal(await place.output(`${make} -s`), '{"id":1,"title":"First"}');
});
