// What replies say to pages of other origins, and what a browser gets that asks before such a page calls [D45]. With a
// real browser: test/docs/cors-in-browser.test.ts.

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
import { createGatewayServer, workItemGateway } from '../../packages/core/hosts/index.ts';
import { Fastify } from '../helpers/fastify.ts';
import { answer } from '../helpers/scripted-backend.ts';
import { forEachTarget, Target, targetKinds } from '../helpers/targets.ts';

const app = 'https://app.example.com';
const local = 'http://localhost:5173';
const elsewhere = 'https://elsewhere.example';

const exposed = 'x-request-id, retry-after, ratelimit, ratelimit-policy, www-authenticate';
const requestHeaders = 'authorization, content-type, x-request-id, traceparent, tracestate';

/** All that a reply says of CORS, in its order. */
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
  `access-control-allow-headers: ${requestHeaders}`,
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

describe('with origins that are named', () => {
  forEachTarget((target) => {
    test('a preflight gets 204 with the methods of the path, to the byte [D45]', async () => {
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
access-control-allow-headers: authorization, content-type, x-request-id, traceparent, tracestate
access-control-max-age: 600
x-request-id: a
connection: keep-alive
keep-alive: timeout=72
date: now`,
        );
      });
    });

    for (const origin of [app, local]) {
      test(`a preflight of ${origin} for any path and method [D45]`, async () => {
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
        test(`${name}: a page of ${origin} may read the reply, and its failure [D45]`, async () => {
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

    for (const [what, headers] of Object.entries<Headers>({
      'without origin': [],
      'of another origin': from(elsewhere),
      'of an origin that an allowed one begins': from(`${app}.evil.example`),
      'of an origin that an allowed one ends': from(`https://evil-${app.slice(8)}`),
      'of the same name in http': from(app.replace('https', 'http')),
      'of another port': from(`${app}:8443`),
      'with the port that https has anyway': from(`${app}:443`),
      'with a slash at the end': from(`${app}/`),
      'in capitals': from(app.toUpperCase()),
      'of no origin in particular': from('null'),
      'with two origins in one header': from(`${app} ${local}`),
      'with a list of origins': from(`${app}, ${local}`),
      'with two origins': [...from(app), ...from(local)],
      'with the same origin twice': [...from(app), ...from(app)],
      'with an empty origin': from(''),
      'with a star for its origin': from('*'),
    })) {
      test(`${what}: the call is served as before, and nobody may read it [D45]`, async () => {
        for (const { method, path, options, status, body } of operations) {
          target().backend.answers(answer('{"id":5}'));
          const reply = await target().call(method, path, { ...options, headers });
          assertReply(reply, status, body, ['vary']);
          assert.deepEqual(corsOf(reply), nothing);
        }
        assert.equal(target().backend.requests.length, operations.length);
        const preflight = await target().call('OPTIONS', '/api/work-items', {
          headers: [...headers, ['Access-Control-Request-Method', 'PUT']],
        });
        assert.equal(preflight.status, 204);
        assertHeaders(preflight, ['allow', 'vary']);
        assert.deepEqual(corsOf(preflight), nothing);
      });
    }

    test('OPTIONS without a method that is asked for is no preflight [D6, D45]', async () => {
      await target().withoutBackendCall(async () => {
        const reply = await target().call('OPTIONS', '/api/work-items', { headers: from(app) });
        assert.equal(reply.status, 204);
        assert.equal(reply.header('allow'), collection);
        assert.deepEqual(corsOf(reply), grantTo(app));
      });
    });

    test('another method with the headers of a preflight is a call [D45]', async () => {
      const reply = await target().call('GET', '/api/work-items', { headers: asking(app) });
      assert.equal(reply.status, 200);
      assert.deepEqual(corsOf(reply), grantTo(app));
      assert.equal(target().backend.requests.length, 1);
    });

    test('the preflight of an unknown path is 404, which the page can read [D5, D45]', async () => {
      await target().withoutBackendCall(async () => {
        for (const path of ['/', '/api/work-items/1/2', '/API/work-items', '*']) {
          const reply = await target().call('OPTIONS', path, { headers: asking(app) });
          const also = ['vary', 'access-control-allow-origin', 'access-control-expose-headers'];
          assertReply(reply, 404, notFound, also);
          assert.deepEqual(corsOf(reply), grantTo(app));
        }
      });
    });

    test('the body of a preflight is dropped, and its connection goes on [D11, D45]', async () => {
      await target().withoutBackendCall(async () => {
        await using client = await target().connect();
        for (let count = 0; count < 2; count += 1) {
          client.send(requestBytes('OPTIONS', '/api/work-items/5', { headers: asking(local), body: '{}' }));
          assert.deepEqual(corsOf(await client.reply()), preflightFor(local, item, 600));
        }
      });
    });

    test('errors of every kind say it too [D45]', async () => {
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

    test('a body that is no HTTP has an origin, a head that is none has not [D27, D45]', async () => {
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

    test('requests sent ahead get each its own origin [D45]', async () => {
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

    test('HEAD says what GET says [D7, D45]', async () => {
      const reply = await target().call('HEAD', '/api/work-items', { headers: from(local) });
      assert.equal(reply.status, 200);
      assert.deepEqual(corsOf(reply), grantTo(local));
    });

    for (const { name, method, path, options } of operations.filter((each) => each.method !== 'GET')) {
      test(`${name}: a page of another site may write where its origin is allowed [D45, D56]`, async () => {
        const crossSite: Headers = [['Sec-Fetch-Site', 'cross-site']];
        target().backend.answers(answer('{"id":5}'));
        for (const origin of [app, local]) {
          const headers = [...crossSite, ...from(origin)];
          const reply = await target().call(method, path, { ...options, headers });
          assert.ok(reply.status === 200 || reply.status === 201, reply.statusLine);
          assert.deepEqual(corsOf(reply), grantTo(origin));
        }
        target().backend.reset();
        for (const others of [from(elsewhere), [], from('null'), [...from(app), ...from(app)]]) {
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

describe('with every origin', () => {
  const grant = ['access-control-allow-origin: *', `access-control-expose-headers: ${exposed}`];
  forEachTarget((target) => {
    test('every reply says so, whoever asks, and does not vary [D45]', async () => {
      for (const headers of [[], from(app), from('null'), [...from(app), ...from(local)]]) {
        const reply = await target().call('GET', '/api/work-items', { headers });
        assertReply(reply, 200, '[]', ['access-control-allow-origin', 'access-control-expose-headers']);
        assert.deepEqual(corsOf(reply), grant);
      }
      const malformed = await target().call('GET', '/api/work-items', { headers: [['Host', 'a b']] });
      assert.equal(malformed.status, 400);
      assert.deepEqual(corsOf(malformed), grant);
    });

    test('a preflight of any origin is granted, one of two is none [D45]', async () => {
      for (const origin of [app, 'null']) {
        const reply = await target().call('OPTIONS', '/api/work-items/5', { headers: asking(origin) });
        assert.equal(reply.status, 204);
        assert.deepEqual(corsOf(reply), [
          'access-control-allow-origin: *',
          `access-control-allow-methods: ${item}`,
          `access-control-allow-headers: ${requestHeaders}`,
          'access-control-max-age: 0',
        ]);
      }
      const headers = [...asking(app), ...from(local)];
      const reply = await target().call('OPTIONS', '/api/work-items/5', { headers });
      assert.equal(reply.status, 204);
      assert.deepEqual(corsOf(reply), grant);
    });

    test('a page of any site may write, one that does not say which may not [D45, D56]', async () => {
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
    test('replies and preflights of an allowed origin say that they may be used, others do not [D45]', async () => {
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

for (const kind of targetKinds) {
  test(`${kind}: without origins no reply says anything of CORS, and a preflight is OPTIONS [D6, D45]`, async () => {
    await using target = await Target.start(kind, {}, {});
    target.backend.answers(answer('[]'));
    const reply = await target.call('GET', '/api/work-items', { headers: from(app) });
    assertReply(reply, 200, '[]');
    const preflight = await target.call('OPTIONS', '/api/work-items', { headers: asking(app) });
    assert.equal(preflight.status, 204);
    assertHeaders(preflight, ['allow']);
  });

  test(`${kind}: a preflight under a name that is not ours is 403 [D45, D57]`, async () => {
    await using target = await Target.start(
      kind,
      { corsOrigins: [app], allowedHosts: ['items.example'] },
      {},
    );
    const headers: Headers = [['Host', 'evil.example'], ...asking(app)];
    const reply = await target.call('OPTIONS', '/api/work-items', { headers });
    assertReply(reply, 403, forbidden, ['vary', 'access-control-allow-origin', 'access-control-expose-headers']); // prettier-ignore
  });
}

test('options of the server that cannot be are told of, all at once [D32, D45]', () => {
  const backendUrl = 'http://localhost:5104';
  for (const corsOrigins of ['*', app, [`${app}/`], ['null'], ['*', app], [5], {}, null]) {
    const options = { backendUrl, corsOrigins: corsOrigins as string[] };
    assert.throws(() => createGatewayServer(options), /corsOrigins must be an array of origins such as/);
  }
  for (const [options, problem] of [
    [{ corsCredentials: true }, /corsCredentials is true, but corsOrigins names no origin/],
    [{ corsMaxAgeS: 5 }, /corsMaxAgeS is set, but corsOrigins names no origin/],
    [
      { corsOrigins: ['*'], corsCredentials: true },
      /corsCredentials cannot be true where corsOrigins is \*: name the origins instead/,
    ],
    [{ corsOrigins: [app], corsMaxAgeS: 86_401 }, /corsMaxAgeS must be a whole number from 0 to 86400/],
    [{ corsOrigins: [app], corsCredentials: 'yes' as unknown as boolean }, /corsCredentials must be true or/],
  ] as const) {
    assert.throws(() => createGatewayServer({ backendUrl, ...options }), problem);
  }
  createGatewayServer({ backendUrl, corsOrigins: [], corsCredentials: false, corsMaxAgeS: 600 });
});

test("the plugin has none of these options: CORS is its host's [D45]", async () => {
  const host = Fastify();
  const options = { backendUrl: 'http://localhost:5104', corsOrigins: [app] };
  await assert.rejects(async () => {
    await host.register(workItemGateway, options);
  }, /there is no corsOrigins/);
});
