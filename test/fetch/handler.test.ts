// What is the fetch handler's own [D50]: options, the end of a client, bodies of all kinds, its end. That its replies are
// those of the command is in test/spec/, where it is one of the targets.

import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { test } from 'node:test';
import { promisify } from 'node:util';
import { createFetchHandler, type FetchHandlerOptions } from '../../packages/core/hosts/fetch/fetch.ts';
import { createFetchHandler as createOnEdge } from '../../packages/core/hosts/fetch/fetch-edge.ts';
import { createGate, poll } from '../helpers/changes.ts';
import {
  badRequest,
  forbidden,
  notFound,
  operations,
  requestTimeout,
  succeeded,
  tooLarge,
} from '../helpers/expected.ts';
import { createObserver } from '../helpers/in-process.ts';
import { answer, behind, resetPeer, ScriptedBackend } from '../helpers/scripted-backend.ts';

const base = 'http://gateway.localhost';

async function serve(options: Partial<FetchHandlerOptions> = {}) {
  const backend = await ScriptedBackend.start();
  backend.answers(answer('{"id":5}'));
  const { told, observer } = createObserver();
  const handler = createFetchHandler({ backendUrl: backend.url, observer, ...options });
  return {
    backend,
    told,
    handler,
    call: (path: string, init?: RequestInit) => handler(new Request(base + path, init)),
    [Symbol.asyncDispose]: async () => {
      await handler.close();
      await backend.stop();
    },
  };
}

async function assertResponse(response: Response, status: number, body: string): Promise<void> {
  assert.deepEqual([response.status, await response.text()], [status, body]);
}

test('the five operations, with the headers of every reply and none of a connection [D24, D50]', async () => {
  await using server = await serve();
  for (const { method, path, options, status, body } of operations) {
    const response = await server.call(path, {
      method,
      ...(options.body !== undefined && { body: options.body as string }),
    });
    assert.deepEqual([...response.headers].map(([name]) => name).sort(), [
      'cache-control',
      'content-length',
      'content-type',
      'x-content-type-options',
      'x-request-id',
    ]);
    assert.equal(response.headers.get('content-length'), String(body.length));
    await assertResponse(response, status, body);
  }
  assert.deepEqual(
    server.backend.requests.map(({ method, target }) => `${method} ${target}`),
    operations.map(({ method, backendTarget }) => `${method} ${backendTarget}`),
  );
});

test("the id is that of the URL's path as it is written, also behind a prefix [D1, D50]", async () => {
  await using server = await serve({ prefix: '/intern/items' });
  for (const [path, target] of [
    ['/007', '/api/WorkItem/7'],
    ['/%31%32?id=9', '/api/WorkItem/12'],
    ['/9007199254740993', '/api/WorkItem/9007199254740993'],
    ['', '/api/WorkItem'],
  ] as const) {
    assert.equal((await server.call(`/intern/items/api/work-items${path}`)).status, 200);
    assert.equal(server.backend.requests.at(-1)?.target, target);
  }
  const calls = server.backend.requests.length;
  await assertResponse(
    await server.call('/intern/items/api/work-items/%zz'),
    400,
    '{"error":"Invalid ID format"}',
  );
  await assertResponse(await server.call('/api/work-items/7'), 404, notFound);
  await assertResponse(await server.call('/'), 404, notFound);
  assert.equal(server.backend.requests.length, calls);
});

test('a body may come in pieces, as a stream, a form or a blob: its bytes decide [D10]', async () => {
  await using server = await serve();
  const bytes = Buffer.from('{"name":"Ünïcode","n":1.0}');
  const stream = new ReadableStream({
    start: (controller) => {
      for (const byte of bytes) controller.enqueue(Uint8Array.of(byte));
      controller.close();
    },
  });
  for (const body of [bytes, new Blob([bytes]), stream]) {
    const init = { method: 'PUT', body, duplex: 'half' } as RequestInit;
    await assertResponse(await server.call('/api/work-items/5', init), 200, succeeded);
    assert.deepEqual(server.backend.requests.at(-1)?.body, bytes);
  }
  const calls = server.backend.requests.length;
  const form = new URLSearchParams({ a: '1' });
  assert.equal((await server.call('/api/work-items', { method: 'POST', body: form })).status, 500);
  assert.equal((await server.call('/api/work-items', { method: 'POST' })).status, 500);
  assert.equal(server.backend.requests.length, calls);
});

test('a body over the limit is 413, announced or not, and is read no further [D11]', async () => {
  await using server = await serve({ requestBytesMax: 1_000 });
  await assertResponse(
    await server.call('/api/work-items', { method: 'POST', body: `"${'x'.repeat(999)}"` }),
    413,
    tooLarge,
  );
  let pulled = 0;
  let isCancelled = false;
  const body = new ReadableStream({
    pull: (controller) => {
      pulled += 1;
      controller.enqueue(new Uint8Array(400).fill(0x20));
    },
    cancel: () => {
      isCancelled = true;
    },
  });
  await assertResponse(
    await server.call('/api/work-items', { method: 'POST', body, duplex: 'half' }),
    413,
    tooLarge,
  );
  await poll(() => isCancelled, 'the body is cancelled');
  assert.ok(pulled <= 5, `${pulled} pieces`);
  assert.equal(server.backend.requests.length, 0);
});

test('a body that breaks off, or that somebody has read before, is 400 and no call', async () => {
  await using server = await serve();
  const broken = new ReadableStream({
    start: (controller) => {
      controller.enqueue(Buffer.from('{'));
      controller.error(new Error('SECRET'));
    },
  });
  const init = { method: 'PUT', body: broken, duplex: 'half' } as RequestInit;
  await assertResponse(await server.call('/api/work-items/5', init), 400, badRequest);
  const read = new Request(`${base}/api/work-items/5`, { method: 'PUT', body: '{}' });
  await read.text();
  await assertResponse(await server.handler(read), 400, badRequest);
  assert.equal(server.backend.requests.length, 0);
});

test('a body that stalls, or drips, is 408 after its time, and what had come of it is given back [D35, D50]', async () => {
  await using server = await serve({ bufferedBytesMax: 1_000, requestTimeoutMs: 300 });
  const gate = createGate();
  server.backend.answersOnce(behind(gate, answer('{"id":5}')));
  const waiting = server.call('/api/work-items/5', { method: 'PUT', body: '{}' });
  await server.backend.nextRequest();
  let cancelled = 0;
  const cancel = () => {
    cancelled += 1;
  };
  const stalled = () =>
    new ReadableStream({
      start: (controller) => {
        controller.enqueue(new Uint8Array(600).fill(0x20));
      },
      cancel,
    });
  const dripping = () =>
    new ReadableStream({
      pull: async (controller) => {
        await new Promise((resolve) => setTimeout(resolve, 1));
        controller.enqueue(Buffer.from(' '));
      },
      cancel,
    });
  for (const [method, path, body] of [
    ['POST', '/api/work-items', stalled()],
    ['PUT', '/api/work-items/5', dripping()],
    // Whose body is not wanted.
    ['DELETE', '/api/work-items/5', stalled()],
  ] as const) {
    const init = { method, body, duplex: 'half' } as RequestInit;
    await assertResponse(await server.call(path, init), 408, requestTimeout);
  }
  assert.equal(cancelled, 3);
  assert.deepEqual(
    server.told.ended.map(({ outcome }) => outcome),
    ['bad-request', 'bad-request', 'bad-request'],
  );
  // The time of a body is over with it, however long the backend takes.
  gate.open();
  await assertResponse(await waiting, 200, succeeded);
  const body = `"${'x'.repeat(950)}"`;
  await assertResponse(await server.call('/api/work-items/5', { method: 'PUT', body }), 200, succeeded);
  assert.equal(server.backend.requests.length, 2);
});

for (const size of [0, 1]) {
  test(`pieces of ${size} bytes that are always ready and never end are 408 after their time, and others are served meanwhile [D35, D58]`, async () => {
    await using server = await serve({ requestTimeoutMs: 1_000 });
    const startedAt = performance.now();
    const body = new ReadableStream({
      pull: (controller) => {
        // Nothing else in this process could end a test that is starved.
        if (performance.now() - startedAt > 10_000) controller.error(new Error('starved'));
        controller.enqueue(new Uint8Array(size).fill(0x20));
      },
    });
    let isAnswered = false as boolean;
    const endless = server.call('/api/work-items/5', { method: 'PUT', body, duplex: 'half' }).finally(() => {
      isAnswered = true;
    });
    let others = 0;
    for (; !isAnswered; others += 1) {
      await assertResponse(await server.call('/api/work-items/5'), 200, '{"id":5}');
    }
    await assertResponse(await endless, 408, requestTimeout);
    assert.ok(others > 1, `${others} other calls`);
  });
}

test('a body may fail with anything: 400, and no call', async () => {
  await using server = await serve();
  for (const reason of [undefined, null, 'a word', { code: 'E' }]) {
    const body = new ReadableStream({
      pull: (controller) => {
        controller.error(reason);
      },
    });
    const init = { method: 'PUT', body, duplex: 'half' } as RequestInit;
    await assertResponse(await server.call('/api/work-items/5', init), 400, badRequest);
  }
  assert.equal(server.backend.requests.length, 0);
});

test('what is no Request is a TypeError that says what is wanted, and no fault of the gateway [D50]', async () => {
  await using server = await serve();
  const errors: unknown[] = [];
  const node = createServer((request, response) => {
    server
      .handler(request as never)
      .catch((error: unknown) => errors.push(error))
      .finally(() => response.end());
  }).listen(0);
  await once(node, 'listening');
  await fetch(`http://localhost:${(node.address() as AddressInfo).port}/api/work-items`);
  node.close();
  for (const value of [null, undefined, {}, 'http://localhost/api/work-items', new Response()]) {
    await server.handler(value as never).catch((error: unknown) => errors.push(error));
  }
  assert.deepEqual(
    errors.map(String),
    Array.from({ length: 6 }, () => 'TypeError: The fetch handler takes a web-standard Request. Express, Connect and node:http pass another kind: use work-item-gateway/node there.'),
  );
  assert.deepEqual([server.told.bugs, server.told.ended], [[], []]);
}); // prettier-ignore

test('a client that leaves cancels a read, and not a write [D21]', async () => {
  await using server = await serve();
  const gate = createGate();
  server.backend.answers(behind(gate, answer('{"id":5}')));
  for (const { method, status } of [
    { method: 'GET', status: 499 },
    { method: 'DELETE', status: 499 },
  ]) {
    const controller = new AbortController();
    const response = server.call('/api/work-items/5', { method, signal: controller.signal });
    await server.backend.nextRequest();
    controller.abort();
    assert.equal((await response).status, status);
  }
  await server.backend.connectionClosed(0);
  assert.equal(server.backend.isClosed(1), false);
  gate.open();
  await poll(() => server.told.ended.length === 2, 'both have ended');
  assert.deepEqual(
    server.told.ended.map(({ method, outcome, backendOutcome }) => [method, outcome, backendOutcome]),
    [
      ['GET', 'client-gone', 'cancelled'],
      ['DELETE', 'client-gone', 'ok'],
    ],
  );
  // One that has left before.
  const response = await server.call('/api/work-items/5', { method: 'DELETE', signal: AbortSignal.abort() });
  assert.equal(response.status, 499);
  assert.equal(server.backend.requests.length, 2);
});

test('large lists come whole, and what they lay in is used again only when they have been copied', async () => {
  await using server = await serve();
  const lists = Array.from(
    { length: 20 },
    (_, index) => `[${100 + index}${`,"${'x'.repeat(997)}"`.repeat(300)}]`,
  );
  let next = 0;
  server.backend.answers((exchange) => answer(lists[next++] ?? '')(exchange));
  const responses: Response[] = [];
  while (responses.length < lists.length) {
    responses.push(await server.call('/api/work-items'));
  }
  for (const [index, response] of responses.entries()) {
    assert.equal(await response.text(), lists[index]);
  }
});

test('clientAddress says who calls; proxies that are trusted may say otherwise [D46, D52]', async () => {
  await using server = await serve({
    clientAddress: (request) => request.headers.get('x-peer') ?? undefined,
    trustedProxies: ['10.0.0.0/8'],
  });
  for (const peer of ['10.1.2.3', '192.0.2.1']) {
    await server.call('/api/work-items', { headers: { 'x-peer': peer, 'x-forwarded-for': '203.0.113.9' } });
  }
  await server.call('/api/work-items');
  assert.deepEqual(
    server.told.ended.map(({ client }) => client),
    ['203.0.113.9', '192.0.2.1', undefined],
  );
});

test('pages of other sites, and names that are not ours, are refused as everywhere [D56, D57]', async () => {
  await using server = await serve({ allowedHosts: ['items.example'] });
  const crossSite = { 'sec-fetch-site': 'cross-site' };
  await assertResponse(
    await server.call('/api/work-items/5', { method: 'DELETE', headers: crossSite }),
    403,
    forbidden,
  );
  await assertResponse(
    await server.handler(new Request('http://evil.example/api/work-items')),
    403,
    forbidden,
  );
  assert.equal((await server.handler(new Request('http://items.example/api/work-items'))).status, 200);
});

test('pages of origins that are named may call [D45]', async () => {
  await using server = await serve({ corsOrigins: ['https://app.example'] });
  const headers = { origin: 'https://app.example', 'access-control-request-method': 'PUT' };
  const preflight = await server.call('/api/work-items/5', { method: 'OPTIONS', headers });
  assert.equal(preflight.status, 204);
  assert.equal(preflight.headers.get('access-control-allow-origin'), 'https://app.example');
  const response = await server.call('/api/work-items/x', { headers: { origin: 'https://app.example' } });
  assert.equal(response.status, 400);
  assert.equal(response.headers.get('access-control-allow-origin'), 'https://app.example');
  assert.equal(server.backend.requests.length, 0);
});

test('failures are told where there is no observer: a line each, and none for what clients do [D50]', async (context) => {
  const written = context.mock.method(console, 'error', () => undefined);
  const server = await serve({ observer: undefined as never });
  try {
    server.backend.answers(answer('', { status: 503 }));
    const response = await server.call('/api/work-items/5?secret=1');
    await server.call('/api/work-items/abc');
    const id = response.headers.get('x-request-id') ?? '';
    assert.deepEqual(
      written.mock.calls.map((each) => each.arguments),
      [
        [
          `work-item-gateway: refused: GET /api/work-items/5 (request id ${id}) got 500: it answered, but with no success. ` +
            "Cause: status 503. Look for the request id in the backend's log.",
        ],
      ],
    );
  } finally {
    await server[Symbol.asyncDispose]();
  }
});

test('options that are wrong are told all at once [D32]', () => {
  assert.throws(
    () =>
      createFetchHandler({ backendUrl: 'ftp://x', prefix: 'items/', inFlightMax: 0, timeout: 1 } as never),
    /^TypeError: The gateway cannot be made: prefix must .*; backendUrl must be .*; inFlightMax must be .*; there is no timeout/,
  );
});

test('when it is closed, calls in flight fail and nothing is left open', async () => {
  const server = await serve();
  server.backend.answers(behind(createGate(), answer('{}')));
  const response = server.call('/api/work-items/5');
  await server.backend.nextRequest();
  await server.handler.close();
  await assertResponse(await response, 500, '{"error":"Failed to fetch work item"}');
  await server.backend.connectionClosed(0);
  await server.backend.stop();
});

test('a handler that is called after its close works again, and what the close cut is not sent again [D50]', async () => {
  const server = await serve();
  server.backend.answers(behind(createGate(), answer('{}')));
  const cut = server.call('/api/work-items/5');
  await server.backend.nextRequest();
  server.backend.answers(answer('{"id":6}'));
  // While it closes, twice.
  const closes = [server.handler.close(), server.handler.close()];
  const next = server.call('/api/work-items/6');
  await assertResponse(await cut, 500, '{"error":"Failed to fetch work item"}');
  await assertResponse(await next, 200, '{"id":6}');
  await Promise.all(closes);
  for (const id of [7, 8]) {
    await server.handler.close();
    await assertResponse(await server.call('/api/work-items'), 200, '{"id":6}');
    await assertResponse(
      await server.call(`/api/work-items/${id}`, { method: 'PUT', body: '{}' }),
      200,
      succeeded,
    );
  }
  // Nothing is being cut any more: this is the backend's failure [D51].
  server.backend.answersOnce(resetPeer());
  assert.equal((await server.call('/api/work-items/9', { method: 'DELETE' })).status, 500);
  assert.deepEqual(
    server.told.ended.map(({ outcome }) => outcome),
    ['shutdown', 'ok', 'ok', 'ok', 'ok', 'ok', 'unreachable'],
  );
  assert.deepEqual(
    server.backend.requests.map(({ method, target }) => `${method} ${target}`),
    [
      'GET /api/WorkItem/5',
      'GET /api/WorkItem/6',
      ...['GET /api/WorkItem', 'PUT /api/WorkItem/7'],
      ...['GET /api/WorkItem', 'PUT /api/WorkItem/8'],
      'DELETE /api/WorkItem/9',
    ],
  );
  await server[Symbol.asyncDispose]();
});

test('a body that comes after close gets a failure, and no connection is opened for it [D50]', async () => {
  const server = await serve();
  const gate = createGate();
  const slow = () =>
    new ReadableStream({
      pull: async (controller) => {
        await gate.opened;
        controller.enqueue(Buffer.from('{}'));
        controller.close();
      },
    });
  const init = () => ({ method: 'PUT', body: slow(), duplex: 'half' }) as RequestInit;
  const late = server.call('/api/work-items/5', init());
  await server.handler.close();
  gate.open();
  await assertResponse(await late, 500, '{"error":"Failed to update work item"}');
  assert.equal(server.told.ended[0]?.outcome, 'shutdown');
  assert.equal(server.backend.requests.length, 0);
  const reopened = server.call('/api/work-items/5', init());
  await assertResponse(await reopened, 200, succeeded);
  await server[Symbol.asyncDispose]();
});

test('a process that has used it ends by itself, with an idle connection to the backend [D50]', async (context) => {
  const backend = await ScriptedBackend.start();
  context.after(() => backend.stop());
  backend.answers(answer('{"id":5}'));
  const handler = import.meta.resolve('../../packages/core/hosts/fetch/fetch.ts');
  const script = `
    import { createFetchHandler } from '${handler}';
    const call = createFetchHandler({ backendUrl: '${backend.url}', backendIdleTimeoutMs: 600_000 });
    const get = async () => await (await call(new Request('${base}/api/work-items/5'))).text();
    await Promise.all([get(), get()]);
    console.log(await get());`;
  const { stdout } = await promisify(execFile)(process.execPath, ['--input-type=module', '-e', script], {
    timeout: 60_000,
  });
  assert.equal(stdout, '{"id":5}\n');
});

test('where there are no sockets it says so, and what to do', () => {
  assert.throws(
    () => createOnEdge({ backendUrl: 'http://localhost:5104' }),
    /needs sockets.*runtime = 'nodejs'/,
  );
});
