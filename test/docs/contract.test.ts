// The OpenAPI document matches the gateway: every reply that a test can provoke at an operation is documented, and every
// documented reply can be provoked.

import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { createGate } from '../helpers/changes.ts';
import { readOpenApi, type OpenApiResponse } from './openapi.ts';
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
  ...{ REQUEST_BYTES_MAX: '1000', RESPONSE_BYTES_MAX: '2000', IN_FLIGHT_MAX: '1', REQUEST_HEADERS_TIMEOUT_MS: '500' },
  // The Host of the test's client.
  ALLOWED_HOSTS: 'gateway.test',
};

const backend = await useBackend('{"id":5}');
const command = await startCommand({ ...settings, BACKEND_URL: backend.url, DOCS: 'true' });
after(() => command.stop());

const { stdout: printed } = await runHere(['openapi'], settings);
const { paths } = readOpenApi(printed);

type Provocation = (method: string, path: string, options: CallOptions) => Promise<Reply>;

/** Makes the call unchanged; the backend answers with `each`. */
const answered =
  (each: Answer): Provocation =>
  (method, path, options) => {
    backend.answers(each);
    return command.call(method, path, options);
  };
const withHeaders =
  (...headers: Headers): Provocation =>
  (method, path, options) =>
    command.call(method, path, { ...options, headers });
const withBody =
  (body?: string | Uint8Array): Provocation =>
  (method, path) =>
    command.call(method, path, body === undefined ? {} : { body });
const withPath =
  (change: (path: string) => string): Provocation =>
  (method, path, options) =>
    command.call(method, change(path), options);
const withId = (id: string) => withPath((path) => path.replace(/5$/, id));

const whileBackendIsDown: Provocation = async (method, path, options) => {
  await backend.stop({ reset: true });
  try {
    return await command.call(method, path, options);
  } finally {
    await backend.restart();
  }
};

const whileFull: Provocation = async (method, path, options) => {
  const gate = createGate();
  backend.answersOnce(behind(gate, answer('[]')));
  const held = command.call('GET', '/api/work-items');
  await backend.nextRequest();
  const reply = await command.call(method, path, options);
  gate.open();
  assert.equal((await held).status, 200);
  return reply;
};

const withUnfinishedHead: Provocation = async (method, path, options) => {
  await using client = await command.connect();
  client.send(requestBytes(method, path, options).subarray(0, method.length + path.length + 20));
  return await client.reply();
};

const provocations: readonly Provocation[] = [
  ...[answer('{"id":5}'), noContent, answer('<p>'), answer(`"${'x'.repeat(3000)}"`), wrongLength(5, '[1]'), garbage, resetPeer()].map(answered),
  ...[201, 302, 400, 401, 404, 409, 418, 429, 500, 503].map((status) => answered(answer('{"id":5}', { status }))),
  ...['abc', '', '%ff', '9'.repeat(40)].map(withId),
  withPath((path) => `${path}?a=1`),
  // Bodies: none, not JSON, not UTF-8, too large.
  ...[undefined, '{"title":', Buffer.from([0x22, 0xff, 0x22]), `"${'x'.repeat(2000)}"`].map(withBody),
  withHeaders(['Content-Type', 'text/plain']),
  withHeaders(['X-Request-Id', 'contract-1']),
  withHeaders(['Host', 'a'], ['Host', 'b']),
  withHeaders(['Host', 'elsewhere.test']),
  withHeaders(['Sec-Fetch-Site', 'cross-site']),
  withHeaders(['Sec-Fetch-Site', 'same-origin']),
  withHeaders(['', 'x']),
  withHeaders(['Expect', 'tea']),
  withHeaders(['X-Large', 'x'.repeat(20_000)]),
  whileBackendIsDown,
  whileFull,
  withUnfinishedHead,
]; // prettier-ignore

/** The status, followed by the message if the reply is an error, such as `400 Bad request`. */
function describeReply(status: number | string, body?: unknown): string {
  const { error } = (body ?? {}) as { error?: string };
  return error === undefined ? String(status) : `${status} ${error}`;
}

// Not in the document: headers that describe the connection, and content-type, which is the key of `content`.
const undocumentedHeaders = ['connection', 'keep-alive', 'date', 'content-type'];

function assertHeaders(reply: Reply, { headers }: OpenApiResponse): void {
  const names = reply.headers.map(([name]) => name.toLowerCase()).filter((name) => !undocumentedHeaders.includes(name));
  assert.deepEqual(names.sort(), Object.keys(headers).sort(), `the headers of ${reply.statusLine}`);
  for (const [name, { schema }] of Object.entries(headers)) {
    const value = reply.header(name) ?? '';
    if (schema.const !== undefined) assert.equal(value, schema.const, name);
    if (schema.pattern !== undefined) assert.match(value, new RegExp(schema.pattern), name);
    if (schema.type === 'integer') assert.match(value, /^\d+$/, name);
  }
}

test('the gateway serves the document that the command prints, with exactly its operations', async () => {
  const { status, text } = await command.call('GET', '/openapi.json');
  assert.deepEqual([status, text], [200, printed]);
  const documented = Object.entries(paths).flatMap(([path, item]) =>
    Object.entries(item).map(([method, each]) => [each.operationId, method.toUpperCase(), path.replace('{id}', '5')]),
  );
  assert.deepEqual(documented.toSorted(), calls.map((each) => each.slice(0, 3)).toSorted());
});

test('without ALLOWED_HOSTS, only writes have a documented 403, for calls from pages of other sites [D56, D57]', async () => {
  const { stdout } = await runHere(['openapi']);
  const refused = Object.values(readOpenApi(stdout).paths)
    .flatMap((item) => Object.values(item))
    .filter(({ responses }) => responses['403'] !== undefined);
  const ids = refused.map(({ operationId }) => operationId);
  assert.deepEqual(ids, ['createWorkItem', 'updateWorkItem', 'deleteWorkItem']);
  for (const { responses } of refused) assert.doesNotMatch(responses['403']?.description ?? '', /Host/);
});

for (const [operationId, method, path, body] of calls) {
  test(`${operationId}: the replies are exactly the documented replies`, async () => {
    const { responses } = paths[path.replace('5', '{id}')]?.[method.toLowerCase()] ?? assert.fail('not documented');
    const documented = Object.entries(responses).flatMap(([status, { content }]) =>
      content === undefined
        ? [status]
        : Object.values(content['application/json'].examples).map(({ value }) => describeReply(status, value)),
    );
    const seen = new Set<string>();
    for (const [index, provoke] of provocations.entries()) {
      backend.reset();
      backend.answers(answer('{"id":5}'));
      const reply = await provoke(method, path, body === undefined ? {} : { body });
      const description = describeReply(reply.status, reply.body.length === 0 ? undefined : JSON.parse(reply.text));
      const response = responses[String(reply.status)] ?? assert.fail(`provocation ${index}: ${description}`);
      assert.ok(documented.includes(description), `provocation ${index}: ${description} is not documented`);
      assertHeaders(reply, response);
      if (response.content === undefined) assert.equal(reply.text, '');
      else assert.equal(reply.header('content-type'), 'application/json');
      seen.add(description);
    }
    assert.deepEqual([...seen].toSorted(), documented.toSorted());
  });
}
