// The end of a Fastify server with the plugin in it: calls in flight get their replies, and there is an end to waiting.
// D55.

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { createGate, within } from '../helpers/changes.ts';
import { assertReply, operation, operations, succeeded } from '../helpers/expected.ts';
import { hosts, serve } from '../helpers/hosts.ts';
import { RawClient, requestBytes } from '../helpers/raw-client.ts';
import { answer, behind, timeout } from '../helpers/scripted-backend.ts';

for (const host of hosts) {
  describe(host.name, () => {
    test('app.close() lets calls in flight have their replies, closes their connections, and then is done [D55]', async () => {
      const app = host.create();
      await using server = await serve(app);
      const gate = createGate();
      server.backend.answers(behind(gate, answer('{"id":5}')));
      const clients = await Promise.all(operations.map(() => RawClient.open(server.port)));
      for (const [index, { method, path, options }] of operations.entries()) {
        clients[index]?.send(requestBytes(method, path, options));
      }
      await server.backend.until(() => server.backend.requests.length === operations.length, 'all calls');
      const closed = app.close();
      // The server takes no new connection by now, or in a moment.
      await new Promise((resolve) => setImmediate(resolve));
      gate.open();
      for (const [index, { status, body }] of operations.entries()) {
        const client = clients[index];
        assert.ok(client);
        const reply = await client.reply();
        assertReply(reply, status, body);
        assert.equal(reply.header('connection'), 'close');
        await client.closed();
      }
      await within(closed, 'the server is closed');
      await assert.rejects(RawClient.open(server.port));
    });

    test('past shutdownTimeoutMs what is left is cut: the operation fails, and app.close() is done [D55]', async () => {
      const app = host.create();
      await using server = await serve(app, { shutdownTimeoutMs: 100 });
      server.backend.answers(timeout);
      await using client = await RawClient.open(server.port);
      client.send(requestBytes('PUT', '/api/work-items/5', { body: '{}' }));
      await server.backend.nextRequest();
      const closed = app.close();
      assertReply(await client.reply(), 500, operation(4).failure);
      await within(closed, 'the server is closed');
    });

    test('a server that is not used closes at once, and one that has served, too [D55]', async () => {
      const unused = host.create();
      await using first = await serve(unused);
      await within(unused.close(), 'it is closed');
      assert.deepEqual(first.backend.requests, []);
      const used = host.create();
      await using second = await serve(used);
      assertReply(await second.call('DELETE', '/api/work-items/5'), 200, succeeded);
      await within(used.close(), 'it is closed');
    });
  });
}
