// What an observer is told of every request that ends: the source of the log and the metrics. Causes name what went
// wrong at the backend, in words that an operator can use and that no client ever sees.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createGatewayServer, type CallRecord } from '../../packages/core/hosts/index.ts';
import { startBlackHole } from '../helpers/black-hole.ts';
import { createGate, poll } from '../helpers/changes.ts';
import { serveBefore, serveInProcess } from '../helpers/in-process.ts';
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
import type { GatewaySettings } from '../helpers/targets.ts';

type Told = Pick<
  CallRecord,
  'method' | 'status' | 'outcome' | 'cause' | 'backendOutcome' | 'requestBytes' | 'replyBytes'
> & { readonly operation: string | undefined };

type ServerSettings = GatewaySettings & { readonly trustedProxies?: readonly string[] };

/** A server whose observer keeps what it is told: the record is the call itself, which lives on, so what it says now. */
async function serve(settings: ServerSettings = {}) {
  const records: CallRecord[] = [];
  const server = await serveInProcess({
    ...settings,
    observer: {
      onCallEnd: (record) => {
        const { requestId, operation, method, path, client, status, outcome, cause, backendOutcome } = record;
        const { durationMs, backendDurationMs, backendStatus, requestBytes, replyBytes } = record;
        records.push({
          ...{ requestId, operation, method, path, client, status, outcome, cause, backendOutcome },
          ...{ durationMs, backendDurationMs, backendStatus, requestBytes, replyBytes },
          ...{ subject: record.subject, agent: record.agent, http: record.http },
        });
      },
      onMalformed: (requestId, { status }, reason, client) =>
        server.told.malformed.push({ requestId, status, reason, client }),
      onStall: () => assert.fail('no client stalls here'),
      onBug: (error) => {
        throw error;
      },
    },
  });
  return Object.assign(server, { records, malformed: server.told.malformed });
}

/** The only record, without what differs from run to run. */
function only(records: readonly CallRecord[]): Told {
  assert.equal(records.length, 1);
  const [record] = records;
  assert.ok(record);
  const { operation, method, status, outcome, cause, backendOutcome, requestBytes, replyBytes } = record;
  assert.ok(record.durationMs >= 0 && record.durationMs < 60_000);
  if (backendOutcome === undefined) assert.equal(record.backendDurationMs, undefined);
  else
    assert.ok((record.backendDurationMs ?? -1) >= 0 && (record.backendDurationMs ?? 0) <= record.durationMs);
  return {
    operation: operation?.name,
    method,
    status,
    outcome,
    cause,
    backendOutcome,
    requestBytes,
    replyBytes,
  };
}

const failedList = '{"error":"Failed to fetch work items"}'.length;

for (const [method, path, body, told] of [
  ['GET', '/api/work-items', undefined, ['list', 200, 8]],
  ['HEAD', '/api/work-items', undefined, ['list', 200, 8]],
  ['POST', '/api/work-items', '{"a":1}', ['create', 201, 8]],
  ['GET', '/api/work-items/5', undefined, ['read', 200, 8]],
  ['PUT', '/api/work-items/5', '{"a":1}', ['update', 200, 16]],
  ['DELETE', '/api/work-items/5', undefined, ['delete', 200, 16]],
] as const) {
  test(`${method} ${path} that goes well is "ok", with the bytes of both bodies`, async () => {
    await using server = await serve();
    if (method === 'HEAD') {
      await using client = await RawClient.open(server.port);
      await client.call(method, path);
    } else {
      await server.call(method, path, body === undefined ? {} : { body });
    }
    const [operation, status, replyBytes] = told;
    assert.deepEqual(only(server.records), {
      operation,
      method,
      status,
      outcome: 'ok',
      cause: undefined,
      backendOutcome: 'ok',
      requestBytes: body?.length ?? 0,
      replyBytes,
    });
  });
}

/** Failures of the backend, as GET of the list sees them. */
const failures: [name: string, backendAnswer: Answer, outcome: CallRecord['outcome'], cause: string | RegExp][] =
  [
    ['a refusal', answer('{}', { status: 503 }), 'refused', 'status 503'],
    ['a 404 of the list', answer('{}', { status: 404 }), 'refused', 'status 404'],
    ['an empty body', answer(''), 'not-json', 'an empty body'],
    ['a body that is not JSON', answer('{'), 'not-json', 'a body that is not JSON'],
    ['a body that ends too early, in pieces', chunked('1\r\n[\r\n1\r\n1\r\n0\r\n\r\n'), 'not-json', 'a body that is not JSON'],
    ['a body that goes wrong, in pieces', chunked('1\r\n[\r\n1\r\n}\r\n1\r\n1\r\n0\r\n\r\n'), 'not-json', 'a body that is not JSON'],
    ['a length over the limit', answer(`"${'x'.repeat(999)}"`), 'too-large', 'an answer of more than 1000 bytes'],
    [
      'chunks over the limit',
      chunked(`3e9\r\n"${'x'.repeat(999)}"\r\n0\r\n\r\n`),
      'too-large',
      'an answer of more than 1000 bytes',
    ],
    [
      'another transfer coding',
      raw('HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n'),
      'unreachable',
      'an answer with a transfer-encoding other than one "chunked"',
    ],
    [
      'chunks in HTTP/1.0',
      raw('HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n'),
      'unreachable',
      'an answer with a transfer-encoding in HTTP/1.0',
    ],
    ['another version', raw('HTTP/3.0 200 OK\r\n\r\n'), 'unreachable', /an answer that is not HTTP\/1\.1/],
    ['an end before the answer', rawThenClose(''), 'unreachable', /closed before the answer was whole/],
    ['no HTTP at all', raw('garbage\r\n\r\n'), 'unreachable', /./],
  ]; // prettier-ignore

for (const [name, backendAnswer, outcome, cause] of failures) {
  test(`${name} is "${outcome}", and why`, async () => {
    await using server = await serve({ responseBytesMax: 1000 });
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

test('a 404 of one item is "not-found" for the read, and "rejected" for the others [D51]', async () => {
  for (const [method, expected] of [
    ['GET', { outcome: 'not-found', backendOutcome: 'not-found', status: 404 }],
    ['PUT', { outcome: 'rejected', backendOutcome: 'rejected', status: 500 }],
    ['DELETE', { outcome: 'rejected', backendOutcome: 'rejected', status: 500 }],
  ] as const) {
    await using server = await serve();
    server.backend.answers(answer('{}', { status: 404 }));
    await server.call(method, '/api/work-items/5', method === 'PUT' ? { body: '{}' } : {});
    const { outcome, backendOutcome, status, cause } = only(server.records);
    assert.deepEqual({ outcome, backendOutcome, status }, expected);
    assert.equal(cause, 'status 404');
  }
});

test('a backend that does not want the request has "rejected" it, and refuses or fails with any other status [D51]', async () => {
  await using server = await serve();
  const rejected = [400, 404, 405, 406, 409, 410, 411, 412, 413, 414, 415, 422, 428, 431];
  const others = [300, 302, 304, 399, 401, 402, 403, 407, 408, 423, 425, 426, 429, 451, 499, 500, 503, 599];
  for (const status of [...rejected, ...others]) {
    server.backend.answers(answer('{}', { status }));
    for (const [method, path, message] of [
      ['GET', '/api/work-items', 'Failed to fetch work items'],
      ['POST', '/api/work-items', 'Failed to create work item'],
      ['PUT', '/api/work-items/5', 'Failed to update work item'],
      ['DELETE', '/api/work-items/5', 'Failed to delete work item'],
    ] as const) {
      server.records.length = 0;
      const reply = await server.call(method, path, method.startsWith('P') ? { body: '{}' } : {});
      assert.equal(`${reply.status} ${reply.text}`, `500 {"error":"${message}"}`, `${method} ${status}`);
      const { outcome, backendOutcome, cause } = only(server.records);
      const isList = path === '/api/work-items' && method === 'GET';
      const name = rejected.includes(status) && !isList ? 'rejected' : 'refused';
      assert.deepEqual(
        { outcome, backendOutcome, cause },
        { outcome: name, backendOutcome: name, cause: `status ${status}` },
        method,
      );
    }
  }
});

test('a backend that is away is "unreachable", with the address that was tried', async () => {
  const away = await ScriptedBackend.start();
  await away.stop();
  await using server = await serve({ backendUrl: away.url });
  await server.call('GET', '/api/work-items');
  const { outcome, cause } = only(server.records);
  assert.equal(outcome, 'unreachable');
  assert.equal(cause, `connect ECONNREFUSED 127.0.0.1:${away.port}`);
});

test('localhost names both addresses that were tried [D30]', async () => {
  const away = await ScriptedBackend.start();
  await away.stop();
  await using server = await serve({ backendUrl: `http://localhost:${away.port}` });
  await server.call('GET', '/api/work-items');
  const { outcome, cause } = only(server.records);
  assert.equal(outcome, 'unreachable');
  assert.match(
    String(cause),
    new RegExp(`^ECONNREFUSED; connect \\w+ 127\\.0\\.0\\.1:${away.port}.*; connect \\w+ ::1:${away.port}`),
  );
});

test('deadlines are "timed-out", each with its own limit [D19]', async () => {
  await using slow = await serve({ backendTimeoutMs: 100 });
  slow.backend.answers(timeout);
  await slow.call('GET', '/api/work-items');
  const { outcome, backendOutcome, cause } = only(slow.records);
  assert.deepEqual(
    { outcome, backendOutcome, cause },
    { outcome: 'timed-out', backendOutcome: 'timed-out', cause: 'no complete answer within 100 ms' },
  );
});

test('a connection that does not come about is "timed-out" [D19]', async (context) => {
  await using hole = await startBlackHole();
  if (!hole) {
    context.skip('this system takes connections without end');
    return;
  }
  const backendUrl = `http://127.0.0.1:${hole.port}`;
  await using server = await serve({ backendUrl, backendConnectTimeoutMs: 100 });
  await server.call('GET', '/api/work-items');
  const { outcome, cause } = only(server.records);
  assert.deepEqual({ outcome, cause }, { outcome: 'timed-out', cause: 'no connection within 100 ms' });
});

test('an answer that does not fit beside the bodies held is "too-large"', async () => {
  await using server = await serve({ bufferedBytesMax: 100 });
  server.backend.answers(answer(`"${'x'.repeat(100)}"`));
  await server.call('GET', '/api/work-items');
  const { outcome, cause } = only(server.records);
  assert.deepEqual(
    { outcome, cause },
    { outcome: 'too-large', cause: 'too many bytes of bodies held at once' },
  );
});

/** What is answered without the backend. */
const refusals: [name: string, method: string, path: string, options: CallOptions, told: Partial<Told>][] = [
  ['an id that is none', 'GET', '/api/work-items/x', {}, { operation: 'read', status: 400, outcome: 'invalid-id' }],
  ['a body that is not JSON', 'PUT', '/api/work-items/5', { body: '{' }, { operation: 'update', status: 500, outcome: 'invalid-body', requestBytes: 1 }],
  ['no body', 'POST', '/api/work-items', {}, { operation: 'create', status: 500, outcome: 'invalid-body', requestBytes: 0 }],
  ['a body over the limit', 'POST', '/api/work-items', { body: 'x'.repeat(101) }, { operation: 'create', status: 413, outcome: 'body-too-large' }],
  ['an unknown path', 'GET', '/nowhere', {}, { operation: undefined, status: 404, outcome: 'no-operation' }],
  ['a method that the path does not have', 'PATCH', '/api/work-items', {}, { operation: undefined, status: 405, outcome: 'no-operation' }],
  ['OPTIONS', 'OPTIONS', '/api/work-items', {}, { operation: undefined, status: 204, outcome: 'ok', replyBytes: 0 }],
  ['a write of a page of another site', 'POST', '/api/work-items', { body: '{}', headers: [['Sec-Fetch-Site', 'cross-site']] }, { operation: undefined, status: 403, outcome: 'forbidden' }],
  ['an unknown expectation', 'GET', '/api/work-items', { headers: [['Expect', 'x']] }, { operation: undefined, status: 417, outcome: 'bad-request' }],
]; // prettier-ignore

for (const [name, method, path, options, expected] of refusals) {
  test(`${name} is "${String(expected.outcome)}", without a backend outcome and a cause`, async () => {
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

test('one call more than IN_FLIGHT_MAX is "overload"; a call that has ended leaves its place [D26]', async () => {
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
  // Whoever comes with a body learns it before the body is sent.
  await using client = await RawClient.open(server.port);
  client.send('PUT /api/work-items/5 HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n');
  assert.equal((await client.reply()).status, 503);
  gate.open();
  await held;
  assert.equal((await server.call('GET', '/api/work-items/3')).status, 200);
});

test('a body that turns out to be too large or does not fit beside those held says so, as one that is announced does', async () => {
  for (const [settings, status, outcome] of [
    [{ requestBytesMax: 100 }, 413, 'body-too-large'],
    [{ bufferedBytesMax: 100 }, 503, 'overload'],
  ] as const) {
    await using server = await serve(settings);
    const headers = [['Transfer-Encoding', 'chunked']] as const;
    const body = `65\r\n${'1'.repeat(101)}\r\n0\r\n\r\n`;
    const reply = await server.call('PUT', '/api/work-items/5', { headers, body });
    assert.equal(reply.status, status);
    const told = only(server.records);
    assert.deepEqual(
      { operation: told.operation, outcome: told.outcome, requestBytes: told.requestBytes },
      { operation: 'update', outcome, requestBytes: 101 },
    );
    assert.equal(server.backend.requests.length, 0);
  }
});

test('a request that is cut off while it waits is "bad-request" when its turn has come', async () => {
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

test('a fault of our own is a "bug", with the error as its cause [D28]', async () => {
  await using server = await serveBefore({
    send: () => {
      throw new TypeError('SECRET');
    },
  });
  await using client = await server.connect();
  await client.call('DELETE', '/api/work-items/5');
  const { operation, status, outcome, cause, backendOutcome } = only(server.told.ended);
  assert.deepEqual(
    { operation, status, outcome, backendOutcome },
    { operation: 'delete', status: 500, outcome: 'bug', backendOutcome: undefined },
  );
  assert.ok(cause instanceof TypeError);
  assert.equal(cause.message, 'SECRET');
});

test('a client that leaves a read is "client-gone" and its call "cancelled" [D21]', async () => {
  await using server = await serve();
  server.backend.answers(timeout);
  const client = await RawClient.open(server.port);
  client.send('GET /api/work-items HTTP/1.1\r\nHost: x\r\n\r\n');
  await server.backend.nextRequest();
  client.destroy();
  await poll(() => server.records.length > 0, 'the record');
  assert.deepEqual(only(server.records), {
    operation: 'list',
    method: 'GET',
    status: 0,
    outcome: 'client-gone',
    cause: undefined,
    backendOutcome: 'cancelled',
    requestBytes: 0,
    replyBytes: 0,
  });
});

for (const [status, outcome] of [
  [200, 'client-gone'],
  [500, 'refused'],
] as const) {
  test(`a client that leaves a write that the backend answers ${status} is "${outcome}" without a status [D21]`, async () => {
    await using server = await serve();
    const gate = createGate();
    server.backend.answers(behind(gate, answer('{}', { status })));
    const client = await RawClient.open(server.port);
    client.send('PUT /api/work-items/5 HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}');
    await server.backend.nextRequest();
    client.reset();
    // Its end has been seen when a later client has been refused.
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

test('a client that leaves before its body is whole is "client-gone", and nothing was called [D21]', async () => {
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
  ['bytes that are no request', '\x00\r\n\r\n', 400, 'a method that is none'],
  ['a head that is too large', `GET / HTTP/1.1\r\nHost: x\r\nX: ${'x'.repeat(20_000)}\r\n\r\n`, 431, 'a head of more than 16384 bytes'],
  ['two Hosts', 'GET / HTTP/1.1\r\nHost: x\r\nHost: x\r\n\r\n', 400, 'two host fields'],
] as const) {
  test(`${name} is malformed, with the reply's id and status and the reason [D27]`, async () => {
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

for (const [name, bytes] of [
  ['a method that nobody has heard of', 'NOPE /api/work-items HTTP/1.1\r\nHost: x\r\n\r\n'],
  ['CONNECT', 'CONNECT x:1 HTTP/1.1\r\nHost: x:1\r\n\r\n'],
] as const) {
  test(`${name} is a request without an operation [D6, D27]`, async () => {
    await using server = await serve();
    await using client = await RawClient.open(server.port);
    client.send(bytes);
    assert.equal((await client.reply()).status, 405);
    assert.deepEqual(server.malformed, []);
    assert.equal(only(server.records).outcome, 'no-operation');
  });
}

test('a record has the path, and the client that trustedProxies say [D52]', async () => {
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

test('trustedProxies that are no addresses are refused [D52]', () => {
  for (const wrong of [['10.0.0.0/99'], ['localhost'], ['10.0.0.1', ''], '10.0.0.1', [7]]) {
    const options = { backendUrl: 'http://localhost:5104', trustedProxies: wrong as string[] };
    assert.throws(
      () => createGatewayServer(options),
      /trustedProxies must be a list of IP addresses and ranges/,
    );
  }
});
