// Compares the gateway with the floor, nginx + Lua and HAProxy at numbers of connections other than 64, which peers.ts measures.
import type { LoadCase, Scenario } from '../bench.ts';
import type { ConnectionsRow } from '../results.ts';
import type { Running } from '../running.ts';
import { existing, median } from '../tables.ts';
import { WORKLOADS } from '../workloads.ts';

const CONTENDERS = ['gateway', 'node-net', 'nginx-lua', 'haproxy'];
const CONNECTIONS = [16, 256, 1_000];

export const scenario: Scenario = {
  title: 'the gateway and three peers at 16 to 1,000 connections',
  rounds: 3,
  seconds: 1,
  minutes: 3,
  run: async (bench) => {
    const running: Running[] = [];
    for (const name of CONTENDERS) running.push(await bench.start(name));
    const rows: ConnectionsRow[] = [];
    for (const workload of WORKLOADS.filter(({ name }) => ['item', 'put', 'post'].includes(name))) {
      for (const connections of bench.choose(CONNECTIONS.map((count) => ({ name: String(count), count })))) {
        const cases = running.map((one): LoadCase => ({
          name: `${one.contender.name} ${workload.name} ${connections.name}`,
          one,
          workload,
          connections: connections.count,
        }));
        const results = await bench.loadInTurns(cases);
        const us = [...results.values()].map((costs) => median(costs.map((cost) => cost.us)));
        const own = existing(us[0]);
        bench.printCosts(`${workload.title}, ${connections.name} connections`, results, {
          'gateway ÷ this': (_, other) => (own / other).toFixed(2),
        });
        rows.push({
          workload: workload.name,
          connections: connections.count,
          us: Object.fromEntries(CONTENDERS.map((name, index) => [name, existing(us[index])])),
        });
      }
    }
    return { connections: { ...bench.section, rows } };
  },
};
