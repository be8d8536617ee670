// The guards of the gateway apply to the plugin's routes only [D56, D57].

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { assertReply } from '../helpers/expected.ts';
import { hosts, serveApp } from './hosts.ts';
import { workItemGateway } from '../../packages/core/hosts/index.ts';

for (const { name, create } of hosts) {
  test(`${name}: guards refuse calls to the gateway with 403, and the server's own routes are not guarded`, async () => {
    const app = create();
    app.post('/own', (_request, reply) => reply.send('own'));
    await using server = await serveApp(app, (backendUrl) =>
      app.register(workItemGateway, { backendUrl, allowedHosts: ['items.example'], prefix: '/v1' }),
    );
    const path = '/v1/api/work-items';
    const refused: [string, string][][] = [
      [['Host', 'evil.example']],
      [['Host', 'items.example'], ['Sec-Fetch-Site', 'cross-site']],
    ]; // prettier-ignore
    for (const headers of refused) {
      assertReply(await server.call('POST', path, { body: '{}', headers }), 403, '{"error":"Forbidden"}');
      assert.equal((await server.call('POST', '/own', { headers })).text, 'own');
    }
    assert.equal(server.backend.requests.length, 0);
    const headers: [string, string][] = [['Host', 'items.example']];
    assert.equal((await server.call('POST', path, { body: '{}', headers })).status, 201);
  });
}
