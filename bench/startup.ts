// Measures the time from the start of the process to the first reply, and the idle memory after the first reply. Starts node
// directly, because the time of npm does not count. Flags: --runs N (15), --bars to fail beyond the limits, --record to place
// the figures in the documents.
import { spawn } from 'node:child_process';
import { existsSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import { CONTENDERS, type Command, type Place } from './contenders.ts';
import { record } from './figures.ts';
import { readMemoryMb } from './processes.ts';
import { machine, spreadOf, today } from './results.ts';
import { Backend, call, findFreePort, stopAll } from './running.ts';

// Goals for the built command.
const FIRST_REPLY_MS_MAX = 250;
const IDLE_MB_MAX = 65;
const REST_MS = 2_000;
const LIMIT_MS = 15_000;
const BUILT = 'the gateway as built (node dist/command/main.js serve)';
const SOURCE = join(import.meta.dirname, '../packages/command/main.ts');

const { values: flags } = parseArgs({
  options: {
    runs: { type: 'string', default: '15' },
    bars: { type: 'boolean', default: false },
    record: { type: 'boolean', default: false },
  },
});
const runs = Number(flags.runs);

interface Start {
  firstReplyMs: number;
  idleMb: number;
}

function commandOf(name: string, place: Place): Command {
  const contender = CONTENDERS.find((one) => one.name === name);
  if (!contender) throw new Error(`there is no contender ${name}`);
  return contender.start(place);
}

/** Starts the command and calls it until it answers. Then reads its idle memory, if `measuresMemory`. */
async function startOnce(command: Command, port: number, measuresMemory: boolean): Promise<Start> {
  const startedAt = performance.now();
  const child = spawn(command.command, command.args, {
    env: { ...process.env, ...command.env },
    stdio: 'ignore',
  });
  const exited = new Promise<void>((resolve) => child.once('exit', () => resolve()));
  try {
    for (;;) {
      const status = await call(port, 'GET', '/api/work-items/17').then(
        (reply) => reply.status,
        () => 0,
      );
      if (status === 200) break;
      if (child.exitCode !== null || performance.now() - startedAt > LIMIT_MS)
        throw new Error('it did not start');
      await delay(1);
    }
    const firstReplyMs = performance.now() - startedAt;
    if (measuresMemory) await delay(REST_MS);
    return { firstReplyMs, idleMb: measuresMemory ? readMemoryMb(child.pid ?? 0, 'VmRSS') : 0 };
  } finally {
    child.kill('SIGTERM');
    await exited;
  }
}

function describe(values: number[], unit: string): string {
  const sorted = values.toSorted((a, b) => a - b);
  const at = (part: number): string =>
    Math.round(sorted[Math.floor((sorted.length - 1) * part)] ?? 0).toString();
  return `${at(0.5)} ${unit} (${at(0)}–${at(1)})`;
}

const medianOf = (values: number[]): number =>
  values.toSorted((a, b) => a - b)[Math.floor((values.length - 1) / 2)] ?? 0;

const variants: [string, (place: Place) => Command][] = [
  ['a bare node:http proxy', (place) => commandOf('node-http', place)],
];
if (existsSync(SOURCE))
  variants.push([
    'the gateway from source (npm run serve)',
    (place) => ({ ...commandOf('gateway', place), args: [SOURCE, 'serve'] }),
  ]);
if (existsSync(join(import.meta.dirname, '../dist/command/main.js')))
  variants.push([BUILT, (place) => commandOf('gateway', place)]);

const folder = mkdtempSync(join(tmpdir(), 'work-item-gateway-startup-'));
try {
  const backend = await Backend.start();
  const starts = new Map<string, Start[]>(variants.map(([title]) => [title, []]));
  for (let run = 0; run < runs; run++)
    for (const [title, makeCommand] of variants) {
      const port = await findFreePort();
      const command = makeCommand({ port, backendPort: backend.port, folder });
      // Memory hardly differs between starts, so three are enough.
      starts.get(title)?.push(await startOnce(command, port, run < 3));
    }
  const rows = [];
  for (const [title, all] of starts) {
    const replies = all.map((start) => start.firstReplyMs);
    const memory = all.map((start) => start.idleMb).filter((megabytes) => megabytes > 0);
    rows.push({ name: title, firstReplyMs: spreadOf(replies), idleMb: Math.round(medianOf(memory)) });
    console.log(
      `${title}: first reply after ${describe(replies, 'ms')}, idle memory ${describe(memory, 'MB')}`,
    );
    if (
      flags.bars &&
      title === BUILT &&
      (medianOf(replies) > FIRST_REPLY_MS_MAX || medianOf(memory) > IDLE_MB_MAX)
    ) {
      console.log(`  over the bar of ${String(FIRST_REPLY_MS_MAX)} ms or ${String(IDLE_MB_MAX)} MB`);
      process.exitCode = 1;
    }
  }
  if (flags.record) {
    const goals = { firstReplyMs: FIRST_REPLY_MS_MAX, idleMb: IDLE_MB_MAX };
    await record('startup', { date: today, machine, goals, rows });
  }
} finally {
  await stopAll();
  rmSync(folder, { recursive: true, force: true });
}
