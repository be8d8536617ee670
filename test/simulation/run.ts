// `npm run simulate`: runs simulated worlds.

import { parseArgs } from 'node:util';
import { realNow, realTurn } from './event-loop.ts';
import { createPlan, type Plan } from './plan.ts';
import { sabotage } from './sabotage.ts';
import { shorten } from './shorten.ts';
import { runInTurn, runWorld } from './world.ts';

const usage = `npm run simulate -- [FLAG]
  --minutes M           runs new worlds for M minutes (default: 1)
  --seed N              shows one world, with its history
  --seeds A-B           runs these worlds
  --terse               shows only the seed of a failing world, and does not shorten it
  --sabotage            plants faults in copies of the gateway; each must be found
  --only TEXT           plants only faults that have this text in their name`;

const values = readFlags();

function readFlags() {
  try {
    const options = { type: 'string' } as const;
    const isOn = { type: 'boolean', default: false } as const;
    const { values: given } = parseArgs({
      options: {
        seed: options,
        minutes: options,
        seeds: options,
        only: options,
        sabotage: isOn,
        terse: isOn,
        help: isOn,
      },
    });
    const ways = [given.seed, given.seeds, given.minutes, given.sabotage || undefined].filter(
      (way) => way !== undefined,
    );
    const [first, last] = (given.seeds ?? '0-0').split('-').map(Number);
    if (ways.length > 1) throw new Error('give one of --seed, --seeds, --minutes and --sabotage');
    if (!Number.isSafeInteger(Number(given.seed ?? 0))) throw new Error('--seed must be an integer');
    if (!(Number(given.minutes ?? 1) > 0)) throw new Error('--minutes must be more than 0');
    if (!/^\d+-\d+$/.test(given.seeds ?? '0-0') || (first ?? 0) > (last ?? 0)) throw new Error('--seeds must be A-B');
    if (given.only !== undefined && !given.sabotage) throw new Error('--only needs --sabotage');
    if (!given.help) return given;
    console.log(usage);
  } catch (error) {
    console.error(`error: ${(error as Error).message}\n\n${usage}`);
    process.exitCode = 1;
  }
  process.exit();
}

function describe({ host, clients, events }: Plan): string {
  const requests = clients.reduce((sum, each) => sum + each.requests.length, 0);
  return `host ${host}, ${clients.length} clients, ${requests} requests, ${events.length} events`;
}

function show(plan: Plan): boolean {
  const { violation, history } = runWorld(plan, true);
  console.log(`${describe(plan)}\n${history.join('\n')}`);
  console.log(
    violation === undefined ? 'no violation' : `violated: ${violation.invariant}\n          ${violation.detail}`,
  );
  return violation === undefined;
}

/** Runs the world of `seed`. Shows it if an invariant is violated. */
function run(seed: number): boolean {
  const plan = createPlan(seed);
  const { violation } = runWorld(plan);
  if (violation === undefined) return true;
  console.log(`seed ${seed}: ${violation.invariant}: ${violation.detail}`);
  if (!values.terse) {
    show(shorten(plan, violation.invariant));
    console.log(`The whole world: npm run simulate -- --seed ${seed}`);
  }
  return false;
}

if (values.sabotage) {
  process.exitCode = (await sabotage(values.only ?? '')) ? 0 : 1;
} else if (values.seed !== undefined) {
  const seed = Number(values.seed);
  if (!(await runInTurn(() => show(createPlan(seed))))) process.exitCode = 1;
} else {
  const [first, last = Infinity] = values.seeds?.split('-').map(Number) ?? [
    Date.UTC(2026) + Math.floor(process.hrtime()[1] / 7),
  ];
  const startedAt = realNow();
  const endsAt = values.seeds === undefined ? startedAt + Number(values.minutes ?? 1) * 60_000 : Infinity;
  let seed = first ?? 1;
  for (let isRight = true; isRight && seed <= last && realNow() < endsAt;) {
    isRight = await runInTurn(() => run(seed));
    seed += 1;
    if (!isRight) process.exitCode = 1;
    if (seed % 100 === 0) await realTurn();
  }
  console.log(
    `${seed - (first ?? 1)} worlds from seed ${first ?? 1}, ${((realNow() - startedAt) / 1_000).toFixed(0)} s`,
  );
}
