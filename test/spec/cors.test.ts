// CORS headers of replies, and preflights [D45]. test/docs/cors-in-browser.test.ts uses a real browser.

import assert from 'node:assert/strict';
import { test } from 'node:test';
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
import type { Settings } from '../helpers/gateway.ts';
import { requestBytes, type Headers, type Reply } from '../helpers/raw-client.ts';
import { answer } from '../helpers/scripted-backend.ts';
import { forEachTarget, Target } from '../helpers/targets.ts';

const app = 'https://app.example.com';
const local = 'http://localhost:5173';
const elsewhere = 'https://elsewhere.example';

const exposed = 'x-request-id, retry-after, ratelimit, ratelimit-policy, www-authenticate';
const requestHeaders = 'authorization, content-type, x-request-id, traceparent, tracestate';
const granted = ['vary', 'access-control-allow-origin', 'access-control-expose-headers'];

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
  ...(origin === '*' ? [] : ['vary: origin']),
  `access-control-allow-origin: ${origin}`,
  `access-control-allow-methods: ${methods}`,
  `access-control-allow-headers: ${requestHeaders}, x-anything`,
  `access-control-max-age: ${maxAgeS}`,
];
const nothing = ['vary: origin'];

const collection = 'GET, HEAD, POST, OPTIONS';
const item = 'GET, HEAD, PUT, DELETE, OPTIONS';

const from = (origin: string): Headers => [['Origin', origin]];
const crossSite = ['Sec-Fetch-Site', 'cross-site'] as const;
const asking = (origin: string, method = 'PUT', names = 'authorization,x-anything'): Headers => [
  ['Origin', origin],
  ['Access-Control-Request-Method', method],
  ['Access-Control-Request-Headers', names],
];

forEachTarget((target) => {
    test('the reply to a preflight is 204 with the methods of the path, byte for byte [D45]', async () => {
      await target().withoutBackendCall(async () => {
        await using client = await target().connect();
        const headers: Headers = [['Host', 'gateway.test'], ['X-Request-Id', 'a'], ...asking(app, 'POST')]; // prettier-ignore
        client.send(requestBytes('OPTIONS', '/api/work-items', { headers }));
        const { statusLine, headers: lines } = await client.reply();
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

    test('a preflight from an allowed origin is granted for any path and method; any other OPTIONS is not a preflight [D6, D45]', async () => {
      await target().withoutBackendCall(async () => {
        for (const [path, methods] of [
          ['/api/work-items', collection],
          ['/api/work-items?a=b', collection],
          ['http://elsewhere.example/api/work-items', collection],
          ['/api/work-items/5', item],
          ['/api/work-items/abc', item],
          ['/api/work-items/', item],
        ] as const) {
          for (const [origin, method] of [[app, 'GET'], [local, 'PUT'], [app, 'PATCH'], [app, 'anything'], [app, '']] as const) {
            const reply = await target().call('OPTIONS', path, { headers: asking(origin, method) });
            assert.deepEqual([reply.status, reply.header('allow')], [204, methods], path);
            assert.deepEqual(corsOf(reply), preflightFor(origin, methods, 600));
          }
        }
        const other = await target().call('OPTIONS', '/api/work-items', { headers: from(app) });
        assert.deepEqual([other.status, other.header('allow'), ...corsOf(other)], [204, collection, ...grantTo(app)]);
        for (const path of ['/', '/api/work-items/1/2', '/API/work-items', '*']) {
          const unknown = await target().call('OPTIONS', path, { headers: asking(app) });
          assertReply(unknown, 404, notFound, granted);
          assert.deepEqual(corsOf(unknown), grantTo(app));
        }
      });
    });

    test('a preflight is granted each valid header name that it asks for, but at most 32 further names [D45, D67]', async () => {
      const many = Array.from({ length: 40 }, (_, index) => `x-${index}`);
      const conditions = ', if-match, if-none-match, if-unmodified-since, idempotency-key';
      for (const [expected = '', ...asked] of [
        [''], ['', ''],
        // These names are always granted.
        ['', 'authorization,Content-Type, TraceParent'],
        [conditions, conditions], [', baggage, sentry-trace', 'Baggage,sentry-trace'],
        [', if-match, x-a, x-b', 'if-match, x-a ,,x-a,X-A', 'x-b'], [', x-f', 'x a,x(b),x:c,"d",é,x-e;q=1,x-f'],
        [`, ${many.slice(0, 32).join(', ')}`, many.join()],
      ]) {
        const names = asked.map((each) => ['Access-Control-Request-Headers', each] as const);
        const headers: Headers = [...from(app), ['Access-Control-Request-Method', 'PUT'], ...names];
        const reply = await target().call('OPTIONS', '/api/work-items/5', { headers });
        assert.equal(reply.header('access-control-allow-headers'), requestHeaders + expected);
      }
    });

    for (const { name, method, path, options, status, body, failure } of operations) {
      test(`${name}: a page from an allowed origin may read successes and failures, and may write from another site [D45, D56]`, async () => {
        for (const origin of [app, local]) {
          const headers = [...from(origin), ...(method === 'GET' ? [] : [crossSite])];
          target().backend.answers(answer('{"id":5}'));
          const reply = await target().call(method, path, { ...options, headers });
          assertReply(reply, status, body, granted);
          assert.deepEqual(corsOf(reply), grantTo(origin));
          target().backend.answers(answer('', { status: 503 }));
          const failed = await target().call(method, path, { ...options, headers });
          assertReply(failed, 500, failure, granted);
          assert.deepEqual(corsOf(failed), grantTo(origin));
        }
      });
    }

    test('a reply to any other call has no CORS headers; reads are served, and writes without an origin [D45, D56]', async () => {
      for (const headers of [
        [], from(elsewhere), from(`${app}.evil.example`), from(app.replace('https', 'http')), from('null'), from(`${app} ${local}`),
        [...from(app), ...from(local)], [...from(app), ...from(app), crossSite], [crossSite], [...from(`${app}, ${app}`), crossSite],
      ]) {
        target().backend.reset();
        target().backend.answers(answer('{"id":5}'));
        const served = operations.filter(({ method }) => method === 'GET' || headers.length === 0);
        for (const operation of operations) {
          const { method, path, options, status, body } = operation;
          const reply = await target().call(method, path, { ...options, headers });
          if (served.includes(operation)) assertReply(reply, status, body, ['vary']);
          else assertReply(reply, 403, forbidden, ['vary']);
          assert.deepEqual(corsOf(reply), nothing, headers.join());
        }
        assert.equal(target().backend.requests.length, served.length);
        const preflight = await target().call('OPTIONS', '/api/work-items', { headers: [...headers, ['Access-Control-Request-Method', 'PUT']] });
        assert.equal(preflight.status, 204);
        assertHeaders(preflight, ['allow', 'vary']);
        assert.deepEqual(corsOf(preflight), nothing);
      }
    });

    test('errors have the CORS headers, except the 400 or 431 for a malformed head [D27, D45]', async () => {
      target().backend.answers(answer('', { status: 404 }));
      for (const [method, path, status, body, more, options] of [
        ['GET', '/api/work-items/5', 404, itemNotFound, [], {}],
        ['GET', '/api/work-items/x', 400, invalidId, [], {}],
        ['GET', '/nowhere', 404, notFound, [], {}],
        ['PATCH', '/api/work-items', 405, methodNotAllowed, ['allow'], {}],
        ['POST', '/api/work-items', 413, tooLarge, [], { body: `"${'x'.repeat(1_000)}"` }],
        ['POST', '/api/work-items', 500, '{"error":"Failed to create work item"}', [], { body: '{' }],
        ['GET', '/api/work-items', 417, '{"error":"Expectation failed"}', [], { headers: [['Expect', 'the unexpected']] }],
      ] as const) {
        const headers = [...from(app), ...('headers' in options ? options.headers : [])];
        const reply = await target().call(method, path, { ...options, headers });
        assertReply(reply, status, body, [...granted, ...more]);
        assert.deepEqual(corsOf(reply), grantTo(app), `${method} ${path}`);
      }
      target().backend.answers(answer('[]'));
      await target().withoutBackendCall(async () => {
        await using broken = await target().connect();
        broken.send(requestBytes('POST', '/api/work-items', { headers: [...from(app), ['Transfer-Encoding', 'chunked']] }));
        broken.send('x\r\n');
        const reply = await broken.reply();
        assert.deepEqual([reply.status, ...corsOf(reply)], [400, ...grantTo(app)]);
        for (const [status, body, more] of [
          [400, badRequest, [['Host', 'a'], ['Host', 'b']]],
          [431, headersTooLarge, [['X-Large', 'x'.repeat(20_000)]]],
        ] as const) {
          const malformed = await target().call('GET', '/api/work-items', { headers: [...more, ...from(app)] });
          assertReply(malformed, status, body, ['vary']);
          assert.deepEqual(corsOf(malformed), nothing);
        }
      });
    });
}, { corsOrigins: [app, local], requestBytesMax: 1_000 }); // prettier-ignore

const grant = ['access-control-allow-origin: *', `access-control-expose-headers: ${exposed}`];
const credentials = ([vary = '', origin = '', ...rest]: readonly string[]) => [
  vary,
  origin,
  'access-control-allow-credentials: true',
  ...rest,
];
const anyOrigin: Settings = { corsOrigins: ['*'], corsMaxAgeS: 0 };
const withCredentials: Settings = { corsOrigins: [app], corsCredentials: true, corsMaxAgeS: 86_400 };
for (const [title, settings, ...rows] of [
  ['with every origin allowed, replies have no vary, a preflight has one origin, and a cross-site write has an origin', anyOrigin,
    ['GET', [], 200, grant], ['GET', from(app), 200, grant], ['GET', from('null'), 200, grant],
    ['GET', [...from(app), ...from(local)], 200, grant], ['GET', [['Host', 'a b']], 400, grant],
    ['OPTIONS', asking(app), 204, preflightFor('*', item, 0)], ['OPTIONS', asking('null'), 204, preflightFor('*', item, 0)],
    ['OPTIONS', [...asking(app), ...from(local)], 204, grant],
    ['DELETE', [crossSite, ...from(app)], 200, grant], ['DELETE', [crossSite, ...from('null')], 200, grant], ['DELETE', [crossSite], 403, grant]],
  ['with credentials, only replies to requests and preflights from an allowed origin allow credentials', withCredentials,
    ['GET', from(app), 200, credentials(grantTo(app))], ['OPTIONS', asking(app), 204, credentials(preflightFor(app, item, 86_400))],
    ['GET', from(elsewhere), 200, nothing]],
  ['without allowed origins no reply has CORS headers, and a preflight is treated like any other OPTIONS', {},
    ['GET', from(app), 200, []], ['OPTIONS', asking(app), 204, []]],
  ['a preflight to a host name that is not allowed is 403', { corsOrigins: [app], allowedHosts: ['items.example'] },
    ['OPTIONS', [['Host', 'evil.example'], ...asking(app)], 403, grantTo(app)]],
] satisfies [string, Settings, ...[string, Headers, number, readonly string[]][]][]) {
  test(`${title} [D6, D45, D56, D57]`, async () => {
    await using target = await Target.start('in-process', settings, {});
    for (const [method, headers, status, expected] of rows) {
      const reply = await target.call(method, '/api/work-items/5', { headers });
      assert.equal(reply.status, status, `${method} ${headers.join()}`);
      assert.deepEqual(corsOf(reply), expected);
    }
  });
} // prettier-ignore
