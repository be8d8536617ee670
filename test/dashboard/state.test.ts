// The dashboard's files, their headers, and the state that the page fetches.

import assert from 'node:assert/strict';
import { hostname } from 'node:os';
import { after, before, test } from 'node:test';

import type { Message } from '../../packages/dashboard/state.ts';
import type { ReportRequest } from '../../packages/figures/report.ts';
import { poll } from '../helpers/changes.ts';
import { type Command, startCommand } from '../helpers/command.ts';
import { readState, statePath } from '../helpers/dashboard-state.ts';
import { request } from '../helpers/raw-client.ts';
import { answer } from '../helpers/scripted-backend.ts';
import { useBackend } from '../helpers/suites.ts';
import { createReport, withAdmin } from './report.ts';

const filesBytesMax = 150_000;

const backend = await useBackend();
let command: Command;
before(async () => {
  command = await startCommand({ BACKEND_URL: backend.url, IN_FLIGHT_MAX: '77' });
});
after(() => command.stop());

test('the page and its files have the right types and less than 150 KB together, and no other file is served', async () => {
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

test('every reply forbids eval, inline scripts and styles, and scripts and styles of other origins', async () => {
  for (const path of ['/', '/dashboard/main.js', '/dashboard/style.css', statePath]) {
    const reply = await command.admin(path);
    const policy = reply.header('content-security-policy') ?? '';
    assert.match(policy, /default-src 'none'/);
    assert.match(policy, /script-src 'self'(;|$)/);
    assert.match(policy, /style-src 'self'(;|$)/);
    assert.doesNotMatch(policy, /unsafe|http|\*/);
    assert.match(policy, /frame-ancestors 'none'/);
    assert.equal(reply.header('x-content-type-options'), 'nosniff');
    assert.equal(reply.header('referrer-policy'), 'no-referrer');
    assert.equal(reply.header('cross-origin-resource-policy'), 'same-origin');
    assert.equal(reply.header('cache-control'), 'no-store');
  }
});

test('the state has facts, settings with their sources, and the state of the backend', async () => {
  const { facts, now } = await readState(command.adminPort);
  assert.equal(facts.url, `http://127.0.0.1:${command.port}`);
  assert.equal(facts.inFlightMax, 77);
  const sourceOf = (name: string) => facts.settings.find(({ variable }) => variable === name);
  assert.deepEqual([sourceOf('IN_FLIGHT_MAX')?.value, sourceOf('IN_FLIGHT_MAX')?.source], ['77', 'environment']);
  assert.equal(sourceOf('IDLE_TIMEOUT_MS')?.source, 'default');
  assert.equal(now.backend.isReachable, true);
  assert.equal(now.workers.length, 1);
});

test('the facts identify the gateway by INSTANCE_NAME or the host name, and by its process', async () => {
  const { facts: unnamed } = await readState(command.adminPort);
  assert.deepEqual(
    [unnamed.instanceName, unnamed.hostName, unnamed.pid],
    [hostname(), hostname(), command.process.pid],
  );
  await using named = await startCommand({ BACKEND_URL: backend.url, INSTANCE_NAME: 'Größe <b> 2', WORKERS: '2' });
  const { facts } = await readState(named.adminPort);
  assert.deepEqual(
    [facts.instanceName, facts.hostName, facts.pid],
    ['Größe <b> 2', hostname(), named.process.pid],
  );
}); // prettier-ignore

test('the next state counts new calls, and lists failed calls without body and headers', async () => {
  const first = await readState(command.adminPort);
  backend.answersOnce(answer('SECRET', { status: 500, headers: [['X-Secret', 'SECRET']] }));
  await command.call('PUT', '/api/work-items/5', {
    body: '{"SECRET":1}',
    headers: [
      ['X-Request-Id', 'failed-here'],
      ['Authorization', 'SECRET'],
    ],
  });
  const state = await readState(
    command.adminPort,
    ({ now }) => now.requestsEver > first.now.requestsEver,
    'a state that counts the call',
  );
  const { operation, outcome, party } = state.failures.find(({ requestId }) => requestId === 'failed-here') ?? {};
  assert.deepEqual([operation, outcome, party], ['update', 'refused', 'backend']);
  assert.equal(state.now.lastMinute.flows.update.failed.backend, 1);
  assert.doesNotMatch(JSON.stringify(state), /SECRET/);
});

test('a page gets only new points; if the facts or the failures have changed, it gets the facts and the failures', async () => {
  let inFlightMax = 1;
  const read = async (port: number, query: string) =>
    JSON.parse((await request(port, 'GET', `${statePath}?${query}`)).text) as Message;
  await withAdmin(
    () => [createReport({ inFlight: inFlightMax })],
    async (port) => {
      const { points, changedAt } = await readState(port, (state) => state.points.length > 0, 'a point');
      const at = points.at(-1)?.at ?? 0;
      const next = await read(port, `after=${at}&changed=${changedAt}`);
      assert.deepEqual([next.points, next.facts, next.failures], [[], undefined, undefined]);
      assert.deepEqual((await read(port, `after=${at - 1}&changed=${changedAt}`)).points, points.slice(-1));
      inFlightMax = 2;
      await poll(async () => {
        const changed = await read(port, `after=${at}&changed=${changedAt}`);
        return changed.facts?.inFlightMax === 2 && changed.failures !== undefined && changed.changedAt > changedAt;
      }, 'the changed facts');
    },
    undefined,
    { facts: () => ({ inFlightMax }) },
  );
});

test('without open pages the history continues, and the backend is not probed', async () => {
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
