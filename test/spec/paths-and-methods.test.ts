// Paths and methods, known and unknown [D4 to D8].

import assert from 'node:assert/strict';
import { test } from 'node:test';
import {
  allowed,
  assertHeaders,
  assertReply,
  collectionMethods,
  invalidId,
  itemNotFound,
  methodNotAllowed,
  notFound,
  operation,
} from '../helpers/expected.ts';
import type { Reply } from '../helpers/raw-client.ts';
import { answer } from '../helpers/scripted-backend.ts';
import { forEachTarget } from '../helpers/targets.ts';

const itemMethods = ['DELETE', 'GET', 'HEAD', 'OPTIONS', 'PUT'];
const unknownPaths = [
  '/', '/api', '/api/', '/api/work-item', '/api/work-items2', '/api/work-itemsX/5', '/api/Work-Items',
  '/API/work-items', '/api/work-Items/5', '/api/WorkItem', '/api/WorkItem/5', '//api/work-items',
  '/api//work-items', '/x/api/work-items', '/favicon.ico', '/metrics', '/livez', '/readyz', '/__proto__',
  '/constructor', '/api/work-items/1/', '/api/work-items/1/2', '/api/work-items/1/comments',
  '/api/work-items/abc/', '/api/work-items//', '/api/work-items//1', '/api/work-items/1//', '/%zz', '/%ff',
  '/api/%zz', '/api/work-items/1/%zz',
]; // prettier-ignore

const otherMethods = [
  'ACL', 'BIND', 'CHECKOUT', 'COPY', 'LINK', 'LOCK', 'M-SEARCH', 'MERGE', 'MKACTIVITY', 'MKCALENDAR',
  'MKCOL', 'MOVE', 'NOTIFY', 'PATCH', 'PROPFIND', 'PROPPATCH', 'PURGE', 'QUERY', 'REBIND', 'REPORT',
  'SEARCH', 'SOURCE', 'SUBSCRIBE', 'TRACE', 'UNBIND', 'UNLINK', 'UNLOCK', 'UNSUBSCRIBE',
]; // prettier-ignore

/** A request of any method, with a body if the method needs one. */
const bodyFor = (method: string) => (method === 'PUT' || method === 'POST' ? { body: '{}' } : {});

function comparable({ status, headers }: Reply): unknown {
  return [status, headers.filter(([name]) => !['date', 'x-request-id'].includes(name.toLowerCase()))];
}

forEachTarget(
  (target) => {
    test('an empty id is 400, and the backend is not called [D4]', async () => {
      await target().withoutBackendCall(async () => {
        for (const method of ['GET', 'PUT', 'DELETE']) {
          for (const path of ['/api/work-items/', '/api/work-items/?id=5']) {
            assertReply(await target().call(method, path, bodyFor(method)), 400, invalidId);
          }
        }
      });
    });

    for (const path of unknownPaths) {
      test(`the path ${path} is unknown: 404, and the backend is not called [D4, D5]`, async () => {
        await target().withoutBackendCall(async () => {
          for (const method of ['GET', 'PUT', 'DELETE', 'POST', 'PATCH', 'OPTIONS', 'PROPFIND']) {
            assertReply(await target().call(method, path, bodyFor(method)), 404, notFound);
          }
          const head = await target().call('HEAD', path);
          assert.equal(head.status, 404);
          assertHeaders(head, ['content-type', 'content-length']);
        });
      });
    }

    test('any other method is 405 with Allow on every known path, whatever the id, and its body is not read as the next request [D4, D6]', async () => {
      await using client = await target().client();
      await target().withoutBackendCall(async () => {
        for (const [path, methods, ...more] of [
          ['/api/work-items?x=1', collectionMethods, 'PUT', 'DELETE'],
          ...['5', 'abc', '', '%zz'].map((id) => [`/api/work-items/${id}`, itemMethods, 'POST'] as const),
        ] as const) {
          for (const method of [...more, ...otherMethods]) {
            const options = [...more, 'PATCH'].includes(method) ? { body: '{"a":1}' } : {};
            const reply = await (client.isOpen ? client : target()).call(method, path, options);
            assertReply(reply, 405, methodNotAllowed, ['allow']);
            assert.deepEqual(allowed(reply), methods);
          }
        }
      });
      if (client.isOpen) assertReply(await client.call('GET', '/api/work-items'), 200, '[]');
    });

    test('OPTIONS on a known path is 204 with Allow, and the backend is not called [D6]', async () => {
      await target().withoutBackendCall(async () => {
        for (const [path, methods] of [
          ['/api/work-items', collectionMethods],
          ['/api/work-items?x=1', collectionMethods],
          ['/api/work-items/5', itemMethods],
          ['/api/work-items/abc', itemMethods],
          ['/api/work-items/', itemMethods],
        ] as const) {
          const reply = await target().call('OPTIONS', path);
          assert.equal(reply.status, 204);
          assertHeaders(reply, ['allow']);
          assert.deepEqual(allowed(reply), methods);
        }
      });
    });

    test('HEAD makes one backend GET; the reply is that of GET without the body [D7]', async () => {
      const body = '{"id":5,"title":"\u00e9"}';
      target().backend.answers(answer(body));
      await using client = await target().client();
      for (const [path, backendTarget] of [
        ['/api/work-items', '/api/WorkItem'],
        ['/api/work-items/5', '/api/WorkItem/5'],
      ] as const) {
        const get = await client.call('GET', path);
        const head = await client.call('HEAD', path);
        assertReply(await client.call('GET', path), 200, body);
        assert.equal(head.header('content-length'), '21');
        assert.deepEqual(comparable(head), comparable(get));
        const calls = target()
          .backend.requests.splice(0)
          .map((call) => `${call.method} ${call.target}`);
        assert.deepEqual(calls, Array<string>(3).fill(`GET ${backendTarget}`));
      }
    });

    test('a failed HEAD has the status and content-length of the failed GET [D7]', async () => {
      await using client = await target().client();
      for (const [path, status, body] of [
        ['/api/work-items/5', 404, itemNotFound],
        ['/api/work-items/5', 500, operation(3).failure],
        ['/api/work-items', 500, operation(1).failure],
        ['/api/work-items/abc', 400, invalidId],
      ] as const) {
        target().backend.answers(answer('', { status }));
        const reply = await client.call('HEAD', path);
        assert.equal(reply.status, status);
        assert.equal(reply.header('content-length'), String(body.length));
        assertReply(await client.call('GET', path), status, body);
      }
    });

    test('the query string is ignored and never forwarded [D8]', async () => {
      for (const [method, path, backendTarget] of [
        ['GET', '/api/work-items?', '/api/WorkItem'],
        ['GET', '/api/work-items?a=1&a=2', '/api/WorkItem'],
        ['GET', '/api/work-items?/5', '/api/WorkItem'],
        ['GET', '/api/work-items?%zz=%ff', '/api/WorkItem'],
        ['GET', '/api/work-items/5?', '/api/WorkItem/5'],
        ['GET', '/api/work-items/5?a=/../7', '/api/WorkItem/5'],
        ['GET', '/api/work-items/5?x?y', '/api/WorkItem/5'],
        ['GET', '/api/work-items/5?%0D%0A', '/api/WorkItem/5'],
        ['POST', '/api/work-items?id=5', '/api/WorkItem'],
        ['PUT', '/api/work-items/5?id=6', '/api/WorkItem/5'],
        ['DELETE', '/api/work-items/5?force=true', '/api/WorkItem/5'],
      ] as const) {
        const reply = await target().call(method, path, bodyFor(method));
        assert.equal(reply.status, method === 'POST' ? 201 : 200, `${method} ${path}`);
        assert.equal((await target().backend.nextRequest()).target, backendTarget);
      }
    });
  },
  {},
  { kinds: ['in-process', 'fetch', 'http2'] },
);
