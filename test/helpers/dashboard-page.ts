// The dashboard's page as tests open and read it.

import assert from 'node:assert/strict';

import type { PageOptions, TestBrowser, WatchedPage } from './browser.ts';

/** Opens the dashboard at a port of this machine and waits until its stream has begun. */
export async function openDashboard(
  browser: TestBrowser,
  { adminPort }: { readonly adminPort: number },
  options?: PageOptions,
): Promise<WatchedPage> {
  const watched = await browser.open(`http://127.0.0.1:${adminPort}/`, options);
  await watched.page.locator('#connection[data-state=live]').waitFor();
  return watched;
}

/** Waits until the element's text is as wanted. */
export async function reads(
  watched: WatchedPage,
  selector: string,
  text: RegExp,
  limitMs = 30_000,
): Promise<void> {
  const found = watched.page.locator(selector).filter({ hasText: text, visible: true }).first();
  await found.waitFor({ timeout: limitMs }).catch(async () => {
    const is = await watched.page.locator(selector).allTextContents();
    assert.fail(`not within ${limitMs} ms: ${selector} reads ${String(text)}; it reads ${is.join(' | ')}`);
  });
}

/** What is written in a row of the table of operations, by column. */
export async function readOperation(watched: WatchedPage, flow: string): Promise<Record<string, string>> {
  const texts = await watched.page.locator(`#operation-rows .${flow} td`).allTextContents();
  return Object.fromEntries(operationColumns.map((name, index) => [name, texts[index] ?? '']));
}

const operationColumns = [
  'rate',
  '2xx',
  '4xx',
  '5xx',
  'no reply',
  'client',
  'gateway',
  'backend',
  'p50',
  'p99',
  'backend failed',
  'backend p50',
  'backend p99',
];
