// The API reference as a reader meets it: in a real browser, under its content security policy, light and dark,
// narrow and wide. Its pictures are kept in test-output/.

import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import type { Locator } from 'playwright-core';
import { TestBrowser, type WatchedPage } from '../helpers/browser.ts';
import { request } from '../helpers/raw-client.ts';
import { runCommand, type Command } from '../helpers/targets.ts';
import { poll } from '../helpers/changes.ts';

let browser: TestBrowser;
let command: Command;
let url = '';
let port = 0;
before(async () => {
  // As `npm start`: the reference is on by default, and the embedded backend behind it.
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

/** Opens the reference and waits until its operations are there. */
async function openReference(options?: Parameters<TestBrowser['open']>[1]): Promise<WatchedPage> {
  const page = await browser.open(url, options);
  await page.page.locator('.opblock').first().waitFor();
  return page;
}

/** Opens an operation, sends what `fill` has put into its form, and gives the status and body shown. */
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
    body: (await live.locator('.highlight-code .microlight').first().textContent()) ?? '',
  };
}

describe('the API reference', () => {
  test('a work item is created and read by trying it out', async () => {
    await using reference = await openReference();
    const created = await tryOut(reference, 'createWorkItem', async (operation) => {
      await operation.getByRole('textbox', { name: 'Request body' }).fill('{"title":"Paint the fence"}');
    });
    assert.equal(created.status, '201');
    const { id, title } = JSON.parse(created.body) as { id: number; title: string };
    assert.equal(title, 'Paint the fence');
    assert.equal(
      (await request(port, 'GET', `/api/work-items/${id}`)).text,
      `{"id":${id},"title":"Paint the fence"}`,
    );

    const read = await tryOut(reference, 'readWorkItem', async (operation) => {
      await operation.getByPlaceholder('id', { exact: true }).fill(String(id));
    });
    assert.equal(read.status, '200');
    assert.deepEqual(JSON.parse(read.body), { id, title: 'Paint the fence' });

    // What it offers without a change works, too.
    assert.equal((await tryOut(reference, 'listWorkItems')).status, '200');
    assert.deepEqual(await tryOut(reference, 'updateWorkItem').then(({ status }) => status), '200');
    reference.assertClean(url);

    // An error is shown as it came; the browser notes it in its console.
    const missing = await tryOut(reference, 'deleteWorkItem', async (operation) => {
      await operation.getByPlaceholder('id', { exact: true }).fill('404404');
    });
    assert.equal(missing.status, '500');
    assert.deepEqual(JSON.parse(missing.body), { error: 'Failed to delete work item' });
    assert.equal(reference.takeProblems().length, 1);
    reference.assertClean(url);
  });

  test('a reply is shown as it came, byte for byte [D14]', async () => {
    await using reference = await openReference();
    const sent = '{"n":12345678901234567890, "f":1.0,"e":"\\u00e9"}';
    const created = await tryOut(reference, 'createWorkItem', async (operation) => {
      await operation.getByRole('textbox', { name: 'Request body' }).fill(sent);
    });
    assert.match(created.body, /^\{"id":\d+,/);
    assert.equal(created.body.replace(/"id":\d+,/, ''), sent);
    assert.deepEqual(await reference.findAccessibilityProblems(), []);
    reference.assertClean(url);
  });

  test('every documented reply is shown with its status and message', async () => {
    await using reference = await openReference();
    const read = reference.page.locator('[id$="-readWorkItem"]');
    await read.getByRole('button', { expanded: false }).first().click();
    const rows = read.locator('.responses-table:not(.live-responses-table) > tbody > tr.response');
    // The rows come one by one, the examples in them later; all() waits for none of them.
    await rows.nth(7).locator('.reply-body').first().waitFor();
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
      '408 {"error":"Request timeout"}',
      '417 {"error":"Expectation failed"}',
      '431 {"error":"Request header fields too large"}',
      '500 {"error":"Failed to fetch work item"}',
      '503 {"error":"Service unavailable"}',
    ]);
  });

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
      test(`${colorScheme}, ${width} px wide: it fits, and axe finds nothing`, async () => {
        await using reference = await openReference({ colorScheme, width });
        await reference.assertFits();
        await reference.savePicture(`docs-${colorScheme}-${width}`);
        assert.equal((await tryOut(reference, 'createWorkItem')).status, '201');
        await reference.assertFits();
        await reference.savePicture(`docs-open-${colorScheme}-${width}`);
        reference.assertClean(url);
        // Everything that a closed operation shows is there, too.
        assert.deepEqual(await reference.findAccessibilityProblems(), []);
      });
    }
  }

  test('it follows the system from light to dark and back while it is open', async () => {
    await using reference = await openReference();
    const background = () =>
      reference.page.evaluate<string>('getComputedStyle(document.body).backgroundColor');
    const light = await background();
    await reference.page.emulateMedia({ colorScheme: 'dark' });
    await poll(async () => (await background()) !== light, 'a dark page');
    await reference.page.emulateMedia({ colorScheme: 'light' });
    await poll(async () => (await background()) === light, 'a light page');
  });

  test('every operation is reached and opened by the keyboard', async () => {
    await using reference = await openReference();
    const operation = reference.page.locator('[id$="-listWorkItems"]');
    const control = operation.getByRole('button', { expanded: false }).first();
    await control.focus();
    await reference.page.keyboard.press('Enter');
    await operation.getByRole('button', { name: 'Execute' }).waitFor();
  });
});
