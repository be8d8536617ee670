// HTTP/2 of the built command: the setting, workers, guards, traces and the drain. D39, D33, D41 to D49.

import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { once } from 'node:events';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { connect } from 'node:tls';
import { after, before, describe, test } from 'node:test';
import { promisify } from 'node:util';
import { anyCertificate } from '../helpers/certificates.ts';
import { createGate, poll } from '../helpers/changes.ts';
import { Collector } from './collector.ts';
import { type Command, isReloaded, startCommand } from '../helpers/command.ts';
import { assertReply, badRequest, operations } from '../helpers/expected.ts';
import { Http2Client, noHttp2OfCommand } from '../helpers/http2-client.ts';
import { audience, createPair, goodToken, issuerName, keySetOf, KeyServer } from '../helpers/issuer.ts';
import { figureIn } from '../helpers/process-figures.ts';
import { RawClient, requestBytes, type Headers } from '../helpers/raw-client.ts';
import { runHere } from '../helpers/run-cli.ts';
import { answer, behind } from '../helpers/scripted-backend.ts';
import { useBackend, useFolder } from '../helpers/suites.ts';
import { assertInvalidToken, assertNoScope, assertNoToken, bearer } from '../helpers/tokens.ts';

const item = '/api/work-items/5';
const folder = useFolder();
const backend = await useBackend(answer('{"id":5}'));

test('on a Node before 26, serve, dev and check report HTTP2 as a problem, together with all other problems [D39]', async (t) => {
  const { versions } = process;
  Object.defineProperty(process, 'versions', { value: { ...versions, node: '24.21.0' } });
  t.after(() => Object.defineProperty(process, 'versions', { value: versions }));
  const environment = { HTTP2: 'true', REQUEST_BYTES_MAX: 'x' };
  for (const command of ['serve', 'dev', 'check']) {
    const { code, stderr } = await runHere([command], environment);
    assert.equal(code, 1);
    const problems = stderr.match(/^error: .*$/gm) ?? [];
    assert.equal(problems.length, 3, stderr);
    const problem = 'HTTP2 needs Node 26 or newer, but this is Node 24.21.0: use a newer Node, or leave HTTP2 out';
    assert.ok(problems.includes(`error: ${problem}`), stderr);
  }
  // `openapi` starts no listener, so it accepts HTTP2=true. HTTP2=false works on every Node.
  const { code, stdout } = await runHere(['openapi'], { HTTP2: 'true', TLS_CERT_FILE: 'a', TLS_KEY_FILE: 'b' });
  assert.equal(code, 0);
  assert.match(stdout, /"openapi"/);
  assert.doesNotMatch((await runHere(['check'], { ...environment, HTTP2: 'false' })).stderr, /HTTP2/);
});

test('without HTTP2, node:http2 is not loaded', async () => {
  const look = "import('./packages/command/service/generation.ts').then(() => console.log(process.moduleLoadList.some((name) => name.includes('http2'))))"; // prettier-ignore
  const { stdout } = await promisify(execFile)(process.execPath, ['-e', look], { cwd: `${import.meta.dirname}/../..` });
  assert.equal(stdout.trim(), 'false');
});

describe('HTTP/2 of the command', { skip: noHttp2OfCommand }, () => {
  const file = join(folder, 'settings.env');
  let collector: Collector;
  let command: Command;
  before(async () => {
    const { certFile, keyFile } = anyCertificate();
    collector = await Collector.start();
    writeFileSync(file, 'HTTP2=true\n');
    command = await startCommand({
      ...{ BACKEND_URL: backend.url, TLS_CERT_FILE: certFile, TLS_KEY_FILE: keyFile, SETTINGS_FILE: file },
      ...{ WORKERS: '2', OTEL_EXPORTER_OTLP_ENDPOINT: collector.url },
    });
  });
  after(async () => {
    await collector.stop();
    await command[Symbol.asyncDispose]();
  });

  async function reload(...lines: string[]): Promise<void> {
    const reloads = command.logs.filter(isReloaded).length;
    writeFileSync(file, lines.join('\n'));
    command.signal('SIGHUP');
    await poll(() => command.logs.filter(isReloaded).length > reloads, 'the reload ends');
  }

  /** The protocol that the gateway chooses if the client offers HTTP/2 and HTTP/1.1. */
  async function chosenProtocol(): Promise<string | false | null> {
    const offered = { ALPNProtocols: ['h2', 'http/1.1'], rejectUnauthorized: false };
    const socket = connect({ port: command.port, host: '127.0.0.1', ...offered });
    await once(socket, 'secureConnect');
    socket.destroy();
    return socket.alpnProtocol;
  }

  test('with HTTP2=true every worker prefers HTTP/2 [D39]', async () => {
    for (let round = 0; round < 4; round += 1) {
      assert.equal(await chosenProtocol(), 'h2');
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
    const names = ['client_connections', 'http2_connections', 'http2_streams'];
    const has = async (...expected: readonly number[]): Promise<void> => {
      const matches = (text: string) =>
        names.every((name, index) => figureIn(text, `work_item_gateway_${name}`) === expected[index]);
      await poll(async () => matches(await command.metrics()), `${names.join(', ')} are ${expected.join(', ')}`);
    };
    const gate = createGate();
    backend.answers(behind(gate, answer('{"id":5}')));
    const clients = await Promise.all(Array.from({ length: 3 }, () => Http2Client.open(command.port)));
    await using other = await RawClient.openSecure(command.port, { rejectUnauthorized: false });
    const calls = clients.flatMap((client) => [client.call('GET', item), client.call('PUT', item, { body: '{}' })]);
    other.send(requestBytes('GET', item));
    await has(4, 3, 6);
    gate.open();
    for (const reply of await Promise.all([...calls, other.reply()])) assert.equal(reply.status, 200);
    await has(4, 3, 0);
    for (const client of clients) client.destroy();
    await has(1, 0, 0);
  });

  test('a span has the HTTP version and the scheme of its request [D49]', async () => {
    await using client = await Http2Client.open(command.port);
    await client.call('PUT', `${item}?token=secret`, { headers: [['x-request-id', 'mine']], body: '{}' });
    const { attributes } = (await collector.pair('mine')).server;
    const names = ['network.protocol.version', 'url.scheme', 'url.path', 'http.route', 'server.address'];
    const values = names.map((name) => attributes[name]);
    assert.deepEqual(values, ['2', 'https', item, '/api/work-items/{id}', 'gateway.localhost']);
    await using old = await RawClient.openSecure(command.port, { rejectUnauthorized: false });
    assertReply(await old.call('GET', item, { headers: [['X-Request-Id', 'old']] }), 200, '{"id":5}');
    const { server } = await collector.pair('old');
    assert.partialDeepStrictEqual(server.attributes, { 'network.protocol.version': '1.1', 'url.scheme': 'https' });
  });

  test('tokens and scopes apply as over HTTP/1.1 [D41 to D43, D48]', async () => {
    const pair = createPair('key-1', 'ES256');
    await using keys = await KeyServer.start(keySetOf(pair));
    const tokens = [`AUTH_ISSUER=${issuerName}`, `AUTH_AUDIENCE=${audience}`, `AUTH_JWKS_URL=${keys.url}`];
    await reload('HTTP2=true', ...tokens, 'AUTH_SCOPES=read=items.read', 'BACKEND_IDENTITY_HEADER=x-user');
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

  test('without HTTP2=true the gateway accepts only HTTP/1.1 [D39]', async () => {
    for (const line of ['', 'HTTP2=false']) {
      await reload(line);
      assert.equal(await chosenProtocol(), 'http/1.1');
    }
  });

  test('after SIGTERM, calls in flight on streams get their replies, and the exit code is 0 [D33]', async () => {
    await reload('HTTP2=true');
    await using client = await Http2Client.open(command.port);
    const gate = createGate();
    backend.answersOnce(behind(gate, answer('"late"')));
    const late = client.call('GET', item);
    await backend.nextRequest();
    command.signal('SIGTERM');
    await once(client.session, 'goaway');
    gate.open();
    assertReply(await late, 200, '"late"');
    assert.equal(await command.exitCode(), 0);
  });
});
