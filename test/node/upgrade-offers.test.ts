// Requests that offer to upgrade, in servers of node:http: the offer is ignored, and every request that follows is served
// [D27]. Node's parser stops after an offer.

import assert from 'node:assert/strict';
import { fork } from 'node:child_process';
import { once } from 'node:events';
import { createServer, type IncomingMessage, type Server } from 'node:http';
import { createServer as createSecureServer } from 'node:https';
import type { AddressInfo } from 'node:net';
import { describe, test } from 'node:test';
import express from 'express';
import { anyCertificate } from '../helpers/certificates.ts';
import { poll } from '../helpers/changes.ts';
import { assertReply, methodNotAllowed, operation, succeeded } from '../helpers/expected.ts';
import { startGateway } from '../helpers/gateway.ts';
import { RawClient, requestBytes } from '../helpers/raw-client.ts';
import { answer } from '../helpers/scripted-backend.ts';
import { nodeHosts } from '../plugin/hosts.ts';

const offers = {
  h2c: [['Connection', 'Upgrade, HTTP2-Settings'], ['Upgrade', 'h2c'], ['HTTP2-Settings', 'AAEAAEAAAAIAAAAAAAMAAAAAAAQBAAAAAAUAAEAAAAYABgAA']],
  websocket: [['connection', 'keep-alive, upgrade'], ['upgrade', 'websocket'], ['sec-websocket-version', '13']],
  'h2c without a connection option': [['Upgrade', 'h2c']],
} as const; // prettier-ignore
const [read, update] = [operation(3), operation(4)];
const offer = requestBytes('GET', read.path, { headers: offers.h2c });
const deletion = requestBytes('DELETE', read.path);

/** Starts `server` on a free port. */
async function listening(server: Server) {
  await once(server.listen(0, '127.0.0.1'), 'listening');
  const close = () => {
    server.close();
    server.closeAllConnections();
  };
  return { port: (server.address() as AddressInfo).port, [Symbol.dispose]: close };
}

const hosts = [
  ...nodeHosts.filter(({ name }) => !name.includes('oldest')),
  { name: 'the fetch handler in Hono', serve: (settings = {}) => startGateway({ host: 'fetch', settings }) },
  {
    name: 'Express, after asynchronous middleware',
    serve: (settings = {}) =>
      startGateway({
        host: 'node',
        settings,
        mount: (handler) =>
          express()
            .disable('x-powered-by')
            .use((_request, _response, next) => void setImmediate(() => next()))
            .use(handler),
      }),
  },
];

for (const host of hosts) {
  describe(host.name, () => {
    test('after each offer the connection goes on, and requests sent ahead are served in order, however the bytes are cut [D27]', async () => {
      await using server = await host.serve();
      await using client = await server.connect();
      for (const headers of Object.values(offers)) {
        const bytes = Buffer.concat([
          requestBytes('GET', read.path, { headers }),
          requestBytes('PUT', update.path, { headers, body: '{"a":1}' }),
          requestBytes('PUT', '/api/work-items/6', { body: '[]' }),
          requestBytes('PATCH', read.path, { headers }),
          requestBytes('GET', '/api/work-items/7', { headers }),
        ]);
        for (let cut = 0; cut <= bytes.length; cut += 23) {
          server.backend.reset();
          server.backend.answers(answer('{"id":5}'));
          await client.sendPieces([bytes.subarray(0, cut), bytes.subarray(cut)]);
          for (const [status, body] of [
            [200, '{"id":5}'], [200, succeeded], [200, succeeded], [405, methodNotAllowed], [200, '{"id":5}'],
          ] as const) {
            const reply = await client.reply();
            assert.deepEqual([reply.status, reply.text], [status, body], `cut at ${cut}`);
            assert.notEqual(reply.header('connection'), 'close');
          } // prettier-ignore
          const calls = server.backend.requests.map(
            ({ method, target, body }) => `${method} ${target} ${String(body)}`,
          );
          const expected = [
            'GET /api/WorkItem/5 ',
            'PUT /api/WorkItem/5 {"a":1}',
            'PUT /api/WorkItem/6 []',
            'GET /api/WorkItem/7 ',
          ];
          // Hono starts all requests at once, so their order differs.
          const isSorted = host.name.endsWith('Hono');
          assert.deepEqual(isSorted ? calls.toSorted() : calls, isSorted ? expected.toSorted() : expected);
        }
      }
    });

    test('malformed bytes after an offer end the connection, and are not served', async () => {
      for (const isTogether of [true, false]) {
        await using server = await host.serve();
        await using client = await server.connect();
        const rest = Buffer.concat([Buffer.from('GET /\0 HTTP/1.1\r\n\r\n'), deletion]);
        client.send(isTogether ? Buffer.concat([offer, rest]) : offer);
        if (!isTogether) {
          assertReply(await client.reply(), 200, '{"id":5}');
          client.send(rest);
        }
        await client.closed();
        assert.ok(server.backend.requests.every(({ method }) => method === 'GET'));
      }
    });

    test('requests after an offer wait while the client does not read its replies', async () => {
      await using server = await host.serve();
      const large = Buffer.alloc(8_000_000, '1');
      server.backend.answers((exchange) =>
        answer(exchange.request.target.endsWith('/5') ? '{"id":5}' : large)(exchange),
      );
      await using client = await server.connect();
      client.send(requestBytes('GET', '/api/work-items'));
      await client.receives(1);
      client.pause();
      await poll(() => server.backend.requests.length === 1, 'the list is requested');
      client.send(Buffer.concat([offer, offer, deletion]));
      client.resume();
      assert.equal((await client.reply()).body.length, large.length);
      for (const body of ['{"id":5}', '{"id":5}', succeeded]) assertReply(await client.reply(), 200, body);
    });
  });
}

const moduleOf = (host: string): string =>
  JSON.stringify(new URL(`../../packages/core/hosts/${host}.ts`, import.meta.url).href);

for (const [how, isClosed, script] of [
  [
    'a Node handler that is made within the first offer closes the connection',
    true,
    `import { createServer } from 'node:http';
    import { createNodeHandler } from ${moduleOf('node/node')};
    let handler;
    createServer((request, response) => {
      handler ??= createNodeHandler({ backendUrl: 'http://127.0.0.1:1' });
      handler(request, response);
    }).listen(0, '127.0.0.1', function () { process.send(this.address().port); });`,
  ],
  [
    'a fetch handler with a function as options serves what follows the first offer',
    false,
    `import { serve } from '@hono/node-server';
    import { createFetchHandler } from ${moduleOf('fetch/fetch')};
    const call = createFetchHandler(() => ({ backendUrl: 'http://127.0.0.1:1' }));
    serve({ fetch: (request) => call(request), port: 0, hostname: '127.0.0.1' }, ({ port }) => process.send(port));`,
  ],
] as const) {
  test(`in a process in which nothing has watched offers, ${how}`, async () => {
    const child = fork('-', {
      execArgv: ['--input-type=module', '--eval', script],
      stdio: ['ignore', 'ignore', 'ignore', 'ipc'],
    });
    try {
      const [port] = (await once(child, 'message')) as [number];
      await using client = await RawClient.open(port);
      client.send(Buffer.concat([offer, offer]));
      const reply = await client.reply();
      assert.deepEqual([reply.status, reply.header('connection') === 'close'], [500, isClosed]);
      if (isClosed) await client.closed();
      else assert.equal((await client.reply()).status, 500);
    } finally {
      child.kill();
    }
  });
}

const lacks: Record<string, (parser: Record<string | number, unknown>) => unknown> = {
  'the function execute': (parser) => (parser['execute'] = undefined),
  'the function getCurrentBuffer': (parser) => (parser['getCurrentBuffer'] = undefined),
  'the index of the function after a read': (parser) =>
    Object.defineProperty(parser, 'constructor', { configurable: true, value: {} }),
};
for (const [what, remove] of Object.entries(lacks)) {
  test(`if Node's parser lacks ${what}, the reply to an offer closes the connection`, async (t) => {
    await using server = await startGateway({ host: 'node' });
    const plain = createServer(server.handler).on('connection', ({ parser }: { parser: Record<string, unknown> }) => {
      const before = new Set(Object.keys(parser));
      remove(parser);
      // Node uses a parser again for other connections.
      t.after(() => {
        for (const name of Object.getOwnPropertyNames(parser)) {
          if (!before.has(name)) Reflect.deleteProperty(parser, name);
        }
      });
    });
    using started = await listening(plain);
    await using client = await RawClient.open(started.port);
    client.send(Buffer.concat([offer, deletion]));
    const reply = await client.reply();
    assertReply(reply, 200, '{"id":5}');
    assert.equal(reply.header('connection'), 'close');
    await client.closed();
    assert.equal(server.backend.requests.length, 1);
  });
}

test('over TLS, requests after an offer are served', async () => {
  await using server = await startGateway({ host: 'node' });
  using secure = await listening(createSecureServer(anyCertificate(), server.handler));
  await using client = await RawClient.openSecure(secure.port, { rejectUnauthorized: false });
  client.send(Buffer.concat([offer, offer, deletion]));
  for (const body of ['{"id":5}', '{"id":5}', succeeded]) assertReply(await client.reply(), 200, body);
});

test('with a listener for upgrades, an offer reaches the gateway if shouldUpgradeCallback declines it', async () => {
  await using server = await startGateway({ host: 'node' });
  const options = { shouldUpgradeCallback: ({ headers }: IncomingMessage) => headers.upgrade === 'websocket' };
  const plain = createServer(options as object, server.handler).on('upgrade', (_request, socket) =>
    socket.end('HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\n\r\n'),
  );
  using started = await listening(plain);
  await using client = await RawClient.open(started.port);
  client.send(Buffer.concat([offer, deletion]));
  for (const body of ['{"id":5}', succeeded]) assertReply(await client.reply(), 200, body);
  assert.equal((await client.call('GET', read.path, { headers: offers.websocket })).status, 101);
});

test('if something else reads the connection, the reply to an offer closes it', async () => {
  await using server = await startGateway({
    host: 'node',
    mount: (handler) => (request, response) => {
      request.socket.on('data', () => undefined);
      handler(request, response);
    },
  });
  await using client = await server.connect();
  assertReply(await client.call('GET', read.path), 200, '{"id":5}');
  client.send(Buffer.concat([offer, requestBytes('GET', '/api')]));
  const reply = await client.reply();
  assertReply(reply, 200, '{"id":5}');
  assert.equal(reply.header('connection'), 'close');
  await client.closed();
});
