// The observer is called at the end of every request. Log and metrics come from these calls. The observer also gets
// the cause of a failure; a client never does.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { type CallRecord } from '../../packages/core/hosts/index.ts';
import { createGate, poll } from '../helpers/changes.ts';
import { type Settings, startGateway } from '../helpers/gateway.ts';
import { RawClient, type CallOptions } from '../helpers/raw-client.ts';
import {
  type Answer,
  answer,
  chunked,
  behind,
  raw,
  rawThenClose,
  ScriptedBackend,
  timeout,
} from '../helpers/scripted-backend.ts';

type Told = Pick<
  CallRecord,
  'method' | 'status' | 'outcome' | 'cause' | 'backendOutcome' | 'requestBytes' | 'replyBytes'
> & { readonly operation: string | undefined };

type ServerSettings = Settings & { readonly trustedProxies?: readonly string[] };

const copied = [
  ...(['operation', 'method', 'path', 'client', 'status', 'outcome', 'cause', 'backendOutcome'] as const),
  ...(['durationMs', 'backendDurationMs', 'requestBytes', 'replyBytes'] as const),
] as const;

/** Starts a server whose observer copies each record, because a record is the call object, which changes later. */
async function serve(settings: ServerSettings = {}) {
  const records: CallRecord[] = [];
  const server = await startGateway({
    settings: {
      ...settings,
      observer: {
        onCallEnd: (record) =>
          records.push(Object.fromEntries(copied.map((name) => [name, record[name]])) as unknown as CallRecord),
        onMalformed: (requestId, { status }, reason, client) =>
          server.told.malformed.push({ requestId, status, reason, client }),
        onStall: () => assert.fail('no client stalls here'),
        onBug: (error) => {
          throw error;
        },
      },
    },
  });
  return Object.assign(server, { records, malformed: server.told.malformed });
}

/** Asserts that there is one record, with plausible durations. Returns its fields that do not vary. */
function only(records: readonly CallRecord[]): Told {
  assert.equal(records.length, 1);
  const [record] = records;
  assert.ok(record);
  const { durationMs, backendDurationMs, path, client, ...told } = record;
  assert.deepEqual([typeof path, client], ['string', '127.0.0.1']);
  assert.ok(durationMs >= 0 && durationMs < 60_000);
  if (told.backendOutcome === undefined) assert.equal(backendDurationMs, undefined);
  else assert.ok((backendDurationMs ?? -1) >= 0 && (backendDurationMs ?? 0) <= durationMs);
  return { ...told, operation: told.operation?.name };
}

const failedList = '{"error":"Failed to fetch work items"}'.length;

test('a success is "ok", with its durations and the sizes of both bodies', async () => {
  await using server = await serve();
  for (const [method, path, body, operation, status, replyBytes] of [
    ['GET', '/api/work-items', '', 'list', 200, 8],
    ['HEAD', '/api/work-items', '', 'list', 200, 8],
    ['POST', '/api/work-items', '{"a":1}', 'create', 201, 8],
    ['GET', '/api/work-items/5', '', 'read', 200, 8],
    ['PUT', '/api/work-items/5', '{"a":1}', 'update', 200, 16],
    ['DELETE', '/api/work-items/5', '', 'delete', 200, 16],
  ] as const) {
    server.records.length = 0;
    const sentAt = performance.now();
    await server.call(method, path, body === '' ? {} : { body });
    const { durationMs, backendDurationMs } = server.records[0] ?? assert.fail();
    assert.ok(backendDurationMs !== undefined && backendDurationMs > 0);
    assert.ok(durationMs <= performance.now() - sentAt);
    const ok = { outcome: 'ok', cause: undefined, backendOutcome: 'ok' };
    assert.deepEqual(only(server.records), { operation, method, status, ...ok, requestBytes: body.length, replyBytes });
  }
});

type Failure = [
  name: string,
  backendAnswer: Answer,
  outcome: CallRecord['outcome'],
  cause: string | RegExp,
  settings?: ServerSettings,
];
/** Answers of the backend that fail a GET of the list. */
const failures: Failure[] = [
  ['status 503 from the backend', answer('{}', { status: 503 }), 'refused', 'status 503'],
  ['status 404 from the backend', answer('{}', { status: 404 }), 'refused', 'status 404'],
  ['an empty body', answer(''), 'not-json', 'status 200 with an empty body'],
  ['a body that is not JSON', answer('{'), 'not-json', 'status 200 with a body that is not JSON'],
  ['a page', answer(' <!doctype html>', { headers: [['Content-Type', 'text/html']] }), 'not-json', 'status 200 with a page (HTML or XML)'],
  ['an incomplete body, in pieces', chunked('1\r\n[\r\n1\r\n1\r\n0\r\n\r\n'), 'not-json', 'status 200 with a body that is not JSON'],
  ['an invalid body, in pieces', chunked('1\r\n[\r\n1\r\n}\r\n1\r\n1\r\n0\r\n\r\n'), 'not-json', 'status 200 with a body that is not JSON'],
  ['a content-length over the limit', answer(`"${'x'.repeat(999)}"`), 'too-large', 'an answer of more than 1000 bytes'],
  ['chunks over the limit', chunked(`3e9\r\n"${'x'.repeat(999)}"\r\n0\r\n\r\n`), 'too-large', 'an answer of more than 1000 bytes'],
  ['an answer over bufferedBytesMax', answer(`"${'x'.repeat(100)}"`), 'too-large', 'the limit of buffered bytes is reached', { bufferedBytesMax: 100 }],
  ['an answer after the deadline [D19]', timeout, 'timed-out', 'no complete answer within 100 ms', { backendTimeoutMs: 100 }],
  ['a transfer-encoding of gzip and chunked', raw('HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n'), 'unreachable', 'an answer with a transfer-encoding that is not exactly one "chunked"'],
  ['chunks in HTTP/1.0', raw('HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n'), 'unreachable', 'an answer with a transfer-encoding in HTTP/1.0'],
  ['a version that is not HTTP/1.1', raw('HTTP/3.0 200 OK\r\n\r\n'), 'unreachable', /an answer that is not HTTP\/1\.1/],
  ['a connection closed before the answer', rawThenClose(''), 'unreachable', /closed before the answer was complete/],
  ['an answer that is not HTTP', raw('garbage\r\n\r\n'), 'unreachable', /./],
]; // prettier-ignore

for (const [name, backendAnswer, outcome, cause, settings] of failures) {
  test(`${name} is "${outcome}", with its cause`, async () => {
    await using server = await serve({ responseBytesMax: 1000, ...settings });
    server.backend.answers(backendAnswer);
    await server.call('GET', '/api/work-items');
    const told = only(server.records);
    if (typeof cause === 'string') assert.equal(told.cause, cause);
    else assert.match(String(told.cause), cause);
    assert.deepEqual(
      { ...told, cause: undefined },
      {
        operation: 'list',
        method: 'GET',
        status: 500,
        outcome,
        cause: undefined,
        backendOutcome: outcome,
        requestBytes: 0,
        replyBytes: failedList,
      },
    );
  });
}

for (const [hostName, cause] of [
  ['127.0.0.1', 'connect ECONNREFUSED 127\\.0\\.0\\.1:PORT'],
  ['localhost', 'ECONNREFUSED; connect \\w+ 127\\.0\\.0\\.1:PORT.*; connect \\w+ ::1:PORT'],
] as const) {
  test(`a backend that is down on ${hostName} is "unreachable", and the cause has each address that was tried [D30]`, async () => {
    const down = await ScriptedBackend.start();
    await down.stop();
    await using server = await serve({ backendUrl: `http://${hostName}:${down.port}` });
    await server.call('GET', '/api/work-items');
    const told = only(server.records);
    assert.equal(told.outcome, 'unreachable');
    assert.match(String(told.cause), new RegExp(`^${cause.replaceAll('PORT', String(down.port))}`));
  });
}

/** Requests that the gateway answers without a backend call. */
const refusals: [name: string, method: string, path: string, options: CallOptions, told: Partial<Told>][] = [
  ['an invalid id', 'GET', '/api/work-items/x', {}, { operation: 'read', status: 400, outcome: 'invalid-id' }],
  ['a body that is not JSON', 'PUT', '/api/work-items/5', { body: '{' }, { operation: 'update', status: 500, outcome: 'invalid-body', cause: 'not JSON after byte 1 of 1', requestBytes: 1 }],
  ['a body that is wrong inside', 'POST', '/api/work-items', { body: '{"é":1,}' }, { operation: 'create', status: 500, outcome: 'invalid-body', cause: 'not JSON after byte 8 of 9' }],
  ['no body', 'POST', '/api/work-items', {}, { operation: 'create', status: 500, outcome: 'invalid-body', cause: 'no body', requestBytes: 0 }],
  ['a body over the limit', 'POST', '/api/work-items', { body: 'x'.repeat(101) }, { operation: 'create', status: 413, outcome: 'body-too-large' }],
  ['an unknown path', 'GET', '/nowhere', {}, { operation: undefined, status: 404, outcome: 'no-operation' }],
  ['an unknown method', 'NOPE', '/api/work-items', {}, { operation: undefined, status: 405, outcome: 'no-operation' }],
  ['a known method that the path does not allow', 'PATCH', '/api/work-items', {}, { operation: undefined, status: 405, outcome: 'no-operation' }],
  ['OPTIONS', 'OPTIONS', '/api/work-items', {}, { operation: undefined, status: 204, outcome: 'ok', replyBytes: 0 }],
  ['a cross-site write', 'POST', '/api/work-items', { body: '{}', headers: [['Sec-Fetch-Site', 'cross-site']] }, { operation: undefined, status: 403, outcome: 'forbidden' }],
]; // prettier-ignore

for (const [name, method, path, options, expected] of refusals) {
  test(`${name} is "${String(expected.outcome)}", without a backend outcome`, async () => {
    await using server = await serve({ requestBytesMax: 100 });
    const reply = await server.call(method, path, options);
    const told = only(server.records);
    assert.deepEqual(
      { ...told, requestBytes: expected.requestBytes ?? told.requestBytes },
      {
        requestBytes: told.requestBytes,
        method,
        cause: undefined,
        backendOutcome: undefined,
        replyBytes: reply.body.length,
        ...expected,
      },
    );
    assert.equal(server.backend.requests.length, 0);
  });
}

test('the record of a large body that is not JSON says where, up to the first MiB, wherever the body was cut', async () => {
  await using server = await serve();
  for (const [start, end, cause] of [
    [65_535, 9, 'not JSON after byte 65535 of 65544'],
    [65_536, 0, 'not JSON after byte 65536 of 65536'],
    [300_000, 70_000, 'not JSON after byte 300000 of 370000'],
    [2_000_000, 10, 'not JSON after byte 1048576 of 2000010'],
  ] as const) {
    server.records.length = 0;
    const body = `"${'x'.repeat(start - 1)}${'\n'.repeat(end)}`;
    await server.call('PUT', '/api/work-items/5', { body });
    assert.equal(only(server.records).cause, cause);
  }
});

test('a call over IN_FLIGHT_MAX is "overload"; after the call in flight has ended, the next call is served [D26]', async () => {
  await using server = await serve({ inFlightMax: 1 });
  const gate = createGate();
  server.backend.answersOnce(behind(gate, answer('{}')));
  const held = server.call('GET', '/api/work-items/1');
  await server.backend.nextRequest();
  await server.call('GET', '/api/work-items/2');
  const { operation, status, outcome, backendOutcome } = only(server.records);
  assert.deepEqual(
    { operation, status, outcome, backendOutcome },
    { operation: 'read', status: 503, outcome: 'overload', backendOutcome: undefined },
  );
  // The 503 does not wait for the body.
  await using client = await RawClient.open(server.port);
  client.send('PUT /api/work-items/5 HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n');
  assert.equal((await client.reply()).status, 503);
  gate.open();
  await held;
  assert.equal((await server.call('GET', '/api/work-items/3')).status, 200);
});

test('a malformed pipelined request is recorded as "bad-request", after the previous request has ended', async () => {
  await using server = await serve();
  const gate = createGate();
  server.backend.answersOnce(behind(gate, answer('{}')));
  await using client = await RawClient.open(server.port);
  client.send('GET /api/work-items HTTP/1.1\r\nHost: x\r\n\r\n');
  client.send('PUT /api/work-items/5 HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nnone\r\n');
  await server.backend.nextRequest();
  gate.open();
  await client.closed();
  assert.deepEqual(
    server.records.map(({ status, outcome }) => `${status} ${outcome}`),
    ['200 ok', '400 bad-request'],
  );
});

for (const [status, outcome] of [
  [200, 'client-gone'],
  [500, 'refused'],
] as const) {
  test(`a client leaves during a write, and the backend answers ${status}: the outcome is "${outcome}", without a status [D21]`, async () => {
    await using server = await serve();
    const gate = createGate();
    server.backend.answers(behind(gate, answer('{}', { status })));
    const client = await RawClient.open(server.port);
    client.send('PUT /api/work-items/5 HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}');
    await server.backend.nextRequest();
    client.reset();
    // A reply on another connection proves that the gateway has read the reset.
    await server.call('GET', '/nowhere');
    server.records.length = 0;
    gate.open();
    await poll(() => server.records.length > 0, 'the record');
    assert.deepEqual(only(server.records), {
      operation: 'update',
      method: 'PUT',
      status: 0,
      outcome,
      cause: status === 200 ? undefined : 'status 500',
      backendOutcome: status === 200 ? 'ok' : 'refused',
      requestBytes: 2,
      replyBytes: 0,
    });
  });
}

test('a client leaves before its body is complete: the outcome is "client-gone", without a backend call [D21]', async () => {
  await using server = await serve();
  const client = await RawClient.open(server.port);
  client.send('PUT /api/work-items/5 HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{');
  await server.call('GET', '/nowhere');
  server.records.length = 0;
  client.reset();
  await poll(() => server.records.length > 0, 'the record');
  const { operation, status, outcome, backendOutcome } = only(server.records);
  assert.deepEqual(
    { operation, status, outcome, backendOutcome },
    { operation: 'update', status: 0, outcome: 'client-gone', backendOutcome: undefined },
  );
});

for (const [name, bytes, status, reason] of [
  ['bytes that are not HTTP', '\x00\r\n\r\n', 400, 'an invalid method'],
  ['a head that is too large', `GET / HTTP/1.1\r\nHost: x\r\nX: ${'x'.repeat(20_000)}\r\n\r\n`, 431, 'a head of more than 16384 bytes'],
  ['a head with two Host fields', 'GET / HTTP/1.1\r\nHost: x\r\nHost: x\r\n\r\n', 400, 'two host fields'],
] as const) {
  test(`${name}: onMalformed gets the reply's request id and status, and the reason [D27]`, async () => {
    await using server = await serve();
    await using client = await RawClient.open(server.port);
    client.send(bytes);
    const reply = await client.reply();
    assert.deepEqual(server.malformed, [
      { requestId: reply.header('x-request-id'), status, reason, client: '127.0.0.1' },
    ]);
    assert.equal(reply.status, status);
    assert.equal(server.records.length, 0);
  });
} // prettier-ignore

test("a record has the path without the query, and the client's address as trustedProxies determines it [D52]", async () => {
  for (const [trustedProxies, client] of [
    [undefined, '127.0.0.1'],
    [['10.0.0.0/8'], '127.0.0.1'],
    [['127.0.0.0/8', '10.0.0.0/8'], '203.0.113.5'],
  ] as const) {
    await using server = await serve(trustedProxies === undefined ? {} : { trustedProxies });
    await server.call('GET', '/api/work-items/5?token=secret', {
      headers: [['X-Forwarded-For', '6.6.6.6, 203.0.113.5:81, 10.1.1.1']],
    });
    const [record] = server.records;
    assert.deepEqual([record?.path, record?.client], ['/api/work-items/5', client]);
  }
});
