// The guard interface: a guard admits or refuses a request, at once or later. The body is read after the guard admits.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { joinGuards, type Admission, type Guard, type GuardedRequest } from '../../packages/core/call/guard.ts';
import { replies } from '../../packages/core/replies.ts';
import { createGate, poll } from '../helpers/changes.ts';
import { assertReply, forbidden, operations } from '../helpers/expected.ts';
import { startGateway } from '../helpers/gateway.ts';
import { chunk, requestBytes } from '../helpers/raw-client.ts';
import { answer } from '../helpers/scripted-backend.ts';

const admitted: Admission = { isAdmitted: true, identity: undefined };
const refused: Admission = {
  isAdmitted: false,
  reply: replies.forbidden,
  outcome: 'forbidden',
  cause: 'the test says so',
};

class Recorder implements Guard {
  readonly asked: GuardedRequest[] = [];
  readonly #says: () => Admission | Promise<Admission>;
  constructor(says: () => Admission | Promise<Admission>) {
    this.#says = says;
  }
  admit(request: GuardedRequest) {
    this.asked.push(request);
    return this.#says();
  }
}

async function serveSaying(...says: (() => Admission | Promise<Admission>)[]) {
  const guards = says.map((each) => new Recorder(each));
  const server = await startGateway({ host: 'http1', guards });
  return { ...server, guards, asked: () => guards.map(({ asked }) => asked.length) };
}

/** A server whose guard admits requests only after `admit` is called. */
async function serveWaiting() {
  const gate = createGate();
  const server = await serveSaying(async () => {
    await gate.opened;
    return admitted;
  });
  return { ...server, admit: gate.open, isCalled: () => server.guards[0]?.asked.length === 1 };
}

for (const [when, says] of [
  ['at once', (admission: Admission) => admission],
  ['later', async (admission: Admission) => await Promise.resolve(admission)],
] as const) {
  test(`if a guard refuses ${when}, the client gets the guard's reply without a backend call, and the connection stays open`, async () => {
    await using server = await serveSaying(() => says(refused));
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
    await using server = await serveSaying(() => says(admitted));
    await using client = await server.connect();
    for (const { method, path, options, status, body } of operations) {
      server.backend.answers(answer(body === '{"success":true}' ? '{}' : body));
      assertReply(await client.call(method, path, options), status, body);
    }
    assert.equal(server.backend.requests.length, operations.length);
    assert.deepEqual(
      server.backend.requests.map(({ body }) => body.toString()),
      operations.map(({ options }) => String(options.body ?? '')),
    );
  });
}

test('a guard is called before the id is checked, and only for operations', async () => {
  await using server = await serveSaying(() => refused);
  await using client = await server.connect();
  assertReply(await client.call('GET', '/api/work-items/abc'), 403, forbidden);
  assert.equal((await client.call('OPTIONS', '/api/work-items')).status, 204);
  assert.equal((await client.call('PATCH', '/api/work-items/5')).status, 405);
  assert.equal((await client.call('GET', '/elsewhere')).status, 404);
  assert.deepEqual(server.asked(), [1]);
});

test('guards are called in order until one refuses; an identity is passed to the next guard', async () => {
  await using server = await serveSaying(
    async () => await Promise.resolve<Admission>({ isAdmitted: true, identity: 'Ada' }),
    () => refused,
    () => admitted,
  );
  await using client = await server.connect();
  assertReply(await client.call('GET', '/api/work-items/5'), 403, forbidden);
  assert.deepEqual(server.asked(), [1, 1, 0]);
  assert.equal(server.guards[1]?.asked[0]?.identity, 'Ada');
  assert.equal(joinGuards([]), undefined);
});

for (const [name, admission] of [
  ['an admission', admitted],
  ['a refusal', refused],
] as const) {
  test(`${name} that comes directly after the client has left has no effect [D21]`, async () => {
    const { promise, resolve } = Promise.withResolvers<Admission>();
    await using server = await startGateway({ host: 'http1', guards: [{ admit: () => promise }] });
    const nothing = () => undefined;
    const transport = { reply: () => assert.fail('a reply'), holdBody: nothing, readBody: nothing, cut: nothing };
    const head = { method: 'GET', target: '/api/work-items', bodyLength: 0, expectation: 'none', persists: true, version: '1.1', fields: [] } as const; // prettier-ignore
    const call = server.gateway.accept(head, transport, { address: '127.0.0.1' });
    call.start();
    call.onGone();
    resolve(admission);
    await poll(() => server.told.ended.length === 1, 'the end of the call');
    const { outcome, backendOutcome } = server.told.ended[0] ?? assert.fail('no record');
    assert.deepEqual([outcome, backendOutcome, server.gateway.inFlight], ['client-gone', undefined, 0]);
    assert.equal((await server.call('GET', '/nowhere')).status, 404);
    assert.equal(server.backend.requests.length, 0);
  });
}

test('a body waits in the socket until its guard has admitted the request, except for one read of at most 64 KiB', async () => {
  await using server = await serveWaiting();
  await using client = await server.connect();
  const body = Buffer.from(`"${'x'.repeat(8_000_000)}"`);
  client.send(requestBytes('PUT', '/api/work-items/5', { body }));
  await poll(server.isCalled, 'the guard is called');

  assert.ok(server.gateway.budget.bytes <= 65_536, String(server.gateway.budget.bytes));
  server.admit();
  assert.equal((await client.reply()).status, 200);
  assert.deepEqual(
    server.backend.requests.map((request) => request.body.equals(body)),
    [true],
  );
});

test('`100 Continue` is sent after the guard has admitted the request', async () => {
  await using server = await serveWaiting();
  await using client = await server.connect();
  client.send('PUT /api/work-items/5 HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n');
  await poll(server.isCalled, 'the guard is called');
  assert.equal(client.bytesReceived, 0);
  server.admit();
  assert.equal((await client.reply()).status, 100);
  client.send('{}');
  assert.equal((await client.reply()).status, 200);
});

test('if a client leaves while the guard decides, the backend is not called', async () => {
  await using server = await serveWaiting();
  const client = await server.connect();
  client.send(requestBytes('GET', '/api/work-items/5'));
  await poll(server.isCalled, 'the guard is called');
  client.reset();
  await poll(() => server.told.ended.length === 1, 'the call has ended');
  server.admit();
  await using other = await server.connect();
  assert.equal((await other.call('GET', '/api/work-items/7')).status, 200);
  assert.deepEqual(
    server.told.ended.map(({ outcome }) => outcome),
    ['client-gone', 'ok'],
  );
  assert.deepEqual(
    server.backend.requests.map(({ target }) => target),
    ['/api/WorkItem/7'],
  );
});

test('if a FIN cuts off the body while the guard decides, the client gets 400 without a backend call', async () => {
  await using server = await serveWaiting();
  await using client = await server.connect();
  client.send('PUT /api/work-items/5 HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{"a"');
  await poll(server.isCalled, 'the guard is called');
  client.end();
  server.admit();
  assert.equal((await client.reply()).status, 400);
  await client.closed();
  assert.equal(server.backend.requests.length, 0);
});

test('pipelined requests are answered in order, even if the guard decides some at once and others later', async () => {
  let count = 0;
  await using server = await serveSaying(() => {
    count += 1;
    const admission = count % 3 === 0 ? refused : admitted;
    return count % 2 === 0 ? admission : Promise.resolve(admission);
  });
  await using client = await server.connect();
  const total = 60;
  const requests = Array.from({ length: total }, (_, index) =>
    index % 4 === 0
      ? Buffer.concat([
          Buffer.from('PUT /api/work-items/5 HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n'),
          chunk('{"n":'),
          chunk(`${index}}`),
          chunk(''),
        ])
      : requestBytes('GET', `/api/work-items/${index}`),
  );
  client.send(Buffer.concat(requests));
  for (let index = 0; index < total; index += 1) {
    const reply = await client.reply();
    assert.equal(reply.status, (index + 1) % 3 === 0 ? 403 : 200, `reply ${index}`);
  }
});

test("if a guard throws or rejects, the client gets the operation's 500 without a backend call [D28]", async () => {
  const fault = new TypeError('SECRET');
  for (const says of [
    () => {
      throw fault;
    },
    () => Promise.reject(fault),
  ]) {
    await using server = await serveSaying(says);
    await using client = await server.connect();
    const reply = await client.call('PUT', '/api/work-items/5', { body: '{}' });
    assertReply(reply, 500, '{"error":"Failed to update work item"}');
    assert.deepEqual(
      server.told.ended.map(({ outcome, cause }) => [outcome, cause]),
      [['bug', fault]],
    );
    assert.equal(server.backend.requests.length, 0);
  }
});
