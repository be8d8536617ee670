// CORS headers of replies, and preflights [D45]. test/docs/cors-in-browser.test.ts uses a real browser.

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import {
  assertHeaders,
  assertReply,
  badRequest,
  forbidden,
  headersTooLarge,
  invalidId,
  itemNotFound,
  methodNotAllowed,
  notFound,
  operations,
  tooLarge,
} from '../helpers/expected.ts';
import { requestBytes, type Headers, type Reply } from '../helpers/raw-client.ts';
import { workItemGateway } from '../../packages/core/hosts/index.ts';
import { Fastify } from '../helpers/fastify.ts';
import { answer } from '../helpers/scripted-backend.ts';
import { forEachTarget, Target } from '../helpers/targets.ts';

const app = 'https://app.example.com';
const local = 'http://localhost:5173';
const elsewhere = 'https://elsewhere.example';

const exposed = 'x-request-id, retry-after, ratelimit, ratelimit-policy, www-authenticate';
const requestHeaders = 'authorization, content-type, x-request-id, traceparent, tracestate';

/** The reply's `vary` and CORS headers, in the order sent. */
function corsOf(reply: Reply): string[] {
  return reply.headers
    .filter(([name]) => /^(?:vary|access-control-.*)$/i.test(name))
    .map(([name, value]) => `${name}: ${value}`);
}

const grantTo = (origin: string): string[] => [
  'vary: origin',
  `access-control-allow-origin: ${origin}`,
  `access-control-expose-headers: ${exposed}`,
];
const preflightFor = (origin: string, methods: string, maxAgeS: number): string[] => [
  'vary: origin',
  `access-control-allow-origin: ${origin}`,
  `access-control-allow-methods: ${methods}`,
  `access-control-allow-headers: ${requestHeaders}, x-anything`,
  `access-control-max-age: ${maxAgeS}`,
];
const nothing = ['vary: origin'];

const collection = 'GET, HEAD, POST, OPTIONS';
const item = 'GET, HEAD, PUT, DELETE, OPTIONS';

const from = (origin: string): Headers => [['Origin', origin]];
const asking = (origin: string, method = 'PUT'): Headers => [
  ['Origin', origin],
  ['Access-Control-Request-Method', method],
  ['Access-Control-Request-Headers', 'authorization,x-anything'],
];

describe('with a list of allowed origins', () => {
  forEachTarget((target) => {
    test('the reply to a preflight is 204 with the methods of the path, byte for byte [D45]', async () => {
      await target().withoutBackendCall(async () => {
        await using client = await target().connect();
        const headers: Headers = [['Host', 'gateway.test'], ['X-Request-Id', 'a'], ...asking(app, 'POST')]; // prettier-ignore
        client.send(requestBytes('OPTIONS', '/api/work-items', { headers }));
        const reply = await client.reply();
        const { statusLine, headers: lines } = reply;
        const written = [statusLine, ...lines.map(([name, value]) => `${name}: ${value}`)].join('\n');
        assert.equal(
          written.replace(/^date: .*$/m, 'date: now'),
          `HTTP/1.1 204 No Content
cache-control: no-store
x-content-type-options: nosniff
allow: GET, HEAD, POST, OPTIONS
vary: origin
access-control-allow-origin: https://app.example.com
access-control-allow-methods: GET, HEAD, POST, OPTIONS
access-control-allow-headers: authorization, content-type, x-request-id, traceparent, tracestate, x-anything
access-control-max-age: 600
x-request-id: a
connection: keep-alive
keep-alive: timeout=71
date: now`,
        );
      });
    });

    test('a preflight for the conditions of a write is granted [D45, D67]', async () => {
      const conditions = 'if-match, if-none-match, if-unmodified-since, idempotency-key';
      const headers: Headers = [...asking(app, 'PUT').filter(([name]) => name !== 'Access-Control-Request-Headers'), ['Access-Control-Request-Headers', conditions]]; // prettier-ignore
      const reply = await target().call('OPTIONS', '/api/work-items/5', { headers });
      assert.equal(reply.header('access-control-allow-headers'), `${requestHeaders}, ${conditions}`);
    });

    for (const origin of [app, local]) {
      test(`a preflight from ${origin} is granted for any path and method [D45]`, async () => {
        await target().withoutBackendCall(async () => {
          for (const [path, methods] of [
            ['/api/work-items', collection],
            ['/api/work-items?a=b', collection],
            ['http://elsewhere.example/api/work-items', collection],
            ['/api/work-items/5', item],
            ['/api/work-items/abc', item],
            ['/api/work-items/', item],
          ] as const) {
            for (const method of ['GET', 'PUT', 'PATCH', 'anything', '']) {
              const reply = await target().call('OPTIONS', path, { headers: asking(origin, method) });
              assert.equal(reply.status, 204, path);
              assert.deepEqual(corsOf(reply), preflightFor(origin, methods, 600));
              assert.equal(reply.header('allow'), methods);
            }
          }
        });
      });

      for (const { name, method, path, options, status, body, failure } of operations) {
        test(`${name}: a page from ${origin} may read successes and failures [D45]`, async () => {
          target().backend.answers(answer('{"id":5}'));
          const also = ['vary', 'access-control-allow-origin', 'access-control-expose-headers'];
          const reply = await target().call(method, path, { ...options, headers: from(origin) });
          assertReply(reply, status, body, also);
          assert.deepEqual(corsOf(reply), grantTo(origin));
          target().backend.answers(answer('', { status: 503 }));
          const failed = await target().call(method, path, { ...options, headers: from(origin) });
          assertReply(failed, 500, failure, also);
          assert.deepEqual(corsOf(failed), grantTo(origin));
        });
      }
    }

    for (const [title, headers] of Object.entries<Headers>({
      'without an origin': [],
      'from another origin': from(elsewhere),
      'from an origin that begins with an allowed origin': from(`${app}.evil.example`),
      'from an allowed origin with http instead of https': from(app.replace('https', 'http')),
      'from the origin null': from('null'),
      'with two origins and a space in one Origin field': from(`${app} ${local}`),
      'with two Origin fields': [...from(app), ...from(local)],
    })) {
      test(`the reply to a call ${title} has no CORS headers; reads are served, and writes without an origin [D45, D56]`, async () => {
        const served = operations.filter(({ method }) => method === 'GET' || headers.length === 0);
        for (const operation of operations) {
          const { method, path, options, status, body } = operation;
          target().backend.answers(answer('{"id":5}'));
          const reply = await target().call(method, path, { ...options, headers });
          if (served.includes(operation)) assertReply(reply, status, body, ['vary']);
          else assertReply(reply, 403, forbidden, ['vary']);
          assert.deepEqual(corsOf(reply), nothing);
        }
        assert.equal(target().backend.requests.length, served.length);
        const preflight = await target().call('OPTIONS', '/api/work-items', {
          headers: [...headers, ['Access-Control-Request-Method', 'PUT']],
        });
        assert.equal(preflight.status, 204);
        assertHeaders(preflight, ['allow', 'vary']);
        assert.deepEqual(corsOf(preflight), nothing);
      });
    }

    test('a preflight is granted each valid header name that it asks for, but at most 32 further names [D45]', async () => {
      const granted = async (...asked: string[]) => {
        const headers = asked.map((names) => ['Access-Control-Request-Headers', names] as const);
        const all: Headers = [...from(app), ['Access-Control-Request-Method', 'PUT'], ...headers];
        const reply = await target().call('OPTIONS', '/api/work-items/5', { headers: all });
        const names = reply.header('access-control-allow-headers') ?? '';
        assert.ok(names.startsWith(requestHeaders), names);
        return names.slice(requestHeaders.length);
      };
      assert.equal(await granted(), '');
      assert.equal(await granted(''), '');
      assert.equal(await granted('authorization,Content-Type, TraceParent'), '', 'these names are always granted');
      assert.equal(await granted('Baggage,sentry-trace'), ', baggage, sentry-trace');
      assert.equal(await granted('if-match, x-a ,,x-a,X-A', 'x-b'), ', if-match, x-a, x-b');
      assert.equal(await granted('x a,x(b),x:c,"d",é,x-e;q=1,x-f'), ', x-f');
      const many = Array.from({ length: 40 }, (_, index) => `x-${index}`);
      assert.equal(await granted(many.join()), ', ' + many.slice(0, 32).join(', '));
    });

    test('OPTIONS without access-control-request-method is not a preflight [D6, D45]', async () => {
      await target().withoutBackendCall(async () => {
        const reply = await target().call('OPTIONS', '/api/work-items', { headers: from(app) });
        assert.equal(reply.status, 204);
        assert.equal(reply.header('allow'), collection);
        assert.deepEqual(corsOf(reply), grantTo(app));
      });
    });

    test('a preflight for an unknown path is 404, and the page may read the reply [D5, D45]', async () => {
      await target().withoutBackendCall(async () => {
        for (const path of ['/', '/api/work-items/1/2', '/API/work-items', '*']) {
          const reply = await target().call('OPTIONS', path, { headers: asking(app) });
          const also = ['vary', 'access-control-allow-origin', 'access-control-expose-headers'];
          assertReply(reply, 404, notFound, also);
          assert.deepEqual(corsOf(reply), grantTo(app));
        }
      });
    });

    test('errors of every kind have the CORS headers [D45]', async () => {
      const also = ['vary', 'access-control-allow-origin', 'access-control-expose-headers'];
      target().backend.answers(answer('', { status: 404 }));
      for (const [method, path, status, body, more, options] of [
        ['GET', '/api/work-items/5', 404, itemNotFound, [], {}],
        ['GET', '/api/work-items/x', 400, invalidId, [], {}],
        ['GET', '/nowhere', 404, notFound, [], {}],
        ['PATCH', '/api/work-items', 405, methodNotAllowed, ['allow'], {}],
        ['POST', '/api/work-items', 413, tooLarge, [], { body: `"${'x'.repeat(1_000)}"` }],
        ['POST', '/api/work-items', 500, '{"error":"Failed to create work item"}', [], { body: '{' }],
      ] as const) {
        const reply = await target().call(method, path, { ...options, headers: from(app) });
        assertReply(reply, status, body, [...also, ...more]);
        assert.deepEqual(corsOf(reply), grantTo(app), `${method} ${path}`);
      }
      const expecting = await target().call('GET', '/api/work-items', {
        headers: [...from(app), ['Expect', 'the unexpected']],
      });
      assertReply(expecting, 417, '{"error":"Expectation failed"}', also);
      assert.deepEqual(corsOf(expecting), grantTo(app));
    });

    test('the 400 for a malformed body has CORS headers; the 400 or 431 for a malformed head does not [D27, D45]', async () => {
      await target().withoutBackendCall(async () => {
        await using broken = await target().connect();
        const headers: Headers = [...from(app), ['Transfer-Encoding', 'chunked']];
        broken.send(requestBytes('POST', '/api/work-items', { headers }));
        broken.send('x\r\n');
        const reply = await broken.reply();
        assert.equal(reply.status, 400);
        assert.deepEqual(corsOf(reply), grantTo(app));

        const twoHosts: Headers = [['Host', 'a'], ['Host', 'b'], ...from(app)]; // prettier-ignore
        const malformed = await target().call('GET', '/api/work-items', { headers: twoHosts });
        assertReply(malformed, 400, badRequest, ['vary']);
        assert.deepEqual(corsOf(malformed), nothing);
        const large: Headers = [...from(app), ['X-Large', 'x'.repeat(20_000)]];
        const tooMuch = await target().call('GET', '/api/work-items', { headers: large });
        assertReply(tooMuch, 431, headersTooLarge, ['vary']);
      });
    });

    test('the reply to each pipelined request has the CORS headers for its own origin [D45]', async () => {
      await using client = await target().connect();
      const origins = [app, elsewhere, local, app, 'null', local];
      client.send(
        Buffer.concat(
          origins.map((origin) => requestBytes('GET', '/api/work-items', { headers: from(origin) })),
        ),
      );
      for (const origin of origins) {
        const expected = origin === app || origin === local ? grantTo(origin) : nothing;
        assert.deepEqual(corsOf(await client.reply()), expected);
      }
    });

    for (const { name, method, path, options } of operations.filter((each) => each.method !== 'GET')) {
      test(`${name}: a page of another site may write if the page's origin is allowed [D45, D56]`, async () => {
        const crossSite: Headers = [['Sec-Fetch-Site', 'cross-site']];
        target().backend.answers(answer('{"id":5}'));
        for (const origin of [app, local]) {
          const headers = [...crossSite, ...from(origin)];
          const reply = await target().call(method, path, { ...options, headers });
          assert.ok(reply.status === 200 || reply.status === 201, reply.statusLine);
          assert.deepEqual(corsOf(reply), grantTo(origin));
        }
        target().backend.reset();
        for (const others of [from(elsewhere), [], from('null'), [...from(app), ...from(app)], from(`${app}, ${app}`)]) {
          const headers = [...crossSite, ...others];
          const reply = await target().call(method, path, { ...options, headers });
          assertReply(reply, 403, forbidden, ['vary']);
          assert.deepEqual(corsOf(reply), nothing);
        }
        assert.equal(target().backend.requests.length, 0);
      });
    }
  }, { corsOrigins: [app, local], requestBytesMax: 1_000 }); // prettier-ignore
});

describe('with every origin allowed', () => {
  const grant = ['access-control-allow-origin: *', `access-control-expose-headers: ${exposed}`];
  forEachTarget((target) => {
    test('every reply allows every origin, and has no vary [D45]', async () => {
      for (const headers of [[], from(app), from('null'), [...from(app), ...from(local)]]) {
        const reply = await target().call('GET', '/api/work-items', { headers });
        assertReply(reply, 200, '[]', ['access-control-allow-origin', 'access-control-expose-headers']);
        assert.deepEqual(corsOf(reply), grant);
      }
      const malformed = await target().call('GET', '/api/work-items', { headers: [['Host', 'a b']] });
      assert.equal(malformed.status, 400);
      assert.deepEqual(corsOf(malformed), grant);
    });

    test('a preflight from any origin is granted; a preflight with two Origin fields is not [D45]', async () => {
      for (const origin of [app, 'null']) {
        const reply = await target().call('OPTIONS', '/api/work-items/5', { headers: asking(origin) });
        assert.equal(reply.status, 204);
        assert.deepEqual(corsOf(reply), [
          'access-control-allow-origin: *',
          `access-control-allow-methods: ${item}`,
          `access-control-allow-headers: ${requestHeaders}, x-anything`,
          'access-control-max-age: 0',
        ]);
      }
      const headers = [...asking(app), ...from(local)];
      const reply = await target().call('OPTIONS', '/api/work-items/5', { headers });
      assert.equal(reply.status, 204);
      assert.deepEqual(corsOf(reply), grant);
    });

    test('a cross-site write with any Origin is served; a cross-site write without Origin is refused [D45, D56]', async () => {
      const crossSite: Headers = [['Sec-Fetch-Site', 'cross-site']];
      for (const origin of [app, 'null']) {
        const headers = [...crossSite, ...from(origin)];
        const reply = await target().call('DELETE', '/api/work-items/5', { headers });
        assert.equal(reply.status, 200);
      }
      const reply = await target().call('DELETE', '/api/work-items/5', { headers: crossSite });
      assert.equal(reply.status, 403);
    });
  }, { corsOrigins: ['*'], corsMaxAgeS: 0 }); // prettier-ignore
});

describe('with credentials', () => {
  forEachTarget((target) => {
    test('replies to requests and preflights from an allowed origin allow credentials; other replies do not [D45]', async () => {
      const credentials = 'access-control-allow-credentials: true';
      const reply = await target().call('GET', '/api/work-items', { headers: from(app) });
      const [vary = '', origin = '', ...rest] = grantTo(app);
      assert.deepEqual(corsOf(reply), [vary, origin, credentials, ...rest]);
      const preflight = await target().call('OPTIONS', '/api/work-items', { headers: asking(app) });
      const [, , ...more] = preflightFor(app, collection, 86_400);
      assert.deepEqual(corsOf(preflight), [vary, origin, credentials, ...more]);
      const other = await target().call('GET', '/api/work-items', { headers: from(elsewhere) });
      assert.deepEqual(corsOf(other), nothing);
    });
  }, { corsOrigins: [app], corsCredentials: true, corsMaxAgeS: 86_400 }); // prettier-ignore
});

test('without allowed origins no reply has CORS headers, and a preflight is treated like any other OPTIONS [D6, D45]', async () => {
  await using target = await Target.start('in-process', {}, {});
  target.backend.answers(answer('[]'));
  const reply = await target.call('GET', '/api/work-items', { headers: from(app) });
  assertReply(reply, 200, '[]');
  const preflight = await target.call('OPTIONS', '/api/work-items', { headers: asking(app) });
  assert.equal(preflight.status, 204);
  assertHeaders(preflight, ['allow']);
});

test('a preflight to a host name that is not allowed is 403 [D45, D57]', async () => {
  await using target = await Target.start('in-process', { corsOrigins: [app], allowedHosts: ['items.example'] }, {});
  const headers: Headers = [['Host', 'evil.example'], ...asking(app)];
  const reply = await target.call('OPTIONS', '/api/work-items', { headers });
  assertReply(reply, 403, forbidden, ['vary', 'access-control-allow-origin', 'access-control-expose-headers']); // prettier-ignore
});

test('the plugin has no CORS options: its host handles CORS [D45]', async () => {
  const host = Fastify();
  const options = { backendUrl: 'http://localhost:5104', corsOrigins: [app] };
  await assert.rejects(async () => {
    await host.register(workItemGateway, options);
  }, /corsOrigins is unknown/);
});
