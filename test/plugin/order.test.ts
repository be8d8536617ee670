// Pipelined requests through hooks of any duration: backend calls are made in the order of the requests, and a write ends
// before the next call begins [D27].

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import type { FastifyInstance, FastifyRequest } from 'fastify';
import { createGate, poll } from '../helpers/changes.ts';
import { assertReply, invalidId, succeeded } from '../helpers/expected.ts';
import { hosts, serve } from './hosts.ts';
import { requestBytes } from '../helpers/raw-client.ts';
import { answer, behind } from '../helpers/scripted-backend.ts';

const hookNames = ['onRequest', 'preParsing', 'preValidation', 'preHandler'] as const;
const put = (id: number | string, body = `{"id":${JSON.stringify(id)}}`) =>
  requestBytes('PUT', `/api/work-items/${id}`, { body });
const get = (path: string) => requestBytes('GET', path);
const targetsOf = ({ requests }: { requests: readonly { method: string; target: string }[] }) =>
  requests.map(({ method, target }) => `${method} ${target}`);

/** Adds a hook that finishes `count` requests in reverse order. */
function reverse(app: FastifyInstance, hookName: (typeof hookNames)[number], count: number): void {
  const waiting: (() => void)[] = [];
  app.addHook(hookName as 'onRequest', async ({ headers }: FastifyRequest) => {
    if (headers['x-at-once'] !== undefined) return;
    await new Promise<void>((resolve) => {
      waiting.push(resolve);
      if (waiting.length === count) {
        const next = (): void => {
          waiting.pop()?.();
          if (waiting.length > 0) setImmediate(next);
        };
        next();
      }
    });
  });
}

for (const host of hosts) {
  describe(host.name, () => {
    for (const hookName of hookNames) {
      test(`async ${hookName} hooks that finish in reverse order do not change the order of calls [D27]`, async () => {
        const app = host.create();
        reverse(app, hookName, 6);
        await using server = await serve(app);
        await using client = await server.connect();
        client.send(Buffer.concat([put(1), put(2), get('/api/work-items/3'), put(4), put('x'), put(5)]));
        for (const id of [1, 2, 3, 4, 'x', 5]) {
          const reply = await client.reply();
          if (id === 'x') assertReply(reply, 400, invalidId);
          else assertReply(reply, 200, id === 3 ? '{"id":5}' : succeeded);
        }
        const expected = ['PUT 1', 'PUT 2', 'GET 3', 'PUT 4', 'PUT 5'].map((each) =>
          each.replace(' ', ' /api/WorkItem/'),
        );
        assert.deepEqual([targetsOf(server.backend), server.backend.violations], [expected, []]);
      });
    }

    test('a request waits for the previous write on its connection, even if the hooks of this request are done [D27]', async () => {
      const app = host.create();
      reverse(app, 'preHandler', 2);
      await using server = await serve(app);
      const gate = createGate();
      server.backend.answersOnce(behind(gate, answer('{}')));
      await using client = await server.connect();
      client.send(Buffer.concat([put(1), put(2)]));
      await server.backend.nextRequest();
      const other = await server.call('GET', '/api/work-items', { headers: [['X-At-Once', '1']] });
      assertReply(other, 200, '{"id":5}');
      assert.deepEqual(targetsOf(server.backend), ['PUT /api/WorkItem/1', 'GET /api/WorkItem']);
      gate.open();
      assertReply(await client.reply(), 200, succeeded);
      assertReply(await client.reply(), 200, succeeded);
      assert.equal(targetsOf(server.backend).at(-1), 'PUT /api/WorkItem/2');
    });

    test("the order is kept if hooks refuse requests and if the server's own routes reply", async () => {
      const app = host.create();
      const waiting = createGate();
      app.addHook('onRequest', async (incoming, reply) => {
        if (incoming.url === '/slow' || incoming.url === '/api/work-items/1') await waiting.opened;
        if (incoming.url === '/api/work-items/3') await reply.code(401).send({ mine: true });
      });
      app.get('/slow', () => ({ slow: true }));
      app.get('/fast', () => {
        setImmediate(waiting.open);
        return { fast: true };
      });
      await using server = await serve(app);
      await using client = await server.connect();
      client.send(Buffer.concat([get('/slow'), put(1), put(2), put(3), put(4), get('/fast'), put(5)]));
      const texts: string[] = [];
      for (let count = 0; count < 7; count += 1) texts.push((await client.reply()).text);
      const expected = ['{"slow":true}', succeeded, succeeded, '{"mine":true}', succeeded, '{"fast":true}', succeeded];
      assert.deepEqual(texts, expected);
      assert.deepEqual(targetsOf(server.backend), [1, 2, 4, 5].map((id) => `PUT /api/WorkItem/${id}`)); // prettier-ignore
    });

    test('if a client leaves while a hook delays its first request, none of its requests reaches the backend', async () => {
      const app = host.create();
      const gate = createGate();
      let hooks = 0;
      app.addHook('preHandler', async ({ headers }) => {
        if (headers['x-at-once'] !== undefined) return;
        hooks += 1;
        if (hooks === 1) await gate.opened;
      });
      await using server = await serve(app);
      const client = await server.connect();
      client.send(Buffer.concat([put(1), put(2), put(3)]));
      await poll(() => hooks === 3, 'all three requests have reached the hook');
      client.reset();
      for (let count = 0; count < 2; count += 1) {
        const other = await server.call('GET', '/api/work-items', { headers: [['X-At-Once', '1']] });
        assert.equal(other.status, 200);
        gate.open();
      }
      assert.deepEqual(targetsOf(server.backend), ['GET /api/WorkItem', 'GET /api/WorkItem']);
    });
  });
}
