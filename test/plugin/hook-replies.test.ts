// Replies of the server's hooks reach the client unchanged, and the backend is not called.

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import type { FastifyReply, FastifyRequest } from 'fastify';
import { operations } from '../helpers/expected.ts';
import { hosts, serve } from './hosts.ts';
import { RawClient } from '../helpers/raw-client.ts';

type Hook = (request: FastifyRequest, reply: FastifyReply) => Promise<unknown>;

const hookNames = ['onRequest', 'preParsing', 'preValidation', 'preHandler'] as const;

function errorWith(properties: object): Error {
  return Object.assign(new Error('the reason'), properties);
}

const refusals: readonly (readonly [name: string, status: number, hook: Hook])[] = [
  ['throws an error with statusCode 401', 401, () => Promise.reject(errorWith({ statusCode: 401 }))],
  ['throws an error with status 403', 403, () => Promise.reject(errorWith({ status: 403 }))],
  ['throws an error with statusCode 503', 503, () => Promise.reject(errorWith({ statusCode: 503 }))],
  ['sends an object with 401', 401, async (_request, reply) => reply.code(401).send({ error: 'the reason' })],
  ['sends a text with 429', 429, async (_request, reply) => reply.code(429).send('the reason')],
  ['sends an error with 401', 401, async (_request, reply) => reply.code(401).send(errorWith({}))],
  ['sets 401 and throws', 401, (_request, reply) => { reply.code(401); return Promise.reject(errorWith({})); }],
]; // prettier-ignore

for (const host of hosts) {
  describe(host.name, () => {
    for (const [name, status, hook] of refusals) {
      for (const hookName of hookNames) {
        test(`if the ${hookName} hook ${name}, the client gets the hook's reply, and the backend is not called`, async () => {
          const app = host.create();
          app.addHook(hookName as 'onRequest', async (request, reply) => {
            if (request.headers['x-pass'] === undefined) await hook(request, reply);
          });
          await using server = await serve(app);
          await using client = await RawClient.open(server.port);
          for (const { method, path, options } of operations) {
            const reply = await client.call(method, path, options);
            assert.equal(reply.status, status);
            assert.match(reply.text, /the reason/);
          }
          assert.deepEqual(server.backend.requests, []);
          const [first] = operations;
          assert.ok(first);
          const passed = await client.call(first.method, first.path, { headers: [['X-Pass', '1']] });
          assert.equal(passed.status, 200, 'the connection stays open');
        });
      }
    }

    test('headers that a hook sets on its refusal reach the client', async () => {
      const app = host.create();
      app.addHook('onRequest', async (_request, reply) => {
        reply.header('www-authenticate', 'Bearer');
        throw errorWith({ statusCode: 401, headers: { 'x-why': 'none' } });
      });
      await using server = await serve(app);
      const reply = await server.call('GET', '/api/work-items');
      assert.equal(reply.status, 401);
      assert.equal(reply.header('www-authenticate'), 'Bearer');
      assert.equal(reply.header('x-why'), 'none');
    });

    test("the server's error handler formats a refusal", async () => {
      const app = host.create();
      app.setErrorHandler<Error & { statusCode: number }>(async (error, _request, reply) =>
        reply.code(error.statusCode).send({ mine: error.message }),
      );
      app.addHook('preHandler', () => Promise.reject(errorWith({ statusCode: 401 })));
      await using server = await serve(app);
      const reply = await server.call('PUT', '/api/work-items/5', { body: '1' });
      assert.equal(reply.status, 401);
      assert.equal(reply.text, '{"mine":"the reason"}');
      assert.deepEqual(server.backend.requests, []);
    });
  });
}
