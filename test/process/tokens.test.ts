// Tokens in the built command: log, metrics, key files, workers, `check`, API document, and a real identity provider
// [D41 to D44]. test/guards tests the rules.

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
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
const folder = useFolder();
const closedPort = 'http://127.0.0.1:1/keys';
const backend = await useBackend();

function environment(more: Record<string, string>) {
  return { BACKEND_URL: backend.url, AUTH_ISSUER: issuerName, AUTH_AUDIENCE: audience, ...more };
}

test('log and metrics have the reason for a refusal, and nothing of the token except a verified subject [D43, D62]', async () => {
  await using keys = await KeyServer.start(keySetOf(pair));
  await using command = await startCommand(
    environment({ AUTH_JWKS_URL: keys.url, AUTH_SCOPES: 'list=items.read', BACKEND_IDENTITY_HEADER: 'x-user' }),
  );
  const now = Date.now();
  const expired = goodToken(pair, now, { sub: 'SECRET-SUBJECT', exp: 1 });
  const good = goodToken(pair, now, { sub: 'Ada "1"', scope: 'items.read' });
  const lacking = goodToken(pair, now, { sub: 'Bob', scope: 'SECRET-SCOPE' });
  const call = (id: string, ...headers: (readonly [string, string])[]) =>
    command.call('GET', '/api/work-items', { headers: [['X-Request-Id', id], ...headers] });
  assertNoToken(await call('none'));
  assertInvalidToken(await call('expired', bearer(expired)));
  assertInvalidToken(await call('broken', bearer('SECRET-TOKEN')));
  assertNoScope(await call('lacking', bearer(lacking)), 'items.read');
  assert.equal((await call('good', bearer(good))).status, 200);
  assert.equal((await call('two', bearer(good), bearer(good))).status, 400);
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
    'work_item_gateway_invalid_tokens_total{reason="expired"} 1',
    'work_item_gateway_invalid_tokens_total{reason="malformed"} 1',
    'work_item_gateway_requests_total{operation="list",status="401"} 3',
    'work_item_gateway_request_outcomes_total{operation="list",outcome="no-token",fault="client"} 1',
    'work_item_gateway_request_outcomes_total{operation="list",outcome="insufficient-scope",fault="client"} 1',
    'work_item_gateway_key_fetches_total{outcome="ok"} 1',
    'work_item_gateway_keys 1',
  ]) {
    assert.ok(metrics.includes(`\n${line}\n`), line);
  }
  const everything = command.output + metrics + (await command.admin('/readyz')).text;
  for (const text of ['SECRET', ...[good, expired, lacking].flatMap((token) => token.split('.').slice(1))]) {
    assert.ok(!everything.includes(text), text);
  }
  assert.equal(backend.requests.length, 1);
  assert.equal(backend.requests[0]?.header('x-user'), 'Ada "1"');
});

test('if the issuer is down, the gateway starts, logs each cause once, and serves when the issuer is back', async () => {
  await using keys = await KeyServer.start('');
  keys.respond = sending('SECRET', 500);
  await using command = await startCommand(environment({ AUTH_JWKS_URL: keys.url }));
  const headers = [bearer(goodToken(pair))];
  assertNoKeys(await command.call('GET', '/api/work-items', { headers }));
  assertNoToken(await command.call('GET', '/api/work-items'));
  await logged(command, 'the keys of the issuer cannot be fetched');
  await poll(() => keys.count >= 2, 'the keys are requested again');
  keys.respond = sending('{"keys":[]}');
  await command.log(({ cause }) => String(cause).startsWith('the key set is empty'), 'another cause');
  assertNoKeys(await command.call('GET', '/api/work-items', { headers }));
  keys.respond = sending(keySetOf(pair));
  await logged(command, 'the keys of the issuer can be fetched again');
  assert.equal((await command.call('GET', '/api/work-items', { headers })).status, 200);
  const errors = command.logs.filter(({ level }) => level === 'error');
  assert.deepEqual(
    errors.map(({ msg, cause }) => [msg, cause]),
    [
      ['the keys of the issuer cannot be fetched', 'the issuer answered with status 500'],
      ['the key set of the issuer has no usable key', 'the key set is empty: it has no keys'],
    ],
  );
  assert.ok((await command.metrics()).includes('outcome="no-keys",fault="gateway"} 2\n'));
});

test('AUTH_JWKS_FILE is read again when a token names a new key; a file without keys makes the start fail', async () => {
  const file = join(folder, 'keys.json');
  writeFileSync(file, keySetOf(pair));
  {
    await using command = await startCommand(environment({ AUTH_JWKS_FILE: file }));
    const headers = [bearer(goodToken(pair))];
    assert.equal((await command.call('GET', '/api/work-items', { headers })).status, 200);
    assertNoToken(await command.call('GET', '/api/work-items'));
    const next = createPair('key-2', 'RS256');
    writeFileSync(file, keySetOf(next));
    assert.equal((await command.call('GET', '/api/work-items', { headers: [bearer(goodToken(next))] })).status, 200);
    assertInvalidToken(await command.call('GET', '/api/work-items', { headers }));
  }
  writeFileSync(file, '');
  for (const [path, expected] of [
    [join(folder, 'absent.json'), /^error: AUTH_JWKS_FILE \(".*absent\.json"\) cannot be read \(ENOENT\)\nNothing was started\./],
    [file, /AUTH_JWKS_FILE \(.+\) cannot be used: the key set is not JSON/],
  ] as const) {
    const ended = await runHere(['serve'], environment({ AUTH_JWKS_FILE: path, PORT: '0', ADMIN_PORT: '0' }));
    assert.equal(ended.code, 1);
    assert.match(ended.stderr, expected);
  } // prettier-ignore
});

test('during an outage of the issuer, new workers get the keys of the old workers unless AUTH_JWKS_URL changes', async () => {
  await using keys = await KeyServer.start(keySetOf(pair));
  await using elsewhere = await KeyServer.start('');
  elsewhere.respond = sending('', 500);
  const file = join(folder, 'outage.env');
  writeFileSync(file, `AUTH_JWKS_URL=${keys.url}\n`);
  await using command = await startCommand(environment({ SETTINGS_FILE: file, WORKERS: '2' }));
  const headers = [bearer(goodToken(pair))];
  const call = async () => await command.call('GET', '/api/work-items', { headers });
  const reloads = () => command.logs.filter(isReloaded).length;
  assert.equal((await call()).status, 200);
  keys.respond = sending('', 500);
  // Reloads twice, because workers must also pass on keys that they received from other workers.
  for (const count of [1, 2]) {
    command.signal('SIGHUP');
    await poll(() => reloads() === count, 'the reload is done', 20_000);
    const replies = await Promise.all(Array.from({ length: 8 }, call));
    const statuses = replies.map(({ status }) => status);
    assert.deepEqual(
      statuses,
      replies.map(() => 200),
    );
    assert.match(await command.metrics(), /^work_item_gateway_keys_fetched_timestamp_seconds [1-9]/m);
  }
  writeFileSync(file, `AUTH_JWKS_URL=${elsewhere.url}\n`);
  command.signal('SIGHUP');
  await poll(() => reloads() === 3, 'the reload is done', 20_000);
  for (const reply of await Promise.all(Array.from({ length: 8 }, call))) assertNoKeys(reply);
});

test('`check` lists the keys, or the reason why no key can be used', async () => {
  await using keys = await KeyServer.start(keySetOf(pair, createPair('other\n', 'ES256'), createPair('x', 'ES384')));
  const check = (more: Record<string, string>) => runHere(['check'], environment(more));
  const well = await check({ AUTH_JWKS_URL: `${keys.url}?p=SECRET` });
  assert.deepEqual([well.code, well.stderr], [0, '']);
  assert.ok(
    well.stdout.endsWith(`keys: ${keys.url} has 2 usable keys\n  key-1: RS256\n  other\\u000a: ES256\n`),
    well.stdout,
  );
  const none = await check({ AUTH_JWKS_URL: keys.url, AUTH_ALGORITHMS: 'PS512' });
  assert.equal(none.code, 1);
  assert.match(none.stderr, /has no usable key\n {2}key-1: not for PS512\n {2}other\\u000a: not for PS512\n/);
  assert.match(none.stderr, /AUTH_ALGORITHMS \(PS512\)/);
  const file = join(folder, 'unusable.json');
  writeFileSync(file, '{"keys":[]}');
  const empty = await check({ AUTH_JWKS_FILE: file });
  assert.equal(empty.code, 1);
  assert.match(empty.stderr, /has an empty key set\n {2}Check that AUTH_JWKS_FILE /);
  const away = await check({ AUTH_JWKS_URL: closedPort });
  assert.equal(away.code, 1);
  assert.match(away.stderr, /^keys: http:\/\/127\.0\.0\.1:1\/keys: connect ECONNREFUSED/);
});

type PathItem = Record<
  string,
  { security?: unknown; responses: Record<string, { headers: object } | undefined> } | undefined
>;

test('the OpenAPI document has the security scheme, scopes and replies for tokens only if tokens are on', async () => {
  const settings = {
    AUTH_ISSUER: issuerName,
    AUTH_AUDIENCE: audience,
    AUTH_JWKS_URL: 'https://issuer.example/keys',
    AUTH_SCOPES: 'update=items.write',
  };
  const { stdout: text } = await runHere(['openapi'], settings);
  const document = JSON.parse(text) as { security: unknown; paths: Record<string, PathItem | undefined> };
  assert.deepEqual(document.security, [{ bearer: [] }]);
  assert.match(readOpenApi(text).openapi, /^3\.1/);
  const rows = [
    ['get', undefined, { 401: true, 403: false, 503: false }],
    ['put', [{ bearer: ['items.write'] }], { 401: true, 403: true, 503: false }],
    ['options', [], {}],
  ] as const;
  for (const [method, security, challenges] of rows) {
    const operation = document.paths['/api/work-items/{id}']?.[method];
    const found = Object.entries(operation?.responses ?? {}).map(([status, response]) => [
      status,
      'www-authenticate' in (response?.headers ?? {}),
    ]);
    assert.deepEqual([operation?.security, method], [security, method]);
    for (const [status, hasChallenge] of Object.entries(challenges)) {
      assert.deepEqual(new Map(found as [string, boolean][]).get(status) ?? false, hasChallenge, `${method} ${status}`);
    }
  }
  assert.doesNotMatch((await runHere(['openapi'])).stdout, /401|bearer|www-authenticate/i);
});

const resource = 'https://items.example.com';

/** An identity provider. `serve` makes it serve with the given keys, also after an outage; `stop` begins an outage. */
async function startProvider() {
  let listener: ReturnType<Provider['callback']> | undefined;
  const server = createServer((incoming, outgoing) => {
    if (listener === undefined) incoming.socket.destroy();
    else void listener(incoming, outgoing);
  });
  await once(server.listen(0, '127.0.0.1'), 'listening');
  const { port } = server.address() as AddressInfo;
  const host = `127.0.0.1:${port}`;
  const headers = [
    ['Host', host],
    ['Content-Type', 'application/x-www-form-urlencoded'],
    ['Authorization', `Basic ${btoa('program:secret')}`],
  ] as const;
  return {
    port,
    host,
    serve: (alg: 'RS256' | 'ES256', ...pairs: readonly Pair[]): void => {
      const scopes = ['items.read', 'items.write'];
      const info = {
        scope: scopes.join(' '),
        audience: resource,
        accessTokenTTL: 600,
        accessTokenFormat: 'jwt',
        jwt: { sign: { alg } },
      } as const;
      const program = {
        client_id: 'program',
        client_secret: 'secret',
        grant_types: ['client_credentials'],
        redirect_uris: [],
        response_types: [],
        id_token_signed_response_alg: alg,
      };
      const keys = pairs.map(({ privateKey, kid, alg }) => ({
        ...privateKey.export({ format: 'jwk' }),
        kid,
        alg,
        use: 'sig',
      }));
      listener = new Provider(`http://${host}`, {
        clients: [program],
        scopes,
        jwks: { keys },
        features: {
          devInteractions: { enabled: false },
          clientCredentials: { enabled: true },
          resourceIndicators: { enabled: true, getResourceServerInfo: () => info },
        },
      }).callback();
    },
    stop: (): void => {
      listener = undefined;
    },
    /** An access token for the work items. */
    issue: async (scope: string): Promise<string> => {
      const body = new URLSearchParams({ grant_type: 'client_credentials', resource, scope }).toString();
      const reply = await request(port, 'POST', '/token', { headers, body });
      const { access_token: token } = JSON.parse(reply.text) as { access_token?: string };
      assert.ok(token, reply.text);
      return token;
    },
    [Symbol.asyncDispose]: async () => {
      server.closeAllConnections();
      await once(server.close(), 'close');
    },
  };
}

test('tokens of a real provider and their scopes are verified, also after a change of keys and during an outage', async () => {
  const first = createPair('first', 'RS256');
  const second = createPair('second', 'ES256');
  await using provider = await startProvider();
  provider.serve('RS256', first);
  const headers = [['Host', provider.host]] as const;
  const discovery = await request(provider.port, 'GET', '/.well-known/openid-configuration', { headers });
  const { issuer, jwks_uri: keysUrl } = JSON.parse(discovery.text) as { issuer: string; jwks_uri: string };
  await using command = await startCommand({
    BACKEND_URL: backend.url,
    AUTH_ISSUER: issuer,
    AUTH_AUDIENCE: resource,
    AUTH_JWKS_URL: keysUrl,
    AUTH_TOKEN_TYPE: 'at+jwt',
    AUTH_SCOPES: 'list=items.read,delete=items.write',
    AUTH_JWKS_REFRESH_MS: '1000',
    BACKEND_IDENTITY_HEADER: 'x-user',
  });
  const call = (token: string, method = 'GET', path = '/api/work-items') =>
    command.call(method, path, { headers: [bearer(token)] });
  const reader = await provider.issue('items.read');
  assertNoToken(await command.call('GET', '/api/work-items'));
  assert.equal((await call(reader)).status, 200);
  assert.equal(backend.requests.at(-1)?.header('x-user'), 'program');
  assertNoScope(await call(reader, 'DELETE', '/api/work-items/5'), 'items.write');
  const writer = await provider.issue('items.read items.write');
  assert.equal((await call(writer, 'DELETE', '/api/work-items/5')).status, 200);

  // The provider signs with a new key and still publishes the old key: tokens of both keys are valid.
  provider.serve('ES256', second, first);
  assert.equal((await call(await provider.issue('items.read'))).status, 200);
  assert.equal((await call(reader)).status, 200);

  // During an outage, tokens of known keys stay valid.
  provider.stop();
  await logged(command, 'the keys of the issuer cannot be fetched');
  assert.equal((await call(reader)).status, 200);

  // The provider returns without the old key: tokens of that key are invalid.
  provider.serve('ES256', second);
  const late = await provider.issue('items.read');
  await logged(command, 'the keys of the issuer can be fetched again');
  assertInvalidToken(await call(reader));
  assert.equal((await call(late)).status, 200);
});
