// The traces of calls that a collector receives. A collector that is slow, down or broken affects no call [D49].
// test/unit/traces.test.ts has more cases of lost spans.

import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { createGate, poll } from '../helpers/changes.ts';
import { Collector } from './collector.ts';
import { type Command, figureOf, logged, startCommand } from '../helpers/command.ts';
import { requestBytes, type Headers } from '../helpers/raw-client.ts';
import { answer, behind, noContent, resetPeer } from '../helpers/scripted-backend.ts';
import { useBackend, useFolder } from '../helpers/suites.ts';

const parentTrace = '4bf92f3577b34da6a3ce929d0e0e4736';
const parentSpan = '00f067aa0ba902b7';
const path = '/api/work-items/5';

const backend = await useBackend(answer('{"id":5}'));
const folder = useFolder();

const start = (url: string, environment: NodeJS.ProcessEnv = {}): Promise<Command> =>
  startCommand({ BACKEND_URL: backend.url, OTEL_EXPORTER_OTLP_ENDPOINT: url, ...environment });

let ids = 0;
/** A new request id, and headers that have this id. */
function withId(...headers: Headers): { id: string; headers: Headers } {
  const id = `request-${(ids += 1)}`;
  return { id, headers: [['X-Request-Id', id], ...headers] };
}

const dropped = (command: Command) => figureOf(command, 'trace_spans_dropped_total');

describe('spans', () => {
  let collector: Collector;
  let command: Command;
  before(async () => {
    collector = await Collector.start();
    command = await start(collector.url, { OTEL_EXPORTER_OTLP_HEADERS: 'x-key=a%20secret,x-other=b' });
  });
  after(async () => {
    await command.stop();
    await collector.stop();
  });

  /** Makes a read with these headers; returns its spans and the request that the backend received. */
  async function read(...more: Headers) {
    const { id, headers } = withId(...more);
    await command.call('GET', path, { headers });
    return { ...(await collector.pair(id)), request: backend.requests.at(-1) };
  }

  test('a call has a server and a client span with the attributes of the OpenTelemetry conventions and no others [D49]', async () => {
    const { id, headers } = withId(['Authorization', 'Bearer secret'], ['Cookie', 'a=secret']);
    const before = BigInt(Date.now()) * 1_000_000n;
    await command.call('PUT', `${path}?token=secret`, { headers, body: '{"title":"secret"}' });
    const { server, client } = await collector.pair(id);
    assert.deepEqual(server.attributes, {
      'http.request.method': 'PUT',
      'http.route': '/api/work-items/{id}',
      'url.path': path,
      'url.scheme': 'http',
      'network.protocol.version': '1.1',
      'server.address': 'gateway.localhost',
      'client.address': '127.0.0.1',
      'http.response.status_code': 200,
      'work_item_gateway.request_id': id,
      'work_item_gateway.outcome': 'ok',
    });
    assert.deepEqual(client.attributes, {
      'http.request.method': 'PUT',
      'url.full': `${backend.url}/api/WorkItem/5`,
      'server.address': '127.0.0.1',
      'server.port': backend.port,
      'network.protocol.version': '1.1',
      'http.response.status_code': 200,
      'work_item_gateway.outcome': 'ok',
    });
    const name = 'PUT /api/work-items/{id}';
    assert.partialDeepStrictEqual(server, { name, kind: 'server', status: 'unset', parentSpanId: '' });
    const { traceId } = server;
    assert.partialDeepStrictEqual(client, { name: 'PUT', kind: 'client', status: 'unset', traceId });
    const { resource } = server;
    assert.deepEqual(
      [resource['service.name'], resource['process.pid'], resource['telemetry.sdk.name']],
      ['work-item-gateway', command.process.pid, 'opentelemetry'],
    );
    assert.ok(before - 1_000_000n <= server.start && server.start <= client.start, 'the spans begin in order');
    assert.ok(client.end <= server.end && server.end - server.start < 10_000_000_000n, 'the spans end in order');
    assert.doesNotMatch(Buffer.concat(collector.bodies).toString('latin1'), /secret/);
  });

  test('the backend receives the trace context of the client span [D49]', async () => {
    const { server, client, request } = await read();
    assert.equal(request?.header('traceparent'), `00-${server.traceId}-${client.spanId}-03`);
    assert.equal(request.header('tracestate'), undefined);
    assert.match(server.traceId, /^(?!0{32})[0-9a-f]{32}$/);
  });

  test("a client's trace and its trace state are continued [D49]", async () => {
    const state = 'congo=t61rcWkgMzE, rojo=00f067aa0ba902b7';
    const { server, client, request } = await read(
      ['Traceparent', `00-${parentTrace}-${parentSpan}-01`],
      ['Tracestate', 'congo=t61rcWkgMzE'],
      ['Tracestate', ' rojo=00f067aa0ba902b7'],
    );
    assert.deepEqual([server.traceId, server.parentSpanId, client.traceId], [parentTrace, parentSpan, parentTrace]);
    assert.equal(request?.header('traceparent'), `00-${parentTrace}-${client.spanId}-01`);
    assert.equal(request.header('tracestate')?.replaceAll(' ', ''), state.replaceAll(' ', ''));
    const states = server.traceState.split(',').map((each) => each.trim());
    assert.deepEqual(states, state.split(', '));
  });

  test('no span of an unsampled trace is exported, and the backend, too, receives the trace as unsampled [D49]', async () => {
    const unsampled: unknown[] = [];
    for (const flags of ['00', '02', 'fe']) {
      const { id, headers } = withId(['Traceparent', `00-${parentTrace}-${parentSpan}-${flags}`]);
      await command.call('GET', path, { headers });
      unsampled.push(id);
      assert.match(
        backend.requests.at(-1)?.header('traceparent') ?? '',
        new RegExp(`^00-${parentTrace}-(?!${parentSpan})[0-9a-f]{16}-0[02]$`),
      );
    }
    await read();
    const exported = collector.spans.map(({ attributes }) => attributes['work_item_gateway.request_id']);
    assert.ok(!exported.some((id) => unsampled.includes(id)));
  });

  // test/spec/backend-requests.test.ts has all invalid contexts.
  test('with an invalid trace context a new trace begins [D12, D49]', async () => {
    const { server, request } = await read(
      ['Traceparent', `ff-${parentTrace}-${parentSpan}-01`],
      ['Tracestate', 'a=b'],
    );
    assert.equal(request?.header('tracestate'), undefined);
    assert.deepEqual([server.parentSpanId, server.traceState], ['', '']);
    assert.notEqual(server.traceId, parentTrace);
    // A header of a later version may have more fields; its trace is continued.
    const later = await read(['Traceparent', `cc-${parentTrace}-${parentSpan}-01-what-comes`]);
    assert.equal(later.server.parentSpanId, parentSpan);
  });

  test('a failed call is an error in the spans of the party at fault [D49, D51]', async () => {
    const rows = [
      ['GET', path, answer('', { status: 404 }), 404, undefined, 404, '404'],
      ['DELETE', path, answer('', { status: 404 }), 500, '500', 404, '404'],
      ['GET', path, answer('', { status: 503 }), 500, '500', 503, '503'],
      ['GET', path, answer('<p>'), 500, '500', 200, 'not-json'],
      ['POST', '/api/work-items', resetPeer(), 500, '500', undefined, 'unreachable'],
      ['DELETE', path, noContent, 200, undefined, 204, undefined],
    ] as const;
    const ids: string[] = [];
    for (const [method, target, each, status] of rows) {
      backend.answersOnce(each);
      const { id, headers } = withId();
      const reply = await command.call(method, target, { headers, ...(method === 'POST' && { body: '{}' }) });
      assert.equal(reply.status, status);
      ids.push(id);
    }
    const shown = ({ attributes, status }: Awaited<ReturnType<typeof collector.pair>>['server']) => [
      attributes['http.response.status_code'],
      attributes['error.type'],
      status,
    ];
    for (const [index, [method, , , status, serverError, clientStatus, clientError]] of rows.entries()) {
      const { server, client } = await collector.pair(ids[index] ?? '');
      const what = `${method} ${status}`;
      assert.deepEqual(shown(server), [status, serverError, serverError === undefined ? 'unset' : 'error'], what);
      assert.deepEqual(shown(client), [clientStatus, clientError, clientError === undefined ? 'unset' : 'error'], what);
    }
  });

  test('a request without a backend call has only a server span; an unknown method is _OTHER [D49]', async () => {
    const rows = [
      ['GET', '/api/work-items/x', 400, 'GET /api/work-items/{id}', '/api/work-items/{id}'],
      ['GET', '/nowhere?secret', 404, 'GET', undefined],
      ['BREW', '/api/work-items', 405, 'HTTP', undefined],
      ['OPTIONS', '/api/work-items', 204, 'OPTIONS', undefined],
    ] as const;
    const ids: unknown[] = [];
    for (const [method, target, status] of rows) {
      const { id, headers } = withId();
      assert.equal((await command.call(method, target, { headers })).status, status);
      ids.push(id);
    }
    await read();
    for (const [index, [method, , , name, route]] of rows.entries()) {
      const span = collector.spans.find(({ attributes }) => attributes['work_item_gateway.request_id'] === ids[index]);
      assert.ok(span);
      assert.deepEqual([span.name, span.attributes['http.route'], span.status], [name, route, 'unset']);
      assert.equal(span.attributes['http.request.method'], method === 'BREW' ? '_OTHER' : method);
      assert.equal(span.attributes['http.request.method_original'], method === 'BREW' ? 'BREW' : undefined);
      assert.ok(!collector.spans.some(({ parentSpanId }) => parentSpanId === span.spanId));
    }
  });

  test('a read that is cancelled ends both spans, the client span as an error [D21, D49]', async () => {
    const gate = createGate();
    backend.answers(behind(gate, answer('{}')));
    const { id, headers } = withId();
    const client = await command.connect();
    client.send(requestBytes('GET', path, { headers }));
    await poll(() => backend.requests.length === 1, 'the backend is called');
    client.destroy();
    const spans = await collector.pair(id);
    gate.open();
    assert.deepEqual([spans.server.status, spans.server.attributes['http.response.status_code']], ['unset', undefined]);
    assert.equal(spans.server.attributes['work_item_gateway.outcome'], 'client-gone');
    assert.deepEqual([spans.client.status, spans.client.attributes['error.type']], ['error', 'cancelled']);
  });

  test('a read that was resent has one client span, which is a success [D20, D49]', async () => {
    await command.call('GET', path);
    backend.answersOnce(resetPeer());
    const { id, headers } = withId();
    assert.equal((await command.call('GET', path, { headers })).status, 200);
    assert.equal(backend.requests.length, 3);
    const spans = await collector.pair(id);
    assert.deepEqual([spans.server.status, spans.client.status], ['unset', 'unset']);
    assert.equal(backend.requests[2]?.header('traceparent'), backend.requests[1]?.header('traceparent'));
  });

  test('OTEL_EXPORTER_OTLP_HEADERS go to the collector and are shown nowhere [D49]', async () => {
    assert.deepEqual([collector.headers[0]?.['x-key'], collector.headers[0]?.['x-other']], ['a secret', 'b']);
    const { text } = await command.admin('/');
    for (const shown of [command.output, text, await command.metrics()]) {
      assert.doesNotMatch(shown, /a(?:%20| )secret/);
    }
    assert.match(command.stdout, /"otelExporterOtlpHeaders":"\(not shown\) \(environment\)"/);
  });
});

// test/unit/traces.test.ts has all samplers.
test('OTEL_TRACES_SAMPLER sets the sampler, and OTEL_TRACES_SAMPLER_ARG its ratio; each worker exports its last spans [D49]', async () => {
  await using collector = await Collector.start();
  const settings = { OTEL_TRACES_SAMPLER: 'traceidratio', OTEL_TRACES_SAMPLER_ARG: '0.25', WORKERS: '2' };
  await using command = await start(collector.url, settings);
  const clients = await Promise.all(Array.from({ length: 8 }, () => command.connect()));
  // The sampler ignores that the parent is sampled.
  const calls = clients.map(async (client) => {
    for (let count = 0; count < 50; count += 1) {
      const trace = Buffer.from(crypto.getRandomValues(new Uint8Array(16))).toString('hex');
      const headers: Headers = [['Traceparent', `00-${trace}-${parentSpan}-01`]];
      assert.equal((await client.call('GET', path, { headers })).status, 200);
    }
    client.destroy();
  });
  await Promise.all(calls);
  const flags = backend.requests.map((request) => Number(request.header('traceparent')?.at(-1)) & 1);
  const sampled = flags.filter((flag) => flag === 1).length;
  // The bounds are seven standard deviations from the expected 100.
  assert.ok(flags.length === 400 && sampled >= 40 && sampled <= 160, `${sampled}`);
  command.signal('SIGTERM');
  assert.equal(await command.exitCode(), 0, command.output);
  assert.equal(collector.spans.length, 2 * sampled);
  assert.equal(new Set(collector.spans.map(({ resource }) => resource['process.pid'])).size, 2);
});

describe('collectors', () => {
  const failing = (command: Command) => logged(command, /^trace export failed/);

  /** Makes 200 calls. If a call waited for the collector, the test would time out. */
  async function assertUnharmed(command: Command): Promise<void> {
    await using client = await command.connect();
    for (let count = 0; count < 200; count += 1) {
      assert.equal((await client.call('GET', path)).status, 200);
    }
  }

  async function assertEndsInTime(command: Command): Promise<void> {
    const startedAt = performance.now();
    command.signal('SIGTERM');
    assert.equal(await command.exitCode(), 0, command.output);
    // The timeout of a batch is 10 s, so the process did not wait for it.
    assert.ok(performance.now() - startedAt < 9_000, `the process ended after ${performance.now() - startedAt} ms`);
  }

  test('if the collector is down or never answers, no call waits, the lost spans are counted, and the process ends in time [D49]', async () => {
    const gone = await Collector.start();
    await gone.stop();
    await using silent = await Collector.start();
    silent.reply = () => undefined;
    for (const { url } of [gone, silent]) {
      await using command = await start(url);
      await assertUnharmed(command);
      await assertEndsInTime(command);
      assert.match(command.stdout, /"spans":400,"msg":"the last traces were not exported"/);
    }
    assert.ok(silent.spans.length > 0, 'the gateway was connected');
  });

  test('if the collector refuses spans and later accepts them, each change causes one log line, and lost spans are counted [D49]', async () => {
    await using collector = await Collector.start();
    collector.reply = (response) => response.writeHead(400).end('a secret of the collector');
    await using command = await start(collector.url);
    await assertUnharmed(command);
    const line = await failing(command);
    assert.deepEqual([line['level'], line['cause'], line['endpoint']], ['warn', 'status 400', `${collector.url}/`]);
    await poll(async () => (await dropped(command)) === 400, 'all spans are counted');
    await assertUnharmed(command);
    await poll(async () => (await dropped(command)) === 800, 'the spans of more calls are counted, too');
    // The batch counts as accepted, although the reply is not protobuf.
    collector.reply = (response) => response.writeHead(200).end(Buffer.alloc(10_000, 0xff));
    await command.call('GET', path);
    await logged(command, /^trace export works again/);
    assert.equal(command.logs.filter(({ msg }) => String(msg).startsWith('trace export')).length, 2);
    assert.doesNotMatch(command.output, /a secret/);
    assert.equal(await dropped(command), 800);
    await assertEndsInTime(command);
  });
});

test('the variables for traces override the general ones, and OTEL_RESOURCE_ATTRIBUTES describe the service [D49]', async () => {
  await using general = await Collector.start();
  await using own = await Collector.start();
  own.path = '/custom';
  const environment = {
    OTEL_EXPORTER_OTLP_HEADERS: 'x-general=1',
    OTEL_EXPORTER_OTLP_TRACES_ENDPOINT: `${own.url}/custom`,
    OTEL_EXPORTER_OTLP_TRACES_HEADERS: 'x-own=2',
    OTEL_EXPORTER_OTLP_TRACES_COMPRESSION: 'none',
    OTEL_RESOURCE_ATTRIBUTES: 'service.name=given,deployment.environment.name=a%2Cb,service.version=0',
  };
  for (const [name, shown] of [
    ['', 'given'],
    ['named', 'named'],
  ] as const) {
    await using command = await start(general.url, { ...environment, OTEL_SERVICE_NAME: name });
    const { id, headers } = withId();
    await command.call('GET', path, { headers });
    const { server } = await own.pair(id);
    assert.equal(server.resource['service.name'], shown);
    assert.equal(server.resource['deployment.environment.name'], 'a,b');
    assert.match(String(server.resource['service.version']), /^\d+\.\d+\./);
    assert.deepEqual([own.headers.at(-1)?.['x-own'], own.headers.at(-1)?.['x-general']], ['2', undefined]);
    assert.doesNotMatch(command.output, /have no effect/);
  }
  assert.deepEqual(general.bodies, []);
});

test('OTEL_EXPORTER_OTLP_COMPRESSION=gzip compresses the spans', async () => {
  await using collector = await Collector.start();
  await using command = await start(collector.url, { OTEL_EXPORTER_OTLP_COMPRESSION: 'gzip' });
  const { id, headers } = withId();
  await command.call('GET', path, { headers });
  await collector.pair(id);
  assert.equal(collector.headers[0]?.['content-encoding'], 'gzip');
});

for (const off of [{ OTEL_SDK_DISABLED: 'TRUE' }, { OTEL_TRACES_EXPORTER: 'none' }]) {
  test(`${JSON.stringify(off)} turns traces off [D49]`, async () => {
    await using collector = await Collector.start();
    await using command = await start(collector.url, off);
    await command.call('GET', path, { headers: [['Traceparent', `00-${parentTrace}-${parentSpan}-01`]] });
    // Without traces, the backend gets the client's trace context.
    assert.equal(backend.requests.at(-1)?.header('traceparent'), `00-${parentTrace}-${parentSpan}-01`);
    command.signal('SIGTERM');
    assert.equal(await command.exitCode(), 0, command.output);
    assert.deepEqual(collector.bodies, []);
  });
}

test('variables of OpenTelemetry without effect are named in one line, also with workers and after a reload [D49]', async () => {
  const file = join(folder, 'settings.env');
  writeFileSync(file, 'IDLE_TIMEOUT_MS=1000\n');
  await using command = await startCommand({
    ...{ BACKEND_URL: backend.url, WORKERS: '2', SETTINGS_FILE: file },
    ...{ OTEL_PROPAGATORS: 'b3', OTEL_EXPORTER_OTLP_TIMEOUT: '5' },
  });
  const text = 'these variables of OpenTelemetry have no effect: OTEL_EXPORTER_OTLP_TIMEOUT, OTEL_PROPAGATORS';
  const line = await logged(command, text);
  assert.equal(line['level'], 'warn');
  writeFileSync(file, 'IDLE_TIMEOUT_MS=2000\n');
  command.signal('SIGHUP');
  const { changed } = await logged(command, /^reloaded/);
  assert.deepEqual(changed, { idleTimeoutMs: '1000 → 2000' });
  assert.equal(command.logs.filter(({ msg }) => msg === text).length, 1);
});

test('LOG_CLIENT=false leaves the client out of spans [D49, D52]', async () => {
  await using collector = await Collector.start();
  await using command = await start(collector.url, { LOG_CLIENT: 'false', OTEL_SERVICE_NAME: 'items' });
  const { id, headers } = withId(['Host', '[::1]:3000']);
  await command.call('GET', path, { headers });
  const { server } = await collector.pair(id);
  assert.equal(server.attributes['client.address'], undefined);
  assert.deepEqual([server.attributes['server.address'], server.attributes['server.port']], ['::1', 3000]);
  assert.equal(server.resource['service.name'], 'items');
});
