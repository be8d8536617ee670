// How exact the deadlines of backend calls are [D19]. The fault matrix has every way in which a backend can be late, and
// the simulation combines deadlines with calls that are sent again and connections that do not open.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { startBlackHole } from '../helpers/black-hole.ts';
import { assertReply, operations } from '../helpers/expected.ts';
import { answer, latency, timeout, type Answer } from '../helpers/scripted-backend.ts';
import { forEachTarget, Target } from '../helpers/targets.ts';

const timeoutMs = 300;
const toleranceMs = Math.max(100, timeoutMs * 0.1);

/** Sends `start`, then `piece` every 50 ms without end. */
function drip(start: string, piece = start): Answer {
  return async (exchange) => {
    await exchange.write(start);
    while (!exchange.isClosed) {
      await exchange.pause(50);
      await exchange.write(piece);
    }
  };
}

/** Late answers that no idle timeout would end. */
const lateAnswers: [name: string, backendAnswer: Answer][] = [
  ['never answers', timeout],
  ['sends a 1xx now and then', drip('HTTP/1.1 103 Early Hints\r\n\r\n')],
  ['drips its head', drip('HTTP/1.1 200 OK\r\n', 'X: 1\r\n')],
];

/**
 * Waits for `call`, which was sent at `sentAt` and whose deadline runs from now on. Asserts that it does not end before D19's
 * tolerance. Returns a message if it ends later. Test and gateway share one event loop, so the test's own timer, which is late
 * too, counts instead of the deadline.
 */
async function findLate(name: string, sentAt: number, call: Promise<void>): Promise<string | undefined> {
  const startedAt = performance.now();
  const ownTimer = new Promise((resolve) => setTimeout(resolve, timeoutMs)).then(() => performance.now());
  await call;
  const endedAt = performance.now();
  const latestAt = (await ownTimer) + toleranceMs;
  assert.ok(endedAt - sentAt >= timeoutMs - toleranceMs, `${name}: only ${(endedAt - sentAt).toFixed()} ms`);
  return endedAt <= latestAt ? undefined : `${name}: ${(endedAt - startedAt).toFixed()} ms`;
}

/** Measures until no call is late. A busy machine can make any call late, but not all of ten times. */
async function assertOnTime(measure: () => Promise<(string | undefined)[]>): Promise<void> {
  let late: unknown[] = [];
  for (let attempt = 0; attempt < 10; attempt += 1) {
    late = (await measure()).filter((each) => each !== undefined);
    if (late.length === 0) return;
  }
  assert.deepEqual(late, []);
}

forEachTarget(
  (target) => {
    test("if the backend is late, the client gets the operation's 500 at the deadline, and the backend connection is closed [D19]", async () => {
      const { backend } = target();
      await assertOnTime(async () => {
        const before = backend.requests.length;
        const cases = operations.flatMap((each) =>
          lateAnswers.map(([what, late]) => ({ ...each, what, late, ...Promise.withResolvers<undefined>() })),
        );
        backend.answers(async (exchange) => {
          const called = cases[Number(exchange.request.header('x-request-id'))];
          called?.resolve(undefined);
          await called?.late(exchange);
        });
        const late = await Promise.all(
          cases.map(async ({ name, what, method, path, options, failure, promise: hasArrived }, index) => {
            const sentAt = performance.now();
            const headers = [['X-Request-Id', String(index)]] as const;
            const call = target().call(method, path, { ...options, headers });
            await hasArrived;
            const refused = call.then((reply) => assertReply(reply, 500, failure));
            return await findLate(`operation ${name}, a backend that ${what}`, sentAt, refused);
          }),
        );
        await backend.until(() => backend.connectionsOpen === 0, 'every slow connection is closed');
        assert.equal(backend.requests.length - before, cases.length, 'no call was sent twice');
        return late;
      });
    });

    test("the backend's deadline does not include the time in which the client sends its body [D19]", async () => {
      await using client = await target().connect();
      client.send('PUT /api/work-items/5 HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{');
      await new Promise((resolve) => setTimeout(resolve, timeoutMs));
      target().backend.answers(latency(timeoutMs / 2, answer('')));
      client.send('}');
      assertReply(await client.reply(), 200, '{"success":true}');
    });
  },
  { backendTimeoutMs: timeoutMs },
  { kinds: ['in-process'] },
);

test('if the backend accepts no connection, the client gets 500 after BACKEND_CONNECT_TIMEOUT_MS [D19]', async (context) => {
  await using hole = await startBlackHole();
  if (!hole) {
    context.skip('this system accepts connections without limit');
    return;
  }
  const settings = { backendUrl: `http://127.0.0.1:${hole.port}`, backendConnectTimeoutMs: timeoutMs };
  await using target = await Target.start('in-process', settings, {});
  await assertOnTime(() =>
    Promise.all(
      operations.map(({ name, method, path, options, failure }) => {
        const sentAt = performance.now();
        const call = target.call(method, path, options);
        return findLate(`operation ${name}`, sentAt, call.then((reply) => assertReply(reply, 500, failure))); // prettier-ignore
      }),
    ),
  );
});
