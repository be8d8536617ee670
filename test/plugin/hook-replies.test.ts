// Replies of the server's hooks reach the client unchanged, and the backend is not called.

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import type { FastifyReply, FastifyRequest } from 'fastify';
import { operations } from '../helpers/expected.ts';
import { hosts, serve } from './hosts.ts';

type Hook = (request: FastifyRequest, reply: FastifyReply) => Promise<unknown>;

const hookNames = ['onRequest', 'preParsing', 'preValidation', 'preHandler'] as const;
const errorWith = (properties: object) => Object.assign(new Error('the reason'), properties);
const refusals: readonly (readonly [status: number, hook: Hook])[] = [
  [401, () => Promise.reject(errorWith({ statusCode: 401 }))],
  [403, () => Promise.reject(errorWith({ status: 403 }))],
  [503, () => Promise.reject(errorWith({ statusCode: 503 }))],
  [401, async (_request, reply) => reply.code(401).send({ error: 'the reason' })],
  [429, async (_request, reply) => reply.code(429).send('the reason')],
  [401, async (_request, reply) => reply.code(401).send(errorWith({}))],
  [401, (_request, reply) => { reply.code(401); return Promise.reject(errorWith({})); }],
]; // prettier-ignore

for (const host of hosts) {
  describe(host.name, () => {
    test('if a hook replies or throws, the client gets its reply, and the backend is not called', async () => {
      const app = host.create();
      for (const hookName of hookNames) {
        app.addHook(hookName as 'onRequest', async (request, reply) => {
          if (request.headers['x-hook'] === hookName)
            await refusals[Number(request.headers['x-refuse'])]?.[1](request, reply);
        });
      }
      await using server = await serve(app);
      await using client = await server.connect();
      for (const hookName of hookNames) {
        for (const [index, [status]] of refusals.entries()) {
          for (const { method, path, options } of operations) {
            const headers = [['X-Hook', hookName], ['X-Refuse', String(index)]] as const; // prettier-ignore
            const reply = await client.call(method, path, { ...options, headers });
            assert.equal(reply.status, status);
            assert.match(reply.text, /the reason/);
          }
        }
      }
      assert.deepEqual(server.backend.requests, []);
      assert.equal((await client.call('GET', '/api/work-items')).status, 200, 'the connection stays open');
    });

    test("headers that a hook sets on its refusal reach the client, and the server's error handler formats it", async () => {
      const app = host.create();
      app.setErrorHandler<Error & { statusCode: number }>(async (error, _request, reply) =>
        reply.code(error.statusCode).send({ mine: error.message }),
      );
      app.addHook('onRequest', async (_request, reply) => {
        reply.header('www-authenticate', 'Bearer');
        throw errorWith({ statusCode: 401 });
      });
      await using server = await serve(app);
      const reply = await server.call('PUT', '/api/work-items/5', { body: '1' });
      assert.deepEqual([reply.status, reply.text], [401, '{"mine":"the reason"}']);
      assert.equal(reply.header('www-authenticate'), 'Bearer');
      assert.deepEqual(server.backend.requests, []);
    });
  });
}
