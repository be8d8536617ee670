// The plugin uses its host's request log and request ids, and has no schemas.

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import type { RouteOptions } from 'fastify';
import { workItemGateway } from '../../packages/core/hosts/index.ts';
import { hosts, serve, serveApp, type HostOptions } from './hosts.ts';
import { answer } from '../helpers/scripted-backend.ts';

type Line = Readonly<Record<string, unknown>>;

function captured(): { lines: Line[]; options: HostOptions } {
  const lines: Line[] = [];
  const write = (line: string) => lines.push(JSON.parse(line) as Line);
  return { lines, options: { logger: { level: 'warn', stream: { write } } } };
}

for (const host of hosts) {
  describe(host.name, () => {
    test("a failure is a line in the request's own log", async () => {
      const { lines, options } = captured();
      const app = host.create(options);
      app.setChildLoggerFactory((logger, bindings, childOptions) =>
        logger.child({ ...bindings, tenant: 'a' }, childOptions),
      );
      await using server = await serve(app);
      server.backend.answers(answer('{}', { status: 500 }));
      const headers = [['User-Agent', 'curl "8"']] as const;
      const reply = await server.call('GET', '/api/work-items/5', { headers });
      assert.equal(reply.status, 500);
      assert.equal(lines.length, 1);
      const [line] = lines;
      assert.deepEqual(
        [line?.['reqId'], line?.['tenant'], line?.['requestId'], line?.['outcome'], line?.['path']],
        ['req-1', 'a', reply.header('x-request-id'), 'refused', '/api/work-items/5'],
      );
      assert.deepEqual([line?.['agent'], line?.['http']], ['curl "8"', '1.1']);
    });

    test('an observer does not silence the log; `log: false` and a function do', async () => {
      for (const [given, logged] of [
        [{ observer: { onCallEnd: () => undefined } }, 1],
        [{ log: false }, 0],
        [{ log: () => undefined }, 0],
      ] as const) {
        const { lines, options } = captured();
        await using server = await serve(host.create(options), given);
        server.backend.answers(answer('{}', { status: 500 }));
        assert.equal((await server.call('GET', '/api/work-items/5')).status, 500);
        assert.equal(lines.length, logged, Object.keys(given).join());
      }
    });

    test("the log level of the plugin's scope applies", async () => {
      const { lines, options } = captured();
      const app = host.create(options);
      await using server = await serve(app, { logLevel: 'silent' } as object);
      server.backend.answers(answer('{}', { status: 500 }));
      assert.equal((await server.call('GET', '/api/work-items/5')).status, 500);
      assert.deepEqual(lines, []);
    });

    test('the request id comes from the client, or from the host if the client sends no id; an invalid id is replaced [D25]', async () => {
      for (const [hostId, sent, expected] of [
        ['of-the-host', undefined, /^of-the-host$/],
        ['of-the-host', 'mine', /^mine$/],
        ['of-the-host', 'no id\u00e9', /^[0-9a-f-]{36}$/],
        ['no id', undefined, /^[0-9a-f-]{36}$/],
        ['req-1z', undefined, /^[0-9a-f-]{36}$/],
      ] as const) {
        const app = host.create({ genReqId: () => hostId });
        await using server = await serve(app);
        const headers = sent === undefined ? [] : ([['X-Request-Id', sent]] as const);
        const reply = await server.call('GET', '/api/work-items/5', { headers });
        assert.match(reply.header('x-request-id') ?? '', expected);
        assert.equal(server.backend.requests[0]?.header('x-request-id'), reply.header('x-request-id'));
      }
    });

    test("the plugin's routes have no schema: Fastify validates and serializes nothing", async () => {
      const app = host.create();
      const routes: RouteOptions[] = [];
      app.addHook('onRoute', (route) => {
        routes.push(route);
      });
      await using server = await serve(app);
      assert.ok(routes.length > 2);
      assert.deepEqual(
        routes.map(({ schema }) => schema),
        routes.map(() => undefined),
      );
      const body = ' {"n":1.0,"n":9007199254740993}\n';
      server.backend.answers(answer(body));
      const reply = await server.call('POST', '/api/work-items', { body });
      assert.deepEqual([reply.text, server.backend.requests[0]?.body.toString()], [body, body]);
    });

    test('the plugin has a name and its own scope, and can be registered twice', async () => {
      const app = host.create();
      await using server = await serveApp(app, async (backendUrl) => {
        await app.register(workItemGateway, { backendUrl });
        await app.register(workItemGateway, { backendUrl, prefix: '/v1' });
      });
      assert.match(app.printPlugins(), /work-item-gateway/);
      for (const path of ['/api/work-items/5', '/v1/api/work-items/6']) {
        assert.equal((await server.call('GET', path)).status, 200);
      }
      // The host keeps its JSON parser.
      assert.ok(app.hasContentTypeParser('application/json'));
    });
  });
}
