// Opens and reads the dashboard.

import assert from 'node:assert/strict';

import type { PageOptions, TestBrowser, WatchedPage } from '../helpers/browser.ts';

/** Opens the dashboard and waits until its event stream is live. */
export async function openDashboard(
  browser: TestBrowser,
  { adminPort }: { readonly adminPort: number },
  options?: PageOptions,
): Promise<WatchedPage> {
  const watched = await browser.open(`http://127.0.0.1:${adminPort}/`, options);
  await watched.page.locator('#connection[data-state=live]').waitFor();
  return watched;
}

/** Waits until a visible element at `selector` has a text that matches. */
export async function reads(watched: WatchedPage, selector: string, text: RegExp, limitMs = 30_000): Promise<void> {
  const found = watched.page.locator(selector).filter({ hasText: text, visible: true }).first();
  await found.waitFor({ timeout: limitMs }).catch(async () => {
    const is = await watched.page.locator(selector).allTextContents();
    assert.fail(`after ${limitMs} ms ${selector} does not match ${String(text)}; its texts: ${is.join(' | ')}`);
  });
}

/** The texts of a row in the table of operations, by column. */
export async function readOperation(watched: WatchedPage, flow: string): Promise<Record<string, string>> {
  const texts = await watched.page.locator(`#operation-table tbody .${flow} td`).allTextContents();
  return Object.fromEntries(operationColumns.map((name, index) => [name, texts[index] ?? '']));
}

const operationColumns = [
  ...['rate', '2xx', '4xx', '5xx', 'no reply', 'client', 'gateway', 'backend', 'p50', 'p99'],
  ...['backend failed', 'backend p50', 'backend p99'],
];
