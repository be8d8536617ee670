// In a Fastify server the server's hooks run before every operation, whatever the target [D60].

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { workItemGateway } from '../../packages/core/hosts/index.ts';
import { hosts, serve, serveApp, type Host } from './hosts.ts';
import { requestsFor, sendAll } from '../helpers/odd-targets.ts';

const allMethods = [
  'GET',
  'DELETE',
  'PUT',
  'POST',
  'HEAD',
  'OPTIONS',
  'PATCH',
  'TRACE',
  'QUERY',
  'PROPFIND',
  'FOO',
  'CONNECT',
];

async function deny(_request: FastifyRequest, reply: FastifyReply): Promise<void> {
  await reply.code(401).send({ error: 'no entry' });
}

const hookNames = ['onRequest', 'preParsing', 'preValidation', 'preHandler'] as const;

/** Each hook is in the server, or in a scope around the plugin. The rest is the prefix and the methods of the requests. */
const places: [hook: (typeof hookNames)[number], isScoped: boolean, prefix: string, ...methods: string[]][] = [
  ['onRequest', false, '', 'GET', 'DELETE', 'FOO'],
  ['preParsing', false, '', 'GET'],
  ['preValidation', false, '', 'DELETE'],
  ['preHandler', true, '/v1', 'DELETE'],
  ['onRequest', true, '', 'PUT'],
];

/** Sends each odd target with each of `methods`, and asserts that no request gets past the hooks. */
async function assertRefused(port: number, requests: ReturnType<typeof requestsFor>): Promise<void> {
  const passed: string[] = [];
  await sendAll(port, requests, ({ method, target }, status) => {
    if (status !== 0 && status < 400) passed.push(`${method} ${target}: ${status}`);
  });
  assert.deepEqual(passed, []);
}

for (const host of hosts) {
  describe(host.name, () => {
    for (const [hook, isScoped, prefix, ...methods] of places) {
      test(`no odd target gets past the hook ${hook} of the ${isScoped ? 'scope around the plugin' : 'server'}${prefix} [D60]`, async () => {
        const app = host.create();
        await using server = await serveApp(app, (backendUrl) => {
          const add = (scope: FastifyInstance) => {
            scope.addHook(hook as 'onRequest', deny);
            return scope.register(workItemGateway, { backendUrl, ...(prefix !== '' && { prefix }) });
          };
          return isScoped
            ? app.register(async (scope) => {
                await add(scope);
              })
            : add(app);
        });
        // The oldest version gets one method only, because all would take too long.
        const sent = host.name.includes('newest') ? methods : methods.slice(0, 1);
        await assertRefused(server.port, requestsFor(sent, prefix));
        assert.deepEqual(server.backend.requests, []);
        assert.equal((await server.call('GET', `${prefix}/api/work-items`)).status, 401);
      });
    }

    test('every request that reaches the backend has passed every hook [D60]', async () => {
      const app = host.create();
      const seen = new Map<string, string[]>();
      for (const hook of hookNames) {
        app.addHook(hook as 'onRequest', ({ raw }: FastifyRequest) => {
          const id = String(raw.headers['x-request-id']);
          seen.set(id, [...(seen.get(id) ?? []), hook]);
          return Promise.resolve();
        });
      }
      await using server = await serve(app);
      const requests = requestsFor(['GET', 'PUT']).map((request, index) => ({
        ...request,
        headers: [['X-Request-Id', `odd-${index}`]] as const,
      }));
      await sendAll(server.port, requests, () => undefined);
      assert.ok(server.backend.requests.length > 100, 'some of the targets reach the backend');
      for (const call of server.backend.requests) {
        const hooks = seen.get(call.header('x-request-id') ?? '');
        assert.deepEqual(hooks, hookNames, `${call.method} ${call.target}`);
      }
      assert.deepEqual(server.backend.violations, []);
    });

    test("failing and unknown constraints of the server's routes do not bypass hooks [D60]", async () => {
      await using server = await serveConstrained(host);
      const headers = [['Accept-Version', '1.0.0'], ['X-Tenant', 'unknown']] as const; // prettier-ignore
      for (const [name, value] of headers) {
        for (const method of allMethods) {
          const options = { headers: [[name, value]] as const };
          for (const path of ['/api/work-items', '/api/work-items/5', '/v1/api/work-items/5']) {
            const reply = await server.call(method, path, options).catch(() => undefined);
            const status = reply?.status ?? 0;
            assert.ok(status === 0 || status >= 400, `${method} ${path} with ${name}: ${status}`);
          }
        }
      }
      await sendAll(server.port, headers.flatMap((header) => requestsFor(['DELETE'], '', [header])), () => undefined); // prettier-ignore
      assert.deepEqual(server.backend.requests, []);
    });

    test("a parameter that is too long for the server's routes does not bypass hooks [D60]", async () => {
      const app = host.create({ router: { maxParamLength: 5 } });
      app.get('/:name', () => 'host');
      app.all('/api/:name/:id', () => 'host');
      app.all('/api/:name', () => 'host');
      app.addHook('onRequest', deny);
      await using server = await serve(app);
      const long = ['/too-long-a-name', '/api/too-long/5', '/api/work-itemsx/5', '/api/work-item/55555555'];
      const longRequests = allMethods.flatMap((method) => long.map((target) => ({ method, target, headers: [] })));
      await assertRefused(server.port, [...requestsFor(['DELETE']), ...longRequests]);
      assert.deepEqual(server.backend.requests, []);
    });
  });
}

/**
 * Starts a server with two routes: a versioned route, and a route with an asynchronous constraint that may fail. The
 * server's hook refuses requests that match a route.
 */
async function serveConstrained(host: Host) {
  const app = host.create({
    router: {
      constraints: {
        tenant: {
          name: 'tenant',
          storage: () => {
            const handlers = new Map<string, unknown>();
            return {
              get: (tenant: string) => handlers.get(tenant) ?? null,
              set: (tenant: string, handler: unknown) => handlers.set(tenant, handler),
            };
          },
          deriveConstraint: (request: { headers: Record<string, unknown> }, _context: unknown, done: (error: Error | null, tenant?: unknown) => void) => {
            const tenant = request.headers['x-tenant'];
            setImmediate(() => done(tenant === 'unknown' ? new Error('SECRET') : null, tenant));
          }, // prettier-ignore
          validate: () => true,
        },
      },
    },
  });
  app.addHook('onRequest', async (request, reply) => {
    if (!request.is404) await deny(request, reply);
  });
  app.get('/versioned', { constraints: { version: '1.0.0' } }, () => 'host');
  app.get('/of-tenant', { constraints: { tenant: 'a' } }, () => 'host');
  return await serve(app);
}
