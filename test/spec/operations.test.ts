// The five operations, their backend calls, and every row of the error table [spec 1, 2, 4, 5, 7].

import assert from 'node:assert/strict';
import { test } from 'node:test';
import {
  assertReply,
  discarding,
  invalidId,
  itemNotFound,
  operation,
  operations,
  passing,
  type Operation,
} from '../helpers/expected.ts';
import type { Headers } from '../helpers/raw-client.ts';
import { answer, noContent, raw, resetPeer, type Answer } from '../helpers/scripted-backend.ts';
import { forEveryProtocol } from '../helpers/targets.ts';

const secrets: Headers = [
  ['Content-Type', 'text/plain'], ['Authorization', 'Bearer secret'], ['Proxy-Authorization', 'Basic c2VjcmV0'], ['Cookie', 'a=secret'],
]; // prettier-ignore
const ofTheBackend: Headers = [
  ['X-Secret', 'SECRET'], ['Retry-After', '120'], ['Set-Cookie', 'a=SECRET'], ['WWW-Authenticate', 'Basic realm="SECRET"'],
]; // prettier-ignore
const failureStatuses = [400, 401, 403, 404, 405, 409, 410, 415, 418, 422, 429, 500, 501, 502, 503, 504];

forEveryProtocol((target) => {
  /** Makes a call of the operation, which the backend answers with `backendAnswer`. */
  const call = async ({ method, path, options }: Operation, backendAnswer: Answer, headers: Headers = []) => {
    target().backend.answersOnce(backendAnswer);
    return await target().call(method, path, { ...options, headers });
  };

  for (const each of operations) {
    const { name, method, path, options, backendTarget, status, body, failure } = each;

    test(`operation ${name}: ${method} ${path} answers ${status} and makes one call, ${method} {backend_url}${backendTarget} [spec 1, 4, 5]`, async () => {
      for (const count of [1, 2]) {
        assertReply(await call(each, answer('{"id":5}'), secrets), status, body);
        assert.equal(target().backend.requests.length, count, 'a second equal call makes a second backend call');
      }
      await target().settle();
      for (const sent of target().backend.requests.slice(0, -1)) {
        assert.equal(`${sent.method} ${sent.target}`, `${method} ${backendTarget}`);
        assert.equal(sent.body.toString(), options.body ?? '');
        assert.equal(sent.header('content-type'), 'application/json');
        assert.doesNotMatch(sent.head, /authorization|cookie|secret|c2VjcmV0/i);
      }
      assert.equal(target().backend.requests.length, 3, 'one call makes one backend call');
    });

    test(`operation ${name}: every failure status of the backend is 500 ${failure} or 404, without its headers and its body [spec 7, rules 1 and 2]`, async () => {
      for (const [index, failed] of failureStatuses.entries()) {
        const reply = await call(each, answer('{"error":"SECRET"}', { status: failed, headers: ofTheBackend }));
        const isMapped = name === '3 read' && failed === 404;
        assertReply(reply, isMapped ? 404 : 500, isMapped ? itemNotFound : failure);
        assert.equal(target().backend.requests.length, index + 1, 'no status leads to a second call');
      }
    });

    test(`operation ${name}: a backend that resets connections or is down is unreachable: 500 ${failure} [spec 7]`, async () => {
      target().backend.answers(resetPeer());
      assertReply(await target().call(method, path, options), 500, failure);
      await target().backend.stop();
      try {
        assertReply(await target().call(method, path, options), 500, failure);
      } finally {
        await target().backend.restart();
        target().backend.answers(answer('[]'));
      }
      await target().settle();
    });
  }

  test('a conditional request is answered in full: nothing is cached [spec 1]', async () => {
    const headers: Headers = [['ETag', '"1"'], ['Last-Modified', 'Mon, 01 Jan 2024 00:00:00 GMT']]; // prettier-ignore
    const reply = await call(operation(1), answer('[]', { headers }), [
      ...[['If-None-Match', '"1"'], ['If-Modified-Since', 'Mon, 01 Jan 2035 00:00:00 GMT'], ['Range', 'bytes=0-0']] as const,
    ]); // prettier-ignore
    assertReply(reply, 200, '[]');
  });

  for (const each of passing) {
    test(`operation ${each.name}: any JSON value is passed through, whatever its type; any other body is 500 [spec 2; spec 4, rule 5]`, async () => {
      for (const value of ['null', 'true', '0', '""', '[]', '{}', '[{"id":"x"}]', ' [ 1 , 2 ] \r\n']) {
        assertReply(await call(each, answer(value)), each.status, value);
      }
      const html = raw('HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 2\r\n\r\n{}');
      assertReply(await call(each, html), each.status, '{}');
      for (const value of ['<!doctype html><p>Hello</p>', 'Hello', '{"id":5', '{"id":5}{"id":6}', '']) {
        assertReply(await call(each, answer(value)), 500, each.failure);
      }
    });
  }

  test("operation 2 answers 201, not the backend's own status, with the backend's body [spec 4, rule 3]", async () => {
    for (const status of [200, 201, 202, 206]) {
      const created = answer('{"id":6}', { status, headers: [['Location', '/api/WorkItem/6']] });
      assertReply(await call(operation(2), created), 201, '{"id":6}');
    }
  });

  for (const each of discarding) {
    test(`operation ${each.name}: the backend's body is discarded and the client gets { success: true } [spec 4, rule 4]`, async () => {
      for (const backendAnswer of [noContent, answer('{"success":false}'), answer('<p>done</p>'), answer('')]) {
        assertReply(await call(each, backendAnswer), 200, '{"success":true}');
      }
    });
  }

  test("the list operation returns the backend's list and ignores query parameters [spec 4, rule 7]", async () => {
    const list = '[{"id":2},{"id":1},{"id":2}]';
    const path = '/api/work-items?page=2&size=1&sort=id&filter=none';
    assertReply(await call({ ...operation(1), path }, answer(list)), 200, list);
    assert.equal((await target().backend.nextRequest()).target, '/api/WorkItem');
  });

  for (const { name, method, path, status, failure } of operations.filter(({ options }) => options.body)) {
    test(`operation ${name}: a body that is not JSON is 500 ${failure} without a backend call; its content is not validated [spec 4, rule 6; spec 7, rule 3]`, async () => {
      await target().withoutBackendCall(async () => {
        for (const body of [
          '',
          ' ',
          '{',
          'title=x',
          '{"title":"x",}',
          "{'title':'x'}",
          'undefined',
          'NaN',
          undefined,
        ]) {
          assertReply(await target().call(method, path, body === undefined ? {} : { body }), 500, failure);
        }
      });
      for (const body of ['null', '[]', '"x"', '-1', '{"id":"not a number","title":null}']) {
        assert.equal((await target().call(method, path, { body })).status, status);
        assert.equal(target().backend.requests.at(-1)?.body.toString(), body);
      }
    });
  }

  test('an invalid id is 400 Invalid ID format and the backend is not called [spec 7]', async () => {
    await target().withoutBackendCall(async () => {
      for (const { method, options } of operations.filter(({ path }) => path.endsWith('/5'))) {
        assertReply(await target().call(method, '/api/work-items/abc', options), 400, invalidId);
      }
    });
  });
});
