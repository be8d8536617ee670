// The fetch handler in examples/hono, examples/bun and examples/deno, and the Node handler in examples/express, over real
// sockets: a small part of test/spec, which tests the handlers on Node.js [D50].

import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { createGate, poll } from '../helpers/changes.ts';
import { Example, linesOfDocument, runnable, type RunningExample } from './installed.ts';
import {
  assertHeaders,
  assertReply,
  forbidden,
  invalidId,
  itemNotFound,
  methodNotAllowed,
  notFound,
  operation,
  operations,
  succeeded,
  tooLarge,
} from '../helpers/expected.ts';
import { findFreePort } from '../helpers/haproxy.ts';
import { answerSizes, OwnBytes } from '../helpers/own-bytes.ts';
import { chunk, RawClient } from '../helpers/raw-client.ts';
import {
  answer,
  behind,
  chunked,
  garbage,
  noContent,
  resetPeer,
  slicer,
  answerBytes,
  twoAnswers,
  wrongLength,
} from '../helpers/scripted-backend.ts';
import { useBackend } from '../helpers/suites.ts';

const backend = await useBackend('{"id":5}');

const programs = {
  express: ['Express 5', 'node'],
  hono: ['Hono', 'node'],
  bun: ['Bun', 'bun'],
  deno: ['Deno', 'deno', 'run', '--allow-net', '--allow-env'],
} as const;

// Makes two calls, closes the handler and makes a third call. After that, nothing may keep the process running.
const script = (backendUrl: string): string => `
import { createFetchHandler } from 'work-item-gateway/fetch';
const call = createFetchHandler({ backendUrl: '${backendUrl}', backendIdleTimeoutMs: 600_000 });
const get = async () => (await call(new Request('http://x/api/work-items/5'))).text();
const first = await Promise.all([get(), get()]);
await call.close();
console.log([...first, await get()].join());
`;

for (const [name, [host, program, ...args]] of Object.entries(programs)) {
  const example = Example.install(name);

  describe(name, { skip: example.skip }, () => {
    let server: RunningExample;
    before(async () => {
      server = await example.start(program, [...args, 'server.js'], backend.url);
    });
    after(async () => {
      await server[Symbol.asyncDispose]();
    });
    const calls = () => backend.requests.map(({ method, target }) => `${method} ${target}`);

    for (const { name: title, method, path, options, backendTarget, status, body } of operations) {
      test(`operation ${title}: reply and backend call have the specified bytes [spec 4]`, async () => {
        const headers = [
          ['X-Request-Id', 'mine'],
          ['Cookie', 'secret'],
        ] as const;
        const reply = await server.call(method, path, { ...options, headers });
        assertReply(reply, status, body);
        assert.equal(reply.header('x-request-id'), 'mine');
        assert.deepEqual(calls(), [`${method} ${backendTarget}`]);
        const [call] = backend.requests;
        assert.ok(call);
        const length = Buffer.byteLength(options.body ?? '');
        assert.deepEqual(call.headers.map(([key, value]) => `${key.toLowerCase()}: ${value}`).sort(), [
          ...(options.body === undefined ? [] : [`content-length: ${length}`]),
          'content-type: application/json',
          `host: 127.0.0.1:${backend.port}`,
          'x-request-id: mine',
        ]);
        assert.equal(call.body.toString(), options.body ?? '');
        assert.deepEqual(backend.violations, []);
      });

      test(`operation ${title}: each failure of the backend gets the fixed reply [spec 7]`, async () => {
        const { failure, passesBody } = operation(Number(title[0]) as 1);
        const faults = [
          answer('{"secret":1}', { status: 500 }),
          answer('', { status: 302, headers: [['Location', '/']] }),
          resetPeer(),
          resetPeer(30, answerBytes('{"id":5}')),
          garbage,
          // The body of an answer matters only if it is passed on [spec 4, rule 4].
          ...(passesBody
            ? [wrongLength(5, '[1]'), chunked('5\r\n{"a":\r\nx'), answer('<p>'), answer(''), noContent]
            : []),
        ];
        for (const fault of faults) {
          backend.answers(fault);
          assertReply(await server.call(method, path, options), 500, failure);
        }
        backend.answers(twoAnswers(answerBytes('{"id":5}'), answerBytes('{"id":6}')));
        assertReply(await server.call(method, path, options), status, body);
      });
    }

    test('invalid requests cause no backend call [spec 4, spec 7, D1]', async () => {
      for (const path of ['abc', '%zz', '-', '%20x', '%2F5']) {
        assertReply(await server.call('GET', `/api/work-items/${path}`), 400, invalidId);
      }
      const unknown = await server.call('GET', '/api/work-items/5/6');
      // Express gets other paths.
      if (name === 'express') assert.equal(unknown.status, 404);
      else assertReply(unknown, 404, notFound);
      assertReply(await server.call('PATCH', '/api/work-items/5', { body: '{}' }), 405, methodNotAllowed, ['allow']);
      const headers = [['Sec-Fetch-Site', 'cross-site']] as const;
      assertReply(await server.call('DELETE', '/api/work-items/5', { headers }), 403, forbidden);
      assert.deepEqual(calls(), []);
      backend.answersOnce(answer('', { status: 404 }));
      assertReply(await server.call('GET', '/api/work-items/5'), 404, itemNotFound);
      assertHeaders(await server.call('OPTIONS', '/api/work-items'), ['allow']);
    });

    test('bodies and answers are passed on byte for byte, even if they arrive in pieces [spec 4, rule 6]', async () => {
      const json = ' {"n":9007199254740993,"x":1.0,"y":1e400,"a":1,"a":2,"ü":"\\ud800"}\r\n';
      backend.answers(slicer(answerBytes(json)));
      assertReply(await server.call('GET', '/api/work-items/5'), 200, json);
      backend.answers(answer(json));
      await using client = await RawClient.open(server.port);
      client.send('POST /api/work-items HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n');
      await client.sendPieces([...Array.from(Buffer.from(json), (byte) => chunk(Uint8Array.of(byte))), '0\r\n\r\n']);
      assertReply(await client.reply(), 201, json);
      assert.equal(backend.requests.at(-1)?.body.toString(), json);
    });

    test('a body of 10 MiB is accepted, one byte more is 413 [D11]', async () => {
      const body = Buffer.from(`"${'x'.repeat((10 << 20) - 2)}"`);
      assertReply(await server.call('PUT', '/api/work-items/5', { body }), 200, succeeded);
      assert.ok(backend.requests[0]?.body.equals(body));
      const reply = await server.call('POST', '/api/work-items', { body: `${body.toString()} ` });
      assertReply(reply, 413, tooLarge);
      assert.equal(backend.requests.length, 1);
    });

    test('each client gets the bytes of its own item, however it reads', async () => {
      const open = () => RawClient.open(server.port);
      // Bun does not answer requests that arrive together.
      const openRaw = name === 'bun' ? undefined : open;
      for (const size of answerSizes) {
        await new OwnBytes(size, { backend, open, openRaw }).all();
        backend.reset();
      }
    });

    test('if a client leaves, its read is cancelled, its write is not, and the server keeps running [D21]', async () => {
      const gate = createGate();
      backend.answers(behind(gate, answer('{"id":5}')));
      const leave = async (method: string) => {
        await using client = await RawClient.open(server.port);
        client.send(`${method} /api/work-items/5 HTTP/1.1\r\nHost: x\r\n\r\n`);
        return (await backend.nextRequest()).connection;
      };
      const write = await leave('DELETE');
      await backend.connectionClosed(await leave('GET'));
      assert.equal(backend.isClosed(write), false);
      gate.open();
      assertReply(await server.call('GET', '/api/work-items/5'), 200, '{"id":5}');
    });

    test('a client that leaves before its body is complete causes no backend call', async () => {
      await using client = await RawClient.open(server.port);
      client.send('POST /api/work-items HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{"a":');
      client.reset();
      assertReply(await server.call('GET', '/api/work-items/5'), 200, '{"id":5}');
      assert.deepEqual(calls(), ['GET /api/WorkItem/5']);
    });

    test('the code in docs/hosts.md is a working route that logs failures [D50]', async () => {
      const port = await findFreePort();
      example.write('lines.mjs', runnable(linesOfDocument(host), port, backend.url));
      await using written = await example.start(program, [...args, 'lines.mjs'], backend.url, {}, port);
      const also = name === 'express' ? ['x-powered-by'] : [];
      assertReply(await written.call('GET', '/api/work-items/5'), 200, '{"id":5}', also);
      assertReply(await written.call('PUT', '/api/work-items/5', { body: '{}' }), 200, succeeded, also);
      assert.deepEqual(calls(), ['GET /api/WorkItem/5', 'PUT /api/WorkItem/5']);
      backend.answers(answer('{}', { status: 503 }));
      await written.call('GET', '/api/work-items/5');
      await poll(() => /status 503\..*\n/.test(written.output), 'the line of the failure');
      assert.match(written.output, /^work-item-gateway: GET \/api\/work-items\/5 .* got 500, outcome refused: /m);
    });

    test('a script that closes the handler, and then uses it again, still exits [D50]', async () => {
      example.write('script.mjs', script(backend.url));
      assert.equal(await example.output(program, [...args, 'script.mjs']), '{"id":5},{"id":5},{"id":5}\n');
    });

    test('the rest of the server is unchanged', async () => {
      assert.equal((await server.call('GET', '/')).text, 'Work items are at /api/work-items');
      await server.call('GET', '/api/work-itemsx');
      assert.deepEqual(calls(), []);
    });
  });
}
