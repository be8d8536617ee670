// examples/fastify: the gateway's plugin together with common Fastify plugins, over real sockets. Tokens cannot be bypassed [D60], and
// `@fastify/swagger` changes no byte.

import assert from 'node:assert/strict';
import { createHmac } from 'node:crypto';
import { after, before, describe, test } from 'node:test';
import { Validator } from '@seriousme/openapi-schema-validator';
import { poll } from '../helpers/changes.ts';
import { Example, linesOfDocument, runnable, type RunningExample } from './installed.ts';
import { assertReply, invalidId, operation, operations } from '../helpers/expected.ts';
import { findFreePort } from '../helpers/haproxy.ts';
import { answer } from '../helpers/scripted-backend.ts';
import { useBackend } from '../helpers/suites.ts';

const backend = await useBackend('{"id":5}');
const example = Example.install('fastify');
const origin = 'https://app.example';
const secret = 'a secret of the tests';
const limits = ['x-ratelimit-limit', 'x-ratelimit-remaining', 'x-ratelimit-reset'];
const hostHeaders = ['access-control-allow-origin', ...limits];
const encode = (text: string | Buffer): string => Buffer.from(text).toString('base64url');
const signed = `${encode('{"alg":"HS256","typ":"JWT"}')}.${encode('{"sub":"anna"}')}`;
const token = `${signed}.${encode(createHmac('sha256', secret).update(signed).digest())}`;
const authorization = ['Authorization', `Bearer ${token}`] as const;
const list = '/api/work-items';

describe('in Fastify', { skip: example.skip }, () => {
  let server: RunningExample;
  before(async () => {
    const variables = { JWT_SECRET: secret, ORIGIN: origin, RATE_LIMIT: '100000' };
    server = await example.start('node', ['server.js'], backend.url, variables);
  });
  after(() => server[Symbol.asyncDispose]());

  for (const { name, method, path, options, backendTarget, status, body } of operations) {
    test(`operation ${name}: with a token the gateway's reply has the headers of the other plugins; without one the backend is not called`, async () => {
      assert.equal((await server.call(method, path, options)).status, 401);
      assert.equal(backend.requests.length, 0);
      const reply = await server.call(method, path, { ...options, headers: [authorization, ['Origin', origin]] });
      assertReply(reply, status, body, hostHeaders);
      assert.equal(reply.header('access-control-allow-origin'), origin);
      const calls = backend.requests.map((each) => [each.method, each.target, each.header('authorization')]);
      assert.deepEqual(calls, [[method, backendTarget, undefined]]);
    });
  }

  test('an id with a malformed escape gets the reply of the gateway, and no backend call; the code in docs/hosts.md works [D1, D60]', async () => {
    const port = await findFreePort();
    example.write('lines.mjs', runnable(linesOfDocument('Fastify'), port, backend.url));
    await using written = await example.start('node', ['lines.mjs'], backend.url, {}, port);
    for (const each of [server, written]) assertReply(await each.call('GET', `${list}/%zz`), 400, invalidId);
    assert.deepEqual(backend.requests, []);
    assertReply(await written.call('GET', `${list}/5`), 200, '{"id":5}');
  });

  test('bodies are passed on byte for byte, although the routes have schemas; a failure is logged with its request', async () => {
    const json = ' {"n":9007199254740993,"x":1.0,"y":1e400,"a":1,"a":2}\r\n';
    backend.answersOnce(answer(json));
    backend.answers(answer('{}', { status: 500 }));
    const headers = [authorization, ['Content-Type', 'text/plain'], ['X-Request-Id', 'to-be-found']] as const;
    assertReply(await server.call('POST', list, { headers, body: json }), 201, json, hostHeaders);
    assert.equal(backend.requests[0]?.body.toString(), json);
    const { failure } = operation(2);
    assertReply(await server.call('POST', list, { headers, body: '{' }), 500, failure, hostHeaders);
    assertReply(await server.call('POST', list, { headers, body: '{}' }), 500, failure, hostHeaders);
    const line = () => server.output.split('\n').find((each) => /to-be-found.*refused|refused.*to-be-found/.test(each));
    await poll(() => line() !== undefined, 'the line of the failure');
    assert.match((JSON.parse(line() ?? '{}') as { reqId: string }).reqId, /^req-/);
  });

  test('@fastify/swagger shows the five operations with their schemas, in a valid document', async () => {
    const { text } = await server.call('GET', '/openapi.json');
    const { valid, errors } = await new Validator().validate(JSON.parse(text) as Record<string, unknown>);
    assert.ok(valid, JSON.stringify(errors));
    const { paths } = JSON.parse(text) as {
      paths: Record<string, Record<string, { operationId: string; responses: object; requestBody?: object }>>;
    };
    const shown = Object.entries(paths).flatMap(([path, methods]) =>
      Object.entries(methods).map(([method, { operationId, responses, requestBody }]) =>
        [method, path, operationId, requestBody !== undefined, ...Object.keys(responses)].join(' '),
      ),
    );
    assert.deepEqual(shown, [
      'get /api/work-items listWorkItems false 200 400 500 503',
      'post /api/work-items createWorkItem true 201 400 403 408 413 500 503',
      'get /api/work-items/{id} readWorkItem false 200 400 404 500 503',
      'put /api/work-items/{id} updateWorkItem true 200 400 403 408 413 500 503',
      'delete /api/work-items/{id} deleteWorkItem false 200 400 403 408 500 503',
    ]);
    assert.match(text, /Invalid ID format/);
    assert.doesNotMatch(text, /"\$ref"/);
  });
});
