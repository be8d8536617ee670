// A reply that closes its connection is the last: nothing that the client sent behind it is started, whatever made
// the connection close. Otherwise a write would run whose client was told that nothing more is served. D27.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { assertReply } from '../helpers/expected.ts';
import { forEachTarget } from '../helpers/targets.ts';

const next = 'POST /api/work-items HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}';

const first: [name: string, bytes: string, status: number][] = [
  [
    'asks for a 100 without a body',
    'GET /api/work-items HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\n\r\n',
    200,
  ],
  ['asks for a 100 at an unknown path', 'GET /nope HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\n\r\n', 404],
  [
    'asks for a 100 with a bad id',
    'GET /api/work-items/x HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\n\r\n',
    400,
  ],
  [
    'asks for another protocol',
    'GET /api/work-items HTTP/1.1\r\nHost: x\r\nConnection: upgrade\r\nUpgrade: foo\r\n\r\n',
    200,
  ],
  [
    'asks for another protocol with a body',
    'PUT /api/work-items/5 HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: h2c\r\nContent-Length: 2\r\n\r\n{}',
    200,
  ],
  ['asks to close', 'GET /api/work-items HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n', 200],
  ['is HTTP/1.0', 'GET /api/work-items HTTP/1.0\r\n\r\n', 200],
];

forEachTarget((target) => {
  for (const [name, bytes, status] of first) {
    test(`nothing is served behind a request that ${name} [D27]`, async () => {
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

  for (const authority of [
    'a:zz',
    '[',
    '',
    'user:p@x',
    'a:99999',
    '[:::::]',
    ':80',
    '%ff',
    '%zz',
    '%',
    '%C3',
    'x%ff:80',
  ]) {
    test(`the target http://${authority}/api/work-items is 400, its host is none [D27]`, async () => {
      const reply = await target().withoutBackendCall(async () => {
        await using client = await target().connect();
        client.send(`GET http://${authority}/api/work-items HTTP/1.1\r\nHost: x\r\n\r\n`);
        return await client.reply();
      });
      assertReply(reply, 400, '{"error":"Bad request"}');
    });
  }
});
