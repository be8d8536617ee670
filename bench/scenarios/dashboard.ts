// The cost of open dashboards: the gateway's CPU time per call with and without dashboards, their CPU time on an idle gateway,
// and the time to the page's first paint.
import { setTimeout as delay } from 'node:timers/promises';
import { TestBrowser } from '../../test/helpers/browser.ts';
import { findFreePort } from '../../test/helpers/haproxy.ts';
import { readState } from '../../test/helpers/dashboard-state.ts';
import { WARMUP, type Scenario } from '../bench.ts';
import { processorMs } from '../processes.ts';
import { formatUs, median } from '../tables.ts';
import { ITEM_WORKLOAD } from '../workloads.ts';

const DASHBOARDS = 10;
const SHARE_MAX = 0.02;
const FIRST_PAINT_MS_MAX = 1_000;
const REST_MS = 5_000;
const PAINTS = 5;

export const scenario: Scenario = {
  title: 'cost of open dashboards',
  rounds: 10,
  seconds: 4,
  minutes: 2,
  isApart: true,
  run: async (bench) => {
    const port = await findFreePort();
    const one = await bench.start('gateway', { env: { ADMIN_PORT: String(port) } });
    const cases = [
      { name: 'no dashboard', count: 0 },
      { name: `${DASHBOARDS} dashboards`, count: DASHBOARDS },
    ];
    /** Reads the state as `count` open pages do, until the signal. Returns how often each one has read it. */
    const watch = async (count: number, signal: AbortSignal): Promise<number> => {
      let reads = 0;
      while (!signal.aborted) {
        await Promise.all(Array.from({ length: count }, () => readState(port)));
        reads += 1;
        await delay(1_000, undefined, { signal }).catch(() => undefined);
      }
      return reads;
    };

    const results = await bench.takeTurns(
      cases,
      async ({ count }, round) => {
        const end = new AbortController();
        const pages = watch(count, end.signal);
        const { us } = await bench.load({ one, workload: ITEM_WORKLOAD }, round === 0 ? WARMUP : undefined);
        end.abort();
        if ((await pages) < 2 && bench.seconds > 2) throw new Error('the dashboards stood still');
        return us;
      },
      (us) => `${us.toFixed(1)} µs`,
    );
    const [without = [], withDashboards = []] = results.values();
    const share = median(withDashboards.map((us, round) => us / (without[round] ?? NaN) - 1));

    const restShares: number[] = [];
    for (const { count } of cases) {
      const end = new AbortController();
      const pages = watch(count, end.signal);
      const before = processorMs(one.pid);
      await delay(REST_MS);
      restShares.push((processorMs(one.pid) - before) / REST_MS);
      end.abort();
      await pages;
    }
    bench.print(
      'CPU time',
      ['', 'µs a call', 'cores when idle', 'other work, cores'],
      [...results].map(([{ name }, all], index) => [
        name,
        formatUs(median(all)),
        restShares[index]?.toFixed(4),
        bench.noise(name),
      ]),
    );
    bench.note(`${(share * 100).toFixed(1)} % more in the median round`);
    if (share > SHARE_MAX) bench.miss(`${(share * 100).toFixed(1)} % more instead of ${SHARE_MAX * 100} %`);

    await using browser = await TestBrowser.start();
    const paints: number[] = [];
    for (let paint = 0; paint < PAINTS; paint++) {
      await using watched = await browser.open(`http://127.0.0.1:${port}/`);
      await watched.page.locator('#connection[data-state=live]').waitFor();
      const time = "performance.getEntriesByName('first-contentful-paint')[0].startTime";
      paints.push(await watched.page.evaluate<number>(time));
    }
    bench.note(`first paint: ${paints.map((ms) => ms.toFixed(0)).join(', ')} ms`);
    if (median(paints) > FIRST_PAINT_MS_MAX) bench.miss(`first paint after ${median(paints).toFixed(0)} ms`);
    return undefined;
  },
};
