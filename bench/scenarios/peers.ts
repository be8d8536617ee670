// Compares the gateway with other gateways and proxies: verifies every contender, then measures all in turns. Afterwards three of
// them serve calls at a constant rate.
import { execFileSync } from 'node:child_process';
import type { LoadCase, Scenario } from '../bench.ts';
import { CONTENDERS } from '../contenders.ts';
import { readResults, type PeerRow } from '../results.ts';
import type { Running } from '../running.ts';
import { existing, formatCount, formatUs, median, quantile } from '../tables.ts';
import { verify } from '../verify.ts';
import { ITEM_WORKLOAD, MIXED_WORKLOAD, WORKLOADS, type Workload } from '../workloads.ts';

const RATE = 8_000;
const PACED = ['gateway', 'nginx-lua', 'haproxy'];
function makeCases(running: readonly Running[], workload: Workload): LoadCase[] {
  return running
    .filter(({ contender }) => contender.workloads?.includes(workload.name) ?? true)
    .map((one) => ({ name: `${one.contender.name} ${workload.name}`, one, workload }));
}

export const scenario: Scenario = {
  title: 'the gateway and its peers: programs that do the same job, and proxies',
  rounds: 3,
  seconds: 1,
  minutes: 8.5,
  needsPeers: true,
  run: async (bench) => {
    const rate = bench.flags.rate ?? RATE;
    const workloads = bench.choose(WORKLOADS);
    const running: Running[] = [];
    for (const contender of bench.choose(CONTENDERS)) {
      const missing = contender.findMissing();
      if (missing !== undefined) {
        bench.note(`skipped: ${contender.name}: ${missing}`);
        continue;
      }
      contender.prepare?.();
      const one = await bench.start(contender);
      running.push(one);
      try {
        await verify(one, bench, [...workloads, MIXED_WORKLOAD]);
      } catch (error) {
        bench.miss(`${contender.name}: ${(error as Error).message}`);
        running.pop();
        await one.stop();
      }
    }
    const rows = running.map(({ contender: { name, version } }): PeerRow => ({ name, version: version(), us: {} }));
    const rowOf = (one: Running): PeerRow => existing(rows[running.indexOf(one)]);
    const recorded = readResults().peers.rows;

    for (const workload of workloads) {
      const cases = makeCases(running, workload);
      const results = await bench.loadInTurns(cases);
      const dividedBy = (name: string) => (_: LoadCase, us: number) => {
        const other = rows.find((row) => row.name === name)?.us[workload.name];
        return other && (us / other).toFixed(2);
      };
      for (const [{ one }, costs] of results) rowOf(one).us[workload.name] = median(costs.map(({ us }) => us));
      bench.printCosts(`${workload.title}, ${workload.connections} connections`, results, {
        recorded: ({ one }) => formatUs(recorded.find((row) => row.name === one.contender.name)?.us[workload.name]),
        '÷ nginx + Lua': dividedBy('nginx-lua'),
        '÷ @fastify/http-proxy': dividedBy('fastify-http-proxy'),
      });
    }

    const paced = running.filter(({ contender }) => PACED.includes(contender.name));
    const cases = [ITEM_WORKLOAD, MIXED_WORKLOAD].flatMap((workload) =>
      makeCases(paced, workload).map((each) => ({ ...each, rate, name: `${each.name} at ${rate}/s` })),
    );
    const results = await bench.loadInTurns(cases);
    bench.print(
      `Latency at ${formatCount(rate)} calls a second, in ms from the time when a call was due`,
      ['', 'p50', 'p99', 'p99.9', 'max', 'unanswered', 'µs a call', 'other work, cores'],
      [...results].map(([{ name, one, workload }, all]) => {
        const latencies = all.flatMap(({ latenciesMs }) => latenciesMs);
        const at = (share: number): string => quantile(latencies, share).toFixed(2);
        const us = median(all.map((cost) => cost.us));
        (rowOf(one).paced ??= {})[workload.name] = { p99Ms: quantile(latencies, 0.99), us };
        const unanswered = all.reduce((sum, each) => sum + each.unanswered, 0);
        return [name, at(0.5), at(0.99), at(0.999), at(1), unanswered, formatUs(us), bench.noise(name)];
      }),
    );
    const commit = execFileSync('git', ['rev-parse', '--short', 'HEAD'], { encoding: 'utf8' }).trim();
    return { peers: { ...bench.section, commit, rate, rows } };
  },
};
