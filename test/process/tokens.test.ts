// Tokens as the built command has them: what `check` says, what the log and the metrics have, workers, files.

import assert from 'node:assert/strict';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, beforeEach, test } from 'node:test';
import { poll } from '../helpers/changes.ts';
import {
  audience,
  createPair,
  goodToken,
  issuerName,
  keySetOf,
  KeyServer,
  sending,
} from '../helpers/issuer.ts';
import { printOpenApi, readOpenApi } from '../helpers/openapi.ts';
import { stateOf } from '../helpers/process-figures.ts';
import { requestBytes } from '../helpers/raw-client.ts';
import { answer, ScriptedBackend } from '../helpers/scripted-backend.ts';
import { runCommand, startCommand } from '../helpers/targets.ts';
import { assertInvalidToken, assertNoKeys, assertNoScope, assertNoToken, bearer } from '../helpers/tokens.ts';

const pair = createPair('key-1', 'RS256');
const folder = mkdtempSync(join(tmpdir(), 'tokens-'));
const closedPort = 'http://127.0.0.1:1/keys';

let backend: ScriptedBackend;
before(async () => {
  backend = await ScriptedBackend.start();
});
after(async () => {
  await backend.stop();
  rmSync(folder, { recursive: true });
});
beforeEach(() => {
  backend.reset();
  backend.answers(answer('[]'));
});

function environment(more: Record<string, string>) {
  return { BACKEND_URL: backend.url, AUTH_ISSUER: issuerName, AUTH_AUDIENCE: audience, ...more };
}

test('the log and the metrics say why a call was refused, and nothing of its token but a verified subject [D43, D62]', async () => {
  await using keys = await KeyServer.start(keySetOf(pair));
  await using command = await startCommand(
    environment({
      AUTH_JWKS_URL: keys.url,
      AUTH_SCOPES: 'list=items.read',
      BACKEND_IDENTITY_HEADER: 'x-user',
    }),
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
  const lineOf = async (id: string) => {
    const { level, status, outcome, cause, subject } = await command.log(
      ({ requestId }) => requestId === id,
      `the line of ${id}`,
    );
    return [level, status, outcome, cause, ...(subject === undefined ? [] : [subject])];
  };
  assert.deepEqual(await lineOf('good'), ['info', 200, 'ok', undefined, 'Ada "1"']);
  assert.deepEqual(await lineOf('none'), ['info', 401, 'no-token', undefined]);
  assert.deepEqual(await lineOf('expired'), ['info', 401, 'invalid-token', 'expired']);
  assert.deepEqual(await lineOf('broken'), ['info', 401, 'invalid-token', 'malformed']);
  assert.deepEqual(await lineOf('lacking'), [
    'info',
    403,
    'insufficient-scope',
    'it lacks the scope items.read',
    'Bob',
  ]);
  assert.deepEqual(await lineOf('two'), ['info', 400, 'bad-request', 'two authorization fields']);
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

test('LOG_CLIENT=false leaves the subject out [D62]', async () => {
  await using keys = await KeyServer.start(keySetOf(pair));
  await using command = await startCommand(environment({ AUTH_JWKS_URL: keys.url, LOG_CLIENT: 'false' }));
  const headers = [bearer(goodToken(pair, Date.now(), { sub: 'SECRET' }))];
  assert.equal((await command.call('GET', '/api/work-items', { headers })).status, 200);
  await command.log(({ status }) => status === 200, 'its line');
  assert.ok(!command.output.includes('SECRET'));
});

test('an issuer that is away: the gateway starts, says each cause once, and serves when it is back', async () => {
  await using keys = await KeyServer.start('');
  keys.respond = sending('SECRET', 500);
  await using command = await startCommand(environment({ AUTH_JWKS_URL: keys.url }));
  const headers = [bearer(goodToken(pair))];
  assertNoKeys(await command.call('GET', '/api/work-items', { headers }));
  assertNoToken(await command.call('GET', '/api/work-items'));
  await command.log(({ msg }) => msg === 'the keys of the issuer cannot be fetched', 'the outage');
  await poll(() => keys.count >= 2, 'it is tried again');
  keys.respond = sending('{"keys":[]}');
  await command.log(({ cause }) => String(cause).startsWith('it has no key'), 'another cause');
  assertNoKeys(await command.call('GET', '/api/work-items', { headers }));
  keys.respond = sending(keySetOf(pair));
  await command.log(
    ({ msg }) => msg === 'the keys of the issuer can be fetched again',
    'the end of the outage',
  );
  assert.equal((await command.call('GET', '/api/work-items', { headers })).status, 200);
  const said = command.logs.filter(({ level }) => level === 'error');
  assert.deepEqual(
    said.map(({ msg, cause }) => [msg, cause]),
    [
      ['the keys of the issuer cannot be fetched', 'it answered with status 500'],
      ['the keys of the issuer cannot be fetched', 'it has no key for an algorithm that is allowed'],
    ],
  );
  assert.ok((await command.metrics()).includes('outcome="no-keys",fault="gateway"} 2\n'));
});

test('what answers with something else than keys: no redirect is followed, no flood is read', async () => {
  await using elsewhere = await KeyServer.start(keySetOf(pair));
  await using keys = await KeyServer.start('');
  for (const [respond, cause] of [
    [sending('', 302, { location: elsewhere.url }), 'it answered with status 302'],
    [sending('<html>'), 'it is not JSON'],
    [sending('{}'), 'it is JSON, but no JSON Web Key Set: it has no array "keys"'],
    [sending(`{"keys":[${' '.repeat(2_000_000)}]}`), 'it has more than 1048576 bytes'],
    [sending('{"keys":[]}'), 'it has no key for an algorithm that is allowed'],
  ] as const) {
    keys.respond = respond;
    await using command = await startCommand(environment({ AUTH_JWKS_URL: keys.url }));
    const line = await command.log(({ level }) => level === 'error', 'the cause');
    assert.equal(line['cause'], cause);
    assertNoKeys(await command.call('GET', '/api/work-items', { headers: [bearer(goodToken(pair))] }));
  }
  assert.equal(elsewhere.count, 0);
  assert.equal(backend.requests.length, 0);
});

test('a file has the keys; one that cannot be used ends the start', async () => {
  const file = join(folder, 'keys.json');
  writeFileSync(file, keySetOf(pair));
  {
    await using command = await startCommand(environment({ AUTH_JWKS_FILE: file }));
    const headers = [bearer(goodToken(pair))];
    assert.equal((await command.call('GET', '/api/work-items', { headers })).status, 200);
    assertNoToken(await command.call('GET', '/api/work-items'));
    // A new file is read when a token names its key.
    const next = createPair('key-2', 'RS256');
    writeFileSync(file, keySetOf(next));
    assert.equal(
      (await command.call('GET', '/api/work-items', { headers: [bearer(goodToken(next))] })).status,
      200,
    );
    assertInvalidToken(await command.call('GET', '/api/work-items', { headers }));
  }
  for (const [name, text, expected] of [
    ['absent.json', undefined, /ENOENT/],
    ['empty.json', '', /it is not JSON/],
    ['none.json', '{"keys":[]}', /it has no key/],
  ] as const) {
    if (text !== undefined) writeFileSync(join(folder, name), text);
    await using command = runCommand(
      ['serve'],
      environment({ AUTH_JWKS_FILE: join(folder, name), PORT: '0', ADMIN_PORT: '0' }),
    );
    assert.equal(await command.exitCode(), 1);
    assert.match(command.stderr, /AUTH_JWKS_FILE has no keys: /);
    assert.match(command.stderr, expected);
  }
});

test('workers have their keys each, and a reload fails no call', async () => {
  await using keys = await KeyServer.start(keySetOf(pair));
  await using command = await startCommand(environment({ AUTH_JWKS_URL: keys.url, WORKERS: '2' }));
  const headers = [bearer(goodToken(pair))];
  let isDone = false;
  let calls = 0;
  const work = async () => {
    while (!isDone) {
      const reply = await command.call('GET', '/api/work-items', { headers });
      assert.equal(reply.status, 200);
      calls += 1;
    }
  };
  const works = [work(), work()];
  command.signal('SIGHUP');
  await command.log(({ msg }) => String(msg).includes('reloaded'), 'the reload is done', 20_000);
  isDone = true;
  await Promise.all(works);
  assert.ok(calls > 10 && keys.count >= 4, `${calls} calls, ${keys.count} fetches`);
});

test('while the issuer is away new workers have the keys of those before, and no others', async () => {
  await using keys = await KeyServer.start(keySetOf(pair));
  await using elsewhere = await KeyServer.start('');
  elsewhere.respond = sending('', 500);
  const file = join(folder, 'outage.env');
  writeFileSync(file, `AUTH_JWKS_URL=${keys.url}\n`);
  await using command = await startCommand(environment({ SETTINGS_FILE: file, WORKERS: '2' }));
  const headers = [bearer(goodToken(pair))];
  const call = async () => await command.call('GET', '/api/work-items', { headers });
  const reloads = () => command.logs.filter(({ msg }) => String(msg).startsWith('reloaded')).length;
  assert.equal((await call()).status, 200);
  keys.respond = sending('', 500);
  // Twice: what came from another process goes on to the next.
  for (const count of [1, 2]) {
    command.signal('SIGHUP');
    await poll(() => reloads() === count, 'the reload is done', 20_000);
    const replies = await Promise.all(Array.from({ length: 8 }, call));
    assert.deepEqual(
      replies.map(({ status }) => status),
      replies.map(() => 200),
    );
    assert.match(await command.metrics(), /^work_item_gateway_keys_fetched_timestamp_seconds [1-9]/m);
  }
  writeFileSync(file, `AUTH_JWKS_URL=${elsewhere.url}\n`);
  command.signal('SIGHUP');
  await poll(() => reloads() === 3, 'the reload is done', 20_000);
  for (const reply of await Promise.all(Array.from({ length: 8 }, call))) assertNoKeys(reply);
});

test('`check` says which keys there are, and what keeps them away', async () => {
  await using keys = await KeyServer.start(
    keySetOf(pair, createPair('other\n', 'ES256'), createPair('x', 'ES384')),
  );
  const check = async (more: Record<string, string>) => {
    await using command = runCommand(['check'], environment(more));
    return { code: await command.exitCode(), stdout: command.stdout, stderr: command.stderr };
  };
  const well = await check({ AUTH_JWKS_URL: `${keys.url}?p=SECRET` });
  assert.deepEqual([well.code, well.stderr], [0, '']);
  assert.ok(
    well.stdout.endsWith(`keys: ${keys.url} has 2 that can be used\n  key-1: RS256\n  other\\u000a: ES256\n`),
    well.stdout,
  );
  const none = await check({ AUTH_JWKS_URL: keys.url, AUTH_ALGORITHMS: 'PS512' });
  assert.equal(none.code, 1);
  assert.match(none.stderr, /has none that can be used\n {2}AUTH_ALGORITHMS is PS512/);
  const away = await check({ AUTH_JWKS_URL: closedPort });
  assert.equal(away.code, 1);
  assert.match(away.stderr, /^keys: http:\/\/127\.0\.0\.1:1\/keys: connect ECONNREFUSED/);
  const missing = await check({ AUTH_JWKS_FILE: join(folder, 'nothing') });
  assert.equal(missing.code, 1);
  assert.match(missing.stderr, /ENOENT/);
});

test(
  'five clients with a thousand refused tokens each, sent in one go, keep another client waiting for 16 of each [D58]',
  { skip: process.platform !== 'linux' && 'reads /proc' },
  async () => {
    await using keys = await KeyServer.start(keySetOf(pair));
    await using command = await startCommand(environment({ AUTH_JWKS_URL: keys.url }));
    const { pid } = command.process;
    assert.ok(pid !== undefined);
    const floods = await Promise.all(Array.from({ length: 5 }, () => command.connect()));
    await using other = await command.connect();
    await command.call('GET', '/api/work-items', { headers: [['X-Request-Id', 'before']] });
    // It finds all of it at once: 64,960 bytes of each, which is one read.
    command.signal('SIGSTOP');
    await poll(() => stateOf(pid) === 'T', 'it is stopped');
    const count = 1015;
    const refused = 'GET /api/work-items HTTP/1.1\r\nHost:\r\nAuthorization: Bearer x\r\n\r\n';
    for (const client of floods) client.send(refused.repeat(count));
    other.send(requestBytes('GET', '/nope', { headers: [['X-Request-Id', 'other']] }));
    command.signal('SIGCONT');
    assert.equal((await other.reply()).status, 404);
    for (const client of floods) {
      for (let index = 0; index < count; index += 1) assertInvalidToken(await client.reply());
      client.destroy();
    }
    // In the order in which they were answered.
    const ids = () => command.logs.map(({ requestId }) => requestId).filter((id) => id !== undefined);
    await poll(() => ids().length === 1 + 5 * count + 1, 'all are in the log');
    const before = ids().indexOf('other') - ids().indexOf('before') - 1;
    assert.ok(before <= 5 * 16, `${before} were answered first`);
  },
);

type PathItem = Record<
  string,
  { security?: unknown; responses: Record<string, { headers: object } | undefined> } | undefined
>;

test('the OpenAPI document has the token: its scheme, scopes and replies; without tokens it has none', () => {
  const settings = {
    AUTH_ISSUER: issuerName,
    AUTH_AUDIENCE: audience,
    AUTH_JWKS_URL: 'https://issuer.example/keys',
    AUTH_SCOPES: 'update=items.write',
  };
  const text = printOpenApi(settings);
  const document = JSON.parse(text) as {
    security: unknown;
    paths: Record<string, PathItem | undefined>;
  };
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
      assert.deepEqual(
        new Map(found as [string, boolean][]).get(status) ?? false,
        hasChallenge,
        `${method} ${status}`,
      );
    }
  }
  assert.doesNotMatch(printOpenApi(), /401|bearer|www-authenticate/i);
});
