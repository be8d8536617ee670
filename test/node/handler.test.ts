// The Node handler in servers and after middleware [D50]. test/spec/ tests its replies.

import assert from 'node:assert/strict';
import { once } from 'node:events';
import type { RequestListener } from 'node:http';
import http2 from 'node:http2';
import type { AddressInfo } from 'node:net';
import { Readable } from 'node:stream';
import { describe, test } from 'node:test';
import connect from 'connect';
import express, { type Request, type Response } from 'express';
import type { NodeHandler } from '../../packages/core/hosts/node/node.ts';
import { createGate, poll, within } from '../helpers/changes.ts';
import {
  assertHeaders,
  assertReply,
  badRequest,
  invalidId,
  methodNotAllowed,
  notFound,
  operation,
  operations,
  succeeded,
} from '../helpers/expected.ts';
import { startGateway, type Settings, type Told } from '../helpers/gateway.ts';
import { requestsFor, sendAll } from '../helpers/odd-targets.ts';
import { chunk, forever, RawClient, requestBytes } from '../helpers/raw-client.ts';
import { answer, behind, type ScriptedBackend } from '../helpers/scripted-backend.ts';

type Mount = (handler: NodeHandler) => RequestListener;

/** Creates an Express application without the header `x-powered-by`. */
function createExpress(): express.Express {
  return express().disable('x-powered-by');
}

/** Starts the handler in a Node server. */
const serve = (mount: Mount, settings: Settings = {}) => startGateway({ host: 'node', settings, mount });

/** Starts the handler in Express, after `middleware`. */
const serveAfter = (middleware: express.RequestHandler, settings?: Settings) =>
  serve((handler) => createExpress().use(middleware).use(handler), settings);

/** Starts the handler in Connect, after `middleware`. */
const serveInConnect = (middleware: connect.NextHandleFunction) =>
  serve((handler) => connect().use(middleware).use(handler));

/** A Node server, Express and Connect, each with only the handler. */
const nodeServers: [name: string, mount: Mount][] = [
  ['node:http', (handler) => handler],
  ['Express 5', (handler) => createExpress().use(handler) as RequestListener],
  ['Connect', (handler) => connect().use(handler)],
];

const callsOf = ({ requests }: ScriptedBackend): string[] =>
  requests.map(({ method, target }) => `${method} ${target}`);

/** Passes a request with another body to the handler, as a proxy in front of it may do. */
const serveWithBody = (body: readonly string[], isAnnounced = true) =>
  serve((handler) => (request, response) => {
    const { method, url, headers, rawHeaders, socket, httpVersionMajor, httpVersionMinor } = request;
    if (!isAnnounced) delete headers['content-length'];
    const parts = { method, url, headers, rawHeaders, socket, httpVersionMajor, httpVersionMinor };
    handler(Object.assign(Readable.from(body.map((piece) => Buffer.from(piece))), parts) as never, response);
  });

test('a body that the host has cut or extended is 400 without a backend call, if its content-length is known [D70]', async () => {
  for (const body of [[], ['{'], ['{}', '   '], ['{"a"', ':1} ']]) {
    await using server = await serveWithBody(body);
    for (const { method, path } of [operation(2), operation(4), operation(5)]) {
      assertReply(await server.call(method, path, { body: '{ }' }), 400, badRequest);
    }
    assert.deepEqual(callsOf(server.backend), []);
  }
  for (const [body, isAnnounced] of [
    [['[1', ']'], true],
    [['{}', '   '], false],
  ] as const) {
    await using server = await serveWithBody(body, isAnnounced);
    assertReply(await server.call('PUT', '/api/work-items/5', { body: '{ }' }), 200, succeeded);
    assert.equal(String(server.backend.requests[0]?.body), body.join(''));
  }
});

for (const [name, mount] of nodeServers) {
  describe(name, () => {
    test('the five operations are served, with the usual headers of the gateway [D24, D50]', async () => {
      await using server = await serve(mount);
      for (const { method, path, options, status, body } of operations) {
        assertReply(await server.call(method, path, options), status, body);
      }
      const expected = operations.map(({ method, backendTarget }) => `${method} ${backendTarget}`);
      assert.deepEqual(callsOf(server.backend), expected);
      assert.deepEqual(server.backend.violations, []);
    });

    test('errors that the server could answer itself get the replies of the specification [spec 7]', async () => {
      await using server = await serve(mount);
      for (const id of ['abc', '%zz', '', '%2F5']) {
        assertReply(await server.call('GET', `/api/work-items/${id}`), 400, invalidId);
      }
      const patched = await server.call('PATCH', '/api/work-items/5', { body: '{}' });
      assertReply(patched, 405, methodNotAllowed, ['allow']);
      assertHeaders(await server.call('OPTIONS', '/api/work-items'), ['allow']);
      assert.deepEqual(server.backend.requests, []);
    });

    test('when a client leaves, a read is cancelled but a write is not [D21]', async () => {
      await using server = await serve(mount);
      const gate = createGate();
      server.backend.answers(behind(gate, answer('{"id":5}')));
      for (const method of ['DELETE', 'GET']) {
        await using client = await RawClient.open(server.port);
        client.send(requestBytes(method, '/api/work-items/5'));
        await server.backend.nextRequest();
      }
      // The client of the read left last, so the gateway now knows that both clients have left.
      await server.backend.connectionClosed(1);
      assert.equal(server.backend.isClosed(0), false);
      gate.open();
      await poll(() => server.told.ended.length === 2, 'both calls have ended');
      assert.deepEqual(
        server.told.ended.map(({ method, outcome, backendOutcome }) => [method, outcome, backendOutcome]),
        [
          ['GET', 'client-gone', 'cancelled'],
          ['DELETE', 'client-gone', 'ok'],
        ],
      );
    });

    test('a client that leaves before its body is complete causes no backend call, and no byte stays buffered', async () => {
      await using server = await serve(mount, { bufferedBytesMax: 1_000 });
      for (const method of ['PUT', 'DELETE']) {
        await using client = await RawClient.open(server.port);
        client.send(
          `${method} /api/work-items/5 HTTP/1.1\r\nHost: x\r\nContent-Length: 900\r\n\r\n"${'x'.repeat(800)}`,
        );
        client.reset();
      }
      await poll(() => server.told.ended.length === 2, 'both calls have ended');
      const body = `"${'x'.repeat(900)}"`;
      assertReply(await server.call('PUT', '/api/work-items/5', { body }), 200, succeeded);
      assert.deepEqual(callsOf(server.backend), ['PUT /api/WorkItem/5']);
    });

    test('a client that stops reading its reply is disconnected, and its buffered bytes are released [D26, D35]', async () => {
      // Long enough that the second client is not cut off, even if a busy machine delays its reading.
      const options = { replyStallTimeoutMs: 1_000, bufferedBytesMax: 30_000_000 };
      await using server = await serve(mount, options);
      server.backend.answers(answer(Buffer.alloc(24_000_000, '1')));
      await using client = await RawClient.open(server.port);
      client.send(requestBytes('GET', '/api/work-items'));
      await client.receives(1);
      client.pause();
      await poll(() => server.told.stalled.length === 1, 'the client is cut off');
      assert.equal(server.told.stalled[0], server.told.ended[0]);
      assert.equal((await server.call('GET', '/api/work-items')).status, 200);
    });
  });
}

describe('a path outside of /api/work-items', () => {
  const strangers = [
    '/', '/api', '/api/work-itemsx', '/api/work-item', '/API/work-items', '//api/work-items',
  ]; // prettier-ignore

  test('goes to the next handler [D50]', async () => {
    await using server = await serve((handler) =>
      connect()
        .use(handler)
        .use((_request, response) => response.end('the next')),
    );
    // Absolute-form targets also go to the next handler: middleware may parse them differently than the gateway [D60].
    for (const target of [...strangers, 'http://x/api/work-items/5']) {
      const reply = await server.call('GET', target);
      assert.deepEqual([reply.status, reply.text], [200, 'the next'], target);
    }
    assert.deepEqual(server.told.ended, []);
  });

  test('is 404 without a next handler [D5]', async () => {
    await using server = await startGateway({ host: 'node' });
    for (const target of strangers) {
      assertReply(await server.call('GET', target), 404, notFound);
    }
    assert.deepEqual(server.backend.requests, []);
  });
});

describe('a mounted handler sees the path that the client sent [D50]', () => {
  for (const [name, prefix, mount] of [
    ["app.use('/api/work-items', handler)", '', (handler) => createExpress().use('/api/work-items', handler)],
    ["Connect's use('/api', handler)", '', (handler) => connect().use('/api', handler)],
    ['a route of Express', '', (handler) => createExpress().all(['/api/work-items', '/api/work-items/*rest'], handler)],
    [
      'a router in a router, with a prefix',
      '/v1/of',
      (handler) => createExpress().use('/v1', express.Router().use('/of', express.Router().use(handler))),
    ],
  ] satisfies [string, string, Mount][]) {
    test(name, async () => {
      await using server = await serve(mount, { prefix });
      for (const { method, path, options, status, body, backendTarget } of operations) {
        assertReply(await server.call(method, prefix + path, options), status, body);
        assert.equal(server.backend.requests.at(-1)?.target, backendTarget);
        assertReply(await server.call(method, `${prefix}${path}?x=/api/work-items/7`, options), status, body);
        assert.equal(server.backend.requests.at(-1)?.target, backendTarget);
      }
      assertReply(await server.call('PUT', `${prefix}/api/work-items/x`), 400, invalidId);
    });
  }
});

describe('middleware before the handler', () => {
  test('a request that middleware refuses does not reach the handler, whatever its target [D60]', async () => {
    const deny = (_request: Request, response: Response): void => {
      response.status(401).json({ error: 'no entry' });
    };
    for (const [prefix, mount] of [
      ['', (handler) => createExpress().use('/api/work-items', deny).use(handler)],
      ['', (handler) => createExpress().use('/api/work-items', deny, handler)],
      ['/v1', (handler) => createExpress().use('/v1', deny).use(handler)],
      ['/v1', (handler) => createExpress().use('/v1', deny, handler)],
    ] satisfies [string, Mount][]) {
      await using server = await serve(mount, { prefix });
      const passed: string[] = [];
      const requests = requestsFor(['GET', 'DELETE'], prefix);
      await sendAll(server.port, requests, ({ method, target }, status) => {
        if (status !== 0 && status < 400) passed.push(`${method} ${target}: ${status}`);
      });
      assert.deepEqual(passed, []);
      assert.deepEqual(callsOf(server.backend), []);
      assert.equal((await server.call('GET', `${prefix}/api/work-items`)).status, 401);
    }
  });

  test('when middleware answers a request and calls next(), the backend is not called [D50]', async () => {
    await using server = await serveAfter((_request, response, next) => {
      response.status(401).json({ error: 'no entry' });
      next();
    });
    for (const { method, path, options } of operations) {
      const reply = await server.call(method, path, options);
      assert.deepEqual([reply.status, reply.text], [401, '{"error":"no entry"}']);
    }
    assert.deepEqual(server.backend.requests, []);
  });

  test('a path without an operation goes to next(), and an unknown method does not [D5, D60]', async () => {
    for (const prefix of ['', '/v1']) {
      const handled: string[] = [];
      await using server = await startGateway({
        host: 'node',
        settings: { prefix },
        mount: (handler) => {
          const app = express();
          app.use(handler);
          app.use((request, response) => {
            handled.push(request.originalUrl);
            response.status(418).end();
          });
          return app;
        },
      });
      const paths = ['/api/work-items/5/comments', '/api/work-items/5/', '/api/work-items/a/b?c', '/api/work-items//5'];
      const others = [...paths, '/api/work-itemsx', '/api/work-items.json', '/'].map((path) => prefix + path);
      for (const path of others) {
        for (const method of ['GET', 'POST', 'OPTIONS'])
          assert.equal((await server.call(method, path)).status, 418, path);
      }
      assert.deepEqual([...new Set(handled)], others);
      for (const [method, path, status] of [
        ['PATCH', '/api/work-items', 405],
        ['PATCH', '/api/work-items/5', 405],
        ['GET', '/api/work-items/', 400],
        ['GET', '/api/work-items/x?a=/b', 400],
        ['GET', '/api/work-items?a=/b/c', 200],
        ['GET', '/api/work-items/5?a=/b', 200],
        ['OPTIONS', '/api/work-items/5', 204],
      ] as const) {
        assert.equal((await server.call(method, prefix + path)).status, status, path);
      }
    }
  });

  test('a client that leaves before middleware calls next() causes no backend call [D21]', async () => {
    const begun = createGate();
    const left = createGate();
    await using server = await serveInConnect((request, response, next) => {
      if (request.method === 'DELETE') response.once('close', left.open).once('close', next);
      else next();
      begun.open();
    });
    const client = await RawClient.open(server.port);
    client.send(requestBytes('DELETE', '/api/work-items/5'));
    await within(begun.opened, 'middleware has begun');
    client.reset();
    await within(left.opened, 'the client has left');
    assertReply(await server.call('GET', '/api/work-items/5'), 200, '{"id":5}');
    assert.deepEqual(callsOf(server.backend), ['GET /api/WorkItem/5']);
    assert.equal(server.told.ended.length, 1);
  });

  test('a body is read even if middleware has paused the request', async () => {
    await using server = await serveInConnect((request, _response, next) => {
      request.pause();
      setImmediate(next);
    });
    assertReply(await server.call('PUT', '/api/work-items/5', { body: '[]' }), 200, succeeded);
  });

  test('if middleware replaces writeHead by a function that throws, the connection ends, and the record of the call has the error [D28]', async () => {
    const fault = new Error('of the middleware');
    await using server = await serveInConnect((_request, response, next) => {
      response.writeHead = () => {
        throw fault;
      };
      next();
    });
    await using client = await RawClient.open(server.port);
    client.send(requestBytes('GET', '/api/work-items'));
    await client.closed();
    assert.equal(client.bytesReceived, 0);
    assert.deepEqual(
      server.told.ended.map(({ outcome, cause }) => [outcome, cause]),
      [['bug', fault]],
    );
  });

  test("headers that middleware sets are added, but do not replace the gateway's headers [D24]", async () => {
    await using server = await serveAfter((_request, response, next) => {
      for (const name of [
        'Content-Type',
        'Content-Length',
        'Cache-Control',
        'X-Content-Type-Options',
        'X-Powered-By',
      ]) {
        response.setHeader(name, '1');
      }
      response.setHeader('Transfer-Encoding', 'chunked');
      response.setHeader('X-Request-Id', 'hidden');
      response.setHeader('Set-Cookie', ['a=1', 'b=2']);
      // Old versions of `on-headers` do this. Middleware for compression, sessions and logs uses that package.
      const writeHead = response.writeHead.bind(response);
      response.writeHead = (status: number) => writeHead(status);
      next();
    });
    const also = ['content-type', 'content-length', 'set-cookie', 'set-cookie', 'x-powered-by'];
    await using client = await RawClient.open(server.port);
    for (const { method, path, options, status, body } of operations) {
      const reply = await client.call(method, path, options);
      assert.deepEqual([reply.status, reply.text], [status, body]);
      assertHeaders(reply, also);
      assert.equal(reply.header('content-type'), 'application/json');
      assert.notEqual(reply.header('x-request-id'), 'hidden');
    }
  });

  test('lists that middleware has set, such as vary, keep their members [D24]', async () => {
    const origin = 'https://app.example';
    for (const [name, ofHost, expected] of [
      ['Vary', 'Accept-Encoding', 'Accept-Encoding, origin'],
      ['Vary', ['Cookie', 'ORIGIN, Accept'], 'Cookie, ORIGIN, Accept'],
      ['vary', '*', '*'],
      ['Access-Control-Expose-Headers', 'X-Mine, Retry-After', /^X-Mine, Retry-After, x-request-id, (?!.*retry-after)/],
      ['Access-Control-Expose-Headers', '*', '*'],
      ['RateLimit-Policy', '"host";q=9;w=1', /^"host";q=9;w=1, "[^,]+$/],
    ] as const) {
      const settings: Settings = { corsOrigins: [origin], rateLimit: '100/60s' };
      await using server = await serveAfter((_request, response, next) => {
        response.setHeader(name, ofHost);
        next();
      }, settings);
      const reply = await server.call('GET', '/api/work-items/5', { headers: [['Origin', origin]] });
      assert.equal(reply.status, 200);
      const value = reply.header(name.toLowerCase()) ?? '';
      if (typeof expected === 'string') assert.equal(value, expected);
      else assert.match(value, expected);
    }
  });

  describe('that replies before the gateway, such as a timeout', () => {
    const replies: Record<string, (response: Response, next: Promise<void>) => void> = {
      'with a whole reply': (response) => {
        response.status(503).send('too late');
      },
      'with a reply that has only begun': (response, next) => {
        response.writeHead(503).write('too ');
        void next.then(() => response.end('late'));
      },
    };
    for (const [how, send] of Object.entries(replies)) {
      /** Lets middleware reply to a call, and then the backend. */
      const replyTwice = async (method: string, settings: Settings, isEnded: (told: Told) => boolean) => {
        const isCalled = createGate();
        const isAnswered = createGate();
        const isOver = createGate();
        await using server = await serveAfter((request, response, next) => {
          if (request.url.endsWith('/5')) void isCalled.opened.then(() => send(response, isOver.opened));
          next();
        }, settings);
        server.backend.answers(behind(isAnswered, answer('{"id":5}')));
        await using client = await RawClient.open(server.port);
        client.send(requestBytes(method, '/api/work-items/5', method === 'PUT' ? { body: '{}' } : {}));
        await server.backend.nextRequest();
        isCalled.open();
        await client.receives(1);
        isAnswered.open();
        await poll(() => isEnded(server.told), 'the end of the call');
        isOver.open();
        const reply = await client.reply();
        assert.deepEqual([reply.status, reply.text], [503, 'too late']);
        assertReply(await client.call('GET', '/api/work-items/x'), 400, invalidId);
        return server.told;
      };

      test(`${how}: the client gets this reply whole, and the gateway has no bug [D28, D50]`, async () => {
        for (const method of ['GET', 'PUT', 'DELETE']) {
          const { ended, bugs } = await replyTwice(method, {}, (told) => told.ended.length === 1);
          const { outcome, status, replyBytes, cause } = ended[0] ?? {};
          assert.deepEqual([outcome, status, replyBytes], ['client-gone', 0, 0]);
          assert.match(String(cause), /^Error: other code of the host replied first, /);
          assert.deepEqual(bugs, []);
        }
      });

      test(`${how}: without an observer, a line says so`, async (context) => {
        const written = context.mock.method(console, 'error', () => undefined);
        await replyTwice('GET', { observer: undefined, log: undefined }, () => written.mock.callCount() > 0);
        assert.match(
          String(written.mock.calls[0]?.arguments[0]),
          /^work-item-gateway: GET \/api\/work-items\/5 \(request id [^)]+\) got no reply from the gateway: other code of the host replied first, .*\.$/,
        );
        assert.equal(written.mock.callCount(), 1);
      });
    }
  });

  test('without sec-fetch-site, an origin that the CORS of the host allows may write [D56]', async () => {
    await using server = await serveAfter((_request, response, next) => {
      response.setHeader('Access-Control-Allow-Origin', 'https://app.example');
      next();
    });
    const write = async (headers: [string, string][]) =>
      (await server.call('DELETE', '/api/work-items/5', { headers })).status;
    assert.equal(await write([['Origin', 'https://app.example']]), 200);
    assert.equal(await write([['Origin', 'https://other.example']]), 403);
    assert.equal(
      await write([
        ['Origin', 'https://app.example'],
        ['Sec-Fetch-Site', 'cross-site'],
      ]),
      403,
    );
  });

  test('pipelined requests make their calls in order, even if middleware takes longer for some of them [D27]', async () => {
    let turnsOfLast = 0;
    await using server = await serveAfter(async (_request, _response, next) => {
      for (let turns = (turnsOfLast += 7) % 5; turns > 0; turns -= 1) {
        await new Promise((resolve) => setImmediate(resolve));
      }
      next();
    });
    await using client = await RawClient.open(server.port);
    const ids = Array.from({ length: 100 }, (_, index) => index + 1);
    client.send(Buffer.concat(ids.map((id) => requestBytes('PUT', `/api/work-items/${id}`, { body: `[${id}]` }))));
    for (const id of ids) assert.equal((await client.reply()).text, succeeded, String(id));
    assert.deepEqual(
      server.backend.requests.map(({ target, body }) => `${target} ${body.toString()}`),
      ids.map((id) => `/api/WorkItem/${id} [${id}]`),
    );
  });
});

test('after an asynchronous guard has refused a request, the rest of its body is read and dropped; if the body exceeds the limit, the connection closes [D11]', async () => {
  await using server = await startGateway({
    host: 'node',
    settings: {
      requestBytesMax: 1_000,
      authIssuer: 'https://issuer.example',
      authAudience: ['items'],
      authJwksUrl: 'http://127.0.0.1:9/',
    },
  });
  await using client = await RawClient.open(server.port);
  client.send('PUT /api/work-items/5 HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n');
  client.send(chunk('x'.repeat(1_000)));
  assert.equal((await client.reply()).status, 401);
  // Sends continuously: otherwise Node's own time limit would close the connection.
  await within(client.sendPieces(forever(chunk('x'))), 'the connection is closed');
});

describe('a body that middleware has read', () => {
  const json = [['Content-Type', 'application/json']] as const;
  const mistake = /^the host has already read the request body: mount the handler before express\.json\(\)/;

  for (const [name, guards, added] of [
    ['without guards', {}, []],
    ['after an asynchronous guard', { rateLimit: '100/1h' }, ['ratelimit', 'ratelimit-policy']],
  ] as const) {
    test(`a write is 500 with the message of its operation, and the cause explains the fix: ${name} [D28, D50]`, async () => {
      await using server = await serveAfter(express.json(), guards);
      for (const { method, path, failure } of [operation(2), operation(4)]) {
        const reply = await server.call(method, path, { headers: json, body: '{"a":1}' });
        assertReply(reply, 500, failure, added);
      }
      assert.deepEqual(server.backend.requests, []);
      for (const { outcome, cause } of server.told.ended) {
        assert.equal(outcome, 'bug');
        assert.ok(cause instanceof Error);
        assert.match(cause.message, mistake);
        assert.match(cause.stack ?? '', /\n +at /);
      }
      assert.equal(server.told.ended.length, 2);
    });
  }

  test('calls that need no body are served, and so are calls whose body the parser does not read', async () => {
    await using server = await serveAfter(express.json());
    const body = { headers: json, body: '{"a":1}' };
    assertReply(await server.call('GET', '/api/work-items/5', body), 200, '{"id":5}');
    assertReply(await server.call('DELETE', '/api/work-items/5', body), 200, succeeded);
    assertReply(await server.call('PUT', '/api/work-items/x', body), 400, invalidId);
    assertReply(await server.call('POST', '/api/work-items/5', body), 405, methodNotAllowed, ['allow']);
    assertReply(await server.call('PUT', '/api/work-items/5', { body: '{"a":1}' }), 200, succeeded);
    assertReply(await server.call('PUT', '/api/work-items/5', { headers: json }), 500, operation(4).failure);
    assert.equal(server.told.ended.at(-1)?.outcome, 'invalid-body');
  });

  test('without an observer a line on stderr explains the fix and reports no defect of the gateway', async (context) => {
    const written = context.mock.method(console, 'error', () => undefined);
    await using server = await serveAfter(express.json(), { observer: undefined, log: undefined });
    const headers = [...json, ['X-Request-Id', 'mine']] as const;
    await server.call('POST', '/api/work-items', { headers, body: '{}' });
    const [line] = written.mock.calls.map((each) => String(each.arguments[0]));
    assert.match(
      line ?? '',
      /^work-item-gateway: POST \/api\/work-items \(request id mine\) got 500, outcome bug: Error: the host has already read/,
    );
    assert.doesNotMatch(line ?? '', /defect of the gateway/);
  });
});

test('in an HTTP/2 server a request gets 500, the cause explains why, and the process lives [D50]', async () => {
  await using server = await startGateway({ host: 'node' });
  const over2 = http2.createServer(server.handler as never).listen(0, '127.0.0.1');
  await once(over2, 'listening');
  const session = http2.connect(`http://127.0.0.1:${(over2.address() as AddressInfo).port}`);
  try {
    for (const method of ['GET', 'DELETE']) {
      const stream = session.request({ ':method': method, ':path': '/api/work-items/5' });
      const [headers] = (await once(stream, 'response')) as [Record<string, unknown>];
      assert.equal(headers[':status'], 500);
      assert.match(
        String(await stream.setEncoding('utf8').toArray()),
        /^\{"error":"Failed to (?:fetch|delete) work item"\}$/,
      );
    }
  } finally {
    session.close();
    over2.close();
  }
  assert.match(String(server.told.ended[0]?.cause), /createNodeHandler supports only HTTP\/1\.1/);
  assert.deepEqual(server.backend.requests, []);
});

test('close() cuts off the calls in flight and closes the backend connections, and later calls fail [D50]', async () => {
  await using server = await startGateway({ host: 'node' });
  server.backend.answers(behind(createGate(), answer('{}')));
  const waiting = server.call('GET', '/api/work-items/5');
  await server.backend.nextRequest();
  await server.handler.close();
  assertReply(await waiting, 500, operation(3).failure);
  assertReply(await server.call('DELETE', '/api/work-items/5'), 500, operation(5).failure);
  assert.deepEqual(
    server.told.ended.map(({ outcome }) => outcome),
    ['shutdown', 'shutdown'],
  );
  assert.equal(server.backend.requests.length, 1);
  assert.equal(server.backend.connectionsOpen, 0);
});

test('a body that has arrived no longer has a timeout: the reply may take longer, and the connection stays open [D35]', async () => {
  await using server = await startGateway({ host: 'node', settings: { requestTimeoutMs: 100 } });
  server.backend.answers(async (exchange) => {
    await new Promise((resolve) => setTimeout(resolve, 400));
    await answer('{}')(exchange);
  });
  await using client = await RawClient.open(server.port);
  const reply = await client.call('PUT', '/api/work-items/5', { body: '{}' });
  assertReply(reply, 200, succeeded);
  assert.notEqual(reply.header('connection'), 'close');
  assertReply(await client.call('PUT', '/api/work-items/5', { body: '{}' }), 200, succeeded);
});
