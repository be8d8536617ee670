// Measures how clients see a restart of the backend under load: errors by method, writes sent twice, and the time to recovery.
// Keep-alive clients call at a constant rate; half of the calls are reads. Each call has a unique request id, and the backend
// writes each received id to a file. Contenders take turns.
import { mkdtempSync, rmSync } from 'node:fs';
import { loadavg, tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import { judge, MarkedLoad, type Outage, type Verdict } from '../test/helpers/marked-load.ts';
import { now, RestartingBackend } from '../test/helpers/restarting-backend.ts';
import { CONTENDERS, runNode, writeConfiguration, type Contender } from './contenders.ts';
import { record } from './figures.ts';
import { machine, spreadOf, today, type RestartRow } from './results.ts';
import { pin, startContender, stopAll, type RunningContender } from './running.ts';

const { values: flags } = parseArgs({
  options: {
    rounds: { type: 'string', default: '4' },
    rate: { type: 'string', default: '500' },
    contenders: { type: 'string' },
    record: { type: 'boolean', default: false },
    help: { type: 'boolean', default: false },
  },
});
if (flags.help) {
  console.log(`npm run bench:restart -- [flags]
  --rounds N         restarts of each kind for each contender (4)
  --rate N           calls a second (500)
  --contenders A,B   of gateway, haproxy, nginx, fastify-http-proxy
  --record           records a run of all contenders in bench/results and places its figures in the documents`);
  process.exit();
}
if (flags.record && flags.contenders !== undefined) throw new Error('--record needs all contenders');

const rounds = Number(flags.rounds);
const rate = Number(flags.rate);
const ANSWER_MS = 2;
const WARM_MS = 700;
const DOWN_MS = 300;
// Longer than HAProxy waits before a retry.
const AFTER_MS = 1_600;
const CLOSINGS = 10;
const CLOSING_MS = 50;
const CONNECTIONS_MAX = 2_048;
const RECOVERY_BAR_MS = 200;

// The configurations, as documented by each project. nginx is configured as in the comparison: `keepalive`
// (ngx_http_upstream_module), and the default `proxy_next_upstream error timeout` (ngx_http_proxy_module).
const setUps: Record<string, (contender: Contender) => Contender> = {
  gateway: (contender) => contender,
  haproxy: (contender) => ({
    ...contender,
    start: (place) => ({
      command: 'haproxy',
      args: ['-db', '-f', writeConfiguration('haproxy-restart.cfg', place)],
    }),
  }),
  nginx: (contender) => contender,
  'fastify-http-proxy': (contender) => ({
    ...contender,
    start: runNode('contenders/fastify-http-proxy-restart.ts'),
  }),
};

/** The ways to restart the backend. `run` resolves with the time in which no backend listened, which may be empty. */
const modes: { name: string; title: string; run: (backend: RestartingBackend) => Promise<Outage> }[] = [
  {
    name: 'kill',
    title: `is killed (SIGKILL), started again ${DOWN_MS} ms later`,
    run: async (backend) => goAway(backend, 'SIGKILL'),
  },
  {
    name: 'stop',
    title: `is stopped gently (finishes requests, closes idle connections), started again ${DOWN_MS} ms after its end`,
    run: async (backend) => goAway(backend, 'SIGTERM'),
  },
  {
    name: 'fail-over',
    title: 'is killed (SIGKILL) while a second process listens on the same port (SO_REUSEPORT)',
    run: async (backend) => handOver(backend, 'SIGKILL'),
  },
  {
    name: 'hand-over',
    title: 'is stopped gently while a second process listens on the same port (SO_REUSEPORT)',
    run: async (backend) => handOver(backend, 'SIGTERM'),
  },
  {
    name: 'close-idle',
    title: `goes on, and closes its idle connections ${CLOSINGS} times, ${CLOSING_MS} ms apart`,
    run: async (backend) => {
      const at = now();
      for (let closing = 0; closing < CLOSINGS; closing++) {
        backend.closeIdleConnections();
        await delay(CLOSING_MS);
      }
      return { from: at, to: at };
    },
  },
];

async function goAway(backend: RestartingBackend, signal: 'SIGKILL' | 'SIGTERM'): Promise<Outage> {
  const from = now();
  await backend.end(signal);
  await delay(DOWN_MS);
  return { from, to: await backend.start() };
}

async function handOver(backend: RestartingBackend, signal: 'SIGKILL' | 'SIGTERM'): Promise<Outage> {
  const at = await backend.handOver(signal);
  return { from: at, to: at };
}

async function measure(
  one: RunningContender,
  backend: RestartingBackend,
  run: (backend: RestartingBackend) => Promise<Outage>,
): Promise<Verdict> {
  const load = new MarkedLoad(one.port, { rate, connectionsMax: CONNECTIONS_MAX });
  await delay(WARM_MS);
  const outage = await run(backend);
  await delay(AFTER_MS);
  return judge(await load.stop(), backend.readRecord(), outage);
}

const METHODS = ['GET', 'POST', 'PUT', 'DELETE'];
type Phase = 'cut' | 'down' | 'after';

function sum(verdicts: Verdict[], phase: Phase, method: string): number {
  return verdicts.reduce((total, verdict) => total + (verdict[phase][method] ?? 0), 0);
}

function describeErrors(verdicts: Verdict[], ...phases: Phase[]): string {
  const counts = METHODS.map((method) =>
    phases.reduce((total, phase) => total + sum(verdicts, phase, method), 0),
  );
  return counts.every((count) => count === 0) ? '0' : counts.join(' / ');
}

function describeKinds(verdicts: Verdict[]): string {
  const kinds = new Map<string, number>();
  for (const { failures } of verdicts)
    for (const [kind, count] of Object.entries(failures)) kinds.set(kind, (kinds.get(kind) ?? 0) + count);
  return [...kinds].map(([kind, count]) => `${kind}: ${String(count)}`).join(', ');
}

const total = (verdicts: Verdict[], field: 'calls' | 'writtenTwice' | 'readTwice'): number =>
  verdicts.reduce((all, verdict) => all + verdict[field], 0);

function describeRecovery(verdicts: Verdict[]): string {
  const sorted = verdicts.map((verdict) => verdict.recoveryMs).sort((a, b) => a - b);
  return `${(sorted[Math.floor((sorted.length - 1) / 2)] ?? 0).toFixed(0)} (${(sorted.at(-1) ?? 0).toFixed(0)})`;
}

function findMisses(results: Map<string, Verdict[]>): string[] {
  const misses: string[] = [];
  for (const { name } of modes) {
    const verdicts = results.get(name) ?? [];
    if (total(verdicts, 'writtenTwice') > 0) misses.push(`${name}: a write was sent twice`);
    if (sum(verdicts, 'after', 'GET') > 0)
      misses.push(`${name}: a GET failed although the backend was there`);
    const hasOutage = name === 'kill' || name === 'stop';
    const isGentle = name === 'hand-over' || name === 'close-idle';
    if (isGentle && sum(verdicts, 'cut', 'GET') > 0) misses.push(`${name}: a GET failed`);
    if (hasOutage && verdicts.some((verdict) => verdict.recoveryMs > RECOVERY_BAR_MS))
      misses.push(`${name}: recovery took more than ${RECOVERY_BAR_MS} ms`);
  }
  return misses;
}

const wanted = flags.contenders?.split(',') ?? Object.keys(setUps);
const contenders = wanted.map((name) => {
  const found = CONTENDERS.find((one) => one.name === name);
  const setUp = setUps[name];
  if (!found || !setUp)
    throw new Error(`there is no contender ${name}; there are ${Object.keys(setUps).join(', ')}`);
  return setUp(found);
});
const skipped: { name: string; why: string }[] = [];
const folder = mkdtempSync(join(tmpdir(), 'work-item-gateway-restart-'));
const [execPath, execArgv] = pin(1, process.execPath, []);
const loadBefore = loadavg()[0] ?? 0;
const results = new Map<string, Map<string, Verdict[]>>();
try {
  await using backend = await RestartingBackend.start({ answerMs: ANSWER_MS, execPath, execArgv });
  const running: RunningContender[] = [];
  for (const contender of contenders) {
    const why = contender.findMissing();
    if (why === undefined)
      running.push(await startContender(contender, backend.port, join(folder, contender.name)));
    else {
      skipped.push({ name: contender.name, why });
      console.log(`${contender.name} is skipped: ${why}`);
    }
  }
  for (let round = 0; round < rounds; round++)
    for (const { name, run } of modes)
      for (const one of running) {
        const verdict = await measure(one, backend, run);
        const byMode = results.get(one.contender.name) ?? new Map<string, Verdict[]>();
        results.set(one.contender.name, byMode.set(name, [...(byMode.get(name) ?? []), verdict]));
        console.log(
          `round ${String(round + 1)}, ${name}, ${one.contender.name}: ` +
            `${describeErrors([verdict], 'cut', 'down', 'after')} of ${String(verdict.calls)}`,
        );
      }
} finally {
  await stopAll();
  rmSync(folder, { recursive: true, force: true });
}

const titles = contenders.filter(({ name }) => results.has(name));
const lines = [
  `# The backend restarts, ${today}`,
  '',
  `\`npm run bench:restart\` on ${machine}. ${String(rounds)} restarts of each kind for each contender, in turns;`,
  `${String(rate)} calls a second on keep-alive connections, half of them GET, the rest POST, PUT and DELETE; the backend`,
  `takes ${String(ANSWER_MS)} ms for an answer. Sums over all rounds; errors as GET / POST / PUT / DELETE. An error is a status`,
  `of 500 or more, a connection closed without a reply, or no reply within 5 s. Load average before: ${loadBefore.toFixed(1)}.`,
  '',
  ...titles.map(({ title, version }) => `- ${title} ${version()}`),
  ...skipped.map(({ name, why }) => `- ${name}: skipped, ${why}`),
  '',
];
for (const { name, title } of modes) {
  const hasOutage = name === 'kill' || name === 'stop';
  lines.push(`## The backend ${title}`, '');
  const head = hasOutage
    ? [
        'errors of calls sent before it went',
        'while nothing listened',
        'after its return',
        'writes sent twice',
        'recovery ms, median (worst)',
      ]
    : ['errors', 'writes sent twice', 'reads sent again'];
  lines.push(
    `| contender | calls | ${head.join(' | ')} | kinds |`,
    `|---|--:|${head.map(() => '--:').join('|')}|---|`,
  );
  for (const contender of titles) {
    const verdicts = results.get(contender.name)?.get(name) ?? [];
    const cells = hasOutage
      ? [
          describeErrors(verdicts, 'cut'),
          describeErrors(verdicts, 'down'),
          describeErrors(verdicts, 'after'),
          total(verdicts, 'writtenTwice'),
          describeRecovery(verdicts),
        ]
      : [
          describeErrors(verdicts, 'cut', 'down', 'after'),
          total(verdicts, 'writtenTwice'),
          total(verdicts, 'readTwice'),
        ];
    lines.push(
      `| ${contender.title} | ${String(total(verdicts, 'calls'))} | ${cells.join(' | ')} | ${describeKinds(verdicts)} |`,
    );
  }
  lines.push('');
}
const ours = results.get('gateway');
const misses = ours ? findMisses(ours) : [];
if (ours) {
  lines.push(
    misses.length === 0
      ? `The gateway: no GET lost while something listens, no write sent twice, itself again within ${String(RECOVERY_BAR_MS)} ms.`
      : `The gateway misses: ${misses.join('; ')}.`,
    '',
  );
}
console.log(lines.join('\n'));

if (flags.record) {
  const rows = [...results].flatMap(([contender, byMode]) =>
    [...byMode].map(([mode, verdicts]): RestartRow => {
      const count = (field: Phase | 'failures'): Record<string, number> => {
        const counts: Record<string, number> = {};
        for (const verdict of verdicts)
          for (const [name, number] of Object.entries(verdict[field]))
            counts[name] = (counts[name] ?? 0) + number;
        return counts;
      };
      return {
        contender,
        mode,
        calls: total(verdicts, 'calls'),
        cut: count('cut'),
        down: count('down'),
        after: count('after'),
        failures: count('failures'),
        writtenTwice: total(verdicts, 'writtenTwice'),
        readTwice: total(verdicts, 'readTwice'),
        recoveryMs: spreadOf(verdicts.map(({ recoveryMs }) => recoveryMs)),
      };
    }),
  );
  const named = titles.map(({ name, title, version }) => ({ name, title, version: version() }));
  await record('restart', { date: today, machine, rounds, rate, contenders: named, skipped, rows });
}
if (misses.length > 0) process.exitCode = 1;
process.exit();
