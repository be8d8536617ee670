// The gateway's cost per call for several sizes of a list, with idle connections, and with several workers.
import { connect, type Socket } from 'node:net';
import { setTimeout as delay } from 'node:timers/promises';
import type { Bench, LoadCase, Scenario } from '../bench.ts';
import { memoryMb } from '../processes.ts';
import { median } from '../tables.ts';
import { ITEM_WORKLOAD, listWorkload } from '../workloads.ts';

/** Numbers of items. The lists have 4.2 KB to 35 MB. */
const LENGTHS = [10, 100, 1_000, 10_000, 84_000];
const IDLE_CONNECTIONS = 5_000;

/** Measures the cases in turns and prints a table. Returns the CPU time of a call in µs, by case. */
async function measure(bench: Bench, title: string, cases: readonly LoadCase[]): Promise<Record<string, number>> {
  const results = await bench.loadInTurns(cases);
  bench.printCosts(title, results);
  return Object.fromEntries([...results].map(([{ name }, costs]) => [name, median(costs.map(({ us }) => us))]));
}

/** Opens connections that make one call each and then stay idle. */
async function openIdle(port: number, count: number): Promise<Socket[]> {
  const sockets: Socket[] = [];
  while (sockets.length < count) {
    const missing = Math.min(100, count - sockets.length);
    await Promise.all(
      Array.from({ length: missing }, async () => {
        const socket = connect({ port, host: '127.0.0.1' });
        sockets.push(socket);
        socket.write('GET /api/work-items/17 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n');
        await new Promise((resolve, reject) => socket.once('data', resolve).once('error', reject));
      }),
    );
  }
  return sockets;
}

export const scenario: Scenario = {
  title: 'cost of larger lists, idle connections, more workers',
  rounds: 3,
  seconds: 1,
  minutes: 2,
  run: async (bench) => {
    const one = await bench.start();
    const workloads = [ITEM_WORKLOAD, ...LENGTHS.map(listWorkload)];
    const sizeCases = workloads.map((workload) => ({
      name: workload.title.replace(/^GET (?:item|list) /, ''),
      one,
      workload,
    }));
    const onItem = { one, workload: ITEM_WORKLOAD };
    const sizes = await measure(bench, 'Size of the reply', sizeCases);
    const restMb = memoryMb(one.pid, 'VmRSS');
    const idle = await openIdle(one.port, IDLE_CONNECTIONS);
    const idleKb = ((memoryMb(one.pid, 'VmRSS') - restMb) * 1_024) / IDLE_CONNECTIONS;
    const withIdle = { ...onItem, name: `64 and ${IDLE_CONNECTIONS.toLocaleString('en')} idle` };
    await measure(bench, 'Idle connections', [withIdle]);
    const open = idle.filter((socket) => !socket.destroyed && socket.readable).length;
    bench.note(`${open} idle connections were still open at the end. Each needs ${idleKb.toFixed(1)} KB.`);
    for (const socket of idle) socket.destroy();
    await one.stop();

    // Backend and load use most of a core, so only the CPU time shows the capacity of two workers; calls a second do not.
    const single = await bench.start('gateway', { onAllCores: true });
    const pair = await bench.start('gateway', { onAllCores: true, env: { WORKERS: '2' } });
    await delay(1_000);
    const workers = await measure(bench, 'Workers, reading an item, on all cores', [
      { ...onItem, name: '1', one: single },
      { ...onItem, name: '2', one: pair },
    ]);
    return { growth: { ...bench.section, sizes, workers } };
  },
};
