// Connections, many calls, and a backend that goes away and comes back between them.

import assert from 'node:assert/strict';
import { readdirSync } from 'node:fs';
import { after, before, test } from 'node:test';
import { poll } from '../helpers/changes.ts';
import { assertReply, operations, succeeded } from '../helpers/expected.ts';
import { RawClient } from '../helpers/raw-client.ts';
import { answer, rawThenClose } from '../helpers/scripted-backend.ts';
import { forEveryTarget, type Target } from '../helpers/targets.ts';

const warnings: string[] = [];
const note = (warning: Error) => {
  warnings.push(`${warning.name}: ${warning.message}`);
};
before(() => process.on('warning', note));
after(() => {
  process.off('warning', note);
  assert.deepEqual(warnings, [], 'no warning, of a listener leak or of anything else');
});

/** Open sockets of the process that the target runs in; undefined where the system does not show them. */
function countSockets({ command }: Target): number | undefined {
  try {
    return readdirSync(`/proc/${command?.process.pid ?? 'self'}/fd`).length;
  } catch {
    return undefined;
  }
}

forEveryTarget((target) => {
  test('1,000 calls one after the other on one connection: 1,000 backend calls on one connection [spec 1]', async () => {
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
    assert.equal(backend.connectionsTaken, connectionsTaken, 'no connection but the one that was there');
  });

  // The command stands for a process of its own; here, where test and gateway share one, a fifth will do.
  const rounds = () => (target().command ? 50 : 10);
  test('10,000 calls, 200 at a time: every one answered, one backend call each, and the sockets back to base', async () => {
    const { backend } = target();
    await target().settle();
    const base = countSockets(target());
    backend.reset();
    backend.answers((exchange) => answer(JSON.stringify(exchange.request.target))(exchange));
    const clients = await Promise.all(Array.from({ length: 200 }, () => target().connect()));
    await Promise.all(
      clients.map(async (client, index) => {
        for (let count = 0; count < rounds(); count += 1) {
          const id = index * 50 + count;
          if (count % 5 === 4) {
            assertReply(
              await client.call('PUT', `/api/work-items/${id}`, { body: `[${id}]` }),
              200,
              succeeded,
            );
          } else {
            assertReply(await client.call('GET', `/api/work-items/${id}`), 200, `"/api/WorkItem/${id}"`);
          }
        }
      }),
    );
    assert.equal(backend.requests.length, 200 * rounds());
    assert.equal(new Set(backend.requests.map((call) => call.target)).size, 200 * rounds());
    for (const client of clients) client.destroy();
    // Idle connections to the backend are kept for a few seconds; then there are as many sockets as before.
    await poll(
      () => {
        const now = countSockets(target());
        return backend.connectionsOpen <= 1 && (now === undefined || base === undefined || now <= base + 2);
      },
      'sockets are back to base',
      15_000,
    );
    await target().settle();
  });

  test('large bodies side by side, both ways, are not mixed up', async () => {
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

  test('a client that stops reading for a while still gets every byte of its reply', async () => {
    const body = `"${'x'.repeat(8_000_000)}"`;
    target().backend.answersOnce(answer(body));
    await using client = await target().connect();
    client.send('GET /api/work-items HTTP/1.1\r\nHost: x\r\n\r\n');
    await client.receives(1);
    client.pause();
    for (let count = 0; count < 20; count += 1) await target().settle();
    client.resume();
    const reply = await client.reply();
    assert.equal(reply.body.length, body.length);
    assert.ok(reply.body.equals(Buffer.from(body)));
  });

  test('the backend closes its idle connections again and again: no GET is lost [D20]', async () => {
    const { backend } = target();
    await using client = await target().connect();
    for (let round = 0; round < 100; round += 1) {
      assertReply(await client.call('GET', '/api/work-items'), 200, '[]');
      backend.closeConnections();
      assertReply(await client.call('GET', '/api/work-items/5'), 200, '[]');
    }
  });

  for (const reset of [false, true]) {
    test(`the backend is restarted between calls (connections ${reset ? 'reset' : 'closed'}): no GET is lost, and then every operation works`, async () => {
      const { backend } = target();
      await using client = await target().connect();
      for (let round = 0; round < 10; round += 1) {
        await Promise.all(Array.from({ length: 10 }, () => target().call('GET', '/api/work-items')));
        await backend.stop({ reset });
        await backend.restart();
        assertReply(await client.call('GET', '/api/work-items'), 200, '[]');
        for (const { method, path, options, status } of operations) {
          assert.equal(
            (await client.call(method, path, options)).status,
            status,
            `${method} after a restart`,
          );
        }
      }
    });
  }

  test('while the backend is away every operation is its 500, and the first call after its return succeeds', async () => {
    const { backend } = target();
    await target().settle();
    await backend.stop();
    try {
      for (let round = 0; round < 20; round += 1) {
        for (const { method, path, options, failure } of operations) {
          assertReply(await target().call(method, path, options), 500, failure);
        }
      }
    } finally {
      await backend.restart();
    }
    for (const { method, path, options, status } of operations) {
      assert.equal((await target().call(method, path, options)).status, status);
    }
  });

  for (const [name, headers] of [
    ['Connection: close', [['Connection', 'close']]],
    ['Connection: Close, and more', [['Connection', 'Close, X-Extra']]],
  ] as const) {
    test(`an answer with ${name} is heeded: the connection is not used again`, async () => {
      const { backend } = target();
      backend.answers(answer('[]', { headers }));
      for (let count = 0; count < 3; count += 1) {
        for (const { method, path, options } of operations) await target().call(method, path, options);
      }
      const [, ...later] = backend.requests;
      assert.ok(later.every((call) => call.indexOnConnection === 0));
      await backend.until(() => backend.connectionsOpen === 0, 'every connection is closed');
    });
  }

  test('a connection that the backend announces to close soon is given up in time', async () => {
    const { backend } = target();
    backend.answersOnce(answer('[]', { headers: [['Connection', 'close']] }));
    await target().call('GET', '/api/work-items');
    backend.answers(answer('[]', { headers: [['Keep-Alive', 'timeout=2']] }));
    await target().call('GET', '/api/work-items');
    const { connection } = backend.requests.at(-1) ?? assert.fail('a call');
    await backend.connectionClosed(connection, 2000);
  });

  test('an HTTP/1.0 answer ends its connection', async () => {
    target().backend.answers(rawThenClose('HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\n[]'));
    for (let count = 0; count < 3; count += 1) {
      for (const { method, path, options, status } of operations) {
        assert.equal((await target().call(method, path, options)).status, status);
      }
    }
  });

  test('500 connections that say nothing disturb nobody', async () => {
    const idle = await Promise.all(Array.from({ length: 500 }, () => RawClient.open(target().port)));
    for (const { method, path, options, status } of operations) {
      assert.equal((await target().call(method, path, options)).status, status);
    }
    for (const client of idle) client.destroy();
    assertReply(await target().call('GET', '/api/work-items/x'), 400, '{"error":"Invalid ID format"}');
  });
});
