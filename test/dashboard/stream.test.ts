// The dashboard's files, headers and stream, and the limits of the stream.

import assert from 'node:assert/strict';
import { hostname } from 'node:os';
import { after, before, test } from 'node:test';

import type { ReportRequest } from '../../packages/figures/report.ts';
import { poll } from '../helpers/changes.ts';
import { RawClient, request, requestBytes } from '../helpers/raw-client.ts';
import { answer } from '../helpers/scripted-backend.ts';
import { useBackend } from '../helpers/suites.ts';
import { startCommand, type Command } from '../helpers/targets.ts';
import { events, Viewer } from '../helpers/viewer.ts';
import { createReport, withAdmin } from './report.ts';

const filesBytesMax = 300_000;

const backend = await useBackend();
let command: Command;
before(async () => {
  command = await startCommand({ BACKEND_URL: backend.url, IN_FLIGHT_MAX: '77' });
});
after(() => command.stop());

test('the page and its files are served with their types, in less than 300 KB, and no other files', async () => {
  const page = await command.admin('/');
  assert.equal(page.status, 200);
  assert.equal(page.header('content-type'), 'text/html; charset=utf-8');
  let bytes = page.body.length;
  const names = new Set([...page.text.matchAll(/(?:href|src)="(dashboard\/[^"]+)"/g)].map(([, name = '']) => name));
  assert.ok(names.size >= 9);
  for (const name of names) {
    const file = await command.admin(`/${name}`);
    assert.equal(file.status, 200, name);
    const type = { js: 'text/javascript; charset=utf-8', css: 'text/css; charset=utf-8', svg: 'image/svg+xml' };
    assert.equal(file.header('content-type'), type[name.split('.').at(-1) as keyof typeof type], name);
    bytes += file.body.length;
    for (const [, imported] of file.text.matchAll(/^(?:import|export) .*from '\.\/([^']+)'|^\} from '\.\/([^']+)'/gm)) {
      assert.ok(imported === undefined || names.has(`dashboard/${imported}`), `${imported ?? ''} is preloaded`);
    }
  }
  assert.ok(bytes < filesBytesMax, `${bytes} bytes`);
  for (const path of [
    '/dashboard/',
    '/dashboard/tsconfig.json',
    '/dashboard/../server.js',
    '/dashboard/%2e%2e/server.js',
    '/index.html',
  ]) {
    assert.equal((await command.admin(path)).status, 404, path);
  }
  const post = await request(command.adminPort, 'POST', '/');
  assert.equal(post.status, 405);
  assert.equal(post.header('allow'), 'GET, HEAD');
});

test('every reply forbids scripts and styles of other origins, inline ones and eval', async () => {
  for (const path of ['/', '/dashboard/main.js', '/dashboard/style.css']) {
    const reply = await command.admin(path);
    const policy = reply.header('content-security-policy') ?? '';
    assert.match(policy, /default-src 'none'/);
    assert.match(policy, /script-src 'self'(;|$)/);
    assert.match(policy, /style-src 'self'(;|$)/);
    assert.doesNotMatch(policy, /unsafe|http|\*/);
    assert.match(policy, /frame-ancestors 'none'/);
    assert.equal(reply.header('x-content-type-options'), 'nosniff');
    assert.equal(reply.header('referrer-policy'), 'no-referrer');
    assert.equal(reply.header('cache-control'), 'no-store');
  }
});

test('the stream begins with facts, settings with their sources, and the state of the backend', async () => {
  await using viewer = await Viewer.open(command.adminPort);
  const { facts, now, points, failures } = await viewer.message(() => true, 'the first message');
  assert.ok(facts && points && failures);
  assert.equal(facts.url, `http://127.0.0.1:${command.port}`);
  assert.equal(facts.inFlightMax, 77);
  const inFlightMax = facts.settings.find(({ variable }) => variable === 'IN_FLIGHT_MAX');
  assert.equal(inFlightMax?.value, '77');
  assert.equal(inFlightMax.source, 'environment');
  assert.equal(facts.settings.find(({ variable }) => variable === 'IDLE_TIMEOUT_MS')?.source, 'default');
  assert.equal(now.backend.isReachable, true);
  assert.equal(now.workers.length, 1);
});

test('the facts identify the gateway: INSTANCE_NAME or the host name, and the process', async () => {
  const factsOf = async ({ adminPort }: Command) => {
    await using viewer = await Viewer.open(adminPort);
    const { facts } = await viewer.message(() => true, 'the first message');
    assert.ok(facts);
    return facts;
  };
  const unnamed = await factsOf(command);
  assert.deepEqual(
    [unnamed.instanceName, unnamed.hostName, unnamed.pid],
    [hostname(), hostname(), command.process.pid],
  );
  await using named = await startCommand({ BACKEND_URL: backend.url, INSTANCE_NAME: 'Größe <b> 2', WORKERS: '2' });
  const { instanceName, hostName, pid } = await factsOf(named);
  assert.deepEqual([instanceName, hostName, pid], ['Größe <b> 2', hostname(), named.process.pid]);
});

test('the next message has new calls, and the failed ones without body and headers', async () => {
  await using viewer = await Viewer.open(command.adminPort);
  const first = await viewer.message(() => true, 'the first message');
  backend.answersOnce(answer('SECRET', { status: 500, headers: [['X-Secret', 'SECRET']] }));
  await command.call('PUT', '/api/work-items/5', {
    body: '{"SECRET":1}',
    headers: [
      ['X-Request-Id', 'failed-here'],
      ['Authorization', 'SECRET'],
    ],
  });
  const { failures } = await viewer.message(
    (message) => message.failures?.some(({ requestId }) => requestId === 'failed-here') ?? false,
    'a message with the failed call',
  );
  const failure = failures?.find(({ requestId }) => requestId === 'failed-here');
  assert.equal(failure?.operation, 'update');
  assert.equal(failure.outcome, 'refused');
  assert.equal(failure.party, 'backend');
  const { now, facts } = await viewer.message(
    (message) => message.now.requestsEver > first.now.requestsEver,
    'a message that counts the call',
  );
  assert.equal(facts, undefined, 'facts are sent once');
  assert.equal(now.lastMinute.flows.update.failed.backend, 1);
  assert.doesNotMatch(viewer.client.unread.toString('latin1'), /SECRET/);
});

test('fifty viewers are served; the next one is refused until a viewer leaves', async () => {
  const viewers: Viewer[] = [];
  try {
    for (let count = 0; count < 50; count += 1) viewers.push(await Viewer.open(command.adminPort));
    await poll(() => viewers.every(({ status }) => status === 200), 'every viewer is served');
    const refused = await command.admin(events);
    assert.equal(refused.status, 503);
    assert.equal(refused.text, '{"error":"50 dashboards are already open"}');
    assert.equal(refused.header('retry-after'), '5');
    assert.equal((await request(command.adminPort, 'HEAD', events)).status, 503);
    for (const viewer of viewers) await viewer.message(() => true, 'the first message');
    await viewers.pop()?.[Symbol.asyncDispose]();
    await poll(async () => (await request(command.adminPort, 'HEAD', events)).status === 200, 'a place is free');
  } finally {
    for (const viewer of viewers) await viewer[Symbol.asyncDispose]();
  }
});

test("another site's page gets no stream", async () => {
  const headers = [['Sec-Fetch-Site', 'cross-site']] as const;
  assert.equal((await request(command.adminPort, 'GET', events, { headers })).status, 403);
});

test('an open dashboard does not delay drain or stop [D33]', async () => {
  await using own = await startCommand({ BACKEND_URL: backend.url });
  await using viewer = await Viewer.open(own.adminPort);
  await viewer.message(() => true, 'the first message');
  own.signal('SIGTERM');
  assert.equal(await own.exitCode(5_000), 0);
  assert.equal(await viewer.client.closed(), 'end');
});

test('a viewer that does not read is dropped while another one is served', async () => {
  let round = 0;
  const cause = 'x'.repeat(1_000_000);
  const reports = () => {
    round += 1;
    const where = { operation: 'list', path: '/api/work-items', client: undefined } as const;
    const one = { at: round, requestId: 'id', ...where, status: 500, durationMs: 1 } as const;
    return [createReport({ failures: [{ ...one, outcome: 'refused', party: 'backend', cause }] })];
  };
  await withAdmin(reports, async (port) => {
    await using slow = await RawClient.open(port);
    slow.pause();
    slow.send(requestBytes('GET', events));
    await using quick = await Viewer.open(port);
    const before = round;
    // The OS buffers a few megabytes; then the limit of five seconds begins.
    await poll(() => round > before + 3, 'four more reports are made', 20_000);
    const reader = slow.closed(30_000);
    await poll(
      async () => {
        const { status } = await request(port, 'HEAD', events);
        return status === 200 && quick.messages.length > 12;
      },
      'the quick viewer is served',
      30_000,
    );
    slow.resume();
    await reader;
    assert.ok(slow.bytesReceived < quick.client.bytesReceived, 'the slow viewer was cut off');
    assert.ok(quick.client.isOpen);
  });
});

test('without viewers the history continues, and the backend is not probed', async () => {
  const asked: ReportRequest[] = [];
  const reports = (each: ReportRequest) => {
    asked.push(each);
    return [createReport()];
  };
  await withAdmin(reports, async () => {
    await poll(() => asked.length > 0, 'a step of the history');
    assert.deepEqual(asked, [{ withProcessMetrics: false, probesBackend: false }]);
  });
});
