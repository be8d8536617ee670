// How exact the deadlines of backend calls are [D19]. The fault matrix has every way in which a backend can be late.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { BackendClient, type Outcome } from '../../packages/core/backend/client.ts';
import { createOpenSocket } from '../../packages/core/hosts/dialing/open-socket.ts';
import { BorrowedBytes } from '../../packages/core/http1/borrowed-bytes.ts';
import { BufferBudget } from '../../packages/core/body/budget.ts';
import { within } from '../helpers/changes.ts';
import { BlockingListener, startBlackHole } from '../helpers/black-hole.ts';
import { assertReply, operations } from '../helpers/expected.ts';
import { answer, latency, timeout, type Answer } from '../helpers/scripted-backend.ts';
import { forEachTarget, Target } from '../helpers/targets.ts';

const backlogIsEndless = 'this system accepts connections without limit';
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
    context.skip(backlogIsEndless);
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

/**
 * Starts a backend that answers one call. After the answer (`idle`) or at the second call (`asked`), it accepts nothing more,
 * and closes its connection when `die` is called. `isFull`: its listen queue is full; false if that queue has no limit.
 */
async function startDyingBackend(dies: 'idle' | 'asked') {
  const backend = await BlockingListener.start(`
    server.on('connection', (socket) => {
      let calls = 0;
      const wait = () => {
        writeSync(1, 'waits\\n');
        readSync(0, Buffer.alloc(1));
        socket.destroy();
        block();
      };
      socket.on('data', () => {
        calls += 1;
        if (calls === 2) wait();
        else socket.write('HTTP/1.1 200 OK\\r\\nContent-Length: 2\\r\\n\\r\\n[]', ${dies === 'idle' ? 'wait' : 'undefined'});
      });
    });
  `);
  const isFull = () => backend.prints(/^waits$/m).then(() => backend.fill());
  return Object.assign(backend, { isFull, die: () => backend.process.stdin?.write('x') });
}

test('a GET that is sent again keeps its deadline, even if the backend accepts no new connection [D19, D20]', async (context) => {
  await using backend = await startDyingBackend('asked');
  const backendUrl = `http://127.0.0.1:${backend.port}`;
  const settings = { backendUrl, backendTimeoutMs: 2000, backendConnectTimeoutMs: 20_000 };
  await using target = await Target.start('in-process', settings, {});
  assertReply(await target.call('GET', '/api/work-items'), 200, '[]');
  const startedAt = performance.now();
  const call = target.call('GET', '/api/work-items');
  if (!(await backend.isFull())) {
    context.skip(backlogIsEndless);
    return;
  }
  backend.die();
  assertReply(await call, 500, '{"error":"Failed to fetch work items"}');
  // BACKEND_CONNECT_TIMEOUT_MS, which is 20 s, is not added to the deadline.
  assert.ok(performance.now() - startedAt < 15_000);
});

test('after an idle connection has died, BACKEND_CONNECT_TIMEOUT_MS limits the wait for a new connection [D19]', async (context) => {
  await using backend = await startDyingBackend('idle');
  const backendUrl = new URL(`http://127.0.0.1:${backend.port}`);
  const limits = { timeoutMs: 30_000, connectTimeoutMs: 500, idleTimeoutMs: 30_000, connectionAgeMaxMs: 0 };
  const open = createOpenSocket(backendUrl);
  const budget = new BufferBudget(1000);
  const client = new BackendClient({ backendUrl, open, ...limits, responseBytesMax: 1000, budget });
  const body = BorrowedBytes.ofConstant(Buffer.from('{}'));
  const call = { method: 'POST', path: '/', body, requestId: 'x', headers: [], needsAnswer: true } as const;
  const send = () => new Promise<Outcome>((resolve, onFault) => client.send(call, { onOutcome: resolve, onFault }));
  assert.equal((await send()).kind, 'ok');
  if (await backend.isFull()) {
    backend.die();
    // Blocks the event loop while the connection closes, so that the client has not noticed the close at the next call.
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 300);
    const outcome = await within(send(), 'an outcome before the deadline of the answer', 5000);
    const cause = 'no connection within 500 ms';
    assert.deepEqual(outcome, { kind: 'timed-out', status: undefined, reason: 'connect-timeout', cause });
  } else {
    context.skip(backlogIsEndless);
  }
  await client.close();
});
