// The client leaves at each stage of a request. A read is cancelled at the backend at once; a write that has been sent
// runs to its end [D21]. In test/simulation, clients leave at any byte.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createGate, within } from '../helpers/changes.ts';
import { operation } from '../helpers/expected.ts';
import { requestBytes, type RawClient } from '../helpers/raw-client.ts';
import { answer, answerBytes, type Exchange } from '../helpers/scripted-backend.ts';
import { forEachTarget } from '../helpers/targets.ts';

const [create, read] = [operation(2), operation(3)].map(({ method, path, options }) =>
  requestBytes(method, path, options),
) as [Buffer, Buffer];
const whole = answerBytes(`"${'x'.repeat(10_000)}"`);

forEachTarget((target) => {
  for (const [how, leave] of [
    ['closes its connection', (client: RawClient) => client.destroy()],
    ['resets its connection', (client: RawClient) => client.reset()],
    ['closes only its sending side', (client: RawClient) => client.end()],
  ] as const) {
    /** Sends `bytes`, and leaves when the backend has sent `first`. The backend sends `second` when the gate opens. */
    const leaveDuring = async (bytes: Buffer, first: Uint8Array, second: Uint8Array) => {
      const gate = createGate();
      const done = createGate();
      const { promise: taken, resolve } = Promise.withResolvers<Exchange>();
      target().backend.answersOnce(async (exchange) => {
        await exchange.write(first);
        resolve(exchange);
        await Promise.race([gate.opened, exchange.closed]);
        await exchange.write(second);
        done.open();
      });
      await using client = await target().connect();
      client.send(bytes);
      const exchange = await within(taken, 'the backend call');
      leave(client);
      return { exchange, gate, done };
    };

    test(`if a client ${how} before its request is complete, the backend is not called [D21]`, async () => {
      await target().withoutBackendCall(async () => {
        for (const length of [1, 10, create.indexOf('\r\n\r\n') + 2, create.length - 1]) {
          await using client = await target().connect();
          await client.sendPieces([create.subarray(0, length)]);
          leave(client);
        }
      });
    });

    test(`if a client ${how} while the backend works or in the middle of the answer, its read is cancelled at once [D21]`, async () => {
      for (const sent of [0, 5_000]) {
        const { exchange } = await leaveDuring(read, whole.subarray(0, sent), whole.subarray(sent));
        await within(exchange.closed, 'the backend connection is closed');
        await target().settle();
      }
    });

    test(`if a client ${how} while the backend works, its write still runs to its end, and the answer is dropped [D21]`, async () => {
      const { exchange, gate, done } = await leaveDuring(create, Buffer.alloc(0), answerBytes('{}'));
      for (let count = 0; count < 5; count += 1) await target().settle();
      assert.equal(exchange.isClosed, false, 'the write goes on');
      gate.open();
      await within(done.opened, 'the answer is sent');
      await target().settle();
      assert.equal(target().backend.requests.filter(({ method }) => method === 'POST').length, 1, 'sent once');
    });

    test(`other clients are served after a client ${how} while it receives a large reply [D21]`, async () => {
      target().backend.answersOnce(answer(Buffer.alloc(8_000_000, '1')));
      await using client = await target().connect();
      client.send(read);
      await client.receives(1);
      client.pause();
      leave(client);
      await target().settle();
    });
  }
}, {}, { kinds: ['in-process'] }); // prettier-ignore
