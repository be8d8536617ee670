// Targets that Fastify's router cannot decode never reach the plugin's routes. Fastify answers them itself, unless the
// server uses `frameworkErrors` of this package [D60].

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import type { FastifyInstance } from 'fastify';
import { frameworkErrors, workItemGateway } from '../../packages/core/hosts/index.ts';
import { calling, hosts, serve, serveApp } from './hosts.ts';
import { assertReply, invalidId, methodNotAllowed, operations } from '../helpers/expected.ts';

const malformedIds = ['%zz', '12%zz', '5%', '%ff', '12%C3'];
const withId = operations.filter(({ path }) => path !== '/api/work-items');

/** Counts the requests that reach the hooks of `app`. */
function countHooks(app: FastifyInstance): () => number {
  let hooks = 0;
  app.addHook(
    'onRequest',
    calling(() => (hooks += 1)),
  );
  return () => hooks;
}

for (const { name, create } of hosts) {
  describe(name, () => {
    test("a malformed escape in an id gets Fastify's own 400, before any hook, and the connection stays open [D1, D60]", async () => {
      const app = create();
      const hooks = countHooks(app);
      await using server = await serve(app);
      await using client = await server.connect();
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
      assert.equal(hooks(), 0);
      assert.deepEqual(server.backend.requests, []);
      assert.deepEqual(server.told, { ended: [], bugs: [], malformed: [], stalled: [], outages: [] });
      // Fastify can decode this id, so the gateway gets it and refuses it: it is not an integer.
      assertReply(await client.call('GET', '/api/work-items/%25zz'), 400, invalidId);
      assert.equal(hooks(), 1);
    });

    test("with `frameworkErrors` a malformed escape in an id gets the gateway's reply, under each prefix [D1, D24, D60]", async () => {
      const app = create({ frameworkErrors });
      const hooks = countHooks(app);
      await using server = await serveApp(app, async (backendUrl) => {
        await app.register(workItemGateway, { backendUrl });
        await app.register(workItemGateway, { backendUrl, prefix: '/v1', itemIdParsing: 'whole' });
      });
      const headers = [['X-Request-Id', 'mine']] as const;
      for (const { method, options } of withId) {
        for (const path of malformedIds.flatMap((id) => [`/api/work-items/${id}`, `/v1/api/work-items/${id}?x=1`])) {
          const reply = await server.call(method, path, { ...options, headers });
          assertReply(reply, 400, invalidId);
          assert.equal(reply.header('x-request-id'), 'mine');
        }
      }
      const head = await server.call('HEAD', '/api/work-items/%zz');
      assert.deepEqual([head.status, head.text], [400, '']);
      assertReply(await server.call('PATCH', '/api/work-items/%zz'), 405, methodNotAllowed, ['allow']);
      // Other paths keep Fastify's reply.
      for (const path of ['/%zz', '/api/work-items/5/%zz', '/v2/api/work-items/%zz', '/api/work-items%zz']) {
        const reply = await server.call('GET', path);
        assert.equal(reply.status, 400);
        assert.equal((JSON.parse(reply.text) as { code: string }).code, 'FST_ERR_BAD_URL');
      }
      // An absolute-form target whose host cannot be decoded calls no operation.
      await using client = await server.connect();
      client.send('DELETE http://%ff/api/work-items/5 HTTP/1.1\r\nHost: x\r\n\r\n');
      assert.equal((await client.reply()).status, 400);
      assert.equal(hooks(), 0);
      assert.deepEqual(server.backend.requests, []);
      assertReply(await server.call('GET', '/v1/api/work-items/5'), 200, '{"id":5}');
    });

    test('a server with `frameworkErrors` and without a gateway answers as Fastify does', async () => {
      const app = create({ frameworkErrors });
      app.get('/api/work-items/:id', () => 'mine');
      const reply = await app.inject('/api/work-items/%zz');
      assert.equal(reply.statusCode, 400);
      assert.equal(reply.json<{ code: string }>().code, 'FST_ERR_BAD_URL');
      await app.close();
    });
  });
}
