// The client leaves at each stage of a request. A read is cancelled at the backend at once; a write that has been sent
// runs to its end. D21.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createGate, within } from '../helpers/changes.ts';
import { operations, type Operation } from '../helpers/expected.ts';
import { requestBytes, type RawClient } from '../helpers/raw-client.ts';
import { answer, answerBytes, timeout, type Answer, type Exchange } from '../helpers/scripted-backend.ts';
import { forEachTarget } from '../helpers/targets.ts';

const isRead = ({ method }: Operation) => method === 'GET';

/** The longest time that counts as "at once" on a busy machine, in ms. */
const atOnceMs = 1000;

const leavings: [name: string, leave: (client: RawClient) => void][] = [
  ['closes its connection', (client) => client.destroy()],
  ['resets its connection', (client) => client.reset()],
  ['closes only its sending side', (client) => client.end()],
]; // prettier-ignore

forEachTarget((target) => {
  /** Answers the next call with `parts` or `{}`. `taken` resolves before the last part, which is sent after `open`. */
  function hold(...parts: readonly Uint8Array[]) {
    const gate = createGate();
    const done = createGate();
    const { promise, resolve } = Promise.withResolvers<Exchange>();
    const held: Answer = async (exchange) => {
      for (const part of parts.slice(0, -1)) await exchange.write(part);
      resolve(exchange);
      await Promise.race([gate.opened, exchange.closed]);
      await exchange.write(parts.at(-1) ?? answerBytes('{}'));
      done.open();
    };
    target().backend.answersOnce(held);
    return { taken: promise, open: gate.open, answered: done.opened };
  }

  for (const [how, leave] of leavings) {
    for (const each of operations) {
      const bytes = requestBytes(each.method, each.path, each.options);
      test(`operation ${each.name}: if a client ${how} before its request is complete, the backend is not called [D21]`, async () => {
        await target().withoutBackendCall(async () => {
          for (const length of new Set([1, 10, bytes.indexOf('\r\n\r\n') + 2, bytes.length - 1])) {
            await using client = await target().connect();
            await client.sendPieces([bytes.subarray(0, length)]);
            leave(client);
          }
        });
      });

      if (isRead(each)) {
        const whole = answerBytes(`"${'x'.repeat(10_000)}"`);
        for (const [when, parts] of [
          ['while the backend works', []],
          ['in the middle of the answer', [whole.subarray(0, 5000), whole.subarray(5000)]],
        ] as const) {
          test(`operation ${each.name}: if a client ${how} ${when}, its read is cancelled at once [D21]`, async () => {
            const { taken } = hold(...parts);
            await using client = await target().connect();
            client.send(bytes);
            const exchange = await within(taken, 'the backend call');
            leave(client);
            await within(exchange.closed, 'the backend connection is closed', atOnceMs);
            await target().settle();
          });
        }
      } else {
        test(`operation ${each.name}: if a client ${how} while the backend works, its write still runs to its end, and the answer is dropped [D21]`, async () => {
          const { taken, open, answered } = hold();
          await using client = await target().connect();
          client.send(bytes);
          const exchange = await within(taken, 'the backend call');
          leave(client);
          for (let count = 0; count < 5; count += 1) await target().settle();
          assert.equal(exchange.isClosed, false, 'the write goes on');
          open();
          await within(answered, 'the answer is sent');
          await target().settle();
          const calls = target().backend.requests.filter((call) => call.method === each.method);
          assert.equal(calls.length, 1, 'sent once');
        });
      }
    }

    test(`other clients are served after a client ${how} while it receives a large reply [D21]`, async () => {
      target().backend.answersOnce(answer(Buffer.alloc(8_000_000, '1')));
      await using client = await target().connect();
      client.send(requestBytes('GET', '/api/work-items'));
      await client.receives(1);
      client.pause();
      leave(client);
      await target().settle();
    });
  }

  test('300 reads whose clients leave, 100 at a time, are all cancelled, and no connection is left [D21]', async () => {
    const { backend } = target();
    backend.answers(timeout);
    for (let round = 0; round < 3; round += 1) {
      const before = backend.requests.length;
      const clients = await Promise.all(Array.from({ length: 100 }, () => target().connect()));
      for (const client of clients) client.send(requestBytes('GET', '/api/work-items'));
      await backend.until(() => backend.requests.length === before + 100, '100 backend calls');
      for (const client of clients) client.reset();
      await backend.until(() => backend.connectionsOpen === 0, 'all are cancelled');
    }
    backend.answers(answer('[]'));
    await target().settle();
  });
}, {}, { kinds: ['in-process'] }); // prettier-ignore
