// The dashboard's files, their headers, and the state that the page fetches.

import assert from 'node:assert/strict';
import { hostname } from 'node:os';
import { after, before, test } from 'node:test';

import type { Message } from '../../packages/dashboard/state.ts';
import { stepMs } from '../../packages/figures/history.ts';
import type { ReportRequest } from '../../packages/figures/report.ts';
import { poll } from '../helpers/changes.ts';
import { type Command, startCommand } from '../helpers/command.ts';
import { readState, statePath } from '../helpers/dashboard-state.ts';
import { request } from '../helpers/raw-client.ts';
import { answer } from '../helpers/scripted-backend.ts';
import { useBackend } from '../helpers/suites.ts';
import { createReport, withAdmin } from './report.ts';

const filesBytesMax = 150_000;
const types: Readonly<Record<string, string>> = { js: 'text/javascript', css: 'text/css', svg: 'image/svg+xml' };
const policy =
  "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

const backend = await useBackend();
let command: Command;
before(async () => {
  command = await startCommand({ BACKEND_URL: backend.url, IN_FLIGHT_MAX: '77' });
});
after(() => command.stop());

test('the page and its files have the right headers and less than 150 KB together; eval, inline scripts and other origins are forbidden', async () => {
  const read = async (path: string) => {
    const reply = await command.admin(path);
    const names = ['content-security-policy', 'x-content-type-options', 'referrer-policy', 'cross-origin-resource-policy', 'cache-control']; // prettier-ignore
    const expected = [policy, 'nosniff', 'no-referrer', 'same-origin', 'no-store'];
    assert.deepEqual([reply.status, ...names.map((name) => reply.header(name))], [200, ...expected], path);
    return reply;
  };
  await read(statePath);
  const page = await read('/');
  assert.equal(page.header('content-type'), 'text/html; charset=utf-8');
  let bytes = page.body.length;
  const names = new Set([...page.text.matchAll(/(?:href|src)="(dashboard\/[^"]+)"/g)].map(([, name = '']) => name));
  assert.ok(names.size >= 9);
  for (const name of names) {
    const file = await read(`/${name}`);
    assert.equal(
      file.header('content-type')?.replace('; charset=utf-8', ''),
      types[name.split('.').at(-1) ?? ''],
      name,
    );
    bytes += file.body.length;
    for (const [, imported = ''] of file.text.matchAll(/^(?:.* |\} )from '\.\/([^']+)'/gm)) {
      assert.ok(names.has(`dashboard/${imported}`), `${imported} is preloaded`);
    }
  }
  assert.ok(bytes < filesBytesMax, `${bytes} bytes`);
});

test('no other file is served, and only for GET and HEAD', async () => {
  for (const path of ['', 'tsconfig.json', '../server.js', '%2e%2e/server.js', '../index.html']) {
    assert.equal((await command.admin(`/dashboard/${path}`)).status, 404, path);
  }
  const post = await request(command.adminPort, 'POST', '/');
  assert.deepEqual([post.status, post.header('allow')], [405, 'GET, HEAD']);
});

test('the state has the settings with their sources, the backend, and the name of the gateway', async () => {
  const { facts, now } = await readState(command.adminPort);
  assert.deepEqual([facts.url, facts.inFlightMax], [`http://127.0.0.1:${command.port}`, 77]);
  const sources = facts.settings.map(({ variable, source }) => `${variable} ${source}`);
  assert.ok(sources.includes('IN_FLIGHT_MAX environment') && sources.includes('IDLE_TIMEOUT_MS default'));
  assert.deepEqual([now.backend.isReachable, now.workers.length], [true, 1]);
  await using named = await startCommand({ BACKEND_URL: backend.url, INSTANCE_NAME: 'Größe <b> 2', WORKERS: '2' });
  for (const [of, name] of [
    [command, hostname()],
    [named, 'Größe <b> 2'],
  ] as const) {
    const { instanceName, hostName, pid } = (await readState(of.adminPort)).facts;
    assert.deepEqual([instanceName, hostName, pid], [name, hostname(), of.process.pid]);
  }
});

test('the next state counts new calls, and lists failed calls without body and headers', async () => {
  const first = await readState(command.adminPort);
  backend.answersOnce(answer('SECRET', { status: 500, headers: [['X-Secret', 'SECRET']] }));
  const headers = Object.entries({ 'X-Request-Id': 'failed-here', Authorization: 'SECRET' });
  await command.call('PUT', '/api/work-items/5', { body: '{"SECRET":1}', headers });
  const isNext = ({ now }: Message) => now.requestsEver > first.now.requestsEver;
  const state = await readState(command.adminPort, isNext, 'a state that counts the call');
  const { operation, outcome, party } = state.failures.find(({ requestId }) => requestId === 'failed-here') ?? {};
  assert.deepEqual([operation, outcome, party], ['update', 'refused', 'backend']);
  assert.equal(state.now.lastMinute.flows.update.failed.backend, 1);
  assert.doesNotMatch(JSON.stringify(state), /SECRET/);
});

test('without pages the backend is not probed; a page gets only new points, and facts and failures if they have changed', async ({
  mock,
}) => {
  mock.timers.enable({ apis: ['setInterval'] });
  let inFlightMax = 1;
  const asked: ReportRequest[] = [];
  const reports = (each: ReportRequest) => {
    asked.push(each);
    return [createReport()];
  };
  const act = async (port: number) => {
    const read = async (query: string) =>
      JSON.parse((await request(port, 'GET', `${statePath}?${query}`)).text) as Message;
    mock.timers.tick(stepMs);
    assert.deepEqual(asked, [{ withProcessMetrics: false, probesBackend: false }]);
    const { points, changedAt } = await readState(port, (state) => state.points.length > 0, 'a point');
    const at = points.at(-1)?.at ?? 0;
    const next = await read(`after=${at}&changed=${changedAt}`);
    assert.deepEqual([next.points, next.facts, next.failures], [[], undefined, undefined]);
    assert.deepEqual((await read(`after=${at - 1}&changed=${changedAt}`)).points, points.slice(-1));
    inFlightMax = 2;
    await poll(async () => {
      const changed = await read(`after=${at}&changed=${changedAt}`);
      return changed.facts?.inFlightMax === 2 && changed.failures !== undefined && changed.changedAt > changedAt;
    }, 'the changed facts');
  };
  await withAdmin(reports, act, undefined, { facts: () => ({ inFlightMax }) });
});
