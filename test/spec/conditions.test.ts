// Conditions on writes, which go to the backend or are refused [D67].

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { assertReply, badRequest, invalidId, operations, succeeded } from '../helpers/expected.ts';
import { requestBytes, type Headers } from '../helpers/raw-client.ts';
import { answer, type BackendRequest } from '../helpers/scripted-backend.ts';
import { forEachTarget, forEveryProtocol } from '../helpers/targets.ts';

const writes = operations.filter(({ method }) => method !== 'GET');
const reads = operations.filter(({ method }) => method === 'GET');
const names = ['if-match', 'if-none-match', 'if-unmodified-since', 'idempotency-key'];
const date = 'Sat, 29 Oct 1994 19:43:31 GMT';

const conditionsOf = (call: BackendRequest): Headers =>
  call.headers.filter(([name]) => names.includes(name.toLowerCase()));

const passed: [title: string, headers: Headers, atBackend: Headers][] = [
  ['if-match', [['If-Match', '"a"']], [['if-match', '"a"']]],
  ['if-match: *', [['IF-MATCH', '*']], [['if-match', '*']]],
  ['a list of tags', [['If-Match', '"a", W/"b,c" ,"d"']], [['if-match', '"a", W/"b,c" ,"d"']]],
  ['if-match on two lines', [['If-Match', '"a"'], ['If-Match', '"b"']], [['if-match', '"a", "b"']]],
  ['if-none-match on two lines', [['If-None-Match', '"a"'], ['X', '1'], ['if-none-match', '"b"']], [['if-none-match', '"a", "b"']]],
  ['if-none-match: *', [['If-None-Match', '*']], [['if-none-match', '*']]],
  ['if-unmodified-since', [['If-Unmodified-Since', date]], [['if-unmodified-since', date]]],
  ['an old form of a date', [['If-Unmodified-Since', 'Sunday, 06-Nov-94 08:49:37 GMT']], [['if-unmodified-since', 'Sunday, 06-Nov-94 08:49:37 GMT']]],
  ['a date without a comma', [['If-Unmodified-Since', 'Sun Nov  6 08:49:37 1994']], [['if-unmodified-since', 'Sun Nov  6 08:49:37 1994']]],
  ['a plain key', [['Idempotency-Key', '8e03978e-40d5-43dd-bc93-6894a57f9324']], [['idempotency-key', '8e03978e-40d5-43dd-bc93-6894a57f9324']]],
  ['a key in quotes with a comma', [['Idempotency-Key', '"a, \\"b"']], [['idempotency-key', '"a, \\"b"']]],
  ['all four', [['If-Match', '"a"'], ['If-None-Match', '"b"'], ['If-Unmodified-Since', date], ['Idempotency-Key', 'k']],
    [['if-match', '"a"'], ['if-none-match', '"b"'], ['if-unmodified-since', date], ['idempotency-key', 'k']]],
  ['a tag that is the name of another condition', [['If-Match', 'if-none-match'], ['If-None-Match', '"b"']], [['if-match', 'if-none-match'], ['if-none-match', '"b"']]],
  ['1,024 bytes', [['If-Match', `"${'a'.repeat(1_022)}"`]], [['if-match', `"${'a'.repeat(1_022)}"`]]],
]; // prettier-ignore

const refused: [title: string, headers: Headers][] = [
  ['1,025 bytes', [['If-Match', `"${'a'.repeat(1_023)}"`]]],
  ['1,025 bytes on two lines', [['If-None-Match', `"${'a'.repeat(600)}"`], ['If-None-Match', `"${'b'.repeat(419)}"`]]],
  ['a key of 1,025 bytes', [['Idempotency-Key', 'k'.repeat(1_025)]]],
  ['a byte above ASCII', [['If-Match', '"\xe9"']]],
  ['a tab', [['If-Match', '"a",\t"b"']]],
  ['an empty value', [['If-Match', '']]],
  ['an empty key', [['Idempotency-Key', '']]],
  ['two dates', [['If-Unmodified-Since', date], ['If-Unmodified-Since', date]]],
  ['two old dates', [['If-Unmodified-Since', 'Sun Nov  6 08:49:37 1994'], ['If-Unmodified-Since', 'Sun Nov  6 08:49:37 1994']]],
  ['two keys', [['Idempotency-Key', 'a'], ['Idempotency-Key', 'b']]],
  ['two keys with a quotation mark each', [['Idempotency-Key', 'a"b'], ['Idempotency-Key', 'c"d']]],
  ['two keys of which one is in quotes', [['Idempotency-Key', '"a"'], ['Idempotency-Key', 'b"c,d"']]],
  ['two keys in quotes', [['Idempotency-Key', '"a"'], ['Idempotency-Key', '"a"']]],
]; // prettier-ignore

forEveryProtocol((target) => {
  const served = async ({ method, path, options }: (typeof operations)[number], headers: Headers) => {
    target().backend.answers(answer('{"id":5}'));
    const reply = await target().call(method, path, { ...options, headers });
    return { reply, call: await target().backend.nextRequest() };
  };

  for (const operation of writes) {
    test(`${operation.name}: the backend gets the conditions [D67]`, async () => {
      for (const [title, headers, atBackend] of passed) {
        const { reply, call } = await served(operation, headers);
        assertReply(reply, operation.status, operation.body);
        assert.deepEqual(conditionsOf(call).toSorted(), atBackend.toSorted(), title);
      }
    });

    test(`${operation.name}: an invalid condition is 400, and the backend is not called [D67]`, async () => {
      const { method, path, options } = operation;
      for (const [title, headers] of refused) {
        // Some hosts replace the tab.
        if (title.includes('tab') && target().kind === 'fetch') continue;
        assertReply(await target().call(method, path, { ...options, headers }), 400, badRequest);
      }
      await target().withoutBackendCall(() => Promise.resolve());
      assert.equal(target().backend.requests.length, 1, 'the known call');
    });
  }

  for (const operation of reads) {
    test(`${operation.name}: conditions are ignored, valid or not [D67]`, async () => {
      for (const [, headers] of [...passed, ...refused]) {
        const { reply, call } = await served(operation, [...headers, ['Content-Range', 'bytes 0-1/2']]);
        assertReply(reply, operation.status, operation.body);
        assert.deepEqual(conditionsOf(call), []);
      }
    });
  }

  for (const value of ['bytes 0-1/2', '']) {
    test(`a PUT with the content-range "${value}" is 400, and the backend is not called [RFC 9110, 14.5; D67]`, async () => {
      const headers: Headers = [['Content-Range', value]];
      const reply = await target().withoutBackendCall(() =>
        target().call('PUT', '/api/work-items/5', { headers, body: '{}' }),
      );
      assertReply(reply, 400, badRequest);
    });
  }

  test('a POST or DELETE ignores a content-range, which does not reach the backend [D67]', async () => {
    for (const operation of writes.filter(({ method }) => method !== 'PUT')) {
      const { reply, call } = await served(operation, [['Content-Range', 'bytes 0-1/2']]);
      assert.equal(reply.status, operation.status);
      assert.equal(call.header('content-range'), undefined);
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

describe('over HTTP/1.1', () => {
  forEachTarget(
    (target) => {
      for (const [title, connection, isRefused] of [
        ['a condition', 'close, If-Match', true],
        ['a condition alone', 'if-match', true],
        ['another condition, which is absent', 'keep-alive, if-none-match', false],
        ['another field', 'keep-alive, x-if-match', false],
      ] as const) {
        test(`a write whose connection field names ${title} ${isRefused ? 'is 400' : 'is served'} [RFC 9110, 7.6.1; D67]`, async () => {
          const bytes = requestBytes('PUT', '/api/work-items/5', {
            headers: [['Connection', connection], ['If-Match', '"a"']],
            body: '{}',
          }); // prettier-ignore
          await using client = await target().connect();
          client.send(bytes);
          const reply = await client.reply();
          assertReply(reply, isRefused ? 400 : 200, isRefused ? badRequest : succeeded);
          assert.equal(target().backend.requests.length, isRefused ? 0 : 1);
        });
      }

      test('a read whose connection field names a condition is served [D67]', async () => {
        const headers: Headers = [['Connection', 'if-match'], ['If-Match', '"a"']]; // prettier-ignore
        assert.equal((await target().call('GET', '/api/work-items/5', { headers })).status, 200);
      });

      test('a client that expects 100 Continue gets the 400 at once [D67]', async () => {
        await using client = await target().connect();
        client.send(
          'PUT /api/work-items/5 HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Range: bytes 0-1/2\r\nContent-Length: 2\r\n\r\n',
        );
        assertReply(await client.reply(), 400, badRequest);
      });
    },
    {},
    { kinds: ['in-process', 'command'] },
  );
});
