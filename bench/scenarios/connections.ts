// Compares the gateway with the floor, nginx + Lua and HAProxy at 16 to 1,000 connections. peers.ts compares them at 64.
import type { LoadCase, Scenario } from '../bench.ts';
import { findContender } from '../contenders.ts';
import type { ConnectionsRow } from '../results.ts';
import type { Running } from '../running.ts';
import { median } from '../tables.ts';
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
        const us = Object.fromEntries(
          [...results].map(([{ one }, costs]) => [one.contender.name, median(costs.map((cost) => cost.us))]),
        );
        bench.printCosts(`${workload.title}, ${name} connections`, results, {
          'gateway ÷ this': (_, other) => ((us['gateway'] ?? NaN) / other).toFixed(2),
        });
        rows.push({ workload: workload.name, connections, us });
      }
    }
    return { connections: { ...bench.section, rows } };
  },
};
