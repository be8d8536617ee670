// How long the backend may take: D19. The cases of one operation run side by side: each takes the whole deadline.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { BackendClient, type Outcome } from '../../packages/core/backend/client.ts';
import { BufferBudget } from '../../packages/core/body/budget.ts';
import { within } from '../helpers/changes.ts';
import { startBlackHole, startDyingBackend } from '../helpers/black-hole.ts';
import { assertReply, itemNotFound, operations } from '../helpers/expected.ts';
import {
  answer,
  answerBytes,
  bandwidth,
  latency,
  raw,
  timeout,
  type Answer,
} from '../helpers/scripted-backend.ts';
import { forEveryTarget, Target, targetKinds } from '../helpers/targets.ts';

const timeoutMs = 500;
const toleranceMs = Math.max(100, timeoutMs * 0.1);

const stalls: [name: string, backendAnswer: Answer][] = [
  ['never answers', timeout],
  ['stops in the status line', raw('HTTP/1.1 2')],
  ['stops in the head', raw('HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n')],
  ['sends one 1xx and no more', raw('HTTP/1.1 100 Continue\r\n\r\n')],
  ['sends a 1xx now and then', drip('HTTP/1.1 103 Early Hints\r\n\r\n')],
  ['drips its head', async (exchange) => {
    await exchange.write('HTTP/1.1 200 OK\r\n');
    await drip('X: 1\r\n')(exchange);
  }],
]; // prettier-ignore

/** Stalls behind a good head: they fail the operations that need the body. */
const bodyStalls: [name: string, backendAnswer: Answer][] = [
  ['stops after the head', raw('HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n')],
  ['stops in the body', raw('HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{')],
  ['stops before the last chunk', raw('HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n')],
  ['sends too slowly', bandwidth(200, answerBytes(`"${'x'.repeat(2000)}"`))],
  ['drips its body without end', async (exchange) => {
    await exchange.write('HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n');
    await drip('1\r\n \r\n')(exchange);
  }],
]; // prettier-ignore

async function time(act: () => Promise<void>): Promise<number> {
  const started = performance.now();
  await act();
  return performance.now() - started;
}

/**
 * Every time that `measure` gives is the deadline within D19's tolerance, in one of five attempts: on a busy
 * machine it is the test's own process that may be late, now for one and now for another.
 */
async function assertOnTime(measure: () => Promise<[name: string, ms: number][]>): Promise<void> {
  const late = new Map<string, string>();
  for (let attempt = 0; attempt < 5; attempt += 1) {
    for (const [name, ms] of await measure()) {
      if (Math.abs(ms - timeoutMs) <= toleranceMs) {
        late.set(name, '');
      } else if (late.get(name) !== '') {
        late.set(name, `${name}: ${ms.toFixed()} ms`);
      }
    }
    if ([...late.values()].every((each) => each === '')) return;
  }
  assert.deepEqual(
    [...late.values()].filter((each) => each !== ''),
    [],
  );
}

/** A piece every 50 ms, so that no idle time ends it. */
function drip(piece: string): Answer {
  return async (exchange) => {
    while (!exchange.isClosed) {
      await exchange.write(piece);
      await latency(50, () => undefined)(exchange);
    }
  };
}

forEveryTarget(
  (target) => {
    for (const each of operations) {
      const cases = each.passesBody ? [...stalls, ...bodyStalls] : stalls;
      test(`operation ${each.name}: a backend that takes too long is the operation's 500 at the deadline, and its connection is closed [D19]`, async () => {
        const { backend } = target();
        backend.answers(async (exchange) => {
          const [, backendAnswer] = cases[Number(exchange.request.header('x-request-id'))] ?? [];
          await backendAnswer?.(exchange);
          await timeout(exchange);
        });
        await assertOnTime(async () => {
          const before = backend.requests.length;
          const times = await Promise.all(
            cases.map(async (_, index) => {
              await using client = await target().connect();
              const headers = [['X-Request-Id', String(index)]] as const;
              return await time(async () => {
                assertReply(
                  await client.call(each.method, each.path, { ...each.options, headers }),
                  500,
                  each.failure,
                );
              });
            }),
          );
          await backend.until(
            () => backend.connectionsOpen === 0,
            'every connection that took too long is closed',
          );
          assert.equal(backend.requests.length - before, cases.length, 'none was sent twice');
          return cases.map(([name], index) => [`a backend that ${name}`, times[index] ?? 0]);
        });
      });
    }

    test('an answer that is slow and whole before the deadline is passed on [D19]', async () => {
      target().backend.answers(latency(timeoutMs / 2, answer('{"id":5}')));
      assertReply(await target().call('GET', '/api/work-items/5'), 200, '{"id":5}');
    });

    test('a 404 before the deadline is a 404, its body may take for ever [D17, D19]', async () => {
      target().backend.answers(async (exchange) => {
        await exchange.write('HTTP/1.1 404 Not Found\r\nContent-Length: 100\r\n\r\n');
        await timeout(exchange);
      });
      assertReply(await target().call('GET', '/api/work-items/5'), 404, itemNotFound);
    });

    test('a client that sends slowly does not use up the time of the backend [D19]', async () => {
      await using client = await target().connect();
      client.send('PUT /api/work-items/5 HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{');
      await new Promise((resolve) => setTimeout(resolve, timeoutMs));
      target().backend.answers(latency(timeoutMs / 2, answer('')));
      client.send('}');
      assertReply(await client.reply(), 200, '{"success":true}');
    });
  },
  { backendTimeoutMs: timeoutMs },
);

for (const kind of targetKinds) {
  test(`${kind}: a backend that takes no connection is the operation's 500 at BACKEND_CONNECT_TIMEOUT_MS [D19]`, async (context) => {
    await using hole = await startBlackHole();
    if (!hole) {
      context.skip('this system takes connections without end');
      return;
    }
    const settings = {
      backendUrl: `http://127.0.0.1:${hole.port}`,
      backendConnectTimeoutMs: timeoutMs,
    };
    await using target = await Target.start(kind, settings, {});
    await assertOnTime(() =>
      Promise.all(
        operations.map(async ({ name, method, path, options, failure }): Promise<[string, number]> => {
          const took = await time(async () => {
            assertReply(await target.call(method, path, options), 500, failure);
          });
          return [`operation ${name}`, took];
        }),
      ),
    );
  });

  test(`${kind}: a GET that is sent again has one deadline for both: a backend that takes no connection any more does not add to it [D19, D20]`, async (context) => {
    await using backend = await startDyingBackend('asked');
    const settings = {
      backendUrl: `http://127.0.0.1:${backend.port}`,
      backendTimeoutMs: 2000,
      backendConnectTimeoutMs: 20_000,
    };
    await using target = await Target.start(kind, settings, {});
    assertReply(await target.call('GET', '/api/work-items'), 200, '[]');
    const took = time(async () => {
      assertReply(await target.call('GET', '/api/work-items'), 500, '{"error":"Failed to fetch work items"}');
    });
    if (!(await backend.isFull)) {
      context.skip('this system takes connections without end');
      return;
    }
    backend.die();
    assert.ok((await took) < 5000, 'not the time of a connection on top of the deadline');
  });
}

test('an idle connection that dies before the call is sent on it: the next one has BACKEND_CONNECT_TIMEOUT_MS [D19]', async (context) => {
  await using backend = await startDyingBackend('idle');
  const client = new BackendClient({
    backendUrl: new URL(`http://127.0.0.1:${backend.port}`),
    timeoutMs: 30_000,
    connectTimeoutMs: 500,
    idleTimeoutMs: 30_000,
    responseBytesMax: 1000,
    budget: new BufferBudget(1000),
  });
  const call = {
    method: 'POST',
    path: '/',
    body: Buffer.from('{}'),
    requestId: 'x',
    traceContext: [],
    needsAnswer: true,
  } as const;
  const send = () =>
    new Promise<Outcome>((resolve, onFault) => client.send(call, { onOutcome: resolve, onFault }));
  assert.equal((await send()).kind, 'ok');
  if (await backend.isFull) {
    backend.die();
    // Nothing is read meanwhile: the connection has closed and the client does not know it yet.
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 300);
    const outcome = await within(send(), 'an outcome before the deadline of the answer', 5000);
    assert.deepEqual(outcome, {
      kind: 'timed-out',
      status: undefined,
      reason: 'connect-timeout',
      cause: 'no connection within 500 ms',
    });
  } else {
    context.skip('this system takes connections without end');
  }
  await client.close();
});
