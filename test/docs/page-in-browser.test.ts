// The API reference in a real browser, under its content security policy, light and dark, narrow and wide.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { after, before, describe, test } from 'node:test';
import type { Locator } from 'playwright-core';
import { TestBrowser, type WatchedPage } from '../helpers/browser.ts';
import { type Command, runCommand, startCommand } from '../helpers/command.ts';
import { findFreePort } from '../helpers/haproxy.ts';
import { request } from '../helpers/raw-client.ts';
import { createGate, poll } from '../helpers/changes.ts';

let browser: TestBrowser;
let command: Command;
let url = '';
let port = 0;
before(async () => {
  // Like `npm start`, with the reference and the embedded backend.
  command = runCommand(['dev'], { PORT: '0', ADMIN_PORT: '0', EMBEDDED_BACKEND_PORT: '0' });
  await poll(() => {
    url = /^ *API reference +(http:\/\/localhost:\d+\/docs) /m.exec(command.stdout)?.[1] ?? '';
    return url !== '';
  }, 'the line with the address of the reference');
  port = Number(new URL(url).port);
  browser = await TestBrowser.start();
});
after(async () => {
  await browser[Symbol.asyncDispose]();
  await command.stop();
});

/** Opens the reference and waits until its operations are shown. */
async function openReference(options?: Parameters<TestBrowser['open']>[1]): Promise<WatchedPage> {
  const page = await browser.open(url, options);
  await page.page.locator('.opblock').first().waitFor();
  return page;
}

/** Opens an operation, lets `fill` complete the form, sends the call, and returns the shown status and body. */
async function tryOut(
  { page }: WatchedPage,
  operationId: string,
  fill: (operation: Locator) => Promise<void> = () => Promise.resolve(),
): Promise<{ status: string; body: string }> {
  const operation = page.locator(`[id$="-${operationId}"]`);
  await operation.getByRole('button', { expanded: false }).first().click();
  await fill(operation);
  await operation.getByRole('button', { name: 'Execute' }).click();
  const live = operation.locator('.live-responses-table tbody');
  return {
    status: ((await live.locator('.response-col_status').textContent()) ?? '').trim(),
    body: (await live.locator('.reply .microlight').textContent()) ?? '',
  };
}

/** Completes the form of an operation. */
const withId = (id: string) => (operation: Locator) => operation.getByPlaceholder('id', { exact: true }).fill(id);
const withBody = (body: string) => (operation: Locator) =>
  operation.getByRole('textbox', { name: 'Request body' }).fill(body);

interface Box {
  readonly x: number;
  readonly y: number;
  readonly width: number;
  readonly left: number;
  readonly right: number;
  readonly top: number;
  readonly bottom: number;
}

describe('the API reference', () => {
  test('it creates and reads a work item', async () => {
    await using reference = await openReference();
    const created = await tryOut(reference, 'createWorkItem', withBody('{"title":"Paint the fence"}'));
    assert.equal(created.status, '201');
    const { id, title } = JSON.parse(created.body) as { id: number; title: string };
    assert.equal(title, 'Paint the fence');
    assert.equal((await request(port, 'GET', `/api/work-items/${id}`)).text, `{"id":${id},"title":"Paint the fence"}`);

    const read = await tryOut(reference, 'readWorkItem', withId(String(id)));
    assert.equal(read.status, '200');
    assert.deepEqual(JSON.parse(read.body), { id, title: 'Paint the fence' });

    // The example requests work unchanged.
    assert.equal((await tryOut(reference, 'listWorkItems')).status, '200');
    assert.deepEqual(await tryOut(reference, 'updateWorkItem').then(({ status }) => status), '200');
    reference.assertClean(url);

    // An error is shown unchanged. The browser logs it.
    const missing = await tryOut(reference, 'deleteWorkItem', withId('404404'));
    assert.equal(missing.status, '500');
    assert.deepEqual(JSON.parse(missing.body), { error: 'Failed to delete work item' });
    assert.equal(reference.takeProblems().length, 1);
    reference.assertClean(url);
  });

  test('a reply is shown indented; its copy, its download and the raw view have exactly the bytes received [D14]', async () => {
    await using reference = await openReference();
    const { page } = reference;
    await page.context().grantPermissions(['clipboard-read', 'clipboard-write']);
    const sent = '{"n":12345678901234567890, "f":1.0,"e":"\\u00e9 [{:,\\"","none":[],"some":[1,{"a":{ }}]}';
    const created = await tryOut(reference, 'createWorkItem', withBody(sent));
    assert.equal(
      created.body.replace(/"id": \d+,/, '"id": 7,'),
      `{
  "id": 7,
  "n": 12345678901234567890,
  "f": 1.0,
  "e": "\\u00e9 [{:,\\"",
  "none": [],
  "some": [
    1,
    {
      "a": {}
    }
  ]
}`,
    );
    const id = /"id": (\d+)/.exec(created.body)?.[1] ?? '';
    const asItCame = `{"id":${id},${sent.slice(1)}`;
    const operation = page.locator('[id$="-createWorkItem"]');
    await operation.getByRole('button', { name: 'Copy', exact: true }).click();
    await operation.getByRole('button', { name: 'Copied', exact: true }).waitFor();
    assert.equal(await page.evaluate('navigator.clipboard.readText()'), asItCame);
    const download = page.waitForEvent('download');
    await operation.getByRole('button', { name: 'Download' }).click();
    assert.equal(readFileSync(await (await download).path(), 'utf8'), asItCame);
    await operation.getByRole('button', { name: 'Raw' }).click();
    await operation.getByRole('button', { name: 'Raw', pressed: true }).waitFor();
    assert.equal(await operation.locator('.reply .microlight').textContent(), asItCame);
    assert.deepEqual(await reference.findAccessibilityProblems(), []);
    reference.assertClean(url);
  });

  test('a long reply is shown in part and saved in full', async () => {
    await using reference = await openReference();
    const long = `{"title":"${'x'.repeat(300_000)}"}`;
    const { body: created } = await request(port, 'POST', '/api/work-items', { body: long });
    const { id } = JSON.parse(created.toString()) as { id: number };
    const shown = await tryOut(reference, 'readWorkItem', withId(String(id)));
    assert.equal(shown.body.length, 200_000);
    const operation = reference.page.locator('[id$="-readWorkItem"]');
    await operation.getByText(/^The first 200,000 of 300,\d{3} characters/).waitFor();
    const download = reference.page.waitForEvent('download');
    await operation.getByRole('button', { name: 'Download' }).click();
    assert.deepEqual(readFileSync(await (await download).path()), created);
    assert.equal((await request(port, 'DELETE', `/api/work-items/${id}`)).status, 200);
    reference.assertClean(url);
  });

  test('any id can be sent: the gateway validates it, not the page [D1]', async () => {
    await using reference = await openReference();
    const { page } = reference;
    const good = await tryOut(reference, 'readWorkItem', withId('1abc'));
    assert.equal(good.status, '200');
    assert.match(good.body, /"id": ?1,/);
    reference.assertClean(url);
    const operation = page.locator('[id$="-readWorkItem"]');
    const status = operation.locator('.live-responses-table .response-col_status').last();
    for (const id of ['abc', '-', ' ']) {
      await withId(id)(operation);
      await operation.getByRole('button', { name: 'Execute' }).click();
      // Waits for this call, so that the status is not that of the previous call.
      const shown = operation.locator('.request-url', {
        hasText: new RegExp(`/api/work-items/${encodeURIComponent(id)}$`),
      });
      await shown.waitFor();
      assert.equal((await status.textContent())?.trim(), '400', `id "${id}"`);
      assert.equal(await operation.locator('.reply .microlight').textContent(), '{"error":"Invalid ID format"}');
    }
    await withId('')(operation);
    await operation.getByRole('button', { name: 'Execute' }).click();
    await operation.getByText('Required field is not provided').waitFor();
    assert.equal(await status.count(), 0, 'the previous answer is removed');
    // The browser logs a 400.
    assert.ok(reference.takeProblems().every((problem) => problem.includes('400 (Bad Request)')));
  });

  for (const width of [360, 1280]) {
    test(`${width} px wide: the Execute button keeps its position, and no button covers an answer`, async () => {
      await using reference = await openReference({ width });
      const operation = reference.page.locator('[id$="-readWorkItem"]');
      await operation.getByRole('button', { expanded: false }).first().click();
      const execute = operation.getByRole('button', { name: 'Execute' });
      const id = operation.getByPlaceholder('id', { exact: true });
      // The button's position in the operation. Reads both boxes at the same moment, because the page may scroll.
      const place = async () => {
        const [button, whole] = await reference.page.evaluate<Box[]>(`
          ['.execute', ''].map((selector) =>
            document.querySelector('[id$="-readWorkItem"] ' + selector).getBoundingClientRect().toJSON(),
          )`);
        assert.ok(button && whole);
        return [button.x - whole.x, button.y - whole.y, button.width].map(Math.round);
      };
      await id.fill('');
      // Waits until the button no longer moves: the operation opens in steps.
      await execute.click({ trial: true });
      const before = await place();
      await execute.click();
      await operation.getByText('Required field is not provided').waitFor();
      assert.deepEqual(await place(), before, 'with the error');
      await id.fill('1');
      await execute.click();
      await operation.locator('.live-responses-table').waitFor();
      assert.deepEqual(await place(), before, 'with the answer');
      // Reads all positions at the same moment, because the page is still rendering.
      const [texts = [], buttons = []] = await reference.page.evaluate<Box[][]>(`
        ['.microlight', 'button'].map((selector) =>
          [...document.querySelectorAll('[id$="-readWorkItem"] .responses-inner ' + selector)].map((each) =>
            each.getBoundingClientRect().toJSON(),
          ),
        )`);
      assert.ok(texts.length >= 4 && buttons.length >= 3, `${texts.length} texts, ${buttons.length} buttons`);
      for (const text of texts) {
        for (const button of buttons) {
          const isBeside = button.bottom <= text.top || button.top >= text.bottom || button.left >= text.right;
          assert.ok(isBeside, `a button at ${button.x}, ${button.y} covers a text at ${text.x}, ${text.y}`);
        }
      }
      reference.assertClean(url);
    });
  }

  test('an answer is removed when the next call is sent, before the next answer arrives', async () => {
    await using reference = await openReference();
    const { page } = reference;
    assert.equal((await tryOut(reference, 'listWorkItems')).status, '200');
    const operation = page.locator('[id$="-listWorkItems"]');
    const gate = createGate();
    await page.route('**/api/work-items', async (route) => {
      await gate.opened;
      await route.continue();
    });
    await operation.getByRole('button', { name: 'Execute' }).click();
    await operation.locator('.live-responses-table').waitFor({ state: 'detached' });
    gate.open();
    await operation.locator('.live-responses-table').waitFor();
    reference.assertClean(url);
  });

  test('the API reference and the dashboard link to each other', async () => {
    const adminPort = await findFreePort();
    await using local = await startCommand({ DOCS: 'true', ADMIN_PORT: String(adminPort) });
    const reference = await browser.open(`http://127.0.0.1:${local.port}/docs`);
    await reference.page.getByRole('link', { name: 'Dashboard' }).click();
    await reference.page.waitForURL(`http://127.0.0.1:${adminPort}/`);
    await reference.page.getByRole('link', { name: 'API reference' }).click();
    await reference.page.waitForURL(`http://127.0.0.1:${local.port}/docs`);
    await reference.page.getByRole('link', { name: 'Dashboard' }).waitFor();
    await reference[Symbol.asyncDispose]();
    // A reader who uses another host name is on another machine, so the page has no link to a dashboard on loopback.
    const elsewhere = await browser.open('about:blank');
    await elsewhere.page.route('http://gateway.example/**', async (route) => {
      const { pathname } = new URL(route.request().url());
      const reply = await local.call('GET', pathname);
      await route.fulfill({ body: reply.body, contentType: reply.header('content-type') ?? '' });
    });
    await elsewhere.page.goto('http://gateway.example/docs');
    await elsewhere.page.locator('.opblock').first().waitFor();
    assert.equal(await elsewhere.page.getByRole('link', { name: 'Dashboard' }).count(), 0);
    await elsewhere[Symbol.asyncDispose]();
  });

  test('every documented reply is shown with status and message; replies that all operations share are shown once', async () => {
    await using reference = await openReference();
    const read = reference.page.locator('[id$="-readWorkItem"]');
    await read.getByRole('button', { expanded: false }).first().click();
    const rows = read.locator('.responses-table:not(.live-responses-table) > tbody > tr.response');
    // The rows and their examples appear one by one; all() does not wait for them.
    await rows.nth(3).locator('.reply-body').first().waitFor();
    await rows.first().locator('.reply-body').first().waitFor();
    const shown: string[] = [];
    for (const row of await rows.all()) {
      const status = await row.locator('.response-col_status').textContent();
      shown.push([status, ...(await row.locator('.reply-body').allTextContents())].join(' '));
    }
    assert.match(shown.shift() ?? '', /^200 \{\s+"id": 1,/);
    assert.deepEqual(shown, [
      '400 {"error":"Invalid ID format"} {"error":"Bad request"}',
      '404 {"error":"Work item not found"}',
      '500 {"error":"Failed to fetch work item"}',
    ]);
    await read.getByText('408, 417, 431, 503: see “Every operation” below.').waitFor();
    const shared = reference.page.locator('.info h2:last-of-type + table td');
    const cells = await shared.allTextContents();
    assert.deepEqual(
      cells.filter((_, index) => index % 3 < 2),
      [
        ...['408', 'Request timeout'],
        ...['417', 'Expectation failed'],
        ...['431', 'Request header fields too large'],
        ...['503', 'Service unavailable'],
      ],
    );
  });

  for (const [width, height] of [
    [360, 740],
    [768, 1_024],
    [1_280, 720],
    [2_560, 1_440],
  ] as const) {
    test(`${width} x ${height}: the operations come first, visible without scrolling; errors and limits follow`, async () => {
      await using reference = await openReference({ width, height });
      await reference.page.getByRole('heading', { name: 'Every operation' }).waitFor();
      const [operations = [], tables = []] = await reference.page.evaluate<Box[][]>(`
        ['.opblock', '.info table'].map((selector) =>
          [...document.querySelectorAll(selector)].map((each) => each.getBoundingClientRect().toJSON()))`);
      assert.ok(
        (operations[4]?.bottom ?? NaN) <= height,
        `the fifth operation ends at ${operations[4]?.bottom ?? ''} px`,
      );
      assert.equal(tables.length, 3);
      for (const { top } of tables) assert.ok(top > (operations.at(-1)?.bottom ?? NaN), `a table is at ${top} px`);
      await reference.savePicture(`docs-first-${width}`, { fullPage: false });
    });
  }

  test('the content security policy is in force', async () => {
    await using reference = await openReference();
    const ran = await reference.page.evaluate<boolean>(`
      const script = document.createElement('script');
      script.textContent = 'globalThis.inlineRan = true';
      document.body.append(script);
      globalThis.inlineRan === true;
    `);
    assert.equal(ran, false);
    assert.match(reference.takeProblems().join(), /Content Security Policy/);
  });

  for (const colorScheme of ['light', 'dark'] as const) {
    for (const width of [360, 1280]) {
      test(`${colorScheme}, ${width} px wide: it fits and is accessible`, async () => {
        // An open page changes its colors with the system's color scheme.
        await using reference = await openReference({ width, colorScheme: colorScheme === 'light' ? 'dark' : 'light' });
        const background = () => reference.page.evaluate<string>('getComputedStyle(document.body).backgroundColor');
        const other = await background();
        await reference.page.emulateMedia({ colorScheme });
        assert.notEqual(await background(), other);
        await reference.assertFits();
        await reference.savePicture(`docs-${colorScheme}-${width}`);
        assert.equal((await tryOut(reference, 'createWorkItem')).status, '201');
        await reference.assertFits();
        await reference.savePicture(`docs-open-${colorScheme}-${width}`);
        reference.assertClean(url);
        // An open operation shows all that a closed operation shows. Two checks in all, because each takes seconds.
        if ((colorScheme === 'light') === (width === 1280))
          assert.deepEqual(await reference.findAccessibilityProblems(), []);
      });
    }
  }

  test('the keyboard reaches and opens every operation', async () => {
    await using reference = await openReference();
    const operation = reference.page.locator('[id$="-listWorkItems"]');
    const control = operation.getByRole('button', { expanded: false }).first();
    await control.focus();
    await reference.page.keyboard.press('Enter');
    await operation.getByRole('button', { name: 'Execute' }).waitFor();
  });
});
