// /livez, /readyz, /metrics and the log, also with the backend down. D25, D34.

import assert from 'node:assert/strict';
import { after, before, beforeEach, test } from 'node:test';
import { poll } from '../helpers/changes.ts';
import { answer, raw, ScriptedBackend } from '../helpers/scripted-backend.ts';
import { startCommand, type Command, type LogLine } from '../helpers/targets.ts';

let backend: ScriptedBackend;
let command: Command;
before(async () => {
  backend = await ScriptedBackend.start();
  // No backend listens when the gateway starts.
  await backend.stop();
  command = await startCommand({ BACKEND_URL: backend.url });
});
after(async () => {
  await command.stop();
  await backend.stop();
});
beforeEach(() => {
  backend.reset();
  backend.answers(answer('[]'));
});

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

test('a backend that answers with failures is reachable [D34]', async () => {
  await backend.restart();
  backend.answers(answer('', { status: 503 }));
  assert.equal((await command.call('GET', '/api/work-items')).status, 500);
  await poll(async () => (await isReachable()) === true, 'the backend is reachable');
});

test('requests for /livez, /readyz and /metrics make no HTTP call to the backend [D34]', async () => {
  for (let round = 0; round < 20; round += 1) await assertUp();
  assert.deepEqual(backend.requests, []);
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

/** The log lines of one request. */
async function linesOf(id: string): Promise<LogLine[]> {
  await command.log((line) => line['requestId'] === id, `the line of ${id}`);
  return command.logs.filter((line) => line['requestId'] === id);
}

test('each request has one log line, with request id, operation, status and duration [D25]', async () => {
  for (const [id, method, path, body, status, operation] of [
    ['log-1', 'GET', '/api/work-items', undefined, 200, 'list'],
    ['log-2', 'POST', '/api/work-items', '{}', 201, 'create'],
    ['log-3', 'GET', '/api/work-items/5', undefined, 200, 'read'],
    ['log-4', 'PUT', '/api/work-items/5', '{}', 200, 'update'],
    ['log-5', 'DELETE', '/api/work-items/5', undefined, 200, 'delete'],
    ['log-6', 'PUT', '/api/work-items/5', '{', 500, 'update'],
    ['log-7', 'GET', '/api/work-items/x', undefined, 400, 'read'],
  ] as const) {
    const options = { headers: [['X-Request-Id', id]] as const, ...(body === undefined ? {} : { body }) };
    await command.call(method, path, options);
    const [line, ...others] = await linesOf(id);
    assert.deepEqual(others, [], 'one line');
    assert.equal(line?.['status'], status);
    assert.equal(line['operation'], operation);
    assert.equal(typeof line['durationMs'], 'number');
  }
});

test('a backend failure is logged at warn with its outcome, and the reply does not show it [spec 7, rule 2]', async () => {
  backend.answers(raw('HTTP/1.1 200 OK\r\nContent-Length: 7\r\nX: SECRET\r\n\r\n<SECRET'));
  const reply = await command.call('GET', '/api/work-items', { headers: [['X-Request-Id', 'failed-1']] });
  assert.equal(reply.text, '{"error":"Failed to fetch work items"}');
  const [line] = await linesOf('failed-1');
  assert.equal(line?.['level'], 'warn');
  assert.equal(line['outcome'], 'not-json');
});

test('no body and no header value is logged, except the user-agent of a client', async () => {
  backend.answersOnce(
    answer('{"SECRET-1":1}', { headers: [['X-Extra', 'SECRET-2']] }),
    answer('<SECRET-3>'),
    answer('SECRET-4', { status: 500 }),
    raw('HTTP/1.1 200 SECRET-5\r\nContent-Length: +1\r\nX: SECRET-6\r\n\r\nx'),
  );
  const headers = [
    ['X-Request-Id', 'quiet-1'],
    ['Authorization', 'SECRET-7'],
    ['Cookie', 'SECRET-8'],
    ['Accept', 'SECRET-9'],
  ] as const;
  for (let round = 0; round < 4; round += 1)
    await command.call('GET', '/api/work-items/5?SECRET-10', { headers });
  await command.call('PUT', '/api/work-items/5', { headers, body: '{SECRET-11' });
  await command.call('POST', '/api/work-items', { headers, body: '"SECRET-12"' });
  await command.call('GET', '/api/work-items', { headers: [['X-Request-Id', 'quiet-2']] });
  await linesOf('quiet-2');
  assert.doesNotMatch(command.output, /SECRET/);
});
