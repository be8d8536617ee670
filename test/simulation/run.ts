// `npm run simulate`: runs worlds with new seeds, for one minute.
//
// --seed N       replays one world, with its history
// --minutes M    runs for another time
// --seeds A-B    runs these worlds
// --sabotage     plants faults in copies of the gateway, and shows that each is found

import { parseArgs } from 'node:util';
import { realNow, realTurn } from './event-loop.ts';
import { createPlan, type Plan } from './plan.ts';
import { sabotage } from './sabotage.ts';
import { shorten } from './shorten.ts';
import { runInTurn, runWorld } from './world.ts';

const { values } = parseArgs({
  options: {
    seed: { type: 'string' },
    minutes: { type: 'string', default: '1' },
    seeds: { type: 'string' },
    sabotage: { type: 'boolean', default: false },
    only: { type: 'string', default: '' },
    terse: { type: 'boolean', default: false },
  },
});

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
  process.exitCode = (await sabotage(values.only)) ? 0 : 1;
} else if (values.seed !== undefined) {
  const seed = Number(values.seed);
  if (!(await runInTurn(() => show(createPlan(seed))))) process.exitCode = 1;
} else {
  const [first, last = Infinity] = values.seeds?.split('-').map(Number) ?? [
    Date.UTC(2026) + Math.floor(process.hrtime()[1] / 7),
  ];
  const startedAt = realNow();
  const endsAt = values.seeds === undefined ? startedAt + Number(values.minutes) * 60_000 : Infinity;
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
