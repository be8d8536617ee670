// The API reference in a real browser, under its content security policy, light and dark, narrow and wide.

import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { after, afterEach, test } from 'node:test';
import type { Locator, Page, Route } from 'playwright-core';
import { TestBrowser } from '../helpers/browser.ts';
import { createGate } from '../helpers/changes.ts';
import { startCommand } from '../helpers/command.ts';
import { findFreePort } from '../helpers/haproxy.ts';
import { answer, type Answer } from '../helpers/scripted-backend.ts';
import { useBackend } from '../helpers/suites.ts';

// The backend gives back what it gets.
const echo: Answer = (exchange) => answer(exchange.request.body.toString() || '[]')(exchange);
const backend = await useBackend(echo);
const resources = new AsyncDisposableStack();
after(() => resources.disposeAsync());
const settings = { BACKEND_URL: backend.url, DOCS: 'true' };
const command = resources.use(await startCommand({ ...settings, ADMIN_PORT: String(await findFreePort()) }));
const browser = resources.use(await TestBrowser.start());
const url = `http://127.0.0.1:${command.port}/docs`;
const watched = resources.use(await browser.open(url));
const { page } = watched;
await page.context().grantPermissions(['clipboard-read', 'clipboard-write']);
afterEach(() => watched.assertClean(url));

/** Opens an operation of the page if it is closed. */
async function open(id: string, on: Page = page): Promise<Locator> {
  const operation = on.locator(`[id$="-${id}"]`);
  const control = operation.getByRole('button').first();
  if ((await control.getAttribute('aria-expanded')) === 'false') await control.click();
  return operation;
}

const execute = (operation: Locator) => operation.getByRole('button', { name: 'Execute' }).click();
const replyOf = (operation: Locator) => operation.locator('.live-responses-table');
const bodyOf = (operation: Locator) => operation.locator('.reply .microlight').textContent();

/** Fills the form of an operation, sends the call, and returns the shown status and body. */
async function tryOut(id: string, values: Readonly<Record<string, string>> = {}): Promise<string[]> {
  const operation = await open(id);
  for (const [name, value] of Object.entries(values)) await operation.getByRole('textbox', { name }).fill(value);
  await execute(operation);
  const reply = replyOf(operation);
  return [await reply.locator('.response-col_status').innerText(), await reply.locator('.reply pre').innerText()];
}

async function download(operation: Locator): Promise<string> {
  const downloaded = page.waitForEvent('download');
  await operation.getByRole('button', { name: 'Download' }).click();
  return readFileSync(await (await downloaded).path(), 'utf8');
}

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
  assert.match(await (await open('getItemMethods')).innerText(), /allow: GET, HEAD, PUT, DELETE, OPTIONS/);
  // The browser logs the error.
  assert.equal(watched.takeProblems().length, 1);
});

test('any id that a browser can send is sent: the gateway validates it, not the page [D1]', async () => {
  await tryOut('readWorkItem', { id: '1abc' });
  assert.equal(backend.requests.at(-1)?.target, '/api/WorkItem/1');
  const operation = await open('readWorkItem');
  for (const id of ['abc', ' ', 'a/b?c']) {
    assert.deepEqual(await tryOut('readWorkItem', { id }), ['400', '{"error":"Invalid ID format"}'], id);
    const shown = await operation.locator('.request-url').innerText();
    assert.ok(shown.endsWith(`/api/work-items/${encodeURIComponent(id)}`), shown);
  }
  for (const [id, problem] of [
    ['', 'Required field is not provided'],
    ['.', 'Browsers cannot send this id'],
    ['..', 'Browsers cannot send this id'],
  ] as const) {
    await operation.getByPlaceholder('id', { exact: true }).fill(id);
    await execute(operation);
    await operation.getByText(problem).waitFor();
    assert.equal(await replyOf(operation).count(), 0, 'the previous reply is removed');
  }
  // The browser logs a 400.
  assert.ok(watched.takeProblems().every((problem) => problem.includes('400 (Bad Request)')));
});

test('the body is sent as typed; its reply is indented; copy, download and the raw view have exactly the bytes received [D14]', async () => {
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
  const operation = await open('createWorkItem');
  await operation.getByRole('button', { name: 'Copy', exact: true }).click();
  await operation.getByRole('button', { name: 'Copied', exact: true }).waitFor();
  assert.equal(await page.evaluate('navigator.clipboard.readText()'), sent);
  assert.equal(await download(operation), sent);
  await operation.getByRole('button', { name: 'Raw', pressed: false }).click();
  await operation.getByRole('button', { name: 'Raw', pressed: true }).waitFor();
  assert.equal(await bodyOf(operation), sent);
  // A body that the gateway refuses is sent too, and the shown command has the same arguments for a shell.
  const odd = `it's "$HOME" \\n`;
  assert.equal((await tryOut('createWorkItem', { 'Request body': odd }))[0], '500');
  const script = `curl() { printf '%s\\n' "$@"; }\n${await operation.locator('pre').first().innerText()}`;
  const printed = execFileSync('/bin/sh', ['-c', script], { encoding: 'utf8' });
  const target = url.replace('docs', 'api/work-items');
  assert.equal(printed, `-X\nPOST\n${target}\n-H\ncontent-type: application/json\n--data-raw\n${odd}\n`);
  assert.equal(watched.takeProblems().length, 1);
});

test('a long reply is shown in part and saved in full; one that would be too long when indented is shown as received', async () => {
  const flat = JSON.stringify(Array.from({ length: 50_000 }, () => 1));
  const long = `{"title":"${'x'.repeat(300_000)}"}`;
  backend.answersOnce(answer(flat), answer(long));
  assert.equal((await tryOut('readWorkItem', { id: '1' }))[1], flat);
  assert.equal((await tryOut('readWorkItem'))[1], long.slice(0, 200_000));
  const operation = await open('readWorkItem');
  await operation.getByText('The first 200,000 of 300,012 characters.').waitFor();
  assert.equal(await download(operation), long);
});

test('a reply is removed when the next call is sent, before the next reply arrives; a late reply replaces none', async () => {
  assert.equal((await tryOut('listWorkItems'))[0], '200');
  const gate = createGate();
  const answerLate = async (route: Route) => {
    await gate.opened;
    await route.fulfill({ json: ['late'] });
  };
  await page.route('**/api/work-items', answerLate, { times: 1 });
  const operation = await open('listWorkItems');
  await execute(operation);
  await replyOf(operation).waitFor({ state: 'detached' });
  await execute(operation);
  await replyOf(operation).waitFor();
  const late = page.waitForEvent('requestfinished');
  gate.open();
  await late;
  await page.evaluate('new Promise((resolve) => requestAnimationFrame(resolve))');
  assert.equal(await bodyOf(operation), '[]');
});

test('the token and the other headers are sent; without a reply, the reason is shown', async () => {
  // The keys of the issuer cannot be fetched, so a call with a token is refused.
  const tokens = { AUTH_ISSUER: 'https://login.example', AUTH_AUDIENCE: 'items', AUTH_JWKS_URL: 'http://127.0.0.1:1/' };
  await using secured = await startCommand({ ...settings, ...tokens });
  await using other = await browser.open(`http://127.0.0.1:${secured.port}/docs`);
  assert.equal(await page.getByLabel('Token').count(), 0, 'only a gateway that checks tokens has the field');
  await other.page.getByLabel('Token').fill('a.b.c');
  const operation = await open('updateWorkItem', other.page);
  await operation.getByText('Request headers').click();
  await operation.getByRole('textbox', { name: 'if-match' }).fill('"v1"');
  const request = other.page.waitForRequest('**/api/work-items/1');
  await execute(operation);
  const { authorization, 'if-match': condition, traceparent } = await (await request).allHeaders();
  assert.deepEqual([authorization, condition, traceparent], ['Bearer a.b.c', '"v1"', undefined]);
  await other.page.route('**/api/**', (route) => route.abort());
  await execute(operation);
  await operation.getByText(/^No reply: \w/).waitFor();
});

test('every documented reply is shown with status and message; replies that all operations share are shown once', async () => {
  const read = await open('readWorkItem');
  const shown = await page.evaluate<string[]>(`
    [...document.querySelectorAll('[id$="-readWorkItem"] .responses-table:not(.live-responses-table) tr.response')].map(
      (row) => [...row.querySelectorAll('.response-col_status, .reply-body')].map((each) => each.textContent).join(' '))`);
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

test('the keyboard opens an operation and sends its call; the address of the page then opens it again; inline scripts do not run', async () => {
  await page.goto(url);
  await page.locator('[id$="-readWorkItem"]').getByRole('button', { expanded: false }).first().focus();
  await page.keyboard.press('Enter');
  await page.keyboard.press('Tab');
  await page.keyboard.type('5');
  await page.keyboard.press('Enter');
  await replyOf(await open('readWorkItem')).waitFor();
  assert.equal(backend.requests[0]?.target, '/api/WorkItem/5');
  await page.reload();
  await page.locator('[id$="-readWorkItem"]').getByRole('button', { name: 'Execute' }).waitFor();
  assert.equal(await page.getByRole('button', { name: 'Execute' }).count(), 1);
  const ran = await page.evaluate<boolean>(`
    const script = document.createElement('script');
    script.textContent = 'globalThis.inlineRan = true';
    document.body.append(script);
    globalThis.inlineRan === true;
  `);
  assert.equal(ran, false);
  assert.match(watched.takeProblems().join(), /Content Security Policy/);
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
      const isBeside = ({ top, bottom, left }: Box) => bottom <= text.top || top >= text.bottom || left >= text.right;
      assert.ok(buttons.every(isBeside), `a button covers a text at ${width} px`);
    }
    const backgrounds = new Set<string>();
    for (const colorScheme of ['light', 'dark'] as const) {
      await page.emulateMedia({ colorScheme });
      backgrounds.add(await page.evaluate<string>('getComputedStyle(document.body).backgroundColor'));
      await watched.savePicture(`docs-${width}-${colorScheme}`);
      // Two checks in all, because each takes seconds.
      if (width === (colorScheme === 'light' ? 1_280 : 360)) {
        assert.deepEqual(await watched.findAccessibilityProblems(), []);
      }
    }
    await watched.assertFits();
    assert.equal(backgrounds.size, 2, 'the colours change with those of the system');
  }
});

test('the API reference and the dashboard link to each other, unless the reader is on another machine', async () => {
  await page.goto(url);
  await page.getByRole('link', { name: 'Dashboard' }).click();
  await page.waitForURL(`http://127.0.0.1:${command.adminPort}/`);
  await page.getByRole('link', { name: 'API reference' }).click();
  await page.waitForURL(url);
  await page.getByRole('link', { name: 'Dashboard' }).waitFor();
  // A reader who uses another host name is on another machine, so the page has no link to a dashboard on loopback.
  await using elsewhere = await browser.open('about:blank');
  await elsewhere.page.route('http://gateway.example/**', async (route) => {
    const reply = await command.call('GET', new URL(route.request().url()).pathname);
    await route.fulfill({ body: reply.body, contentType: reply.header('content-type') ?? '' });
  });
  await elsewhere.page.goto('http://gateway.example/docs');
  await open('listWorkItems', elsewhere.page);
  assert.equal(await elsewhere.page.getByRole('link', { name: 'Dashboard' }).count(), 0);
  watched.requests.length = 0;
  await page.goto(url);
});
