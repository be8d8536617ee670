// The Node handler in servers and after middleware [D50]. test/spec/ tests its replies.

import assert from 'node:assert/strict';
import { once } from 'node:events';
import type { RequestListener } from 'node:http';
import http2 from 'node:http2';
import type { AddressInfo } from 'node:net';
import { Readable } from 'node:stream';
import { text } from 'node:stream/consumers';
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
  notFound,
  operation,
  operations,
  succeeded,
} from '../helpers/expected.ts';
import { startGateway, type Settings } from '../helpers/gateway.ts';
import { requestsFor, sendAll } from '../helpers/odd-targets.ts';
import { chunk, forever, requestBytes } from '../helpers/raw-client.ts';
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

/** Stands for the code of the host that is reached by `next()`. */
const elsewhere: RequestListener = (_request, response) => response.writeHead(418).end();

test('every path without an operation goes to next(), and no other request does [D5, D50, D60]', async () => {
  const others = ['/', '/api', '/api/work-itemsx', '/API/work-items', '//api/work-items', '/api/work-items.json'];
  const deeper = ['/5/comments', '/5/', '/a/b?c', '//5'].map((path) => `/api/work-items${path}`);
  // Middleware may read an absolute form in another way than the gateway.
  const absolute = ['http://x/api/work-items/5'];
  const ours = [
    ['PATCH', '', 405], ['PATCH', '/5', 405], ['GET', '/', 400], ['GET', '/x?a=/b', 400], ['GET', '?a=/b/c', 200],
    ['GET', '/5?a=/b', 200], ['OPTIONS', '/5', 204],
  ] as const; // prettier-ignore
  for (const prefix of ['', '/v1']) {
    await using server = await serve((handler) => connect().use(handler).use(elsewhere), { prefix });
    for (const path of [...others, ...deeper, ...absolute]) {
      for (const method of ['GET', 'POST', 'OPTIONS']) {
        assert.equal((await server.call(method, path.replace(/^(?!http)/, prefix))).status, 418, path);
      }
    }
    assert.deepEqual(server.told.ended, []);
    for (const [method, path, status] of ours) {
      assert.equal((await server.call(method, `${prefix}/api/work-items${path}`)).status, status, path);
    }
  }
  await using alone = await startGateway({ host: 'node' });
  for (const path of others) assertReply(await alone.call('GET', path), 404, notFound);
  assert.deepEqual(alone.backend.requests, []);
});

test('a mounted handler sees the path that the client sent [D50]', async () => {
  for (const [prefix, mount] of [
    ['', (handler) => createExpress().use('/api/work-items', handler)],
    ['', (handler) => connect().use('/api', handler)],
    ['', (handler) => createExpress().all(['/api/work-items', '/api/work-items/*rest'], handler)],
    ['/v1/of', (handler) => createExpress().use('/v1', express.Router().use('/of', express.Router().use(handler)))],
  ] satisfies [string, Mount][]) {
    await using server = await serve(mount, { prefix });
    for (const { method, path, options, status, body, backendTarget } of operations) {
      for (const query of ['', '?x=/api/work-items/7']) {
        assertReply(await server.call(method, prefix + path + query, options), status, body);
        assert.equal(callsOf(server.backend).at(-1), `${method} ${backendTarget}`);
      }
    }
    assertReply(await server.call('PUT', `${prefix}/api/work-items/x`), 400, invalidId);
  }
});

describe('middleware before the handler', () => {
  test('a request that middleware refuses does not reach the handler, whatever its target [D60]', async () => {
    const deny = (_request: Request, response: Response) => void response.status(401).json({ error: 'no entry' });
    for (const [prefix, mount] of [
      ['', (handler) => createExpress().use('/api/work-items', deny).use(handler)],
      ['', (handler) => createExpress().use('/api/work-items', deny, handler)],
      ['/v1', (handler) => createExpress().use('/v1', deny).use(handler)],
      ['/v1', (handler) => createExpress().use('/v1', deny, handler)],
    ] satisfies [string, Mount][]) {
      await using server = await serve(mount, { prefix });
      const passed: string[] = [];
      await sendAll(server.port, requestsFor(['DELETE'], prefix), ({ method, target }, status) => {
        if (status !== 0 && status < 400) passed.push(`${method} ${target}: ${status}`);
      });
      assert.deepEqual([passed, callsOf(server.backend)], [[], []]);
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

  test('a client that leaves before middleware calls next() causes no backend call [D21]', async () => {
    const begun = createGate();
    const left = createGate();
    await using server = await serveInConnect((request, response, next) => {
      if (request.method === 'DELETE') response.once('close', left.open).once('close', next);
      else next();
      begun.open();
    });
    const client = await server.connect();
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
      response.writeHead = () => assert.fail(fault);
      next();
    });
    await using client = await server.connect();
    client.send(requestBytes('GET', '/api/work-items'));
    await client.closed();
    assert.equal(client.bytesReceived, 0);
    assert.deepEqual(server.told.ended.map(({ outcome, cause }) => [outcome, cause]), [['bug', fault]]); // prettier-ignore
  });

  test("headers that middleware sets are added, but do not replace the gateway's headers [D24]", async () => {
    await using server = await serveAfter((_request, response, next) => {
      const names = ['Content-Type', 'Content-Length', 'Cache-Control', 'X-Content-Type-Options', 'X-Powered-By'];
      for (const name of names) response.setHeader(name, '1');
      response.setHeader('Transfer-Encoding', 'chunked');
      response.setHeader('X-Request-Id', 'hidden');
      response.setHeader('Set-Cookie', ['a=1', 'b=2']);
      // Old versions of `on-headers` do this. Middleware for compression, sessions and logs uses that package.
      const writeHead = response.writeHead.bind(response);
      response.writeHead = (status: number) => writeHead(status);
      next();
    });
    const also = ['content-type', 'content-length', 'set-cookie', 'set-cookie', 'x-powered-by'];
    await using client = await server.connect();
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

  for (const [how, send] of Object.entries({
    'a whole reply': (response: Response) => {
      response.status(503).send('too late');
    },
    'a reply that has only begun': (response: Response, next: Promise<void>) => {
      response.writeHead(503).write('too ');
      void next.then(() => response.end('late'));
    },
  })) {
    test(`if middleware, such as a timeout, sends ${how} first, the client gets it whole, and a line says so [D28, D50]`, async () => {
      for (const method of ['GET', 'PUT', 'DELETE']) {
        const [isCalled, isAnswered, isOver] = [createGate(), createGate(), createGate()];
        const lines: string[] = [];
        await using server = await serveAfter(
          (request, response, next) => {
            if (request.url.endsWith('/5')) void isCalled.opened.then(() => send(response, isOver.opened));
            next();
          },
          { log: (line) => lines.push(line) },
        );
        server.backend.answers(behind(isAnswered, answer('{"id":5}')));
        await using client = await server.connect();
        client.send(requestBytes(method, '/api/work-items/5', method === 'PUT' ? { body: '{}' } : {}));
        await server.backend.nextRequest();
        isCalled.open();
        await client.receives(1);
        isAnswered.open();
        const { ended, bugs } = server.told;
        await poll(() => ended.length === 1, 'the end of the call');
        isOver.open();
        const reply = await client.reply();
        assert.deepEqual([reply.status, reply.text], [503, 'too late']);
        assertReply(await client.call('GET', '/api/work-items/x'), 400, invalidId);
        const [{ outcome, status, replyBytes, cause } = {}] = ended;
        assert.deepEqual([outcome, status, replyBytes, bugs], ['client-gone', 0, 0, []]);
        assert.match(String(cause), /^Error: other code of the host replied first, /);
        assert.equal(lines.length, 1);
        assert.match(
          lines[0] ?? '',
          /^work-item-gateway: [A-Z]+ \/api\/work-items\/5 \(request id [^)]+\) got no reply from the gateway: other code of the host replied first, .*\.$/,
        );
      }
    });
  }

  test('without sec-fetch-site, an origin that the CORS of the host allows may write [D56]', async () => {
    await using server = await serveAfter((_request, response, next) => {
      response.setHeader('Access-Control-Allow-Origin', 'https://app.example');
      next();
    });
    for (const [status, ...headers] of [
      [200, ['Origin', 'https://app.example']],
      [403, ['Origin', 'https://other.example']],
      [403, ['Origin', 'https://app.example'], ['Sec-Fetch-Site', 'cross-site']],
    ] as const) {
      assert.equal((await server.call('DELETE', '/api/work-items/5', { headers })).status, status);
    }
  });

  test('pipelined requests make their calls in order, even if middleware takes longer for some of them [D27]', async () => {
    let turnsOfLast = 0;
    await using server = await serveAfter(async (_request, _response, next) => {
      for (let turns = (turnsOfLast += 7) % 5; turns > 0; turns -= 1) {
        await new Promise((resolve) => setImmediate(resolve));
      }
      next();
    });
    await using client = await server.connect();
    const ids = Array.from({ length: 100 }, (_, index) => index + 1);
    client.send(Buffer.concat(ids.map((id) => requestBytes('PUT', `/api/work-items/${id}`, { body: `[${id}]` }))));
    for (const id of ids) assert.equal((await client.reply()).text, succeeded, String(id));
    const received = server.backend.requests.map(({ target, body }) => `${target} ${body.toString()}`);
    assert.deepEqual(received, ids.map((id) => `/api/WorkItem/${id} [${id}]`)); // prettier-ignore
  });
});

test('after an asynchronous guard has refused a request, the rest of its body is read and dropped; if the body exceeds the limit, the connection closes [D11]', async () => {
  const tokens = { authIssuer: 'https://issuer.example', authAudience: ['items'], authJwksUrl: 'http://127.0.0.1:9/' };
  await using server = await startGateway({ host: 'node', settings: { requestBytesMax: 1_000, ...tokens } });
  await using client = await server.connect();
  client.send('PUT /api/work-items/5 HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n');
  client.send(chunk('x'.repeat(1_000)));
  assert.equal((await client.reply()).status, 401);
  // Sends continuously: otherwise Node's own time limit would close the connection.
  await within(client.sendPieces(forever(chunk('x'))), 'the connection is closed');
});

describe('a body that middleware has read', () => {
  const json = [['Content-Type', 'application/json']] as const;

  for (const [name, guards, added] of [
    ['without guards', {}, []],
    ['after an asynchronous guard', { rateLimit: '100/1h' }, ['ratelimit', 'ratelimit-policy']],
  ] as const) {
    test(`a write is 500 with the message of its operation, and a line explains the fix: ${name} [D28, D50]`, async () => {
      const lines: string[] = [];
      await using server = await serveAfter(express.json(), { ...guards, log: (line) => lines.push(line) });
      for (const { method, path, failure } of [operation(2), operation(4)]) {
        const reply = await server.call(method, path, { headers: json, body: '{"a":1}' });
        assertReply(reply, 500, failure, added);
        assert.match(
          lines.pop() ?? '',
          new RegExp(
            `^work-item-gateway: ${method} ${path} .* got 500, outcome bug: Error: the host has already read the request body: mount the handler before express\\.json\\(\\) .*\\\\u000a +at `,
          ),
        );
      }
      assert.deepEqual([server.backend.requests, lines], [[], []]);
    });
  }

  test('a write whose body middleware would turn into text is 500 for the same reason', async () => {
    await using server = await serveAfter((request, _response, next) => {
      request.setEncoding('latin1');
      next();
    });
    const { method, path, failure } = operation(4);
    assertReply(await server.call(method, path, { body: '{"a":"é"}' }), 500, failure);
    assert.match(String(server.told.ended.at(-1)?.cause), /the host has already read the request body/);
    assertReply(await server.call('DELETE', path, { body: '{"a":"é"}' }), 200, succeeded);
    assertReply(await server.call('GET', path), 200, '{"id":5}');
  });

  test('calls that need no body are served, and so are calls whose body the parser does not read', async () => {
    await using server = await serveAfter(express.json());
    const body = { headers: json, body: '{"a":1}' };
    assertReply(await server.call('GET', '/api/work-items/5', body), 200, '{"id":5}');
    assertReply(await server.call('DELETE', '/api/work-items/5', body), 200, succeeded);
    assertReply(await server.call('PUT', '/api/work-items/x', body), 400, invalidId);
    assertReply(await server.call('PUT', '/api/work-items/5', { body: '{"a":1}' }), 200, succeeded);
    assertReply(await server.call('PUT', '/api/work-items/5', { headers: json }), 500, operation(4).failure);
    assert.equal(server.told.ended.at(-1)?.outcome, 'invalid-body');
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
      assert.match(await text(stream), /^\{"error":"Failed to (?:fetch|delete) work item"\}$/);
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
  assert.deepEqual(server.told.ended.map(({ outcome }) => outcome), ['shutdown', 'shutdown']); // prettier-ignore
  assert.equal(server.backend.requests.length, 1);
  assert.equal(server.backend.connectionsOpen, 0);
});
