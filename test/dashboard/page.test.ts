// The dashboard in a real browser with the built command: display, keyboard and accessibility.

import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';

import type { Details, Message } from '../../packages/dashboard/state.ts';
import { callOutcomes, outcomes } from '../../packages/core/outcomes.ts';
import { type PageOptions, TestBrowser, type WatchedPage } from '../helpers/browser.ts';
import { poll } from '../helpers/changes.ts';
import { type Command, startCommand } from '../helpers/command.ts';
import { readState, statePath } from '../helpers/dashboard-state.ts';
import { findFreePort } from '../helpers/haproxy.ts';
import { answer } from '../helpers/scripted-backend.ts';
import { useBackend } from '../helpers/suites.ts';
import { openDashboard, readOperation, reads } from './dashboard-page.ts';
import { createFlow, createFlows, createReport, withAdmin, withState } from './report.ts';

const backendShownWithinMs = 2_000;

let browser: TestBrowser;
const backend = await useBackend();
let command: Command;
before(async () => {
  browser = await TestBrowser.start();
  command = await startCommand({ BACKEND_URL: backend.url, ADMIN_PORT: String(await findFreePort()) });
});
after(async () => {
  await browser[Symbol.asyncDispose]();
  await command.stop();
});

function address({ adminPort }: Command): string {
  return `http://127.0.0.1:${adminPort}/`;
}

async function open(options?: PageOptions, of = command): Promise<WatchedPage> {
  return await openDashboard(browser, of, options);
}

const failed = { status: 503 } as const;

/** Makes calls of every operation, with failures of clients and of the backend. */
async function makeTraffic(): Promise<void> {
  for (let round = 0; round < 10; round += 1) {
    await command.call('GET', '/api/work-items');
    await command.call('POST', '/api/work-items', { body: '{}' });
    await command.call('GET', '/api/work-items/5');
    await command.call('PUT', '/api/work-items/5', { body: '{}' });
    await command.call('DELETE', '/api/work-items/5');
  }
  await command.call('GET', '/api/work-items/nonsense', { headers: [['X-Request-Id', 'mistake-1']] });
  await command.call('PUT', '/api/work-items/5', { body: '{', headers: [['X-Request-Id', 'mistake-2']] });
  backend.answersOnce(answer('', failed), answer('<html>'));
  await command.call('GET', '/api/work-items', { headers: [['X-Request-Id', 'refused-1']] });
  await command.call('GET', '/api/work-items/7', { headers: [['X-Request-Id', 'not-json-1']] });
}

describe('the dashboard', () => {
  test('without traffic the page shows a command to try', async () => {
    await using watched = await open();
    await reads(watched, '#verdict-title', /^All is well$/);
    await reads(watched, '#welcome', /No calls yet/);
    await reads(watched, '#welcome-command', new RegExp(`^curl http://127.0.0.1:${command.port}/api/work-items$`));
    assert.equal(await watched.page.locator('#charts').isVisible(), false, 'no empty chart');
    assert.deepEqual(await watched.findAccessibilityProblems(), []);
    await watched.savePicture('dashboard-no-traffic-light');
    watched.assertClean(address(command));
  });

  test('traffic appears in the table within two seconds, and in the charts at the next step', async () => {
    await using watched = await open();
    await makeTraffic();
    await reads(watched, '#operation-table tbody .list td:first-of-type', /^0\.\d|^[1-9]/);
    await reads(watched, '#operation-table tbody .create', /\d\sms/);
    await reads(watched, '#kind-tables', /refused.*1/s);
    await reads(watched, '#charts figure:first-of-type li:first-of-type', /from clients (?:0\.\d|[1-9])/, 15_000);
    await reads(watched, '#verdict-title', /^The backend fails calls$/);
    await reads(watched, '#parties .blamed .said', /^answers, 2 failures/);
    await reads(watched, '#fact-failure', /^not-json, /);
    watched.assertClean(address(command));
  });

  test('a figure is the same wherever the page shows it, and its period is named', async () => {
    await using watched = await open();
    const { page } = watched;
    await reads(watched, '#verdict-title', /^The backend fails calls$/);
    for (const [radio, period] of [
      ['the last minute', 'in the last minute'],
      ['15 minutes', 'in the last 15 minutes'],
    ] as const) {
      await page.getByRole('radio', { name: radio }).check({ force: true });
      await reads(watched, '.requests .when', new RegExp(`^${period}$`));
      // Stops updates, so that all texts show the same moment.
      await page.getByRole('button', { name: 'Pause' }).click();
      const all = await readOperation(watched, 'all');
      for (const [selector, ...columns] of [
        ['.requests [data-party=gateway]', 'rate'],
        ['.failed-requests [data-party=backend]', 'backend'],
        ['.latency [data-party=gateway]', 'p50', 'p99'],
        ['.latency [data-party=backend]', 'backend p50', 'backend p99'],
      ] as const) {
        const shown = await page.locator(`#charts ${selector} b`).allTextContents();
        assert.deepEqual(
          shown,
          columns.map((column) => all[column]),
          selector,
        );
      }
      if (radio === 'the last minute') {
        assert.equal(all['backend'], '2');
        const detail = (await page.locator('#verdict-detail').textContent()) ?? '';
        const [, calls] =
          /^2 of (\d+) backend calls failed in the last minute \(\d\d:\d\d:\d\d to \d\d:\d\d:\d\d\): /.exec(detail) ??
          assert.fail(detail);
        assert.equal(all['backend failed'], `${(200 / Number(calls)).toFixed(1)}\u00a0%`);
        await reads(watched, '#parties [data-party=backend] .said', /^answers, 2 failures in the last minute$/);
      }
      await page.getByRole('button', { name: 'Resume' }).click();
    }
  });

  test('every reply is counted by its status class, every failure by its kind and the party at fault [D51]', async () => {
    await using own = await startCommand({ BACKEND_URL: backend.url });
    await own.call('GET', '/api/work-items');
    await own.call('POST', '/api/work-items', { body: '{' });
    backend.answersOnce(answer('', { status: 404 }), answer('', { status: 409 }), answer('', failed));
    await own.call('GET', '/api/work-items/9');
    await own.call('PUT', '/api/work-items/9', { body: '{}' });
    await own.call('DELETE', '/api/work-items/9');
    await own.call('GET', '/favicon.ico');
    await own.call('PATCH', '/api/work-items/9');
    await using watched = await open({}, own);
    const { page } = watched;
    await reads(watched, '#operation-table tbody .none td:nth-of-type(3)', /^2$/);
    const names = ['2xx', '4xx', '5xx', 'no reply', 'client', 'gateway', 'backend', 'backend failed'];
    for (const [flow, ...expected] of [
      ['list', '1', '0', '0', '0', '0', '0', '0', '0\u00a0%'],
      ['create', '0', '0', '1', '0', '1', '0', '0', '–'],
      ['read', '0', '1', '0', '0', '1', '0', '0', '0\u00a0%'],
      ['update', '0', '0', '1', '0', '1', '0', '0', '0\u00a0%'],
      ['delete', '0', '0', '1', '0', '0', '0', '1', '100\u00a0%'],
      ['all', '1', '1', '3', '0', '3', '0', '1', '25.0\u00a0%'],
      ['none', '0', '2', '0', '0', '2', '0', '0', ''],
    ] as const) {
      const shown = await readOperation(watched, flow);
      assert.deepEqual(
        names.map((name) => shown[name]),
        expected,
        flow,
      );
    }
    const bad = page.locator('#operation-table tbody td.bad');
    assert.deepEqual(
      await bad.allTextContents(),
      ['1', '100\u00a0%', '1', '25.0\u00a0%'],
      'only failures of the backend and the gateway are red',
    );
    const kinds = page.locator('#kind-tables tbody tr').filter({ visible: true });
    assert.deepEqual(
      (await kinds.locator('td:first-of-type, button').allTextContents()).join(' '),
      'not-found 1 rejected 1 invalid-body 1 no-operation 2 refused 1',
    );
    await reads(watched, '#kind-tables [data-party=gateway] .hint', /^Did not occur: no-keys, overload, bug\.$/);
    await reads(watched, '#kind-tables [data-party=backend] .hint', /^Did not occur: unreachable, timed-out, /);
  });

  test('a backend that has recovered is shown as recovered, with the time of the recovery; red is not used', async () => {
    const recovered = ({ now }: Message): Partial<Message & Details> => {
      const all = createFlow({ backendCalls: 100, failed: { backend: 20, gateway: 0, client: 0 } });
      const failure = { at: now.at - 30_000, requestId: 'lost-1', operation: 'list', path: '/', client: undefined };
      return {
        now: {
          ...now,
          requestsEver: 100,
          lastMinute: { ...now.lastMinute, flows: createFlows({ all }), failures: { unreachable: 20 } },
          lastFailures: { backend: { at: now.at - 30_000, callsSince: 80 }, gateway: null },
        },
        failures: [
          {
            ...failure,
            status: 500,
            outcome: 'unreachable',
            party: 'backend',
            cause: 'connection refused',
            durationMs: 1,
          },
        ],
      };
    };
    await withState(browser, recovered, async (watched) => {
      const { page } = watched;
      await reads(watched, '#verdict[data-level=over] h2', /^The backend has recovered$/);
      await reads(watched, '#failure-table tbody .kind', /^unreachable connection refused$/);
      await reads(
        watched,
        '#verdict-detail',
        /^Recovered 30\ss ago\. 20 of 100 backend calls failed in the last minute \([\d:]+ to [\d:]+\): 20 unreachable\.$/,
      );
      await reads(
        watched,
        '#parties [data-party=backend] .said',
        /^recovered 30\ss ago, 20 failures in the last minute$/,
      );
      assert.equal(await page.locator('#parties .blamed, #parties .unwell').count(), 0);
      const [mark, well] = await page.evaluate<string[]>(`[
        getComputedStyle(document.querySelector('.mark')).stroke,
        getComputedStyle(document.querySelector('#connection'), '::before').backgroundColor,
      ]`);
      assert.equal(mark, well);
      assert.equal(await page.locator('#icon').getAttribute('href'), 'dashboard/well.svg');
      assert.deepEqual(await watched.findAccessibilityProblems(), []);
      await watched.savePicture('dashboard-recovered-light');
    });
  });

  test('failed calls are filtered by operation, kind and party, and a button copies a request id', async () => {
    await using watched = await open();
    const { page } = watched;
    const ids = async () => await page.locator('#failure-table tbody .id code').allTextContents();
    await reads(watched, '#failure-table tbody', /not-json-1/);
    assert.deepEqual(await ids(), ['not-json-1', 'refused-1', 'mistake-2', 'mistake-1']);
    const paths = await page.locator('#failure-table tbody td.path').allTextContents();
    assert.deepEqual(
      paths,
      ['7', '', '5', 'nonsense'].map((id) => `/api/work-items${id && `/${id}`}`),
    );
    const clients = await page.locator('#failure-table tbody td.client').allTextContents();
    assert.deepEqual(new Set(clients), new Set(['127.0.0.1']));
    await page.getByRole('combobox', { name: 'Operation' }).selectOption('list');
    assert.deepEqual(await ids(), ['refused-1']);
    await page.getByRole('button', { name: 'Show all' }).click();
    assert.equal((await ids()).length, 4);
    await page.getByRole('combobox', { name: 'Outcome' }).selectOption({ label: 'all client failures' });
    assert.deepEqual(await ids(), ['mistake-2', 'mistake-1']);
    await page.getByRole('combobox', { name: 'Operation' }).selectOption('create');
    await reads(watched, '#failures-note', /^None of the 4 failed calls kept matches\./);
    await page.getByRole('button', { name: 'not-json: show these failed calls', exact: true }).click();
    assert.deepEqual(await ids(), ['not-json-1']);
    assert.equal(await page.getByRole('combobox', { name: 'Outcome' }).inputValue(), 'not-json');
    await page.context().grantPermissions(['clipboard-read', 'clipboard-write']);
    await page.getByRole('button', { name: 'Copy request id not-json-1' }).click();
    await reads(watched, '#failure-table tbody', /Copied/);
    assert.equal(await page.evaluate('navigator.clipboard.readText()'), 'not-json-1');
    watched.assertClean(address(command));
  });

  test('the search field finds a failed call by its request id, also if the table does not show that call', async () => {
    await using own = await startCommand({ BACKEND_URL: backend.url });
    backend.answersOnce(answer('', failed));
    await own.call('GET', '/api/work-items', { headers: [['X-Request-Id', 'Lost-Call.1']] });
    for (let count = 0; count < 120; count += 1) {
      await own.call('GET', '/api/work-items/x', { headers: [['X-Request-Id', `mistake-${count}`]] });
    }
    await using watched = await open({}, own);
    const { page } = watched;
    const ids = page.locator('#failure-table tbody .id code');
    await reads(watched, '#failures-note', /^The last 50 of 121 failed calls kept, latest first\./);
    assert.equal(await ids.count(), 50);
    const search = page.getByRole('searchbox', { name: 'Request id' });
    // As copied from a line of the log.
    await search.fill(' "Lost-Call.1",');
    assert.deepEqual(await ids.allTextContents(), ['Lost-Call.1']);
    await reads(watched, '#failures-note', /^1 matching failed call kept, latest first\./);
    await search.fill('lost');
    assert.deepEqual(await ids.allTextContents(), ['Lost-Call.1']);
    await search.fill('no-such-call');
    await search.press('Enter');
    await reads(watched, '#failures-note', /^None of the 121 failed calls kept matches\. .* only in the log\.$/);
    assert.match((await page.locator('#said').textContent()) ?? '', /^None of the 121/);
    assert.deepEqual(await watched.findAccessibilityProblems(), []);
    await page.getByRole('button', { name: 'Show all' }).click();
    assert.equal(await search.inputValue(), '');
    // The first of the new rows is where the button was, and has the focus.
    const focused = () => page.evaluate<string>('document.activeElement.getAttribute("aria-label") ?? ""');
    await page.getByRole('button', { name: 'Show more', expanded: false }).click();
    assert.equal(await ids.count(), 121);
    assert.equal(await focused(), `Copy request id ${(await ids.nth(50).textContent()) ?? ''}`);
    assert.match((await page.locator('#said').textContent()) ?? '', /^121 failed calls kept, latest first\./);
    await page.getByRole('button', { name: 'Show fewer', expanded: true }).click();
    assert.equal(await ids.count(), 50);
    assert.equal(await page.evaluate('document.activeElement.textContent'), 'Show more');
    watched.assertClean(address(own));
  });

  test('failed calls with the same request id have a row each', async () => {
    const call = { requestId: 'constant', operation: 'list', path: '/api/work-items', client: undefined, status: 401 };
    const failure = { ...call, at: Date.now(), outcome: 'no-token', party: 'client', cause: undefined } as const;
    const failures = [0.25, 0.5, 0.75].map((durationMs) => ({ ...failure, durationMs }));
    await withState(
      browser,
      () => ({ failures }),
      async ({ page }) => {
        assert.equal(await page.locator('#failure-table tbody tr').count(), 3);
        assert.equal(await page.getByRole('button', { name: 'Show more' }).count(), 0);
      },
    );
  });

  test("every outcome on the page has the log's word, and a refused call is not in the latencies", async () => {
    await using own = await startCommand({ BACKEND_URL: backend.url, RATE_LIMIT: '3/1h' });
    for (const id of ['nonsense', '5', '5', '5']) await own.call('GET', `/api/work-items/${id}`);
    await own.call('PUT', '/api/work-items/5', { body: '{' });
    await own.call('GET', '/favicon.ico');
    await using watched = await open({}, own);
    const { page } = watched;
    await reads(watched, '#failure-table tbody', /no-operation/);
    const { facts } = await readState(own.adminPort);
    const words = facts.kinds.map(({ kind }) => kind);
    assert.deepEqual(words.toSorted(), callOutcomes.filter((each) => outcomes[each].fault !== 'nobody').toSorted());
    const shown = async (selector: string): Promise<string[]> => await page.locator(selector).allTextContents();
    const buttons = await shown('#kind-tables .plain');
    const absent = (await shown('#kind-tables .hint')).flatMap((each) => each.slice(15, -1).split(', '));
    assert.deepEqual([...buttons, ...absent].toSorted(), words.toSorted());
    assert.deepEqual(
      (await shown('#filter-kind option')).filter((each) => !each.startsWith('all')).toSorted(),
      words.toSorted(),
    );
    for (const text of await shown('#failure-table td.kind')) assert.ok(words.includes(text.split(' ')[0] ?? ''), text);
    const read = await readOperation(watched, 'read');
    assert.deepEqual([read['4xx'], read['client']], ['2', '2']);
    const state = await readState(own.adminPort);
    const { p50, p99, mean, backendCalls } = state.now.lastMinute.flows.update;
    assert.deepEqual([p50, p99, mean, backendCalls], [null, null, null, 0], 'all updates were refused');
    assert.equal(state.now.lastMinute.flows.read.backendCalls, 2);
  });

  test('a paused page shows that it is paused, in its text and its title, and can resume', async () => {
    await using watched = await open();
    const { page } = watched;
    await page.getByRole('button', { name: 'Pause' }).click();
    await reads(watched, '#connection', /^Paused at \d\d:\d\d:\d\d$/);
    assert.match(await page.title(), /: Paused – Work Item Gateway$/);
    assert.equal(await page.getByRole('button', { name: 'Pause' }).count(), 0);
    const before = await page.locator('#verdict-detail').textContent();
    backend.answersOnce(answer('', failed));
    await command.call('GET', '/api/work-items', { headers: [['X-Request-Id', 'while-paused']] });
    await using other = await open();
    await reads(other, '#failure-table tbody', /while-paused/);
    assert.equal(await page.locator('#verdict-detail').textContent(), before);
    await page.getByRole('button', { name: 'Resume' }).click();
    await reads(watched, '#failure-table tbody', /while-paused/);
    await reads(watched, '#connection', /^Live$/);
    assert.doesNotMatch(await page.title(), /Paused/);
  });

  test('the keyboard reaches every control: pause, operation, period, the values of a chart', async () => {
    await command.call('GET', '/api/work-items');
    // The keys move from one value of a chart to the next, so the chart must have two values.
    await readState(command.adminPort, ({ points }) => points.length > 1, 'two steps of the history');
    await using watched = await open();
    const { page } = watched;
    // The rate is `< 0.1` if the previous tests were slow.
    await reads(watched, '#charts figure:first-of-type li:first-of-type', /from clients [\d<]/);
    await page.keyboard.press('Tab');
    await page.keyboard.press('Enter');
    await reads(watched, '#connection', /^Paused at \d\d:\d\d:\d\d$/);
    await page.keyboard.press('Enter');
    await reads(watched, '#connection', /^Live$/);
    await page.keyboard.press('Tab');
    await page.keyboard.press('ArrowRight');
    assert.equal(await page.getByRole('radio', { name: 'list' }).isChecked(), true);
    await page.keyboard.press('Tab');
    await page.keyboard.press('ArrowRight');
    assert.equal(await page.getByRole('radio', { name: '15 minutes' }).isChecked(), true);
    await page.keyboard.press('Tab');
    await page.keyboard.press('ArrowLeft');
    const said = page.locator('#said');
    await reads(watched, '#charts', /Requests/);
    assert.match(
      await said.evaluate('document.querySelector("#said").textContent'),
      /^\d\d:\d\d:\d\d: Requests, per second: from clients /,
    );
    await page.keyboard.press('Home');
    const first = await said.textContent();
    await page.keyboard.press('ArrowRight');
    assert.notEqual(await said.textContent(), first);
    // Tabs to the end of the page.
    for (let presses = 0; presses < 60; presses += 1) await page.keyboard.press('Tab');
    watched.assertClean(address(command));
  });

  test('an update of the page keeps the focus', async () => {
    await using watched = await open();
    const { page } = watched;
    const button = page.getByRole('button', { name: 'Copy request id mistake-1' });
    await button.focus();
    backend.answersOnce(answer('', failed));
    await command.call('GET', '/api/work-items', { headers: [['X-Request-Id', 'refused-2']] });
    await reads(watched, '#failure-table tbody', /refused-2/);
    assert.equal(
      await button.evaluate('document.activeElement?.getAttribute("aria-label")'),
      'Copy request id mistake-1',
    );
  });

  test('changed settings are shown with their sources, and all settings on request', async () => {
    await using watched = await open();
    const { page } = watched;
    const rows = page.locator('#setting-table tbody tr');
    const total = await rows.count();
    await reads(watched, '#settings-count', new RegExp(`^6 of ${total} changed$`));
    assert.equal(await rows.filter({ visible: true }).count(), 6);
    await reads(watched, '#setting-table tbody tr.chosen', /BACKEND_URL.*http:\/\/127\.0\.0\.1.*environment/);
    await page.getByRole('button', { name: 'Show defaults too', expanded: false }).click();
    assert.equal(await rows.filter({ visible: true }).count(), total);
    await reads(watched, '#setting-table tbody tr', /REQUEST_BYTES_MAX.*10485760 bytes 10\sMiB.*default/);
    // The digits are grouped for display only.
    const [copied, groups] = await page.evaluate<[string, number]>(`
      const row = [...document.querySelectorAll('#setting-table tbody tr')].find((each) =>
        each.textContent.startsWith('REQUEST_BYTES_MAX'));
      const code = row.querySelector('.value code');
      getSelection().selectAllChildren(code);
      [String(getSelection()), code.querySelectorAll('.group').length];`);
    assert.deepEqual([copied, groups], ['10485760', 3]);
    const port = page.locator('#setting-table tbody tr', { hasText: 'ADMIN_PORT' });
    assert.match((await port.locator('.value code').textContent()) ?? '', /^\d{5}$/);
    assert.equal(await port.locator('.group').count(), 0, 'the digits of a port are not grouped');
    await page.getByRole('button', { name: 'Hide defaults', expanded: true }).click();
    assert.equal(await rows.filter({ visible: true }).count(), 6);
  });

  test('without traffic, the page shows within two seconds that the backend is down or up again', async () => {
    await using watched = await open({ colorScheme: 'dark' });
    const calls = backend.requests.length;
    for (let round = 0; round < 2; round += 1) {
      await backend.stop();
      await reads(watched, '#verdict-title', /^The backend does not answer$/, backendShownWithinMs);
      await reads(watched, '#verdict-detail', /^Unreachable since [\d:]+ \(.*\): connection refused$/);
      await reads(watched, '#verdict-next', /^Check that the backend is running/);
      await reads(watched, '#parties .blamed .said', /^unreachable since/);
      if (round === 0) {
        assert.deepEqual(await watched.findAccessibilityProblems(), []);
        await watched.savePicture('dashboard-backend-down-dark');
      }
      await backend.restart();
      await reads(watched, '#parties', /answers|(?<!un)reachable|recovered/, backendShownWithinMs + 1_000);
    }
    assert.equal(backend.requests.length, calls, 'the gateway only connects to the backend, and makes no call');
    watched.assertClean(address(command));
  });

  test('a hidden page fetches nothing, and fetches again as soon as it is visible', async () => {
    await using watched = await open();
    const fetches = () => watched.requests.filter((url) => url.includes(statePath)).length;
    const setHidden = async (isHidden: boolean) => {
      await watched.page
        .evaluate(`Object.defineProperty(document, 'hidden', { configurable: true, value: ${isHidden} });
        document.dispatchEvent(new Event('visibilitychange'))`);
    };
    await setHidden(true);
    const before = fetches();
    // Waits until a second page has fetched three times.
    await using other = await open();
    await poll(
      () => other.requests.filter((url) => url.includes(statePath)).length >= 3,
      'the second page has fetched three times',
    );
    assert.ok(fetches() <= before + 1, 'the hidden page starts no new fetch');
    await setHidden(false);
    await poll(() => fetches() > before + 1, 'the page fetches again');
  });

  test('each of several workers has a line, and the totals are sums over all workers', async () => {
    const workers = [
      createReport({ pid: 101, inFlight: 2, residentBytes: 60 * 1_048_576, eventLoopDelayMs: 1 }),
      createReport({ pid: 102, inFlight: 5, residentBytes: 40 * 1_048_576, eventLoopDelayMs: 9 }),
    ];
    await withAdmin(
      () => workers,
      async (port) => {
        await using watched = await browser.open(`http://127.0.0.1:${port}/`);
        await reads(watched, '#fact-workers', /^2$/);
        await reads(watched, '#worker-table tbody tr:nth-child(2)', /^102540\.0\sMiB9\.0\sms$/);
        await reads(watched, '#loads div:nth-child(1)', /Calls in flight7 of 1/);
        await reads(watched, '#loads div:nth-child(3)', /Memory100\sMiB/);
        await reads(watched, '#loads div:nth-child(4)', /9\.0\sms/);
      },
    );
  });

  test('after a reload an open page shows the new settings, their sources and the limits', async () => {
    let inFlightMax = 60;
    const setting = {
      variable: 'IN_FLIGHT_MAX',
      flag: '--in-flight-max',
      unit: 'calls',
      source: 'file',
      help: '',
    } as const;
    const facts = () => ({ inFlightMax, settings: [{ ...setting, value: String(inFlightMax) }] });
    await withAdmin(
      () => [createReport()],
      async (adminPort) => {
        await using watched = await openDashboard(browser, { adminPort });
        for (const max of [60, 50]) {
          inFlightMax = max;
          await reads(
            watched,
            '#setting-table tbody tr.chosen',
            new RegExp(`IN_FLIGHT_MAX.*${max} calls.*settings file`),
          );
          await reads(watched, '#loads div:nth-child(1)', new RegExp(`Calls in flight0 of ${max}`));
        }
        watched.assertClean(`http://127.0.0.1:${adminPort}/`);
      },
      undefined,
      { facts },
    );
  });
});
