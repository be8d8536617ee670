// Compares the gateway with the floor, nginx + Lua and HAProxy at 16 to 1,000 connections. peers.ts compares them at 64 connections.
import type { Cost, LoadCase, Scenario } from '../bench.ts';
import { findContender } from '../contenders.ts';
import type { ConnectionsRow } from '../results.ts';
import type { Running } from '../running.ts';
import { median, quantile } from '../tables.ts';
import { WORKLOADS } from '../workloads.ts';

const CONTENDERS = ['gateway', 'node-net', 'nginx-lua', 'haproxy'].map(findContender);
const CONNECTIONS = [16, 256, 1_000];

export const scenario: Scenario = {
  title: 'the gateway and three peers at 16 to 1,000 connections',
  rounds: 3,
  seconds: 1,
  minutes: 3,
  run: async (bench) => {
    const running: Running[] = [];
    for (const contender of CONTENDERS) {
      const one = await bench.startIfPresent(contender);
      if (one !== undefined) running.push(one);
    }
    const counts = bench.choose(CONNECTIONS.map((connections) => ({ name: String(connections), connections })));
    const rows: ConnectionsRow[] = [];
    for (const workload of WORKLOADS.filter(({ name }) => ['item', 'put', 'post'].includes(name))) {
      for (const { name, connections } of counts) {
        const cases = running.map((one): LoadCase => ({
          name: `${one.contender.name} ${workload.name} ${name}`,
          one,
          workload,
          connections,
        }));
        const results = await bench.loadInTurns(cases);
        const byContender = (figureOf: (costs: readonly Cost[]) => number) =>
          Object.fromEntries([...results].map(([{ one }, costs]) => [one.contender.name, figureOf(costs)]));
        const us = byContender((costs) => median(costs.map((cost) => cost.us)));
        const p99Ms = byContender((costs) => median(costs.map(({ latenciesMs }) => quantile(latenciesMs, 0.99))));
        bench.printCosts(`${workload.title}, ${name} connections`, results, {
          'gateway ÷ contender': (_, other) => ((us['gateway'] ?? NaN) / other).toFixed(2),
          'p99, ms': ({ one }) => p99Ms[one.contender.name]?.toFixed(1),
        });
        rows.push({ workload: workload.name, connections, us, p99Ms });
      }
    }
    return { connections: { ...bench.section, rows } };
  },
};
