// The dashboard's layout on screens of all sizes and in several fonts, its colours, and its charts under the pointer.

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';

import type { Details, Flow, Message } from '../../packages/dashboard/state.ts';
import { stepMs } from '../../packages/figures/history.ts';
import { missingFonts, TestBrowser, type WatchedPage } from '../helpers/browser.ts';
import { createFlow, createFlows, reads, withState } from './report.ts';

let browser: TestBrowser;
before(async () => {
  browser = await TestBrowser.start();
});
after(() => browser[Symbol.asyncDispose]());

const minuteMs = 60_000;
const hosts = ['localhost:5104', 'backend.internal:33709', `${'backend'.repeat(8)}.example.com:5104`];
const longPath = `/api/work-items/${'9'.repeat(60)}`;

/** The flow of a step: large figures, and a small one 6 minutes ago. Those of clients and backend are equal. */
function flowAt(step: number): Flow {
  const [count, ms] = step === 98 ? [555, 150] : [123_456, 12_345];
  const failed = { backend: step, gateway: step, client: step };
  return createFlow({ requests: count, backendCalls: count, failed, p50: ms, p99: ms, backendP50: ms, backendP99: ms });
}

/** A gateway with large figures, long paths and failures, for which the page needs room. Its verdict has the longest title. */
function fill({ now, facts }: Message & Details): Partial<Message & Details> {
  const setting = { flag: '', unit: undefined, source: 'environment', help: 'Base address. '.repeat(30) } as const;
  const call = { operation: 'update', client: '127.0.0.1', status: 500, durationMs: 1.5, party: 'backend' } as const;
  const causes = [...hosts.map((host) => `no answer from http://${host}/`), ...Array<string>(57).fill('status 503')];
  const update = createFlow({
    ...{ requests: 120, byStatus: { '2xx': 0, '4xx': 0, '5xx': 120, none: 0 }, backendCalls: 120 },
    failed: { backend: 120, gateway: 0, client: 0 },
  });
  const none = createFlow({ failed: { backend: 0, gateway: 0, client: 1_234 } });
  const flows = createFlows({ update, none, all: createFlow({ ...update, requests: 1_320, backendCalls: 1_320 }) });
  const lastMinute = { from: now.at - minuteMs, seconds: 60, flows, failures: { refused: 120, 'invalid-id': 1_234 } };
  return {
    facts: {
      ...{ ...facts, instanceName: 'staging-eu-1', hostName: 'host-1', pid: 4_321 },
      settings: hosts.map((host, index) => ({ ...setting, variable: `URL_${index}`, value: `http://${host}/` })),
    },
    now: {
      ...{ ...now, requestsEver: 1_320, lastMinute, wholeHistory: { ...lastMinute, from: now.at - 15 * minuteMs } },
      troubles: { ...now.troubles, failing: { code: 'redirect', operation: 'update', cause: 'status 302' } },
    },
    points: Array.from({ length: 170 }, (_, step) => ({
      ...{ at: now.at - (169 - step) * stepMs, seconds: stepMs / 1_000, workerDeaths: 0 },
      flows: createFlows({ all: flowAt(step) }),
      ...{ inFlight: 0, bufferedBytes: 0, residentBytes: 60 * 1_048_576, eventLoopDelayMs: 0 },
    })),
    failures: causes.map((cause, index) => ({
      ...{ ...call, at: now.at - index, path: longPath, outcome: 'refused', cause },
      requestId: `c5dfe5d9-fa75-4dde-ad92-6924108730${10 + index}`,
    })),
  };
}

interface Box {
  readonly top: number;
  readonly bottom: number;
  readonly left: number;
  readonly right: number;
  readonly height: number;
}

/** The positions of all visible elements that match `selector`, at one moment. */
async function boxesOf({ page }: WatchedPage, selector: string): Promise<Box[]> {
  return await page.evaluate<Box[]>(`[...document.querySelectorAll('${selector}')]
    .map((each) => each.getBoundingClientRect().toJSON()).filter(({ height }) => height > 0)`);
}

const isBefore = (one: Box, other: Box): boolean => one.right <= other.left + 1 || one.bottom <= other.top + 1;
const areApart = (one: Box, other: Box): boolean => isBefore(one, other) || isBefore(other, one);

/** Fails if the page is wider than its window, or if a table cuts off a column. The page lays out tables in the next frame. */
async function assertFits(watched: WatchedPage, width: number, height: number): Promise<void> {
  await watched.page.setViewportSize({ width, height });
  await watched.page.evaluate('new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))');
  await watched.assertFits();
  const cut = await watched.page.evaluate<string[]>(`[...document.querySelectorAll('.wide')]
    .filter(({ scrollWidth, clientWidth }) => scrollWidth > clientWidth).map((each) => each.id)`);
  assert.deepEqual(cut, [], `tables that are cut off at ${width} px`);
}

test('on screens of all sizes: controls and charts are aligned, failed calls are short, and wide ones show all operations without scrolling', async () => {
  await withState(browser, fill, async (watched) => {
    const { page } = watched;
    await reads(watched, 'header', /Work Item Gateway\s+staging-eu-1\s+on host-1, process 4321/);
    assert.match(await page.title(), /^staging-eu-1: .+ – Work Item Gateway$/);
    await page.getByRole('radio', { name: '15 minutes' }).check({ force: true });
    // 640 px is 1280 px at a zoom of 200 %. `rowMax`: the height of a failed call with a short cause.
    for (const [width, height, rowMax] of [
      [360, 740, 72],
      [640, 360, 72],
      [768, 1_024, 56],
      [1_024, 768, 56],
      [1_280, 720, 56],
      [1_440, 900, 36],
      [1_920, 1_080, 36],
      [2_560, 1_440, 46],
    ] as const) {
      await assertFits(watched, width, height);
      await page.evaluate('scrollTo(0, 0)');
      const [place] = await boxesOf(watched, '#charts');
      const [first, second] = await boxesOf(watched, '#traffic fieldset');
      assert.ok(place && first && second);
      const rows = Map.groupBy(await boxesOf(watched, '#charts figure'), ({ top }) => top);
      for (const row of rows.values()) {
        assert.ok(Math.abs((row.at(-1)?.right ?? 0) - place.right) < 2, 'no gap next to a chart');
      }
      if (width < 1_000) assert.equal(first.left, place.left, 'in narrow windows all controls begin on the left');
      assert.ok(second.top === first.top || second.left === first.left);
      if (width >= 1_280) {
        const parts = '#verdict, #parties li, #charts figure, #operation-table tbody tr';
        for (const { bottom } of await boxesOf(watched, parts))
          assert.ok(bottom <= height, `${bottom} of ${height} px`);
      }
      for (const chart of ['requests', 'failed-requests', 'latency']) {
        const labels = await boxesOf(watched, `.${chart} .area span`);
        for (const [index, one] of labels.entries()) {
          for (const other of labels.slice(index + 1))
            assert.ok(areApart(one, other), `labels of ${chart} at ${width} px`);
        }
      }
      await assertFailedCalls(watched, width, rowMax);
      for (const colorScheme of ['light', 'dark'] as const) {
        await page.emulateMedia({ colorScheme });
        await watched.savePicture(`dashboard-${width}-${colorScheme}`);
      }
    }
    watched.assertClean(page.url());

    await page.setViewportSize({ width: 360, height: 740 });
    // The names come from the table's head, which is hidden at this width.
    const shown = await page.evaluate<string[]>(`
      [...document.querySelectorAll('#operation-table tbody .update td')].map(({ dataset }) =>
        [dataset.group, dataset.name].filter((each) => each !== undefined).join(': '))`);
    const names = 'per second,Replies: 2xx,4xx,5xx,none,Failed due to: clients,gateway,backend,Duration: p50,p99';
    assert.equal(shown.join(), `${names},Backend calls: failed,p50,p99,`);
    // As in the moment when a window has become narrow, before the tables are laid out for it.
    const isWider = await page.evaluate<boolean>(`
      for (const table of document.querySelectorAll('.wide')) table.dataset.layout = 'columns';
      document.documentElement.scrollWidth > innerWidth;`);
    assert.equal(isWider, false, 'no layout of a table makes the page wider');
  });
});

/** Fails if a failed call is high, overlaps itself, is in a wrong order, or breaks a value after a few characters. */
async function assertFailedCalls(watched: WatchedPage, width: number, rowMax: number): Promise<void> {
  const at = `${width} px`;
  const rows = await boxesOf(watched, '#failure-table tbody tr');
  assert.equal(rows.length, 50);
  for (const { height } of rows.slice(hosts.length)) assert.ok(height <= rowMax, `${at}: ${height} px high`);
  const row = '#failure-table tbody tr:nth-child(10)';
  const cells = await boxesOf(watched, `${row} > *`);
  for (const [index, one] of cells.entries()) {
    assert.ok(
      cells.slice(index + 1).every((other) => areApart(one, other)),
      `${at}: cell ${index} overlaps another`,
    );
  }
  const [path, client, copy] = await boxesOf(
    watched,
    ['td.path', 'td.client', '.copy'].map((part) => `${row} ${part}`).join(),
  );
  assert.ok(path && client && copy);
  assert.ok(path.left < client.left && isBefore(client, copy), `${at}: path, client and button are in reading order`);
  for (const { right } of [path, client, copy]) assert.ok(right <= width, `${at}: completely visible`);
  assert.equal(await watched.page.locator(`${row} td.path`).getAttribute('title'), longPath);
  if (width < 1_280) return;
  const lines = await watched.page.evaluate<string[]>(`
    [...document.querySelectorAll('.value code, tr:nth-child(-n + 3) .kind small')].map(({ firstChild: text }) => {
      const tops = [...text.data].map((_, at) => {
        const range = new Range();
        range.setStart(text, at);
        range.setEnd(text, at + 1);
        return range.getBoundingClientRect().top;
      });
      return text.data.slice(tops.indexOf(tops.at(-1)));
    })`);
  assert.equal(lines.length, 2 * hosts.length);
  for (const line of lines) assert.ok(line.length > 8, `${at}: the line ${line}`);
  const cut = await watched.page.evaluate<number>(
    "[...document.querySelectorAll('.id code')].filter((id) => id.scrollWidth > id.clientWidth).length",
  );
  assert.ok(width < 1_920 || cut === 0, `${at}: ids of 36 characters are shown in full`);
}

for (const fonts of [['Open Sans'], ['DejaVu Sans', 'URW Bookman']]) {
  const usesMachineFonts = fonts.length > 1;
  const skip = usesMachineFonts && missingFonts;
  test(`in ${fonts.join(' and ')}, the page fits windows of any width, and no chart moves when the pointer comes`, { skip }, async () => {
    await using installed = usesMachineFonts ? await TestBrowser.start({ usesMachineFonts }) : undefined;
    await withState(installed ?? browser, fill, async (watched) => {
      const { page } = watched;
      const places = () => boxesOf(watched, '.area');
      for (const font of fonts) {
        await page.evaluate(`(() => {
          const style = new CSSStyleSheet();
          style.replaceSync(':root { font-family: "${font}" }');
          document.adoptedStyleSheets = [style];
        })()`);
        for (let width = 1_440; width >= 320; width -= 48) {
          await assertFits(watched, width, 900);
          if (width % 240 !== 0) continue;
          const area = page.locator('.latency .area');
          await area.scrollIntoViewIfNeeded();
          const before = await places();
          await area.hover({ position: { x: 100, y: 1 } });
          await reads(watched, '.latency .when', /^at /);
          assert.deepEqual(await places(), before, `the charts at ${width} px`);
          await page.mouse.move(0, 0);
        }
      }
    });
  });
} // prettier-ignore

test('all charts show the time and the values under the pointer, with the narrower line of the backend on top', async () => {
  await withState(browser, fill, async (watched) => {
    const { page } = watched;
    for (const chart of ['.requests', '.latency']) {
      const lines = await page.evaluate<[string, number, string, string][]>(
        `[...document.querySelectorAll('${chart} .line')].map((path) => {
          const { strokeWidth, stroke } = getComputedStyle(path);
          return [path.getAttribute('class'), parseFloat(strokeWidth), stroke, path.getAttribute('d')];
        })`,
      );
      const names = lines.map(([name]) => name);
      assert.deepEqual(names, names.toSorted().toReversed(), "the backend's lines are drawn last");
      const [[, wide, ink, below]] = lines as [[string, number, string, string]];
      const [, narrow, blue, above] = lines.find(([name]) => name === 'line backend') ?? assert.fail();
      assert.ok(wide >= narrow + 2);
      assert.notEqual(ink, blue);
      assert.equal(below, above, 'equal values');
    }
    await reads(watched, '.latency figcaption', /Latency ms, logarithmic/);
    await reads(watched, '#loads > div:nth-child(3) .spark', /^60\.0\sMiB0$/);
    const box = (await page.locator('.requests .area').boundingBox()) ?? assert.fail('no chart');
    const agoMs = (169 - 98) * stepMs;
    await page.mouse.move(box.x + (1 - agoMs / (15 * minuteMs)) * box.width, box.y + 20);
    for (const chart of ['requests', 'failed-requests', 'latency']) {
      await reads(watched, `.${chart} .when`, /^at \d\d:\d\d:\d\d$/);
      await reads(watched, `.${chart} .pointed`, /^\d\d:\d\d:\d\d$/);
    }
    await reads(watched, '.requests [data-party=gateway]', /from clients 111$/);
    await reads(watched, '.failed-requests [data-party=client]', /clients 98$/);
    await reads(watched, '.latency [data-party=gateway]', /p50 150\sms p99 150\sms$/);
    assert.notEqual(await page.locator('.latency .dot.gateway').first().getAttribute('d'), '');
    await page.mouse.move(0, 0);
    await reads(watched, '.requests .when', /^in the last minute$/);
    assert.equal(await page.locator('.pointed').filter({ visible: true }).count(), 0);
  });
});

test('light and dark, the page is accessible, and each colour has one meaning and enough contrast', async () => {
  // Few rows, because the checker needs much time for each.
  const fillLess = (state: Message & Details) => {
    const { facts = state.facts, failures = [], ...more } = fill(state);
    return { ...more, facts: { ...facts, settings: facts.settings.slice(0, 1) }, failures: failures.slice(0, 2) };
  };
  await withState(browser, fillLess, async (watched) => {
    for (const colorScheme of ['light', 'dark'] as const) {
      await watched.page.emulateMedia({ colorScheme });
      await watched.page.setViewportSize({ width: colorScheme === 'light' ? 1_440 : 360, height: 900 });
      assert.deepEqual(await watched.findAccessibilityProblems(), []);
      const [page, ink, live, backend, alarm, link, backendFigure, unwell, gateway, changed, ...bars] = await watched
        .page.evaluate<string[]>(`(() => {
          const of = (selector, property = 'color', part) =>
            getComputedStyle(document.querySelector(selector), part)[property];
          const signOf = (selector) => of(selector, 'backgroundColor', '::before');
          return [
            of('body', 'backgroundColor'), of('body'), signOf('#connection'), signOf('.party.backend'), of('td.bad'),
            of('footer a'), of('.update td.backend:not(.bad)'), of('[data-level=unwell] #verdict-title'),
            signOf('.party.gateway'), of('.chosen .value code'),
            ...['gateway', 'backend', 'client'].map((party) => of('.failed-requests .bars.' + party, 'fill')),
          ];
        })()`);
      assert.equal(new Set([page, ink, live, backend, alarm]).size, 5, 'five different colours');
      assert.deepEqual([backendFigure, unwell, gateway, changed], [backend, alarm, ink, ink]);
      for (const other of [backend, live, alarm]) assert.notEqual(link, other);
      // WCAG 2.2 requires 3 for graphics; the checker requires 4.5 for text.
      assert.equal(bars.length, 3);
      for (const color of [live, backend, alarm, ...bars]) assert.ok(contrastOf(color, page) >= 3, color ?? '');
    }
  });
});

function contrastOf(one = '', other = ''): number {
  const [low = NaN, high = NaN] = [luminanceOf(one), luminanceOf(other)].toSorted((a, b) => a - b);
  return (high + 0.05) / (low + 0.05);
}

/** The luminance of `rgb(r, g, b)`, as WCAG defines it. */
function luminanceOf(color: string): number {
  const [red = NaN, green = NaN, blue = NaN] = [...color.matchAll(/\d+/g)]
    .map(([part]) => Number(part) / 255)
    .map((part) => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4));
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
}
