// The OpenAPI document: valid, accepted by a linter, and with what the settings in force require. contract.test.ts compares it
// with the gateway.

import { Validator } from '@seriousme/openapi-schema-validator';
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { test } from 'node:test';
import { promisify } from 'node:util';
import { runHere } from '../helpers/run-cli.ts';
import { useFolder } from '../helpers/suites.ts';
import { readOpenApi } from './openapi.ts';

const root = resolve(import.meta.dirname, '../..');
const folder = useFolder();

/** Prints the document, and returns its text and its operations; the text must be valid. */
async function print(environment: NodeJS.ProcessEnv, ...flags: readonly string[]) {
  const { code, stdout: text, output } = await runHere(['openapi', ...flags], environment);
  assert.equal(code, 0, output);
  const { valid, errors } = await new Validator().validate(text);
  assert.deepEqual([valid, errors ?? []], [true, []]);
  const { paths, info, openapi } = readOpenApi(text);
  const all = Object.values(paths).flatMap((path) => Object.entries(path));
  return { text, paths, info, openapi, all };
}

const { text: printed, paths, info, openapi, all } = await print({});

test('it is OpenAPI 3.1 with the version of the package, and the linter accepts it with its strictest rules', async () => {
  assert.match(openapi, /^3\.1\./);
  const { version } = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8')) as { version: string };
  assert.equal(info.version, version);
  const file = join(folder, 'openapi.json');
  writeFileSync(file, printed);
  const { stdout, stderr } = await promisify(execFile)(
    process.execPath,
    [join(root, 'node_modules/@redocly/cli/bin/cli.js'), 'lint', file, '--extends=recommended-strict'],
    {
      cwd: folder,
      env: { PATH: process.env['PATH'], REDOCLY_TELEMETRY: 'off', REDOCLY_SUPPRESS_UPDATE_NOTICE: 'true' },
    },
  );
  assert.match(stdout + stderr, /Your API description is valid/);
  assert.doesNotMatch(stdout + stderr, /warning/i);
});

test('an id has 64 bits, and the list has an inline schema, so that generated clients in C# can use both', () => {
  const [read, list] = [paths['/api/work-items/{id}']?.['get'], paths['/api/work-items']?.['get']];
  assert.deepEqual(read?.parameters.find(({ name }) => name === 'id')?.schema, { type: 'integer', format: 'int64' });
  assert.deepEqual(list?.responses['200']?.content?.['application/json'].schema, {});
  const { components } = JSON.parse(printed) as { components: { schemas: object } };
  assert.deepEqual(Object.keys(components.schemas), ['WorkItem', 'Success', 'Error']);
});

test('with a rate limit, every operation except OPTIONS has a 429 with all headers [D46]', async () => {
  const limited = await print({ RATE_LIMIT: '1000/5m' });
  const ofReplies = ['x-request-id', 'content-length', 'cache-control', 'x-content-type-options', 'retry-after', 'ratelimit-policy', 'ratelimit']; // prettier-ignore
  for (const [method, { responses }] of limited.all) {
    assert.deepEqual(Object.keys(responses['429']?.headers ?? {}), method === 'options' ? [] : ofReplies, method);
  }
  const statusesWith = (item: string, method: string) =>
    Object.entries(limited.paths[item]?.[method]?.responses ?? {})
      .filter(([, { headers }]) => Object.hasOwn(headers, 'ratelimit'))
      .map(([status]) => Number(status));
  assert.deepEqual(statusesWith('/api/work-items', 'post'), [201, 400, 408, 413, 429, 500, 503]);
  assert.deepEqual(statusesWith('/api/work-items/{id}', 'get'), [200, 400, 404, 408, 429, 500, 503]);
  assert.deepEqual(statusesWith('/api/work-items', 'options'), [408]);
  assert.match(limited.info.description, /1,000 in 300 s, then 429/);
  assert.doesNotMatch(printed, /429|ratelimit/i);
});

test('it states the limits in force and how ids are parsed; a flag takes precedence over a variable', async () => {
  const limits = {
    ...{ REQUEST_BYTES_MAX: '1', REQUEST_HEAD_BYTES_MAX: '4321', RESPONSE_BYTES_MAX: '123456' },
    ...{ IN_FLIGHT_MAX: '77', BUFFERED_BYTES_MAX: '987654', ITEM_ID_PARSING: 'whole' },
    ...{ BACKEND_TIMEOUT_MS: '1500', REQUEST_HEADERS_TIMEOUT_MS: '2500', REQUEST_TIMEOUT_MS: '3500' },
  };
  const limited = await print(limits, '--request-bytes-max', '5432');
  const create = limited.paths['/api/work-items']?.['post'] ?? assert.fail('create');
  assert.match(create.requestBody?.description ?? '', / 5,432 bytes/);
  for (const [status, pattern] of Object.entries({
    413: / 5,432 bytes/,
    431: / 4,321 bytes/,
    503: / 77 calls.* 987,654 bytes/,
    500: / 1\.5 s.* 123,456 bytes/,
    408: / 2\.5 s.* 3\.5 s/,
  }))
    assert.match(create.responses[status]?.description ?? '', pattern);
  for (const limit of ['5,432', '4,321', '77', '1.5 s', '2.5 s', '3.5 s']) {
    assert.ok(limited.info.description.includes(limit), limit);
  }
  assert.match(printed, /12abc/);
  assert.doesNotMatch(limited.text, /12abc/);
});

test('writes, and only they, have the conditions as parameters, and a 400 for those that are refused [D67]', () => {
  const conditions = ['if-match', 'if-none-match', 'if-unmodified-since', 'idempotency-key'];
  for (const [method, { parameters, responses }] of all) {
    const isWrite = ['post', 'put', 'delete'].includes(method);
    const named = parameters.map(({ name }) => name).filter((name) => conditions.includes(name));
    assert.deepEqual(named, isWrite ? conditions : [], method);
    const description = responses['400']?.description ?? '';
    assert.equal(description.includes('condition'), isWrite, method);
    assert.equal(description.includes('Content-Range'), method === 'put', method);
  }
});

test('it has the CORS headers if pages of other origins may call, and only then [D45]', async () => {
  assert.doesNotMatch(printed, /access-control|"vary"|CORS/i);
  const [replies, preflights] = [
    ['allow-origin', 'expose-headers'],
    ['allow-methods', 'allow-headers', 'max-age'],
  ];
  for (const [environment, own] of [
    [
      { CORS_ORIGINS: 'https://app.example.com', CORS_CREDENTIALS: 'true' },
      ['vary', 'access-control-allow-credentials'],
    ],
    [{ CORS_ORIGINS: '*', CORS_MAX_AGE_S: '5' }, []],
  ] as const) {
    const { paths: allowed } = await print(environment);
    for (const [method, { responses }] of Object.entries(allowed['/api/work-items/{id}'] ?? {})) {
      for (const [status, { headers }] of Object.entries(responses)) {
        const names = Object.keys(headers).filter((name) => /^(?:vary|access-control-.*)$/.test(name));
        const common = [...replies, ...(status === '204' ? preflights : [])].map((name) => `access-control-${name}`);
        assert.deepEqual(names.sort(), [...own, ...common].sort(), `${method} ${status}`);
      }
    }
  }
});

test('an invalid setting is an error, and no document is printed', async () => {
  const { code, stdout, stderr } = await runHere(['openapi'], { REQUEST_BYTES_MAX: 'x' });
  assert.deepEqual([code, stdout], [1, '']);
  assert.match(stderr, /REQUEST_BYTES_MAX is "x"/);
});
