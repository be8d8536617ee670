// The dashboard's charts: scales and paths, and the charts of a page whose gateway restarts.

import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';

import type { Flow, Point } from '../../packages/dashboard/state.ts';
import { missingFonts, TestBrowser, WatchedPage } from '../helpers/browser.ts';
import { poll } from '../helpers/changes.ts';
import { startCommand } from '../helpers/command.ts';
import { useBackend } from '../helpers/suites.ts';
import { openDashboard, reads } from './dashboard-page.ts';
import { Figures } from '../../packages/figures/figures.ts';
import { stepMs } from '../../packages/figures/history.ts';
import { createFlow, createFlows, createReport, withAdmin, withState } from './report.ts';

interface Scale {
  readonly place: (value: number) => number;
  readonly ticks: readonly number[];
}
interface Step {
  readonly at: number;
  readonly values: readonly (number | null)[];
}
const chartsModule = new URL('../../packages/dashboard/page/charts.js', import.meta.url).href;
const { linearScale, logarithmicScale, drawLine, drawBars } = (await import(chartsModule)) as {
  linearScale: (most: number, isOfCounts: boolean) => Scale;
  logarithmicScale: (least: number, most: number) => Scale;
  drawLine: (places: readonly (readonly [left: number, bottom: number] | null)[]) => string;
  drawBars: (steps: readonly Step[], x: (at: number) => number, y: Scale, stepMs: number) => string[];
};

let browser: TestBrowser;
const backend = await useBackend();
before(async () => {
  browser = await TestBrowser.start();
});
after(async () => {
  await browser[Symbol.asyncDispose]();
});

const steps = 170;

/** Opens a dashboard with 14 minutes of constant load. `change` returns the figures that differ in a step. */
async function withPoints(
  change: (step: number) => Partial<Flow>,
  act: (watched: WatchedPage, points: readonly Point[]) => Promise<void>,
  { width = 1_440, font = '' } = {},
): Promise<void> {
  const load = { inFlight: 0, bufferedBytes: 0, residentBytes: 60 * 1_048_576, eventLoopDelayMs: 0, workerDeaths: 0 };
  let points: Point[] = [];
  await using installed = font === '' ? undefined : await TestBrowser.start({ usesMachineFonts: true });
  await withState(
    installed ?? browser,
    ({ now }) => {
      points = Array.from({ length: steps }, (_, step) => ({
        at: now.at - (steps - 1 - step) * stepMs,
        seconds: stepMs / 1_000,
        flows: createFlows({ all: createFlow({ p99: 20, backendP99: 20, ...change(step) }) }),
        ...load,
      }));
      return { points };
    },
    async (watched) => {
      await reads(watched, '.requests .when', /^in the last minute$/);
      await watched.page.evaluate(`(() => {
        const style = new CSSStyleSheet();
        style.replaceSync('${font && `:root { font-family: "${font}" }`}');
        document.adoptedStyleSheets = [style];
      })()`);
      await act(watched, points);
    },
    { width, height: 900 },
  );
}

/** Counts the points in time that the arrow keys reach in the chart of requests. */
async function countTimes({ page }: WatchedPage): Promise<number> {
  const said = page.locator('#said');
  await page.locator('.requests .area').focus();
  const texts = new Set<string>();
  await page.keyboard.press('Home');
  for (let text = await said.textContent(); text !== null && text !== '' && !texts.has(text);) {
    texts.add(text);
    await page.keyboard.press('ArrowRight');
    text = await said.textContent();
  }
  await page.locator('#pause').focus();
  return texts.size;
}

describe('scales and paths', () => {
  test('latency: one spike of 150 ms leaves the other values readable', () => {
    const { place, ticks } = logarithmicScale(8, 150);
    const [p50, p99, spike] = [place(8), place(20), place(150)];
    assert.ok(p50 > 5 && p99 - p50 > 15 && spike - p99 > 30 && spike <= 100, `${p50}, ${p99}, ${spike}`);
    assert.deepEqual(ticks, [5, 10, 50, 100]);
    assert.deepEqual(logarithmicScale(8, 20).ticks, [5, 10, 20, 50]);
    assert.deepEqual(logarithmicScale(0.4, 900).ticks, [1, 10, 100, 1_000]);
    assert.deepEqual(logarithmicScale(0.01, 1).place(0), logarithmicScale(0.01, 1).place(0.01), 'zero is drawn as 0.01 ms');
  });

  test('other scales begin at zero and have a few ticks at round numbers; scales of counts have ticks only at whole numbers', () => {
    for (const [most, isOfCounts, ticks] of [
      [0, false, [0, 0.5, 1]],
      [0, true, [0, 1]],
      [3, true, [0, 1, 2, 3]],
      [9.2, false, [0, 5]],
      [210, false, [0, 100, 200]],
      [48_000, true, [0, 20_000, 40_000]],
    ] as const) {
      const scale = linearScale(most, isOfCounts);
      assert.deepEqual(scale.ticks, ticks, String(most));
      assert.equal(scale.place(0), 0);
      assert.ok(scale.place(most) < 95, 'there is room above the largest value');
    }
  });

  test('a line breaks where a value is missing, and a value without neighbours is a dot', () => {
    assert.equal(
      drawLine([[0, 0], [10, 50], null, [30, 100], null]),
      'M0.00 100.00h0L10.00 50.00M30.00 0.00h0',
    );
  });

  test('failures: bars are stacked, with the first kind at the bottom; one failure is visible next to hundreds', () => {
    const values = [[300, 200, 100], [0, 0, 0], [1, 0, 0]];
    const bars = drawBars(
      values.map((each, step) => ({ at: 10 + step * 10, values: each })),
      (at) => at,
      { place: (value) => value / 10, ticks: [] },
      5,
    );
    assert.deepEqual(bars, [
      'M5.00 70.00h5.00v30.00H5.00zM25.00 97.50h5.00v2.50H25.00z',
      'M5.00 50.00h5.00v20.00H5.00z',
      'M5.00 40.00h5.00v10.00H5.00z',
    ]);
  });
}); // prettier-ignore

describe('the charts', () => {
  test("the backend's lines are narrower and drawn over the gateway's, so that both lines are visible where their values are equal", async () => {
    await withPoints(
      () => ({}),
      async (watched) => {
        for (const chart of ['.requests', '.latency']) {
          const lines = await watched.page.evaluate<[string, number, string, string][]>(
            `[...document.querySelectorAll('${chart} .line')].map((path) => {
              const { strokeWidth, stroke } = getComputedStyle(path);
              return [path.getAttribute('class'), parseFloat(strokeWidth), stroke, path.getAttribute('d')];
            })`,
          );
          const parties = lines.map(([name]) => name.replace('line ', ''));
          assert.deepEqual(parties, parties.toSorted().toReversed(), "the backend's lines are drawn last");
          const [[, wide, ink, below]] = lines as [[string, number, string, string]];
          const [, narrow, blue, above] = lines.find(([name]) => name === 'line backend') ?? assert.fail();
          assert.ok(wide >= narrow + 2);
          assert.notEqual(ink, blue);
          assert.equal(below, above, 'equal values');
        }
        await reads(watched, '.latency figcaption', /Latency ms, logarithmic scale/);
        await reads(watched, '#loads > div:nth-child(3) .spark', /^60\.0\sMiB0$/);
      },
    );
  });

  test('all charts show the time and the values under the pointer', async () => {
    await withPoints(
      (step) => (step === 90 ? { requests: 555, p99: 150 } : {}),
      async (watched, points) => {
        const { page } = watched;
        const box = (await page.locator('.requests .area').boundingBox()) ?? assert.fail('no chart');
        const at = points[90]?.at ?? 0;
        const share = 1 - ((points.at(-1)?.at ?? 0) - at) / 900_000;
        await page.mouse.move(box.x + share * box.width, box.y + 20);
        const time = await page.evaluate<string>(`new Date(${at}).toTimeString().slice(0, 8)`);
        for (const chart of ['requests', 'failed-requests', 'latency']) {
          await reads(watched, `.${chart} .when`, new RegExp(`^at ${time}$`));
          await reads(watched, `.${chart} .pointed`, new RegExp(`^${time}$`));
        }
        await reads(watched, '.requests [data-party=gateway]', /from clients 111$/);
        await reads(watched, '.latency [data-party=gateway]', /p99 150\sms$/);
        assert.notEqual(await page.locator('.latency .dot.gateway').first().getAttribute('d'), '');
        await page.mouse.move(0, 0);
        await reads(watched, '.requests .when', /^in the last minute$/);
        assert.equal(await page.locator('.pointed').filter({ visible: true }).count(), 0);
      },
    );
  });

  for (const font of ['', 'DejaVu Sans', 'URW Bookman']) {
    for (const width of [360, 768, 1_024, 1_440]) {
      const skip = font !== '' && missingFonts;
      test(
        `${width} px wide, no chart moves when the pointer comes to it, in the font ${font || 'Open Sans'}`,
        { skip },
        async () => {
          await withPoints(
            () => ({ requests: 123_456, p50: 12_345, p99: 12_345, backendP50: 12_345, backendP99: 12_345 }),
            async (watched) => {
              const { page } = watched;
              const area = page.locator('.latency .area');
              const placesOf = async (): Promise<unknown> =>
                await page.evaluate(
                  `[...document.querySelectorAll('.area')].map((each) => JSON.stringify(each.getBoundingClientRect()))`,
                );
              await area.scrollIntoViewIfNeeded();
              const places = await placesOf();
              await area.hover({ position: { x: 100, y: 1 } });
              await reads(watched, '.latency .when', /^at /);
              assert.deepEqual(await placesOf(), places);
            },
            { width, font },
          );
        },
      );
    }
  }

  test('a lost connection is shown; after a restart the page is live again, marks the restart and keeps earlier values', async () => {
    let gateway = await startCommand({ BACKEND_URL: backend.url });
    try {
      const { port, adminPort } = gateway;
      await using watched = await openDashboard(browser, gateway);
      const { page } = watched;
      await gateway.call('GET', '/api/work-items');
      const area = page.locator('.requests .area');
      await page.locator('.requests .area[aria-label*="from clients"][aria-label*=", started "]').waitFor();
      await poll(async () => (await countTimes(watched)) > 0, 'a step is drawn', 15_000);
      await gateway.stop();
      await reads(watched, '#lost', /^No connection to the gateway since \d\d:\d\d:\d\d/);
      await reads(watched, '#connection', /^Connection lost$/);
      await reads(watched, '#verdict-title', /^No connection to the gateway$/);
      await reads(watched, '#verdict-detail', /^Last verdict, at \d\d:\d\d:\d\d: /);
      assert.match(await page.title(), /: No connection – Work Item Gateway$/);
      await watched.savePicture('dashboard-lost-light');
      const before = await countTimes(watched);
      gateway = await startCommand({ BACKEND_URL: backend.url, PORT: String(port), ADMIN_PORT: String(adminPort) });
      await reads(watched, '#connection', /^Live$/);
      await page.locator('#lost').waitFor({ state: 'hidden' });
      await reads(watched, '#verdict-title', /^All is well$/);
      await page.locator('.requests .area[aria-label*=", restarted "]').waitFor();
      assert.match(
        (await area.getAttribute('aria-label')) ?? '',
        /, restarted \d\d:\d\d\. Read its values with the arrow keys/,
      );
      assert.ok((await countTimes(watched)) >= before, 'the earlier values are still drawn');
      assert.ok(
        await page.locator('#traffic').isVisible(),
        'the charts are visible, although the new process has served no call',
      );
      await gateway.call('GET', '/api/work-items');
      await reads(watched, '#operation-table tbody .list', /\d\sms/);
      // The browser logs each failed attempt to reconnect.
      const isExpected = /ERR_CONNECTION_|ERR_INCOMPLETE_|ERR_EMPTY_|ERR_ABORTED/;
      assert.deepEqual(
        watched.takeProblems().filter((problem) => !isExpected.test(problem)),
        [],
      );
    } finally {
      await gateway.stop();
    }
  });

  test('workers that died are marked [D63]', async () => {
    const figures = new Figures();
    for (let call = 0; call < 9; call += 1) figures.recordMalformed(400);
    await withAdmin(
      () => [createReport({ figures: figures.toJSON() })],
      async (adminPort) => {
        await using watched = await openDashboard(browser, { adminPort });
        figures.count('death killed');
        figures.count('death frozen');
        await watched.page.locator('.requests .area[aria-label*=", 2 workers died "]').waitFor({ timeout: 15_000 });
      },
    );
  });
});
