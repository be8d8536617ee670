// HTTP/2 of the built command: the setting, workers, guards, traces and the drain. D39, D33, D41 to D49.

import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { connect } from 'node:tls';
import { describe, test } from 'node:test';
import { promisify } from 'node:util';
import { anyCertificate } from '../helpers/certificates.ts';
import { createGate, poll } from '../helpers/changes.ts';
import { Collector } from './collector.ts';
import { type Command, runToEnd, startCommand } from '../helpers/command.ts';
import { assertReply, badRequest, operations } from '../helpers/expected.ts';
import { Http2Client, noHttp2OfCommand } from '../helpers/http2-client.ts';
import { audience, createPair, goodToken, issuerName, keySetOf, KeyServer } from '../helpers/issuer.ts';
import { figureIn } from '../helpers/process-figures.ts';
import { RawClient, requestBytes, type Headers } from '../helpers/raw-client.ts';
import { answer, behind } from '../helpers/scripted-backend.ts';
import { useBackend } from '../helpers/suites.ts';
import { assertInvalidToken, assertNoScope, assertNoToken, bearer } from '../helpers/tokens.ts';

const run = promisify(execFile);
const root = `${import.meta.dirname}/../..`;
const item = '/api/work-items/5';

const backend = await useBackend(answer('{"id":5}'));

function start(environment: NodeJS.ProcessEnv = { HTTP2: 'true' }): Promise<Command> {
  const { certFile, keyFile } = anyCertificate();
  return startCommand({ BACKEND_URL: backend.url, TLS_CERT_FILE: certFile, TLS_KEY_FILE: keyFile, ...environment });
}

/** The protocol that the gateway chooses if the client offers HTTP/2 and HTTP/1.1. */
async function protocolOf(port: number): Promise<string | false | null> {
  const socket = connect({ port, host: '127.0.0.1', ALPNProtocols: ['h2', 'http/1.1'], rejectUnauthorized: false });
  await new Promise((resolve, reject) => socket.once('secureConnect', resolve).once('error', reject));
  socket.destroy();
  return socket.alpnProtocol;
}

// A module that changes only the version that Node reports.
const olderNode = `data:text/javascript,${encodeURIComponent("Object.defineProperty(process,'versions',{value:{...process.versions,node:'24.21.0'}})")}`; // prettier-ignore

test('on a Node before 26, serve, dev and check report HTTP2 as a problem, together with all other problems [D39]', async () => {
  const environment = { HTTP2: 'true', NODE_OPTIONS: `--import=${olderNode}`, REQUEST_BYTES_MAX: 'x' };
  for (const command of ['serve', 'dev', 'check']) {
    const refused = await runToEnd([command], environment);
    assert.equal(refused.code, 1);
    const problems = refused.stderr.match(/^error: .*$/gm) ?? [];
    assert.equal(problems.length, 3, refused.stderr);
    const problem = 'HTTP2 needs Node 26 or newer, but this is Node 24.21.0: use a newer Node, or leave HTTP2 out';
    assert.ok(problems.includes(`error: ${problem}`), refused.stderr);
  }
  // `openapi` starts no listener, so it accepts HTTP2=true. HTTP2=false works on every Node.
  const valid = { REQUEST_BYTES_MAX: '', TLS_CERT_FILE: 'a', TLS_KEY_FILE: 'b' };
  const env = { PATH: process.env['PATH'], ...environment, ...valid };
  const node = process.env['GATEWAY_NODE'] ?? process.execPath;
  const { stdout } = await run(node, ['dist/command/main.js', 'openapi'], { cwd: root, env });
  assert.match(stdout, /"openapi"/);
  const off = await runToEnd(['check'], { ...environment, HTTP2: 'false' });
  assert.equal(off.code, 1);
  assert.doesNotMatch(off.stderr, /HTTP2/);
});

describe('HTTP/2 of the command', { skip: noHttp2OfCommand }, () => {
  test('without HTTP2=true the gateway accepts only HTTP/1.1 [D39]', async () => {
    for (const environment of [{}, { HTTP2: 'false' }]) {
      await using command = await start(environment);
      assert.equal(await protocolOf(command.port), 'http/1.1');
    }
  });

  test('with HTTP2=true every worker prefers HTTP/2 [D39]', async () => {
    await using command = await start({ HTTP2: 'true', WORKERS: '2' });
    for (let round = 0; round < 4; round += 1) {
      assert.equal(await protocolOf(command.port), 'h2');
      await using client = await Http2Client.open(command.port);
      assertReply(await client.call('PUT', item, { body: '{"a":1}' }), 200, '{"success":true}');
      assertReply(await client.call('GET', item), 200, '{"id":5}');
    }
    const line = await command.log(({ path }) => path === item, 'a line of a request');
    assert.deepEqual([line['client'], line['http']], ['127.0.0.1', '2']);
    assert.match(await command.metrics(), /work_item_gateway_requests_total\{[^}]*operation="read"[^}]*\} 4/);
    assert.equal(command.stderr, '');
  });

  test('the gauges of connections and streams are sums over all workers', async () => {
    await using command = await start({ HTTP2: 'true', WORKERS: '2' });
    const names = ['client_connections', 'http2_connections', 'http2_streams'];
    const has = (expected: readonly number[], what: string) =>
      poll(
        async () => {
          const text = await command.metrics();
          return names.every((name, index) => figureIn(text, `work_item_gateway_${name}`) === expected[index]);
        },
        `${what}: ${names.join(', ')} are ${expected.join(', ')}`,
      );
    const gate = createGate();
    backend.answers(behind(gate, answer('{"id":5}')));
    const clients = await Promise.all(Array.from({ length: 3 }, () => Http2Client.open(command.port)));
    await using other = await RawClient.openSecure(command.port, { rejectUnauthorized: false });
    await has([4, 3, 0], 'all clients are idle');
    const calls = clients.flatMap((client) => [client.call('GET', item), client.call('PUT', item, { body: '{}' })]);
    other.send(requestBytes('GET', item));
    await has([4, 3, 6], 'all clients have calls in flight');
    gate.open();
    for (const reply of await Promise.all(calls)) assert.equal(reply.status, 200);
    assert.equal((await other.reply()).status, 200);
    await has([4, 3, 0], 'all clients have their replies');
    for (const client of clients) client.destroy();
    await has([1, 0, 0], 'the HTTP/2 clients have left');
  });

  test('after SIGTERM, calls in flight on streams get their replies, and the exit code is 0 [D33]', async () => {
    await using command = await start();
    await using client = await Http2Client.open(command.port);
    const gate = createGate();
    backend.answersOnce(behind(gate, answer('"late"')));
    const late = client.call('GET', item);
    await backend.nextRequest();
    command.signal('SIGTERM');
    await new Promise((resolve) => client.session.once('goaway', resolve));
    gate.open();
    assertReply(await late, 200, '"late"');
    assert.equal(await command.exitCode(), 0);
  });

  test('without HTTP2, node:http2 is not loaded', async () => {
    const look = "import('./packages/command/service/generation.ts').then(() => console.log(process.moduleLoadList.some((name) => name.includes('http2'))))"; // prettier-ignore
    const { stdout } = await run(process.execPath, ['-e', look], { cwd: root });
    assert.equal(stdout.trim(), 'false');
  });

  test('tokens and scopes apply as over HTTP/1.1 [D41 to D43, D48]', async () => {
    const pair = createPair('key-1', 'ES256');
    await using keys = await KeyServer.start(keySetOf(pair));
    await using command = await start({
      HTTP2: 'true',
      AUTH_ISSUER: issuerName,
      AUTH_AUDIENCE: audience,
      AUTH_JWKS_URL: keys.url,
      AUTH_SCOPES: 'read=items.read',
      BACKEND_IDENTITY_HEADER: 'x-user',
    });
    await using client = await Http2Client.open(command.port);
    const good = bearer(goodToken(pair, Date.now(), { sub: 'ada', scope: 'items.read' }));
    const read = (...fields: Headers) => client.call('GET', item, { headers: fields });
    for (const { method, path, options } of operations) assertNoToken(await client.call(method, path, options));
    assertInvalidToken(await read(bearer(goodToken(createPair('key-1', 'ES256')))));
    assertNoScope(await read(bearer(goodToken(pair))), 'items.read');
    assertReply(await read(good, ['authorization', 'Basic YTpi']), 400, badRequest);
    await command.log(({ cause }) => cause === 'two authorization fields', 'the cause');
    // A refused write is answered before its body arrives. Its stream ends, but the connection stays open.
    const { stream, reply } = client.begin('PUT', item);
    stream.write('{"a":');
    stream.once('response', () => stream.end('1}'));
    assertNoToken(await reply);
    assert.ok(client.isOpen);
    assert.equal(backend.requests.length, 0);
    assertReply(await read(good, ['x-user', 'eve']), 200, '{"id":5}');
    const last = backend.requests.at(-1);
    assert.deepEqual([last?.header('x-user'), last?.header('authorization')], ['ada', undefined]);
    // A request that matches no operation needs no token.
    assert.equal((await client.call('PATCH', item)).status, 405);
  });

  test('a span has the HTTP version and the scheme of its request [D49]', async () => {
    await using collector = await Collector.start();
    await using command = await start({ HTTP2: 'true', OTEL_EXPORTER_OTLP_ENDPOINT: collector.url });
    await using client = await Http2Client.open(command.port);
    const options = { headers: [['x-request-id', 'mine']] as const, body: '{}' };
    await client.call('PUT', `${item}?token=secret`, options);
    const { attributes } = (await collector.pair('mine')).server;
    const names = ['network.protocol.version', 'url.scheme', 'url.path', 'http.route', 'server.address'];
    const values = names.map((name) => attributes[name]);
    assert.deepEqual(values, ['2', 'https', item, '/api/work-items/{id}', 'gateway.localhost']);
    await using old = await RawClient.openSecure(command.port, { rejectUnauthorized: false });
    assertReply(await old.call('GET', item, { headers: [['X-Request-Id', 'old']] }), 200, '{"id":5}');
    const { server } = await collector.pair('old');
    assert.partialDeepStrictEqual(server.attributes, { 'network.protocol.version': '1.1', 'url.scheme': 'https' });
  });
});
