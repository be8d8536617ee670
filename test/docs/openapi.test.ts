// The OpenAPI document: valid, accepted by a linter, with the limits in force, and usable for a typed client.

import { Validator } from '@seriousme/openapi-schema-validator';
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { after, describe, test } from 'node:test';
import { promisify } from 'node:util';
import { readOpenApi } from './openapi.ts';
import { runHere } from '../helpers/run-cli.ts';

const run = promisify(execFile);
const root = resolve(import.meta.dirname, '../..');
// The folder is within the repository, so that generated code can import packages.
const folder = join(root, `test-output/openapi-${process.pid}`);
mkdirSync(folder, { recursive: true });
after(() => rmSync(folder, { recursive: true }));

async function printOpenApi(environment: NodeJS.ProcessEnv, ...flags: readonly string[]): Promise<string> {
  const { code, stdout, output } = await runHere(['openapi', ...flags], environment);
  assert.equal(code, 0, output);
  return stdout;
}

const printed = await printOpenApi({});
const document = readOpenApi(printed);

describe('the OpenAPI document', () => {
  test('it is valid OpenAPI 3.1', async () => {
    const { valid, errors } = await new Validator().validate(printed);
    assert.deepEqual(errors ?? [], []);
    assert.equal(valid, true);
    assert.match(document.openapi, /^3\.1\./);
  });

  test('the linter accepts it, with its strictest rules', async () => {
    const file = join(folder, 'openapi.json');
    writeFileSync(file, printed);
    const { stdout, stderr } = await run(
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

  test('it has only one copy of each reply that operations share', () => {
    for (const [message, operations] of [
      ['Request timeout', 7],
      ['Expectation failed', 7],
      ['Request header fields too large', 7],
      ['Service unavailable', 5],
    ] as const) {
      assert.equal(printed.split(`"error": "${message}"`).length - 1, 1, message);
      const all = Object.values(document.paths).flatMap((path) => Object.values(path));
      const having = all.filter(({ responses }) => JSON.stringify(responses).includes(`"error":"${message}"`));
      assert.equal(having.length, operations, message);
    }
  });

  test('with a rate limit, every operation except OPTIONS has a 429 with all headers [D46]', async () => {
    const text = await printOpenApi({ RATE_LIMIT: '1000/5m' });
    assert.deepEqual((await new Validator().validate(text)).errors ?? [], []);
    const limited = Object.values(readOpenApi(text).paths).flatMap((item) => Object.entries(item));
    assert.deepEqual(
      limited.map(([method, { responses }]) => [method, Object.keys(responses['429']?.headers ?? {})]),
      limited.map(([method]) => [
        method,
        method === 'options'
          ? []
          : ['x-request-id', 'content-length', 'cache-control', 'x-content-type-options', 'retry-after', 'ratelimit-policy', 'ratelimit'],
      ]),
    ); // prettier-ignore
    const rateHeadersOf = (item: string, method: string) => {
      const { responses } = readOpenApi(text).paths[item]?.[method] ?? assert.fail(method);
      return Object.entries(responses)
        .filter(([, { headers }]) => Object.hasOwn(headers, 'ratelimit'))
        .map(([status]) => Number(status));
    };
    assert.deepEqual(rateHeadersOf('/api/work-items', 'post'), [201, 400, 408, 413, 429, 500, 503]);
    assert.deepEqual(rateHeadersOf('/api/work-items/{id}', 'get'), [200, 400, 404, 408, 429, 500, 503]);
    assert.deepEqual(rateHeadersOf('/api/work-items', 'options'), [408]);
    const shared = (JSON.parse(text) as { components: { responses: Record<string, { headers: object }> } }).components
      .responses;
    assert.deepEqual(
      Object.keys(shared).filter((each) => Object.hasOwn(shared[each]?.headers ?? {}, 'ratelimit')),
      ['RequestTimeout', 'ServiceUnavailable'],
    ); // prettier-ignore
    assert.match(readOpenApi(text).info.description, /1,000 in 300 s, then 429/);
    assert.doesNotMatch(printed, /429|ratelimit/i);
  });

  test('its version is that of the package', () => {
    const { version } = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8')) as { version: string };
    assert.equal(document.info.version, version);
  });

  test('it states the limits in force; a flag takes precedence over a variable', async () => {
    const text = await printOpenApi(
      {
        REQUEST_BYTES_MAX: '1',
        REQUEST_HEAD_BYTES_MAX: '4321',
        RESPONSE_BYTES_MAX: '123456',
        IN_FLIGHT_MAX: '77',
        BUFFERED_BYTES_MAX: '987654',
        BACKEND_TIMEOUT_MS: '1500',
        REQUEST_HEADERS_TIMEOUT_MS: '2500',
        REQUEST_TIMEOUT_MS: '3500',
      },
      '--request-bytes-max',
      '5432',
    );
    const { paths, info } = readOpenApi(text);
    const create = paths['/api/work-items']?.['post'] ?? assert.fail('create');
    const description = (status: number) => create.responses[String(status)]?.description ?? '';
    assert.match(create.requestBody?.description ?? '', / 5,432 bytes/);
    assert.match(description(413), / 5,432 bytes/);
    assert.match(description(431), / 4,321 bytes/);
    assert.match(description(503), / 77 calls.* 987,654 bytes/);
    assert.match(description(500), / 1\.5 s.* 123,456 bytes/);
    assert.match(description(408), / 2\.5 s.* 3\.5 s/);
    for (const limit of ['5,432', '4,321', '77', '1.5 s', '2.5 s', '3.5 s']) {
      assert.ok(info.description.includes(limit), limit);
    }
  });

  test('it states how ids are parsed', async () => {
    assert.match(printed, /12abc/);
    assert.doesNotMatch(await printOpenApi({ ITEM_ID_PARSING: 'whole' }), /12abc/);
  });

  test('writes, and only they, have the conditions as parameters, and a 400 for those that are refused [D67]', () => {
    const conditions = ['if-match', 'if-none-match', 'if-unmodified-since', 'idempotency-key'];
    const { paths, components } = JSON.parse(printed) as {
      paths: Record<
        string,
        Record<string, { parameters: { $ref: string }[]; responses: Record<string, { description: string }> }>
      >;
      components: { parameters: Record<string, { name: string; in: string }> };
    };
    for (const operations of Object.values(paths)) {
      for (const [method, { parameters, responses }] of Object.entries(operations)) {
        const named = parameters.map(({ $ref }) => components.parameters[$ref.split('/').at(-1) ?? '']?.name ?? '');
        const isWrite = ['post', 'put', 'delete'].includes(method);
        assert.deepEqual(
          named.filter((name) => conditions.includes(name)),
          isWrite ? conditions : [],
          method,
        );
        const description = responses['400']?.description ?? '';
        assert.equal(description.includes('condition'), isWrite, method);
        assert.equal(description.includes('Content-Range'), method === 'put', method);
      }
    }
  });

  test('it has the CORS headers if pages of other origins may call, and only then [D45]', async () => {
    assert.doesNotMatch(printed, /access-control|"vary"|CORS/i);
    for (const environment of [
      { CORS_ORIGINS: 'https://app.example.com', CORS_CREDENTIALS: 'true' },
      { CORS_ORIGINS: '*', CORS_MAX_AGE_S: '5' },
    ]) {
      const text = await printOpenApi(environment);
      assert.equal((await new Validator().validate(text)).valid, true);
      const { paths } = readOpenApi(text);
      const isForAny = environment.CORS_ORIGINS === '*';
      const own = isForAny ? [] : ['vary', 'access-control-allow-credentials'];
      const ofReplies = ['access-control-allow-origin', 'access-control-expose-headers', ...own];
      const ofPreflights = ['methods', 'headers', 'max-age'].map((name) =>
        name === 'max-age' ? `access-control-${name}` : `access-control-allow-${name}`,
      );
      for (const [method, operation] of Object.entries(paths['/api/work-items/{id}'] ?? {})) {
        for (const [status, { headers }] of Object.entries(operation.responses)) {
          const names = Object.keys(headers).filter((name) => /^(?:vary|access-control-.*)$/.test(name));
          const expected = status === '204' ? [...ofReplies, ...ofPreflights] : ofReplies;
          assert.deepEqual(names.sort(), expected.toSorted(), `${method} ${status}`);
        }
      }
    }
  });

  test('an id has 64 bits, and the list has an inline schema, so that generated clients in C# can use both', () => {
    const { paths, components } = JSON.parse(printed) as {
      paths: Record<
        string,
        Record<string, { responses: Record<string, { content: Record<string, { schema: object }> }> }>
      >;
      components: { parameters: { Id: { schema: object } }; schemas: object };
    };
    assert.deepEqual(components.parameters.Id.schema, { type: 'integer', format: 'int64' });
    assert.deepEqual(paths['/api/work-items']?.['get']?.responses['200']?.content['application/json']?.schema, {});
    assert.deepEqual(Object.keys(components.schemas), ['WorkItem', 'Success', 'Error']);
  });

  test('an invalid setting is an error, and no document is printed', async () => {
    const { code, stdout, stderr } = await runHere(['openapi'], { REQUEST_BYTES_MAX: 'x' });
    assert.deepEqual([code, stdout], [1, '']);
    assert.match(stderr, /REQUEST_BYTES_MAX is "x"/);
  });
});
