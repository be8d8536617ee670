// Guards and traces over HTTP/2: the same doors as over HTTP/1.1, byte for byte. D39, with D41 to D49.

import assert from 'node:assert/strict';
import { after, before, beforeEach, describe, test } from 'node:test';
import { Collector } from '../helpers/collector.ts';
import { assertReply, operations } from '../helpers/expected.ts';
import { anyCertificate, Http2Client, noHttp2OfCommand } from '../helpers/http2-client.ts';
import { FrameClient, frameTypes, headers, requestFields } from '../helpers/http2-frames.ts';
import { audience, createPair, goodToken, issuerName, keySetOf, KeyServer } from '../helpers/issuer.ts';
import { RawClient, type CallOptions, type Headers, type Reply } from '../helpers/raw-client.ts';
import { answer, ScriptedBackend } from '../helpers/scripted-backend.ts';
import { startCommand, type Command } from '../helpers/targets.ts';
import { assertInvalidToken, assertNoScope, assertNoToken, bearer } from '../helpers/tokens.ts';

const pair = createPair('key-1', 'ES256');
const stranger = createPair('key-1', 'ES256');
const item = '/api/work-items/5';
const app = 'https://app.example.com';
const tooMany = '{"error":"Too many requests"}';

let backend: ScriptedBackend;
before(async () => {
  backend = await ScriptedBackend.start();
});
beforeEach(() => {
  backend.reset();
  backend.answers(answer('{"id":5}'));
});
after(async () => {
  await backend.stop();
});

function start(environment: NodeJS.ProcessEnv): Promise<Command> {
  const { certFile, keyFile } = anyCertificate();
  return startCommand({
    BACKEND_URL: backend.url,
    TLS_CERT_FILE: certFile,
    TLS_KEY_FILE: keyFile,
    HTTP2: 'true',
    ...environment,
  });
}

/** One call on a connection of its own. */
async function call(command: Command, method: string, path: string, options?: CallOptions): Promise<Reply> {
  await using client = await Http2Client.open(command.port);
  return await client.call(method, path, options);
}

/** What a reply says of CORS. */
function corsOf(reply: Reply): string[] {
  return reply.headers
    .filter(([name]) => /^(?:vary|access-control-allow-.*)$/.test(name))
    .map(([name, value]) => `${name}: ${value}`);
}

describe('guards over HTTP/2', { skip: noHttp2OfCommand }, () => {
  test('tokens: none, invalid, without the scope, twice, and a good one [D41 to D43, D48]', async () => {
    await using keys = await KeyServer.start(keySetOf(pair));
    await using command = await start({
      AUTH_ISSUER: issuerName,
      AUTH_AUDIENCE: audience,
      AUTH_JWKS_URL: keys.url,
      AUTH_SCOPES: 'read=items.read',
      BACKEND_IDENTITY_HEADER: 'x-user',
    });
    await using client = await Http2Client.open(command.port);
    const good = bearer(goodToken(pair, Date.now(), { sub: 'ada', scope: 'items.read' }));
    const read = (fields: Headers) => client.call('GET', item, { headers: fields });
    for (const { method, path, options } of operations) {
      assertNoToken(await client.call(method, path, options));
    }
    for (const value of ['Bearer', 'Basic YTpi', '']) assertNoToken(await read([['authorization', value]]));
    for (const token of [
      'x.y.z',
      goodToken(stranger),
      goodToken(pair, Date.now(), { exp: 1 }),
      goodToken(pair, Date.now(), { aud: 'others' }),
      goodToken(pair, Date.now(), {}, { alg: 'none' }),
    ]) {
      assertInvalidToken(await read([bearer(token)]));
    }
    assertNoScope(await read([bearer(goodToken(pair))]), 'items.read');
    // Node's client sends no field twice.
    await using frames = await FrameClient.begin(command.port);
    for (const [index, second] of [good[1], 'Basic YTpi'].entries()) {
      const stream = 1 + 2 * index;
      const twice = [['authorization', good[1]], ['authorization', second]] as const; // prettier-ignore
      frames.send(headers(stream, requestFields('GET', item, twice)));
      const head = await frames.receives(
        (each) => each.type === frameTypes.headers && each.stream === stream,
        'a reply',
      );
      // Index 12 of the static table is `:status: 400` [RFC 7541, A].
      assert.equal(head.payload[0], 0x80 | 12);
    }
    await command.log(({ cause }) => cause === 'two authorization fields', 'why it was refused');
    assert.equal(backend.requests.length, 0);
    // What is refused ends its stream, and nothing else.
    assert.ok(client.isOpen);
    assertReply(await read([good, ['x-user', 'eve']]), 200, '{"id":5}');
    const last = backend.requests.at(-1);
    assert.deepEqual([last?.header('x-user'), last?.header('authorization')], ['ada', undefined]);
    // No operation is called: no token is wanted.
    assert.equal((await client.call('OPTIONS', item)).status, 204);
    assert.equal((await client.call('PATCH', item)).status, 405);
    assert.equal((await client.call('GET', '/elsewhere')).status, 404);
  });

  test('a refused write is answered before its body has come, and the rest of it is dropped [D43]', async () => {
    await using keys = await KeyServer.start(keySetOf(pair));
    await using command = await start({
      AUTH_ISSUER: issuerName,
      AUTH_AUDIENCE: audience,
      AUTH_JWKS_URL: keys.url,
    });
    await using client = await Http2Client.open(command.port);
    const { stream, reply } = client.begin('PUT', item);
    stream.write('{"a":');
    stream.once('response', () => stream.end('1}'));
    assertNoToken(await reply);
    assert.ok(client.isOpen);
    assert.equal(backend.requests.length, 0);
  });

  test('the rate limit counts streams of all connections: then 429, with what to wait for [D46]', async () => {
    await using command = await start({ RATE_LIMIT: '3/60s' });
    await using client = await Http2Client.open(command.port);
    const replies = await Promise.all(Array.from({ length: 5 }, () => client.call('GET', item)));
    assert.deepEqual(replies.map(({ status }) => status).sort(), [200, 200, 200, 429, 429]);
    const left = replies.map((reply) => reply.header('ratelimit')?.replace(/;t=\d+$/, ''));
    assert.deepEqual(
      left.sort(),
      ['r=0', 'r=0', 'r=0', 'r=1', 'r=2'].map((each) => `"default";${each}`),
    );
    const limited = await call(command, 'POST', '/api/work-items', { body: '{}' });
    assertReply(limited, 429, tooMany, ['retry-after', 'ratelimit-policy', 'ratelimit']);
    assert.equal(limited.header('ratelimit-policy'), '"default";q=3;w=60');
    assert.match(limited.header('ratelimit') ?? '', /^"default";r=0;t=\d+$/);
    assert.equal(backend.requests.length, 3);
  });

  test('CORS: a preflight is answered before tokens and limits, and every reply says who may read it [D45]', async () => {
    await using keys = await KeyServer.start(keySetOf(pair));
    await using command = await start({
      CORS_ORIGINS: app,
      RATE_LIMIT: '1/60s',
      AUTH_ISSUER: issuerName,
      AUTH_AUDIENCE: audience,
      AUTH_JWKS_URL: keys.url,
    });
    await using client = await Http2Client.open(command.port);
    const preflight = await client.call('OPTIONS', item, {
      headers: [['origin', app], ['access-control-request-method', 'PUT']],
    }); // prettier-ignore
    assert.equal(preflight.status, 204);
    assert.deepEqual(corsOf(preflight), [
      'vary: origin',
      `access-control-allow-origin: ${app}`,
      'access-control-allow-methods: GET, HEAD, PUT, DELETE, OPTIONS',
      'access-control-allow-headers: authorization, content-type, x-request-id, traceparent, tracestate',
    ]);
    const granted = ['vary: origin', `access-control-allow-origin: ${app}`];
    const good = bearer(goodToken(pair));
    for (const [status, headers] of [
      [401, [['origin', app]]],
      [200, [['origin', app], good]],
      [429, [['origin', app], good]],
    ] as const) {
      const reply = await client.call('GET', item, { headers });
      assert.deepEqual([reply.status, ...corsOf(reply)], [status, ...granted]);
    }
    // Another origin, two of them, and none: no grant, and what caches keep is told apart all the same.
    for (const headers of [
      [['origin', 'https://elsewhere.example']],
      [
        ['origin', app],
        ['origin', app],
      ],
      [],
    ] as const) {
      assert.deepEqual(corsOf(await client.call('GET', '/nowhere', { headers })), ['vary: origin']);
    }
  });

  test('a span says which protocol and scheme it was [D49]', async () => {
    await using collector = await Collector.start();
    await using command = await start({ OTEL_EXPORTER_OTLP_ENDPOINT: collector.url });
    await call(command, 'PUT', `${item}?token=secret`, { headers: [['x-request-id', 'mine']], body: '{}' });
    const { server } = await collector.pair('mine');
    const { attributes } = server;
    assert.deepEqual(
      ['network.protocol.version', 'url.scheme', 'url.path', 'http.route', 'server.address'].map(
        (name) => attributes[name],
      ),
      ['2', 'https', item, '/api/work-items/{id}', 'gateway.localhost'],
    );
    await using old = await RawClient.openSecure(command.port, { rejectUnauthorized: false });
    assertReply(await old.call('GET', item, { headers: [['X-Request-Id', 'old']] }), 200, '{"id":5}');
    const { server: other } = await collector.pair('old');
    assert.deepEqual(
      [other.attributes['network.protocol.version'], other.attributes['url.scheme']],
      ['1.1', 'https'],
    );
  });
});
