// Measures the cost of open dashboards. First the gateway's CPU time per request under load, in turns with and without open
// streams. Then the CPU time of the streams on an idle gateway, and the time to the page's first paint. Flags: --rounds N (10),
// --seconds N (4), --streams N (10), --bars to fail beyond the limits.
import { mkdtempSync, rmSync } from 'node:fs';
import { get, type ClientRequest } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import { CONTENDERS } from './contenders.ts';
import type { LoadResult } from './load.ts';
import { readProcessorMs } from './processes.ts';
import { Backend, findFreePort, Load, startContender, stopAll } from './running.ts';
import { TestBrowser } from '../test/helpers/browser.ts';
import { makeShots, WORKLOADS } from './workloads.ts';

const MORE_MAX = 0.02;
const FIRST_PAINT_MS_MAX = 1_000;
const REST_MS = 5_000;
const PAINTS = 5;
const WARMUP = { warmupMs: 1_500, warmupRequests: 20_000 };
const SETTLE_MS = 500;

const { values: flags } = parseArgs({
  options: {
    rounds: { type: 'string', default: '10' },
    seconds: { type: 'string', default: '4' },
    streams: { type: 'string', default: '10' },
    bars: { type: 'boolean', default: false },
  },
});
const rounds = Number(flags.rounds);

interface Viewer {
  request: ClientRequest;
  messages: number;
}

/** Opens a stream as a browser does. Resolves with its first message. */
function openViewer(port: number): Promise<Viewer> {
  return new Promise((resolve, reject) => {
    const request = get({ host: '127.0.0.1', port, path: '/dashboard/events', agent: false }, (answer) => {
      if (answer.statusCode !== 200) reject(new Error(`the stream answers ${String(answer.statusCode)}`));
      answer.on('data', (chunk: Buffer) => {
        viewer.messages += chunk.includes('data: ') ? 1 : 0;
        resolve(viewer);
      });
      answer.on('error', () => undefined);
    });
    const viewer: Viewer = { request, messages: 0 };
    request.on('error', reject);
  });
}

const costOf = (result: LoadResult): number => (result.processorMs * 1000) / result.requests;
const medianOf = (values: number[]): number =>
  values.toSorted((a, b) => a - b)[Math.floor(values.length / 2)] ?? 0;

const gateway = CONTENDERS.find(({ name }) => name === 'gateway');
const workload = WORKLOADS.find(({ name }) => name === 'item');
if (!gateway || !workload) throw new Error('the gateway and the workload item are needed');

const folder = mkdtempSync(join(tmpdir(), 'work-item-gateway-dashboard-'));
try {
  const backend = await Backend.start();
  await backend.order({ list: workload.list });
  const load = await Load.start();
  const adminPort = await findFreePort();
  const withAdminPort = {
    ...gateway,
    start: (place: Parameters<typeof gateway.start>[0]) => {
      const command = gateway.start(place);
      return { ...command, env: { ...command.env, ADMIN_HOST: '127.0.0.1', ADMIN_PORT: String(adminPort) } };
    },
  };
  const one = await startContender(withAdminPort, backend.port, folder);
  const run = async (warmup: typeof WARMUP): Promise<LoadResult> =>
    await load.run({
      port: one.port,
      pid: one.pid,
      ownPids: [backend.pid, process.pid],
      connections: workload.connections,
      shots: makeShots(workload, gateway.job),
      ...warmup,
      measureMs: Number(flags.seconds) * 1000,
      rate: 0,
    });
  const settle = { warmupMs: SETTLE_MS, warmupRequests: 0 };
  await run(WARMUP);
  const costs: { none: number[]; open: number[]; more: number[] } = { none: [], open: [], more: [] };
  const runWithout = async (): Promise<number> => costOf(await run(settle));
  const openViewers = async (): Promise<Viewer[]> =>
    await Promise.all(Array.from({ length: Number(flags.streams) }, async () => await openViewer(adminPort)));
  const runWith = async (): Promise<number> => {
    const viewers = await openViewers();
    const cost = costOf(await run(settle));
    if (viewers.some(({ messages }) => messages < 2)) throw new Error('a stream stood still');
    for (const { request } of viewers) request.destroy();
    return cost;
  };
  for (let round = 0; round < rounds; round++) {
    // Alternates the order, so that a slow change of the machine's speed affects both alike.
    let none = round % 2 === 0 ? await runWithout() : 0;
    const open = await runWith();
    if (round % 2 === 1) none = await runWithout();
    costs.none.push(none);
    costs.open.push(open);
    costs.more.push(open / none - 1);
    console.log(
      `${String(round + 1)}/${String(rounds)}: ${none.toFixed(1)} µs a request, with ${flags.streams} streams ${open.toFixed(1)} µs`,
    );
  }
  const more = medianOf(costs.more);
  console.log(
    `median: ${medianOf(costs.none).toFixed(1)} µs a request, with ${flags.streams} dashboards open ${medianOf(costs.open).toFixed(1)} µs: ${(more * 100).toFixed(1)} % more in the median round`,
  );
  const failBar = (bar: string): void => {
    console.log(`  over the bar of ${bar}`);
    if (flags.bars) process.exitCode = 1;
  };
  if (more > MORE_MAX) failBar(`${String(MORE_MAX * 100)} %`);

  const processorMsAtRest = async (): Promise<number> => {
    const used = (): number => readProcessorMs([one.pid]).get(one.pid) ?? 0;
    const before = used();
    await delay(REST_MS);
    return ((used() - before) * 1000) / REST_MS;
  };
  const restMs = await processorMsAtRest();
  const viewers = await openViewers();
  const restMsOpen = await processorMsAtRest();
  for (const { request } of viewers) request.destroy();
  console.log(
    `idle: ${restMs.toFixed(1)} ms of CPU time per second, with ${flags.streams} dashboards open ${restMsOpen.toFixed(1)} ms`,
  );

  await using browser = await TestBrowser.start();
  const paints: number[] = [];
  for (let paint = 0; paint < PAINTS; paint++) {
    await using watched = await browser.open(`http://127.0.0.1:${String(adminPort)}/`);
    await watched.page.locator('#connection[data-state=live]').waitFor();
    paints.push(
      await watched.page.evaluate<number>(
        "performance.getEntriesByName('first-contentful-paint')[0].startTime",
      ),
    );
  }
  console.log(`first paint: ${paints.map((ms) => ms.toFixed(0)).join(', ')} ms`);
  if (medianOf(paints) > FIRST_PAINT_MS_MAX) failBar(`${String(FIRST_PAINT_MS_MAX)} ms`);
} finally {
  await stopAll();
  rmSync(folder, { recursive: true, force: true });
}
process.exit();
