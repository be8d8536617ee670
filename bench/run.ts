// Runs scenarios: `npm run bench -- SCENARIO...`. `--help` lists them and the flags; bench/README.md explains the figures.
import { execFileSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { Bench, Session, type Flags, type Scenario } from './bench.ts';
import { record } from './figures.ts';
import { readResults, type Results } from './results.ts';
import { stopAll } from './running.ts';
import { scenario as ablation } from './scenarios/ablation.ts';
import { scenario as aborts } from './scenarios/aborts.ts';
import { scenario as connections } from './scenarios/connections.ts';
import { scenario as growth } from './scenarios/growth.ts';
import { scenario as guards } from './scenarios/guards.ts';
import { scenario as hostile } from './scenarios/hostile.ts';
import { scenario as json } from './scenarios/json.ts';
import { scenario as peers } from './scenarios/peers.ts';
import { scenario as restart } from './scenarios/restart.ts';
import { scenario as startup } from './scenarios/startup.ts';

const SCENARIOS: Readonly<Record<string, Scenario>> = {
  peers, connections, guards, growth, json, startup, hostile, aborts, restart, ablation,
}; // prettier-ignore
const MINUTES = 20;

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    rounds: { type: 'string' },
    seconds: { type: 'string' },
    rate: { type: 'string' },
    only: { type: 'string', multiple: true, default: [] },
    minutes: { type: 'string' },
    quick: { type: 'boolean', default: false },
    record: { type: 'boolean', default: false },
    help: { type: 'boolean', default: false },
  },
});

const HELP = `npm run bench -- [SCENARIO...] [flags]

${Object.entries(SCENARIOS)
  .map(([name, { title, isApart }]) => `  ${name.padEnd(12)} ${title}${isApart ? ' (not in the complete run)' : ''}`)
  .join('\n')}

  --rounds N    rounds of each case
  --seconds S   measured seconds of a case in each round
  --rate N      calls a second, in scenarios at a constant rate
  --only NAME   only these cases; repeatable
  --minutes N   time of the run; a scenario that has used its share begins no further round (${MINUTES})
  --quick       one round of half a second, without waiting for a quiet machine
  --record      records the scenarios' figures in bench/results and places them in the documents`;

function readNumber(name: 'rounds' | 'seconds' | 'rate' | 'minutes', standard?: number): number | undefined {
  const value = Number(values[name] ?? standard);
  if (values[name] === undefined) return standard;
  if (!(value > 0)) throw new Error(`--${name} must be a number above 0, not ${values[name]}`);
  return value;
}

/** Adds the recorded rows of the guard cases that did not run, so that these rows are kept. */
function merge(sections: Partial<Results>): Partial<Results> {
  const { guards } = sections;
  if (guards === undefined) return sections;
  const kept = readResults().guards.rows.filter(({ name }) => !guards.rows.some((row) => row.name === name));
  return { ...sections, guards: { ...guards, rows: [...guards.rows, ...kept] } };
}

async function main(): Promise<void> {
  if (values.help) {
    console.log(HELP);
    return;
  }
  const unknown = positionals.filter((name) => !(name in SCENARIOS));
  if (unknown.length > 0) throw new Error(`there is no scenario ${unknown.join(', ')}\n\n${HELP}`);
  if (values.record && (values.quick || values.only.length > 0))
    throw new Error('--record cannot be combined with --quick or --only');
  const flags: Flags = {
    rounds: readNumber('rounds', values.quick ? 1 : undefined),
    seconds: readNumber('seconds', values.quick ? 0.5 : undefined),
    rate: readNumber('rate'),
    only: values.only,
  };
  const session = new Session(values.quick);
  const endsAt = performance.now() + (readNumber('minutes') ?? MINUTES) * 60_000;
  const chosen = Object.entries(SCENARIOS).filter(([name, { isApart }]) =>
    positionals.length === 0 ? !isApart : positionals.includes(name),
  );
  if (chosen.some(([, { needsPeers }]) => needsPeers) && !existsSync(join(import.meta.dirname, 'node_modules')))
    execFileSync('npm', ['ci', '--no-audit', '--no-fund'], { cwd: import.meta.dirname, stdio: 'ignore' });
  for (const [index, [name, scenario]] of chosen.entries()) {
    console.log(`\n# ${name}: ${scenario.title}`);
    const [now, left] = [performance.now(), chosen.slice(index).map(([, { minutes }]) => minutes)];
    session.endsAt = now + ((endsAt - now) * scenario.minutes) / left.reduce((sum, each) => sum + each, 0);
    await using bench = new Bench(name, scenario, flags, session);
    try {
      const sections = await scenario.run(bench);
      if (values.record) await record(merge(sections));
    } catch (error) {
      bench.miss((error as Error).message);
    }
  }
  const { noisy, missed } = session;
  console.log(
    noisy.length === 0
      ? '\nNo round was noisy.'
      : `\nNoisy, with the cores that other work used:\n- ${noisy.join('\n- ')}`,
  );
  if (missed.length === 0) return;
  console.log(`\nMissed:\n- ${missed.join('\n- ')}`);
  process.exitCode = 1;
}

for (const signal of ['SIGINT', 'SIGTERM'] as const)
  process.once(signal, () => void stopAll().finally(() => process.exit(130)));

try {
  await main();
} catch (error) {
  console.error((error as Error).message);
  process.exitCode = 1;
} finally {
  await stopAll();
}
process.exit();
