// Tokens in the built command: log, metrics, key files, workers, `check`, API document, and a real identity provider
// [D41 to D44]. test/guards tests the rules.

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { writeFileSync } from 'node:fs';
import { createServer, type RequestListener } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { test } from 'node:test';
import { Provider } from 'oidc-provider';
import { poll } from '../helpers/changes.ts';
import { isReloaded, logged, startCommand } from '../helpers/command.ts';
import {
  audience,
  createPair,
  goodToken,
  issuerName,
  keySetOf,
  KeyServer,
  type Pair,
  sending,
} from '../helpers/issuer.ts';
import { readOpenApi } from '../docs/openapi.ts';
import { request } from '../helpers/raw-client.ts';
import { runHere } from '../helpers/run-cli.ts';
import { useBackend, useFolder } from '../helpers/suites.ts';
import { assertInvalidToken, assertNoKeys, assertNoScope, assertNoToken, bearer } from '../helpers/tokens.ts';

const pair = createPair('key-1', 'RS256');
const next = createPair('key-2', 'RS256');
const folder = useFolder();
const backend = await useBackend();
const path = '/api/work-items';
const environment = (more: Record<string, string>) => ({
  BACKEND_URL: backend.url,
  AUTH_ISSUER: issuerName,
  AUTH_AUDIENCE: audience,
  ...more,
});

test('without keys calls are 503; log and metrics have the reason for a refusal, and nothing of the token except a verified subject [D43, D62]', async () => {
  await using keys = await KeyServer.start('');
  keys.respond = sending('SECRET', 500);
  await using command = await startCommand(
    environment({ AUTH_JWKS_URL: keys.url, AUTH_SCOPES: 'list=items.read', BACKEND_IDENTITY_HEADER: 'x-user' }),
  );
  const good = goodToken(pair, Date.now(), { sub: 'Ada "1"', scope: 'items.read' });
  const expired = goodToken(pair, Date.now(), { sub: 'SECRET-SUBJECT', exp: 1 });
  const lacking = goodToken(pair, Date.now(), { sub: 'Bob', scope: 'SECRET-SCOPE' });
  const call = (id: string, ...tokens: readonly string[]) =>
    command.call('GET', path, { headers: [['X-Request-Id', id], ...tokens.map(bearer)] });
  assertNoKeys(await call('no-keys', good));
  assertNoToken(await call('early'));
  await logged(command, 'the keys of the issuer cannot be fetched');
  keys.respond = sending('{"keys":[]}');
  await command.log(({ cause }) => String(cause).startsWith('the key set is empty'), 'another cause');
  assertNoKeys(await call('empty', good));
  keys.respond = sending(keySetOf(pair));
  await logged(command, 'the keys of the issuer can be fetched again');
  const errors = command.logs.filter(({ level }) => level === 'error').map(({ msg, cause }) => [msg, cause]);
  assert.deepEqual(errors, [
    ['the keys of the issuer cannot be fetched', 'the issuer answered with status 500'],
    ['the key set of the issuer has no usable key', 'the key set is empty: it has no keys'],
  ]);
  assert.equal((await call('good', good)).status, 200);
  assertNoToken(await call('none'));
  assertInvalidToken(await call('expired', expired));
  assertInvalidToken(await call('broken', 'SECRET-TOKEN'));
  assertNoScope(await call('lacking', lacking), 'items.read');
  assert.equal((await call('two', good, good)).status, 400);
  for (const [id, ...expected] of [
    ['good', 200, 'ok', undefined, 'Ada "1"'],
    ['none', 401, 'no-token', undefined, undefined],
    ['expired', 401, 'invalid-token', 'expired', undefined],
    ['broken', 401, 'invalid-token', 'malformed', undefined],
    ['lacking', 403, 'insufficient-scope', 'the token lacks the scope items.read', 'Bob'],
    ['two', 400, 'bad-request', 'two authorization fields', undefined],
  ] as const) {
    const { level, status, outcome, cause, subject } = await command.log((line) => line['requestId'] === id, `the line of ${id}`);
    assert.deepEqual([level, status, outcome, cause, subject], ['info', ...expected]);
  } // prettier-ignore
  const metrics = await command.metrics();
  for (const line of [
    'invalid_tokens_total{reason="expired"} 1',
    'invalid_tokens_total{reason="malformed"} 1',
    'requests_total{operation="list",status="401"} 4',
    'request_outcomes_total{operation="list",outcome="no-token",fault="client"} 2',
    'request_outcomes_total{operation="list",outcome="no-keys",fault="gateway"} 2',
    'request_outcomes_total{operation="list",outcome="insufficient-scope",fault="client"} 1',
    'key_fetches_total{outcome="ok"} 1',
    'keys 1',
  ]) {
    assert.ok(metrics.includes(`\nwork_item_gateway_${line}\n`), line);
  }
  const everything = command.output + metrics + (await command.admin('/readyz')).text;
  for (const text of ['SECRET', ...[good, expired, lacking].flatMap((token) => token.split('.').slice(1))]) {
    assert.ok(!everything.includes(text), text);
  }
  assert.deepEqual(backend.requests.map((each) => each.header('x-user')), ['Ada "1"']); // prettier-ignore
});

test('a reload keeps the keys of the same AUTH_JWKS_URL, also in an outage; AUTH_JWKS_FILE is read again for a new key', async () => {
  await using keys = await KeyServer.start(keySetOf(pair));
  const [settings, keyFile] = [join(folder, 'settings.env'), join(folder, 'keys.json')];
  const write = (line: string): void => writeFileSync(settings, `${line}\n`);
  write(`AUTH_JWKS_URL=${keys.url}`);
  await using command = await startCommand(environment({ SETTINGS_FILE: settings, WORKERS: '2' }));
  const call = (by = pair) => command.call('GET', path, { headers: [bearer(goodToken(by))] });
  const assertAll = async (status: number): Promise<void> => {
    const replies = await Promise.all(Array.from({ length: 8 }, () => call()));
    assert.deepEqual([...new Set(replies.map((reply) => reply.status))], [status]);
  };
  const reload = async (): Promise<void> => {
    const before = command.logs.filter(isReloaded).length;
    command.signal('SIGHUP');
    await poll(() => command.logs.filter(isReloaded).length > before, 'the reload is done', 20_000);
  };
  await assertAll(200);
  keys.respond = sending('', 500);
  // Reloads twice, because workers must also pass on keys that they received from other workers.
  for (const round of ['first', 'second']) {
    // Guards are only made again if a setting has changed.
    write(`AUTH_JWKS_URL=${keys.url}\nAUTH_CLOCK_SKEW_MS=${round.length}000`);
    await reload();
    await assertAll(200);
    assert.match(await command.metrics(), /^work_item_gateway_keys_fetched_timestamp_seconds [1-9]/m, round);
  }
  await using elsewhere = await KeyServer.start('');
  elsewhere.respond = sending('', 500);
  write(`AUTH_JWKS_URL=${elsewhere.url}`);
  await reload();
  await assertAll(503);
  writeFileSync(keyFile, keySetOf(pair));
  write(`WORKERS=1\nAUTH_JWKS_FILE=${keyFile}`);
  await reload();
  await assertAll(200);
  writeFileSync(keyFile, keySetOf(next));
  assert.equal((await call(next)).status, 200);
});

test('`check` and `serve` report keys, or the reason why no key can be used', async () => {
  await using keys = await KeyServer.start(keySetOf(pair, createPair('other\n', 'ES256'), createPair('x', 'ES384')));
  const file = (name: string, text: string): Record<string, string> => {
    writeFileSync(join(folder, name), text);
    return { AUTH_JWKS_FILE: join(folder, name) };
  };
  const absent = { AUTH_JWKS_FILE: join(folder, 'absent.json') };
  for (const [command, settings, code, ...expected] of [
    ['check', { AUTH_JWKS_URL: `${keys.url}?p=SECRET` }, 0, /keys: http:\/\/[\d.:]+\/keys has 2 usable keys\n {2}key-1: RS256\n {2}other\\u000a: ES256\n$/],
    ['check', { AUTH_JWKS_URL: keys.url, AUTH_ALGORITHMS: 'PS512' }, 1, /has no usable key\n {2}key-1: not for PS512\n {2}other\\u000a: not for PS512\n/, /AUTH_ALGORITHMS \(PS512\)/],
    ['check', file('none.json', '{"keys":[]}'), 1, /has an empty key set\n {2}Check that AUTH_JWKS_FILE /],
    ['check', { AUTH_JWKS_URL: 'http://127.0.0.1:1/keys' }, 1, /^keys: http:\/\/127\.0\.0\.1:1\/keys: connect ECONNREFUSED/m],
    ['serve', absent, 1, /^error: AUTH_JWKS_FILE \(".*absent\.json"\) cannot be read \(ENOENT\)\nNothing was started\./],
    ['serve', file('empty.json', ''), 1, /AUTH_JWKS_FILE \(.+\) cannot be used: the key set is not JSON/],
  ] as const) {
    const ended = await runHere([command], environment({ PORT: '0', ADMIN_PORT: '0', ...settings }));
    assert.equal(ended.code, code, ended.output);
    for (const each of expected) assert.match(code === 0 ? ended.stdout : ended.stderr, each);
    assert.doesNotMatch(ended.output, /SECRET/);
  }
}); // prettier-ignore

type PathItem = Record<string, { security?: unknown; responses: Record<string, { headers?: object }> } | undefined>;

test('the OpenAPI document has the security scheme, scopes and replies for tokens only if tokens are on', async () => {
  const settings = { ...environment({ AUTH_JWKS_URL: 'https://issuer.example/keys' }), AUTH_SCOPES: 'update=items.write' };
  const { stdout: text } = await runHere(['openapi'], settings);
  const document = JSON.parse(text) as { security: unknown; paths: Record<string, PathItem> };
  assert.deepEqual(document.security, [{ bearer: [] }]);
  assert.match(readOpenApi(text).openapi, /^3\.1/);
  for (const [method, security, ...challenging] of [
    ['get', undefined, '401'],
    ['put', [{ bearer: ['items.write'] }], '401', '403'],
    ['options', []],
  ] as const) {
    const operation = document.paths['/api/work-items/{id}']?.[method];
    assert.deepEqual(operation?.security, security);
    const found = Object.entries(operation?.responses ?? {}).filter(([, { headers }]) => 'www-authenticate' in (headers ?? {}));
    assert.deepEqual(found.map(([status]) => status), challenging, method);
  }
  assert.doesNotMatch((await runHere(['openapi'])).stdout, /401|bearer|www-authenticate/i);
}); // prettier-ignore

test('tokens of a real provider and their scopes are verified, also after a change of keys and during an outage', async () => {
  const resource = 'https://items.example.com';
  let listener: RequestListener | undefined;
  await using server = createServer((incoming, outgoing) => {
    if (listener === undefined) incoming.socket.destroy();
    else listener(incoming, outgoing);
  });
  await once(server.listen(0, '127.0.0.1'), 'listening');
  const { port } = server.address() as AddressInfo;
  const host = `127.0.0.1:${port}`;
  const scopes = ['items.read', 'items.write'];
  const provide = (alg: 'RS256' | 'ES256', ...pairs: readonly Pair[]): void => {
    const info = {
      ...{ scope: scopes.join(' '), audience: resource, accessTokenTTL: 600 },
      ...{ accessTokenFormat: 'jwt' as const, jwt: { sign: { alg } } },
    };
    const client = {
      ...{ client_id: 'program', client_secret: 'secret', grant_types: ['client_credentials'] },
      ...{ redirect_uris: [], response_types: [], id_token_signed_response_alg: alg },
    };
    const keys = pairs.map((each) => ({
      ...each.privateKey.export({ format: 'jwk' }),
      ...{ kid: each.kid, alg: each.alg, use: 'sig' },
    }));
    const provider = new Provider(`http://${host}`, {
      clients: [client],
      scopes,
      jwks: { keys },
      features: {
        devInteractions: { enabled: false },
        clientCredentials: { enabled: true },
        resourceIndicators: { enabled: true, getResourceServerInfo: () => info },
      },
    });
    const callback = provider.callback();
    listener = (incoming, outgoing) => void callback(incoming, outgoing);
  };
  const issue = async (scope: string): Promise<string> => {
    const headers = [
      ['Host', host],
      ['Content-Type', 'application/x-www-form-urlencoded'],
      ['Authorization', `Basic ${btoa('program:secret')}`],
    ] as const;
    const body = new URLSearchParams({ grant_type: 'client_credentials', resource, scope }).toString();
    const reply = await request(port, 'POST', '/token', { headers, body });
    const { access_token: token } = JSON.parse(reply.text) as { access_token?: string };
    return token ?? assert.fail(reply.text);
  };
  const [first, second] = [createPair('first', 'RS256'), createPair('second', 'ES256')];
  provide('RS256', first);
  const discovery = await request(port, 'GET', '/.well-known/openid-configuration', { headers: [['Host', host]] });
  const { issuer, jwks_uri: keysUrl } = JSON.parse(discovery.text) as { issuer: string; jwks_uri: string };
  await using command = await startCommand({
    BACKEND_URL: backend.url,
    ...{ AUTH_ISSUER: issuer, AUTH_AUDIENCE: resource, AUTH_JWKS_URL: keysUrl, AUTH_TOKEN_TYPE: 'at+jwt' },
    ...{ AUTH_SCOPES: 'list=items.read,delete=items.write', AUTH_JWKS_REFRESH_MS: '1000' },
    BACKEND_IDENTITY_HEADER: 'x-user',
  });
  const call = (token: string, method = 'GET', target = path) =>
    command.call(method, target, { headers: [bearer(token)] });
  const reader = await issue('items.read');
  assertNoToken(await command.call('GET', path));
  assert.equal((await call(reader)).status, 200);
  assert.equal(backend.requests.at(-1)?.header('x-user'), 'program');
  assertNoScope(await call(reader, 'DELETE', `${path}/5`), 'items.write');
  assert.equal((await call(await issue('items.read items.write'), 'DELETE', `${path}/5`)).status, 200);
  // The provider signs with a new key and still publishes the old key: tokens of both keys are valid.
  provide('ES256', second, first);
  assert.equal((await call(await issue('items.read'))).status, 200);
  assert.equal((await call(reader)).status, 200);
  // During an outage, tokens of known keys stay valid.
  listener = undefined;
  await logged(command, 'the keys of the issuer cannot be fetched');
  assert.equal((await call(reader)).status, 200);
  // The provider returns without the old key: tokens of that key are invalid.
  provide('ES256', second);
  const late = await issue('items.read');
  await logged(command, 'the keys of the issuer can be fetched again');
  assertInvalidToken(await call(reader));
  assert.equal((await call(late)).status, 200);
  server.closeAllConnections();
});
