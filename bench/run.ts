// Compares the gateway with other gateways and proxies: verifies every contender, measures all in interleaved rounds, and
// prints tables. `node run.ts --help` lists the flags; bench/README.md explains the figures.
import { execFileSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { cpus, release, tmpdir } from 'node:os';
import { dirname, join, relative } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import { CONTENDERS, type Contender } from './contenders.ts';
import { record } from './figures.ts';
import type { LoadOrder, LoadResult } from './load.ts';
import { readBusyMs, readMemoryMb, resetPeakMemory } from './processes.ts';
import { makeReport } from './report.ts';
import { readResults, spreadOf, today, type Comparison, type Latency, type Throughput } from './results.ts';
import { Backend, isPinned, Load, startContender, stopAll, type RunningContender } from './running.ts';
import { verify } from './verify.ts';
import { makeShots, WORKLOADS, type Workload } from './workloads.ts';

const HELP = `Compares the gateway with other ways to do the same job.

  --contenders a,b   only these (${CONTENDERS.map(({ name }) => name).join(', ')})
  --workloads x,y    only these (${WORKLOADS.map(({ name }) => name).join(', ')})
  --rounds N         interleaved rounds of each workload (5)
  --seconds S        measured seconds per contender and round (2)
  --rates R,S        constant rates for latency, in requests per second; 0 for none (1000,8000)
  --wait S           total seconds to wait for other work on this machine to end (600)
  --quick            1 round of 1 second on item, list100, put and post, latency at 1000 per second
  --out FILE         the result file (build/bench/<date>.json)
  --record           records a complete run in bench/results and places its figures in the documents`;

const { values: flags } = parseArgs({
  options: {
    contenders: { type: 'string' },
    workloads: { type: 'string' },
    rounds: { type: 'string' },
    seconds: { type: 'string' },
    rates: { type: 'string' },
    wait: { type: 'string' },
    quick: { type: 'boolean', default: false },
    out: { type: 'string' },
    record: { type: 'boolean', default: false },
    help: { type: 'boolean', default: false },
  },
});

if (flags.help) {
  console.log(HELP);
  process.exit(0);
}

const LATENCY_WORKLOADS = ['item', 'mixed'];
// A constant rate above this share of a contender's throughput would measure its queue, not its latency.
const RATE_CAPACITY_MAX = 0.7;
const SETTLE_MS = 300;
// Warm-up before a contender's first round: enough calls for an engine to compile the hot code.
const WARMUP = { warmupMs: 1_500, warmupRequests: 20_000 };
// A round is repeated if other programs used more than this share of a core. After `ATTEMPTS_MAX` attempts, the least
// disturbed one counts.
const DISTURBANCE_MAX = 0.1;
const ATTEMPTS_MAX = 5;
const QUIET_SAMPLE_MS = 250;

function choose<T extends { name: string }>(what: string, all: T[], wanted: string | undefined): T[] {
  if (wanted === undefined) return all;
  const names = wanted.split(',').map((name) => name.trim());
  const unknown = names.filter((name) => !all.some((one) => one.name === name));
  if (unknown.length > 0)
    throw new Error(
      `unknown ${what} ${unknown.join(', ')}; there are ${all.map(({ name }) => name).join(', ')}`,
    );
  return all.filter(({ name }) => names.includes(name));
}

function toNumber(name: string, text: string | undefined, standard: number): number {
  const value = Number(text ?? standard);
  if (!Number.isFinite(value) || value < 0)
    throw new Error(`--${name} must be a number, not ${String(text)}`);
  return value;
}

function percentile(sorted: Float64Array, part: number): number {
  const value = sorted[Math.min(sorted.length - 1, Math.ceil(sorted.length * part) - 1)] ?? 0;
  return Number(value.toFixed(3));
}

function say(text: string): void {
  process.stderr.write(`${text}\n`);
}

const chosen = choose('contender', CONTENDERS, flags.contenders);
const workloads = choose(
  'workload',
  WORKLOADS,
  flags.workloads ?? (flags.quick ? 'item,list100,put,post' : undefined),
);
const rounds = toNumber('rounds', flags.rounds, flags.quick ? 1 : 5);
const seconds = toNumber('seconds', flags.seconds, flags.quick ? 1 : 2);
const rates = (flags.rates ?? (flags.quick ? '1000' : '1000,8000'))
  .split(',')
  .map((text) => toNumber('rates', text, 0))
  .filter((rate) => rate > 0);
let waitLeftMs = toNumber('wait', flags.wait, 600) * 1000;
const isComplete = !flags.quick && flags.contenders === undefined && flags.workloads === undefined;
if (flags.record && !isComplete) throw new Error('--record needs all contenders and all workloads');
const out = flags.out ?? join(import.meta.dirname, '../build/bench', `${today}.json`);

const folder = mkdtempSync(join(tmpdir(), 'work-item-gateway-bench-'));
const failures: string[] = [];
const skipped: Comparison['skipped'] = [];

function findAvailable(): Contender[] {
  return chosen.filter((contender) => {
    const reason = contender.findMissing();
    if (reason === undefined) return true;
    say(`skipped: ${contender.name} (${reason})`);
    skipped.push({ name: contender.name, reason });
    return false;
  });
}

/** Starts and verifies the contenders of a workload, leaving out those that fail. */
async function startAll(
  contenders: Contender[],
  workload: Workload,
  backend: Backend,
): Promise<RunningContender[]> {
  const running: RunningContender[] = [];
  for (const contender of contenders) {
    if (contender.workloads && !contender.workloads.includes(workload.name)) continue;
    try {
      await backend.order({ list: workload.list });
      const one = await startContender(contender, backend.port, join(folder, contender.name));
      running.push(one);
      await verify(one, backend, workload);
    } catch (error) {
      const message = `${contender.name}, ${workload.name}: ${(error as Error).message}`;
      say(`FAILED  ${message}`);
      failures.push(message);
      const failed = running.find((one) => one.contender === contender);
      if (failed) running.splice(running.indexOf(failed), 1);
      await failed?.stop();
    }
  }
  return running;
}

/** The processes that all contenders share. */
interface Helpers {
  backend: Backend;
  load: Load;
}

function makeOrder(one: RunningContender, { backend }: Helpers, workload: Workload, rate = 0): LoadOrder {
  return {
    port: one.port,
    pid: one.pid,
    ownPids: [backend.pid, process.pid],
    connections: workload.connections,
    shots: makeShots(workload, one.contender.job),
    warmupMs: SETTLE_MS,
    warmupRequests: 0,
    measureMs: seconds * 1000,
    rate,
  };
}

/** Waits until other programs use at most `DISTURBANCE_MAX` of a core, or until the time limit (`--wait`). */
async function waitForQuiet(): Promise<void> {
  while (waitLeftMs > 0) {
    const before = readBusyMs();
    await delay(QUIET_SAMPLE_MS);
    if ((readBusyMs() - before) / QUIET_SAMPLE_MS <= DISTURBANCE_MAX) return;
    waitLeftMs -= QUIET_SAMPLE_MS;
    if (waitLeftMs <= 0) say('other work on this machine does not end: the figures will be disturbed');
  }
}

/** Measures one round: the first undisturbed one, or the least disturbed of several. */
async function runRound(
  { load }: Helpers,
  one: RunningContender,
  order: LoadOrder,
  workload: Workload,
): Promise<LoadResult> {
  let best: LoadResult | undefined;
  for (let attempt = 1; attempt <= ATTEMPTS_MAX; attempt++) {
    await waitForQuiet();
    let result: LoadResult;
    try {
      result = await load.run(order);
    } catch (error) {
      // A wrong reply under load makes all figures of the run worthless.
      throw new Error(`${one.contender.name}, ${workload.name}: ${(error as Error).message}`, {
        cause: error,
      });
    }
    if (!best || result.disturbance < best.disturbance) best = result;
    if (best.disturbance <= DISTURBANCE_MAX || waitLeftMs <= 0) break;
    waitLeftMs -= seconds * 1000;
    order = { ...order, warmupMs: SETTLE_MS, warmupRequests: 0 };
  }
  if (!best) throw new Error('no attempt was made');
  return best;
}

/** CPU time per request in microseconds. */
function costOf(result: LoadResult): number {
  return result.requests === 0 ? 0 : (result.processorMs * 1000) / result.requests;
}

async function measureThroughput(
  running: RunningContender[],
  workload: Workload,
  helpers: Helpers,
): Promise<Throughput[]> {
  const results = new Map<RunningContender, LoadResult[]>(running.map((one) => [one, []]));
  for (let round = 0; round < rounds; round++) {
    for (const one of running) {
      if (round === 0) resetPeakMemory(one.pid);
      const order = makeOrder(one, helpers, workload);
      const result = await runRound(helpers, one, round === 0 ? { ...order, ...WARMUP } : order, workload);
      results.get(one)?.push(result);
      const rate = Math.round((result.requests * 1000) / result.elapsedMs);
      say(
        `${workload.name} ${String(round + 1)}/${String(rounds)} ${one.contender.name}: ${costOf(result).toFixed(1)} µs, ${String(rate)}/s`,
      );
    }
  }
  return running.map((one): Throughput => {
    const all = results.get(one) ?? [];
    return {
      workload: workload.name,
      contender: one.contender.name,
      processorUs: spreadOf(all.map(costOf)),
      requestsPerSecond: spreadOf(all.map((result) => (result.requests * 1000) / result.elapsedMs)),
      busy: spreadOf(all.map((result) => result.processorMs / result.elapsedMs)).median,
      peakMemoryMb: one.pid === 0 ? 0 : Math.round(readMemoryMb(one.pid, 'VmHWM')),
      disturbance: Number(Math.max(...all.map((result) => result.disturbance)).toFixed(2)),
      reconnects: all.reduce((sum, result) => sum + result.reconnects, 0),
    };
  });
}

async function measureLatency(
  running: RunningContender[],
  workload: Workload,
  rate: number,
  helpers: Helpers,
  throughput: Throughput[],
): Promise<Latency[]> {
  const isOver = (one: RunningContender): boolean =>
    ((throughput.find(({ contender }) => contender === one.contender.name)?.processorUs.median ?? 0) * rate) /
      1e6 >
    RATE_CAPACITY_MAX;
  const results = new Map<RunningContender, LoadResult[]>(running.map((one) => [one, []]));
  for (let round = 0; round < rounds; round++) {
    for (const one of running) {
      if (isOver(one)) continue;
      const result = await runRound(helpers, one, makeOrder(one, helpers, workload, rate), workload);
      results.get(one)?.push(result);
      const sorted = result.latenciesMs.toSorted();
      say(
        `${workload.name} at ${String(rate)}/s ${String(round + 1)}/${String(rounds)} ${one.contender.name}: ` +
          `p50 ${String(percentile(sorted, 0.5))} ms, p99 ${String(percentile(sorted, 0.99))} ms`,
      );
    }
  }
  return running.map((one): Latency => {
    const all = results.get(one) ?? [];
    const row = { workload: workload.name, rate, contender: one.contender.name };
    if (all.length === 0) return { ...row, overCapacity: true };
    const pooled = Float64Array.from(all.flatMap((result) => [...result.latenciesMs])).sort();
    return {
      ...row,
      requests: pooled.length,
      p50: spreadOf(all.map((result) => percentile(result.latenciesMs.toSorted(), 0.5))),
      p90: percentile(pooled, 0.9),
      p99: percentile(pooled, 0.99),
      p999: percentile(pooled, 0.999),
      max: percentile(pooled, 1),
      unanswered: all.reduce((sum, result) => sum + result.unanswered, 0),
      processorUs: spreadOf(all.map(costOf)),
    };
  });
}

function readGit(...args: string[]): string {
  try {
    return execFileSync('git', args, {
      cwd: import.meta.dirname,
      encoding: 'utf8',
      stdio: ['ignore', 'pipe', 'ignore'],
    }).trim();
  } catch {
    return '';
  }
}

function describeSystem(): string {
  try {
    return /^PRETTY_NAME="(.*)"/m.exec(readFileSync('/etc/os-release', 'utf8'))?.[1] ?? process.platform;
  } catch {
    return process.platform;
  }
}

async function main(): Promise<void> {
  const contenders = findAvailable();
  for (const contender of contenders) contender.prepare?.();
  const backend = await Backend.start();
  const helpers = { backend, load: await Load.start() };
  const throughput: Throughput[] = [];
  const latency: Latency[] = [];
  for (const workload of workloads) {
    const running = await startAll(contenders, workload, backend);
    await backend.order({ list: workload.list });
    const measured = await measureThroughput(running, workload, helpers);
    throughput.push(...measured);
    if (LATENCY_WORKLOADS.includes(workload.name))
      for (const rate of rates)
        latency.push(...(await measureLatency(running, workload, rate, helpers, measured)));
    for (const one of running) await one.stop();
  }
  const result: Comparison = {
    date: today,
    commit: readGit('rev-parse', '--short', 'HEAD'),
    machine: {
      processor: cpus()[0]?.model ?? 'unknown',
      cores: cpus().length,
      system: describeSystem(),
      kernel: release(),
      node: process.versions.node,
      pinned: isPinned,
    },
    rounds,
    seconds,
    workloads: workloads.map(({ name, title, connections }) => ({ name, title, connections })),
    contenders: contenders.map(({ name, title, job, checksJson, exact, version }) => ({
      name,
      title,
      job,
      checksJson,
      exact,
      version: version(),
    })),
    skipped,
    failures,
    throughput,
    latency,
  };
  mkdirSync(dirname(out), { recursive: true });
  writeFileSync(out, JSON.stringify(result));
  console.log(makeReport(result, readResults().comparison));
  say(`result: ${relative(process.cwd(), out)}`);
  if (flags.record) await record('comparison', result);
}

for (const signal of ['SIGINT', 'SIGTERM'] as const)
  process.once(signal, () => {
    void stopAll().finally(() => process.exit(130));
  });

try {
  await main();
  if (failures.length > 0) process.exitCode = 1;
} catch (error) {
  say(`the run ended: ${(error as Error).message}`);
  process.exitCode = 1;
} finally {
  await stopAll();
  rmSync(folder, { recursive: true, force: true });
}
