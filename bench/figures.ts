// Places the recorded figures in the documents, between the marks `figures:begin` and `figures:end`, and draws
// bench/comparison.svg. Used by `npm run figures`, and by each scenario with `--record`.
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { format, resolveConfig } from 'prettier';
import { CONTENDERS } from './contenders.ts';
import { drawPicture } from './picture.ts';
import { readResults, writeSections, type Results } from './results.ts';
import { formatUs, makeTable, type Cell } from './tables.ts';

const root = join(import.meta.dirname, '..');
const PICTURE = 'bench/comparison.svg';
const MARKED = /(?<=<!-- figures:begin -->\n).*?(?=<!-- figures:end -->)/gs;

/** Goals of figures. The goals of guards are in scenarios/guards.ts. */
export const GOALS = {
  firstReplyMs: 250,
  idleMb: 70,
  cancelledMs: 100,
  /** p99 of good clients during an attack [D58]: 250 ms, or ten times the p99 without an attack if that is longer. */
  hostileP99Ms: (withoutMs: number): number => Math.max(250, 10 * withoutMs),
};

/** A row of the table in docs/performance.md. */
type Line = [title: string, figures: string, goals: string];

const COLUMNS = ['item', 'put', 'post', 'list100', 'list1000'];

/** A figure with its unit, bold if it misses its goal. */
function judge(value: number, digits: number, unit: string, goal: number | undefined): string {
  const text = `${value.toFixed(digits)}${unit}`;
  return goal !== undefined && Number(value.toFixed(digits)) > goal ? `**${text}**` : text;
}

const findPeer = ({ peers }: Results, name: string) => peers.rows.find((row) => row.name === name);

function ratioOf(results: Results, one: string, other: string, workload: string): number {
  return (findPeer(results, one)?.us[workload] ?? NaN) / (findPeer(results, other)?.us[workload] ?? NaN);
}

function peerLines(results: Results): Line[] {
  const costs = (title: string, name: string): Line => {
    const values = COLUMNS.map((workload) => formatUs(findPeer(results, name)?.us[workload]));
    return [title, `${values.join(', ')} µs`, ''];
  };
  const p99 = (name: string): string =>
    ['item', 'mixed'].map((workload) => findPeer(results, name)?.paced?.[workload]?.p99Ms.toFixed(1) ?? '–').join(', ');
  return [
    costs('processor time: gateway', 'gateway'),
    costs('processor time: Fastify plugin', 'gateway-plugin'),
    [`p99 at ${results.peers.rate.toLocaleString('en')} calls/s: only reads, mixed calls`, `${p99('gateway')} ms`, ''],
  ];
}

function peerRatios(results: Results): Line[] {
  const ratios = (title: string, one: string, other: string, goals: readonly number[] = []): Line => {
    const values = COLUMNS.map((workload, index) => judge(ratioOf(results, one, other, workload), 2, '', goals[index]));
    return [title, values.join(', '), goals.join(', ')];
  };
  return [
    ratios('gateway ÷ nginx + Lua', 'gateway', 'nginx-lua', [0.85, 0.85, 0.85, 0.25, 0.15]),
    ratios('gateway ÷ floor', 'gateway', 'node-net', [1.15, 1.15, 1.15]),
    ratios('gateway ÷ HAProxy', 'gateway', 'haproxy', [1.2, 1.2, 1.2]),
    ratios('gateway ÷ @fastify/http-proxy', 'gateway', 'fastify-http-proxy', [0.25, 0.25, 0.25]),
    ratios('gateway as a Next.js route ÷ hand-written Next.js handlers', 'next-gateway', 'next'),
  ];
}

/** Ratios to peers for a read, an update and a create, with a line for each number of connections. In bold: above the goal. */
function connectionLines({ connections }: Results): Line[] {
  const counts = [...new Set(connections.rows.map((row) => row.connections))];
  const line = (title: string, peer: string, goalOf: (count: number) => number, field: 'us' | 'p99Ms' = 'us'): Line[] =>
    counts.map((count) => {
      const goal = goalOf(count);
      const ratios = COLUMNS.slice(0, 3).map((workload) => {
        const row = connections.rows.find((one) => one.connections === count && one.workload === workload);
        return judge((row?.[field]['gateway'] ?? NaN) / (row?.[field][peer] ?? NaN), 2, '', goal);
      });
      return [`${title}, ${count.toLocaleString('en')} connections`, ratios.join(', '), String(goal)];
    });
  return [
    ...line('gateway ÷ nginx + Lua', 'nginx-lua', (count) => (count < 256 ? 0.85 : 0.72)),
    ...line('gateway ÷ floor', 'node-net', () => 1.2),
    ...line('gateway ÷ HAProxy', 'haproxy', () => 1.2),
    ...line('p99 at saturation: gateway ÷ nginx + Lua', 'nginx-lua', () => 1, 'p99Ms'),
  ];
}

function guardLines({ guards }: Results): Line[] {
  const line = (name: string, title = name): Line => {
    const { factor, moreUs = NaN, goal } = guards.rows.find((row) => row.name === name) ?? {};
    return factor === undefined
      ? [title, `+ ${judge(moreUs, 1, ' µs', goal)}`, goal === undefined ? '' : `${goal} µs`]
      : [title, `× ${judge(factor, 2, '', goal)}`, String(goal ?? '')];
  };
  return [
    line('remembered token', 'token that was verified before'),
    line('CORS'),
    line('rate limit'),
    line('rate limit in Redis, 10,000/s', 'rate limit in Redis'),
    line('traces, 1 %', 'traces, 1 % sampled'),
    line('TLS, HTTP/1.1', 'TLS'),
    line('TLS, HTTP/2, 32 streams', 'HTTP/2'),
    line('a log line a call', 'log line for each call, into a pipe'),
  ];
}

function growthLines({ growth }: Results): Line[] {
  const [[, itemUs] = ['', NaN], ...lists] = Object.entries(growth.sizes);
  const factors = lists.map(([, us]) => (us / itemUs).toFixed(us / itemUs < 10 ? 1 : 0));
  const gain = ((growth.workers['1'] ?? NaN) / (growth.workers['2'] ?? NaN)) * 2;
  const sizes = lists.map(([size]) => size).join(', ');
  return [
    [`lists of ${sizes} ÷ read of an item`, factors.join(', '), ''],
    ['capacity: two workers ÷ one worker', gain.toFixed(2), ''],
  ];
}

function jsonLine({ json }: Results): Line {
  const speeds = ['item, 432 B', 'list of items, 417 KB'].map((name) => {
    const { bytes = NaN, scannerNs = NaN, oracleNs = NaN } = json.rows.find((row) => row.name === name) ?? {};
    return `${(bytes / scannerNs).toFixed(1)} GB/s (× ${(oracleNs / scannerNs).toFixed(1)})`;
  });
  return ['speed of the JSON check for 432 B, 417 KB', speeds.join(', '), ''];
}

function startLines({ startup }: Results): Line[] {
  const line = (title: string, field: 'firstReplyMs' | 'idleMb', unit: string): Line => {
    const [built = NaN, source = NaN, bare = NaN] = ['built', 'source', 'bare'].map(
      (start) => startup.rows.find(({ name }) => name === start)?.[field],
    );
    const others = `${source.toFixed(0)}, ${bare.toFixed(0)} ${unit}`;
    return [title, `${judge(built, 0, '', GOALS[field])}, ${others}`, `${GOALS[field]} ${unit}`];
  };
  return [
    line('time to the first reply: built command, command from source, bare node:http server', 'firstReplyMs', 'ms'),
    line('idle memory of these three programs', 'idleMb', 'MB'),
  ];
}

function hostileLines({ hostile }: Results): Line[] {
  return ['', ', tokens', ', TLS'].flatMap((door): Line[] => {
    const rows = hostile.rows.filter((row) => row.rest === `no attack${door}`);
    const rest = rows.find(({ name, rest }) => name === rest);
    const [worst] = rows.filter((row) => row !== rest).toSorted((a, b) => b.p99Ms - a.p99Ms);
    if (rest === undefined || worst === undefined) return [];
    const goal = GOALS.hostileP99Ms(rest.p99Ms);
    const over = { '': '', ', tokens': ' with tokens', ', TLS': ' over TLS' }[door] ?? '';
    return [
      [
        `p99${over}: during an attack (${worst.name}), without attack`,
        `${judge(worst.p99Ms, 1, '', goal)}, ${rest.p99Ms.toFixed(1)} ms`,
        `${goal} ms`,
      ],
    ];
  });
}

function makePerformance(results: Results): string {
  const toFile = ratioOf(results, 'gateway-info', 'gateway', 'item');
  const lines: Line[] = [
    ...peerLines(results),
    ...guardLines(results),
    ['log line for each call, into a file', `× ${toFile.toFixed(2)}`, ''],
    ...growthLines(results),
    ...startLines(results),
    ...hostileLines(results),
  ];
  const names = ['peers', 'guards', 'growth', 'startup', 'hostile'] as const;
  const recorded = [...Map.groupBy(names, (name) => results[name].date)].map(
    ([date, group]) => `${date} (scenarios: ${group.join(', ')})`,
  );
  return [
    makeTable(['Figure', 'Measured', 'Goal'], lines),
    `Recorded on ${recorded.join(', ')}.`,
    ...describeNoise(results, names),
  ].join('\n\n');
}

function makeRatios(results: Results): string {
  const { aborts, connections } = results;
  const cancelled = (name: string): string => (aborts.cancelledMs[name] ?? NaN).toFixed(0);
  const lines: Line[] = [
    ...peerRatios(results),
    ...connectionLines(results),
    jsonLine(results),
    [
      `time until ${aborts.clients.toLocaleString('en')} abandoned reads are cancelled: gateway, floor`,
      `${cancelled('gateway')}, ${cancelled('node-net')} ms`,
      `${GOALS.cancelledMs} ms`,
    ],
  ];
  return [
    makeTable(['Figure', 'Measured', 'Goal'], lines),
    `Recorded on ${connections.date} (connections), ${results.json.date} (json), ${aborts.date} (aborts).`,
    ...describeNoise(results, ['connections', 'json', 'aborts']),
  ].join('\n\n');
}

function describeNoise(results: Results, names: readonly (keyof Results)[]): string[] {
  const noisy = names.flatMap((name) => {
    const figures = (results[name] as { noisy?: readonly string[] }).noisy ?? [];
    return figures.length === 0 ? [] : [`${figures.map((one) => `"${one}"`).join(' and ')} (scenario ${name})`];
  });
  return noisy.length === 0 ? [] : [`Other work on the machine disturbed these measurements: ${noisy.join(', ')}.`];
}

function makeAblation({ ablation }: Results): string {
  const [whole, ...parts] = ablation.rows;
  const rows = parts.toSorted((a, b) => (b.us['item'] ?? 0) - (a.us['item'] ?? 0));
  const cells = [{ us: whole?.us ?? {}, name: 'whole call' }, ...rows].map(({ name, us }) => [
    name,
    us['item']?.toFixed(2),
    us['put']?.toFixed(2),
  ]);
  return `Recorded on ${ablation.date}. Medians of ${ablation.rounds} rounds.\n\n${makeTable(['µs', 'read', 'update'], cells)}`;
}

function makeComparison({ peers }: Results): string {
  const workloads = ['item', 'list100', 'list1000', 'put', 'post', 'delete'];
  const rows = peers.rows.flatMap(({ name, version, us }) => {
    const contender = CONTENDERS.find((one) => one.name === name);
    if (contender === undefined || contender.workloads !== undefined) return [];
    const { title, checksJson } = contender;
    return [
      [
        name.startsWith('node-') ? title : `${title} ${version}`,
        checksJson ? 'yes' : 'no',
        ...workloads.map((workload) => formatUs(us[workload])),
      ],
    ];
  });
  const header = ['µs', 'checks JSON', 'read', '42 KB', '417 KB', 'update', 'create', 'delete'];
  return `Recorded on ${peers.date} at commit ${peers.commit}, on ${peers.machine}. Each figure is the median of ${peers.rounds} rounds of ${peers.seconds} s.\n\n${makeTable(header, rows)}`;
}

function makeReadme(results: Results): string {
  const ratio = (workload: string): string => ratioOf(results, 'gateway', 'nginx-lua', workload).toFixed(2);
  return `In the benchmark, nginx does the gateway's job in Lua. Relative to nginx, the gateway's processor time per call is ${ratio('item')} for a read, ${ratio('put')} for an
update, ${ratio('post')} for a create, ${ratio('delete')} for a delete and ${ratio('list100')} for a list of 42 KB. Each figure is the median of ${results.peers.rounds} rounds on one core of a small virtual machine.`;
}

function makeRestart({ restart }: Results): string {
  const { contenders, date, rate, rounds, rows } = restart;
  const rowOf = (contender: string, mode: string) =>
    rows.find((row) => row.contender === contender && row.mode === mode);
  const failed = (mode: string) => (contender: string) => {
    const { reads = NaN, writes = NaN } = rowOf(contender, mode) ?? {};
    return `${reads} / ${writes}`;
  };
  const late = (contender: string): number =>
    (rowOf(contender, 'kill')?.late ?? NaN) + (rowOf(contender, 'stop')?.late ?? NaN);
  const recovery = (contender: string): string => {
    const { recoveryMs = NaN, recoveryMaxMs = NaN } = rowOf(contender, 'kill') ?? {};
    return `${recoveryMs.toFixed(0)} (${recoveryMaxMs.toFixed(0)})`;
  };
  const twice = (contender: string): Cell => judge(rowOf(contender, 'fail-over')?.writtenTwice ?? NaN, 0, '', 0);
  const lines: [string, (contender: string) => Cell][] = [
    ['down for 300 ms: failures of calls sent after its return', late],
    ['killed: median recovery in ms (worst)', recovery],
    ['killed while a second backend listens: failed reads / writes', failed('fail-over')],
    ['killed while a second backend listens: writes sent twice', twice],
    ['stopped while a second backend listens: failed reads / writes', failed('hand-over')],
    ['closes idle connections: failed reads / writes', failed('close-idle')],
  ];
  const titles = contenders.map(({ name, version }) => (name === 'gateway' ? 'Gateway' : `${name} ${version}`));
  const table = makeTable(
    ['Backend', ...titles],
    lines.map(([title, cellOf]) => [title, ...contenders.map(({ name }) => cellOf(name))]),
  );
  return `\`npm run bench -- restart\` on ${date}: ${rate} calls a second, half of them reads. Each figure is for ${rounds} rounds, in which the contenders took turns.\n\n${table}`;
}

function makeFleet({ fleet }: Results): string {
  const lost = makeTable(
    ['Fault', 'Calls lost', 'Lost calls whose write was done', 'Seconds from the fault to the last lost call'],
    fleet.rows.map(({ fault, lost: calls, done, recoveredMs }) => [
      fault,
      calls,
      done,
      calls === 0 ? undefined : (recoveredMs / 1_000).toFixed(1),
    ]),
  );
  const summary = `Recorded on ${fleet.date} on ${fleet.machine}. Calls: ${fleet.calls.toLocaleString('en')} in ${fleet.seconds} s. Writes done twice: ${fleet.writesTwice}. Lost calls that no fault explains: ${fleet.lostOtherwise}.`;
  return `${summary}\n\n${lost}`;
}

/** A table of the processes that a fleet needs at several rates of calls, calculated from recorded costs. */
function makeSizing(results: Results): string {
  const guard = (name: string) => results.guards.rows.find((row) => row.name === name) ?? { factor: NaN };
  // The cost at the comparison's constant rate. At this rate, a process is about as busy as the constant `busy` says.
  const costOfCall = (name: string): number => findPeer(results, name)?.paced?.['mixed']?.us ?? NaN;
  const tls = guard('TLS, HTTP/1.1').factor ?? NaN;
  const guards = ['remembered token', 'rate limit in Redis, 10,000/s'].map(
    (name) => (guard(name) as { moreUs?: number }).moreUs ?? NaN,
  );
  const gatewayUs = guards.reduce((sum, us) => sum + us, costOfCall('gateway') * tls);
  // HAProxy uses TLS to clients and to gateways, so the extra cost of TLS is added twice.
  const balancerUs = costOfCall('haproxy') * (2 * tls - 1);
  const busy = 0.7;
  const backendS = 0.05;
  // The mix: a tenth of the calls are lists of 42 KB, all others have 432 B. The heads of request and reply have 500 B together.
  const bytesOfCall = 0.1 * 42_000 + 0.9 * 432 + 500;
  const rates = [1_000, 10_000, 100_000, 1_000_000];
  const processesFor = (rate: number, us: number): number => Math.ceil((rate * us) / 1e6 / busy);
  const rows: [string, (rate: number) => number][] = [
    ['gateway processes, one of them spare', (rate) => processesFor(rate, gatewayUs) + 1],
    ['HAProxy threads', (rate) => processesFor(rate, balancerUs)],
    ['calls in flight', (rate) => rate * backendS],
    ['calls in flight in each process', (rate) => Math.ceil((rate * backendS) / (processesFor(rate, gatewayUs) + 1))],
    ['Redis commands a second, at most', (rate) => Math.min(rate, 1_000 * (processesFor(rate, gatewayUs) + 1))],
    ['Mbit/s to the backends and back', (rate) => Math.round((rate * bytesOfCall * 8) / 1e6)],
  ]; // prettier-ignore
  const table = makeTable(
    ['Calls a second', ...rates.map((rate) => rate.toLocaleString('en'))],
    rows.map(([title, valueOf]) => [title, ...rates.map((rate) => valueOf(rate).toLocaleString('en'))]),
  );
  return `A call costs ${gatewayUs.toFixed(0)} µs in a gateway and ${balancerUs.toFixed(0)} µs in HAProxy.\n\n${table}`;
}

const blocks: Readonly<Record<string, ((results: Results) => string)[]>> = {
  'README.md': [makeReadme],
  'bench/comparison.md': [makeComparison, makeRatios, makeRestart, makeAblation],
  'docs/fleet.md': [makeFleet, makeSizing],
  'docs/performance.md': [makePerformance],
};

/** The new texts of all files that have recorded figures, by path. */
export async function makeFiles(results: Results = readResults()): Promise<Map<string, string>> {
  const files = new Map([[PICTURE, drawPicture(results.peers)]]);
  for (const [path, makeBlocks] of Object.entries(blocks)) {
    const text = readFileSync(join(root, path), 'utf8');
    const marked = [...text.matchAll(MARKED)].length;
    if (marked !== makeBlocks.length)
      throw new Error(`${path} has ${marked} pairs of marks for figures instead of ${makeBlocks.length}`);
    let index = 0;
    const placed = text.replace(MARKED, () => `\n${makeBlocks[index++]?.(results) ?? ''}\n\n`);
    const options = await resolveConfig(join(root, path));
    files.set(path, await format(placed, { ...options, parser: 'markdown' }));
  }
  return files;
}

async function placeFigures(): Promise<void> {
  for (const [path, text] of await makeFiles()) writeFileSync(join(root, path), text);
}

/** Records sections of figures and places them in the documents. */
export async function record(sections: Partial<Results>): Promise<void> {
  writeSections(sections);
  await placeFigures();
}

if (import.meta.main) await placeFigures();
