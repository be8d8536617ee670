// The fetch handler [D50]: options, clients that leave, kinds of bodies, close. test/spec/ tests its replies.

import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { getEventListeners } from 'node:events';
import { IncomingMessage } from 'node:http';
import { Socket } from 'node:net';
import { test } from 'node:test';
import { promisify } from 'node:util';
import { createFetchHandler } from '../../packages/core/hosts/fetch/fetch.ts';
import { createGate, poll } from '../helpers/changes.ts';
import {
  badRequest,
  forbidden,
  notFound,
  operation,
  requestTimeout,
  succeeded,
  tooLarge,
} from '../helpers/expected.ts';
import { startGateway, type Settings } from '../helpers/gateway.ts';
import { answer, behind, resetPeer } from '../helpers/scripted-backend.ts';

const base = 'http://gateway.localhost';

/** Starts a gateway whose `call` calls the handler directly, without a server. */
async function serve(settings: Settings = {}) {
  const server = await startGateway({ host: 'fetch', settings: { clientAddress: undefined, ...settings } });
  return { ...server, call: (path: string, init?: RequestInit) => server.handler(new Request(base + path, init)) };
}

const outcomesOf = ({ told }: Awaited<ReturnType<typeof serve>>) => told.ended.map(({ outcome }) => outcome);

async function assertResponse(response: Response | Promise<Response>, status: number, body: string): Promise<void> {
  const reply = await response;
  assert.deepEqual([reply.status, await reply.text()], [status, body]);
}

function streaming(method: string, body: RequestInit['body']): RequestInit {
  return { method, body, duplex: 'half' } as RequestInit;
}

test('a reply has the headers of the gateway and no connection headers; a reply to HEAD has no body [D24, D50]', async () => {
  await using server = await serve();
  const names = ['cache-control', 'content-length', 'content-type', 'x-content-type-options', 'x-request-id'];
  for (const method of ['GET', 'HEAD']) {
    const response = await server.call('/api/work-items/5', { method });
    assert.deepEqual([...response.headers].map(([name]) => name).sort(), names);
    assert.equal(response.headers.get('content-length'), '8');
    assert.equal(await response.text(), method === 'GET' ? '{"id":5}' : '');
  }
});

test('with trailingSlash, a slash at the end of a path is ignored; only one slash, and only then [D4, D50]', async () => {
  const rows: [path: string, without: number, withIt: number, target?: string][] = [
    ['', 200, 200, '/api/WorkItem'], ['/', 400, 200, '/api/WorkItem'], ['/?a=/', 400, 200, '/api/WorkItem'], ['?a=/', 200, 200, '/api/WorkItem'],
    ['/5', 200, 200, '/api/WorkItem/5'], ['/5/', 404, 200, '/api/WorkItem/5'], ['/5/?a=b/', 404, 200, '/api/WorkItem/5'],
    ['//', 404, 400], ['/5//', 404, 404], ['/5/6/', 404, 404], ['/x/', 404, 400],
  ]; // prettier-ignore
  for (const trailingSlash of [undefined, false, true]) {
    await using server = await serve(trailingSlash === undefined ? {} : { trailingSlash });
    for (const [path, without, withIt, target] of rows) {
      const { status } = await server.call(`/api/work-items${path}`);
      assert.equal(status, trailingSlash === true ? withIt : without, path);
      if (status === 200) assert.equal(server.backend.requests.at(-1)?.target, target);
    }
    await assertResponse(server.call('/'), 404, notFound);
  }
  await using prefixed = await serve({ prefix: '/intern/items' });
  assert.equal((await prefixed.call('/intern/items/api/work-items/9007199254740993')).status, 200);
  assert.equal(prefixed.backend.requests.at(-1)?.target, '/api/WorkItem/9007199254740993');
  await assertResponse(prefixed.call('/api/work-items/7'), 404, notFound);
});

test('options that a function returns are read at the first call, and again until they are valid [D50]', async () => {
  await using server = await serve();
  const options: { backendUrl?: string } = {};
  let calls = 0;
  const handler = createFetchHandler(() => {
    calls += 1;
    return { ...(options as { backendUrl: string }), prefix: '/site' };
  });
  const call = () => handler(new Request(`${base}/site/api/work-items/5`));
  await handler.close();
  assert.equal(calls, 0);
  const message = /^Cannot create the gateway: backendUrl must be an address/;
  await assert.rejects(call(), { name: 'TypeError', message });
  options.backendUrl = server.backend.url;
  await Promise.all([call(), call()].map((response) => assertResponse(response, 200, '{"id":5}')));
  await handler.close();
  await assertResponse(call(), 200, '{"id":5}');
  await handler.close();
  assert.equal(calls, 2);
  await assert.rejects(handler({} as never), { name: 'TypeError', message: /web-standard Request/ });
});

test('a body is accepted as bytes, as a blob or as a stream [D10]', async () => {
  await using server = await serve();
  const bytes = Buffer.from('{"name":"Ünïcode","n":1.0}');
  const stream = ReadableStream.from(Array.from(bytes, (byte) => Uint8Array.of(byte)));
  for (const body of [bytes, new Blob([bytes]), stream]) {
    await assertResponse(server.call('/api/work-items/5', streaming('PUT', body as Blob)), 200, succeeded);
    assert.deepEqual(server.backend.requests.at(-1)?.body, bytes);
  }
});

test('a body over the limit is 413, with or without content-length, and is no longer read [D11]', async () => {
  await using server = await serve({ requestBytesMax: 1_000 });
  await assertResponse(server.call('/api/work-items', { method: 'POST', body: `"${'x'.repeat(999)}"` }), 413, tooLarge);
  for (const [headers, pulledMax] of [
    [{}, 4],
    [{ 'content-length': '1001' }, 0],
  ] as const) {
    let pulled = 0;
    let isCancelled = false;
    const pull = (controller: ReadableStreamDefaultController) => {
      pulled += 1;
      controller.enqueue(new Uint8Array(400).fill(0x20));
    };
    const body = new ReadableStream({ pull, cancel: () => void (isCancelled = true) }, { highWaterMark: 0 });
    const init = { ...streaming('POST', body), headers } as RequestInit;
    await assertResponse(server.call('/api/work-items', init), 413, tooLarge);
    assert.ok(pulled <= pulledMax, `${pulled} pieces`);
    if (pulledMax > 0) await poll(() => isCancelled, 'the body is cancelled');
  }
  assert.equal(server.backend.requests.length, 0);
});

test('a body that is not as long as its content-length is 400 without a backend call [D70]', async () => {
  await using server = await serve();
  for (const [announced, body, isSent] of [
    ['2', '{}', true], ['invalid', '{}', true], ['0', '{}', false], ['1', '{}', false], ['3', '{}', false],
    ['20', '[12345678]', false], ['2', undefined, false],
  ] as const) {
    server.backend.requests = [];
    for (const { method, path, status, body: expected } of [operation(2), operation(4), operation(5)]) {
      const init = { method, ...(body !== undefined && { body }), headers: { 'content-length': announced } };
      await assertResponse(server.call(path, init), isSent ? status : 400, isSent ? expected : badRequest);
    }
    assert.equal(server.backend.requests.length, isSent ? 3 : 0);
    // A read ignores its body.
    const read = await server.call('/api/work-items/5', { headers: { 'content-length': announced } });
    assert.equal(read.status, 200);
  } // prettier-ignore
});

test('a body whose stream fails with any error value is 400 without a backend call', async () => {
  await using server = await serve();
  for (const reason of [new Error('SECRET'), undefined, null, 'a word', { code: 'E' }]) {
    for (const first of [[], [Buffer.from('{')]]) {
      const body = new ReadableStream({
        start: (controller) => {
          for (const piece of first) controller.enqueue(piece);
          controller.error(reason);
        },
      });
      await assertResponse(server.call('/api/work-items/5', streaming('PUT', body)), 400, badRequest);
    }
  }
  assert.equal(server.backend.requests.length, 0);
});

const readers: Record<string, (request: Request) => unknown> = {
  'read with text()': (request) => request.text(),
  'read with json()': (request) => request.json(),
  'read in part': (request) => request.body?.getReader().read(),
  locked: (request) => request.body?.getReader(),
  cancelled: (request) => request.body?.cancel(),
};

test('a body that the host has read is 500 with a log line that says so, except in a DELETE [D28, D50]', async () => {
  const lines: string[] = [];
  await using server = await serve({ log: (line) => lines.push(line) });
  for (const [how, read] of Object.entries(readers)) {
    for (const { method, path, failure } of [operation(2), operation(4)]) {
      const request = new Request(base + path, { method, body: '{}', headers: { 'x-request-id': 'mine' } });
      await read(request);
      await assertResponse(server.handler(request), 500, failure);
      const start = `work-item-gateway: ${method} ${path} (request id mine) got 500, outcome bug: Error: the host has already read the request body: mount the handler before `;
      assert.ok(lines.shift()?.startsWith(start), how);
    }
    const request = new Request(`${base}/api/work-items/5`, { method: 'DELETE', body: '{}' });
    await read(request);
    await assertResponse(server.handler(request), 200, succeeded);
  }
  assert.equal(server.backend.requests.length, Object.keys(readers).length);
  assert.deepEqual(lines, []);
});

test("the handler's second argument is the client's address, if it is an IP address; clientAddress gets any other", async () => {
  await using server = await serve();
  const found = createFetchHandler({
    backendUrl: server.backend.url,
    observer: { onCallEnd: ({ client }) => clients.push(client) },
    clientAddress: (_request, info: { readonly address: string } | undefined) => info?.address,
  });
  const clients: (string | undefined)[] = [];
  const request = (): Request => new Request(`${base}/api/work-items/5`);
  for (const given of ['192.0.2.1', '2001:db8::1', 'name.example', '192.0.2.1:80', '', {}, null, 5, undefined]) {
    await server.handler(request(), given);
  }
  const told = server.told.ended.map(({ client }) => client);
  assert.deepEqual(told, ['192.0.2.1', '2001:db8::1', ...Array.from({ length: 7 })]);
  await found(request(), { address: '192.0.2.2' });
  await found(request());
  assert.deepEqual(clients, ['192.0.2.2', undefined]);
  await found.close();
});

for (const size of [0, 1]) {
  test(`an endless body of pieces of ${size} bytes is 408 after its time limit, and is cancelled; other calls are served meanwhile [D35, D58]`, async () => {
    let others = 0;
    // On a busy machine, another call may take longer than a short time limit.
    for (const requestTimeoutMs of [400, 2_000, 8_000]) {
      await using server = await serve({ requestTimeoutMs });
      const startedAt = performance.now();
      let isCancelled = false as boolean;
      const body = new ReadableStream({
        pull: (controller) => {
          // If this stream starves the process, an error ends the test.
          if (performance.now() - startedAt > 30_000) controller.error(new Error('starved'));
          controller.enqueue(new Uint8Array(size).fill(0x20));
        },
        cancel: () => void (isCancelled = true),
      });
      let isAnswered = false as boolean;
      const endless = server.call('/api/work-items/5', streaming('PUT', body)).finally(() => (isAnswered = true));
      while (!isAnswered) {
        await assertResponse(server.call('/api/work-items/5'), 200, '{"id":5}');
        others += Number(!isAnswered);
      }
      await assertResponse(endless, 408, requestTimeout);
      assert.ok(isCancelled);
      assert.ok(outcomesOf(server).includes('bad-request'));
      if (others > 0) return;
    }
    assert.fail('no other call is answered first');
  });
}

test('an argument that is not a Request is refused with a TypeError that gives advice, and no bug is reported [D50]', async () => {
  await using server = await serve();
  const message =
    'The fetch handler takes a web-standard Request. Express, Connect and node:http pass another kind of request: use work-item-gateway/node for them.';
  const { signal } = new AbortController();
  const whole = { method: 'GET', url: `${base}/api/work-items`, headers: new Headers(), signal };
  for (const value of [
    ...[null, undefined, {}, 'http://localhost/api/work-items', new Response(), new IncomingMessage(new Socket())],
    ...Object.keys(whole).flatMap((name) => [undefined, {}].map((odd) => ({ ...whole, [name]: odd }))),
  ]) {
    await assert.rejects(server.handler(value as never), { name: 'TypeError', message });
  }
  assert.deepEqual([server.told.bugs, server.told.ended], [[], []]);
});

test('an object with the method, URL, headers, body and signal of a Request is served [D50]', async () => {
  await using server = await serve({ allowedHosts: ['items.example'] });
  const { signal } = new AbortController();
  const like = { method: 'GET', headers: new Headers(), body: null, signal };
  for (const [url, status, path] of [
    ['http://items.example/api/work-items/5', 200, '/api/work-items/5'],
    ['HTTP://items.example/api/work-items/5#part', 200, '/api/work-items/5'],
    ['http://items.example', 404, '/'],
    ['http://items.example?to=/api/work-items', 404, '/'],
    ['/to?http://items.example/api/work-items', 404, '/to'],
    ['/api/work-items/5', 200, '/api/work-items/5'],
  ] as const) {
    assert.equal((await server.handler({ ...like, url } as never)).status, status, url);
    const { ended } = server.told;
    assert.deepEqual([ended.at(-1)?.path, ended.at(-1)?.http], [path, '1.1'], url);
  }
  // A host may use one signal for all requests of a connection, so every listener must be removed.
  assert.deepEqual(getEventListeners(signal, 'abort'), []);
});

test('if reading the headers throws, the client gets 500, and the observer gets the error as a bug [D28]', async () => {
  await using server = await serve();
  const fault = new Error('SECRET');
  const request = new Request(`${base}/api/work-items/5`, { method: 'DELETE' });
  Object.defineProperty(request.headers, Symbol.iterator, { value: () => assert.fail(fault) });
  await assertResponse(await server.handler(request), 500, '{"error":"Failed to delete work item"}');
  const { outcome, cause } = server.told.ended[0] ?? {};
  assert.deepEqual([outcome, cause, server.told.ended.length], ['bug', fault, 1]);
});

test('a call whose signal aborts is a 499, and one that has aborted before makes no backend call [D21]', async () => {
  await using server = await serve();
  server.backend.answers(behind(createGate(), answer('{"id":5}')));
  const controller = new AbortController();
  const response = server.call('/api/work-items/5', { signal: controller.signal });
  await server.backend.nextRequest();
  controller.abort();
  assert.equal((await response).status, 499);
  const aborted = await server.call('/api/work-items/5', { method: 'DELETE', signal: AbortSignal.abort() });
  assert.equal(aborted.status, 499);
  await poll(() => server.told.ended.length === 2, 'both calls have ended');
  assert.deepEqual(outcomesOf(server), ['client-gone', 'client-gone']);
  assert.equal(server.backend.requests.length, 1);
});

test("the client's address comes from clientAddress, or from the header of a trusted proxy; if clientAddress does not return an IP address as text, its result is ignored [D46, D52]", async () => {
  const rows: [given: unknown, client: string | undefined][] = [
    ['10.1.2.3', '203.0.113.9'],
    ['192.0.2.1', '192.0.2.1'],
    ...[undefined, 'unknown', ['192.0.2.1'], null].map((given): [unknown, undefined] => [given, undefined]),
  ];
  const clientAddress = (request: Request) => rows[Number(request.headers.get('x-row'))]?.[0] as string;
  await using server = await serve({ clientAddress, trustedProxies: ['10.0.0.0/8'] });
  for (const row of rows.keys()) {
    await server.call('/api/work-items', { headers: { 'x-row': String(row), 'x-forwarded-for': '203.0.113.9' } });
  }
  assert.deepEqual(server.told.ended.map(({ client }) => client), rows.map(([, client]) => client)); // prettier-ignore
});

test('host names that are not allowed are 403, and an invalid host is 400 [D27, D57]', async () => {
  await using server = await serve({ allowedHosts: ['items.example'] });
  // The Host header takes precedence over the URL.
  for (const [name, headers, status, body] of [
    ['evil.example', {}, 403, forbidden],
    ['items.example', {}, 200, '{"id":5}'],
    ['items.example', { host: 'evil.example' }, 403, forbidden],
    ['evil.example', { host: 'items.example' }, 200, '{"id":5}'],
    ['items.example', { host: 'items.example/api/work-items/7?' }, 400, badRequest],
    ['items.example', { host: 'items.example, items.example' }, 400, badRequest],
  ] as const) {
    await assertResponse(server.handler(new Request(`http://${name}/api/work-items`, { headers })), status, body);
  }
});

test('a handler works again after close(), and does not repeat the calls that close() cut off [D50]', async () => {
  await using server = await serve();
  server.backend.answers(behind(createGate(), answer('{}')));
  const cut = server.call('/api/work-items/5');
  await server.backend.nextRequest();
  server.backend.answers(answer('{"id":6}'));
  // Closes twice, with a call during the close.
  const closes = [server.handler.close(), server.handler.close()];
  const next = server.call('/api/work-items/6');
  await assertResponse(cut, 500, '{"error":"Failed to fetch work item"}');
  await server.backend.connectionClosed(0);
  await assertResponse(next, 200, '{"id":6}');
  await Promise.all(closes);
  for (const id of [7, 8]) {
    await server.handler.close();
    await assertResponse(server.call('/api/work-items'), 200, '{"id":6}');
    await assertResponse(server.call(`/api/work-items/${id}`, { method: 'PUT', body: '{}' }), 200, succeeded);
  }
  // During a close, a failed call has the outcome `shutdown`. Later, a reset is the backend's failure again [D51].
  server.backend.answersOnce(resetPeer());
  assert.equal((await server.call('/api/work-items/9', { method: 'DELETE' })).status, 500);
  assert.deepEqual(outcomesOf(server), ['shutdown', 'ok', 'ok', 'ok', 'ok', 'ok', 'unreachable']);
  const received = server.backend.requests.map(({ method, target }) => `${method} ${target.slice(5)}`);
  assert.deepEqual(received, [
    ...['GET WorkItem/5', 'GET WorkItem/6', 'GET WorkItem', 'PUT WorkItem/7', 'GET WorkItem', 'PUT WorkItem/8', 'DELETE WorkItem/9'],
  ]); // prettier-ignore
});

test('a call whose body ends after close() fails without a backend connection [D50]', async () => {
  await using server = await serve();
  const gate = createGate();
  const slow = () =>
    new ReadableStream({
      pull: async (controller) => {
        await gate.opened;
        controller.enqueue(Buffer.from('{}'));
        controller.close();
      },
    });
  const init = () => streaming('PUT', slow());
  const late = server.call('/api/work-items/5', init());
  await server.handler.close();
  gate.open();
  await assertResponse(late, 500, '{"error":"Failed to update work item"}');
  assert.equal(server.told.ended[0]?.outcome, 'shutdown');
  assert.equal(server.backend.requests.length, 0);
  await assertResponse(server.call('/api/work-items/5', init()), 200, succeeded);
});

test('an idle connection to the backend does not keep the process alive [D50]', async () => {
  await using server = await serve();
  const handler = import.meta.resolve('../../packages/core/hosts/fetch/fetch.ts');
  const script = `
    import { createFetchHandler } from '${handler}';
    const call = createFetchHandler({ backendUrl: '${server.backend.url}', backendIdleTimeoutMs: 600_000 });
    const get = async () => await (await call(new Request('${base}/api/work-items/5'))).text();
    await Promise.all([get(), get()]);
    console.log(await get());`;
  const { stdout } = await promisify(execFile)(process.execPath, ['--input-type=module', '-e', script], {
    timeout: 60_000,
  });
  assert.equal(stdout, '{"id":5}\n');
});
