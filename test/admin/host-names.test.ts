// The admin listener serves only requests for its own names, against DNS rebinding [D57]. test/unit/host-names.test.ts
// tests how names are compared.

import assert from 'node:assert/strict';
import { lookup } from 'node:dns/promises';
import { writeFileSync } from 'node:fs';
import { hostname } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { poll } from '../helpers/changes.ts';
import { isReloaded, useBackend, useFolder } from '../helpers/command-tests.ts';
import { RawClient, type Reply } from '../helpers/raw-client.ts';
import { runHere } from '../helpers/run-cli.ts';
import { startCommand, type Command } from '../helpers/targets.ts';
import { statePath } from '../helpers/dashboard-state.ts';

const served = ['/', '/livez', '/readyz', '/metrics', '/dashboard/main.js', statePath];
const paths = [...served, '/nowhere', '/%', '*'];

const backend = await useBackend();
let command: Command;
before(async () => {
  command = await startCommand({
    BACKEND_URL: backend.url,
    ADMIN_ALLOWED_HOSTS: 'Gateway.Internal., dashboards.example.com',
  });
});
after(() => command.stop());

async function ask(port: number, head: string, method = 'GET'): Promise<Reply> {
  await using client = await RawClient.open(port);
  client.send(head);
  return await client.reply({ hasBody: method !== 'HEAD' });
}

function get(path: string, ...hosts: readonly string[]): Promise<Reply> {
  return ask(command.adminPort, `GET ${path} HTTP/1.1\r\n${hosts.map((host) => `Host: ${host}\r\n`).join('')}\r\n`);
}

function assertRefused(reply: Reply, what: string): void {
  assert.equal(reply.status, 403, what);
  assert.equal(reply.text, '{"error":"Host not allowed: use the IP address, or add the name to ADMIN_ALLOWED_HOSTS"}');
  assert.equal(reply.header('content-type'), 'application/json; charset=utf-8');
}

test('another Host is 403, whatever the path and method [D57]', async () => {
  for (const path of paths) {
    for (const host of ['evil.example', `evil.example:${command.adminPort}`, 'localhost.evil.example']) {
      assertRefused(await get(path, host), `${path} ${host}`);
    }
  }
  for (const method of ['HEAD', 'POST', 'DELETE', 'OPTIONS']) {
    const reply = await ask(command.adminPort, `${method} /metrics HTTP/1.1\r\nHost: evil.example\r\n\r\n`, method);
    assert.equal(reply.status, 403, method);
  }
});

test('two Host fields are 403 [D57]', async () => {
  for (const path of paths) {
    assertRefused(await get(path, 'localhost', 'evil.example'), path);
    assertRefused(await get(path, 'evil.example', 'localhost'), path);
    assertRefused(await get(path, 'localhost', 'localhost'), path);
    assertRefused(await get(path, '', 'localhost'), path);
  }
});

test('a request without Host, or with an empty one, is served: simple health checks send no Host [D57]', async () => {
  for (const head of [
    'GET /readyz HTTP/1.0\r\n\r\n',
    'GET /readyz HTTP/1.0\r\nHost:\r\n\r\n',
    'GET /readyz HTTP/1.1\r\n\r\n',
    'GET /readyz HTTP/1.1\r\nHost: \r\n\r\n',
    'GET /livez HTTP/1.0\r\n\r\n',
    'GET /metrics HTTP/1.0\r\n\r\n',
  ]) {
    assert.equal((await ask(command.adminPort, head)).status, 200, JSON.stringify(head));
  }
});

test('addresses, localhost and names of ADMIN_ALLOWED_HOSTS are served, with any port [D57]', async () => {
  for (const host of [
    '127.0.0.1',
    `127.0.0.1:${command.adminPort}`,
    '10.0.0.1:1',
    '[::1]:9464',
    'localhost:9464',
    'LOCALHOST.',
    'gateway.localhost',
    'gateway.internal',
    'GATEWAY.internal.:443',
    'dashboards.example.com',
  ]) {
    for (const path of ['/livez', '/readyz', '/metrics', '/'] as const) {
      assert.equal((await get(path, host)).status, 200, `${host} ${path}`);
    }
  }
});

test('an invalid name in ADMIN_ALLOWED_HOSTS is reported at the start [D32]', async () => {
  const { stderr } = await runHere(['serve'], { ADMIN_ALLOWED_HOSTS: 'gateway.internal:9464' });
  assert.match(stderr, /ADMIN_ALLOWED_HOSTS .*must be host names separated by commas, without ports/);
});

test('SIGHUP reads ADMIN_ALLOWED_HOSTS again [D57]', async () => {
  const file = join(useFolder(), 'settings.env');
  writeFileSync(file, 'ADMIN_ALLOWED_HOSTS=before.example\n');
  await using own = await startCommand({ BACKEND_URL: backend.url, WORKERS: '2', SETTINGS_FILE: file });
  const status = async (host: string): Promise<number> =>
    (await ask(own.adminPort, `GET /livez HTTP/1.1\r\nHost: ${host}\r\n\r\n`)).status;
  assert.deepEqual([await status('before.example'), await status('after.example')], [200, 403]);
  writeFileSync(file, 'ADMIN_ALLOWED_HOSTS=after.example\n');
  own.signal('SIGHUP');
  await own.log(isReloaded, 'the reload ends');
  await poll(async () => (await status('after.example')) === 200, 'the new name is served');
  assert.equal(await status('before.example'), 403);
});

test('the name in ADMIN_HOST is served [D57]', async (t) => {
  const name = hostname();
  const isOwn = await lookup(name).then(
    () => true,
    () => false,
  );
  if (!isOwn) {
    t.skip(`this machine's name, ${name}, has no address`);
    return;
  }
  await using own = await startCommand({ BACKEND_URL: backend.url, ADMIN_HOST: name });
  const { address } = await lookup(name);
  const status = async (host: string): Promise<number> => {
    await using client = await RawClient.open(own.adminPort, address);
    client.send(`GET /livez HTTP/1.1\r\nHost: ${host}\r\n\r\n`);
    return (await client.reply()).status;
  };
  assert.equal(await status(name), 200);
  assert.equal(await status(`${name.toUpperCase()}.:1`), 200);
  assert.equal(await status(`evil.${name}`), 403);
});
