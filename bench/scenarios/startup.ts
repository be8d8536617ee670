// The time from the start of a process to its first reply, and its idle memory. Starts node directly, so that the time does
// not include npm. The bare proxy is JavaScript, because loading TypeScript takes 30 ms and 17 MB.
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import type { Scenario } from '../bench.ts';
import { findContender } from '../contenders.ts';
import { GOALS } from '../figures.ts';
import { memoryMb } from '../processes.ts';
import { formatRange, median } from '../tables.ts';

const REST_MS = 2_000;
/** Memory is measured only in this number of rounds, because it hardly differs between starts. */
const MEMORY_ROUNDS = 3;
const SOURCE = join(import.meta.dirname, '../../packages/command/main.ts');

export const scenario: Scenario = {
  title: 'time to the first reply, idle memory',
  rounds: 15,
  seconds: 0,
  minutes: 1,
  run: async (bench) => {
    const built = findContender('gateway');
    const fromSource: typeof built.start = (place) => ({ ...built.start(place), args: [SOURCE, 'serve'] });
    const cases = bench.choose([
      { name: 'built', contender: built },
      { name: 'source', contender: { ...built, start: fromSource } },
      { name: 'bare', contender: findContender('node-http') },
    ]);
    await bench.backend();
    const results = await bench.takeTurns(
      cases,
      async ({ contender }, round) => {
        const from = performance.now();
        const one = await bench.start(contender, { onAllCores: true });
        const firstReplyMs = performance.now() - from;
        if (round < MEMORY_ROUNDS) await delay(REST_MS);
        const idleMb = round < MEMORY_ROUNDS ? memoryMb(one.pid, 'VmRSS') : NaN;
        await one.stop();
        return { firstReplyMs, idleMb };
      },
      ({ firstReplyMs }) => `${firstReplyMs.toFixed(0)} ms`,
    );
    const rows = [...results].map(([{ name }, all]) => ({
      name,
      replies: all.map(({ firstReplyMs }) => firstReplyMs),
      idleMb: Math.round(median(all.map(({ idleMb }) => idleMb).filter((megabytes) => megabytes > 0))),
    }));
    bench.print(
      'The built command, the command from source, a bare node:http proxy',
      ['', 'first reply, ms', 'range', 'idle MB', 'other work, cores'],
      rows.map(({ name, replies, idleMb }) => [
        name,
        median(replies).toFixed(0),
        formatRange(replies, 0),
        idleMb,
        bench.noise(name),
      ]),
    );
    const section = rows.map(({ name, replies, idleMb }) => ({ name, firstReplyMs: median(replies), idleMb }));
    const own = section.find(({ name }) => name === 'built');
    for (const field of ['firstReplyMs', 'idleMb'] as const)
      if (own !== undefined && own[field] > GOALS[field])
        bench.miss(`${field} ${own[field].toFixed(0)} instead of ${GOALS[field]}`);
    return { startup: { ...bench.section, rows: section } };
  },
};
