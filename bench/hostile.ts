// What good clients notice of bad ones: their latency at a constant low rate, at rest and under each attack in turn, the
// rounds interleaved. Every reply of theirs is checked; a wrong one ends the run. The gateway has its default settings.
// Flags: --rounds N (5), --seconds N (4) a round, --rate N (200) calls a second, --attack NAME for one alone, --minutes N
// (10) after which no further measurement begins.
import { mkdtempSync, rmSync } from 'node:fs';
import { cpus, tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import { ATTACKS, type AttackName } from './attacker.ts';
import { CONTENDERS } from './contenders.ts';
import { readMemoryMb } from './processes.ts';
import { Attacker, Backend, call, isPinned, Load, startContender, stopAll } from './running.ts';
import { ITEM } from './work-items.ts';

const { values: flags } = parseArgs({
  options: {
    rounds: { type: 'string', default: '5' },
    seconds: { type: 'string', default: '4' },
    rate: { type: 'string', default: '200' },
    attack: { type: 'string' },
    minutes: { type: 'string', default: '10' },
  },
});
const rounds = Number(flags.rounds);
const rate = Number(flags.rate);
const SETTLE_MS = 2_000;
const AT_ONCE_MS = 100;
const RECOVERY_MS_MAX = 30_000;
// What D58 promises good clients beside 100 hostile connections: a p99 of so many times their own, or of so much.
const P99_FACTOR_MAX = 10;
const P99_MS_MAX = 250;
const end = performance.now() + Number(flags.minutes) * 60_000;

const CONNECTIONS: Partial<Record<AttackName, number>> = {
  'slow heads': 1_000,
  'slow bodies': 2_000,
  'slow readers': 25,
  'idle connections': 5_000,
  'refusals sent ahead': 100,
  'OPTIONS sent ahead': 100,
  'one-byte chunks': 100,
};
const attacks = (Object.keys(ATTACKS) as AttackName[]).filter(
  (name) => !flags.attack || name === flags.attack,
);
if (attacks.length === 0) throw new Error(`there is no attack ${String(flags.attack)}`);

interface Row {
  latencies: number[];
  medians: number[];
  connections: number;
  disturbance: number;
  /** Good calls without a reply two seconds after the end of their round. */
  unanswered: number;
  recoveryMs: number;
}
const names = ['at rest', ...attacks] as const;
const rows = new Map<string, Row>(
  names.map((name) => [
    name,
    { latencies: [], medians: [], connections: 0, disturbance: 0, unanswered: 0, recoveryMs: 0 },
  ]),
);

/** How long after an attack a call on a new connection is answered at once again; fails when it never is. */
async function recover(port: number): Promise<number> {
  const from = performance.now();
  for (;;) {
    const startedAt = performance.now();
    await call(port, 'GET', '/api/work-items/17');
    if (performance.now() - startedAt < AT_ONCE_MS) return performance.now() - from;
    if (performance.now() - from > RECOVERY_MS_MAX) throw new Error('the gateway does not recover');
  }
}

function at(sorted: number[], part: number): number {
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * part))] ?? NaN;
}

const folder = mkdtempSync(join(tmpdir(), 'work-item-gateway-hostile-'));
try {
  const contender = CONTENDERS.find(({ name }) => name === 'gateway');
  const missing = contender?.findMissing();
  if (!contender || missing) throw new Error(missing ?? 'there is no gateway');
  const backend = await Backend.start();
  await backend.order({ list: 'list10000' });
  const gateway = await startContender(contender, backend.port, folder);
  const load = await Load.start();
  const attacker = await Attacker.start();
  const shot = {
    request: Buffer.from('GET /api/work-items/17 HTTP/1.1\r\nHost: gateway\r\n\r\n'),
    status: 200,
    bodyLength: ITEM.length,
  };
  const order = {
    port: gateway.port,
    connections: 8,
    shots: [shot],
    warmupMs: 300,
    warmupRequests: 0,
    measureMs: Number(flags.seconds) * 1_000,
    rate,
    pid: gateway.pid,
    ownPids: [backend.pid, load.pid, attacker.pid, process.pid],
  };
  await load.run({ ...order, rate: 0, connections: 32, warmupRequests: 20_000, measureMs: 500 });
  for (let round = 0; round < rounds; round++)
    for (const name of names) {
      const row = rows.get(name);
      if (!row || performance.now() > end) continue;
      const isAttack = name !== 'at rest';
      if (isAttack) {
        attacker.begin({ attack: name, port: gateway.port, connections: CONNECTIONS[name] ?? 0 });
        await delay(SETTLE_MS);
      }
      const result = await load.run(order);
      if (isAttack) {
        row.connections = Math.max(row.connections, await attacker.stop());
        row.recoveryMs = Math.max(row.recoveryMs, await recover(gateway.port));
      }
      row.unanswered += result.unanswered;
      const sorted = [...result.latenciesMs].toSorted((a, b) => a - b);
      row.latencies.push(...sorted);
      row.medians.push(at(sorted, 0.5));
      row.disturbance = Math.max(row.disturbance, result.disturbance);
      console.error(`${name}: p50 ${at(sorted, 0.5).toFixed(2)} ms, p99 ${at(sorted, 0.99).toFixed(2)} ms`);
      await delay(SETTLE_MS);
    }
  console.log(
    `\n${cpus()[0]?.model ?? 'unknown processor'}, Node ${process.version}, ${new Date().toISOString().slice(0, 10)}`,
  );
  console.log(
    `${String(rate)} good calls a second, up to ${String(rounds)} rounds of ${flags.seconds} s${isPinned ? ', the gateway on a core of its own' : ''}`,
  );
  console.log(`peak memory of the gateway ${readMemoryMb(gateway.pid, 'VmHWM').toFixed(0)} MB\n`);
  console.log(
    '| Attack | Connections | p50 ms (range of rounds) | p99 ms | of p99 at rest | max ms | Unanswered | Recovered ms | Disturbed | D58 |',
  );
  console.log('| --- | --: | --: | --: | --: | --: | --: | --: | --: | --- |');
  let p99AtRest = NaN;
  for (const [name, row] of rows) {
    const { medians, connections, unanswered, recoveryMs, disturbance } = row;
    const sorted = row.latencies.toSorted((a, b) => a - b);
    const p99 = at(sorted, 0.99);
    p99AtRest = name === 'at rest' ? p99 : p99AtRest;
    const factor = p99 / p99AtRest;
    const cells = [
      name,
      String(connections),
      `${at(sorted, 0.5).toFixed(2)} (${Math.min(...medians).toFixed(2)}–${Math.max(...medians).toFixed(2)})`,
      p99.toFixed(2),
      factor.toFixed(1),
      at(sorted, 1).toFixed(1),
      String(unanswered),
      recoveryMs.toFixed(0),
      disturbance.toFixed(2),
      factor <= P99_FACTOR_MAX || p99 <= P99_MS_MAX ? 'holds' : 'missed',
    ];
    console.log(`| ${cells.join(' | ')} |`);
  }
} finally {
  await stopAll();
  rmSync(folder, { recursive: true, force: true });
}
