// How clients see a restart of the backend under load: errors by method, writes sent twice, and the time to recovery. Keep-alive
// clients call at a constant rate; half of the calls are reads. Each call has a unique request id, and the backend appends each
// received id to a file.
import { setTimeout as delay } from 'node:timers/promises';
import { judgeOutage, MarkedLoad, type Outage, type OutageVerdict } from '../../test/fleet/marked-load.ts';
import { now, RestartingBackend } from '../../test/fleet/restarting-backend.ts';
import type { Scenario } from '../bench.ts';
import { findContender, runHaproxy, type Contender } from '../contenders.ts';
import type { RestartRow } from '../results.ts';
import { pin, type Running } from '../running.ts';
import { existing, median } from '../tables.ts';

const RATE = 500;
const ANSWER_MS = 2;
const WARM_MS = 700;
const DOWN_MS = 300;
// Longer than HAProxy waits before a retry.
const AFTER_MS = 1_600;
const CLOSINGS = 10;
const CLOSING_MS = 50;
const CONNECTIONS_MAX = 2_048;
const RECOVERY_MS_MAX = 200;

// Each contender's configuration follows the documentation of its project. nginx has the configuration of the comparison:
// `keepalive` (ngx_http_upstream_module), and the default `proxy_next_upstream error timeout` (ngx_http_proxy_module).
const contenders: { contender: Contender; env?: Record<string, string> }[] = [
  { contender: findContender('gateway') },
  { contender: { ...findContender('haproxy'), start: runHaproxy('haproxy-restart.cfg') } },
  { contender: findContender('nginx') },
  { contender: findContender('fastify-http-proxy'), env: { RETRIES: '2' } },
];

/** A way to restart the backend. Resolves with the period in which no backend listened; the period may be empty. */
type Mode = (backend: RestartingBackend) => Promise<Outage>;

const goAway = (signal: 'SIGKILL' | 'SIGTERM'): Mode => async (backend) => {
  const from = now();
  await backend.end(signal);
  await delay(DOWN_MS);
  return { from, to: await backend.start() };
}; // prettier-ignore

/** A second process listens on the same port (SO_REUSEPORT) before the first ends. */
const handOver = (signal: 'SIGKILL' | 'SIGTERM'): Mode => async (backend) => {
  const at = await backend.handOver(signal);
  return { from: at, to: at };
}; // prettier-ignore

const modes: Readonly<Record<string, Mode>> = {
  kill: goAway('SIGKILL'),
  stop: goAway('SIGTERM'),
  'fail-over': handOver('SIGKILL'),
  'hand-over': handOver('SIGTERM'),
  'close-idle': async (backend) => {
    const at = now();
    for (let closing = 0; closing < CLOSINGS; closing++) {
      backend.closeIdleConnections();
      await delay(CLOSING_MS);
    }
    return { from: at, to: at };
  },
};

interface Case {
  name: string;
  mode: string;
  one: Running;
}

type Phase = 'cut' | 'down' | 'after';

/** Counts the failed reads, or the failed writes, of all rounds in these phases. */
function count(verdicts: readonly OutageVerdict[], phases: readonly Phase[], isRead: boolean): number {
  const counts = verdicts.flatMap((verdict) => phases.flatMap((phase) => Object.entries(verdict[phase])));
  return counts.reduce((sum, [method, failed]) => sum + ((method === 'GET') === isRead ? failed : 0), 0);
}

function makeRow({ one, mode }: Case, verdicts: readonly OutageVerdict[]): RestartRow {
  const all = ['cut', 'down', 'after'] as const;
  const recoveries = verdicts.map(({ recoveryMs }) => recoveryMs);
  return {
    contender: one.contender.name,
    mode,
    reads: count(verdicts, all, true),
    writes: count(verdicts, all, false),
    late: count(verdicts, ['after'], true) + count(verdicts, ['after'], false),
    writtenTwice: verdicts.reduce((sum, { writtenTwice }) => sum + writtenTwice, 0),
    recoveryMs: median(recoveries),
    recoveryMaxMs: Math.max(...recoveries),
  };
}

/** Describes the goals that the gateway has missed. */
function findMisses({ mode, recoveryMaxMs }: RestartRow, verdicts: readonly OutageVerdict[]): string[] {
  const isGentle = mode === 'hand-over' || mode === 'close-idle';
  const hasOutage = mode === 'kill' || mode === 'stop';
  const lostReads = count(verdicts, isGentle ? ['cut', 'after'] : ['after'], true);
  return [
    ...(lostReads > 0 ? [`${mode}: ${lostReads} reads failed although a backend listened`] : []),
    ...(hasOutage && recoveryMaxMs > RECOVERY_MS_MAX ? [`${mode}: recovery took ${recoveryMaxMs.toFixed(0)} ms`] : []),
  ];
}

export const scenario: Scenario = {
  title: 'calls lost when the backend restarts',
  rounds: 2,
  seconds: 0,
  minutes: 1.8,
  needsPeers: true,
  run: async (bench) => {
    const rate = bench.flags.rate ?? RATE;
    const [execPath, execArgv] = pin(1, process.execPath, []);
    await using backend = await RestartingBackend.start({ answerMs: ANSWER_MS, execPath, execArgv });
    const running: Running[] = [];
    for (const { contender, env } of bench.choose(contenders.map((one) => ({ ...one, name: one.contender.name })))) {
      const one = await bench.startIfPresent(contender, { backendPort: backend.port, ...(env && { env }) });
      if (one !== undefined) running.push(one);
    }
    const cases = Object.keys(modes).flatMap((mode) =>
      running.map((one): Case => ({ name: `${mode} ${one.contender.name}`, mode, one })),
    );
    const results = await bench.takeTurns(
      cases,
      async ({ mode, one }) => {
        const load = new MarkedLoad(one, {
          rate,
          connections: CONNECTIONS_MAX,
          isProxy: one.contender.job === 'proxy',
        });
        await delay(WARM_MS);
        const outage = await existing(modes[mode])(backend);
        await delay(AFTER_MS);
        const verdict = judgeOutage(await load.stop(), backend.readRecord(), outage);
        // Reported immediately, because a write that was sent twice is a fault even if this round is repeated.
        if (verdict.writtenTwice > 0 && one.contender.name === 'gateway')
          bench.miss(`${mode}: ${verdict.writtenTwice} writes were sent twice`);
        return verdict;
      },
      ({ calls, failures }) => `${Object.values(failures).reduce((sum, failed) => sum + failed, 0)} of ${calls} calls`,
    );
    const rows = [...results].map(([one, verdicts]) => makeRow(one, verdicts));
    bench.print(
      `${rate} calls a second, sums of ${bench.section.rounds} rounds`,
      [
        '',
        'failed reads',
        'failed writes',
        'failures of calls sent after the outage',
        'writes sent twice',
        'reads sent again',
        'recovery, ms (worst)',
        'other work, cores',
      ],
      [...results].map(([one, verdicts], index) => {
        const { reads, writes, late, writtenTwice, recoveryMs, recoveryMaxMs } = existing(rows[index]);
        const readTwice = verdicts.reduce((sum, verdict) => sum + verdict.readTwice, 0);
        const recovery = `${recoveryMs.toFixed(0)} (${recoveryMaxMs.toFixed(0)})`;
        const misses = one.one.contender.name === 'gateway' ? findMisses(existing(rows[index]), verdicts) : [];
        for (const miss of misses) bench.miss(miss);
        return [one.name, reads, writes, late, writtenTwice, readTwice, recovery, bench.noise(one.name)];
      }),
    );
    const named = running.map(({ contender: { name, version } }) => ({ name, version: version() }));
    return { restart: { ...bench.section, rate, contenders: named, rows } };
  },
};
