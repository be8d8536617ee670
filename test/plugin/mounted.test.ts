// The plugin in a Fastify server: paths, headers, log, request ids, and what it leaves to the server. D5, D24, D25, D28, D51.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { describe, test } from 'node:test';
import type { FastifyInstance, RouteOptions } from 'fastify';
import { workItemGateway } from '../../packages/core/hosts/index.ts';
import { poll } from '../helpers/changes.ts';
import {
  assertReply,
  forbidden,
  invalidId,
  methodNotAllowed,
  operation,
  operations,
  succeeded,
} from '../helpers/expected.ts';
import { answer } from '../helpers/scripted-backend.ts';
import { calling, hosts, serve, serveApp, versions, type HostOptions } from './hosts.ts';

type Line = Readonly<Record<string, unknown>>;

/** Options of a server, and the lines of its log. Writing each of the first `lost` lines throws. */
function captured(lost = 0): { lines: Line[]; options: HostOptions } {
  const lines: Line[] = [];
  const write = (line: string) => {
    lost -= 1;
    if (lost >= 0) throw new TypeError('SECRET');
    lines.push(JSON.parse(line) as Line);
  };
  return { lines, options: { logger: { level: 'warn', stream: { write } } } };
}

/** The fields `names` of a line. */
const pick = (line: Line | undefined, names: string): unknown[] => names.split(' ').map((name) => line?.[name]);

const manifest = JSON.parse(readFileSync(new URL('../../package.json', import.meta.url), 'utf8')) as Record<
  'peerDependencies' | 'devDependencies',
  Record<string, string>
>;

test("the oldest and the newest Fastify of the package's range are tested", () => {
  const [oldest, newest] = [versions.oldest().version, versions.newest().version];
  assert.equal(manifest.peerDependencies['fastify'], `>=${oldest} <${Number(newest.split('.')[0]) + 1}`);
  assert.equal(manifest.devDependencies['fastify'], `^${newest}`);
  assert.notEqual(oldest, newest);
});

for (const { name, create } of hosts) {
  describe(name, () => {
    for (const prefix of ['', '/v1', '/v1/']) {
      test(`every operation works under the prefix "${prefix}" of its host [spec 4]`, async () => {
        await using server = await serve(create(), { prefix });
        const base = prefix.replace(/\/$/, '');
        for (const { method, path, options, status, body, backendTarget } of operations) {
          assertReply(await server.call(method, base + path, options), status, body);
          assert.equal(server.backend.requests.at(-1)?.target, backendTarget);
        }
        assertReply(await server.call('PUT', `${base}/api/work-items/x`), 400, invalidId);
        assertReply(await server.call('PUT', `${base}/api/work-items`), 405, methodNotAllowed, ['allow']);
      });
    }

    test('the server keeps its other paths and its parsers, and guards refuse only calls to the gateway [D5, D56, D57]', async () => {
      const app = create();
      app.post('/echo', (incoming) => ({ got: incoming.body }));
      await using server = await serveApp(app, async (backendUrl) => {
        await app.register(workItemGateway, { backendUrl, allowedHosts: ['items.example'], prefix: '/v1' });
        await app.register(workItemGateway, { backendUrl, prefix: '/v2' });
      });
      assert.match(app.printPlugins(), /work-item-gateway/);
      const json = ['Content-Type', 'application/json'] as const;
      for (const headers of [
        [json, ['Host', 'evil.example']],
        [json, ['Host', 'items.example'], ['Sec-Fetch-Site', 'cross-site']],
      ] as const) {
        const options = { headers, body: '{"a":1}' };
        assertReply(await server.call('POST', '/v1/api/work-items', options), 403, forbidden);
        const echo = await server.call('POST', '/echo', options);
        assert.deepEqual([echo.text, echo.header('x-request-id')], ['{"got":{"a":1}}', undefined]);
      }
      const unknown = await server.call('GET', '/api/work-items');
      assert.deepEqual([unknown.status, unknown.text === '{"error":"Not found"}'], [404, false]);
      assert.equal(server.backend.requests.length, 0);
      const headers = [['Host', 'items.example']] as const;
      assert.equal((await server.call('POST', '/v1/api/work-items', { body: '{}', headers })).status, 201);
      assert.equal((await server.call('GET', '/v2/api/work-items/6')).status, 200);
    });

    test('the host decides about `expect`: the connection stays open after its 100 Continue', async () => {
      const app = create();
      app.server.on('checkExpectation', (...each) => app.server.emit('request', ...each));
      await using server = await serve(app);
      await using client = await server.connect();
      client.send(
        'GET /api/work-items HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\n\r\n' +
          'DELETE /api/work-items/5 HTTP/1.1\r\nHost: x\r\n\r\n',
      );
      assert.equal((await client.reply()).status, 100);
      assertReply(await client.reply(), 200, '{"id":5}');
      assertReply(await client.reply(), 200, succeeded);
      const headers = [['Expect', 'the-best']] as const;
      assertReply(await client.call('GET', '/api/work-items', { headers }), 200, '{"id":5}');
    });

    test("a failure is a warning in the request's own log; successes and faults of the client are not logged [D51]", async () => {
      const { lines, options } = captured();
      const app = create(options);
      app.setChildLoggerFactory((logger, bindings, childOptions) =>
        logger.child({ ...bindings, tenant: 'a' }, childOptions),
      );
      await using server = await serve(app);
      await server.call('GET', '/api/work-items');
      for (const [status, path] of [[404, '/5'], [409, '/6']] as const) {
        server.backend.answersOnce(answer('{}', { status }));
        await server.call('GET', `/api/work-items${path}`);
      } // prettier-ignore
      await server.call('PUT', '/api/work-items/5', { body: '{' });
      server.backend.answersOnce(answer('no JSON'));
      const headers = [['X-Request-Id', 'failed'], ['User-Agent', 'curl "8"']] as const; // prettier-ignore
      assertReply(await server.call('GET', '/api/work-items', { headers }), 500, operation(1).failure);
      await poll(() => lines.length > 0, 'a line in the log');
      await server.call('GET', '/nowhere');
      assert.equal(lines.length, 1);
      const names = 'level requestId operation path status outcome cause msg agent http tenant';
      const cause = 'status 200 with a body that is not JSON';
      assert.deepEqual(pick(lines[0], names), [
        ...[40, 'failed', 'list', '/api/work-items', 500, 'not-json', cause, 'backend call failed', 'curl "8"', '1.1', 'a'],
      ]); // prettier-ignore
      assert.match(String(lines[0]?.['reqId']), /^req-/);
    });

    test("an observer does not silence the log; `log`, and the log level of the plugin's scope, do", async () => {
      for (const [given, logged] of [
        [{ observer: { onCallEnd: () => undefined } }, 1],
        [{ log: false }, 0],
        [{ log: () => undefined }, 0],
        [{ logLevel: 'silent', logSerializers: {} }, 0],
      ] as const) {
        const { lines, options } = captured();
        await using server = await serve(create(options), given as object);
        server.backend.answers(answer('{}', { status: 500 }));
        assert.equal((await server.call('GET', '/api/work-items/5')).status, 500);
        assert.equal(lines.length, logged, Object.keys(given).join());
      }
    });

    test("after a fault of the gateway the client gets 500; only the host's log has the error's message and stack [D28]", async () => {
      const { lines, options: logging } = captured();
      const app = create(logging);
      const get = () => assert.fail(new TypeError('SECRET'));
      const breakHead = calling(({ headers, raw }) => {
        if (headers['x-fault'] !== undefined) Object.defineProperty(raw, 'rawHeaders', { get });
      });
      app.addHook('onRequest', breakHead);
      await using server = await serve(app);
      for (const { method, path, options, failure } of operations) {
        const reply = await server.call(method, path, { ...options, headers: [['X-Fault', '1']] });
        assertReply(reply, 500, failure);
        assert.doesNotMatch(JSON.stringify(reply.headers), /SECRET/);
      }
      assertReply(await server.call('DELETE', '/api/work-items/5'), 200, succeeded);
      await poll(() => lines.length >= operations.length, 'a line in the log for each');
      assert.equal(lines.length, operations.length);
      const line = lines.at(-1);
      assert.deepEqual(pick(line, 'level operation status outcome msg'), [50, 'delete', 500, 'bug', 'internal error']);
      const { stack, ...error } = line?.['err'] as Record<'type' | 'message' | 'stack', string>;
      assert.deepEqual(error, { type: 'TypeError', message: 'SECRET' });
      assert.match(stack, /at /);
    });

    test("a fault of the gateway after a reply is an error in the host's log [D28]", async () => {
      const { lines, options } = captured(1);
      await using server = await serve(create(options));
      server.backend.answersOnce(answer('no JSON'));
      assertReply(await server.call('GET', '/api/work-items'), 500, operation(1).failure);
      await poll(() => lines.length > 0, 'a line in the log');
      const late = [50, 'list', 'not-json', 'internal error after the reply had begun'];
      assert.deepEqual(pick(lines[0], 'level operation outcome msg'), late);
      assert.equal((lines[0]?.['err'] as Error).message, 'SECRET');
    });

    test('the request id comes from the client, or from the host if the client sends no id; an invalid id is replaced [D25]', async () => {
      for (const [hostId, sent, expected] of [
        ['of-the-host', undefined, /^of-the-host$/],
        ['of-the-host', 'mine', /^mine$/],
        ['of-the-host', 'no id\u00e9', /^[0-9a-f-]{36}$/],
        ['no id', undefined, /^[0-9a-f-]{36}$/],
        ['req-1z', undefined, /^[0-9a-f-]{36}$/],
      ] as const) {
        await using server = await serve(create({ genReqId: () => hostId }));
        const headers = sent === undefined ? [] : ([['X-Request-Id', sent]] as const);
        const reply = await server.call('GET', '/api/work-items/5', { headers });
        assert.match(reply.header('x-request-id') ?? '', expected);
        assert.equal(server.backend.requests[0]?.header('x-request-id'), reply.header('x-request-id'));
      }
    });

    test('routes have no schema, so Fastify validates and serializes nothing; @fastify/swagger sees the five operations', async () => {
      const app = create();
      app.decorate('swagger', () => ({}));
      const routes: RouteOptions[] = [];
      app.addHook('onRoute', (route) => void routes.push(route));
      await using server = await serve(app);
      const body = ' {"n":1.0,"n":9007199254740993}\n';
      server.backend.answers(answer(body));
      const reply = await server.call('POST', '/api/work-items', { body });
      assert.deepEqual([reply.text, server.backend.requests[0]?.body.toString()], [body, body]);
      type Transform = (route: { url: string }) => { url: string; schema: { hide?: boolean; response?: object } };
      const described = routes.flatMap(({ method, url, config, schema }) => {
        assert.equal(schema, undefined);
        const found = (config as unknown as { swaggerTransform: Transform }).swaggerTransform({ url });
        return [method].flat().map((each) => ({ route: `${each} ${found.url}`, schema: found.schema }));
      });
      const shown = described.filter(({ schema }) => schema.hide !== true);
      const expected = operations.map(({ method, path }) => `${method} ${path.replace('/5', '/:id')}`);
      assert.deepEqual(shown.map(({ route }) => route).toSorted(), expected.toSorted()); // prettier-ignore
      for (const { route, schema } of shown) assert.ok('500' in (schema.response ?? {}), route);
      const hidden = described.filter(({ schema }) => schema.hide === true);
      assert.ok(hidden.some(({ route }) => route === 'PATCH /api/work-items/*'));
      for (const { schema } of hidden) assert.deepEqual(schema, { hide: true });
    });

    test('registering fails with all problems of the options, and in an HTTP/2 server', async () => {
      const register = async (app: FastifyInstance, options: object) =>
        await app.register(workItemGateway, { backendUrl: 'http://localhost:5104', ...options });
      const problems = /shutdownTimeoutMs must be a whole number from 1 to 2147483647; idleTimeoutMs is unknown\.$/;
      await assert.rejects(register(create(), { idleTimeoutMs: 5, shutdownTimeoutMs: 0 }), {
        ...{ name: 'TypeError', code: 'ERR_GATEWAY_OPTIONS', message: problems },
      });
      await assert.rejects(register(create({ http2: true } as object), {}), {
        ...{ code: 'ERR_GATEWAY_HOST', message: /HTTP\/1\.1/ },
      });
    });
  });
}
