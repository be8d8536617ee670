// The routes as `@fastify/swagger` reads them. test/examples/fastify.test.ts runs that library itself.

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { workItemGateway } from '../../packages/core/hosts/index.ts';
import { hosts } from './hosts.ts';

type Transform = (route: { url: string }) => {
  url: string;
  schema: { hide?: boolean; operationId?: string; response?: object };
};

for (const host of hosts) {
  describe(host.name, () => {
    test('each operation is described with its replies; all other routes are hidden', async () => {
      const app = host.create();
      app.decorate('swagger', () => ({}));
      const described: [method: string, url: string, schema: ReturnType<Transform>['schema']][] = [];
      const routes: [methods: string | string[], url: string, transform: Transform][] = [];
      app.addHook('onRoute', ({ method, url, config }) => {
        const { swaggerTransform } = config as unknown as { swaggerTransform: Transform };
        routes.push([method, url, swaggerTransform]);
      });
      await app.register(workItemGateway, { backendUrl: 'http://127.0.0.1:1' });
      await app.ready();
      for (const [methods, url, transform] of routes) {
        const found = transform({ url });
        for (const method of [methods].flat()) described.push([method, found.url, found.schema]);
      }
      await app.close();
      const shown = described.filter(([, , { hide }]) => hide !== true);
      assert.deepEqual(shown.map(([method, url]) => `${method} ${url}`).toSorted(), [
        'DELETE /api/work-items/:id',
        'GET /api/work-items',
        'GET /api/work-items/:id',
        'POST /api/work-items',
        'PUT /api/work-items/:id',
      ]);
      for (const [method, url, { response }] of shown) {
        assert.ok('500' in (response ?? {}), `${method} ${url}`);
      }
      const hidden = described.filter(([, , { hide }]) => hide === true);
      assert.ok(hidden.some(([method, url]) => method === 'PATCH' && url === '/api/work-items/*'));
      for (const [, , schema] of hidden) assert.deepEqual(schema, { hide: true });
    });
  });
}
