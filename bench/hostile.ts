// Measures the latency of good clients at a constant low rate, without an attack and under each attack, in interleaved rounds. A
// wrong reply to a good client ends the run. The gateway has its default settings. Attacks over HTTP/2 use a second gateway with
// TLS and HTTP2, whose good clients use HTTP/1.1 over TLS; they are skipped without openssl. A third gateway requires tokens; the
// good clients' tokens are in its cache. Flags: --rounds N (5), --seconds N (4) per round, --rate N (200) calls per second,
// --attack NAME (repeatable), --minutes N (20) after which no measurement begins, --record to place the figures in the documents.
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { cpus, tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import { ATTACKS, TOKEN_ATTACKS, type AttackName } from './attacker.ts';
import { makeCertificate } from './certificate.ts';
import { CONTENDERS, hasProgram } from './contenders.ts';
import { HTTP2_ATTACKS } from './http2-attacks.ts';
import { record } from './figures.ts';
import { readMemoryMb, resetPeakMemory } from './processes.ts';
import { machine, spreadOf, today, type HostileRow } from './results.ts';
import { Attacker, Backend, call, isPinned, Load, startContender, stopAll } from './running.ts';
import { makeTokens } from './tokens.ts';
import { ITEM } from './work-items.ts';

const { values: flags } = parseArgs({
  options: {
    rounds: { type: 'string', default: '5' },
    seconds: { type: 'string', default: '4' },
    rate: { type: 'string', default: '200' },
    attack: { type: 'string', multiple: true },
    minutes: { type: 'string', default: '20' },
    record: { type: 'boolean', default: false },
  },
});
if (flags.record && flags.attack !== undefined) throw new Error('--record needs all attacks');
const rounds = Number(flags.rounds);
const rate = Number(flags.rate);
const SETTLE_MS = 2_000;
const AT_ONCE_MS = 100;
const RECOVERY_MS_MAX = 30_000;
// Limit of D58 for good clients' p99: this multiple of the p99 without an attack, or this time, whichever is larger.
const P99_FACTOR_MAX = 10;
const P99_MS_MAX = 250;
// Limit for the p99 of good clients while hostile clients send an invalid token, as a multiple of the p99 while hostile
// clients send no token.
const BEARER_FACTOR_MAX = 5;
const NO_ATTACK_TOKENS = 'no attack, tokens';
const end = performance.now() + Number(flags.minutes) * 60_000;

const CONNECTIONS: Partial<Record<AttackName, number>> = {
  'slow heads': 1_000,
  'slow bodies': 2_000,
  'slow readers': 25,
  'idle connections': 5_000,
  'refusals sent ahead': 100,
  'OPTIONS sent ahead': 100,
  'one-byte chunks': 100,
  'no token sent ahead': 100,
  'Bearer x sent ahead': 100,
  'forged tokens sent ahead': 100,
  'rapid reset': 100,
  'many streams': 100,
  'SETTINGS flood': 100,
  'PING flood': 100,
  'CONTINUATION flood': 100,
  'zero windows': 100,
  'HPACK bombs': 100,
  'heads that stay': 150,
};
/** A gateway under attack: the name of its row without an attack, its attacks, and whether it uses TLS. */
interface Door {
  rest: string;
  attacks: AttackName[];
  isSecure: boolean;
}
const known = [ATTACKS, TOKEN_ATTACKS, HTTP2_ATTACKS].flatMap(Object.keys) as AttackName[];
const unknown = (flags.attack ?? []).filter((name) => !known.some((each) => each === name));
if (unknown.length > 0) {
  throw new Error(`--attack: unknown: ${unknown.join('; ')}. Known attacks: ${known.join('; ')}`);
}
const wanted = known.filter((name) => flags.attack === undefined || flags.attack.includes(name));
const doors = [
  { rest: 'no attack', attacks: wanted.filter((name) => name in ATTACKS), isSecure: false },
  { rest: NO_ATTACK_TOKENS, attacks: wanted.filter((name) => name in TOKEN_ATTACKS), isSecure: false },
  { rest: 'no attack, TLS', attacks: wanted.filter((name) => name in HTTP2_ATTACKS), isSecure: true },
].filter(({ attacks, isSecure }: Door) => attacks.length > 0 && (!isSecure || hasProgram('openssl')));

interface Row {
  rest: string;
  latencies: number[];
  medians: number[];
  connections: number;
  streams: number;
  disturbance: number;
  /** Good calls without a reply two seconds after the end of their round. */
  unanswered: number;
  recoveryMs: number;
  /** Peak memory of the gateway. */
  memoryMb: number;
}
const rows = new Map<string, Row>();

/** Waits after an attack until a call on a new connection is fast. Returns the waiting time in ms; throws after 30 s. */
async function recover(port: number, ca: string | undefined): Promise<number> {
  const from = performance.now();
  for (;;) {
    const startedAt = performance.now();
    await call(port, 'GET', '/api/work-items/17', undefined, ca);
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
  const load = await Load.start();
  const attacker = await Attacker.start();
  const { tokens, forged, settings: tokenSettings } = makeTokens(folder, 8);
  const makeShot = (line: string) => ({
    request: Buffer.from(`GET /api/work-items/17 HTTP/1.1\r\nHost: gateway\r\n${line}\r\n`),
    status: 200,
    bodyLength: ITEM.length,
  });

  const started = [];
  for (const door of doors) {
    const files = door.isSecure ? makeCertificate(folder) : undefined;
    const ca = files && readFileSync(files.TLS_CERT_FILE, 'utf8');
    const isWithTokens = door.rest === NO_ATTACK_TOKENS;
    const env = { ...(files && { ...files, HTTP2: 'true' }), ...(isWithTokens && tokenSettings) };
    const start: typeof contender.start = (place) => {
      const command = contender.start(place);
      return { ...command, env: { ...command.env, ...env } };
    };
    const place = join(folder, door.rest);
    const gateway = await startContender({ ...contender, start }, backend.port, place, 'first core', ca);
    const lines = isWithTokens ? tokens.map((token) => `Authorization: Bearer ${token}\r\n`) : [''];
    started.push({ ...door, gateway, ca, shots: lines.map(makeShot) });
  }
  const gatewayPids = started.map(({ gateway }) => gateway.pid);
  const measured = started.flatMap(({ gateway, ca, rest, attacks, shots }) => {
    const order = {
      port: gateway.port,
      ca,
      connections: 8,
      shots,
      warmupMs: 300,
      warmupRequests: 0,
      measureMs: Number(flags.seconds) * 1_000,
      rate,
      pid: gateway.pid,
      ownPids: [...gatewayPids, backend.pid, load.pid, attacker.pid, process.pid].filter(
        (pid) => pid !== gateway.pid,
      ),
    };
    return [undefined, ...attacks].map((attack) => {
      const row: Row = {
        rest,
        latencies: [],
        medians: [],
        connections: 0,
        streams: 0,
        disturbance: 0,
        unanswered: 0,
        recoveryMs: 0,
        memoryMb: 0,
      };
      const name = attack ?? rest;
      rows.set(name, row);
      return { name, attack, order, row };
    });
  });

  for (const { order, attack } of measured) {
    if (attack !== undefined) continue;
    await load.run({ ...order, rate: 0, connections: 32, warmupRequests: 20_000, measureMs: 500 });
  }
  for (let round = 0; round < rounds; round++)
    for (const { name, attack, order, row } of measured) {
      if (performance.now() > end) continue;
      resetPeakMemory(order.pid);
      if (attack !== undefined) {
        attacker.begin({ attack, port: order.port, connections: CONNECTIONS[attack] ?? 0, forged });
        await delay(SETTLE_MS);
      }
      const result = await load.run(order);
      if (attack !== undefined) {
        const { connections, streams } = await attacker.stop();
        row.connections = Math.max(row.connections, connections);
        row.streams += streams;
        row.recoveryMs = Math.max(row.recoveryMs, await recover(order.port, order.ca));
      }
      row.memoryMb = Math.max(row.memoryMb, readMemoryMb(order.pid, 'VmHWM'));
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
    `${String(rate)} good calls a second, up to ${String(rounds)} rounds of ${flags.seconds} s${isPinned ? ', the gateway on a core of its own' : ''}\n`,
  );
  console.log(
    '| Attack | Connections | Streams sent | p50 ms (range of rounds) | p99 ms | p99 / p99 without attack | max ms | Unanswered | Recovery ms | Peak memory MB | Disturbed | D58 |',
  );
  console.log('| --- | --: | --: | --: | --: | --: | --: | --: | --: | --: | --: | --- |');
  const p99Of = (name: string): number =>
    at(
      (rows.get(name)?.latencies ?? []).toSorted((a, b) => a - b),
      0.99,
    );
  const recorded: HostileRow[] = [];
  for (const [name, row] of rows) {
    const { medians, connections, streams, unanswered, recoveryMs, memoryMb, disturbance } = row;
    const sorted = row.latencies.toSorted((a, b) => a - b);
    const p99 = p99Of(name);
    const factor = p99 / p99Of(row.rest);
    const cells = [
      name,
      String(connections),
      String(streams),
      `${at(sorted, 0.5).toFixed(2)} (${Math.min(...medians).toFixed(2)}–${Math.max(...medians).toFixed(2)})`,
      p99.toFixed(2),
      factor.toFixed(1),
      at(sorted, 1).toFixed(1),
      String(unanswered),
      recoveryMs.toFixed(0),
      memoryMb.toFixed(0),
      disturbance.toFixed(2),
      factor <= P99_FACTOR_MAX || p99 <= P99_MS_MAX ? 'holds' : 'missed',
    ];
    console.log(`| ${cells.join(' | ')} |`);
    const p50Ms = { ...spreadOf(medians), median: at(sorted, 0.5) };
    const maxMs = at(sorted, 1);
    recorded.push({ name, rest: row.rest, connections, streams, p50Ms, p99Ms: p99, maxMs });
  }
  if (rows.has('Bearer x sent ahead') && rows.has('no token sent ahead')) {
    // NaN if there was no reply.
    const factor = p99Of('Bearer x sent ahead') / p99Of('no token sent ahead');
    const verdict = factor <= BEARER_FACTOR_MAX ? 'holds' : 'missed';
    console.log(
      `\np99 with Bearer x: ${factor.toFixed(1)} times the p99 without a token; the limit of ${BEARER_FACTOR_MAX} ${verdict === 'holds' ? 'holds' : 'is missed'}`,
    );
  }
  if (!hasProgram('openssl')) {
    console.log('\nskipped the attacks over HTTP/2: they need openssl, which is not installed');
  }
  if (flags.record) {
    const seconds = Number(flags.seconds);
    await record('hostile', { date: today, machine, rounds, seconds, rate, rows: recorded });
  }
} finally {
  await stopAll();
  rmSync(folder, { recursive: true, force: true });
}
