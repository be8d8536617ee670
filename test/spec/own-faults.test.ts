// Faults of the gateway itself: its budget, backend client, observer or response throws during a call [D28].
// test/process/own-faults.test.ts injects faults into the built command.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { noBody } from '../../packages/core/http1/borrowed-bytes.ts';
import { createGate, poll } from '../helpers/changes.ts';
import { assertReply, badRequest, operations, succeeded, unavailable } from '../helpers/expected.ts';
import { Fastify } from '../helpers/fastify.ts';
import { startGateway } from '../helpers/gateway.ts';
import { chunk, requestBytes } from '../helpers/raw-client.ts';
import { answer, behind } from '../helpers/scripted-backend.ts';

const fault = new TypeError('SECRET');
const throwFault = () => {
  throw fault;
};
const withBody = operations.filter(({ options }) => options.body !== undefined);
const withAnswer = operations.filter(({ body }) => body !== succeeded);
const withoutAnswer = operations.filter(({ body }) => body === succeeded);

/** Starts a gateway whose budget of buffered bytes throws once: at the `at`th call of `method` after `broken` is set. */
async function serveFaulty() {
  const server = await startGateway({ host: 'http1', settings: { bufferedBytesMax: 1_000, responseBytesMax: 1_000 } });
  const { budget } = server.gateway;
  const faults = { broken: undefined as { readonly method: 'take' | 'giveBack'; at: number } | undefined, takes: 0 };
  for (const method of ['take', 'giveBack'] as const) {
    const original = budget[method].bind(budget) as (bytes: number) => never;
    budget[method] = (bytes: number) => {
      if (method === 'take') faults.takes += 1;
      if (faults.broken?.method === method) {
        faults.broken.at -= 1;
        if (faults.broken.at === 0) throw fault;
      }
      return original(bytes);
    };
  }
  return Object.assign(server, { budget, faults });
}

const json = answer('{"id":5}');
for (const [when, met, method, at, answers] of [
  ["while a request's body arrives", withBody, 'take', 1, json],
  ["while an answer's body arrives", withAnswer, 'take', undefined, json],
  ["when an answer's body ends", withAnswer, 'giveBack', 1, answer('no JSON')],
  ["when an answer's head has decided the reply", withoutAnswer, 'giveBack', 1, json],
] as const) {
  test(`after a fault ${when}, the client gets 500, and no byte stays buffered [D28]`, async () => {
    await using server = await serveFaulty();
    for (const { method: verb, path, options, failure } of met) {
      server.backend.answers(answers);
      // A request body causes one call of `take`. The answer's first piece causes the next call.
      server.faults.broken = { method, at: at ?? (options.body === undefined ? 1 : 2) };
      await using client = await server.connect();
      const reply = await client.call(verb, path, options);
      assertReply(reply, 500, failure);
      assert.doesNotMatch(JSON.stringify(reply.headers), /SECRET/);
      await client.closed();
      const record = server.told.ended.at(-1);
      assert.deepEqual([record?.outcome, record?.cause, record?.status], ['bug', fault, 500]);
      assert.ok(server.faults.broken.at <= 0, 'the fault was thrown');
      assert.equal(server.budget.bytes, 0);
      // After a whole answer, the connection may already serve another call. A request's body is released before its answer.
      const kept = when === "when an answer's body ends" && options.body === undefined ? 1 : 0;
      assert.equal(server.gateway.backend.connectionCount, kept, 'a connection is kept after a whole answer only');
    }
    server.faults.broken = undefined;
    server.backend.answers(json);
    await using client = await server.connect();
    assertReply(await client.call('PUT', '/api/work-items/5', { body: '{}' }), 200, succeeded);
    assert.equal(server.told.bugs.length, 0);
  });
}

test('after a fault in the check of a body, the rest of the body is not buffered [D28]', async () => {
  await using server = await serveFaulty();
  server.faults.broken = { method: 'take', at: 1 };
  await using client = await server.connect();
  client.send('PUT /api/work-items/5 HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n');
  client.send(chunk('"abc'));
  assert.equal((await client.reply()).status, 500);
  await client.sendPieces([chunk('x'.repeat(45)), chunk('x'.repeat(45))]);
  client.end();
  await client.closed();
  assert.equal(server.faults.takes, 1);
  assert.equal(server.budget.bytes, 0);
});

test('if a fault occurs before the backend call is sent, the client gets 500, and no byte stays buffered [D28]', async () => {
  await using server = await startGateway({ host: 'http1' });
  server.gateway.backend.send = throwFault;
  for (const { method, path, options, failure } of operations) {
    await using client = await server.connect();
    assertReply(await client.call(method, path, options), 500, failure);
    await client.closed();
    const { outcome, cause, status, backendOutcome } = server.told.ended.at(-1) ?? {};
    assert.deepEqual([outcome, cause, status, backendOutcome], ['bug', fault, 500, undefined]);
    assert.equal(server.gateway.budget.bytes, 0);
  }
  assert.equal(server.gateway.inFlight, 0);
});

test('a fault after the outcome of a call is reported and does not change the reply [D28]', async () => {
  await using server = await startGateway({ host: 'http1' });
  server.gateway.backend.send = (_request, handler) => {
    setImmediate(() => {
      handler.onOutcome({ kind: 'ok', status: 200, body: noBody });
      handler.onFault(fault);
    });
    return { cancel: () => undefined };
  };
  await using client = await server.connect();
  assertReply(await client.call('PUT', '/api/work-items/5', { body: '{}' }), 200, succeeded);
  await client.closed();
  assert.deepEqual(
    server.told.bugs.map(([error, record]) => [error, record?.method, record?.outcome]),
    [[fault, 'PUT', 'bug']],
  );
  assert.equal(server.told.ended.length, 1);
});

/** Starts the plugin in a server in which, for requests with `X-Fault: 1`, the first `times` calls of `method` throw. */
function serveBroken(method: 'writeHead' | 'end', times: number) {
  const app = Fastify();
  app.addHook('onRequest', (request, reply, done) => {
    if (request.headers['x-fault'] === '1') {
      const raw = reply.raw as unknown as Record<string, (...parameters: unknown[]) => unknown>;
      const original = raw[method]?.bind(raw);
      let left = times;
      raw[method] = (...parameters) => {
        left -= 1;
        if (left >= 0) throw fault;
        return original?.(...parameters);
      };
    }
    done();
  });
  return startGateway({ host: 'plugin', app });
}

const headers = [['X-Fault', '1']] as const;

test('if a fault occurs before the reply is written, the client gets 500, and the connection closes [D28]', async () => {
  await using server = await serveBroken('writeHead', 1);
  for (const { method, path, options, failure } of operations) {
    await using client = await server.connect();
    const reply = await client.call(method, path, { ...options, headers });
    assertReply(reply, 500, failure);
    assert.equal(reply.header('connection'), 'close');
    await client.closed();
    const record = server.told.ended.at(-1);
    assert.deepEqual([record?.outcome, record?.status, record?.cause], ['bug', 500, fault]);
  }
});

for (const [name, method, times] of [
  ['writing the 500 fails, too', 'writeHead', 2],
  ['the head has been written', 'end', 1],
] as const) {
  test(`a fault in writing a reply closes the connection if ${name} [D28]`, async () => {
    await using server = await serveBroken(method, times);
    await using client = await server.connect();
    client.send(requestBytes('GET', '/api/work-items/5', { headers }));
    await client.closed();
    assert.equal(client.unread.length, 0);
    assert.equal(server.told.ended.at(-1)?.outcome, 'bug');
    assertReply(await server.call('GET', '/api/work-items/5'), 200, '{"id":5}');
  });
}

test('a fault of the observer changes no reply and is passed to onBug; a fault of onBug is ignored [D28]', async () => {
  await using server = await startGateway({ onEvent: throwFault });
  await using client = await server.connect();
  assertReply(await client.call('GET', '/api/work-items/5'), 200, '{"id":5}');
  client.send('nonsense\r\n\r\n');
  assertReply(await client.reply(), 400, badRequest);
  await client.closed();
  const { ended, bugs, malformed } = server.told;
  assert.deepEqual([ended.length, malformed.length], [1, 1]);
  const statuses = bugs.map(([error, record]) => [error, record?.status]);
  assert.deepEqual(statuses, [[fault, 200], [fault, undefined]]); // prettier-ignore
});

test('a call is 503 if other calls reached IN_FLIGHT_MAX before its body was complete [D26]', async () => {
  await using server = await startGateway({ settings: { inFlightMax: 1 } });
  const gate = createGate();
  server.backend.answersOnce(behind(gate, answer('{}')));
  await using slow = await server.connect();
  const bytes = requestBytes('PUT', '/api/work-items/5', { body: '{"a":1}' });
  slow.send(bytes.subarray(0, -1));
  await using other = await server.connect();
  other.send(requestBytes('GET', '/api/work-items/6'));
  await server.backend.nextRequest();
  slow.send(bytes.subarray(-1));
  assertReply(await slow.reply(), 503, unavailable, ['retry-after']);
  assert.equal(server.told.ended.at(-1)?.outcome, 'overload');
  gate.open();
  assert.equal((await other.reply()).status, 200);
  assertReply(await slow.call('PUT', '/api/work-items/5', { body: '{"a":1}' }), 200, succeeded);
  assert.equal(server.backend.requests.length, 2);
});

test('a fault of onStall is reported with the call of the client that stopped reading [D28, D35]', async () => {
  await using server = await startGateway({
    settings: { replyStallTimeoutMs: 40 },
    onEvent: (event) => {
      if (event === 'stalled') throwFault();
    },
  });
  server.backend.answersOnce(answer(Buffer.alloc(24_000_000, '1')));
  await using client = await server.connect();
  client.send(requestBytes('GET', '/api/work-items'));
  await client.receives(1);
  client.pause();
  await poll(() => server.told.bugs.length > 0, 'the client is cut off');
  const { ended, stalled, bugs } = server.told;
  assert.deepEqual([stalled, bugs, ended.length], [ended, [[fault, ended[0]]], 1]);
});
