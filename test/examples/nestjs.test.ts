// examples/nestjs on both platforms of Nest, over real sockets: Express with the Node handler, Fastify with the plugin [D50].

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { createGate, poll } from '../helpers/changes.ts';
import { Example, linesOfDocument, type RunningExample } from './installed.ts';
import { assertReply, invalidId, notFound, operation, operations, tooLarge } from '../helpers/expected.ts';
import { RawClient } from '../helpers/raw-client.ts';
import { answer, behind } from '../helpers/scripted-backend.ts';
import { useBackend } from '../helpers/suites.ts';

const backend = await useBackend('{"id":5}');
const example = Example.install('nestjs');
const list = '/api/work-items';
// Nest's body parsers would parse a body with this content type.
const headers = [['Content-Type', 'application/json']] as const;

test('the code in docs/hosts.md is that of the example, apart from environment variables', () => {
  const main = readFileSync(join(import.meta.dirname, '../../examples/nestjs/src/main.ts'), 'utf8');
  const lines = main.replace(/process\.env\.\w+ \?\? /g, '').replace('console.log(await app.getUrl());\n', '');
  assert.equal(linesOfDocument('NestJS'), lines);
});

describe('in NestJS', { skip: example.skip }, () => {
  before(() => example.run('tsc', []));

  for (const [platform, main, ownHeaders] of [
    ['Express', 'dist/main.js', ['x-powered-by']],
    ['Fastify', 'dist/main-fastify.js', []],
  ] as const) {
    describe(platform, () => {
      let server: RunningExample;
      before(async () => {
        server = await example.start('node', [main], backend.url);
      });
      after(() => server[Symbol.asyncDispose]());

      test('reply and backend call of each operation have the specified bytes [spec 4]', async () => {
        for (const { method, path, options, backendTarget, status, body, failure } of operations) {
          backend.reset();
          backend.answersOnce(answer('{"id":5}'));
          backend.answers(answer('{}', { status: 500 }));
          assertReply(await server.call(method, path, { ...options, headers }), status, body, ownHeaders);
          const calls = backend.requests.map((each) => `${each.method} ${each.target} ${each.body.toString()}`);
          assert.deepEqual(calls, [`${method} ${backendTarget} ${String(options.body ?? '')}`]);
          assertReply(await server.call(method, path, { ...options, headers }), 500, failure, ownHeaders);
        }
      });

      test('an invalid request causes no backend call [spec 7]', async () => {
        for (const id of ['abc', '%zz']) {
          assertReply(await server.call('GET', `${list}/${id}`), 400, invalidId, ownHeaders);
        }
        const body = `"${'x'.repeat(11 << 20)}"`;
        assertReply(await server.call('POST', list, { body }), 413, tooLarge, ownHeaders);
        const { method, path, failure } = operation(4);
        assertReply(await server.call(method, path, { headers, body: '{' }), 500, failure, ownHeaders);
        assert.deepEqual(backend.requests, []);
      });

      test('the read of a client that leaves is cancelled, failures are logged, and the rest of the application is unchanged [D21]', async () => {
        const gate = createGate();
        backend.answersOnce(behind(gate, answer('{"id":5}')));
        await using client = await RawClient.open(server.port);
        client.send(`GET ${list}/5 HTTP/1.1\r\nHost: x\r\n\r\n`);
        const { connection } = await backend.nextRequest();
        client.destroy();
        await backend.connectionClosed(connection);
        gate.open();
        assert.equal((await server.call('GET', '/')).text, 'Work items are at /api/work-items');
        const other = await server.call('GET', '/api/other');
        assert.equal(other.status, 404);
        assert.notEqual(other.text, notFound);
        backend.answers(answer('{}', { status: 503 }));
        await server.call('GET', `${list}/5`);
        if (platform === 'Express') await poll(() => server.output.includes('status 503'), 'the line of the failure');
      });
    });
  }
});
