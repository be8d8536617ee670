// The OpenAPI document matches the gateway: every reply that a test can provoke at an operation is documented, and every
// documented reply can be provoked.

import assert from 'node:assert/strict';
import { after, describe, test } from 'node:test';
import { createGate } from '../helpers/changes.ts';
import { readOpenApi, type OpenApiOperation, type OpenApiResponse } from './openapi.ts';
import { startCommand } from '../helpers/command.ts';
import { requestBytes, type CallOptions, type Headers, type Reply } from '../helpers/raw-client.ts';
import { runHere } from '../helpers/run-cli.ts';
import {
  answer,
  type Answer,
  garbage,
  behind,
  noContent,
  resetPeer,
  wrongLength,
} from '../helpers/scripted-backend.ts';
import { useBackend } from '../helpers/suites.ts';

// A client's call of each operation; `{id}` is 5.
const calls: readonly [operationId: string, method: string, path: string, body?: string][] = [
  ['listWorkItems', 'GET', '/api/work-items'],
  ['createWorkItem', 'POST', '/api/work-items', '{"title":"Paint the fence"}'],
  ['readWorkItem', 'GET', '/api/work-items/5'],
  ['updateWorkItem', 'PUT', '/api/work-items/5', '{"title":"Paint the fence"}'],
  ['deleteWorkItem', 'DELETE', '/api/work-items/5'],
  ['getCollectionMethods', 'OPTIONS', '/api/work-items'],
  ['getItemMethods', 'OPTIONS', '/api/work-items/5'],
];

const settings = {
  REQUEST_BYTES_MAX: '1000',
  RESPONSE_BYTES_MAX: '2000',
  IN_FLIGHT_MAX: '1',
  REQUEST_HEADERS_TIMEOUT_MS: '500',
  // The Host of the test's client.
  ALLOWED_HOSTS: 'gateway.test',
};

const backend = await useBackend('{"id":5}');
const command = await startCommand({ ...settings, BACKEND_URL: backend.url, DOCS: 'true' });
after(() => command.stop());

const { stdout: printed } = await runHere(['openapi'], settings);
const { paths } = readOpenApi(printed);

interface Call {
  readonly method: string;
  readonly path: string;
  readonly options: CallOptions;
}

type Provocation = (call: Call) => Promise<Reply>;

/** Makes the call unchanged; the backend answers with `each`. */
const answered =
  (each: Answer): Provocation =>
  async ({ method, path, options }) => {
    backend.answers(each);
    return await command.call(method, path, options);
  };
const withHeaders =
  (...headers: Headers): Provocation =>
  ({ method, path, options }) =>
    command.call(method, path, { ...options, headers });
const withBody =
  (body: string | Uint8Array): Provocation =>
  ({ method, path }) =>
    command.call(method, path, { body });
const withId =
  (id: string): Provocation =>
  ({ method, path, options }) =>
    command.call(method, path.replace(/5$/, id), options);

const provocations: Readonly<Record<string, Provocation>> = {
  'all is well': answered(answer('{"id":5}')),
  'an answer without a body': answered(noContent),
  'an answer that is not JSON': answered(answer('<p>')),
  'an answer that is too large': answered(answer(`"${'x'.repeat(3000)}"`)),
  'an answer that is cut off': answered(wrongLength(5, '[1]')),
  'an answer that is not HTTP': answered(garbage),
  'a connection that is reset': answered(resetPeer()),
  ...Object.fromEntries(
    [201, 204, 302, 400, 401, 404, 409, 418, 429, 500, 503].map((status) => [
      `an answer with status ${status}`,
      answered(status === 204 ? noContent : answer('{"id":5}', { status })),
    ]),
  ),
  'a backend that is down': async ({ method, path, options }) => {
    await backend.stop({ reset: true });
    try {
      return await command.call(method, path, options);
    } finally {
      await backend.restart();
    }
  },
  'too many calls at the same time': async ({ method, path, options }) => {
    const gate = createGate();
    backend.answersOnce(behind(gate, answer('[]')));
    const held = command.call('GET', '/api/work-items');
    await backend.nextRequest();
    const reply = await command.call(method, path, options);
    gate.open();
    assert.equal((await held).status, 200);
    return reply;
  },
  'an id without digits': withId('abc'),
  'an empty id': withId(''),
  'an id that is not UTF-8': withId('%ff'),
  'a long id': withId('9'.repeat(40)),
  'a query': ({ method, path, options }) => command.call(method, `${path}?a=1`, options),
  'no body': ({ method, path }) => command.call(method, path),
  'a body that is not JSON': withBody('{"title":'),
  'a body that is not UTF-8': withBody(Buffer.from([0x22, 0xff, 0x22])),
  'a body that is too large': withBody(`"${'x'.repeat(2000)}"`),
  'a type that is not JSON': withHeaders(['Content-Type', 'text/plain']),
  'a request id': withHeaders(['X-Request-Id', 'contract-1']),
  'two hosts': withHeaders(['Host', 'a'], ['Host', 'b']),
  'another host': withHeaders(['Host', 'elsewhere.test']),
  'a page of another site': withHeaders(['Sec-Fetch-Site', 'cross-site']),
  'a page of this site': withHeaders(['Sec-Fetch-Site', 'same-origin']),
  'a header without a name': withHeaders(['', 'x']),
  'an expectation': withHeaders(['Expect', 'tea']),
  'a head that is too large': withHeaders(['X-Large', 'x'.repeat(20_000)]),
  'a head that does not end': async ({ method, path, options }) => {
    await using client = await command.connect();
    client.send(requestBytes(method, path, options).subarray(0, method.length + path.length + 20));
    return await client.reply();
  },
};

/** The status, followed by the message if the reply is an error, such as `400 Bad request`. */
function describeReply(status: number | string, body: unknown): string {
  const { error } = (body ?? {}) as { error?: string };
  return error === undefined ? String(status) : `${status} ${error}`;
}

function describeDocumented(operation: OpenApiOperation): string[] {
  return Object.entries(operation.responses).flatMap(([status, { content }]) =>
    content === undefined
      ? [describeReply(status, undefined)]
      : Object.values(content['application/json'].examples).map(({ value }) => describeReply(status, value)),
  );
}

// Not in the document: headers that describe the connection, and content-type, which is the key of `content`.
const undocumentedHeaders = ['connection', 'keep-alive', 'date', 'content-type'];

function assertHeaders(reply: Reply, { headers }: OpenApiResponse): void {
  const names = reply.headers.map(([name]) => name.toLowerCase());
  assert.deepEqual(
    names.filter((name) => !undocumentedHeaders.includes(name)).toSorted(),
    Object.keys(headers).toSorted(),
    `the headers of ${reply.statusLine}`,
  );
  for (const [name, { schema }] of Object.entries(headers)) {
    const value = reply.header(name) ?? '';
    if (schema.const !== undefined) assert.equal(value, schema.const, name);
    if (schema.pattern !== undefined) assert.match(value, new RegExp(schema.pattern), name);
    if (schema.type === 'integer') assert.match(value, /^\d+$/, name);
  }
}

describe('the document and the gateway', () => {
  test('the document has exactly the operations of the gateway', () => {
    const documented = Object.entries(paths).flatMap(([path, item]) =>
      Object.entries(item).map(
        ([method, { operationId }]) => `${operationId} ${method.toUpperCase()} ${path.replace('{id}', '5')}`,
      ),
    );
    assert.deepEqual(
      documented.toSorted(),
      calls.map(([operationId, method, path]) => `${operationId} ${method} ${path}`).toSorted(),
    );
  });

  test('without ALLOWED_HOSTS, only writes have a documented 403, for calls from pages of other sites [D56, D57]', async () => {
    const { stdout } = await runHere(['openapi']);
    const refused = Object.values(readOpenApi(stdout).paths)
      .flatMap((item) => Object.values(item))
      .filter(({ responses }) => responses['403'] !== undefined);
    const ids = refused.map(({ operationId }) => operationId);
    assert.deepEqual(ids, ['createWorkItem', 'updateWorkItem', 'deleteWorkItem']);
    for (const { responses } of refused) {
      assert.doesNotMatch(responses['403']?.description ?? '', /Host/);
    }
  });

  test('the gateway serves the document that the command prints', async () => {
    const { status, text } = await command.call('GET', '/openapi.json');
    assert.equal(status, 200);
    assert.equal(text, printed);
  });

  for (const [operationId, method, path, body] of calls) {
    test(`${operationId}: the replies are exactly the documented replies`, async () => {
      const operation = paths[path.replace('5', '{id}')]?.[method.toLowerCase()];
      assert.ok(operation, 'the operation is documented');
      const documented = describeDocumented(operation);
      const seen = new Set<string>();
      for (const [name, provoke] of Object.entries(provocations)) {
        backend.reset();
        backend.answers(answer('{"id":5}'));
        const reply = await provoke({ method, path, options: body === undefined ? {} : { body } });
        const value: unknown = reply.body.length === 0 ? undefined : JSON.parse(reply.text);
        const description = describeReply(reply.status, value);
        assert.ok(documented.includes(description), `${name}: ${description} is not documented`);
        const response = operation.responses[String(reply.status)] ?? assert.fail(description);
        assertHeaders(reply, response);
        if (response.content === undefined)
          assert.equal(reply.text, '', 'a reply has no body if the document has no content for it');
        else assert.equal(reply.header('content-type'), 'application/json');
        seen.add(description);
      }
      assert.deepEqual([...seen].toSorted(), documented.toSorted());
    });
  }
});
