// The traces of calls that a collector receives. A collector that is slow, down or broken affects no call [D49].
// test/unit/traces.test.ts has more cases of lost spans.

import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { createGate, poll } from '../helpers/changes.ts';
import { Collector } from './collector.ts';
import { type Command, figureOf, isReloaded, logged, startCommand } from '../helpers/command.ts';
import { requestBytes, type CallOptions, type Headers } from '../helpers/raw-client.ts';
import { answer, behind, noContent, resetPeer } from '../helpers/scripted-backend.ts';
import { useBackend, useFolder } from '../helpers/suites.ts';

const parentTrace = '4bf92f3577b34da6a3ce929d0e0e4736';
const parentSpan = '00f067aa0ba902b7';
const parent = ['Traceparent', `00-${parentTrace}-${parentSpan}-01`] as const;
const path = '/api/work-items/5';

const backend = await useBackend(answer('{"id":5}'));
const folder = useFolder();

let ids = 0;
/** Makes a call with its own request id. Returns its reply and its id. */
async function send(command: Command, method: string, target: string, options: CallOptions = {}) {
  const id = `request-${(ids += 1)}`;
  const headers = [['X-Request-Id', id] as const, ...(options.headers ?? [])];
  return { id, reply: await command.call(method, target, { ...options, headers }) };
}

describe('spans', () => {
  let collector: Collector;
  let command: Command;
  before(async () => {
    collector = await Collector.start();
    command = await startCommand({
      BACKEND_URL: backend.url,
      OTEL_EXPORTER_OTLP_ENDPOINT: collector.url,
      OTEL_EXPORTER_OTLP_HEADERS: 'x-key=a%20secret,x-other=b',
    });
  });
  after(async () => {
    await collector.stop();
    await command[Symbol.asyncDispose]();
  });

  /** Makes a read with these headers; returns its spans and the request that the backend received. */
  async function read(...headers: Headers) {
    const { id } = await send(command, 'GET', path, { headers });
    return { ...(await collector.pair(id)), request: backend.requests.at(-1) };
  }

  test('a call has a server and a client span with the attributes of the OpenTelemetry conventions and no others [D49]', async () => {
    const secrets = [['Authorization', 'Bearer secret'], ['Cookie', 'a=secret']] as const; // prettier-ignore
    const before = BigInt(Date.now()) * 1_000_000n;
    const { id } = await send(command, 'PUT', `${path}?token=secret`, { headers: secrets, body: '{"title":"secret"}' });
    const { server, client } = await collector.pair(id);
    const common = {
      'http.request.method': 'PUT',
      'network.protocol.version': '1.1',
      'http.response.status_code': 200,
      'work_item_gateway.outcome': 'ok',
    };
    assert.deepEqual(server.attributes, {
      ...common,
      'http.route': '/api/work-items/{id}',
      'url.path': path,
      'url.scheme': 'http',
      'server.address': 'gateway.localhost',
      'client.address': '127.0.0.1',
      'work_item_gateway.request_id': id,
    });
    assert.deepEqual(client.attributes, {
      ...common,
      'url.full': `${backend.url}/api/WorkItem/5`,
      'server.address': '127.0.0.1',
      'server.port': backend.port,
    });
    const { traceId, resource } = server;
    const name = 'PUT /api/work-items/{id}';
    assert.partialDeepStrictEqual(server, { name, kind: 'server', status: 'unset', parentSpanId: '' });
    assert.partialDeepStrictEqual(client, { name: 'PUT', kind: 'client', status: 'unset', traceId });
    assert.partialDeepStrictEqual(resource, {
      'service.name': 'work-item-gateway',
      'process.pid': command.process.pid,
      'telemetry.sdk.name': 'opentelemetry',
    });
    assert.ok(before - 1_000_000n <= server.start && server.start <= client.start, 'the spans begin in order');
    assert.ok(client.end <= server.end && server.end - server.start < 10_000_000_000n, 'the spans end in order');
    assert.doesNotMatch(Buffer.concat(collector.bodies).toString('latin1'), /secret/);
  });

  test("the backend receives the context of the client span; a client's trace and its trace state are continued [D12, D49]", async () => {
    const own = await read();
    assert.equal(own.request?.header('traceparent'), `00-${own.server.traceId}-${own.client.spanId}-03`);
    assert.equal(own.request.header('tracestate'), undefined);
    assert.match(own.server.traceId, /^(?!0{32})[0-9a-f]{32}$/);
    const states = [['Tracestate', 'congo=t61rcWkgMzE'], ['Tracestate', ' rojo=00f067aa0ba902b7']] as const; // prettier-ignore
    const { server, client, request } = await read(parent, ...states);
    assert.deepEqual([server.traceId, server.parentSpanId, client.traceId], [parentTrace, parentSpan, parentTrace]);
    assert.equal(request?.header('traceparent'), `00-${parentTrace}-${client.spanId}-01`);
    for (const state of [request.header('tracestate'), server.traceState]) {
      assert.equal(state?.replaceAll(' ', ''), 'congo=t61rcWkgMzE,rojo=00f067aa0ba902b7');
    }
    // A header of a later version may have more fields; its trace is continued.
    const later = await read(['Traceparent', `cc-${parentTrace}-${parentSpan}-01-what-comes`]);
    assert.equal(later.server.parentSpanId, parentSpan);
    // With an invalid context a new trace begins. test/spec/backend-requests.test.ts has all invalid contexts.
    const invalid = await read(['Traceparent', `ff-${parentTrace}-${parentSpan}-01`], ['Tracestate', 'a=b']);
    assert.equal(invalid.request?.header('tracestate'), undefined);
    assert.deepEqual([invalid.server.parentSpanId, invalid.server.traceState], ['', '']);
    assert.notEqual(invalid.server.traceId, parentTrace);
  });

  test('no span of an unsampled trace is exported, and the backend, too, receives the trace as unsampled [D49]', async () => {
    const unsampled: unknown[] = [];
    for (const flags of ['00', '02', 'fe']) {
      const headers = [['Traceparent', `00-${parentTrace}-${parentSpan}-${flags}`]] as const;
      unsampled.push((await send(command, 'GET', path, { headers })).id);
      const forwarded = new RegExp(`^00-${parentTrace}-(?!${parentSpan})[0-9a-f]{16}-0[02]$`);
      assert.match(backend.requests.at(-1)?.header('traceparent') ?? '', forwarded);
    }
    await read();
    const exported = collector.spans.map(({ attributes }) => attributes['work_item_gateway.request_id']);
    assert.ok(!exported.some((id) => unsampled.includes(id)));
  });

  test('a failed call is an error in the spans of the party at fault [D49, D51]', async () => {
    for (const [method, target, each, ...expected] of [
      ['GET', path, answer('', { status: 404 }), 404, undefined, 404, '404'],
      ['DELETE', path, answer('', { status: 404 }), 500, '500', 404, '404'],
      ['GET', path, answer('', { status: 503 }), 500, '500', 503, '503'],
      ['GET', path, answer('<p>'), 500, '500', 200, 'not-json'],
      ['POST', '/api/work-items', resetPeer(), 500, '500', undefined, 'unreachable'],
      ['DELETE', path, noContent, 200, undefined, 204, undefined],
    ] as const) {
      backend.answersOnce(each);
      const { id, reply } = await send(command, method, target, method === 'POST' ? { body: '{}' } : {});
      assert.equal(reply.status, expected[0]);
      const { server, client } = await collector.pair(id);
      const shown = [server, client].map(({ attributes, status }) => [attributes['http.response.status_code'], attributes['error.type'], status]);
      const [status, error, clientStatus, clientError] = expected;
      const kindOf = (type: string | undefined) => (type === undefined ? 'unset' : 'error');
      assert.deepEqual(shown, [[status, error, kindOf(error)], [clientStatus, clientError, kindOf(clientError)]]);
    }
  }); // prettier-ignore

  test('a request without a backend call has only a server span; an unknown method is _OTHER [D49]', async () => {
    const rows = [
      ['GET', '/api/work-items/x', 400, 'GET /api/work-items/{id}', '/api/work-items/{id}', 'GET', undefined],
      ['GET', '/nowhere?secret', 404, 'GET', undefined, 'GET', undefined],
      ['BREW', '/api/work-items', 405, 'HTTP', undefined, '_OTHER', 'BREW'],
      ['OPTIONS', '/api/work-items', 204, 'OPTIONS', undefined, 'OPTIONS', undefined],
    ] as const;
    const sent = await Promise.all(rows.map(([method, target]) => send(command, method, target)));
    await read();
    for (const [index, [, , status, name, ...expected]] of rows.entries()) {
      assert.equal(sent[index]?.reply.status, status);
      const span = collector.spans.find(({ attributes: { 'work_item_gateway.request_id': id } }) => id === sent[index]?.id);
      assert.ok(span);
      const names = ['http.route', 'http.request.method', 'http.request.method_original'];
      assert.deepEqual([span.name, span.status, ...names.map((each) => span.attributes[each])], [name, 'unset', ...expected]);
      assert.ok(!collector.spans.some(({ parentSpanId }) => parentSpanId === span.spanId));
    }
  }); // prettier-ignore

  test('a read that is cancelled ends both spans, the client span as an error [D21, D49]', async () => {
    const gate = createGate();
    backend.answers(behind(gate, answer('{}')));
    const client = await command.connect();
    client.send(requestBytes('GET', path, { headers: [['X-Request-Id', 'cancelled']] }));
    await backend.until(() => backend.requests.length === 1, 'the backend is called');
    client.destroy();
    const spans = await collector.pair('cancelled');
    gate.open();
    assert.deepEqual([spans.server.status, spans.server.attributes['http.response.status_code']], ['unset', undefined]);
    assert.equal(spans.server.attributes['work_item_gateway.outcome'], 'client-gone');
    assert.deepEqual([spans.client.status, spans.client.attributes['error.type']], ['error', 'cancelled']);
  });

  test('a read that was resent has one client span, which is a success [D20, D49]', async () => {
    await command.call('GET', path);
    backend.answersOnce(resetPeer());
    const { server, client } = await read();
    const [, first, second] = backend.requests;
    assert.deepEqual([backend.requests.length, server.status, client.status], [3, 'unset', 'unset']);
    assert.equal(second?.header('traceparent'), first?.header('traceparent'));
  });

  test('OTEL_EXPORTER_OTLP_HEADERS go to the collector and are shown nowhere [D49]', async () => {
    assert.deepEqual([collector.headers[0]?.['x-key'], collector.headers[0]?.['x-other']], ['a secret', 'b']);
    for (const shown of [command.output, (await command.admin('/')).text, await command.metrics()]) {
      assert.doesNotMatch(shown, /a(?:%20| )secret/);
    }
    assert.match(command.stdout, /"otelExporterOtlpHeaders":"\(not shown\) \(environment\)"/);
  });
});

describe('a collector', () => {
  /** Makes 200 calls. If a call waited for the collector, the test would time out. */
  async function assertUnharmed(command: Command): Promise<void> {
    await using client = await command.connect();
    for (let count = 0; count < 200; count += 1) assert.equal((await client.call('GET', path)).status, 200);
  }

  /** Makes 200 calls, whose spans must be lost, and then ends the process. */
  async function assertEndsInTime(command: Command): Promise<void> {
    await assertUnharmed(command);
    const startedAt = performance.now();
    command.signal('SIGTERM');
    assert.equal(await command.exitCode(), 0, command.output);
    // The timeout of a batch is 10 s, so the process did not wait for it.
    assert.ok(performance.now() - startedAt < 9_000, `the process ended after ${performance.now() - startedAt} ms`);
    assert.match(command.stdout, /"spans":400,"msg":"the last traces were not exported"/);
  }

  test('that is down delays no call, and the process ends in time [D49]', async () => {
    const collector = await Collector.start();
    await collector.stop();
    await using command = await startCommand({ BACKEND_URL: backend.url, OTEL_EXPORTER_OTLP_ENDPOINT: collector.url });
    await assertEndsInTime(command);
  });

  test('that refuses spans, accepts them later and then never answers delays no call; each change is one log line, lost spans are counted, and the process ends in time [D49]', async () => {
    await using collector = await Collector.start();
    collector.reply = (response) => response.writeHead(400).end('a secret of the collector');
    await using command = await startCommand({ BACKEND_URL: backend.url, OTEL_EXPORTER_OTLP_ENDPOINT: collector.url });
    const dropped = () => figureOf(command, 'trace_spans_dropped_total');
    await assertUnharmed(command);
    const line = await logged(command, /^trace export failed/);
    assert.deepEqual([line['level'], line['cause'], line['endpoint']], ['warn', 'status 400', `${collector.url}/`]);
    await assertUnharmed(command);
    await poll(async () => (await dropped()) === 800, 'all spans are counted');
    // The batch counts as accepted, although the reply is not protobuf.
    collector.reply = (response) => response.writeHead(200).end(Buffer.alloc(10_000, 0xff));
    await command.call('GET', path);
    await logged(command, /^trace export works again/);
    assert.equal(await dropped(), 800);
    assert.equal(command.logs.filter(({ msg }) => String(msg).startsWith('trace export')).length, 2);
    collector.reply = () => undefined;
    await assertEndsInTime(command);
    assert.doesNotMatch(command.output, /a secret/);
  });
});

test('the variables of OpenTelemetry set endpoint, headers, compression, names, sampler and exporter; those without effect are named once [D49]', async () => {
  await using general = await Collector.start();
  await using own = await Collector.start();
  own.path = '/custom';
  const file = join(folder, 'settings.env');
  writeFileSync(
    file,
    `OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=${own.url}/custom\nOTEL_EXPORTER_OTLP_TRACES_HEADERS=x-own=2\n`,
  );
  await using command = await startCommand({
    ...{ BACKEND_URL: backend.url, WORKERS: '2', SETTINGS_FILE: file, LOG_CLIENT: 'false' },
    OTEL_EXPORTER_OTLP_ENDPOINT: general.url,
    OTEL_EXPORTER_OTLP_HEADERS: 'x-general=1',
    OTEL_EXPORTER_OTLP_COMPRESSION: 'none',
    OTEL_EXPORTER_OTLP_TRACES_COMPRESSION: 'gzip',
    OTEL_RESOURCE_ATTRIBUTES: 'service.name=given,deployment.environment.name=a%2Cb,service.version=0',
    ...{ OTEL_PROPAGATORS: 'b3', OTEL_EXPORTER_OTLP_TIMEOUT: '5' },
  });
  const text = 'these variables of OpenTelemetry have no effect: OTEL_EXPORTER_OTLP_TIMEOUT, OTEL_PROPAGATORS';
  assert.equal((await logged(command, text))['level'], 'warn');
  const reload = async (...lines: string[]): Promise<void> => {
    const before = command.logs.filter(isReloaded).length;
    writeFileSync(file, lines.join('\n'));
    command.signal('SIGHUP');
    await poll(() => command.logs.filter(isReloaded).length > before, 'the reload ends');
  };
  const headers = [['Host', '[::1]:3000'], parent] as const;

  const first = (await own.pair((await send(command, 'GET', path, { headers })).id)).server;
  assert.partialDeepStrictEqual(first.resource, { 'service.name': 'given', 'deployment.environment.name': 'a,b' });
  assert.match(String(first.resource['service.version']), /^\d+\.\d+\./);
  assert.deepEqual([own.headers[0]?.['x-own'], own.headers[0]?.['x-general']], ['2', undefined]);
  assert.equal(own.headers[0]?.['content-encoding'], 'gzip');
  assert.deepEqual(
    ['client', 'server'].map((name) => first.attributes[`${name}.address`]),
    [undefined, '::1'],
  );
  assert.equal(first.attributes['server.port'], 3000);
  assert.deepEqual(general.bodies, []);

  await reload('OTEL_SERVICE_NAME=named');
  const second = (await general.pair((await send(command, 'GET', path)).id)).server;
  assert.equal(second.resource['service.name'], 'named');
  assert.equal(general.headers[0]?.['x-general'], '1');

  for (const off of ['OTEL_SDK_DISABLED=TRUE', 'OTEL_TRACES_EXPORTER=none']) {
    await reload(off);
    await command.call('GET', path, { headers });
    // Without traces, the backend gets the client's trace context.
    assert.equal(backend.requests.at(-1)?.header('traceparent'), parent[1], off);
  }

  // test/unit/trace-parent.test.ts has all samplers. This one ignores that the parent is sampled.
  await reload('OTEL_TRACES_SAMPLER=traceidratio', 'OTEL_TRACES_SAMPLER_ARG=0.25');
  const exported = general.spans.length;
  const from = backend.requests.length;
  const connections = Array.from({ length: 8 }, async () => {
    await using client = await command.connect();
    for (let count = 0; count < 25; count += 1) {
      const trace = Buffer.from(crypto.getRandomValues(new Uint8Array(16))).toString('hex');
      await client.call('GET', path, { headers: [['Traceparent', `00-${trace}-${parentSpan}-01`]] });
    }
  });
  await Promise.all(connections);
  const flags = backend.requests.slice(from).map((request) => Number(request.header('traceparent')?.at(-1)) & 1);
  const sampled = flags.filter((flag) => flag === 1).length;
  // The bounds are seven standard deviations from the expected 50.
  assert.ok(flags.length === 200 && sampled >= 7 && sampled <= 93, `${sampled}`);
  command.signal('SIGTERM');
  assert.equal(await command.exitCode(), 0, command.output);
  // Each worker exports its last spans.
  const last = general.spans.slice(exported);
  assert.equal(last.length, 2 * sampled);
  assert.equal(new Set(last.map(({ resource }) => resource['process.pid'])).size, 2);
  assert.equal(command.logs.filter(({ msg }) => msg === text).length, 1);
});
