// /livez, /readyz, /metrics and the command `health`, also while the backend is down. D34.

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { after, test } from 'node:test';
import { poll } from '../helpers/changes.ts';
import { figureOf, logged, startCommand } from '../helpers/command.ts';
import { findFreePort } from '../helpers/haproxy.ts';
import { runHere } from '../helpers/run-cli.ts';
import { answer } from '../helpers/scripted-backend.ts';
import { useBackend } from '../helpers/suites.ts';

const backend = await useBackend();
// No backend listens when the gateway starts.
await backend.stop();
const command = await startCommand({ BACKEND_URL: backend.url });
after(() => command.stop());

/** Waits until /readyz reports this; asserts the metric, and that all endpoints answer. */
async function assertReachable(isReachable: boolean): Promise<void> {
  await poll(async () => {
    const { text } = await command.admin('/readyz');
    return (JSON.parse(text) as { backend: { reachable: unknown } }).backend.reachable === isReachable;
  }, `/readyz reports ${isReachable}`);
  assert.equal(await figureOf(command, 'backend_reachable'), isReachable ? 1 : 0);
  await assertUp();
}

async function assertUp(): Promise<void> {
  for (const path of ['/livez', '/readyz', '/metrics']) {
    assert.equal((await command.admin(path)).status, 200, path);
  }
}

test('without a backend the gateway starts; /readyz and /metrics report whether the last call reached the backend [D34]', async () => {
  await assertReachable(false);
  for (let round = 0; round < 2; round += 1) {
    assert.equal((await command.call('GET', '/api/work-items')).status, 500);
    await assertReachable(false);
    await backend.restart();
    assert.equal((await command.call('GET', '/api/work-items')).status, 200);
    await assertReachable(true);
    await backend.stop();
  }
  await backend.restart();
});

test('requests for /livez, /readyz and /metrics make no HTTP call to the backend [D34]', async () => {
  for (let round = 0; round < 20; round += 1) await assertUp();
  assert.deepEqual(backend.requests, []);
});

test('/metrics counts requests by operation and status, in the Prometheus text format; successes have a series from the start [D34]', async () => {
  const countIn = (text: string) =>
    Number(/^work_item_gateway_requests_total\{operation="read",status="404"\} (\d+)$/m.exec(text)?.[1] ?? 0);
  const before = await command.metrics();
  backend.answers(answer('', { status: 404 }));
  for (let round = 0; round < 3; round += 1) await command.call('GET', '/api/work-items/5');
  const text = await command.metrics();
  assert.equal(countIn(text), countIn(before) + 3);
  // So Prometheus sees the first success as an increase.
  const statuses = { list: 200, create: 201, read: 200, update: 200, delete: 200 };
  for (const [operation, status] of Object.entries(statuses)) {
    const series = `work_item_gateway_requests_total{operation="${operation}",status="${status}"} `;
    assert.ok(text.includes(series), series);
  }
  assert.doesNotMatch(text, /operation="create",status="200"/);
  const type = (await command.admin('/metrics')).header('content-type');
  assert.match(type ?? '', /^text\/plain; version=0\.0\.4/);
  for (const line of text.trimEnd().split('\n')) {
    assert.match(
      line,
      /^$|^# (HELP|TYPE) |^[a-z_][a-z0-9_]*(\{[a-zA-Z_]+="[^"]*"(,[a-zA-Z_]+="[^"]*")*\})? [-+0-9.eNaInf]+$/,
    );
  }
  assert.equal((await command.admin('/nowhere')).status, 404);
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
    // Settings that `health` does not use may be invalid.
    for (const others of [{}, { BACKEND_URL: 'nonsense', PORT: 'x' }]) {
      const stdout = `alive: http://${shown}:${adminPort}/livez answered 200 {"status":"alive"}\n`;
      const environment = { ADMIN_HOST: host, ADMIN_PORT: String(adminPort), ...others };
      assert.deepEqual(await health(environment), { code: 0, stdout, stderr: '' });
    }
  }
});

test('`health` ends with exit code 1 if nothing listens on the port, or another server does; control characters are escaped', async () => {
  const free = await findFreePort();
  const none = await health({ ADMIN_PORT: String(free) });
  assert.deepEqual([none.code, none.stdout], [1, '']);
  assert.ok(none.stderr.startsWith(`not alive: http://localhost:${free}/livez does not answer: `), none.stderr);
  assert.match(none.stderr, /ECONNREFUSED.*\n$/);
  const other = createServer((_, response) => response.writeHead(404).end('\u001b[31mno'));
  await once(other.listen(0, '127.0.0.1'), 'listening');
  const { port } = other.address() as AddressInfo;
  const answered = await health({ ADMIN_HOST: '127.0.0.1', ADMIN_PORT: String(port) });
  other.close();
  assert.equal(answered.code, 1);
  assert.match(answered.stderr, /^not alive: http:\/\/127\.0\.0\.1:\d+\/livez answered 404 [^\u001b]+\[31mno\n$/); // eslint-disable-line no-control-regex
});
