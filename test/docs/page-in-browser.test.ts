// The API reference in a real browser, under its content security policy, light and dark, narrow and wide.

import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { after, afterEach, before, test } from 'node:test';
import type { Locator, Page, Route } from 'playwright-core';
import { TestBrowser, type WatchedPage } from '../helpers/browser.ts';
import { createGate } from '../helpers/changes.ts';
import { type Command, startCommand } from '../helpers/command.ts';
import { findFreePort } from '../helpers/haproxy.ts';
import { answer, type Answer } from '../helpers/scripted-backend.ts';
import { useBackend } from '../helpers/suites.ts';

let browser: TestBrowser;
let command: Command;
let secured: Command;
let watched: WatchedPage;
let page: Page;
let url = '';
// The backend gives back what it gets.
const echo: Answer = (exchange) => answer(exchange.request.body.toString() || '[]')(exchange);
const backend = await useBackend(echo);
before(async () => {
  browser = await TestBrowser.start();
  // The keys of the issuer cannot be fetched, so a call with a token is refused.
  const tokens = { AUTH_ISSUER: 'https://login.example', AUTH_AUDIENCE: 'items', AUTH_JWKS_URL: 'http://127.0.0.1:1/' };
  const settings = { BACKEND_URL: backend.url, DOCS: 'true', ADMIN_PORT: String(await findFreePort()) };
  command = await startCommand(settings);
  secured = await startCommand({ ...settings, ...tokens, ADMIN_PORT: '0' });
  url = `http://127.0.0.1:${command.port}/docs`;
  watched = await browser.open(url);
  ({ page } = watched);
});
afterEach(() => watched.assertClean(url));
after(async () => {
  await watched[Symbol.asyncDispose]();
  await browser[Symbol.asyncDispose]();
  await command.stop();
  await secured.stop();
});

/** An operation of the page. */
const operationOf = (id: string, on: Page = page): Locator => on.locator(`[id$="-${id}"]`);

/** Opens an operation if it is closed. */
async function open(id: string, on: Page = page): Promise<Locator> {
  const operation = operationOf(id, on);
  const control = operation.getByRole('button').first();
  if ((await control.getAttribute('aria-expanded')) === 'false') await control.click();
  return operation;
}

/** Fills the form of an operation, sends the call, and returns the shown status and body. */
async function tryOut(id: string, values: Readonly<Record<string, string>> = {}): Promise<string[]> {
  const operation = await open(id);
  for (const [name, value] of Object.entries(values)) await operation.getByRole('textbox', { name }).fill(value);
  await operation.getByRole('button', { name: 'Execute' }).click();
  const reply = operation.locator('.live-responses-table');
  return [await reply.locator('.response-col_status').innerText(), await reply.locator('.reply pre').innerText()];
}

const invalidId = '{"error":"Invalid ID format"}';

test('each operation can be called, and an error is shown as any reply', async () => {
  const item = '{"title":"Paint"}';
  assert.deepEqual(await tryOut('createWorkItem', { 'Request body': item }), ['201', item]);
  assert.deepEqual(await tryOut('listWorkItems'), ['200', '[]']);
  assert.deepEqual(await tryOut('readWorkItem', { id: '7' }), ['200', '[]']);
  // The example requests work unchanged.
  assert.deepEqual(await tryOut('updateWorkItem'), ['200', '{"success":true}']);
  backend.answersOnce(answer('', { status: 500 }));
  assert.deepEqual(await tryOut('deleteWorkItem'), ['500', '{"error":"Failed to delete work item"}']);
  assert.deepEqual(
    backend.requests.map(({ method, target, body }) => `${method} ${target} ${body.toString()}`.trim()),
    [
      `POST /api/WorkItem ${item}`,
      'GET /api/WorkItem',
      'GET /api/WorkItem/7',
      'PUT /api/WorkItem/1 {"title":"My first work item","state":"New"}',
      'DELETE /api/WorkItem/1',
    ],
  );
  assert.equal((await tryOut('getItemMethods'))[0], '204');
  assert.match(await operationOf('getItemMethods').innerText(), /allow: GET, HEAD, PUT, DELETE, OPTIONS/);
  // The browser logs the error.
  assert.equal(watched.takeProblems().length, 1);
});

test('any id can be sent: the gateway validates it, not the page [D1]', async () => {
  await tryOut('readWorkItem', { id: '1abc' });
  assert.equal(backend.requests.at(-1)?.target, '/api/WorkItem/1');
  const operation = operationOf('readWorkItem');
  for (const id of ['abc', '-', ' ', 'a/b?c']) {
    assert.deepEqual(await tryOut('readWorkItem', { id }), ['400', invalidId], id);
    const shown = await operation.locator('.request-url').innerText();
    assert.ok(shown.endsWith(`/api/work-items/${encodeURIComponent(id)}`), shown);
  }
  await operation.getByPlaceholder('id', { exact: true }).fill('');
  await operation.getByRole('button', { name: 'Execute' }).click();
  await operation.getByText('Required field is not provided').waitFor();
  assert.equal(await operation.locator('.live-responses-table').count(), 0, 'the previous reply is removed');
  // The browser logs a 400.
  assert.ok(watched.takeProblems().every((problem) => problem.includes('400 (Bad Request)')));
});

test('the body is sent as typed; its reply is indented; copy, download and the raw view have exactly the bytes received [D14]', async () => {
  await page.context().grantPermissions(['clipboard-read', 'clipboard-write']);
  const sent = ' {"n":12345678901234567890, "f":1.0,"e":"\\u00e9 \u00e9 [{:,\\"","none":[],"some":[1,{"a":{ }}]}\n';
  const [, shown] = await tryOut('createWorkItem', { 'Request body': sent });
  assert.equal(backend.requests[0]?.body.toString(), sent);
  assert.equal(
    shown,
    `{
  "n": 12345678901234567890,
  "f": 1.0,
  "e": "\\u00e9 \u00e9 [{:,\\"",
  "none": [],
  "some": [
    1,
    {
      "a": {}
    }
  ]
}`,
  );
  const operation = operationOf('createWorkItem');
  await operation.getByRole('button', { name: 'Copy', exact: true }).click();
  await operation.getByRole('button', { name: 'Copied', exact: true }).waitFor();
  assert.equal(await page.evaluate('navigator.clipboard.readText()'), sent);
  const download = page.waitForEvent('download');
  await operation.getByRole('button', { name: 'Download' }).click();
  assert.equal(readFileSync(await (await download).path(), 'utf8'), sent);
  await operation.getByRole('button', { name: 'Raw', pressed: false }).click();
  await operation.getByRole('button', { name: 'Raw', pressed: true }).waitFor();
  assert.equal(await operation.locator('.reply .microlight').textContent(), sent);
  // A body that the gateway refuses is sent too, and the shown command has the same arguments for a shell.
  const odd = `it's "$HOME" \\n`;
  assert.equal((await tryOut('createWorkItem', { 'Request body': odd }))[0], '500');
  const script = `curl() { printf '%s\\n' "$@"; }\n${await operation.locator('pre').first().innerText()}`;
  const printed = execFileSync('/bin/sh', ['-c', script], { encoding: 'utf8' });
  const target = `http://127.0.0.1:${command.port}/api/work-items`;
  assert.equal(
    printed,
    ['-X', 'POST', target, '-H', 'content-type: application/json', '--data-raw', odd, ''].join('\n'),
  );
  assert.equal(watched.takeProblems().length, 1);
});

test('a long reply is shown in part and saved in full', async () => {
  const long = `{"title":"${'x'.repeat(300_000)}"}`;
  backend.answersOnce(answer(long));
  const [, shown] = await tryOut('readWorkItem', { id: '1' });
  assert.equal(shown, long.slice(0, 200_000));
  const operation = operationOf('readWorkItem');
  await operation.getByText('The first 200,000 of 300,012 characters.').waitFor();
  const download = page.waitForEvent('download');
  await operation.getByRole('button', { name: 'Download' }).click();
  assert.equal(readFileSync(await (await download).path(), 'utf8'), long);
});

test('a reply that would be too long when indented is shown as received, and whole', async () => {
  const flat = JSON.stringify(Array.from({ length: 50_000 }, () => 1));
  backend.answersOnce(answer(flat));
  const [, shown] = await tryOut('readWorkItem', { id: '1' });
  assert.equal(shown, flat);
});

test('a reply is removed when the next call is sent, before the next reply arrives; a late reply replaces none', async () => {
  assert.equal((await tryOut('listWorkItems'))[0], '200');
  const gate = createGate();
  const answerLate = async (route: Route) => {
    await gate.opened;
    await route.fulfill({ json: ['late'] });
  };
  await page.route('**/api/work-items', answerLate, { times: 1 });
  const operation = operationOf('listWorkItems');
  const execute = operation.getByRole('button', { name: 'Execute' });
  await execute.click();
  await operation.locator('.live-responses-table').waitFor({ state: 'detached' });
  await execute.click();
  await operation.locator('.live-responses-table').waitFor();
  const late = page.waitForEvent('requestfinished');
  gate.open();
  await late;
  await page.evaluate('new Promise((resolve) => requestAnimationFrame(resolve))');
  assert.equal(await operation.locator('.reply .microlight').textContent(), '[]');
});

test('the token and the other headers are sent; without a reply, the reason is shown', async () => {
  await using other = await browser.open(`http://127.0.0.1:${secured.port}/docs`);
  assert.equal(await page.getByLabel('Token').count(), 0, 'only a gateway that checks tokens has the field');
  await other.page.getByLabel('Token').fill('a.b.c');
  const operation = await open('updateWorkItem', other.page);
  await operation.getByText('Request headers').click();
  await operation.getByRole('textbox', { name: 'if-match' }).fill('"v1"');
  const request = other.page.waitForRequest('**/api/work-items/1');
  await operation.getByRole('button', { name: 'Execute' }).click();
  const { authorization, 'if-match': condition, traceparent } = await (await request).allHeaders();
  assert.deepEqual([authorization, condition, traceparent], ['Bearer a.b.c', '"v1"', undefined]);
  await other.page.route('**/api/**', (route) => route.abort());
  await operation.getByRole('button', { name: 'Execute' }).click();
  await operation.getByText(/^No reply: \w/).waitFor();
});

test('the API reference and the dashboard link to each other', async () => {
  await using reference = await browser.open(url);
  await reference.page.getByRole('link', { name: 'Dashboard' }).click();
  await reference.page.waitForURL(`http://127.0.0.1:${command.adminPort}/`);
  await reference.page.getByRole('link', { name: 'API reference' }).click();
  await reference.page.waitForURL(url);
  await reference.page.getByRole('link', { name: 'Dashboard' }).waitFor();
  // A reader who uses another host name is on another machine, so the page has no link to a dashboard on loopback.
  await reference.page.route('http://gateway.example/**', async (route) => {
    const reply = await command.call('GET', new URL(route.request().url()).pathname);
    await route.fulfill({ body: reply.body, contentType: reply.header('content-type') ?? '' });
  });
  await reference.page.goto('http://gateway.example/docs');
  await open('listWorkItems', reference.page);
  assert.equal(await reference.page.getByRole('link', { name: 'Dashboard' }).count(), 0);
});

test('every documented reply is shown with status and message; replies that all operations share are shown once', async () => {
  const read = await open('readWorkItem');
  const shown: string[] = [];
  for (const row of await read.locator('.responses-table:not(.live-responses-table) tr.response').all()) {
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
  const cells = await page.locator('.info h2:last-of-type + table td').allTextContents();
  assert.deepEqual(
    cells.filter((_, index) => index % 3 < 2).join(', '),
    '408, Request timeout, 417, Expectation failed, 431, Request header fields too large, 503, Service unavailable',
  );
});

test('the content security policy is in force', async () => {
  const ran = await page.evaluate<boolean>(`
    const script = document.createElement('script');
    script.textContent = 'globalThis.inlineRan = true';
    document.body.append(script);
    globalThis.inlineRan === true;
  `);
  assert.equal(ran, false);
  assert.match(watched.takeProblems().join(), /Content Security Policy/);
});

test('the keyboard opens an operation and sends its call; the address of the page then opens it again', async () => {
  await page.goto(url);
  await operationOf('readWorkItem').getByRole('button', { expanded: false }).first().focus();
  await page.keyboard.press('Enter');
  await page.keyboard.press('Tab');
  await page.keyboard.type('5');
  await page.keyboard.press('Enter');
  await operationOf('readWorkItem').locator('.live-responses-table').waitFor();
  assert.equal(backend.requests[0]?.target, '/api/WorkItem/5');
  await page.reload();
  await operationOf('readWorkItem').getByRole('button', { name: 'Execute' }).waitFor();
  assert.equal(await page.getByRole('button', { name: 'Execute' }).count(), 1);
});

interface Box {
  readonly left: number;
  readonly right: number;
  readonly top: number;
  readonly bottom: number;
}

test('on screens of all sizes, light and dark: it fits, the operations come first, Execute stays in place, and no button covers a reply', async () => {
  const boxesOf = (selector: string) =>
    page.evaluate<Box[]>(`[...document.querySelectorAll('${selector}')].map((each) =>
      each.getBoundingClientRect().toJSON()).filter(({ height }) => height > 0)`);
  const one = '[id$="-createWorkItem"]';
  for (const [width, height] of [
    [360, 740],
    [768, 1_024],
    [1_280, 720],
    [2_560, 1_440],
  ] as const) {
    await page.setViewportSize({ width, height });
    await page.goto(url);
    await watched.assertFits();
    const operations = await boxesOf('.opblock');
    assert.ok((operations[4]?.bottom ?? NaN) <= height, 'all five operations are visible without scrolling');
    const tables = await boxesOf('.info table');
    assert.equal(tables.length, 3);
    for (const { top } of tables) assert.ok(top > (operations.at(-1)?.bottom ?? NaN), 'errors and limits follow');
    const backgrounds = new Set<string>();
    await open('createWorkItem');
    const placeOf = async () => {
      const [[button], [whole]] = [await boxesOf(`${one} .execute`), await boxesOf(one)];
      assert.ok(button && whole);
      return [button.left - whole.left, button.top - whole.top, button.right - whole.left].map(Math.round);
    };
    const earlier = await placeOf();
    await tryOut('createWorkItem');
    assert.deepEqual(await placeOf(), earlier);
    const [texts, buttons] = [await boxesOf(`${one} .responses-inner pre`), await boxesOf(`${one} .tool`)];
    assert.ok(texts.length === 4 && buttons.length >= 3, `${texts.length} texts, ${buttons.length} buttons`);
    for (const text of texts) {
      for (const button of buttons) {
        const isBeside = button.bottom <= text.top || button.top >= text.bottom || button.left >= text.right;
        assert.ok(isBeside, `a button covers a text at ${width} px`);
      }
    }
    for (const colorScheme of ['light', 'dark'] as const) {
      await page.emulateMedia({ colorScheme });
      await watched.assertFits();
      backgrounds.add(await page.evaluate<string>('getComputedStyle(document.body).backgroundColor'));
      await watched.savePicture(`docs-${width}-${colorScheme}`);
      // Two checks in all, because each takes seconds.
      if (width === (colorScheme === 'light' ? 1_280 : 360))
        assert.deepEqual(await watched.findAccessibilityProblems(), []);
    }
    assert.equal(backgrounds.size, 2, 'the colours change with those of the system');
  }
});
