// Measures the gateway's cost per request for several sizes of answers, and numbers of connections, idle connections and
// workers. Flags: --rounds N (5), --seconds N (2), --record to place the figures in the documents.
import { mkdtempSync, rmSync } from 'node:fs';
import { connect, type Socket } from 'node:net';
import { loadavg, tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import { CONTENDERS } from './contenders.ts';
import { record } from './figures.ts';
import type { LoadResult } from './load.ts';
import { readMemoryMb, resetPeakMemory } from './processes.ts';
import { machine, spreadOf, today, type GrowthRow } from './results.ts';
import { Backend, Load, startContender, stopAll, type RunningContender } from './running.ts';
import { makeShots, WORKLOADS, type Workload } from './workloads.ts';

const { values: flags } = parseArgs({
  options: {
    rounds: { type: 'string', default: '5' },
    seconds: { type: 'string', default: '2' },
    record: { type: 'boolean', default: false },
  },
});
const rounds = Number(flags.rounds);
const measureMs = Number(flags.seconds) * 1000;
const WARMUP = { warmupMs: 1_500, warmupRequests: 20_000 };
const AGAIN = { warmupMs: 300, warmupRequests: 0 };
const CONNECTIONS = [1, 8, 64, 512];
const IDLE_CONNECTIONS = 5_000;

/** One row of a table: a contender, its workload and the number of connections. */
interface Case {
  label: string;
  one: RunningContender;
  workload: Workload;
  connections: number;
}

/** Runs the cases in turns. Returns the medians of each. */
async function measure(cases: Case[], backend: Backend, load: Load): Promise<GrowthRow[]> {
  const results = new Map(cases.map((each) => [each, [] as LoadResult[]]));
  const peaks = new Map<Case, number>();
  for (let round = 0; round < rounds; round++) {
    for (const each of cases) {
      const { one, workload, connections } = each;
      await backend.order({ list: workload.list });
      resetPeakMemory(one.pid);
      const result = await load.run({
        port: one.port,
        pid: one.pid,
        ownPids: [backend.pid, process.pid],
        connections,
        shots: makeShots(workload, one.contender.job),
        ...(round === 0 ? WARMUP : AGAIN),
        measureMs,
        rate: 0,
      });
      results.get(each)?.push(result);
      peaks.set(each, Math.max(peaks.get(each) ?? 0, readMemoryMb(one.pid, 'VmHWM')));
    }
  }
  return cases.map((each) => {
    const own = results.get(each) ?? [];
    const rates = own.map(({ requests, elapsedMs }) => (requests * 1000) / elapsedMs);
    return {
      label: each.label,
      processorUs: spreadOf(own.map(({ processorMs, requests }) => (processorMs * 1000) / requests)),
      requestsPerSecond: Math.round(spreadOf(rates).median),
      peakMb: Math.round(peaks.get(each) ?? 0),
    };
  });
}

function table(title: string, rows: GrowthRow[]): string[] {
  return [
    `## ${title}`,
    '',
    '| | µs a request | min–max | requests a second | peak MB |',
    '| --- | --: | --: | --: | --: |',
    ...rows.map(
      ({ label, processorUs: { median, min, max }, requestsPerSecond, peakMb }) =>
        `| ${label} | ${median.toFixed(1)} | ${min.toFixed(1)}–${max.toFixed(1)} | ${requestsPerSecond.toLocaleString('en')} | ${peakMb} |`,
    ),
    '',
  ];
}

function find<T extends { name: string }>(all: T[], name: string): T {
  const found = all.find((each) => each.name === name);
  if (found === undefined) throw new Error(`there is no ${name}`);
  return found;
}

/** Opens connections that make one call each and then stay idle. */
async function openIdle(port: number, count: number): Promise<Socket[]> {
  const sockets: Socket[] = [];
  while (sockets.length < count) {
    await Promise.all(
      Array.from({ length: Math.min(100, count - sockets.length) }, async () => {
        const socket = connect({ port, host: '127.0.0.1' });
        sockets.push(socket);
        socket.write('GET /api/work-items/17 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n');
        await new Promise((resolve, reject) => socket.once('data', resolve).once('error', reject));
      }),
    );
  }
  return sockets;
}

const folder = mkdtempSync(join(tmpdir(), 'work-item-gateway-growth-'));
try {
  const loadBefore = loadavg()[0] ?? 0;
  const backend = await Backend.start();
  const load = await Load.start();
  const gateway = find(CONTENDERS, 'gateway');
  const item = find(WORKLOADS, 'item');
  const one = await startContender(gateway, backend.port, join(folder, 'one'));

  const sizes = await measure(
    ['item', 'list100', 'list1000', 'list10000'].map((name) => {
      const workload = find(WORKLOADS, name);
      return { label: workload.title, one, workload, connections: workload.connections };
    }),
    backend,
    load,
  );
  const connections = await measure(
    CONNECTIONS.map((count) => ({
      label: `${String(count)} connections`,
      one,
      workload: item,
      connections: count,
    })),
    backend,
    load,
  );
  const atRestMb = readMemoryMb(one.pid, 'VmRSS');
  const idle = await openIdle(one.port, IDLE_CONNECTIONS);
  const [withIdle] = await measure(
    [
      {
        label: `64 connections, ${IDLE_CONNECTIONS.toLocaleString('en')} idle ones`,
        one,
        workload: item,
        connections: 64,
      },
    ],
    backend,
    load,
  );
  if (withIdle !== undefined) connections.push(withIdle);
  const openIdleCount = idle.filter((socket) => !socket.destroyed && socket.readable).length;
  const idleMb = readMemoryMb(one.pid, 'VmRSS') - atRestMb;
  for (const socket of idle) socket.destroy();
  await one.stop();

  const single = await startContender(gateway, backend.port, join(folder, 'single'), 'all cores');
  const pair = await startContender(
    find(CONTENDERS, 'gateway-workers'),
    backend.port,
    join(folder, 'pair'),
    'all cores',
  );
  await delay(1_000);
  const workers = await measure(
    [
      { label: 'one worker', one: single, workload: item, connections: 64 },
      { label: 'two workers', one: pair, workload: item, connections: 64 },
    ],
    backend,
    load,
  );
  const [oneWorker, twoWorkers] = workers;
  const gain = ((oneWorker?.processorUs.median ?? 0) / (twoWorkers?.processorUs.median ?? 1)) * 2;

  const lines = [
    `# How the cost grows, ${today}`,
    '',
    `\`npm run bench:growth\` on ${machine}; load average before: ${loadBefore.toFixed(1)}. Medians of ${String(rounds)} rounds of`,
    `${flags.seconds} s, in turns; closed loop: each connection sends its next request with each reply. CPU time of the gateway's`,
    'whole process tree. The gateway has the first core, backend and load the second.',
    '',
    ...table('The size of an answer', sizes),
    ...table('Connections, reading an item', connections),
    `${String(openIdleCount)} of ${String(IDLE_CONNECTIONS)} idle connections were still open at the end; they make the process ${idleMb.toFixed(0)} MB larger.`,
    '',
    ...table('Workers, reading an item, on both cores', workers),
    'Backend and load use most of one of the two cores, so the throughput above is not the capacity of two workers. On',
    'cores of their own, the capacity is the number of workers divided by the CPU time per request:',
    `two workers serve ${gain.toFixed(2)} times the requests of one.`,
    '',
  ];
  console.log(lines.join('\n'));
  if (flags.record) {
    const seconds = Number(flags.seconds);
    await record('growth', { date: today, machine, rounds, seconds, idleMb, sizes, connections, workers });
  }
} finally {
  await stopAll();
  rmSync(folder, { recursive: true, force: true });
}
process.exit();
