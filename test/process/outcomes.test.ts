// The log level, the metrics and the dashboard's verdict show the party at fault for each outcome [D51]. Expectations
// are written by hand, not taken from the table of outcomes.

import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import type { Facts, Now } from '../../packages/dashboard/state.ts';
import { createGate, poll } from '../helpers/changes.ts';
import { Command, startCommand } from '../helpers/command.ts';
import { readState } from '../helpers/dashboard-state.ts';
import { RawClient, requestBytes } from '../helpers/raw-client.ts';
import { runHere } from '../helpers/run-cli.ts';
import { answer, type Answer, behind, timeout } from '../helpers/scripted-backend.ts';
import { useBackend } from '../helpers/suites.ts';

const verdictModule = new URL('../../packages/dashboard/page/verdict.js', import.meta.url).href;
const { judge, describeParties } = (await import(verdictModule)) as {
  judge: (now: Now, facts: Facts) => { level: string; party: string | undefined; title: string; detail: string };
  describeParties: (now: Now, facts: Facts) => Record<string, { text: string; isUnwell: boolean }>;
};

const backend = await useBackend(answer('{"id":5}'));
const status = (code: number) => answer('{}', { status: code });

/** The outcome counters that are not zero. */
async function countersOf(command: Command): Promise<Record<string, number>> {
  const text = await command.metrics();
  const counters = text.matchAll(/^work_item_gateway_((?:request|backend)_outcomes_total\{.*\}) ([1-9]\d*)$/gm);
  return Object.fromEntries([...counters].map(([, name = '', value]) => [name, Number(value)]));
}

function request(operation: string, outcome: string, fault: string): string {
  return `request_outcomes_total{operation="${operation}",outcome="${outcome}",fault="${fault}"}`;
}

function call(operation: string, outcome: string, fault: string): string {
  return `backend_outcomes_total{operation="${operation}",outcome="${outcome}",fault="${fault}"}`;
}

describe('the log line and the counters of every outcome', () => {
  let command: Command;
  const expectedCounters: Record<string, number> = {};
  const count = (...names: readonly string[]) => {
    for (const name of names) expectedCounters[name] = (expectedCounters[name] ?? 0) + 1;
  };
  before(async () => {
    command = await startCommand({ BACKEND_URL: backend.url, IN_FLIGHT_MAX: '1' });
  });
  after(() => command.stop());

  test('the counters that alerts use are 0 at the start, so that the first fault shows as an increase', async () => {
    const { text } = await command.admin('/metrics');
    for (const name of [
      request('list', 'overload', 'gateway'),
      request('update', 'bug', 'gateway'),
      call('delete', 'refused', 'backend'),
      call('delete', 'rejected', 'client'),
    ]) {
      assert.ok(text.includes(`\nwork_item_gateway_${name} 0\n`), name);
    }
  });

  const rows: [
    what: string,
    backendAnswer: Answer | undefined,
    method: string,
    path: string,
    body: string | undefined,
    line: string,
    ...counted: string[],
  ][] = [
    ['a read', undefined, 'GET', '/api/work-items/5', undefined, 'info 200 ok: request', request('read', 'ok', 'nobody'), call('read', 'ok', 'nobody')],
    ['OPTIONS', undefined, 'OPTIONS', '/api/work-items', undefined, 'info 204 ok: request', request('none', 'ok', 'nobody')],
    ['a read of an unknown item', status(404), 'GET', '/api/work-items/5', undefined, 'info 404 not-found: request', request('read', 'not-found', 'client'), call('read', 'not-found', 'client')],
    ['a DELETE of an unknown item', status(404), 'DELETE', '/api/work-items/5', undefined, 'info 500 rejected: request, status 404', request('delete', 'rejected', 'client'), call('delete', 'rejected', 'client')],
    ['a POST that the backend rejects', status(422), 'POST', '/api/work-items', '{}', 'info 500 rejected: request, status 422', request('create', 'rejected', 'client'), call('create', 'rejected', 'client')],
    ['a backend that fails', status(500), 'PUT', '/api/work-items/5', '{}', 'warn 500 refused: backend call failed, status 500', request('update', 'refused', 'backend'), call('update', 'refused', 'backend')],
    ['an invalid id', undefined, 'GET', '/api/work-items/x', undefined, 'info 400 invalid-id: request', request('read', 'invalid-id', 'client')],
    ['an unknown path', undefined, 'GET', '/nowhere', undefined, 'info 404 no-operation: request', request('none', 'no-operation', 'client')],
  ]; // prettier-ignore

  for (const [index, [what, backendAnswer, method, path, body, expected, ...counted]] of rows.entries()) {
    test(`the log line of ${what} is "${expected}"`, async () => {
      if (backendAnswer !== undefined) backend.answers(backendAnswer);
      const id = `row-${index}`;
      const headers = [['X-Request-Id', id]] as const;
      await command.call(method, path, { headers, ...(body === undefined ? {} : { body }) });
      count(...counted);
      await command.log(({ requestId }) => requestId === id, 'the log line');
      const [line, ...others] = command.logs.filter(({ requestId }) => requestId === id);
      assert.deepEqual(others, [], 'only one log line');
      const { level, status: replied, outcome, msg, cause, operation = 'none', durationMs } = line ?? {};
      assert.ok(counted[0]?.includes(`{operation="${String(operation)}",`), String(operation));
      assert.equal(typeof durationMs, 'number');
      const why = typeof cause !== 'string' || outcome === 'not-found' ? '' : `, ${cause.split('; ')[0] ?? ''}`;
      assert.equal(`${String(level)} ${String(replied)} ${String(outcome)}: ${String(msg)}${why}`, expected);
    });
  }

  for (const [what, bytes, outcome] of [
    ['malformed bytes', 'x\r\n\r\n', '400 bad-request'],
    ['a CONNECT request', 'CONNECT x:1 HTTP/1.1\r\nHost: x:1\r\n\r\n', '405 no-operation'],
  ] as const) {
    test(`the log line of ${what} is "info ${outcome}"`, async () => {
      await using client = await RawClient.open(command.port);
      client.send(bytes);
      const id = (await client.reply()).header('x-request-id');
      count(request('none', outcome.slice(4), 'client'));
      const line = await command.log(({ requestId }) => requestId === id, 'the log line');
      assert.deepEqual([line['level'], `${String(line['status'])} ${String(line['outcome'])}`], ['info', outcome]);
    });
  }

  test('the log line of a call that exceeds IN_FLIGHT_MAX is "warn 503 overload"', async () => {
    const gate = createGate();
    backend.answersOnce(behind(gate, answer('{}')));
    const held = command.call('GET', '/api/work-items/5');
    await backend.until(() => backend.requests.length === 1, 'the held call');
    await command.call('GET', '/api/work-items/6', { headers: [['X-Request-Id', 'too-many']] });
    gate.open();
    await held;
    count(request('read', 'ok', 'nobody'), call('read', 'ok', 'nobody'), request('read', 'overload', 'gateway'));
    const line = await command.log(({ requestId }) => requestId === 'too-many', 'the log line');
    assert.deepEqual([line['level'], line['status'], line['msg']], ['warn', 503, 'turned away']);
  });

  test('the log line of a call whose client leaves is "info 0 client-gone"', async () => {
    backend.answers(timeout);
    const client = await command.connect();
    client.send(requestBytes('GET', '/api/work-items/5', { headers: [['X-Request-Id', 'left']] }));
    await backend.nextRequest();
    client.destroy();
    const line = await command.log(({ requestId }) => requestId === 'left', 'the log line');
    assert.deepEqual([line['level'], line['status'], line['outcome']], ['info', 0, 'client-gone']);
    count(request('read', 'client-gone', 'nobody'), call('read', 'cancelled', 'nobody'));
  });

  test('each request of the tests above was counted once, with the party at fault', async () => {
    assert.deepEqual(await countersOf(command), expectedCounters);
  });
});

describe('the verdict of the dashboard', () => {
  async function look(command: Command, calls: number) {
    const { now, facts } = await readState(command.adminPort, (state) => state.now.requestsEver === calls, 'all calls');
    return { now, facts, verdict: judge(now, facts), parties: describeParties(now, facts) };
  }

  test('all is well after calls for unknown items and calls with rejected bodies', async () => {
    await using command = await startCommand({ BACKEND_URL: backend.url });
    for (let round = 0; round < 10; round += 1) {
      backend.answersOnce(answer('{}', { status: 404 }), answer('{}', { status: 400 }), answer('{"id":5}'));
      assert.equal((await command.call('DELETE', '/api/work-items/77')).status, 500);
      assert.equal((await command.call('POST', '/api/work-items', { body: '{}' })).status, 500);
      assert.equal((await command.call('GET', '/api/work-items/5')).status, 200);
    }
    const { now, verdict, parties } = await look(command, 30);
    assert.deepEqual([verdict.level, verdict.title], ['well', 'All is well']);
    assert.equal(parties['client']?.text, '20 errors in the last minute');
    assert.match(parties['backend']?.text ?? '', /^reachable since/);
    const { flows } = now.lastMinute;
    assert.deepEqual(flows.delete.byStatus, { '2xx': 0, '4xx': 0, '5xx': 10, none: 0 });
    assert.deepEqual(flows.delete.failed, { backend: 0, gateway: 0, client: 10 });
    assert.deepEqual(flows.create.failed, { backend: 0, gateway: 0, client: 10 });
    assert.deepEqual(flows.read.byStatus, { '2xx': 10, '4xx': 0, '5xx': 0, none: 0 });
    assert.equal(flows.all.failed.backend, 0);
    // The alert with severity `page` sums the counters with these two faults, so these counters must be 0.
    assert.doesNotMatch(Object.keys(await countersOf(command)).join(), /fault="(?:backend|gateway)"/);
    for (const { level } of command.logs) assert.equal(level, 'info');
  });

  const noSuccess = 'no call succeeded in the last 5 minutes: check BACKEND_URL';
  const problemOf = async (command: Command): Promise<unknown> => {
    const { status, text } = await command.admin('/readyz');
    assert.equal(status, 200);
    return (JSON.parse(text) as { backend: { problem?: unknown } }).backend.problem;
  };

  for (const [what, paths, level, title] of [
    ['lists, too, so the verdict is red', [['GET', '/api/work-items'], ['GET', '/api/work-items/5']], 'unwell', 'The backend does not have this path'],
    ['no list is called, so the verdict is amber', [['GET', '/api/work-items/5'], ['DELETE', '/api/work-items/5']], 'notice', 'No call succeeds'],
  ] as const) {
    test(`a backend that rejects every call (${what}) is reported by the verdict and /readyz until a call succeeds [D51]`, async () => {
      await using command = await startCommand({ BACKEND_URL: `${backend.url}/base` });
      backend.answers(answer('{}', { status: 404 }));
      for (const [method, path] of paths) await command.call(method, path);
      assert.doesNotMatch((await look(command, 2)).verdict.detail, /BACKEND_URL/, 'two rejected calls prove nothing');
      for (let round = 0; round < 9; round += 1)
        for (const [method, path] of paths) await command.call(method, path);
      const { verdict } = await look(command, 20);
      assert.deepEqual([verdict.level, verdict.title], [level, title]);
      assert.match(verdict.detail, /BACKEND_URL/);
      await poll(async () => (await problemOf(command)) === noSuccess, '/readyz reports the problem');
      backend.answers(answer('{"id":5}'));
      await command.call('GET', '/api/work-items/5');
      assert.doesNotMatch((await look(command, 21)).verdict.detail, /BACKEND_URL/);
      await poll(async () => (await problemOf(command)) === undefined, '/readyz no longer reports the problem');
    });
  } // prettier-ignore
});

describe('check with a wrong base path', () => {
  const failures = [
    ['is unknown', answer('{}', { status: 404 }), 'the backend does not have this path: status 404'],
    ['serves a page', answer('<p>', { headers: [['Content-Type', 'text/html']] }), 'the answer is a page, not JSON'],
    ['redirects', answer('', { status: 302, headers: [['Location', '/']] }), 'the backend answers with a redirect'],
  ] as const; // prettier-ignore
  for (const [what, wrong, title] of failures) {
    for (const [base, right] of [
      ['/v1', ''],
      ['/a/b/swagger/', '/a'],
      ['/a/b', '/a'],
    ] as const) {
      test(`if ${base} ${what} and the list is at ${right}/api/WorkItem, check suggests this address [D30]`, async () => {
        const isRight = (target: string) => target === `${right}/api/WorkItem`;
        backend.answers((exchange) => (isRight(exchange.request.target) ? answer('[]') : wrong)(exchange));
        const { code, stderr } = await runHere(['check'], { BACKEND_URL: backend.url + base });
        assert.equal(code, 1);
        assert.ok(stderr.includes(title), stderr);
        const tried = backend.url + right;
        assert.ok(
          stderr.endsWith(
            `  Tried ${tried}/api/WorkItem, and the backend answers JSON there: did you mean ${tried}?\n`,
          ),
          stderr,
        );
      });
    }
  }

  for (const [what, answers, tried] of [
    ['answers 404 everywhere', [status(404)], ['/a/b/c', '/a/b', '/a', '']],
    ['answers 404, then nothing in the time of one call', [status(404), timeout], ['/a/b/c']],
    ...[401, 403, 429, 500, 503].map((code) => [`answers ${code}`, [status(code)], []] as const),
  ] as const) {
    test(`if the backend ${what}, check tries ${tried.length} shorter paths and suggests none`, async () => {
      const [first = status(404), others = first] = answers;
      backend.reset();
      backend.answersOnce(first);
      backend.answers(others);
      const environment = { BACKEND_URL: `${backend.url}/a/b/c/d/e`, BACKEND_TIMEOUT_MS: '400' };
      assert.doesNotMatch((await runHere(['check'], environment)).stderr, /did you mean/);
      const targets = backend.requests.map(({ target }) => target);
      assert.deepEqual(
        targets,
        ['/a/b/c/d/e', ...tried].map((base) => `${base}/api/WorkItem`),
      );
    });
  }
});

test('check --json prints one document with the result of each check', async () => {
  for (const [status, exitCode] of [
    [200, 0],
    [404, 1],
  ] as const) {
    backend.answers(answer('[]', { status }));
    const { code, stdout, stderr } = await runHere(['check', '--json'], {
      BACKEND_URL: backend.url,
      CORS_ORIGINS: '*',
    });
    assert.equal(code, exitCode);
    assert.equal(stderr, '');
    assert.match(stdout, /^\{.*\}\n$/);
    const report = JSON.parse(stdout) as {
      checks: { name: string; ok: boolean; lines: string[]; problems: string[] }[];
    };
    assert.partialDeepStrictEqual(report, { schema: 'work-item-gateway/check/1', exitCode });
    const results = report.checks.filter(({ name }) => name !== 'warning').map(({ name, ok }) => [name, ok]);
    assert.deepEqual(results, [
      ['settings', true],
      ['cors', true],
      ['backend', status === 200],
    ]);
    const [first] = report.checks.at(-1)?.[status === 200 ? 'lines' : 'problems'] ?? [];
    assert.match(
      first ?? '',
      status === 200 ? /answered 200 with 2 bytes of JSON/ : /does not have this path: status 404/,
    );
  }
});
