// The dashboard in a real browser against the built command: what an operator sees, by eye, keyboard and screen
// reader. Pictures of it all are left in test-output/.

import assert from 'node:assert/strict';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';

import { request, requestBytes, RawClient } from '../helpers/raw-client.ts';
import { TestBrowser, type PageOptions, type WatchedPage } from '../helpers/browser.ts';
import { answer, ScriptedBackend } from '../helpers/scripted-backend.ts';
import { startCommand, type Command } from '../helpers/targets.ts';
import { poll } from '../helpers/changes.ts';
import { createReport, withAdmin } from './report.ts';

const sizes = [
  [360, 740],
  [768, 1_024],
  [1_280, 800],
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
  const watched = await browser.open(address(of), options);
  await watched.page.locator('#connection[data-state=live]').waitFor();
  return watched;
}

/** Waits until the element's text is as wanted. */
async function reads(watched: WatchedPage, selector: string, text: RegExp, limitMs = 10_000): Promise<void> {
  const found = watched.page.locator(selector).filter({ hasText: text, visible: true }).first();
  await found.waitFor({ timeout: limitMs }).catch(async () => {
    const is = await watched.page.locator(selector).allTextContents();
    assert.fail(`not within ${limitMs} ms: ${selector} reads ${String(text)}; it reads ${is.join(' | ')}`);
  });
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
    await reads(watched, '#parties .blamed', /^Backend answers, 2 failures/);
    await reads(watched, '#fact-failure', /^not JSON, /);
    watched.assertClean(address(command));
  });

  test('axe finds nothing, in light and in dark, small and large, and nothing is wider than the window', async () => {
    for (const [width, height] of sizes) {
      for (const colorScheme of colorSchemes) {
        await using watched = await open({ width, height, colorScheme });
        await reads(watched, '#failure-rows', /not-json-1/);
        await watched.assertFits();
        // Which it takes seconds to look at; sizes between and beyond have nothing of their own.
        if (width === 360 || width === 1_280) await assertAccessible(watched);
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

  test('everything is done by keyboard: pause, operation, the values of a chart', async () => {
    await using watched = await open();
    const { page } = watched;
    await reads(watched, '#charts figure:first-of-type li:first-of-type', /from clients \d/);
    await page.keyboard.press('Tab');
    await page.keyboard.press('Enter');
    await reads(watched, '#connection', /^Paused$/);
    await page.keyboard.press('Enter');
    await reads(watched, '#connection', /^Live$/);
    await page.keyboard.press('Tab');
    await page.keyboard.press('ArrowRight');
    assert.equal(await page.getByRole('radio', { name: 'list' }).isChecked(), true);
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

  test('the settings in force say where they came from', async () => {
    await using watched = await open();
    await reads(watched, '#setting-rows tr.chosen', /BACKEND_URL.*http:\/\/127\.0\.0\.1.*environment/);
    await reads(watched, '#setting-rows tr', /REQUEST_BYTES_MAX.*10485760 bytes 10\sMiB.*default/);
  });

  test('a backend that is killed shows within two seconds without any traffic, and its return by itself', async () => {
    await using watched = await open({ colorScheme: 'dark' });
    const calls = backend.requests.length;
    for (let round = 0; round < 2; round += 1) {
      await backend.stop();
      await reads(watched, '#verdict-title', /^The backend does not answer$/, backendShownWithinMs);
      await reads(watched, '#verdict-detail', /^Unreachable since \d\d:\d\d:\d\d/);
      await reads(watched, '#parties .blamed', /^Backend unreachable since/);
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
      assert.match(await page.title(), /^No connection/);
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
        await reads(watched, '#worker-rows tr:nth-child(2)', /^102540\sMiB9\sms$/);
        await reads(watched, '#loads div:nth-child(1)', /Calls in flight7 of 1/);
        await reads(watched, '#loads div:nth-child(3)', /Memory100\sMiB/);
        await reads(watched, '#loads div:nth-child(4)', /9\sms/);
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
