// Connections to the backend under many calls, and with a backend that stops and starts again.

import assert from 'node:assert/strict';
import { readdirSync } from 'node:fs';
import { after, before, test } from 'node:test';
import { poll } from '../helpers/changes.ts';
import { assertReply, operations, succeeded } from '../helpers/expected.ts';
import { answer } from '../helpers/scripted-backend.ts';
import { forEveryTarget, type Target } from '../helpers/targets.ts';

const warnings: string[] = [];
const note = (warning: Error) => warnings.push(`${warning.name}: ${warning.message}`);
before(() => process.on('warning', note));
after(() => {
  process.off('warning', note);
  assert.deepEqual(warnings, [], 'no warning');
});

/** The number of open files of the target's process, or undefined if the OS does not list them. */
function countSockets({ command }: Target): number | undefined {
  try {
    return readdirSync(`/proc/${command?.process.pid ?? 'self'}/fd`).length;
  } catch {
    return undefined;
  }
}

const rounds = 10;
// Short, so that idle connections are closed soon.
const settings = { backendIdleTimeoutMs: 2000 };

forEveryTarget((target) => {
  test('1,000 calls in sequence on one connection: 1,000 backend calls on one connection [spec 1]', async () => {
    const { backend } = target();
    await target().settle();
    const { connectionsTaken } = backend;
    backend.reset();
    await using client = await target().connect();
    for (let count = 0; count < 200; count += 1) {
      for (const { method, path, options, status } of operations) {
        assert.equal((await client.call(method, path, options)).status, status);
      }
    }
    assert.equal(backend.requests.length, 1000);
    assert.equal(backend.connectionsTaken, connectionsTaken, 'no new connection');
  });

  test('200 clients at once: each call is answered by one backend call, and all sockets are closed in the end', async () => {
    const { backend } = target();
    await target().settle();
    const base = countSockets(target());
    backend.reset();
    backend.answers((exchange) => answer(JSON.stringify(exchange.request.target))(exchange));
    const clients = await Promise.all(Array.from({ length: 200 }, () => target().connect()));
    await Promise.all(
      clients.map(async (client, index) => {
        for (let count = 0; count < rounds; count += 1) {
          const id = index * 50 + count;
          if (count % 5 === 4) {
            assertReply(await client.call('PUT', `/api/work-items/${id}`, { body: `[${id}]` }), 200, succeeded);
          } else {
            assertReply(await client.call('GET', `/api/work-items/${id}`), 200, `"/api/WorkItem/${id}"`);
          }
        }
      }),
    );
    assert.equal(backend.requests.length, 200 * rounds);
    assert.equal(new Set(backend.requests.map((call) => call.target)).size, 200 * rounds);
    for (const client of clients) client.destroy();
    await poll(
      () => {
        const now = countSockets(target());
        return backend.connectionsOpen <= 1 && (now === undefined || base === undefined || now <= base + 2);
      },
      'as many sockets as before',
      15_000,
    );
    await target().settle();
  });

  test('large bodies at the same time, both ways, are not mixed up', async () => {
    const { backend } = target();
    backend.answers((exchange) => {
      const id = exchange.request.target.split('/').at(-1) ?? '';
      return answer(`"${id.repeat(300_000)}"`)(exchange);
    });
    await Promise.all(
      ['1', '2', '3', '4', '5', '6', '7', '8'].map(async (id) => {
        const body = `"${id.repeat(300_000)}"`;
        assertReply(await target().call('PUT', `/api/work-items/${id}`, { body }), 200, succeeded);
        const reply = await target().call('GET', `/api/work-items/${id}`);
        assert.equal(reply.status, 200);
        assert.ok(reply.body.equals(Buffer.from(body)));
      }),
    );
    for (const call of backend.requests.filter(({ method }) => method === 'PUT')) {
      const id = call.target.split('/').at(-1) ?? '';
      assert.ok(call.body.equals(Buffer.from(`"${id.repeat(300_000)}"`)));
    }
  });

  for (const reset of [false, true]) {
    test(`no GET is lost when the backend restarts (connections ${reset ? 'reset' : 'closed'}), and then every operation works`, async () => {
      const { backend } = target();
      await using client = await target().connect();
      for (let round = 0; round < 10; round += 1) {
        await Promise.all(Array.from({ length: 10 }, () => target().call('GET', '/api/work-items')));
        await backend.stop({ reset });
        await backend.restart();
        assertReply(await client.call('GET', '/api/work-items'), 200, '[]');
        for (const { method, path, options, status } of operations) {
          assert.equal((await client.call(method, path, options)).status, status, `${method} after a restart`);
        }
      }
    });
  }
}, settings);
