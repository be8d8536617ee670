// Targets that Fastify's router cannot read never reach the plugin, which answers nothing but from its routes, behind the
// hooks: Fastify answers them itself, in words that the server may choose [D60].

import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { describe, test } from 'node:test';
import type { FastifyReply } from 'fastify';
import { createObserver } from '../helpers/in-process.ts';
import { hosts, serve } from '../helpers/hosts.ts';
import { assertReply, badRequest, invalidId, operations } from '../helpers/expected.ts';
import { RawClient } from '../helpers/raw-client.ts';

const malformedIds = ['%zz', '12%zz', '5%', '%ff', '12%C3'];
const withId = operations.filter(({ path }) => path !== '/api/work-items');

for (const { name, create } of hosts) {
  describe(name, () => {
    test("a malformed escape in an id is Fastify's own 400, before any hook, and its connection goes on [D1, D60]", async () => {
      const { told, observer } = createObserver();
      const app = create();
      let hooks = 0;
      app.addHook('onRequest', (_request, _reply, done) => {
        hooks += 1;
        done();
      });
      await using server = await serve(app, { observer });
      await using client = await RawClient.open(server.port);
      for (const { method, options } of withId) {
        for (const id of malformedIds) {
          const path = `/api/work-items/${id}`;
          const reply = await client.call(method, path, options);
          assert.equal(reply.status, 400);
          assert.deepEqual(JSON.parse(reply.text), {
            error: 'Bad Request',
            code: 'FST_ERR_BAD_URL',
            message: `'${path}' is not a valid url component`,
            statusCode: 400,
          });
          assert.equal(reply.header('x-request-id'), undefined);
        }
      }
      assert.equal(hooks, 0);
      assert.deepEqual(server.backend.requests, []);
      assert.deepEqual(told, { ended: [], bugs: [], malformed: [], stalled: [] });
      // What is readable and no integer is the gateway's to refuse.
      assertReply(await client.call('GET', '/api/work-items/%25zz'), 400, invalidId);
      assert.equal(hooks, 1);
    });

    test("a server's `frameworkErrors` can give it the gateway's reply [D1, D24, D60]", async () => {
      const app = create({
        frameworkErrors: (error, request, untyped) => {
          const isItem = error.code === 'FST_ERR_BAD_URL' && request.url.includes('/api/work-items/');
          const reply = untyped as FastifyReply;
          void reply
            .code(error.statusCode ?? 400)
            .headers({
              'content-type': 'application/json',
              'cache-control': 'no-store',
              'x-content-type-options': 'nosniff',
              'x-request-id': randomUUID(),
            })
            .send(Buffer.from(isItem ? invalidId : badRequest));
        },
      });
      await using server = await serve(app);
      for (const { method, options } of withId) {
        for (const id of malformedIds) {
          const reply = await server.call(method, `/api/work-items/${id}`, options);
          assertReply(reply, 400, invalidId);
        }
      }
      assertReply(await server.call('GET', '/%zz'), 400, badRequest);
      assert.deepEqual(server.backend.requests, []);
    });
  });
}
