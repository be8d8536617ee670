// Every row of the specification's error table [spec 7].

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { assertReply, invalidId, itemNotFound, operations, passing } from '../helpers/expected.ts';
import { answer, resetPeer, type Answer } from '../helpers/scripted-backend.ts';
import { forEveryProtocol } from '../helpers/targets.ts';

const ofTheBackend = [
  ['X-Secret', 'SECRET'], ['Retry-After', '120'], ['Set-Cookie', 'a=SECRET'], ['WWW-Authenticate', 'Basic realm="SECRET"'],
] as const; // prettier-ignore
const failureStatuses = [400, 401, 403, 404, 405, 409, 410, 415, 418, 422, 429, 500, 501, 502, 503, 504];

forEveryProtocol((target) => {
  for (const { name, method, path, options, failure } of operations) {
    for (const status of failureStatuses) {
      const isMapped = method === 'GET' && path.endsWith('/5') && status === 404;
      const title = isMapped
        ? `operation ${name}: a backend 404 is 404 Work item not found`
        : `operation ${name}: a backend ${status} is 500 ${failure}`;
      test(`${title}, without a header or a body of the backend [spec 7, rules 1 and 2]`, async () => {
        target().backend.answersOnce(answer('{"error":"SECRET"}', { status, headers: ofTheBackend }));
        const reply = await target().call(method, path, options);
        assertReply(reply, isMapped ? 404 : 500, isMapped ? itemNotFound : failure);
        assert.equal(target().backend.requests.length, 1, 'no status leads to a second call');
      });
    }

    test(`operation ${name}: an unreachable backend is 500 ${failure} [spec 7]`, async () => {
      await target().backend.stop();
      try {
        assertReply(await target().call(method, path, options), 500, failure);
      } finally {
        await target().backend.restart();
      }
      await target().settle();
    });

    test(`operation ${name}: a backend that resets the connection is unreachable: 500 ${failure} [spec 7]`, async () => {
      target().backend.answersOnce(resetPeer(), resetPeer());
      assertReply(await target().call(method, path, options), 500, failure);
    });
  }

  for (const { name, method, path, options, failure } of passing) {
    const bodies: [kind: string, backendAnswer: Answer][] = [
      ['HTML', answer('<!doctype html><p>Hello</p>')],
      ['plain text', answer('Hello')],
      ['half a JSON text', answer('{"id":5')],
      ['two JSON texts', answer('{"id":5}{"id":6}')],
      ['an empty body', answer('')],
    ];
    for (const [kind, backendAnswer] of bodies) {
      test(`operation ${name}: a non-JSON body, ${kind}, is 500 ${failure} [spec 4, rule 5]`, async () => {
        target().backend.answersOnce(backendAnswer);
        assertReply(await target().call(method, path, options), 500, failure);
      });
    }

    test(`operation ${name}: a JSON body with content type text/html is passed through: the bytes decide [spec 4, rule 5]`, async () => {
      target().backend.answersOnce(async (exchange) => {
        await exchange.write('HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 2\r\n\r\n{}');
      });
      const reply = await target().call(method, path, options);
      assertReply(reply, method === 'POST' ? 201 : 200, '{}');
    });
  }

  for (const { name, method, path, failure } of operations.filter(({ options }) => options.body)) {
    for (const body of ['', ' ', '{', 'title=x', '{"title":"x",}', "{'title':'x'}", 'undefined', 'NaN']) {
      test(`operation ${name}: the request body ${JSON.stringify(body)} is not JSON: 500 ${failure}, and the backend is not called [spec 4, rule 6]`, async () => {
        const reply = await target().withoutBackendCall(() => target().call(method, path, { body }));
        assertReply(reply, 500, failure);
      });
    }

    test(`operation ${name}: a missing request body is 500 ${failure} and the backend is not called [spec 4, rule 6]`, async () => {
      const reply = await target().withoutBackendCall(() => target().call(method, path));
      assertReply(reply, 500, failure);
    });

    test(`operation ${name}: the content of a work item is not validated [spec 7, rule 3]`, async () => {
      for (const body of ['null', '[]', '"x"', '-1', '{"id":"not a number","title":null}']) {
        const reply = await target().call(method, path, { body });
        assert.ok(reply.status < 300);
        assert.equal((await target().backend.nextRequest()).body.toString(), body);
      }
    });
  }

  for (const method of ['GET', 'PUT', 'DELETE']) {
    test(`${method} with an invalid id is 400 Invalid ID format and the backend is not called [spec 7]`, async () => {
      const options = method === 'PUT' ? { body: '{}' } : {};
      const reply = await target().withoutBackendCall(() => target().call(method, '/api/work-items/abc', options));
      assertReply(reply, 400, invalidId);
    });
  }
});
