// The log level, the metrics and the dashboard's verdict show the party at fault for each outcome [D51]. Expectations
// are written by hand, not taken from the table of outcomes.

import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import type { Facts, Now } from '../../packages/dashboard/state.ts';
import { createGate, poll } from '../helpers/changes.ts';
import { type Command, startCommand } from '../helpers/command.ts';
import { readState } from '../helpers/dashboard-state.ts';
import { requestBytes } from '../helpers/raw-client.ts';
import { runHere } from '../helpers/run-cli.ts';
import { answer, type Answer, behind, timeout } from '../helpers/scripted-backend.ts';
import { useBackend } from '../helpers/suites.ts';

const verdictModule = new URL('../../packages/dashboard/page/verdict.js', import.meta.url).href;
const { judge, describeParties } = (await import(verdictModule)) as {
  judge: (now: Now, facts: Facts) => { level: string; party: string | undefined; title: string; detail: string };
  describeParties: (now: Now, facts: Facts) => Record<string, { text: string; isUnwell: boolean }>;
};

const item = '/api/work-items/5';
const backend = await useBackend(answer('{"id":5}'));
const status = (code: number) => answer('{}', { status: code });

/** The outcome counters that are not zero: `request` or `backend`, operation, outcome and party at fault. */
async function countersOf(command: Command): Promise<Record<string, number>> {
  const counters = (await command.metrics()).matchAll(
    /^work_item_gateway_(request|backend)_outcomes_total\{operation="(.*)",outcome="(.*)",fault="(.*)"\} ([1-9]\d*)$/gm,
  );
  return Object.fromEntries([...counters].map(([, ...parts]) => [parts.slice(0, 4).join('/'), Number(parts[4])]));
}

describe('the log line and the counters of every outcome', () => {
  let command: Command;
  const expectedCounters: Record<string, number> = {};
  before(async () => {
    command = await startCommand({ BACKEND_URL: backend.url, IN_FLIGHT_MAX: '1' });
  });
  after(() => command[Symbol.asyncDispose]());

  test('the counters that alerts use are 0 at the start, so that the first fault shows as an increase', async () => {
    const { text } = await command.admin('/metrics');
    for (const name of [
      'request_outcomes_total{operation="list",outcome="overload",fault="gateway"}',
      'request_outcomes_total{operation="update",outcome="bug",fault="gateway"}',
      'backend_outcomes_total{operation="delete",outcome="refused",fault="backend"}',
      'backend_outcomes_total{operation="delete",outcome="rejected",fault="client"}',
    ]) {
      assert.ok(text.includes(`\nwork_item_gateway_${name} 0\n`), name);
    }
  });

  /** Sends a request; returns the log line with its id. */
  type Send = (id: string) => Promise<string>;
  const call =
    (method: string, path: string, body?: string, backendAnswer?: Answer): Send =>
    async (id) => {
      if (backendAnswer !== undefined) backend.answers(backendAnswer);
      await command.call(method, path, { headers: [['X-Request-Id', id]], ...(body !== undefined && { body }) });
      return id;
    };
  /** Returns the id in the reply. */
  const raw =
    (bytes: string): Send =>
    async () => {
      await using client = await command.connect();
      client.send(bytes);
      return (await client.reply()).header('x-request-id') ?? '';
    };
  const beyondLimit: Send = async (id) => {
    const gate = createGate();
    backend.answersOnce(behind(gate, answer('{}')));
    const held = command.call('GET', item);
    await backend.until(() => backend.requests.length === 1, 'the held call');
    await call('GET', item)(id);
    gate.open();
    await held;
    return id;
  };
  const leaving: Send = async (id) => {
    backend.answers(timeout);
    const client = await command.connect();
    client.send(requestBytes('GET', item, { headers: [['X-Request-Id', id]] }));
    await backend.nextRequest();
    client.destroy();
    return id;
  };
  for (const [what, send, expected, ...counted] of [
    ['a read', call('GET', item), 'info 200 ok: request', 'request/read/ok/nobody', 'backend/read/ok/nobody'],
    ['OPTIONS', call('OPTIONS', '/api/work-items'), 'info 204 ok: request', 'request/none/ok/nobody'],
    ['a read of an unknown item', call('GET', item, undefined, status(404)), 'info 404 not-found: request', 'request/read/not-found/client', 'backend/read/not-found/client'],
    ['a DELETE of an unknown item', call('DELETE', item, undefined, status(404)), 'info 500 rejected: request, status 404', 'request/delete/rejected/client', 'backend/delete/rejected/client'],
    ['a POST that the backend rejects', call('POST', '/api/work-items', '{}', status(422)), 'info 500 rejected: request, status 422', 'request/create/rejected/client', 'backend/create/rejected/client'],
    ['a backend that fails', call('PUT', item, '{}', status(500)), 'warn 500 refused: backend call failed, status 500', 'request/update/refused/backend', 'backend/update/refused/backend'],
    ['an invalid id', call('GET', '/api/work-items/x'), 'info 400 invalid-id: request', 'request/read/invalid-id/client'],
    ['an unknown path', call('GET', '/nowhere'), 'info 404 no-operation: request', 'request/none/no-operation/client'],
    ['malformed bytes', raw('x\r\n\r\n'), 'info 400 bad-request: malformed request', 'request/none/bad-request/client'],
    ['a CONNECT request', raw('CONNECT x:1 HTTP/1.1\r\nHost: x:1\r\n\r\n'), 'info 405 no-operation: request', 'request/none/no-operation/client'],
    ['a call beyond IN_FLIGHT_MAX', beyondLimit, 'warn 503 overload: turned away', 'request/read/overload/gateway', 'request/read/ok/nobody', 'backend/read/ok/nobody'],
    ['a call whose client leaves', leaving, 'info 0 client-gone: request', 'request/read/client-gone/nobody', 'backend/read/cancelled/nobody'],
  ] as const) {
    test(`the log line of ${what} is "${expected}"`, async () => {
      const id = await send(what.replaceAll(' ', '-'));
      for (const name of counted) expectedCounters[name] = (expectedCounters[name] ?? 0) + 1;
      await command.log(({ requestId }) => requestId === id, 'the log line');
      const [line = {}, ...others] = command.logs.filter(({ requestId }) => requestId === id) as Partial<Record<string, string>>[];
      assert.deepEqual(others, [], 'only one log line');
      const { level, status: replied, outcome, msg, cause, operation = 'none' } = line;
      assert.equal(operation, counted[0].split('/')[1]);
      const [why = ''] = /^status \d+(?=;|$)/.exec(outcome === 'not-found' ? '' : (cause ?? '')) ?? [];
      assert.equal(`${level} ${replied} ${outcome}: ${msg}${why && `, ${why}`}`, expected);
    });
  } // prettier-ignore

  test('each request of the tests above was counted once, with the party at fault', async () => {
    assert.deepEqual(await countersOf(command), expectedCounters);
  });
});

test('if the backend rejects every call, verdict and /readyz say so until one succeeds [D51]', async () => {
  await using command = await startCommand({ BACKEND_URL: `${backend.url}/base` });
  const look = async (calls: number) => {
    const { now, facts } = await readState(command.adminPort, (state) => state.now.requestsEver === calls, 'all calls');
    return judge(now, facts);
  };
  const isReady = (problem: string | undefined) =>
    poll(async () => {
      const { backend: found } = JSON.parse((await command.admin('/readyz')).text) as { backend: { problem?: string } };
      return found.problem === problem;
    }, `/readyz reports ${problem}`);
  backend.answers(status(404));
  await command.call('GET', '/api/work-items');
  assert.doesNotMatch((await look(1)).detail, /BACKEND_URL/, 'one rejected call proves nothing');
  for (let round = 0; round < 19; round += 1) await command.call('GET', round % 2 === 0 ? item : '/api/work-items');
  const wrong = await look(20);
  assert.deepEqual([wrong.level, wrong.title], ['unwell', 'The backend does not have this path']);
  assert.match(wrong.detail, /BACKEND_URL/);
  await isReady('no call succeeded in the last 5 minutes: check BACKEND_URL');
  backend.answers(answer('{"id":5}'));
  await command.call('GET', item);
  assert.doesNotMatch((await look(21)).detail, /BACKEND_URL/);
  await isReady(undefined);
});

test('the verdict is good after calls for unknown items and calls with rejected bodies', async () => {
  await using command = await startCommand({ BACKEND_URL: backend.url });
  for (let round = 0; round < 10; round += 1) {
    backend.answersOnce(status(404), status(400), answer('{"id":5}'));
    assert.equal((await command.call('DELETE', '/api/work-items/77')).status, 500);
    assert.equal((await command.call('POST', '/api/work-items', { body: '{}' })).status, 500);
    assert.equal((await command.call('GET', item)).status, 200);
  }
  const { now, facts } = await readState(command.adminPort, (state) => state.now.requestsEver === 30, 'all calls');
  const parties = describeParties(now, facts);
  assert.deepEqual([judge(now, facts).level, judge(now, facts).title], ['well', 'All is well']);
  assert.equal(parties['client']?.text, '20 errors in the last minute');
  assert.match(parties['backend']?.text ?? '', /^reachable since/);
  const { flows } = now.lastMinute;
  assert.deepEqual(flows.delete.byStatus, { '2xx': 0, '4xx': 0, '5xx': 10, none: 0 });
  assert.deepEqual(flows.read.byStatus, { '2xx': 10, '4xx': 0, '5xx': 0, none: 0 });
  for (const { failed } of [flows.delete, flows.create]) {
    assert.deepEqual(failed, { backend: 0, gateway: 0, client: 10 });
  }
  assert.equal(flows.all.failed.backend, 0);
  // The alert with severity `page` sums the counters with these two faults, so these counters must be 0.
  assert.doesNotMatch(Object.keys(await countersOf(command)).join(), /\/(?:backend|gateway)(?:,|$)/);
  assert.deepEqual([...new Set(command.logs.map(({ level }) => level))], ['info']);
});

for (const [what, wrong, title, base, right] of [
  ['is unknown', status(404), 'the backend does not have this path: status 404', '/v1', ''],
  ['serves a page', answer('<p>', { headers: [['Content-Type', 'text/html']] }), 'the answer is a page, not JSON', '/a/b/swagger/', '/a'],
  ['redirects', answer('', { status: 302, headers: [['Location', '/']] }), 'the backend answers with a redirect', '/a/b', '/a'],
] as const) {
  test(`if ${base} ${what} and the list is at ${right}/api/WorkItem, check suggests this address [D30]`, async () => {
    backend.answers((exchange) => (exchange.request.target === `${right}/api/WorkItem` ? answer('[]') : wrong)(exchange));
    const { code, stderr } = await runHere(['check'], { BACKEND_URL: backend.url + base });
    assert.equal(code, 1);
    assert.ok(stderr.includes(title), stderr);
    const tried = backend.url + right;
    assert.ok(stderr.endsWith(`  Tried ${tried}/api/WorkItem, and the backend answers JSON there: did you mean ${tried}?\n`), stderr);
  });
} // prettier-ignore

for (const [what, first, others, tried] of [
  ['answers 404 everywhere', 404, status(404), ['/a/b/c', '/a/b', '/a', '']],
  ['answers 404, then nothing in the time of one call', 404, timeout, ['/a/b/c']],
  ...[401, 403, 429, 500, 503].map((code) => [`answers ${code}`, code, status(code), []] as const),
] as const) {
  test(`if the backend ${what}, check tries ${tried.length} shorter paths and suggests none`, async () => {
    backend.answersOnce(status(first));
    backend.answers(others);
    const environment = { BACKEND_URL: `${backend.url}/a/b/c/d/e`, BACKEND_TIMEOUT_MS: '400' };
    assert.doesNotMatch((await runHere(['check'], environment)).stderr, /did you mean/);
    const targets = backend.requests.map(({ target }) => target.replace('/api/WorkItem', ''));
    assert.deepEqual(targets, ['/a/b/c/d/e', ...tried]);
  });
} // prettier-ignore

test('check --json prints one document with the result of each check', async () => {
  for (const [code, exitCode, list, expected] of [
    [200, 0, 'lines', /answered 200 with 2 bytes of JSON/],
    [404, 1, 'problems', /does not have this path: status 404/],
  ] as const) {
    backend.answers(status(code));
    const ended = await runHere(['check', '--json'], { BACKEND_URL: backend.url, CORS_ORIGINS: '*' });
    assert.deepEqual([ended.code, ended.stderr], [exitCode, '']);
    assert.match(ended.stdout, /^\{.*\}\n$/);
    type Check = Record<'lines' | 'problems', string[]> & { name: string; ok: boolean };
    const report = JSON.parse(ended.stdout) as { checks: Check[] };
    assert.partialDeepStrictEqual(report, { schema: 'work-item-gateway/check/1', exitCode });
    const results = report.checks.filter(({ name }) => name !== 'warning').map(({ name, ok }) => `${name} ${ok}`);
    assert.deepEqual(results, ['settings true', 'cors true', `backend ${code === 200}`]);
    assert.match(report.checks.at(-1)?.[list][0] ?? '', expected);
  }
});
