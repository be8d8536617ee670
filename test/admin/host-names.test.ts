// The admin listener answers only under its own names, so that no page elsewhere reads it by a name that it makes
// point here. D57; the header itself is looked at in test/unit/host-names.test.ts.

import assert from 'node:assert/strict';
import { lookup } from 'node:dns/promises';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { hostname, tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { poll } from '../helpers/changes.ts';
import { RawClient, type Reply } from '../helpers/raw-client.ts';
import { answer, ScriptedBackend } from '../helpers/scripted-backend.ts';
import { startCommand, type Command } from '../helpers/targets.ts';
import { events } from '../helpers/viewer.ts';

const paths = [
  '/',
  '/livez',
  '/readyz',
  '/metrics',
  '/dashboard/main.js',
  events,
  '/nowhere',
  '/%',
  '*',
] as const;

let backend: ScriptedBackend;
let command: Command;
before(async () => {
  backend = await ScriptedBackend.start();
  backend.answers(answer('[]'));
  command = await startCommand({
    BACKEND_URL: backend.url,
    ADMIN_ALLOWED_HOSTS: 'Gateway.Internal., dashboards.example.com',
  });
});
after(async () => {
  await command.stop();
  await backend.stop();
});

async function ask(port: number, head: string, method = 'GET'): Promise<Reply> {
  await using client = await RawClient.open(port);
  client.send(head);
  return await client.reply({ hasBody: method !== 'HEAD' });
}

function get(path: string, ...hosts: readonly string[]): Promise<Reply> {
  return ask(
    command.adminPort,
    `GET ${path} HTTP/1.1\r\n${hosts.map((host) => `Host: ${host}\r\n`).join('')}\r\n`,
  );
}

function assertRefused(reply: Reply, what: string): void {
  assert.equal(reply.status, 403, what);
  assert.equal(
    reply.text,
    '{"error":"Not a name of this listener: call it by its IP address, or add the name to ADMIN_ALLOWED_HOSTS"}',
  );
  assert.equal(reply.header('content-type'), 'application/json; charset=utf-8');
}

test('nothing is answered under another name, whatever is asked for [D57]', async () => {
  for (const path of paths) {
    for (const host of ['evil.example', `evil.example:${command.adminPort}`, 'localhost.evil.example']) {
      assertRefused(await get(path, host), `${path} ${host}`);
    }
  }
  for (const method of ['HEAD', 'POST', 'DELETE', 'OPTIONS']) {
    const reply = await ask(
      command.adminPort,
      `${method} /metrics HTTP/1.1\r\nHost: evil.example\r\n\r\n`,
      method,
    );
    assert.equal(reply.status, 403, method);
  }
});

test('nor with two Hosts [D57]', async () => {
  for (const path of paths) {
    assertRefused(await get(path, 'localhost', 'evil.example'), path);
    assertRefused(await get(path, 'evil.example', 'localhost'), path);
    assertRefused(await get(path, 'localhost', 'localhost'), path);
    assertRefused(await get(path, '', 'localhost'), path);
  }
});

test('a request without Host, or with an empty one, is answered: a plain health check sends none [D57]', async () => {
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

test('it answers under addresses, names of this machine and those of ADMIN_ALLOWED_HOSTS, with any port [D57]', async () => {
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

test('a name in ADMIN_ALLOWED_HOSTS that is none is a mistake at the start [D32]', async () => {
  await assert.rejects(
    startCommand({ ADMIN_ALLOWED_HOSTS: 'gateway.internal:9464' }),
    /ADMIN_ALLOWED_HOSTS .*must be host names separated by commas, without ports/,
  );
});

test('SIGHUP reads ADMIN_ALLOWED_HOSTS again [D57]', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'work-item-gateway-'));
  const file = join(folder, 'settings.env');
  writeFileSync(file, 'ADMIN_ALLOWED_HOSTS=before.example\n');
  await using own = await startCommand({ BACKEND_URL: backend.url, WORKERS: '2', SETTINGS_FILE: file });
  const status = async (host: string): Promise<number> =>
    (await ask(own.adminPort, `GET /livez HTTP/1.1\r\nHost: ${host}\r\n\r\n`)).status;
  assert.deepEqual([await status('before.example'), await status('after.example')], [200, 403]);
  writeFileSync(file, 'ADMIN_ALLOWED_HOSTS=after.example\n');
  own.signal('SIGHUP');
  await own.log(({ msg }) => String(msg).startsWith('reloaded'), 'the reload ends');
  await poll(async () => (await status('after.example')) === 200, 'the new name is one');
  assert.equal(await status('before.example'), 403);
  rmSync(folder, { recursive: true });
});

test('it answers under the name that ADMIN_HOST is [D57]', async (t) => {
  const name = hostname();
  const isOwn = await lookup(name).then(
    () => true,
    () => false,
  );
  if (!isOwn) {
    t.skip(`this machine's name, ${name}, leads nowhere`);
    return;
  }
  await using own = await startCommand({ BACKEND_URL: backend.url, ADMIN_HOST: name });
  const { address } = await lookup(name);
  const head = (host: string): string => `GET /livez HTTP/1.1\r\nHost: ${host}\r\n\r\n`;
  const status = async (host: string): Promise<number> => {
    await using client = await RawClient.open(own.adminPort, address);
    client.send(head(host));
    return (await client.reply()).status;
  };
  assert.equal(await status(name), 200);
  assert.equal(await status(`${name.toUpperCase()}.:1`), 200);
  assert.equal(await status(`evil.${name}`), 403);
});
