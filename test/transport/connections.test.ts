// Connections to the backend under many calls, and with a backend that stops and starts again.

import assert from 'node:assert/strict';
import { readdirSync } from 'node:fs';
import { after, before, test } from 'node:test';
import { poll } from '../helpers/changes.ts';
import { assertReply, succeeded } from '../helpers/expected.ts';
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
  test('with 100 parallel clients, each call is answered by one backend call, and all sockets are closed in the end', async () => {
    const { backend } = target();
    await target().settle();
    const base = countSockets(target());
    backend.reset();
    backend.answers((exchange) => answer(JSON.stringify(exchange.request.target))(exchange));
    const clients = await Promise.all(Array.from({ length: 100 }, () => target().connect()));
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
    assert.equal(backend.requests.length, 100 * rounds);
    assert.equal(new Set(backend.requests.map((call) => call.target)).size, 100 * rounds);
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
}, settings);
