// The dashboard's layout on screens of all sizes, its title and its colours.

import assert from 'node:assert/strict';
import { hostname } from 'node:os';
import { after, before, beforeEach, describe, test } from 'node:test';

import { missingFonts, TestBrowser, type WatchedPage } from '../helpers/browser.ts';
import { openDashboard, reads } from './dashboard-page.ts';
import { type Command, startCommand } from '../helpers/command.ts';
import { answer } from '../helpers/scripted-backend.ts';
import { useBackend } from '../helpers/suites.ts';
import type { Details } from '../../packages/dashboard/state.ts';
import { withState } from './report.ts';

let browser: TestBrowser;
const backend = await useBackend();
// The page shows the last minute, so the gateway and its calls must be younger.
const ageMsMax = 20_000;
let command: Command;
let calledAt = -Infinity;
before(async () => {
  browser = await TestBrowser.start();
});
beforeEach(async () => {
  if (performance.now() - calledAt < ageMsMax) return;
  if (calledAt > 0) await command.stop();
  calledAt = performance.now();
  // The calls cause large figures, long paths and failures, for which the tables need room.
  command = await startCommand({ BACKEND_URL: backend.url, INSTANCE_NAME: 'staging-eu-1' });
  for (let count = 0; count < 1_200; count += 1) await command.call('GET', '/api/work-items');
  backend.answers(answer('', { status: 503 }));
  for (let count = 0; count < 120; count += 1) {
    await command.call('PUT', `/api/work-items/${'9'.repeat(1 + (count % 60))}`, { body: '{}' });
  }
});
after(async () => {
  await browser[Symbol.asyncDispose]();
  await command.stop();
});

interface Box {
  readonly top: number;
  readonly bottom: number;
  readonly left: number;
  readonly right: number;
  readonly width: number;
  readonly height: number;
}

/** The positions of all visible elements that match `selector`, at one moment. */
async function boxesOf({ page }: WatchedPage, selector: string): Promise<Box[]> {
  return await page.evaluate<Box[]>(`[...document.querySelectorAll('${selector}')]
    .map((each) => each.getBoundingClientRect().toJSON()).filter(({ height }) => height > 0)`);
}

/** The names of the tables that cut off a column. */
async function cutTables({ page }: WatchedPage): Promise<string[]> {
  return await page.evaluate<string[]>(`[...document.querySelectorAll('.wide')]
    .filter(({ scrollWidth, clientWidth }) => scrollWidth > clientWidth)
    .map((each) => each.getAttribute('aria-label'))`);
}

describe('the dashboard on a screen', () => {
  for (const [width, height] of [
    [1_280, 720],
    [1_440, 900],
    [1_920, 1_080],
    [2_560, 1_440],
  ] as const) {
    test(`of ${width} x ${height} shows the verdict, the charts and every operation without scrolling`, async () => {
      await using watched = await openDashboard(browser, command, { width, height });
      await reads(watched, '#operation-table tbody .update', /120/);
      for (const selector of ['#verdict', '#parties li', '#charts figure', '#operation-table tbody tr']) {
        const boxes = await boxesOf(watched, selector);
        assert.ok(boxes.length > 0, selector);
        for (const { bottom } of boxes) assert.ok(bottom <= height, `${selector} ends at ${bottom}`);
      }
    });
  }

  // 640 px is 1280 px at a zoom of 200 %.
  for (const [width, height] of [
    [360, 740],
    [640, 360],
    [768, 1_024],
    [1_024, 768],
    [1_280, 720],
    [1_440, 900],
    [1_920, 1_080],
    [2_560, 1_440],
  ] as const) {
    test(`${width} px wide fits the window, cuts off no column and aligns controls and charts`, async () => {
      await using watched = await openDashboard(browser, command, { width, height });
      await reads(watched, '#operation-table tbody .update', /120/);
      for (const window of ['the last minute', '15 minutes']) {
        await watched.page.getByRole('radio', { name: window }).check({ force: true });
        assert.deepEqual(await cutTables(watched), [], 'tables that need horizontal scrolling');
      }
      const [place] = await boxesOf(watched, '#charts');
      const rows = Map.groupBy(await boxesOf(watched, '#charts figure'), ({ top }) => top);
      for (const row of rows.values()) {
        assert.ok(Math.abs((row.at(-1)?.right ?? 0) - (place?.right ?? NaN)) < 2, 'no gap next to a chart');
      }
      // In narrow windows all controls begin on the left.
      const [first, second] = await boxesOf(watched, '#traffic fieldset');
      assert.ok(place && first && second);
      if (width < 1_000) assert.equal(first.left, place.left);
      assert.ok(second.top === first.top || second.left === first.left);
      for (const colorScheme of ['light', 'dark'] as const) {
        await watched.page.emulateMedia({ colorScheme });
        await watched.assertFits();
        // Two checks in all, because each takes seconds.
        if (width === (colorScheme === 'light' ? 1_440 : 360))
          assert.deepEqual(await watched.findAccessibilityProblems(), []);
        await watched.savePicture(`dashboard-traffic-${width}-${colorScheme}`);
      }
      watched.assertClean(`http://127.0.0.1:${command.adminPort}/`);
    });
  }

  for (const font of [undefined, 'DejaVu Sans', 'URW Bookman']) {
    const skip = font !== undefined && missingFonts;
    test(
      `of any width fits the window and cuts off no column, in the font ${font ?? 'Open Sans'}`,
      { skip },
      async () => {
        await using installed = await TestBrowser.start({ usesMachineFonts: font !== undefined });
        await using watched = await openDashboard(installed, command, { width: 2_000, height: 900 });
        await reads(watched, '#operation-table tbody .update', /120/);
        if (font !== undefined) {
          await watched.page.evaluate(`(() => {
          const style = new CSSStyleSheet();
          style.replaceSync(':root { font-family: "${font}" }');
          document.adoptedStyleSheets = [style];
        })()`);
        }
        for (let width = 1_440; width >= 320; width -= 48) {
          await watched.page.setViewportSize({ width, height: 900 });
          // The page lays out its tables again before the next frame.
          await watched.page.evaluate(
            'new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(resolve)))',
          );
          await watched.assertFits();
          assert.deepEqual(await cutTables(watched), [], `${width} px`);
          if (width === 768) await watched.savePicture(`dashboard-${font ?? 'Open Sans'}-768`);
        }
      },
    );
  }

  for (const width of [1_280, 1_920, 2_560]) {
    test(`${width} px wide shows a value without a line of one character, and an id of 36 characters in full from 1920 px`, async () => {
      const help = 'Base address of the backend. '.repeat(20);
      const setting = { flag: '', unit: undefined, source: 'environment', help } as const;
      const hosts = ['localhost:5104', 'backend.internal:33709', `${'backend'.repeat(8)}.example.com:5104`];
      const settings = hosts.map((host, index) => ({ ...setting, variable: `URL_${index}`, value: `http://${host}/` }));
      const failure = { operation: 'list', path: '/', client: '127.0.0.1', status: 500, durationMs: 1 } as const;
      const failures = hosts.map((host, index) => ({
        ...{ ...failure, at: Date.now(), requestId: `c5dfe5d9-fa75-4dde-ad92-69241087300${index}` },
        ...({ outcome: 'refused', party: 'backend', cause: `no answer from http://${host}/` } as const),
      }));
      const change = ({ facts }: Details): Partial<Details> => ({ facts: { ...facts, settings }, failures });
      const look = async ({ page }: WatchedPage): Promise<void> => {
        const lines = await page.evaluate<string[]>(`
          [...document.querySelectorAll('.value code, .kind small')].map(({ firstChild: text }) => {
            const tops = [...text.data].map((_, at) => {
              const range = new Range();
              range.setStart(text, at);
              range.setEnd(text, at + 1);
              return range.getBoundingClientRect().top;
            });
            return text.data.slice(tops.indexOf(tops.at(-1)));
          })`);
        assert.equal(lines.length, 2 * hosts.length);
        for (const line of lines) assert.ok(line.length > 8, `the line ${line}`);
        const ids = await page.evaluate<boolean[]>(`
          [...document.querySelectorAll('.id code')].map(({ scrollWidth, clientWidth }) => scrollWidth <= clientWidth)`);
        assert.ok(width < 1_920 || ids.every((isWhole) => isWhole));
      };
      await withState(browser, change, look, { width, height: 900 });
    });
  }

  test('360 px wide shows the name of the column before each figure of an operation', async () => {
    await using watched = await openDashboard(browser, command, { width: 360, height: 740 });
    await reads(watched, '#operation-table tbody .update', /120/);
    // The names come from the table's head, which is hidden at this width.
    const names = await watched.page.evaluate<string[]>(`
      [...document.querySelectorAll('#operation-table tbody .update td')].map(({ dataset }) =>
        [dataset.group, dataset.name].filter((each) => each !== undefined).join(': '))`);
    assert.deepEqual(names, [
      'per second',
      ...['Replies: 2xx', '4xx', '5xx', 'none'],
      ...['Failed due to: clients', 'gateway', 'backend'],
      ...['Duration: p50', 'p99'],
      ...['Backend calls: failed', 'p50', 'p99'],
      '',
    ]);
  });

  for (const [width, heightMax] of [
    [360, 72],
    [768, 56],
    [1_440, 36],
  ] as const) {
    test(`${width} px wide shows a failed call at most ${heightMax} px high, with path and client before its id`, async () => {
      await using watched = await openDashboard(browser, command, { width, height: 900 });
      const { page } = watched;
      await reads(watched, '#failure-table tbody tr', /\/api\/work-items\/9{60}/);
      const rows = await boxesOf(watched, '#failure-table tbody tr');
      assert.equal(rows.length, 50);
      for (const { height } of rows) assert.ok(height <= heightMax, `${height} px`);
      const boxOf = async (part: string): Promise<Box> =>
        (await boxesOf(watched, `#failure-table tbody ${part}`))[0] ?? assert.fail(part);
      const [path, client, copy] = [await boxOf('td.path'), await boxOf('td.client'), await boxOf('.copy')];
      assert.ok(path.left < client.left);
      assert.ok(
        client.bottom <= copy.top + 1 || client.right <= copy.left,
        'the client is before the button in reading order',
      );
      for (const { right } of [path, client, copy]) assert.ok(right <= width, 'completely visible');
      assert.deepEqual(
        await page.locator('#failure-table tbody tr').first().locator('td.path').getAttribute('title'),
        `/api/work-items/${'9'.repeat(60)}`,
        'the title attribute has the full path',
      );
      const isBefore = (one: Box, other: Box): boolean => one.right <= other.left + 1 || one.bottom <= other.top + 1;
      const cells = await boxesOf(watched, '#failure-table tbody tr:first-child > *');
      for (const [index, one] of cells.entries()) {
        const apart = cells.slice(index + 1).every((other) => isBefore(one, other) || isBefore(other, one));
        assert.ok(apart, `cell ${index} overlaps another`);
      }
    });
  }

  test('the dashboards of two gateways have different headers and titles', async () => {
    await using other = await startCommand({ BACKEND_URL: backend.url });
    await using one = await openDashboard(browser, command);
    await using another = await openDashboard(browser, other);
    await reads(one, 'header', /Work Item Gateway/);
    await reads(one, '#instance', /^staging-eu-1$/);
    await reads(one, '#place', new RegExp(`^on ${hostname()}, process ${command.process.pid ?? ''}$`));
    assert.match(await one.page.title(), /^staging-eu-1: .+ – Work Item Gateway$/);
    await reads(another, '#instance', new RegExp(`^${hostname()}$`));
    await reads(another, '#place', new RegExp(`^process ${other.process.pid ?? ''}$`));
    assert.equal(await another.page.title(), `${hostname()}: All is well – Work Item Gateway`);
  });
});

for (const colorScheme of ['light', 'dark'] as const) {
  test(`${colorScheme}: each colour has one meaning and enough contrast`, async () => {
    await using watched = await openDashboard(browser, command, { colorScheme });
    await reads(watched, '#operation-table tbody .update', /120/);
    const colors = await watched.page.evaluate<Record<string, string>>(`(() => {
      const of = (selector, property = 'color', part) =>
        getComputedStyle(document.querySelector(selector), part)[property];
      return {
        page: of('body', 'backgroundColor'),
        ink: of('body'),
        live: of('#connection', 'backgroundColor', '::before'),
        backend: of('.party.backend', 'backgroundColor', '::before'),
        backendFigure: of('.update td.backend:not(.bad)'),
        gateway: of('.party.gateway', 'backgroundColor', '::before'),
        alarm: of('td.bad'),
        unwell: of('[data-level=unwell] #verdict-title'),
        changed: of('.chosen .value code'),
        link: of('footer a'),
      };
    })()`);
    const { page, ink, live, backend, alarm } = colors;
    assert.equal(new Set([page, ink, live, backend, alarm]).size, 5, 'five different colours');
    assert.equal(colors['backendFigure'], backend);
    if (colorScheme === 'light') {
      const icon = /fill="#([0-9a-f]{6})"/.exec((await command.admin('/dashboard/well.svg')).text)?.[1] ?? '';
      const parts = [0, 2, 4].map((at) => Number.parseInt(icon.slice(at, at + 2), 16));
      assert.equal(`rgb(${parts.join(', ')})`, live, 'the icon of the tab');
    }
    assert.equal(colors['unwell'], alarm);
    for (const name of ['gateway', 'changed']) assert.equal(colors[name], ink, name);
    for (const name of ['backend', 'live', 'alarm']) assert.notEqual(colors['link'], colors[name]);
    // The contrast that WCAG 2.2 requires: 4.5 for text, 3 for graphics.
    for (const color of [ink, live, backend, alarm]) {
      assert.ok(contrastOf(color, page) >= 4.5, `${color ?? ''} on ${page ?? ''}`);
    }
    for (const party of ['gateway', 'backend', 'client']) {
      const color = await watched.page.evaluate<string>(
        `getComputedStyle(document.querySelector('.failed-requests .bars.${party}')).fill`,
      );
      assert.ok(contrastOf(color, page) >= 3, `${party}: ${color}`);
    }
  });
}

function contrastOf(one = '', other = ''): number {
  const [low = NaN, high = NaN] = [luminanceOf(one), luminanceOf(other)].toSorted((a, b) => a - b);
  return (high + 0.05) / (low + 0.05);
}

/** The luminance of `rgb(r, g, b)`, as WCAG defines it. */
function luminanceOf(color: string): number {
  const parts = [...color.matchAll(/\d+/g)].map(Number);
  const [red = NaN, green = NaN, blue = NaN] = parts
    .map((part) => part / 255)
    .map((part) => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4));
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
}
