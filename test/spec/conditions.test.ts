// Conditions on writes, which go to the backend or are refused [D67].

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { assertReply, badRequest, invalidId, operations, sorted, succeeded } from '../helpers/expected.ts';
import type { CallOptions, Headers } from '../helpers/raw-client.ts';
import { answer } from '../helpers/scripted-backend.ts';
import { forEachTarget, forEveryProtocol } from '../helpers/targets.ts';

const writes = operations.filter(({ method }) => method !== 'GET');
const reads = operations.filter(({ method }) => method === 'GET');
const names = ['if-match', 'if-none-match', 'if-unmodified-since', 'idempotency-key'];
const date = 'Sat, 29 Oct 1994 19:43:31 GMT';

/** Headers of a write, and the conditions that the backend gets; default: the same. */
const passed: [headers: Headers, atBackend?: Headers][] = [
  [[['If-Match', '"a"']]],
  [[['IF-MATCH', '*']]],
  [[['If-Match', '"a", W/"b,c" ,"d"']]],
  [[['If-Match', '"a"'], ['If-Match', '"b"']], [['if-match', '"a", "b"']]],
  [[['If-None-Match', '"a"'], ['X', '1'], ['if-none-match', '"b"']], [['if-none-match', '"a", "b"']]],
  [[['If-None-Match', '*']]],
  [[['If-Unmodified-Since', date]]],
  [[['If-Unmodified-Since', 'Sunday, 06-Nov-94 08:49:37 GMT']]],
  [[['If-Unmodified-Since', 'Sun Nov  6 08:49:37 1994']]],
  [[['Idempotency-Key', '8e03978e-40d5-43dd-bc93-6894a57f9324']]],
  [[['Idempotency-Key', '"a, \\"b"']]],
  [[['If-Match', '"a"'], ['If-None-Match', '"b"'], ['If-Unmodified-Since', date], ['Idempotency-Key', 'k']]],
  // A tag that is the name of another condition.
  [[['If-Match', 'if-none-match'], ['If-None-Match', '"b"']]],
  [[['If-Match', `"${'a'.repeat(1_022)}"`]]],
]; // prettier-ignore

const tag = (length: number, letter = 'a') => `"${letter.repeat(length - 2)}"`;
const refused: Headers[] = [
  [['If-Match', tag(1_025)]],
  [['If-None-Match', tag(602)], ['If-None-Match', tag(421, 'b')]],
  [['Idempotency-Key', 'k'.repeat(1_025)]],
  [['If-Match', '"\xe9"']],
  [['If-Match', '"a",\t"b"']],
  [['If-Match', '']],
  [['Idempotency-Key', '']],
  ...[date, 'Sun Nov  6 08:49:37 1994'].map((each): Headers => [['If-Unmodified-Since', each], ['If-Unmodified-Since', each]]),
  ...[['a', 'b'], ['a"b', 'c"d'], ['"a"', 'b"c,d"'], ['"a"', '"a"']].map((keys) => keys.map((key) => ['Idempotency-Key', key] as const)),
]; // prettier-ignore

forEveryProtocol((target) => {
  const served = async ({ method, path, options, status, body }: (typeof operations)[number], headers: Headers) => {
    target().backend.answers(answer('{"id":5}'));
    assertReply(await target().call(method, path, { ...options, headers }), status, body);
    const call = await target().backend.nextRequest();
    return sorted(call.headers.filter(([name]) => names.includes(name.toLowerCase())));
  };
  const assertRefused = async (method: string, path: string, options: CallOptions) =>
    assertReply(await target().call(method, path, options), 400, badRequest);

  for (const operation of writes) {
    test(`${operation.name}: the backend gets the conditions; an invalid condition is 400 without a backend call [D67]`, async () => {
      for (const [headers, atBackend = headers] of passed) {
        assert.deepEqual(await served(operation, headers), sorted(atBackend));
      }
      const { method, path, options } = operation;
      await target().withoutBackendCall(async () => {
        for (const headers of refused) {
          // Some hosts replace the tab.
          if (headers[0]?.[1].includes('\t') && target().kind === 'fetch') continue;
          await assertRefused(method, path, { ...options, headers });
        }
        target().backend.answers(answer('[]'));
      });
    });
  }

  for (const operation of reads) {
    test(`${operation.name}: conditions are ignored, valid or not [D67]`, async () => {
      for (const headers of [...passed.map(([each]) => each), ...refused]) {
        assert.deepEqual(await served(operation, [...headers, ['Content-Range', 'bytes 0-1/2']]), []);
      }
    });
  }

  test('a PUT with a content-range is 400 without a backend call; a POST or DELETE ignores it [RFC 9110, 14.5; D67]', async () => {
    for (const value of ['bytes 0-1/2', '']) {
      const headers: Headers = [['Content-Range', value]];
      await target().withoutBackendCall(() => assertRefused('PUT', '/api/work-items/5', { headers, body: '{}' }));
      target().backend.reset();
      for (const operation of writes.filter(({ method }) => method !== 'PUT')) {
        assert.deepEqual(await served(operation, headers), []);
      }
      assert.ok(target().backend.requests.every((call) => call.header('content-range') === undefined));
      target().backend.answers(answer('[]'));
    }
  });

  test('an invalid id is reported before an invalid condition, and the next request is served [D9, D67]', async () => {
    await using client = await target().client();
    const headers: Headers = [['If-Match', '']];
    assertReply(await client.call('PUT', '/api/work-items/x', { headers, body: '{}' }), 400, invalidId);
    assertReply(await client.call('PUT', '/api/work-items/5', { headers, body: '{}' }), 400, badRequest);
    assertReply(await client.call('PUT', '/api/work-items/5', { body: '{}' }), 200, succeeded);
  });

  test("the backend's 412 is the operation's 500, also with an answer for the client [spec 7, D67]", async () => {
    for (const { method, path, options, failure } of writes) {
      target().backend.answersOnce(answer('{"type":"precondition"}', { status: 412 }));
      const headers: Headers = [['If-Match', '"old"']];
      assertReply(await target().call(method, path, { ...options, headers }), 500, failure);
    }
  });
});

forEachTarget(
  (target) => {
    test('a write whose connection field names its condition is 400; a read is served [RFC 9110, 7.6.1; D67]', async () => {
      for (const [method, connection, status] of [
        ['PUT', 'close, If-Match', 400],
        ['PUT', 'if-match', 400],
        // Another condition, which is absent, and another field.
        ['PUT', 'keep-alive, if-none-match', 200],
        ['PUT', 'keep-alive, x-if-match', 200],
        ['GET', 'if-match', 200],
      ] as const) {
        const headers: Headers = [['Connection', connection], ['If-Match', '"a"']]; // prettier-ignore
        const body = method === 'PUT' ? { body: '{}' } : {};
        const before = target().backend.requests.length;
        assert.equal(
          (await target().call(method, '/api/work-items/5', { headers, ...body })).status,
          status,
          connection,
        );
        assert.equal(target().backend.requests.length - before, status === 400 ? 0 : 1);
      }
    });

    test('a client that expects 100 Continue gets the 400 at once [D67]', async () => {
      await using client = await target().connect();
      client.send(
        'PUT /api/work-items/5 HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Range: bytes 0-1/2\r\n',
      );
      client.send('Content-Length: 2\r\n\r\n');
      assertReply(await client.reply(), 400, badRequest);
    });
  },
  {},
  { kinds: ['in-process'] },
);
