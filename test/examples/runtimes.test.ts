// The fetch handler in examples/hono, examples/bun and examples/deno, and the Node handler in examples/express, over real
// sockets: a small part of test/spec, which tests the handlers on Node.js [D50].

import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { createGate, poll } from '../helpers/changes.ts';
import { Example, linesOfDocument, runnable, type RunningExample } from './installed.ts';
import * as expected from '../helpers/expected.ts';
import { assertReply, invalidId, operations, succeeded } from '../helpers/expected.ts';
import { findFreePort } from '../helpers/haproxy.ts';
import { answerSizes, OwnBytes } from '../helpers/own-bytes.ts';
import { chunk, RawClient } from '../helpers/raw-client.ts';
import * as scripted from '../helpers/scripted-backend.ts';
import { answer, answerBytes, resetPeer } from '../helpers/scripted-backend.ts';
import { useBackend } from '../helpers/suites.ts';

const backend = await useBackend('{"id":5}');
const list = '/api/work-items';
const item = `${list}/5`;

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

const faults = [
  answer('{"secret":1}', { status: 500 }),
  answer('', { status: 302, headers: [['Location', '/']] }),
  resetPeer(),
  resetPeer(30, answerBytes('{"id":5}')),
  scripted.garbage,
];
// The body of an answer matters only if it is passed on [spec 4, rule 4].
const faultyBodies = [
  scripted.wrongLength(5, '[1]'),
  scripted.chunked('5\r\n{"a":\r\nx'),
  ...[answer('<p>'), answer(''), scripted.noContent],
];

for (const [name, [host, program, ...args]] of Object.entries(programs)) {
  const example = Example.install(name);

  describe(name, { skip: example.skip }, () => {
    let server: RunningExample;
    before(async () => {
      server = await example.start(program, [...args, 'server.js'], backend.url);
    });
    after(() => server[Symbol.asyncDispose]());
    const calls = () => backend.requests.map(({ method, target }) => `${method} ${target}`);

    for (const { name: title, method, path, options, backendTarget, status, body, failure, passesBody } of operations) {
      test(`operation ${title}: reply and backend call have the specified bytes, and each failure gets the fixed reply [spec 4, 7]`, async () => {
        const headers = [
          ['X-Request-Id', 'mine'],
          ['Cookie', 'secret'],
          // A middleware that reads bodies would read this one.
          ['Content-Type', 'application/json'],
        ] as const;
        const reply = await server.call(method, path, { ...options, headers });
        assertReply(reply, status, body);
        assert.equal(reply.header('x-request-id'), 'mine');
        assert.deepEqual(calls(), [`${method} ${backendTarget}`]);
        const [call] = backend.requests;
        assert.deepEqual(expected.sorted(call?.headers ?? []), [
          ...(options.body === undefined ? [] : [`content-length: ${Buffer.byteLength(options.body)}`]),
          ...['content-type: application/json', `host: 127.0.0.1:${backend.port}`, 'x-request-id: mine'],
        ]);
        assert.equal(call?.body.toString(), options.body ?? '');
        assert.deepEqual(backend.violations, []);
        for (const fault of [...faults, ...(passesBody ? faultyBodies : [])]) {
          backend.answers(fault);
          assertReply(await server.call(method, path, options), 500, failure);
        }
        backend.answers(scripted.twoAnswers(answerBytes('{"id":5}'), answerBytes('{"id":6}')));
        assertReply(await server.call(method, path, options), status, body);
      });
    }

    test('invalid requests cause no backend call, and the rest of the server is unchanged [spec 4, spec 7, D1]', async () => {
      for (const id of ['abc', '%zz', '-', '%20x', '%2F5']) {
        assertReply(await server.call('GET', `${list}/${id}`), 400, invalidId);
      }
      const unknown = await server.call('GET', `${item}/6`);
      // Express gets other paths.
      if (name === 'express') assert.equal(unknown.status, 404);
      else assertReply(unknown, 404, expected.notFound);
      assertReply(await server.call('PATCH', item, { body: '{}' }), 405, expected.methodNotAllowed, ['allow']);
      const headers = [['Sec-Fetch-Site', 'cross-site']] as const;
      assertReply(await server.call('DELETE', item, { headers }), 403, expected.forbidden);
      assert.equal((await server.call('GET', '/')).text, 'Work items are at /api/work-items');
      await server.call('GET', '/api/work-itemsx');
      assert.deepEqual(calls(), []);
      backend.answersOnce(answer('', { status: 404 }));
      assertReply(await server.call('GET', item), 404, expected.itemNotFound);
      expected.assertHeaders(await server.call('OPTIONS', list), ['allow']);
    });

    test('bodies and answers are passed on byte for byte, even if they arrive in pieces, up to 10 MiB [spec 4, rule 6, D11]', async () => {
      const json = ' {"n":9007199254740993,"x":1.0,"y":1e400,"a":1,"a":2,"ü":"\\ud800"}\r\n';
      backend.answers(scripted.slicer(answerBytes(json)));
      assertReply(await server.call('GET', item), 200, json);
      backend.answers(answer(json));
      await using client = await RawClient.open(server.port);
      client.send(`POST ${list} HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n`);
      await client.sendPieces([...Array.from(Buffer.from(json), (byte) => chunk(Uint8Array.of(byte))), '0\r\n\r\n']);
      assertReply(await client.reply(), 201, json);
      assert.equal(backend.requests.at(-1)?.body.toString(), json);
      const body = Buffer.from(`"${'x'.repeat((10 << 20) - 2)}"`);
      assertReply(await server.call('PUT', item, { body }), 200, succeeded);
      assert.ok(backend.requests.at(-1)?.body.equals(body));
      assertReply(await server.call('POST', list, { body: `${body.toString()} ` }), 413, expected.tooLarge);
      assert.equal(backend.requests.length, 3);
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

    test('if a client leaves, its read is cancelled, its write is not, and the server keeps running; an incomplete body is not sent [D21]', async () => {
      await using incomplete = await RawClient.open(server.port);
      incomplete.send(`POST ${list} HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{"a":`);
      incomplete.reset();
      const gate = createGate();
      backend.answers(scripted.behind(gate, answer('{"id":5}')));
      const leave = async (method: string) => {
        await using client = await RawClient.open(server.port);
        client.send(`${method} ${item} HTTP/1.1\r\nHost: x\r\n\r\n`);
        return (await backend.nextRequest()).connection;
      };
      const write = await leave('DELETE');
      await backend.connectionClosed(await leave('GET'));
      assert.equal(backend.isClosed(write), false);
      gate.open();
      assertReply(await server.call('GET', item), 200, '{"id":5}');
      assert.deepEqual(calls(), ['DELETE /api/WorkItem/5', 'GET /api/WorkItem/5', 'GET /api/WorkItem/5']);
    });

    test('the code in docs/hosts.md is a working route that logs failures; a script that closes the handler exits [D50]', async () => {
      const port = await findFreePort();
      example.write('lines.mjs', runnable(linesOfDocument(host), port, backend.url));
      await using written = await example.start(program, [...args, 'lines.mjs'], backend.url, {}, port);
      const also = name === 'express' ? ['x-powered-by'] : [];
      assertReply(await written.call('GET', item), 200, '{"id":5}', also);
      assertReply(await written.call('PUT', item, { body: '{}' }), 200, succeeded, also);
      assert.deepEqual(calls(), ['GET /api/WorkItem/5', 'PUT /api/WorkItem/5']);
      backend.answersOnce(answer('{}', { status: 503 }));
      await written.call('GET', item);
      await poll(() => /status 503\..*\n/.test(written.output), 'the line of the failure');
      assert.match(written.output, /^work-item-gateway: GET \/api\/work-items\/5 .* got 500, outcome refused: /m);
      example.write('script.mjs', script(backend.url));
      assert.equal(await example.output(program, [...args, 'script.mjs']), '{"id":5},{"id":5},{"id":5}\n');
    });
  });
}
