// The five operations and their backend calls [spec 1, 2, 4, 5].

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { assertReply, discarding, operation, operations, passing } from '../helpers/expected.ts';
import { answer, noContent } from '../helpers/scripted-backend.ts';
import { forEveryProtocol } from '../helpers/targets.ts';

forEveryProtocol((target) => {
  for (const { name, method, path, options, backendTarget, status, body } of operations) {
    test(`operation ${name}: ${method} ${path} answers ${status} and makes one call, ${method} {backend_url}${backendTarget} [spec 4]`, async () => {
      target().backend.answers(answer('{"id":5}'));
      const reply = await target().call(method, path, options);
      assertReply(reply, status, body);
      await target().settle();
      const [call, ...others] = target().backend.requests.slice(0, -1);
      assert.deepEqual(others, [], 'one call makes one backend call');
      assert.equal(`${call?.method} ${call?.target}`, `${method} ${backendTarget}`);
      assert.equal(call?.body.toString(), options.body ?? '');
    });

    test(`operation ${name}: the request to the backend has Content-Type: application/json and no authentication header [spec 1, 5]`, async () => {
      await target().call(method, path, {
        ...options,
        headers: [
          ['Content-Type', 'text/plain'],
          ['Authorization', 'Bearer secret'],
          ['Proxy-Authorization', 'Basic c2VjcmV0'],
          ['Cookie', 'session=secret'],
        ],
      });
      const call = await target().backend.nextRequest();
      assert.equal(call.header('content-type'), 'application/json');
      assert.doesNotMatch(call.head, /authorization|cookie|secret|c2VjcmV0/i);
    });

    test(`operation ${name}: two equal calls make two backend calls [spec 1]`, async () => {
      target().backend.answersOnce(answer('1'), answer('2'));
      const first = await target().call(method, path, options);
      const second = await target().call(method, path, options);
      assert.equal(target().backend.requests.length, 2);
      if (method !== 'PUT' && method !== 'DELETE') assert.deepEqual([first.text, second.text], ['1', '2']);
    });
  }

  test('a conditional request is answered in full: nothing is cached [spec 1]', async () => {
    target().backend.answers(answer('[]', { headers: [['ETag', '"1"'], ['Last-Modified', 'Mon, 01 Jan 2024 00:00:00 GMT']] })); // prettier-ignore
    const reply = await target().call('GET', '/api/work-items', {
      headers: [
        ['If-None-Match', '"1"'],
        ['If-Modified-Since', 'Mon, 01 Jan 2035 00:00:00 GMT'],
        ['Range', 'bytes=0-0'],
      ],
    });
    assertReply(reply, 200, '[]');
  });

  for (const { name, method, path, options, status } of passing) {
    test(`operation ${name}: any JSON value is passed through [spec 2]`, async () => {
      for (const value of ['null', 'true', '0', '""', '[]', '{}', '[{"id":"x"}]', ' [ 1 , 2 ] \r\n']) {
        target().backend.answersOnce(answer(value));
        assertReply(await target().call(method, path, options), status, value);
      }
    });
  }

  for (const status of [200, 201, 202, 206]) {
    test(`operation 2 answers 201, not the backend's own ${status}, with the backend's body [spec 4, rule 3]`, async () => {
      target().backend.answersOnce(answer('{"id":6}', { status, headers: [['Location', '/api/WorkItem/6']] }));
      const { method, path, options } = operation(2);
      assertReply(await target().call(method, path, options), 201, '{"id":6}');
    });
  }

  for (const { name, method, path, options } of discarding) {
    test(`operation ${name}: the backend's body is discarded and the client gets { success: true } [spec 4, rule 4]`, async () => {
      for (const backendAnswer of [noContent, answer('{"success":false}'), answer('<p>done</p>'), answer('')]) {
        target().backend.answersOnce(backendAnswer);
        assertReply(await target().call(method, path, options), 200, '{"success":true}');
      }
    });
  }

  test("the list operation returns the backend's list and ignores query parameters [spec 4, rule 7]", async () => {
    target().backend.answers(answer('[{"id":2},{"id":1},{"id":2}]'));
    const reply = await target().call('GET', '/api/work-items?page=2&size=1&sort=id&filter=none');
    assertReply(reply, 200, '[{"id":2},{"id":1},{"id":2}]');
    assert.equal((await target().backend.nextRequest()).target, '/api/WorkItem');
  });
});
