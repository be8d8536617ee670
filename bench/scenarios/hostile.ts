// The latency of good clients at a constant low rate, without an attack and during each attack. A wrong reply to a good client ends
// the scenario. The gateway has its default settings. Attacks over HTTP/2 use a second gateway with TLS and HTTP2, whose good
// clients use HTTP/1.1 over TLS. A third gateway requires tokens; the good clients' tokens are in its cache.
import { setTimeout as delay } from 'node:timers/promises';
import { ATTACKS, type AttackOrder, type AttackReport } from '../attacker.ts';
import { WARMUP, type Scenario } from '../bench.ts';
import { hasProgram } from '../contenders.ts';
import { Certificate, makeTokens } from '../doors.ts';
import { GOALS } from '../figures.ts';
import { call, Helper, type Running } from '../running.ts';
import { existing, formatRange, quantile } from '../tables.ts';
import { ITEM_WORKLOAD } from '../workloads.ts';

const RATE = 200;
const CONNECTIONS = 8;
const SETTLE_MS = 1_000;
const AT_ONCE_MS = 100;
const RECOVERY_MS_MAX = 30_000;
/** Limit for the p99 while clients send malformed tokens, as a multiple of the p99 while they send no tokens. */
const BEARER_FACTOR_MAX = 5;

/** Waits until a call on a new connection is fast. Returns the waiting time in ms. */
async function recover({ port, ca }: Running): Promise<number> {
  const from = performance.now();
  for (;;) {
    const startedAt = performance.now();
    await call(port, '/api/work-items/17', { ca });
    if (performance.now() - startedAt < AT_ONCE_MS) return performance.now() - from;
    if (performance.now() - from > RECOVERY_MS_MAX) throw new Error('the gateway does not recover');
  }
}

export const scenario: Scenario = {
  title: 'latency of good clients during attacks',
  rounds: 2,
  seconds: 2,
  minutes: 3.5,
  run: async (bench) => {
    const rate = bench.flags.rate ?? RATE;
    using certificate = hasProgram('openssl') ? new Certificate() : undefined;
    if (certificate === undefined) bench.note('skipped the attacks over HTTP/2, which need openssl');
    const { tokens, forged, settings } = makeTokens(bench.folder, CONNECTIONS);
    // The attack `slow readers` reads this list of 4.2 MB.
    const workload = { ...ITEM_WORKLOAD, list: 10_000 };
    const [attacker] = await Helper.start<AttackOrder, AttackReport>('attacker.ts');

    const doors = [
      { door: 'plain', rest: 'no attack', env: {}, lines: [''] },
      {
        door: 'tokens',
        rest: 'no attack, tokens',
        env: settings,
        lines: tokens.map((token) => `Authorization: Bearer ${token}`),
      },
      ...(certificate === undefined
        ? []
        : [{ door: 'TLS', rest: 'no attack, TLS', env: { ...certificate.settings, HTTP2: 'true' }, lines: [''] }]),
    ];
    const all = doors.flatMap(({ door, rest, ...more }) => {
      const names = Object.keys(ATTACKS).filter((name) => ATTACKS[name]?.door === door);
      return [rest, ...names].map((name) => ({ name, rest, door, ...more }));
    });
    const { only } = bench.flags;
    const cases = bench.choose(all, ({ name }) => all.some((one) => one.rest === name && only.includes(one.name)));
    const gateways = new Map<string, Running>();
    for (const { door, env } of doors.filter((one) => cases.some(({ door }) => door === one.door))) {
      const ca = door === 'TLS' ? certificate?.ca : undefined;
      gateways.set(door, await bench.start('gateway', { env, ca }));
    }

    const results = await bench.takeTurns(
      cases,
      async ({ name, rest, door, lines }, round) => {
        const gateway = existing(gateways.get(door));
        const load = { one: gateway, workload, headers: lines };
        if (round === 0 && name === rest) await bench.load(load, WARMUP);
        if (name !== rest) {
          await attacker.order({ attack: name, port: gateway.port, forged });
          await delay(SETTLE_MS);
        }
        const cost = await bench.load({ ...load, connections: CONNECTIONS, rate });
        const attack = name === rest ? { connections: 0, streams: 0 } : await attacker.order({ stop: true });
        const recoveryMs = await recover(gateway);
        await delay(SETTLE_MS);
        return { ...cost, ...attack, recoveryMs };
      },
      ({ latenciesMs }) => `p99 ${quantile(latenciesMs, 0.99).toFixed(1)} ms`,
    );

    const p99s = new Map(
      [...results].map(([{ name }, rounds]) => [name, quantile(rounds.flatMap((each) => each.latenciesMs), 0.99)]),
    ); // prettier-ignore
    bench.print(
      `${rate} good calls a second`,
      [
        '',
        'connections',
        'streams sent',
        'p50, ms',
        'range',
        'p99, ms',
        '÷ without',
        'max, ms',
        'unanswered',
        'recovered, ms',
        'peak MB',
        'other work, cores',
      ],
      [...results].map(([{ name, rest }, rounds]) => {
        const latencies = rounds.flatMap(({ latenciesMs }) => latenciesMs);
        const most = (field: 'connections' | 'streams' | 'recoveryMs' | 'peakMb'): string =>
          Math.max(...rounds.map((each) => each[field])).toFixed(0);
        const [p99 = NaN, restP99 = NaN] = [p99s.get(name), p99s.get(rest)];
        const goal = GOALS.hostileP99Ms(restP99);
        if (!(p99 <= goal)) bench.miss(`${name}: p99 of ${p99.toFixed(0)} ms instead of ${goal.toFixed(0)} ms [D58]`);
        return [
          name,
          most('connections'),
          most('streams'),
          quantile(latencies, 0.5).toFixed(2),
          formatRange(rounds.map(({ latenciesMs }) => quantile(latenciesMs, 0.5)), 2),
          p99.toFixed(2),
          (p99 / restP99).toFixed(1),
          quantile(latencies, 1).toFixed(1),
          rounds.reduce((sum, { unanswered }) => sum + unanswered, 0),
          most('recoveryMs'),
          most('peakMb'),
          bench.noise(name),
        ]; // prettier-ignore
      }),
    );
    const factor =
      (p99s.get('pipelined malformed tokens') ?? NaN) / (p99s.get('pipelined requests without a token') ?? NaN);
    if (factor > BEARER_FACTOR_MAX)
      bench.miss(
        `p99 with malformed tokens: ${factor.toFixed(1)} times that without a token; the limit is ${BEARER_FACTOR_MAX}`,
      );
    const rows = cases.map(({ name, rest }) => ({ name, rest, p99Ms: p99s.get(name) ?? NaN }));
    return { hostile: { ...bench.section, rate, rows } };
  },
};
