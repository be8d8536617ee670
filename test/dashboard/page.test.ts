// The dashboard in a real browser against the built command: what an operator sees, by eye, keyboard and screen
// reader. Pictures of it all are left in test-output/.

import assert from 'node:assert/strict';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';

import { request, requestBytes, RawClient } from '../helpers/raw-client.ts';
import { findFreePort } from '../helpers/haproxy.ts';
import { TestBrowser, type PageOptions, type WatchedPage } from '../helpers/browser.ts';
import { openDashboard, readOperation, reads } from '../helpers/dashboard-page.ts';
import { answer, ScriptedBackend } from '../helpers/scripted-backend.ts';
import { startCommand, type Command } from '../helpers/targets.ts';
import { poll } from '../helpers/changes.ts';
import { createReport, withAdmin } from './report.ts';

const sizes = [
  [360, 740],
  [768, 1_024],
  [1_440, 900],
  [2_560, 1_440],
] as const;
const colorSchemes = ['light', 'dark'] as const;
const backendShownWithinMs = 2_000;

let browser: TestBrowser;
let backend: ScriptedBackend;
let command: Command;
before(async () => {
  browser = await TestBrowser.start();
  backend = await ScriptedBackend.start();
  backend.answers(answer('[]'));
  command = await startCommand({ BACKEND_URL: backend.url });
});
after(async () => {
  await browser[Symbol.asyncDispose]();
  await command.stop();
  await backend.stop();
});

function address({ adminPort }: Command): string {
  return `http://127.0.0.1:${adminPort}/`;
}

async function open(options?: PageOptions, of = command): Promise<WatchedPage> {
  return await openDashboard(browser, of, options);
}

async function assertAccessible(watched: WatchedPage): Promise<void> {
  assert.deepEqual(await watched.findAccessibilityProblems(), []);
}

const failed = { status: 503 } as const;

/** Some calls of every operation, and failures of each party. */
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

/** A backend of a test's own. */
class DisposableBackend implements AsyncDisposable {
  readonly backend: ScriptedBackend;
  constructor(backend: ScriptedBackend) {
    this.backend = backend;
  }
  async [Symbol.asyncDispose](): Promise<void> {
    await this.backend.stop();
  }
}

describe('the dashboard', () => {
  test('shows a visitor without any traffic what to do', async () => {
    for (const colorScheme of colorSchemes) {
      await using watched = await open({ colorScheme });
      const { page } = watched;
      await reads(watched, '#verdict-title', /^All is well$/);
      await reads(watched, '#welcome', /No calls yet/);
      await reads(
        watched,
        '#welcome-command',
        new RegExp(`^curl http://127.0.0.1:${command.port}/api/work-items$`),
      );
      assert.equal(await page.locator('#charts').isVisible(), false, 'no empty chart');
      if (colorScheme === 'light') await assertAccessible(watched);
      await watched.savePicture(`dashboard-no-traffic-${colorScheme}`);
      watched.assertClean(address(command));
    }
  });

  test('shows traffic as it comes: the table within a second or two, the charts with the next step', async () => {
    await using watched = await open();
    await makeTraffic();
    await reads(watched, '#operation-rows .list td:first-of-type', /^0\.\d|^[1-9]/);
    await reads(watched, '#operation-rows .create', /\d\sms/);
    await reads(watched, '#kind-tables', /refused.*1/s);
    await reads(
      watched,
      '#charts figure:first-of-type li:first-of-type',
      /from clients (?:0\.\d|[1-9])/,
      15_000,
    );
    await reads(watched, '#verdict-title', /^The backend fails calls$/);
    await reads(watched, '#parties .blamed .said', /^answers, 2 failures/);
    await reads(watched, '#fact-failure', /^not JSON, /);
    watched.assertClean(address(command));
  });

  test('one figure is the same wherever it stands, and says of which time it is', async () => {
    await using watched = await open();
    const { page } = watched;
    await reads(watched, '#verdict-title', /^The backend fails calls$/);
    for (const [window, name] of [
      ['the last minute', 'in the last minute'],
      ['15 minutes', 'in 15 minutes'],
    ] as const) {
      await page.getByRole('radio', { name: window }).check({ force: true });
      await reads(watched, '.requests .when', new RegExp(`^${name}$`));
      // As it stands at one moment.
      await page.getByRole('button', { name: 'Pause' }).click();
      const all = await readOperation(watched, 'all');
      const legend = async (selector: string) =>
        await page.locator(`#charts ${selector} b`).allTextContents();
      assert.deepEqual(await legend('.requests [data-party=gateway]'), [all['rate']]);
      assert.deepEqual(await legend('.failed-requests [data-party=backend]'), [all['backend']]);
      assert.deepEqual(await legend('.latency [data-party=gateway]'), [all['p50'], all['p99']]);
      assert.deepEqual(await legend('.latency [data-party=backend]'), [
        all['backend p50'],
        all['backend p99'],
      ]);
      if (name === 'in the last minute') {
        assert.equal(all['backend'], '2');
        const detail = (await page.locator('#verdict-detail').textContent()) ?? '';
        const calls =
          /^2 of (\d+) calls to it in the last minute \(\d\d:\d\d:\d\d to \d\d:\d\d:\d\d\): /.exec(detail);
        assert.ok(calls, detail);
        assert.equal(all['backend failed'], `${(200 / Number(calls[1])).toFixed(1)}\u00a0%`);
        assert.equal(
          await page.locator('#parties [data-party=backend] .said').textContent(),
          'answers, 2 failures in the last minute',
        );
      }
      await page.getByRole('button', { name: 'Resume' }).click();
    }
  });

  test('every reply is in the class of its status, and every failure has a kind and someone at fault [D51]', async () => {
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
    await reads(watched, '#operation-rows .none td:nth-of-type(3)', /^2$/);
    for (const [flow, expected] of [
      [
        'list',
        { '2xx': '1', '4xx': '0', '5xx': '0', client: '0', backend: '0', 'backend failed': '0\u00a0%' },
      ],
      ['create', { '2xx': '0', '4xx': '0', '5xx': '1', client: '1', backend: '0', 'backend failed': '–' }],
      [
        'read',
        { '2xx': '0', '4xx': '1', '5xx': '0', client: '1', backend: '0', 'backend failed': '0\u00a0%' },
      ],
      [
        'update',
        { '2xx': '0', '4xx': '0', '5xx': '1', client: '1', backend: '0', 'backend failed': '0\u00a0%' },
      ],
      [
        'delete',
        { '2xx': '0', '4xx': '0', '5xx': '1', client: '0', backend: '1', 'backend failed': '100\u00a0%' },
      ],
      [
        'all',
        { '2xx': '1', '4xx': '1', '5xx': '3', client: '3', backend: '1', 'backend failed': '25.0\u00a0%' },
      ],
      ['none', { '2xx': '0', '4xx': '2', '5xx': '0', client: '2', backend: '0', 'backend failed': '' }],
    ] as const) {
      const shown = await readOperation(watched, flow);
      assert.deepEqual({ ...shown, ...expected, 'no reply': '0', gateway: '0' }, shown, flow);
    }
    const bad = page.locator('#operation-rows td.bad');
    assert.deepEqual(
      await bad.allTextContents(),
      ['1', '100\u00a0%', '1', '25.0\u00a0%'],
      "what is not the client's",
    );
    const kinds = page.locator('#kind-tables tbody tr').filter({ visible: true });
    assert.deepEqual(
      (await kinds.locator('td:first-of-type, button').allTextContents()).join(' '),
      'not found 1 rejected 1 body not JSON 1 no operation 2 refused 1',
    );
    await reads(watched, '#kind-tables [data-party=gateway] .hint', /^None: no keys, overload, own fault\.$/);
    await reads(watched, '#kind-tables [data-party=backend] .hint', /^None else: unreachable, timed out, /);
  });

  test('a backend that is back is said to be, with since when, and is not red any more', async () => {
    await using ownBackend = new DisposableBackend(await ScriptedBackend.start());
    ownBackend.backend.answers(answer('[]'));
    await using own = await startCommand({ BACKEND_URL: ownBackend.backend.url });
    await using watched = await open({}, own);
    const { page } = watched;
    for (let count = 0; count < 20; count += 1) await own.call('GET', '/api/work-items');
    await ownBackend.backend.stop();
    for (let count = 0; count < 20; count += 1) await own.call('GET', '/api/work-items');
    await reads(watched, '#verdict[data-level=unwell] h2', /^The backend does not answer$/);
    await ownBackend.backend.restart();
    const title = page.locator('#verdict-title');
    await poll(
      async () => {
        await own.call('GET', '/api/work-items');
        return (await title.textContent()) === 'The backend has recovered';
      },
      'the backend has recovered',
      20_000,
    );
    await reads(
      watched,
      '#verdict-detail',
      /^Recovered \d+\ss ago\. It failed 20 of \d+ calls to it in the last minute \([\d:]+ to [\d:]+\): 20 unreachable\.$/,
    );
    await reads(
      watched,
      '#parties [data-party=backend] .said',
      /^recovered \d+\ss ago, 20 failures in the last minute$/,
    );
    assert.equal(await page.locator('#parties .blamed, #parties .unwell').count(), 0);
    const [mark, well] = await page.evaluate<string[]>(`[
      getComputedStyle(document.querySelector('.mark')).stroke,
      getComputedStyle(document.querySelector('#connection'), '::before').backgroundColor,
    ]`);
    assert.equal(mark, well);
    assert.equal(await page.locator('#icon').getAttribute('href'), 'dashboard/well.svg');
    await assertAccessible(watched);
    await watched.savePicture('dashboard-recovered-light');
  });

  test('axe finds nothing, in light and in dark, small and large, and nothing is wider than the window', async () => {
    for (const [width, height] of sizes) {
      for (const colorScheme of colorSchemes) {
        await using watched = await open({ width, height, colorScheme });
        await reads(watched, '#failure-rows', /not-json-1/);
        await watched.assertFits();
        // Which it takes seconds to look at; sizes between and beyond have nothing of their own.
        if (width === 360 || width === 1_440) await assertAccessible(watched);
        await watched.savePicture(`dashboard-traffic-${width}-${colorScheme}`);
        watched.assertClean(address(command));
      }
    }
  });

  test('failed calls are filtered by operation, by kind and by whose doing they are', async () => {
    await using watched = await open();
    const { page } = watched;
    const ids = async () => await page.locator('#failure-rows .id code').allTextContents();
    await reads(watched, '#failure-rows', /not-json-1/);
    assert.deepEqual(await ids(), ['not-json-1', 'refused-1', 'mistake-2', 'mistake-1']);
    assert.deepEqual(await page.locator('#failure-rows td.path, #failure-rows td.client').allTextContents(), [
      ...['/api/work-items/7', '127.0.0.1'],
      ...['/api/work-items', '127.0.0.1'],
      ...['/api/work-items/5', '127.0.0.1'],
      ...['/api/work-items/nonsense', '127.0.0.1'],
    ]);
    await page.getByRole('combobox', { name: 'Operation' }).selectOption('list');
    assert.deepEqual(await ids(), ['refused-1']);
    await page.getByRole('button', { name: 'Show all' }).click();
    assert.equal((await ids()).length, 4);
    await page.getByRole('combobox', { name: 'Kind' }).selectOption({ label: 'all of the clients' });
    assert.deepEqual(await ids(), ['mistake-2', 'mistake-1']);
    await page.getByRole('combobox', { name: 'Operation' }).selectOption('create');
    await reads(watched, '#failures-note', /None of the failed calls/);
    await page.getByRole('button', { name: 'not JSON: show these failed calls', exact: true }).click();
    assert.deepEqual(await ids(), ['not-json-1']);
    assert.equal(await page.getByRole('combobox', { name: 'Kind' }).inputValue(), 'not-json');
    watched.assertClean(address(command));
  });

  test('a request id is copied', async () => {
    await using watched = await open();
    const { page } = watched;
    await page.context().grantPermissions(['clipboard-read', 'clipboard-write']);
    await page.getByRole('button', { name: 'Copy request id refused-1' }).click();
    await reads(watched, '#failure-rows', /Copied/);
    assert.equal(await page.evaluate('navigator.clipboard.readText()'), 'refused-1');
    watched.assertClean(address(command));
  });

  test('a page that is paused says so in its button, beside it and in its title, and goes on where it is told to', async () => {
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
    await reads(other, '#failure-rows', /while-paused/);
    assert.equal(await page.locator('#verdict-detail').textContent(), before);
    await page.getByRole('button', { name: 'Resume' }).click();
    await reads(watched, '#failure-rows', /while-paused/);
    await reads(watched, '#connection', /^Live$/);
    assert.doesNotMatch(await page.title(), /Paused/);
  });

  test('everything is done by keyboard: pause, operation, the values of a chart', async () => {
    await command.call('GET', '/api/work-items');
    await using watched = await open();
    const { page } = watched;
    // It is `< 0.1` where the tests before this one took their time.
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
      /^\d\d:\d\d:\d\d: Requests, a second: from clients /,
    );
    await page.keyboard.press('Home');
    const first = await said.textContent();
    await page.keyboard.press('ArrowRight');
    assert.notEqual(await said.textContent(), first);
    // All the way to the end: nothing keeps the focus.
    for (let presses = 0; presses < 60; presses += 1) await page.keyboard.press('Tab');
    watched.assertClean(address(command));
  });

  test('an update takes nobody the focus or the selection', async () => {
    await using watched = await open();
    const { page } = watched;
    const button = page.getByRole('button', { name: 'Copy request id mistake-1' });
    await button.focus();
    backend.answersOnce(answer('', failed));
    await command.call('GET', '/api/work-items', { headers: [['X-Request-Id', 'refused-2']] });
    await reads(watched, '#failure-rows', /refused-2/);
    assert.equal(
      await button.evaluate('document.activeElement?.getAttribute("aria-label")'),
      'Copy request id mistake-1',
    );
  });

  test('the settings that are changed are shown, and on request all, with where they came from', async () => {
    await using watched = await open();
    const { page } = watched;
    const rows = page.locator('#setting-rows tr');
    const total = await rows.count();
    await reads(watched, '#settings-count', new RegExp(`^6 of ${total} changed$`));
    assert.equal(await rows.filter({ visible: true }).count(), 6);
    await reads(watched, '#setting-rows tr.chosen', /BACKEND_URL.*http:\/\/127\.0\.0\.1.*environment/);
    await page.getByRole('button', { name: 'Show defaults too', expanded: false }).click();
    assert.equal(await rows.filter({ visible: true }).count(), total);
    await reads(watched, '#setting-rows tr', /REQUEST_BYTES_MAX.*10485760 bytes 10\sMiB.*default/);
    // Set apart for the eye only.
    const [copied, groups] = await page.evaluate<[string, number]>(`
      const row = [...document.querySelectorAll('#setting-rows tr')].find((each) =>
        each.textContent.startsWith('REQUEST_BYTES_MAX'));
      const code = row.querySelector('.value code');
      getSelection().selectAllChildren(code);
      [String(getSelection()), code.querySelectorAll('.group').length];`);
    assert.deepEqual([copied, groups], ['10485760', 3]);
    await page.getByRole('button', { name: 'Hide defaults', expanded: true }).click();
    assert.equal(await rows.filter({ visible: true }).count(), 6);
  });

  test('a port is no quantity: its digits are not set in groups', async () => {
    const port = await findFreePort();
    await using own = await startCommand({ BACKEND_URL: backend.url, ADMIN_PORT: String(port) });
    await using watched = await open({}, own);
    const row = watched.page.locator('#setting-rows tr', { hasText: 'ADMIN_PORT' });
    assert.equal(await row.locator('.value code').textContent(), String(port));
    assert.ok(port > 9_999);
    assert.equal(await row.locator('.group').count(), 0);
  });

  test('a refused connection is said in two words, and each of its addresses in the log', async () => {
    const port = await findFreePort();
    await using own = await startCommand({ BACKEND_URL: `http://localhost:${port}` });
    await using watched = await open({}, own);
    await own.call('GET', '/api/work-items');
    await reads(watched, '#failure-rows .kind', /^unreachable connection refused$/);
    await reads(watched, '#verdict-detail', /: connection refused$/);
    const { cause } = await own.log((line) => line['outcome'] === 'unreachable', 'the line of the call');
    assert.match(String(cause), new RegExp(`ECONNREFUSED.*127\\.0\\.0\\.1:${port}`));
  });

  test('a backend that is killed shows within two seconds without any traffic, and its return by itself', async () => {
    await using watched = await open({ colorScheme: 'dark' });
    const calls = backend.requests.length;
    for (let round = 0; round < 2; round += 1) {
      await backend.stop();
      await reads(watched, '#verdict-title', /^The backend does not answer$/, backendShownWithinMs);
      await reads(watched, '#verdict-detail', /^Unreachable since [\d:]+ \(.*\): connection refused$/);
      await reads(watched, '#verdict-next', /^Look whether the backend runs/);
      await reads(watched, '#parties .blamed .said', /^unreachable since/);
      if (round === 0) {
        await assertAccessible(watched);
        await watched.savePicture('dashboard-backend-down-dark');
      }
      await backend.restart();
      await reads(
        watched,
        '#parties',
        /(?:answers|reachable)(?!.*unreachable)/,
        backendShownWithinMs + 1_000,
      );
    }
    assert.equal(backend.requests.length, calls, 'seen by connecting, without a call');
    watched.assertClean(address(command));
  });

  test('a lost connection is said, and the page comes back by itself when the gateway does', async () => {
    const environment = { BACKEND_URL: backend.url };
    let own = await startCommand(environment);
    try {
      await using watched = await open({}, own);
      const { page } = watched;
      const ADMIN_PORT = String(own.adminPort);
      await own.stop();
      await reads(watched, '#lost', /^No connection to the gateway since \d\d:\d\d:\d\d/);
      await reads(watched, '#connection', /^Connection lost$/);
      await reads(watched, '#verdict-title', /^No connection to the gateway$/);
      await reads(watched, '#verdict-detail', /^Last heard of at \d\d:\d\d:\d\d: /);
      assert.match(await page.title(), /: No connection – Work Item Gateway$/);
      await watched.savePicture('dashboard-lost-light');
      own = await startCommand({ ...environment, ADMIN_PORT });
      await reads(watched, '#connection', /^Live$/);
      await page.locator('#lost').waitFor({ state: 'hidden' });
      await reads(watched, '#verdict-title', /^All is well$/);
      await own.call('GET', '/api/work-items');
      await reads(watched, '#operation-rows .list', /\d\sms/);
      // The browser itself notes each attempt that found nobody.
      const problems = watched
        .takeProblems()
        .filter((problem) => !/ERR_CONNECTION_|ERR_INCOMPLETE_|ERR_EMPTY_|ERR_ABORTED/.test(problem));
      assert.deepEqual(problems, []);
    } finally {
      await own.stop();
    }
  });

  test('a page that nobody looks at has no stream, and has one again when somebody does', async () => {
    await using watched = await open();
    const { page } = watched;
    const setHidden = async (isHidden: boolean) => {
      await page.evaluate(`Object.defineProperty(document, 'hidden', { configurable: true, value: ${isHidden} });
        document.dispatchEvent(new Event('visibilitychange'))`);
    };
    await setHidden(true);
    await reads(watched, '#connection', /^Connecting$/);
    await setHidden(false);
    await reads(watched, '#connection', /^Live$/);
    assert.equal(watched.requests.filter((url) => url.endsWith('/events')).length, 2);
  });

  test('several workers have a line each and count together', async () => {
    const workers = [
      createReport({ pid: 101, inFlight: 2, residentBytes: 60 * 1_048_576, eventLoopDelayMs: 1 }),
      createReport({ pid: 102, inFlight: 5, residentBytes: 40 * 1_048_576, eventLoopDelayMs: 9 }),
    ];
    await withAdmin(
      () => workers,
      async (port) => {
        await using watched = await browser.open(`http://127.0.0.1:${port}/`);
        await reads(watched, '#fact-workers', /^2$/);
        await reads(watched, '#worker-rows tr:nth-child(2)', /^102540\.0\sMiB9\.0\sms$/);
        await reads(watched, '#loads div:nth-child(1)', /Calls in flight7 of 1/);
        await reads(watched, '#loads div:nth-child(3)', /Memory100\sMiB/);
        await reads(watched, '#loads div:nth-child(4)', /9\.0\sms/);
      },
    );
  });

  test('an open page follows a reload: the settings in force, where they came from, and the limits', async () => {
    const folder = mkdtempSync(join(tmpdir(), 'work-item-gateway-dashboard-'));
    try {
      const file = join(folder, 'settings.env');
      writeFileSync(file, 'IN_FLIGHT_MAX=60\n');
      await using reloading = await startCommand({
        BACKEND_URL: backend.url,
        WORKERS: '2',
        SETTINGS_FILE: file,
      });
      await using watched = await open({}, reloading);
      await reads(watched, '#setting-rows tr.chosen', /IN_FLIGHT_MAX.*60 calls.*settings file/);
      writeFileSync(file, 'IN_FLIGHT_MAX=50\n');
      reloading.signal('SIGHUP');
      await reads(watched, '#setting-rows tr.chosen', /IN_FLIGHT_MAX.*50 calls.*settings file/);
      await reads(watched, '#loads div:nth-child(1)', /Calls in flight0 of 50/);
      watched.assertClean(address(reloading));
    } finally {
      rmSync(folder, { recursive: true });
    }
  });

  test('one dashboard too many is told so', async () => {
    const path = '/dashboard/events';
    const viewers: RawClient[] = [];
    try {
      for (let count = 0; count < 50; count += 1) {
        const viewer = await RawClient.open(command.adminPort);
        viewers.push(viewer);
        viewer.send(requestBytes('GET', path));
      }
      await poll(
        async () => (await request(command.adminPort, 'HEAD', path)).status === 503,
        'every place is taken',
      );
      await using watched = await browser.open(address(command));
      await reads(watched, '#lost', /^As many dashboards are open as the gateway serves/);
      await viewers.pop()?.[Symbol.asyncDispose]();
      await reads(watched, '#connection', /^Live$/);
    } finally {
      for (const viewer of viewers) await viewer[Symbol.asyncDispose]();
    }
  });
});
