// The guard interface: a guard admits or refuses a request, at once or later. The body is read after the guard admits.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { joinGuards, type Admission, type GuardedRequest } from '../../packages/core/call/guard.ts';
import { replies } from '../../packages/core/replies.ts';
import { poll } from '../helpers/changes.ts';
import { assertReply, forbidden, operations } from '../helpers/expected.ts';
import { startGateway } from '../helpers/gateway.ts';
import { chunk, requestBytes } from '../helpers/raw-client.ts';
import { answer } from '../helpers/scripted-backend.ts';

const item = '/api/work-items/5';
const admitted: Admission = { isAdmitted: true, identity: undefined };
const refused: Admission = {
  isAdmitted: false,
  reply: replies.forbidden,
  outcome: 'forbidden',
  cause: 'the test says so',
};

/** A gateway with these guards, and the requests that each was called with. */
async function serve(...deciders: (() => Admission | Promise<Admission>)[]) {
  const asked: GuardedRequest[][] = deciders.map(() => []);
  const guards = deciders.map((decide, index) => ({
    admit: (request: GuardedRequest) => {
      asked[index]?.push(request);
      return decide();
    },
  }));
  return { ...(await startGateway({ host: 'http1', guards })), asked };
}

/** A gateway whose guard decides when `decide` is called. */
async function serveWaiting() {
  const { promise, resolve: decide } = Promise.withResolvers<Admission>();
  const server = await serve(() => promise);
  return { ...server, decide, isAsked: () => poll(() => server.asked[0]?.length === 1, 'the guard is called') };
}

for (const [when, after] of [
  ['at once', (admission: Admission) => admission],
  ['later', async (admission: Admission) => await Promise.resolve(admission)],
] as const) {
  test(`if a guard refuses ${when}, the client gets the guard's reply without a backend call, and the connection stays open`, async () => {
    await using server = await serve(() => after(refused));
    await using client = await server.connect();
    for (const { method, path, options } of operations) {
      assertReply(await client.call(method, path, options), 403, forbidden);
    }
    assert.equal(server.backend.requests.length, 0);
    assert.deepEqual(
      server.told.ended.map(({ operation, outcome, cause }) => [operation?.name, outcome, cause]),
      operations.map(({ name }) => [name.slice(2), 'forbidden', 'the test says so']),
    );
  });

  test(`if a guard admits ${when}, the backend gets the call with its body`, async () => {
    await using server = await serve(() => after(admitted));
    await using client = await server.connect();
    for (const { method, path, options, status, body } of operations) {
      server.backend.answers(answer(body === '{"success":true}' ? '{}' : body));
      assertReply(await client.call(method, path, options), status, body);
    }
    assert.deepEqual(
      server.backend.requests.map(({ body }) => body.toString()),
      operations.map(({ options }) => String(options.body ?? '')),
    );
  });

  test(`if a guard throws or rejects (${when}), the client gets the operation's 500 without a backend call [D28]`, async () => {
    const fault = new TypeError('SECRET');
    await using server = await serve(() => {
      if (when === 'later') return Promise.reject(fault);
      throw fault;
    });
    assertReply(await server.call('PUT', item, { body: '{}' }), 500, '{"error":"Failed to update work item"}');
    assert.deepEqual(server.told.ended.map(({ outcome, cause }) => [outcome, cause]), [['bug', fault]]); // prettier-ignore
    assert.equal(server.backend.requests.length, 0);
  });
}

test('a guard is called before the id is checked, and only for operations', async () => {
  await using server = await serve(() => refused);
  await using client = await server.connect();
  assertReply(await client.call('GET', '/api/work-items/abc'), 403, forbidden);
  assert.equal((await client.call('OPTIONS', '/api/work-items')).status, 204);
  assert.equal((await client.call('PATCH', item)).status, 405);
  assert.equal((await client.call('GET', '/elsewhere')).status, 404);
  assert.equal(server.asked[0]?.length, 1);
});

test('guards are called in order until one refuses; an identity is passed to the next guard', async () => {
  await using server = await serve(
    async () => await Promise.resolve<Admission>({ isAdmitted: true, identity: 'Ada' }),
    () => refused,
    () => admitted,
  );
  assertReply(await server.call('GET', item), 403, forbidden);
  const identities = server.asked.map((requests) => requests.map(({ identity }) => identity));
  assert.deepEqual(identities, [[undefined], ['Ada'], []]);
  assert.equal(joinGuards([]), undefined);
});

for (const [name, admission] of [
  ['an admission', admitted],
  ['a refusal', refused],
] as const) {
  test(`${name} that comes directly after the client has left has no effect [D21]`, async () => {
    await using server = await serveWaiting();
    const nothing = () => undefined;
    const transport = { reply: () => assert.fail('a reply'), holdBody: nothing, readBody: nothing, cut: nothing };
    const head = { method: 'GET', target: '/api/work-items', bodyLength: 0, expectation: 'none', persists: true, version: '1.1', fields: [] } as const; // prettier-ignore
    const call = server.gateway.accept(head, transport, { address: '127.0.0.1' });
    call.start();
    call.onGone();
    server.decide(admission);
    await poll(() => server.told.ended.length === 1, 'the end of the call');
    const [{ outcome, backendOutcome } = assert.fail('no record')] = server.told.ended;
    assert.deepEqual([outcome, backendOutcome, server.gateway.inFlight], ['client-gone', undefined, 0]);
    assert.equal((await server.call('GET', '/nowhere')).status, 404);
    assert.equal(server.backend.requests.length, 0);
  });
}

test('a body waits in the socket until its guard has admitted the request, except for one read of at most 64 KiB', async () => {
  await using server = await serveWaiting();
  await using client = await server.connect();
  const body = Buffer.from(`"${'x'.repeat(8_000_000)}"`);
  client.send(requestBytes('PUT', item, { body }));
  await server.isAsked();
  assert.ok(server.gateway.budget.bytes <= 65_536, String(server.gateway.budget.bytes));
  server.decide(admitted);
  assert.equal((await client.reply()).status, 200);
  assert.ok((await server.backend.nextRequest()).body.equals(body));
});

test('`100 Continue` is sent after the guard has admitted the request', async () => {
  await using server = await serveWaiting();
  await using client = await server.connect();
  client.send(`PUT ${item} HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n`);
  await server.isAsked();
  assert.equal(client.bytesReceived, 0);
  server.decide(admitted);
  assert.equal((await client.reply()).status, 100);
  client.send('{}');
  assert.equal((await client.reply()).status, 200);
});

test('if a FIN cuts off the body while the guard decides, the client gets 400 without a backend call', async () => {
  await using server = await serveWaiting();
  await using client = await server.connect();
  client.send(`PUT ${item} HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{"a"`);
  await server.isAsked();
  client.end();
  server.decide(admitted);
  assert.equal((await client.reply()).status, 400);
  await client.closed();
  assert.equal(server.backend.requests.length, 0);
});

test('pipelined requests are answered in order, even if the guard decides some at once and others later', async () => {
  let count = 0;
  await using server = await serve(() => {
    count += 1;
    const admission = count % 3 === 0 ? refused : admitted;
    return count % 2 === 0 ? admission : Promise.resolve(admission);
  });
  await using client = await server.connect();
  const head = requestBytes('PUT', item, { headers: [['Transfer-Encoding', 'chunked']] });
  const requests = Array.from({ length: 60 }, (_, index) =>
    index % 4 === 0 ? Buffer.concat([head, chunk('{"n":'), chunk(`${index}}`), chunk('')]) : requestBytes('GET', item),
  );
  client.send(Buffer.concat(requests));
  for (const index of requests.keys()) {
    assert.equal((await client.reply()).status, (index + 1) % 3 === 0 ? 403 : 200, `reply ${index}`);
  }
});
