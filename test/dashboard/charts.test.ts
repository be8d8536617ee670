// The dashboard's charts in a real browser. The page's module draws 15 minutes of test data; then a real gateway is
// restarted while a page is open.

import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';

import type { Flow, FlowName, Point, Summary } from '../../packages/dashboard/state.ts';
import { TestBrowser, type PageOptions, type WatchedPage } from '../helpers/browser.ts';
import { openDashboard, reads } from '../helpers/dashboard-page.ts';
import { Figures } from '../../packages/figures/figures.ts';
import type { Report } from '../../packages/figures/report.ts';
import { poll } from '../helpers/changes.ts';
import { useBackend } from '../helpers/suites.ts';
import { startCommand } from '../helpers/targets.ts';
import { createReport, withAdmin } from './report.ts';

let browser: TestBrowser;
const backend = await useBackend();
before(async () => {
  browser = await TestBrowser.start();
});
after(async () => {
  await browser[Symbol.asyncDispose]();
});

const stepMs = 5_000;
const steps = 180;
const now = Date.UTC(2026, 0, 1, 12);

const quiet: Flow = {
  requests: 100,
  byStatus: { '2xx': 100, '4xx': 0, '5xx': 0, none: 0 },
  failed: { backend: 0, gateway: 0, client: 0 },
  p50: 8,
  p99: 20,
  mean: 9,
  backendCalls: 100,
  backendFailed: 0,
  backendP50: 8,
  backendP99: 20,
  backendMean: 8,
};

function flowsOf(all: Flow): Record<FlowName, Flow> {
  const none = { ...quiet, requests: 0 };
  return { all, list: all, create: none, read: none, update: none, delete: none, none };
}

/** 15 minutes of constant load. `change` returns the figures that differ at a step. */
function createPoints(change: (step: number) => Partial<Flow>): Point[] {
  return Array.from({ length: steps }, (_, step) => ({
    at: now - (steps - 1 - step) * stepMs,
    seconds: stepMs / 1_000,
    flows: flowsOf({ ...quiet, ...change(step) }),
    inFlight: 0,
    bufferedBytes: 0,
    residentBytes: 0,
    eventLoopDelayMs: 0,
    workerDeaths: 0,
  }));
}

/** Draws `points` in a new element of the dashboard, 1300 px wide. */
async function draw(watched: WatchedPage, points: readonly Point[]): Promise<void> {
  const summary: Summary = { from: now - 60_000, seconds: 60, flows: flowsOf(quiet), failures: {} };
  await watched.page.evaluate<unknown>(`(async () => {
    const { Charts } = await import('/dashboard/charts.js');
    const place = document.createElement('div');
    place.id = 'drawn';
    place.className = 'charts';
    place.style.width = '1300px';
    document.querySelector('main').prepend(place);
    globalThis.drawn = new Charts(place, () => undefined);
    globalThis.drawn.show({
      points: ${JSON.stringify(points)},
      flow: 'all',
      from: ${(now - steps * stepMs) / 1_000},
      to: ${now / 1_000},
      stepMs: ${stepMs},
      summary: ${JSON.stringify(summary)},
      summaryName: 'in the last minute',
      marks: [],
    });
    await new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(resolve)));
  })()`);
}

/** The colours of a chart's pixels at the time of `step`, from the top; '' where nothing is drawn. */
async function readColumn(watched: WatchedPage, chart: string, step: number): Promise<string[]> {
  return await watched.page.evaluate<string[]>(`(() => {
    const chart = globalThis.drawn.charts.find(({ kind }) => kind.title === '${chart}');
    const { plot } = chart;
    const left = plot.valToPos(${(now - (steps - 1 - step) * stepMs) / 1_000}, 'x', true);
    const { data } = plot.ctx.getImageData(Math.round(left) - 1, Math.floor(plot.bbox.top), 1, Math.ceil(plot.bbox.height) + 2);
    return Array.from({ length: data.length / 4 }, (_, index) =>
      data[index * 4 + 3] < 128 ? ''
      : '#' + [0, 1, 2].map((part) => data[index * 4 + part].toString(16).padStart(2, '0')).join(''));
  })()`);
}

/** Opens the dashboard of an idle gateway, whose report `more` changes. */
async function withPage(
  act: (watched: WatchedPage) => Promise<void>,
  options: PageOptions = { width: 1_440, height: 900 },
  more: Partial<Report> = {},
): Promise<void> {
  await withAdmin(
    () => [createReport(more)],
    async (adminPort) => {
      await using watched = await openDashboard(browser, { adminPort }, options);
      await act(watched);
    },
  );
}

async function colorOf(watched: WatchedPage, name: string): Promise<string> {
  return await watched.page.evaluate<string>(
    `getComputedStyle(document.documentElement).getPropertyValue('--${name}').trim()`,
  );
}

function distanceOf(one: string, other: string): number {
  const part = (color: string, at: number) => Number.parseInt(color.slice(at, at + 2), 16);
  return Math.hypot(...[1, 3, 5].map((at) => part(one, at) - part(other, at)));
}

/** The number of times in the chart of requests that the arrow keys reach. */
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

describe('the charts', () => {
  test('latency: one spike of 150 ms leaves the other values readable, and the scale is named', async () => {
    await withPage(async (watched) => {
      await draw(
        watched,
        createPoints((step) => (step === 90 ? { p99: 150, backendP99: 150 } : {})),
      );
      const share = async (ms: number) =>
        await watched.page.evaluate<number>(`(() => {
          const { plot } = globalThis.drawn.charts[2];
          return 1 - plot.valToPos(${ms}, 'y') / plot.over.clientHeight;
        })()`);
      const [p50, p99, spike] = [await share(8), await share(20), await share(150)];
      assert.ok(p50 > 0.05 && p99 - p50 > 0.15 && spike - p99 > 0.3 && spike <= 1, `${p50}, ${p99}, ${spike}`);
      await reads(watched, '#drawn .latency figcaption', /Latency ms, logarithmic scale/);
    });
  });

  test('two lines with equal values are both visible', async () => {
    for (const colorScheme of ['light', 'dark'] as const) {
      await withPage(
        async (watched) => {
          await draw(
            watched,
            createPoints(() => ({})),
          );
          const gateway = await colorOf(watched, 'gateway-line');
          const backend = await colorOf(watched, 'backend-line');
          for (const chart of ['Requests', 'Latency']) {
            // The edges of a line blend with the background: each pixel counts for the nearer colour.
            const column = (await readColumn(watched, chart, 90))
              .filter((each) => each !== '')
              .map((each) => (distanceOf(each, backend) < distanceOf(each, gateway) ? 'backend' : 'gateway'));
            const runs = column.filter((each, index) => each !== column[index - 1]);
            assert.match(runs.join(' '), /gateway backend gateway/, `${chart}, ${colorScheme}`);
          }
        },
        { width: 1_440, height: 900, colorScheme },
      );
    }
  });

  test('failures: stacked bars in the colours of the parties, and one failure is visible next to hundreds', async () => {
    await withPage(async (watched) => {
      await draw(
        watched,
        createPoints((step) => {
          if (step === 60) return { failed: { backend: 300, gateway: 200, client: 100 } };
          return step === 120 ? { failed: { backend: 1, gateway: 0, client: 0 } } : {};
        }),
      );
      const [backend, gateway, client] = [
        await colorOf(watched, 'backend-line'),
        await colorOf(watched, 'gateway-line'),
        await colorOf(watched, 'client-line'),
      ];
      const high = await readColumn(watched, 'Failed requests', 60);
      const heights = [client, gateway, backend].map((color) => high.filter((each) => each === color).length);
      const [ofClients = 0, ofGateway = 0, ofBackend = 0] = heights;
      assert.ok(Math.abs(ofGateway - 2 * ofClients) <= 2 && Math.abs(ofBackend - 3 * ofClients) <= 3, heights.join());
      assert.deepEqual(
        [...new Set(high.filter((each) => [client, gateway, backend].includes(each)))],
        [client, gateway, backend],
        'the order of the bars from the top',
      );
      const low = await readColumn(watched, 'Failed requests', 120);
      assert.ok(low.filter((each) => each === backend).length >= 2, 'a single failure');
      assert.ok(!(await readColumn(watched, 'Failed requests', 90)).includes(backend), 'no failure');
    });
  });

  test('all charts show the time and the values under the pointer', async () => {
    await withPage(async (watched) => {
      const { page } = watched;
      await draw(
        watched,
        createPoints((step) => (step === 90 ? { requests: 555, p99: 150 } : {})),
      );
      await reads(watched, '#drawn .requests .when', /^in the last minute$/);
      const [left, top] = await page.evaluate<[number, number]>(`(() => {
        const { plot } = globalThis.drawn.charts[0];
        const box = plot.over.getBoundingClientRect();
        return [box.left + plot.valToPos(${(now - (steps - 91) * stepMs) / 1_000}, 'x'), box.top + 20];
      })()`);
      await page.mouse.move(left, top);
      const time = await page.evaluate<string>(`new Date(${now - (steps - 91) * stepMs}).toTimeString().slice(0, 8)`);
      for (const chart of ['requests', 'failed-requests', 'latency']) {
        await reads(watched, `#drawn .${chart} .when`, new RegExp(`^at ${time}$`));
        await reads(watched, `#drawn .${chart} .pointed`, new RegExp(`^${time}$`));
      }
      await reads(watched, '#drawn .requests [data-party=gateway]', /from clients 111$/);
      await reads(watched, '#drawn .latency [data-party=gateway]', /p99 150\sms$/);
      await page.mouse.move(0, 0);
      await reads(watched, '#drawn .requests .when', /^in the last minute$/);
      assert.equal(await page.locator('#drawn .pointed').filter({ visible: true }).count(), 0);
    });
  });

  test('a restart is marked, and the values before it stay', async () => {
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
      await reads(watched, '#connection', /^Connection lost$/);
      const before = await countTimes(watched);
      gateway = await startCommand({ BACKEND_URL: backend.url, PORT: String(port), ADMIN_PORT: String(adminPort) });
      await reads(watched, '#connection', /^Live$/);
      await page.locator('.requests .area[aria-label*=", restarted "]').waitFor();
      assert.match(
        (await area.getAttribute('aria-label')) ?? '',
        /, restarted \d\d:\d\d\. Read its values with the arrow keys/,
      );
      assert.ok((await countTimes(watched)) >= before, 'the earlier values are still drawn');
      assert.ok(await page.locator('#traffic').isVisible(), 'visible, although the new process has served no call');
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
        figures.recordWorkerDeath('killed');
        figures.recordWorkerDeath('frozen');
        await watched.page.locator('.requests .area[aria-label*=", 2 workers died "]').waitFor({ timeout: 15_000 });
      },
    );
  });

  test('the small chart of the memory shows its scale', async () => {
    const more = { residentBytes: 60 * 1_048_576 };
    await withPage((page) => reads(page, '#loads > div:nth-child(3) .spark', /^60\.0\sMiB0$/, 15_000), {}, more);
  });
});
