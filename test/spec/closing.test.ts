// After a reply with `connection: close` the gateway serves no further request on the connection. The client may send that
// request again on a new connection, and a write would be done twice [D27].

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { forEachTarget } from '../helpers/targets.ts';

const next = 'POST /api/work-items HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}';

const first: [name: string, bytes: string, status: number][] = [
  ['expects 100 Continue without a body', 'GET /api/work-items HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\n\r\n', 200],
  ['expects 100 Continue at an unknown path', 'GET /nope HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\n\r\n', 404],
  ['expects 100 Continue with a bad id', 'GET /api/work-items/x HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\n\r\n', 400],
  ['asks to upgrade', 'GET /api/work-items HTTP/1.1\r\nHost: x\r\nConnection: upgrade\r\nUpgrade: foo\r\n\r\n', 200],
  [
    'asks to upgrade and has a body',
    'PUT /api/work-items/5 HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: h2c\r\nContent-Length: 2\r\n\r\n{}',
    200,
  ],
  ['asks to close', 'GET /api/work-items HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n', 200],
  ['is HTTP/1.0', 'GET /api/work-items HTTP/1.0\r\n\r\n', 200],
]; // prettier-ignore

forEachTarget((target) => {
  for (const [name, bytes, status] of first) {
    test(`no request is served after one that ${name} [D27]`, async () => {
      await using client = await target().connect();
      const before = target().backend.requests.length;
      client.send(bytes + next);
      const reply = await client.reply();
      assert.equal(reply.status, status);
      assert.equal(reply.header('connection'), 'close');
      await client.closed();
      await target().settle();
      const methods = target()
        .backend.requests.slice(before, -1)
        .map((call) => call.method);
      assert.ok(!methods.includes('POST'), `sent to the backend: ${methods.join(', ')}`);
    });
  }
});
