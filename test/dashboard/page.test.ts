// The dashboard in a real browser: the figures of the built command, display, keyboard and changes of the state.

import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';

import type { Message } from '../../packages/dashboard/state.ts';
import { stepMs } from '../../packages/figures/history.ts';
import { type WatchedPage, TestBrowser } from '../helpers/browser.ts';
import { poll } from '../helpers/changes.ts';
import { type Command, startCommand } from '../helpers/command.ts';
import { statePath } from '../helpers/dashboard-state.ts';
import { findFreePort } from '../helpers/haproxy.ts';
import { answer } from '../helpers/scripted-backend.ts';
import { useBackend } from '../helpers/suites.ts';
import { createFlow, createFlows, createReport, openDashboard, reads, withAdmin, withState } from './report.ts';

let browser: TestBrowser;
const backend = await useBackend();
before(async () => {
  browser = await TestBrowser.start();
});
after(() => browser[Symbol.asyncDispose]());

const failureIds = '#failure-table tbody .id code';
const columns = ['rate', '2xx', '4xx', '5xx', 'none', 'client', 'gateway', 'backend', 'p50', 'p99', 'failed', 'backend p50', 'backend p99']; // prettier-ignore
const focused = ({ page }: WatchedPage): Promise<string> =>
  page.evaluate<string>('document.activeElement.ariaLabel ?? document.activeElement.textContent');
const textOf = async ({ page }: WatchedPage, selector: string): Promise<string> =>
  (await page.locator(selector).textContent()) ?? '';

describe('the dashboard of a command', () => {
  let command: Command;
  let watched: WatchedPage;
  let page: WatchedPage['page'];
  before(async () => {
    command = await startCommand({ BACKEND_URL: backend.url, ADMIN_PORT: String(await findFreePort()) });
    watched = await openDashboard(browser, command.adminPort);
    ({ page } = watched);
  });
  after(async () => {
    await watched[Symbol.asyncDispose]();
    await command.stop();
  });

  const call = (method: string, path: string, id: string, body?: string) =>
    command.call(method, path, { headers: [['X-Request-Id', id]], ...(body && { body }) });
  const button = (name: string, more: object = {}) => page.getByRole('button', { name, ...more });
  const ids = () => page.locator(failureIds).allTextContents();
  const list = '/api/work-items';

  test('without traffic, the page shows a command to try and no empty chart', async () => {
    await reads(watched, '#verdict-title', /^All is well$/);
    await reads(watched, '#welcome', /No calls yet/);
    await reads(watched, '#welcome-command', new RegExp(`^curl http://127.0.0.1:${command.port}${list}$`));
    assert.equal(await page.locator('#charts').isVisible(), false);
    await watched.savePicture('dashboard-no-traffic');
  });

  test('calls appear: each reply by its status class, each failure by its outcome and the party at fault [D51]', async () => {
    await call('GET', list, 'good-1');
    await call('POST', list, 'mistake-1', '{');
    const refused = answer('', { status: 500 });
    backend.answersOnce(answer('', { status: 404 }), answer('', { status: 409 }), refused, refused, answer('<html>'));
    await call('GET', `${list}/9`, 'missing-1');
    await call('PUT', `${list}/9`, 'rejected-1', '{}');
    await call('DELETE', `${list}/9`, 'refused-1');
    await call('GET', list, 'refused-2');
    await call('PATCH', `${list}/9`, 'patch-1');
    await call('GET', '/favicon.ico', 'icon-1');
    await call('GET', list, 'not-json-1');
    await reads(watched, '#failure-table tbody', /not-json-1/);
    for (const [flow, ...expected] of [
      ['list', '1', '0', '2', '0', '0', '0', '2', '66.7\u00a0%'],
      ['create', '0', '0', '1', '0', '1', '0', '0', '–'],
      ['read', '0', '1', '0', '0', '1', '0', '0', '0\u00a0%'],
      ['update', '0', '0', '1', '0', '1', '0', '0', '0\u00a0%'],
      ['delete', '0', '0', '1', '0', '0', '0', '1', '100\u00a0%'],
      ['all', '1', '1', '5', '0', '3', '0', '3', '50.0\u00a0%'],
      ['none', '0', '2', '0', '0', '2', '0', '0', ''],
    ] as const) {
      const shown = await page.locator(`#operation-table tbody .${flow} td`).allTextContents();
      assert.deepEqual([flow, ...shown.slice(1, 8), shown[10]], [flow, ...expected]);
    }
    const bad = await page.locator('#operation-table tbody td.bad').allTextContents();
    assert.deepEqual(bad, ['2', '66.7\u00a0%', '1', '100\u00a0%', '3', '50.0\u00a0%'], 'not the failures of clients');
    const kinds = page.locator('#kind-tables tbody tr').filter({ visible: true });
    assert.equal(
      (await kinds.locator('td:first-of-type, button').allTextContents()).join(' '),
      'not-found 1 rejected 1 invalid-body 1 no-operation 2 refused 2 not-json 1',
    );
    await reads(watched, '#kind-tables [data-party=gateway] .hint', /^Did not occur: no-keys, overload, bug\.$/);
    await reads(watched, '#verdict-title', /^The backend fails calls$/);
    await reads(watched, '#parties .blamed .said', /^answers, 3 failures in the last minute$/);
    await reads(watched, '#parties [data-party=client] .said', /^5 errors in the last minute$/);
    await reads(watched, '#fact-failure', /^not-json, /);
  });

  test('a figure is the same wherever the page shows it, and its period is named', async () => {
    for (const [radio, period] of [
      ['15 minutes', 'in the last 15 minutes'],
      ['the last minute', 'in the last minute'],
    ] as const) {
      await page.getByRole('radio', { name: radio }).check({ force: true });
      await reads(watched, '.requests .when', new RegExp(`^${period}$`));
      // Stops updates, so that all texts show the same moment.
      await button('Pause').click();
      const all = await page.locator('#operation-table tbody .all td').allTextContents();
      for (const [selector, ...names] of [
        ['.requests [data-party=gateway]', 'rate'],
        ['.failed-requests [data-party=backend]', 'backend'],
        ['.latency [data-party=gateway]', 'p50', 'p99'],
        ['.latency [data-party=backend]', 'backend p50', 'backend p99'],
      ] as const) {
        const figures = await page.locator(`#charts ${selector} b`).allTextContents();
        assert.deepEqual([selector, ...figures], [selector, ...names.map((name) => all[columns.indexOf(name)])]);
      }
      await button('Resume').click();
    }
    const times = String.raw`\(\d\d:\d\d:\d\d to \d\d:\d\d:\d\d\)`;
    await reads(watched, '#verdict-detail', new RegExp(`^3 of 6 backend calls failed in the last minute ${times}: `));
  });

  test('failed calls are filtered by operation, outcome and party, and a button copies a request id', async () => {
    const [operation, outcome] = ['Operation', 'Outcome'].map((name) => page.getByRole('combobox', { name }));
    assert.ok(operation && outcome);
    const all = ['not-json-1', 'icon-1', 'patch-1', 'refused-2', 'refused-1', 'rejected-1', 'missing-1', 'mistake-1'];
    assert.deepEqual(await ids(), all);
    const cells = await page.locator('#failure-table tbody tr').nth(4).locator('.path, .client').allTextContents();
    assert.deepEqual(cells, [`${list}/9`, '127.0.0.1']);
    await operation.selectOption('list');
    assert.deepEqual(await ids(), ['not-json-1', 'refused-2']);
    await button('Show all').click();
    assert.deepEqual(await ids(), all);
    await outcome.selectOption({ label: 'all backend failures' });
    assert.deepEqual(await ids(), ['not-json-1', 'refused-2', 'refused-1']);
    await operation.selectOption('create');
    await reads(watched, '#failures-note', /^None of the 8 failed calls kept matches\./);
    await button('not-json: show these failed calls', { exact: true }).click();
    assert.deepEqual([await outcome.inputValue(), ...(await ids())], ['not-json', 'not-json-1']);
    assert.equal(await page.evaluate('document.activeElement.id'), 'filter-kind');
    await page.context().grantPermissions(['clipboard-read', 'clipboard-write']);
    const copy = button('Copy request id not-json-1');
    await copy.click();
    await reads(watched, '#failure-table tbody', /Copied/);
    assert.equal(await page.evaluate('navigator.clipboard.readText()'), 'not-json-1');
    await button('Show all').click();
    await copy.focus();
    await call('GET', '/nonsense', 'mistake-2');
    await reads(watched, '#failure-table tbody', /mistake-2/);
    assert.equal(await focused(watched), 'Copy request id not-json-1', 'an update of the page keeps the focus');
  });

  test('a paused page shows that it is paused, in its text and its title; a hidden page fetches nothing', async () => {
    const fetches = (of = watched) => of.requests.filter((url) => url.includes(statePath)).length;
    const setHidden = (isHidden: boolean) =>
      page.evaluate(`Object.defineProperty(document, 'hidden', { configurable: true, value: ${isHidden} });
        document.dispatchEvent(new Event('visibilitychange'))`);
    await button('Pause').click();
    await reads(watched, '#connection', /^Paused at \d\d:\d\d:\d\d$/);
    assert.match(await page.title(), /: Paused – Work Item Gateway$/);
    assert.equal(await button('Pause').count(), 0);
    await call('GET', '/nonsense', 'while-paused');
    await using other = await openDashboard(browser, command.adminPort);
    await reads(other, '#failure-table tbody', /while-paused/);
    assert.equal((await ids()).includes('while-paused'), false);
    await button('Resume').click();
    await reads(watched, '#failure-table tbody', /while-paused/);
    await reads(watched, '#connection', /^Live$/);
    assert.doesNotMatch(await page.title(), /Paused/);
    await setHidden(true);
    const [earlier, ofOther] = [fetches(), fetches(other)];
    await poll(() => fetches(other) >= ofOther + 3, 'another page has fetched three times');
    assert.ok(fetches() <= earlier + 1, 'the hidden page starts no new fetch');
    await setHidden(false);
    await poll(() => fetches() > earlier + 1, 'the page fetches again');
  });

  test('changed settings are shown with their sources, and all settings on request', async () => {
    const rows = page.locator('#setting-table tbody tr');
    const total = await rows.count();
    await reads(watched, '#settings-count', new RegExp(`^6 of ${total} changed$`));
    assert.equal(await rows.filter({ visible: true }).count(), 6);
    await reads(watched, '#setting-table tbody tr.chosen', /BACKEND_URL.*http:\/\/127\.0\.0\.1.*environment/);
    await button('Show defaults too', { expanded: false }).click();
    assert.equal(await rows.filter({ visible: true }).count(), total);
    await reads(watched, '#setting-table tbody tr', /REQUEST_BYTES_MAX.*10485760 bytes 10\sMiB.*default/);
    // The digits are grouped for display only, and those of a port are not.
    const copied = await page.evaluate<[string, number][]>(`['REQUEST_BYTES_MAX', 'ADMIN_PORT'].map((name) => {
      const row = [...document.querySelectorAll('#setting-table tbody tr')].find((each) => each.textContent.startsWith(name));
      const code = row.querySelector('.value code');
      getSelection().selectAllChildren(code);
      return [String(getSelection()), code.querySelectorAll('.group').length];
    })`);
    assert.deepEqual(copied, [
      ['10485760', 3],
      [String(command.adminPort), 0],
    ]);
    await button('Hide defaults', { expanded: true }).click();
    assert.equal(await rows.filter({ visible: true }).count(), 6);
  });

  test('without traffic, the page shows within two seconds that the backend is down or up again', async () => {
    const calls = backend.requests.length;
    await backend.stop();
    await reads(watched, '#verdict-title', /^The backend does not answer$/, 2_000);
    await reads(watched, '#verdict-detail', /^Unreachable since [\d:]+ \(.*\): connection refused/);
    await reads(watched, '#verdict-next', /^Check that the backend is running/);
    await reads(watched, '#parties .blamed .said', /^unreachable since/);
    await watched.savePicture('dashboard-backend-down');
    await backend.restart();
    await reads(watched, '#parties', /answers|(?<!un)reachable|recovered/, 3_000);
    assert.equal(backend.requests.length, calls, 'the gateway only connects to the backend, and makes no call');
    watched.assertClean(page.url());
  });
});

const failure = {
  ...{ requestId: 'lost-1', operation: 'list', path: '/', client: undefined, status: 500, durationMs: 1 },
  ...({ outcome: 'unreachable', party: 'backend', cause: 'connection refused' } as const),
};
const load = { inFlight: 0, bufferedBytes: 0, residentBytes: 0, eventLoopDelayMs: 0 };
const pointsUntil = (at: number, workerDeaths = 0) =>
  [2, 1, 0].map((step) => ({
    ...{ at: at - step * stepMs, seconds: stepMs / 1_000, ...load, workerDeaths },
    flows: createFlows({ all: createFlow({ requests: 100 + step }) }),
  }));

test('the keyboard reaches every control; the page shows a lost connection, a restart, dead workers and a recovery', async () => {
  const recovered = ({ now }: Message) => {
    const all = createFlow({ backendCalls: 100, failed: { backend: 20, gateway: 0, client: 0 } });
    const lastMinute = { ...now.lastMinute, failures: { unreachable: 20 }, flows: createFlows({ all }) };
    const lastFailures = { backend: { at: now.at - 30_000, callsSince: 80 }, gateway: null };
    return {
      now: { ...now, requestsEver: 100, lastMinute, lastFailures },
      failures: [{ ...failure, at: now.at - 30_000 }],
    };
  };
  const change = ({ now }: Message) => ({ points: pointsUntil(now.at) });
  await withState(browser, change, async (watched, set) => {
    const { page } = watched;
    const press = (key: string) => page.keyboard.press(key);
    await press('Tab');
    await press('Enter');
    await reads(watched, '#connection', /^Paused at \d\d:\d\d:\d\d$/);
    await press('Enter');
    await reads(watched, '#connection', /^Live$/);
    for (const name of ['list', '15 minutes']) {
      await press('Tab');
      await press('ArrowRight');
      assert.equal(await page.getByRole('radio', { name }).isChecked(), true);
    }
    await page.getByRole('radio', { name: 'All' }).check({ force: true });
    await page.getByRole('radio', { name: '15 minutes' }).focus();
    await press('Tab');
    const said: string[] = [];
    for (const key of ['ArrowLeft', 'ArrowLeft', 'Home', 'ArrowRight', 'End', 'Escape']) {
      await press(key);
      said.push(
        /^\d\d:\d\d:\d\d: Requests, per second: from clients ([\d.]+), /.exec(await textOf(watched, '#said'))?.[1] ??
          '',
      );
    }
    assert.deepEqual(said, ['20.0', '20.2', '20.4', '20.2', '20.0', '']);
    watched.assertClean(page.url());

    const area = page.locator('.requests .area');
    const line = async () => (await page.locator('.requests .line.gateway').getAttribute('d'))?.split('L').length ?? 0;
    assert.match((await area.getAttribute('aria-label')) ?? '', /from clients .*, started \d\d:\d\d\. /);
    const earlier = await line();
    set(undefined);
    await reads(watched, '#lost', /^No connection to the gateway since \d\d:\d\d:\d\d/);
    await reads(watched, '#connection', /^Connection lost$/);
    await reads(watched, '#verdict-title', /^No connection to the gateway$/);
    await reads(watched, '#verdict-detail', /^Last verdict, at \d\d:\d\d:\d\d: /);
    assert.match(await page.title(), /: No connection – Work Item Gateway$/);
    await watched.savePicture('dashboard-lost');
    set(({ facts, now }) => ({
      facts: { ...facts, startedAt: now.at },
      points: pointsUntil(now.at + stepMs, 2).slice(2),
    }));
    await reads(watched, '#connection', /^Live$/);
    assert.equal(await page.locator('#lost').isVisible(), false);
    await reads(watched, '#verdict-title', /^All is well$/);
    assert.match((await area.getAttribute('aria-label')) ?? '', /, restarted .*, 2 workers died \d\d:\d\d\. /);
    assert.equal(await line(), earlier + 1, 'the earlier values are still drawn');

    set(recovered);
    await reads(watched, '#verdict[data-level=over] h2', /^The backend has recovered$/);
    await reads(watched, '#failure-table tbody .kind', /^unreachable connection refused$/);
    await reads(
      watched,
      '#verdict-detail',
      /^Recovered 30\ss ago\. 20 of 100 backend calls failed .*: 20 unreachable\.$/,
    );
    await reads(
      watched,
      '#parties [data-party=backend] .said',
      /^recovered 30\ss ago, 20 failures in the last minute$/,
    );
    assert.equal(await page.locator('#parties .blamed, #parties .unwell').count(), 0, 'red is not used');
    const [mark, well] = await page.evaluate<string[]>(`[
      getComputedStyle(document.querySelector('.mark')).stroke,
      getComputedStyle(document.querySelector('#connection'), '::before').backgroundColor,
    ]`);
    assert.equal(mark, well);
    assert.equal(await page.locator('#icon').getAttribute('href'), 'dashboard/well.svg');
    await watched.savePicture('dashboard-recovered');
  });
});

test('the search field finds a failed call that the table does not show; Show more shows it, where the button was', async () => {
  const failures = [
    // A client may send the same id with several requests.
    ...[0.25, 0.5, 0.75].map((durationMs) => ({ ...failure, at: 2_000, requestId: 'constant', durationMs })),
    ...Array.from({ length: 117 }, (_, index) => ({ ...failure, at: 1_000 - index, requestId: `id-${index}` })),
    { ...failure, at: 500, requestId: 'Lost-Call.1' },
  ];
  await withState(
    browser,
    () => ({ failures }),
    async (watched) => {
      const { page } = watched;
      const ids = page.locator(failureIds);
      await reads(watched, '#failures-note', /^The last 50 of 121 failed calls kept, latest first\./);
      assert.deepEqual((await ids.allTextContents()).slice(0, 4), ['constant', 'constant', 'constant', 'id-0']);
      assert.equal(await ids.count(), 50);
      const search = page.getByRole('searchbox', { name: 'Request id' });
      // As copied from a line of the log.
      for (const text of [' "Lost-Call.1",', 'lost']) {
        await search.fill(text);
        assert.deepEqual(await ids.allTextContents(), ['Lost-Call.1']);
        await reads(watched, '#failures-note', /^1 matching failed call kept, latest first\./);
      }
      assert.equal(await page.getByRole('button', { name: 'Show more' }).count(), 0);
      await search.fill('no-such-call');
      await search.press('Enter');
      await reads(watched, '#failures-note', /^None of the 121 failed calls kept matches\. .* only in the log\.$/);
      assert.match(await textOf(watched, '#said'), /^None of the 121/);
      await page.getByRole('button', { name: 'Show all' }).click();
      assert.equal(await search.inputValue(), '');
      await page.getByRole('button', { name: 'Show more', expanded: false }).click();
      assert.deepEqual(
        [await ids.count(), await focused(watched)],
        [121, 'Copy request id id-47'],
        'the first of the new rows',
      );
      assert.match(await textOf(watched, '#said'), /^121 failed calls kept, latest first\./);
      await page.getByRole('button', { name: 'Show fewer', expanded: true }).click();
      assert.deepEqual([await ids.count(), await focused(watched)], [50, 'Show more']);
    },
  );
});

test('each of several workers has a line, the totals are sums, and after a reload an open page shows the new settings', async () => {
  let inFlightMax = 60;
  const setting = { variable: 'IN_FLIGHT_MAX', flag: '', unit: 'calls', source: 'file', help: '' } as const;
  const reports = [
    createReport({ pid: 101, inFlight: 2, residentBytes: 60 * 1_048_576, eventLoopDelayMs: 1 }),
    createReport({ pid: 102, inFlight: 5, residentBytes: 40 * 1_048_576, eventLoopDelayMs: 9 }),
  ];
  const act = async (adminPort: number) => {
    await using watched = await openDashboard(browser, adminPort);
    await reads(watched, '#fact-workers', /^2$/);
    await reads(watched, '#worker-table tbody tr:nth-child(2)', /^102540\.0\sMiB9\.0\sms$/);
    await reads(watched, '#loads div:nth-child(3)', /Memory100\sMiB/);
    await reads(watched, '#loads div:nth-child(4)', /9\.0\sms/);
    for (const max of [60, 50]) {
      inFlightMax = max;
      await reads(watched, '#setting-table .chosen', new RegExp(`IN_FLIGHT_MAX.*${max} calls.*settings file`));
      await reads(watched, '#loads div:nth-child(1)', new RegExp(`Calls in flight7 of ${max}`));
    }
    watched.assertClean(watched.page.url());
  };
  const facts = () => ({ inFlightMax, settings: [{ ...setting, value: String(inFlightMax) }] });
  await withAdmin(() => reports, act, undefined, { facts });
});
