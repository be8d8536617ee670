// ALLOWED_HOSTS protects against DNS rebinding [D57]. test/unit/admission.test.ts tests the parsing of the header.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { startCommand } from '../helpers/command.ts';
import { assertReply, badRequest, forbidden, headersTooLarge, operations } from '../helpers/expected.ts';
import type { Headers } from '../helpers/raw-client.ts';
import { answer } from '../helpers/scripted-backend.ts';
import { forEachTarget } from '../helpers/targets.ts';

const under = (...hosts: readonly string[]): Headers => hosts.map((host) => ['Host', host]);
const evil = ['evil.example', 'items.example.evil.example', 'evil.items.example', '127.0.0.1.nip.io'];

forEachTarget(
  (target) => {
    test('any request with a host name that is not allowed is 403, and the backend is not called [D57]', async () => {
      await target().withoutBackendCall(async () => {
        const others = [
          ['OPTIONS', '/api/work-items'], ['OPTIONS', '*'], ['PATCH', '/api/work-items/5'], ['GET', '/nowhere'],
          ['GET', '/api/work-items/abc'], ['GET', '/docs'], ['GET', '/openapi.json'],
        ].map(([method = '', path = '']) => ({ method, path, options: {} })); // prettier-ignore
        for (const host of evil) {
          for (const { method, path, options } of [...operations, ...others]) {
            assertReply(await target().call(method, path, { ...options, headers: under(host) }), 403, forbidden);
          }
        }
        const head = await target().call('HEAD', '/api/work-items', { headers: under('evil.example') });
        assert.deepEqual([head.status, head.header('content-length')], [403, String(forbidden.length)]);
      });
    });

    test('operations with allowed names, IP addresses, local names and an empty Host are served [D57]', async () => {
      target().backend.answers(answer('{"id":5}'));
      for (const host of [
        'items.example', 'ITEMS.Example.:8080', 'work_items', '127.0.0.1:3000', '[::1]', 'localhost:1', 'a.localhost', '',
      ]) {
        for (const { method, path, options, status } of operations) {
          assert.equal((await target().call(method, path, { ...options, headers: under(host) })).status, status, host);
        }
      } // prettier-ignore
      assert.equal(target().backend.requests.length, 8 * operations.length);
    });

    test('Host and the host in an absolute-form target must both be allowed [D57]', async () => {
      const absolute = (host: string): string => `http://${host}/api/work-items`;
      await target().withoutBackendCall(async () => {
        for (const [targetHost, host] of [
          ['evil.example', 'items.example'],
          ['items.example', 'evil.example'],
          ['evil.example:80', 'localhost'],
        ] as const) {
          const reply = await target().call('GET', absolute(targetHost), { headers: under(host) });
          assertReply(reply, 403, forbidden);
        }
      });
      const reply = await target().call('GET', absolute('ITEMS.example:80'), { headers: under('items.example') });
      assertReply(reply, 200, '[]');
    });

    test('malformed HTTP is 400 or 431, whatever its host name [D27, D57]', async () => {
      await target().withoutBackendCall(async () => {
        const two = under('items.example', 'evil.example');
        assertReply(await target().call('GET', '/api/work-items', { headers: two }), 400, badRequest);
        const large: Headers = [...under('evil.example'), ['X', 'x'.repeat(20_000)]];
        assertReply(await target().call('GET', '/api/work-items', { headers: large }), 431, headersTooLarge);
        await using client = await target().connect();
        client.send('GET /api/work-items HTTP/1.1\r\n\r\n');
        assertReply(await client.reply(), 400, badRequest);
      });
    });
  },
  { allowedHosts: ['items.example', 'Work_Items.', 'gateway.test'] },
);

test('a host name in HOST is allowed; an IP address in HOST allows no host name [D57]', async () => {
  const check = async (host: string, name: string, status: number) => {
    await using command = await startCommand({ HOST: host, ALLOWED_HOSTS: 'items.example' });
    assert.equal((await command.call('OPTIONS', '/api/work-items', { headers: under(name) })).status, status, host);
  };
  await Promise.all([check('localhost', 'localhost', 204), check('::ffff:127.0.0.1', 'evil.example', 403)]);
});
