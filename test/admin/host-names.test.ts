// The admin listener serves only requests for its own names, as a protection against DNS rebinding [D57].
// test/unit/admission.test.ts tests how names are compared.

import assert from 'node:assert/strict';
import { lookup } from 'node:dns/promises';
import { writeFileSync } from 'node:fs';
import { hostname } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { createReport, withAdmin } from '../dashboard/report.ts';
import { isReloaded, startCommand } from '../helpers/command.ts';
import { RawClient, type Reply } from '../helpers/raw-client.ts';
import { runHere } from '../helpers/run-cli.ts';
import { statePath } from '../helpers/dashboard-state.ts';
import { useBackend, useFolder } from '../helpers/suites.ts';

const paths = ['/', '/livez', '/readyz', '/metrics', '/dashboard/main.js', statePath, '/nowhere', '/%'];

const backend = await useBackend();

async function ask(port: number, head: string, address?: string): Promise<Reply> {
  await using client = await RawClient.open(port, address);
  client.send(head);
  return await client.reply({ hasBody: !head.startsWith('HEAD') });
}

test('only requests for allowed names are served, whatever path and method [D27, D57]', async () => {
  const text = '{"error":"Host not allowed: use the IP address, or add the name to ADMIN_ALLOWED_HOSTS"}';
  const allowedHosts = ['gateway.internal', 'dashboards.example.com'];
  await withAdmin(
    () => [createReport()],
    async (port) => {
      const send = (request: string, ...hosts: string[]) =>
        ask(port, `${request}\r\n${hosts.map((host) => `Host: ${host}\r\n`).join('')}\r\n`);
      for (const path of paths) {
        const get = `GET ${path} HTTP/1.1`;
        for (const host of ['evil.example', `evil.example:${port}`, 'localhost.evil.example']) {
          const reply = await send(get, host);
          assert.deepEqual([reply.status, reply.text], [403, text], `${path} ${host}`);
          assert.equal(reply.header('content-type'), 'application/json; charset=utf-8');
        }
        // Two fields are malformed, as on the listener for clients.
        for (const [one = '', other = ''] of [
          ['localhost', 'evil.example'],
          ['evil.example', 'localhost'],
          ['localhost', 'localhost'],
          ['', 'localhost'],
        ]) {
          const reply = await send(get, one, other);
          assert.deepEqual([reply.status, reply.text], [400, '{"error":"Bad request"}'], path);
        }
      }
      for (const method of ['HEAD', 'POST', 'DELETE', 'OPTIONS']) {
        assert.equal((await send(`${method} /metrics HTTP/1.1`, 'evil.example')).status, 403, method);
      }
      for (const path of ['/livez', '/readyz', '/metrics', '/']) {
        for (const host of [
          ...['127.0.0.1', `127.0.0.1:${port}`, '10.0.0.1:1', '[::1]:9464', 'localhost:9464', 'LOCALHOST.'],
          ...['gateway.localhost', 'gateway.internal', 'GATEWAY.internal.:443', 'dashboards.example.com', ''],
        ]) {
          assert.equal((await send(`GET ${path} HTTP/1.1`, host)).status, 200, `${host} ${path}`);
        }
        // Simple health checks send no Host.
        for (const version of ['1.0', '1.1']) {
          assert.equal((await send(`GET ${path} HTTP/${version}`)).status, 200, `${path} ${version}`);
        }
      }
    },
    undefined,
    { allowedHosts },
  );
});

test('an invalid name in ADMIN_ALLOWED_HOSTS is reported at the start [D32]', async () => {
  const { stderr } = await runHere(['serve'], { ADMIN_ALLOWED_HOSTS: 'gateway.internal:9464' });
  assert.match(stderr, /ADMIN_ALLOWED_HOSTS .*must be host names separated by commas, without ports/);
});

test('requests for names in ADMIN_ALLOWED_HOSTS and ADMIN_HOST are served; after SIGHUP the new ADMIN_ALLOWED_HOSTS applies [D57]', async (t) => {
  const name = hostname();
  const { address } = await lookup(name).catch(() => ({ address: undefined }));
  if (address === undefined) {
    t.skip(`this machine's name, ${name}, has no address`);
    return;
  }
  const file = join(useFolder(), 'settings.env');
  writeFileSync(file, 'ADMIN_ALLOWED_HOSTS=Before.Example.\n');
  await using own = await startCommand({ BACKEND_URL: backend.url, ADMIN_HOST: name, SETTINGS_FILE: file });
  const status = async (host: string): Promise<number> =>
    (await ask(own.adminPort, `GET /livez HTTP/1.1\r\nHost: ${host}\r\n\r\n`, address)).status;
  assert.equal(await status(name), 200);
  assert.equal(await status(`${name.toUpperCase()}.:1`), 200);
  assert.equal(await status(`evil.${name}`), 403);
  assert.deepEqual([await status('before.example'), await status('after.example')], [200, 403]);
  writeFileSync(file, 'ADMIN_ALLOWED_HOSTS=after.example\n');
  own.signal('SIGHUP');
  await own.log(isReloaded, 'the reload ends');
  assert.deepEqual([await status('before.example'), await status('after.example')], [403, 200]);
});
