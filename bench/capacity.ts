// What docs/capacity.md needs beyond the other benchmarks: what a call costs at a constant rate, beside one flat out (what
// comes together is cheaper), and what a question of the rate limit costs Redis, by how many clients it asks for. Processor
// time, in turns, medians. Flags: --rounds N (5), --seconds N (1). Linux; Redis is left out where it is not installed.
import { spawn, spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { createConnection } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import { RedisCounter } from '../src/guards/redis-counter.ts';
import { CONTENDERS, SEARCH_PATH } from './contenders.ts';
import { readProcessorMs } from './processes.ts';
import { Backend, findFreePort, Load, startContender, stopAll } from './running.ts';
import { makeShots, WORKLOADS } from './workloads.ts';

const { values: flags } = parseArgs({
  options: { rounds: { type: 'string', default: '5' }, seconds: { type: 'string', default: '1' } },
});
const rounds = Number(flags.rounds);
const measureMs = Number(flags.seconds) * 1_000;

/** Measures each of `cases` in turn, so many rounds; prints a row for each. */
async function compare<Case>(
  title: string,
  cases: readonly Case[],
  nameOf: (each: Case) => string,
  measure: (each: Case) => Promise<number>,
): Promise<void> {
  const costs = cases.map(() => [] as number[]);
  for (let round = 0; round < rounds; round += 1) {
    for (const [index, each] of cases.entries()) costs[index]?.push(await measure(each));
  }
  console.log(`\n| ${title} | µs | min–max |\n| --: | --: | --: |`);
  for (const [index, each] of cases.entries()) {
    const sorted = (costs[index] ?? []).sort((one, other) => one - other);
    const [min = 0, median = 0, max = 0] = [sorted[0], sorted[sorted.length >> 1], sorted.at(-1)];
    console.log(`| ${nameOf(each)} | ${median.toFixed(1)} | ${min.toFixed(1)}–${max.toFixed(1)} |`);
  }
}

const folder = mkdtempSync(join(tmpdir(), 'work-item-gateway-capacity-'));

async function compareRates(): Promise<void> {
  const workload = WORKLOADS.find(({ name }) => name === 'item');
  const gateway = CONTENDERS.find(({ name }) => name === 'gateway');
  if (workload === undefined || gateway === undefined) throw new Error('there is no workload "item"');
  const backend = await Backend.start();
  await backend.order({ list: workload.list });
  const load = await Load.start();
  const { port, pid } = await startContender(gateway, backend.port, join(folder, 'gateway'));
  const shots = makeShots(workload, 'gateway');
  const run = async (rate: number, milliseconds: number): Promise<number> => {
    const { processorMs, requests } = await load.run({
      port,
      pid,
      ownPids: [backend.pid, process.pid],
      connections: workload.connections,
      shots,
      warmupMs: 100,
      warmupRequests: 0,
      measureMs: milliseconds,
      rate,
    });
    return (processorMs * 1_000) / requests;
  };
  // Until the code is compiled.
  await run(0, 2_000);
  await compare(
    'Reads a second',
    [1_000, 5_000, 10_000, 20_000, 30_000, 0],
    (rate) => (rate === 0 ? 'flat out' : rate.toLocaleString('en')),
    (rate) => run(rate, measureMs),
  );
}

async function startRedis(): Promise<{ readonly port: number; readonly pid: number }> {
  const port = await findFreePort();
  const options = ['--port', String(port), '--bind', '127.0.0.1', '--save', '', '--appendonly', 'no'];
  const child = spawn('redis-server', options, { stdio: 'ignore', env: { PATH: SEARCH_PATH } });
  const { pid = 0 } = child;
  process.on('exit', () => child.kill('SIGKILL'));
  for (let tries = 0; tries < 100; tries += 1) {
    const isOpen = await new Promise<boolean>((resolve) => {
      const socket = createConnection(port, '127.0.0.1', () => {
        socket.destroy();
        resolve(true);
      });
      socket.on('error', () => {
        resolve(false);
      });
    });
    if (isOpen) return { port, pid };
    await delay(50);
  }
  throw new Error('redis-server does not start');
}

async function compareQuestions(): Promise<void> {
  const { port, pid } = await startRedis();
  const processorMs = (): number => readProcessorMs([pid]).get(pid) ?? 0;
  const counter = new RedisCounter(new URL(`redis://127.0.0.1:${port}`), () => undefined);
  await counter.revive(() => undefined);
  const clients = 10_000;
  let next = 0;
  await compare('Clients in a question to Redis', [1, 10, 100], String, async (size) => {
    const start = processorMs();
    const end = performance.now() + measureMs;
    let questions = 0;
    while (performance.now() < end) {
      const keys = Array.from({ length: size }, () => `10.0.${(next += 1) % clients}`);
      const wanted = keys.map(() => 1);
      const answer = await counter.ask({ rate: { limit: 1_000_000, windowMs: 60_000 }, keys, wanted });
      if (answer.length !== 2 * size || answer[0] !== 1) throw new Error(`Redis answers ${answer.join()}`);
      questions += 1;
    }
    return ((processorMs() - start) * 1_000) / questions;
  });
  counter.close();
}

try {
  await compareRates();
  if (spawnSync('redis-server', ['--version'], { env: { PATH: SEARCH_PATH } }).status === 0) {
    await compareQuestions();
  } else {
    console.log('\nredis-server is not installed (Debian: redis-server): what it costs was not measured');
  }
} finally {
  await stopAll();
  rmSync(folder, { recursive: true, force: true });
}
process.exit(0);
