// `npm run simulate`: runs simulated worlds.

import { parseArgs } from 'node:util';
import { realNow, realTurn } from './event-loop.ts';
import { createPlan, type Plan } from './plan.ts';
import { sabotage } from './sabotage.ts';
import { shorten } from './shorten.ts';
import { runWorld } from './world.ts';

const usage = `npm run simulate -- [FLAG]
  --minutes M           runs new worlds for M minutes (default: 1)
  --seed N              shows one world, with its history
  --seeds A-B           runs these worlds
  --terse               shows only the seed of a failing world, and does not shorten it
  --sabotage            plants faults in copies of the gateway; each must be found
  --only TEXT           plants only faults that have this text in their name`;

const [text, flag] = [{ type: 'string' } as const, { type: 'boolean', default: false } as const];
const options = { seed: text, minutes: text, seeds: text, only: text, sabotage: flag, terse: flag, help: flag };
const values = readFlags();

function readFlags() {
  try {
    const { values: given } = parseArgs({ options });
    const { seed, seeds, minutes, sabotage: isSabotage, only, help } = given;
    const ways = [seed, seeds, minutes, isSabotage || undefined].filter((way) => way !== undefined);
    if (ways.length > 1) throw new Error('give one of --seed, --seeds, --minutes and --sabotage');
    if (!/^-?\d+$/.test(seed ?? '0')) throw new Error('--seed must be an integer');
    if (!(Number(minutes ?? 1) > 0)) throw new Error('--minutes must be more than 0');
    if (!/^\d+-\d+$/.test(seeds ?? '0-0')) throw new Error('--seeds must be A-B');
    if (only !== undefined && !isSabotage) throw new Error('--only needs --sabotage');
    if (!help) return given;
    console.log(usage);
  } catch (error) {
    console.error(`error: ${(error as Error).message}\n\n${usage}`);
    process.exitCode = 1;
  }
  process.exit();
}

/** Runs a world and shows its history. Returns false if an invariant is violated. */
async function show(plan: Plan): Promise<boolean> {
  const { host, clients, events } = plan;
  const requests = clients.reduce((sum, each) => sum + each.requests.length, 0);
  const { violation, history } = await runWorld(plan, true);
  console.log(`host ${host}, ${clients.length} clients, ${requests} requests, ${events.length} events`);
  console.log(history.join('\n'));
  console.log(
    violation === undefined ? 'no violation' : `violated: ${violation.invariant}\n          ${violation.detail}`,
  );
  return violation === undefined;
}

/** Runs the world of `seed`. Shows it and returns false if an invariant is violated. */
async function run(seed: number): Promise<boolean> {
  const plan = createPlan(seed);
  const { violation } = await runWorld(plan);
  if (violation === undefined) return true;
  console.log(`seed ${seed}: ${violation.invariant}: ${violation.detail}`);
  if (!values.terse) {
    await show(await shorten(plan, violation.invariant));
    console.log(`The whole world: npm run simulate -- --seed ${seed}`);
  }
  return false;
}

async function runAll(): Promise<boolean> {
  if (values.sabotage) return await sabotage(values.only ?? '');
  if (values.seed !== undefined) return await show(createPlan(Number(values.seed)));
  const newSeed = Date.UTC(2026) + Math.floor(process.hrtime()[1] / 7);
  const [first = 1, last = Infinity] = values.seeds?.split('-').map(Number) ?? [newSeed];
  const startedAt = realNow();
  const endsAt = values.seeds === undefined ? startedAt + Number(values.minutes ?? 1) * 60_000 : Infinity;
  let seed = first;
  let isRight = true;
  for (; isRight && seed <= last && realNow() < endsAt; seed += 1) {
    isRight = await run(seed);
    if (seed % 100 === 0) await realTurn();
  }
  console.log(`${seed - first} worlds from seed ${first}, ${((realNow() - startedAt) / 1_000).toFixed(0)} s`);
  return isRight;
}

if (!(await runAll())) process.exitCode = 1;
