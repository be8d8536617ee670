// The observer is called at the end of every request. Log and metrics come from these calls. The observer also gets
// the cause of a failure; a client never does.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createGate, poll } from '../helpers/changes.ts';
import { startGateway, type Settings } from '../helpers/gateway.ts';
import { requestBytes, type CallOptions } from '../helpers/raw-client.ts';
import {
  type Answer,
  answer,
  behind,
  chunked,
  raw,
  rawThenClose,
  ScriptedBackend,
  timeout,
} from '../helpers/scripted-backend.ts';

const start = (settings: Settings = {}) => startGateway({ settings });
type Server = Awaited<ReturnType<typeof start>>;

/** The only record since the last call of this function: its durations must be plausible, and the rest is returned. */
function takeRecord({ told }: Server) {
  const [record, ...others] = told.ended.splice(0);
  assert.deepEqual([others, told.bugs, told.stalled], [[], [], []]);
  const { operation, method, client, durationMs, backendDurationMs, ...more } = record ?? assert.fail('no record');
  assert.equal(client, '127.0.0.1');
  assert.ok(durationMs >= 0 && durationMs < 60_000);
  if (more.backendOutcome === undefined) assert.equal(backendDurationMs, undefined);
  else assert.ok((backendDurationMs ?? -1) >= 0 && (backendDurationMs ?? 0) <= durationMs);
  const { status, outcome, cause, backendOutcome, requestBytes: sent, replyBytes } = more;
  return { operation: operation?.name, method, status, outcome, cause, backendOutcome, requestBytes: sent, replyBytes };
}

const failedList = { operation: 'list', method: 'GET', status: 500, requestBytes: 0, replyBytes: '{"error":"Failed to fetch work items"}'.length }; // prettier-ignore
const noBackend = { backendOutcome: undefined };

test('a success is "ok", with its durations and the sizes of both bodies', async () => {
  await using server = await start();
  for (const [method, path, body, operation, status, replyBytes] of [
    ['GET', '/api/work-items', '', 'list', 200, 8],
    ['HEAD', '/api/work-items', '', 'list', 200, 8],
    ['POST', '/api/work-items', '{"a":1}', 'create', 201, 8],
    ['GET', '/api/work-items/5', '', 'read', 200, 8],
    ['PUT', '/api/work-items/5', '{"a":1}', 'update', 200, 16],
    ['DELETE', '/api/work-items/5', '', 'delete', 200, 16],
  ] as const) {
    const sentAt = performance.now();
    await server.call(method, path, body === '' ? {} : { body });
    const { durationMs, backendDurationMs } = server.told.ended[0] ?? assert.fail();
    assert.ok(backendDurationMs !== undefined && backendDurationMs > 0);
    assert.ok(durationMs <= performance.now() - sentAt);
    const ok = { outcome: 'ok', cause: undefined, backendOutcome: 'ok', requestBytes: body.length };
    assert.deepEqual(takeRecord(server), { operation, method, status, ...ok, replyBytes });
  }
});

const notJson = 'status 200 with a body that is not JSON';
const large = 'an answer of more than 1000 bytes';
const codings = 'HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n';
for (const [name, backendAnswer, outcome, cause, settings = {}] of [
  ['status 503 from the backend', answer('{}', { status: 503 }), 'refused', 'status 503'],
  ['status 404 from the backend', answer('{}', { status: 404 }), 'refused', 'status 404'],
  ['an empty body', answer(''), 'not-json', 'status 200 with an empty body'],
  ['a body that is not JSON', answer('{'), 'not-json', notJson],
  ['a page', answer(' <!doctype html>', { headers: [['Content-Type', 'text/html']] }), 'not-json', 'status 200 with a page (HTML or XML)'],
  ['an incomplete body, in pieces', chunked('1\r\n[\r\n1\r\n1\r\n0\r\n\r\n'), 'not-json', notJson],
  ['an invalid body, in pieces', chunked('1\r\n[\r\n1\r\n}\r\n1\r\n1\r\n0\r\n\r\n'), 'not-json', notJson],
  ['a content-length over the limit', answer(`"${'x'.repeat(999)}"`), 'too-large', large],
  ['chunks over the limit', chunked(`3e9\r\n"${'x'.repeat(999)}"\r\n0\r\n\r\n`), 'too-large', large],
  ['an answer over bufferedBytesMax', answer(`"${'x'.repeat(100)}"`), 'too-large', 'the limit of buffered bytes is reached', { bufferedBytesMax: 100 }],
  ['an answer after the deadline [D19]', timeout, 'timed-out', 'no complete answer within 100 ms', { backendTimeoutMs: 100 }],
  ['a transfer-encoding of gzip and chunked', raw(codings), 'unreachable', 'an answer with a transfer-encoding that is not exactly one "chunked"'],
  ['chunks in HTTP/1.0', raw('HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n'), 'unreachable', 'an answer with a transfer-encoding in HTTP/1.0'],
  ['a version that is not HTTP/1.1', raw('HTTP/3.0 200 OK\r\n\r\n'), 'unreachable', /an answer that is not HTTP\/1\.1/],
  ['a connection closed before the answer', rawThenClose(''), 'unreachable', /closed before the answer was complete/],
  ['an answer that is not HTTP', raw('garbage\r\n\r\n'), 'unreachable', /./],
] satisfies [string, Answer, string, string | RegExp, Settings?][]) {
  test(`${name} is "${outcome}", with its cause`, async () => {
    await using server = await start({ responseBytesMax: 1000, ...settings });
    server.backend.answers(backendAnswer);
    await server.call('GET', '/api/work-items');
    const record = takeRecord(server);
    assert.deepEqual(record, { ...failedList, outcome, backendOutcome: outcome, cause: record.cause });
    if (typeof cause === 'string') assert.equal(record.cause, cause);
    else assert.match(String(record.cause), cause);
  });
} // prettier-ignore

for (const [hostName, cause] of [
  ['127.0.0.1', 'connect ECONNREFUSED 127\\.0\\.0\\.1:PORT'],
  ['localhost', 'ECONNREFUSED; connect \\w+ 127\\.0\\.0\\.1:PORT.*; connect \\w+ ::1:PORT'],
] as const) {
  test(`a backend that is down on ${hostName} is "unreachable", and the cause has each address that was tried [D30]`, async () => {
    const down = await ScriptedBackend.start();
    await down.stop();
    await using server = await start({ backendUrl: `http://${hostName}:${down.port}` });
    await server.call('GET', '/api/work-items');
    const record = takeRecord(server);
    assert.equal(record.outcome, 'unreachable');
    assert.match(String(record.cause), new RegExp(`^${cause.replaceAll('PORT', String(down.port))}`));
  });
}

test('a request that the gateway answers itself has its outcome and cause, and no backend outcome', async () => {
  await using server = await start({ requestBytesMax: 100 });
  const crossSite: CallOptions = { body: '{}', headers: [['Sec-Fetch-Site', 'cross-site']] };
  for (const [operation, outcome, status, method, path, options, cause] of [
    ['read', 'invalid-id', 400, 'GET', '/api/work-items/x', {}],
    ['update', 'invalid-body', 500, 'PUT', '/api/work-items/5', { body: '{' }, 'not JSON after byte 1 of 1'],
    ['create', 'invalid-body', 500, 'POST', '/api/work-items', { body: '{"é":1,}' }, 'not JSON after byte 8 of 9'],
    ['create', 'invalid-body', 500, 'POST', '/api/work-items', {}, 'no body'],
    ['create', 'body-too-large', 413, 'POST', '/api/work-items', { body: 'x'.repeat(101) }],
    [undefined, 'no-operation', 404, 'GET', '/nowhere', {}],
    [undefined, 'no-operation', 405, 'NOPE', '/api/work-items', {}],
    [undefined, 'no-operation', 405, 'PATCH', '/api/work-items', {}],
    [undefined, 'ok', 204, 'OPTIONS', '/api/work-items', {}],
    [undefined, 'forbidden', 403, 'POST', '/api/work-items', crossSite],
  ] satisfies [string | undefined, string, number, string, string, CallOptions, string?][]) {
    const { body } = await server.call(method, path, options);
    const { requestBytes: received, ...record } = takeRecord(server);
    assert.deepEqual(record, { operation, method, status, outcome, cause, ...noBackend, replyBytes: body.length });
    if (outcome === 'invalid-body') assert.equal(received, Buffer.byteLength(options.body ?? ''));
  }
  assert.equal(server.backend.requests.length, 0);
});

test('the record of a large body that is not JSON says where, up to the first MiB, wherever the body was cut', async () => {
  await using server = await start();
  for (const [validBytes, end, cause] of [
    [65_535, 9, 'not JSON after byte 65535 of 65544'],
    [65_536, 0, 'not JSON after byte 65536 of 65536'],
    [300_000, 70_000, 'not JSON after byte 300000 of 370000'],
    [2_000_000, 10, 'not JSON after byte 1048576 of 2000010'],
  ] as const) {
    await server.call('PUT', '/api/work-items/5', { body: `"${'x'.repeat(validBytes - 1)}${'\n'.repeat(end)}` });
    assert.equal(takeRecord(server).cause, cause);
  }
});

test('a call over IN_FLIGHT_MAX is "overload"; after the call in flight has ended, the next call is served [D26]', async () => {
  await using server = await start({ inFlightMax: 1 });
  const gate = createGate();
  server.backend.answersOnce(behind(gate, answer('{}')));
  const held = server.call('GET', '/api/work-items/1');
  await server.backend.nextRequest();
  await server.call('GET', '/api/work-items/2');
  const { operation, status, outcome, backendOutcome, cause } = takeRecord(server);
  assert.deepEqual([operation, status, outcome, backendOutcome], ['read', 503, 'overload', undefined]);
  assert.equal(cause, 'the limit of calls in flight is reached');
  // The 503 does not wait for the body.
  await using client = await server.connect();
  client.send('PUT /api/work-items/5 HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n');
  assert.equal((await client.reply()).status, 503);
  gate.open();
  await held;
  assert.equal((await server.call('GET', '/api/work-items/3')).status, 200);
});

test('a malformed pipelined request is recorded as "bad-request", after the previous request has ended', async () => {
  await using server = await start();
  await using client = await server.connect();
  client.send('GET /api/work-items HTTP/1.1\r\nHost: x\r\n\r\n');
  client.send('PUT /api/work-items/5 HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nnone\r\n');
  await client.closed();
  const told = server.told.ended.map(({ status, outcome }) => `${status} ${outcome}`);
  assert.deepEqual(told, ['200 ok', '400 bad-request']);
});

for (const [backendStatus, outcome] of [[200, 'client-gone'], [500, 'refused']] as const) {
  test(`a client leaves during a write, and the backend answers ${backendStatus}: the outcome is "${outcome}", without a status [D21]`, async () => {
    await using server = await start();
    const gate = createGate();
    server.backend.answers(behind(gate, answer('{}', { status: backendStatus })));
    const client = await server.connect();
    client.send(requestBytes('PUT', '/api/work-items/5', { body: '{}' }));
    await server.backend.nextRequest();
    client.reset();
    // A reply on another connection proves that the gateway has read the reset.
    await server.call('GET', '/nowhere');
    takeRecord(server);
    gate.open();
    await poll(() => server.told.ended.length > 0, 'the record');
    const why = { cause: backendStatus === 200 ? undefined : 'status 500', backendOutcome: backendStatus === 200 ? 'ok' : 'refused' };
    const update = { operation: 'update', method: 'PUT', status: 0, requestBytes: 2, replyBytes: 0 };
    assert.deepEqual(takeRecord(server), { ...update, outcome, ...why });
  });
} // prettier-ignore

test('a client leaves before its body is complete: the outcome is "client-gone", without a backend call [D21]', async () => {
  await using server = await start();
  const client = await server.connect();
  client.send('PUT /api/work-items/5 HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{');
  await server.call('GET', '/nowhere');
  takeRecord(server);
  client.reset();
  await poll(() => server.told.ended.length > 0, 'the record');
  const { operation, status, outcome, backendOutcome } = takeRecord(server);
  assert.deepEqual([operation, status, outcome, backendOutcome], ['update', 0, 'client-gone', undefined]);
});

test("onMalformed gets the reply's request id and status, and the reason [D27]", async () => {
  await using server = await start();
  const get = 'GET / HTTP/1.1\r\nHost: x\r\n';
  for (const [bytes, status, reason] of [
    ['\x00\r\n\r\n', 400, 'an invalid method'],
    [`${get}X: ${'x'.repeat(20_000)}\r\n\r\n`, 431, 'a head of more than 16384 bytes'],
    [`${get}Host: x\r\n\r\n`, 400, 'two host fields'],
  ] as const) {
    await using client = await server.connect();
    client.send(bytes);
    const reply = await client.reply();
    assert.equal(reply.status, status);
    const event = { requestId: reply.header('x-request-id'), status, reason, client: '127.0.0.1' };
    assert.deepEqual(server.told.malformed.splice(0), [event]);
  }
  assert.deepEqual(server.told.ended, []);
});

test("a record has the path without the query, and the client's address as trustedProxies determines it [D52]", async () => {
  for (const [trustedProxies, client] of [
    [[], '127.0.0.1'],
    [['10.0.0.0/8'], '127.0.0.1'],
    [['127.0.0.0/8', '10.0.0.0/8'], '203.0.113.5'],
  ] as const) {
    await using server = await start({ trustedProxies });
    const headers = [['X-Forwarded-For', '6.6.6.6, 203.0.113.5:81, 10.1.1.1']] as const;
    await server.call('GET', '/api/work-items/5?token=secret', { headers });
    const [record] = server.told.ended;
    assert.deepEqual([record?.path, record?.client], ['/api/work-items/5', client]);
  }
});
