// /livez, /readyz, /metrics and the command `health`, also while the backend is down. D34.

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { after, test } from 'node:test';
import { poll } from '../helpers/changes.ts';
import { logged, startCommand } from '../helpers/command.ts';
import { findFreePort } from '../helpers/haproxy.ts';
import { runHere } from '../helpers/run-cli.ts';
import { answer } from '../helpers/scripted-backend.ts';
import { useBackend } from '../helpers/suites.ts';

const backend = await useBackend();
// No backend listens when the gateway starts.
await backend.stop();
const command = await startCommand({ BACKEND_URL: backend.url });
after(() => command.stop());

async function isReachable(): Promise<unknown> {
  const { text } = await command.admin('/readyz');
  return (JSON.parse(text) as { backend: { reachable: unknown } }).backend.reachable;
}

async function metric(line: string): Promise<number> {
  const text = await command.metrics();
  const found = text.split('\n').find((each) => each.startsWith(`${line} `));
  return found === undefined ? 0 : Number(found.slice(line.length + 1));
}

async function assertUp(): Promise<void> {
  for (const path of ['/livez', '/readyz', '/metrics']) {
    assert.equal((await command.admin(path)).status, 200, path);
  }
}

test('without a backend the gateway starts, /livez and /readyz are 200, and /readyz reports the outage [D34]', async () => {
  await assertUp();
  await poll(async () => (await isReachable()) === false, '/readyz reports the outage');
  assert.equal(await metric('work_item_gateway_backend_reachable'), 0);
  assert.equal((await command.call('GET', '/api/work-items')).status, 500);
  await assertUp();
});

test('/readyz and /metrics report whether the last call reached the backend [D34]', async () => {
  for (let round = 0; round < 2; round += 1) {
    await backend.restart();
    assert.equal((await command.call('GET', '/api/work-items')).status, 200);
    await poll(async () => (await isReachable()) === true, 'the backend is reachable');
    assert.equal(await metric('work_item_gateway_backend_reachable'), 1);
    await backend.stop();
    assert.equal((await command.call('GET', '/api/work-items')).status, 500);
    await poll(async () => (await isReachable()) === false, 'the backend is unreachable');
    assert.equal(await metric('work_item_gateway_backend_reachable'), 0);
    await assertUp();
  }
});

test('requests for /livez, /readyz and /metrics make no HTTP call to the backend [D34]', async () => {
  await backend.restart();
  for (let round = 0; round < 20; round += 1) await assertUp();
  assert.deepEqual(backend.requests, []);
});

test('/metrics has a counter of successes for each operation from the start, so that Prometheus sees the first success as an increase', async () => {
  const text = await command.metrics();
  const statuses = { list: 200, create: 201, read: 200, update: 200, delete: 200 };
  const series = Object.entries(statuses).map(([operation, status]) => `operation="${operation}",status="${status}"`);
  for (const labels of series) assert.ok(text.includes(`work_item_gateway_requests_total{${labels}} `), labels);
  assert.doesNotMatch(text, /operation="create",status="200"/);
});

test('/metrics counts requests by operation and status, in the Prometheus text format [D34]', async () => {
  const line = 'work_item_gateway_requests_total{operation="read",status="404"}';
  const counted = await metric(line);
  backend.answers(answer('', { status: 404 }));
  for (let round = 0; round < 3; round += 1) await command.call('GET', '/api/work-items/5');
  assert.equal(await metric(line), counted + 3);
  assert.equal((await command.admin('/nowhere')).status, 404);
  const reply = await command.admin('/metrics');
  assert.match(reply.header('content-type') ?? '', /^text\/plain; version=0\.0\.4/);
  for (const text of reply.text.trimEnd().split('\n')) {
    assert.match(
      text,
      /^$|^# (HELP|TYPE) |^[a-z_][a-z0-9_]*(\{[a-zA-Z_]+="[^"]*"(,[a-zA-Z_]+="[^"]*")*\})? [-+0-9.eNaInf]+$/,
    );
  }
});

async function health(environment: NodeJS.ProcessEnv) {
  const { code, stdout, stderr } = await runHere(['health'], environment);
  return { code, stdout, stderr };
}

test('`health` reports a running gateway as alive, on any ADMIN_HOST and during a drain', async () => {
  await using draining = await startCommand({ ADMIN_HOST: '0.0.0.0', SHUTDOWN_DELAY_MS: '60000' });
  draining.signal('SIGTERM');
  await logged(draining, /^draining/);
  for (const [{ adminPort }, host, shown] of [
    [command, '127.0.0.1', '127.0.0.1'],
    [draining, '0.0.0.0', 'localhost'],
  ] as const) {
    const environment = { ADMIN_HOST: host, ADMIN_PORT: String(adminPort) };
    const stdout = `alive: http://${shown}:${adminPort}/livez answered 200 {"status":"alive"}\n`;
    assert.deepEqual(await health(environment), { code: 0, stdout, stderr: '' });
    // Settings that `health` does not use may be invalid.
    const invalid = { ...environment, BACKEND_URL: 'nonsense', PORT: 'x' };
    assert.deepEqual(await health(invalid), { code: 0, stdout, stderr: '' });
  }
});

test('`health` ends with exit code 1 if nothing listens on the port, or another server does', async () => {
  const free = await findFreePort();
  const none = await health({ ADMIN_PORT: String(free) });
  assert.deepEqual([none.code, none.stdout], [1, '']);
  assert.match(
    none.stderr,
    new RegExp(`^not alive: http://localhost:${free}/livez does not answer: .*ECONNREFUSED.*\n$`),
  );
  const other = createServer((_, response) => response.writeHead(404).end('\u001b[31mno'));
  await once(other.listen(0, '127.0.0.1'), 'listening');
  const { port } = other.address() as AddressInfo;
  const answered = await health({ ADMIN_HOST: '127.0.0.1', ADMIN_PORT: String(port) });
  other.close();
  assert.equal(answered.code, 1);
  assert.match(answered.stderr, /^not alive: http:\/\/127\.0\.0\.1:\d+\/livez answered 404 \S+\[31mno\n$/);
  assert.ok(!answered.stderr.includes('\u001b'), 'no escape sequence');
});
