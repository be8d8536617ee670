// How the gateway's cost grows: with the size of an answer, with the number of connections, with idle connections, and
// with workers. Writes bench/results/growth-<date>.md and .json. Flags: --rounds N (5), --seconds N (2), --out FILE.
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { connect, type Socket } from 'node:net';
import { cpus, loadavg, tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import { CONTENDERS } from './contenders.ts';
import type { LoadResult } from './load.ts';
import { readMemoryMb, resetPeakMemory } from './processes.ts';
import { Backend, Load, startContender, stopAll, type RunningContender } from './running.ts';
import { makeShots, WORKLOADS, type Workload } from './workloads.ts';

const date = new Date().toISOString().slice(0, 10);
const { values: flags } = parseArgs({
  options: {
    rounds: { type: 'string', default: '5' },
    seconds: { type: 'string', default: '2' },
    out: { type: 'string', default: join(import.meta.dirname, 'results', `growth-${date}`) },
  },
});
const rounds = Number(flags.rounds);
const measureMs = Number(flags.seconds) * 1000;
const WARMUP = { warmupMs: 1_500, warmupRequests: 20_000 };
const AGAIN = { warmupMs: 300, warmupRequests: 0 };
const CONNECTIONS = [1, 8, 64, 512];
const IDLE_CONNECTIONS = 5_000;

interface Row {
  label: string;
  processorUs: number;
  leastUs: number;
  mostUs: number;
  requestsPerSecond: number;
  peakMb: number;
}

const medianOf = (values: number[]): number =>
  values.toSorted((a, b) => a - b)[Math.floor(values.length / 2)] ?? 0;

/** One line of a table: what is started, what it is sent, and over how many connections. */
interface Case {
  label: string;
  one: RunningContender;
  workload: Workload;
  connections: number;
}

/** Runs the cases in turns and gives the medians of each. */
async function measure(cases: Case[], backend: Backend, load: Load): Promise<Row[]> {
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
    const costs = own.map(({ processorMs, requests }) => (processorMs * 1000) / requests);
    return {
      label: each.label,
      processorUs: medianOf(costs),
      leastUs: Math.min(...costs),
      mostUs: Math.max(...costs),
      requestsPerSecond: medianOf(own.map(({ requests, elapsedMs }) => (requests * 1000) / elapsedMs)),
      peakMb: peaks.get(each) ?? 0,
    };
  });
}

function table(title: string, rows: Row[]): string[] {
  return [
    `## ${title}`,
    '',
    '| | µs a request | min–max | requests a second | peak MB |',
    '| --- | --: | --: | --: | --: |',
    ...rows.map(
      (row) =>
        `| ${row.label} | ${row.processorUs.toFixed(1)} | ${row.leastUs.toFixed(1)}–${row.mostUs.toFixed(1)} | ${Math.round(row.requestsPerSecond).toLocaleString('en')} | ${row.peakMb.toFixed(0)} |`,
    ),
    '',
  ];
}

function find<T extends { name: string }>(all: T[], name: string): T {
  const found = all.find((each) => each.name === name);
  if (found === undefined) throw new Error(`there is no ${name}`);
  return found;
}

/** Connections that have had one reply each and say nothing more, open until they are destroyed. */
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
        label: `64 connections, ${IDLE_CONNECTIONS.toLocaleString('en')} others at rest`,
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
  const gain = ((oneWorker?.processorUs ?? 0) / (twoWorkers?.processorUs ?? 1)) * 2;

  const machine = `${cpus()[0]?.model ?? 'unknown'}, ${String(cpus().length)} cores, Node ${process.version}`;
  const lines = [
    `# How the cost grows, ${date}`,
    '',
    `\`npm run bench:growth\` on ${machine}; load average before: ${loadBefore.toFixed(1)}. Medians of ${String(rounds)} rounds of`,
    `${flags.seconds} s, in turns; closed loop, each connection sends when its reply is there. Processor time of the gateway's`,
    'whole process tree. The gateway has the first core, backend and load the second.',
    '',
    ...table('The size of an answer', sizes),
    ...table('Connections, reading an item', connections),
    `${String(openIdleCount)} of ${String(IDLE_CONNECTIONS)} connections at rest were still open at the end; with them the process is ${idleMb.toFixed(0)} MB larger.`,
    '',
    ...table('Workers, reading an item, on both cores', workers),
    'Backend and load take most of one of the two cores, so the two workers cannot have both, and the throughput above is',
    'not what they can do. What they can do on cores of their own is their number divided by the processor time of a',
    `request: two workers ${gain.toFixed(2)} times what one can.`,
    '',
  ];
  console.log(lines.join('\n'));
  mkdirSync(dirname(flags.out), { recursive: true });
  writeFileSync(`${flags.out}.md`, lines.join('\n'));
  writeFileSync(
    `${flags.out}.json`,
    `${JSON.stringify({ date, machine, loadBefore, rounds, measureMs, sizes, connections, openIdleCount, idleMb, workers, gain }, null, 2)}\n`,
  );
} finally {
  await stopAll();
  rmSync(folder, { recursive: true, force: true });
}
process.exit();
