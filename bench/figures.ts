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

const COLUMNS = ['item', 'put', 'post', 'list100', 'list1000'];
const COLUMN_TITLES = ['read', 'update', 'create', 'list of 42 KB', 'list of 417 KB'];

type Row = readonly Cell[];

/** A figure, bold if it misses its goal. */
function judge(value: number, digits: number, goal: number | undefined): string {
  const text = value.toFixed(digits);
  return goal !== undefined && Number(text) > goal ? `**${text}**` : text;
}

const findPeer = ({ peers }: Results, name: string) => peers.rows.find((row) => row.name === name);

function ratioOf(results: Results, one: string, other: string, workload: string): number {
  return (findPeer(results, one)?.us[workload] ?? NaN) / (findPeer(results, other)?.us[workload] ?? NaN);
}

function makeCosts(results: Results): string {
  const row = (title: string, name: string): Row => [
    title,
    ...COLUMNS.map((workload) => formatUs(findPeer(results, name)?.us[workload])),
  ];
  const rows = [row('gateway', 'gateway'), row('Fastify plugin', 'gateway-plugin')];
  return makeTable(['Processor time of a call, µs', ...COLUMN_TITLES], rows);
}

function makeGuards(results: Results): string {
  const row = (name: string, title = name): Row => {
    const { factor, moreUs = NaN, goal } = results.guards.rows.find((one) => one.name === name) ?? {};
    return factor === undefined
      ? [title, `+ ${judge(moreUs, 1, goal)} µs`, goal === undefined ? '' : `+ ${goal} µs`]
      : [title, `× ${judge(factor, 2, goal)}`, goal === undefined ? '' : `× ${goal}`];
  };
  return makeTable(
    ['A read with', 'Cost', 'Goal'],
    [
      row('remembered token', 'a token that was verified before'),
      row('CORS'),
      row('rate limit', 'a rate limit'),
      row('rate limit in Redis, 10,000/s', 'a rate limit in Redis, at 10,000 calls/s'),
      row('traces, 1 %', 'traces, 1 % sampled'),
      row('TLS, HTTP/1.1', 'TLS instead of TCP'),
      row('TLS, HTTP/2, 32 streams', 'HTTP/2 instead of HTTP/1.1 over TLS'),
      row('a log line a call', 'a log line, into a pipe'),
      ['a log line, into a file', `× ${ratioOf(results, 'gateway-info', 'gateway', 'item').toFixed(2)}`, ''],
    ],
  );
}

function makeLatencies({ peers, hostile }: Results): string {
  const paced = (workload: string) => peers.rows.find(({ name }) => name === 'gateway')?.paced?.[workload]?.p99Ms;
  const rate = peers.rate.toLocaleString('en');
  const attacks = ['', ', tokens', ', TLS'].flatMap((door): Row[] => {
    const rows = hostile.rows.filter((row) => row.rest === `no attack${door}`);
    const rest = rows.find((row) => row.name === row.rest);
    const [worst] = rows.filter((row) => row !== rest).toSorted((a, b) => b.p99Ms - a.p99Ms);
    if (rest === undefined || worst === undefined) return [];
    const goal = GOALS.hostileP99Ms(rest.p99Ms);
    const title = `clients${{ '': '', ', tokens': ' with tokens', ', TLS': ' over TLS' }[door] ?? ''}; ${worst.name}`;
    return [[title, rest.p99Ms.toFixed(1), judge(worst.p99Ms, 1, goal), goal]];
  });
  return makeTable(
    ['p99, ms', 'without attack', 'during the attack', 'Goal'],
    [
      [`reads, ${rate} calls/s`, paced('item')?.toFixed(1), '', ''],
      [`mixed calls, ${rate} calls/s`, paced('mixed')?.toFixed(1), '', ''],
      ...attacks,
    ],
  );
}

function makeStarts({ startup }: Results): string {
  const row = (title: string, field: 'firstReplyMs' | 'idleMb'): Row => {
    const [built = NaN, source = NaN, bare = NaN] = ['built', 'source', 'bare'].map(
      (start) => startup.rows.find(({ name }) => name === start)?.[field],
    );
    return [title, judge(built, 0, GOALS[field]), GOALS[field], source.toFixed(0), bare.toFixed(0)];
  };
  return makeTable(
    ['Start', 'built command', 'Goal', 'from source', 'bare node:http server'],
    [row('time to the first reply, ms', 'firstReplyMs'), row('idle memory, MB', 'idleMb')],
  );
}

function makePerformance(results: Results): string {
  const { growth } = results;
  const gain = ((growth.workers['1'] ?? NaN) / (growth.workers['2'] ?? NaN)) * 2;
  const names = ['peers', 'guards', 'growth', 'startup', 'hostile'] as const;
  return [
    makeCosts(results),
    makeGuards(results),
    makeLatencies(results),
    makeStarts(results),
    `Two workers have ${gain.toFixed(2)} times the capacity of one.`,
    describeRecords(results, names),
  ].join('\n\n');
}

/** Processor time relative to each peer. In bold: above the goal. */
function makeRatios(results: Results): string {
  const { aborts, connections } = results;
  const row = (peer: string, title: string, goals: readonly (number | undefined)[] = [], one = 'gateway'): Row => [
    title,
    64,
    ...COLUMNS.map((workload, index) => judge(ratioOf(results, one, peer, workload), 2, goals[index])),
    goals.filter((goal) => goal !== undefined).join(', '),
  ];
  const same = (goal: number) => [goal, goal, goal];
  const counts = [...new Set(connections.rows.map((each) => each.connections))];
  const rowsOf = (peer: string, title: string, goalOf: (count: number) => number, field: 'us' | 'p99Ms' = 'us') =>
    counts.map((count): Row => {
      const ratios = COLUMNS.slice(0, 3).map((workload) => {
        const found = connections.rows.find((each) => each.connections === count && each.workload === workload);
        return judge((found?.[field]['gateway'] ?? NaN) / (found?.[field][peer] ?? NaN), 2, goalOf(count));
      });
      return [title, count.toLocaleString('en'), ...ratios, '', '', goalOf(count)];
    });
  const nginxGoal = (count: number): number => (count < 256 ? 0.95 : count < 1_000 ? 0.85 : 0.65);
  const table = makeTable(
    ['Gateway ÷', 'connections', ...COLUMN_TITLES, 'Goal'],
    [
      row('nginx-lua', 'nginx + Lua', [...same(nginxGoal(64)), 0.25, 0.15]),
      ...rowsOf('nginx-lua', 'nginx + Lua', nginxGoal),
      row('node-net', 'floor', same(1.2)),
      ...rowsOf('node-net', 'floor', () => 1.2),
      row('haproxy', 'HAProxy', same(1.2)),
      ...rowsOf('haproxy', 'HAProxy', () => 1.2),
      row('fastify-http-proxy', '@fastify/http-proxy', same(0.33)),
      row('next', 'hand-written Next.js handlers; gateway as a Next.js route', [], 'next-gateway'),
      ...rowsOf('nginx-lua', 'nginx + Lua: p99 at saturation', () => 1, 'p99Ms'),
    ],
  );
  const speeds = (
    [
      ['item, 432 B', 'an item of 432 B'],
      ['list of items, 417 KB', 'a list of 417 KB'],
    ] as const
  ).map(([name, title]) => {
    const { bytes = NaN, scannerNs = NaN, oracleNs = NaN } = results.json.rows.find((each) => each.name === name) ?? {};
    return `${(bytes / scannerNs).toFixed(1)} GB/s for ${title} (${(oracleNs / scannerNs).toFixed(1)} times as fast as JSON.parse)`;
  });
  const cancelled = (name: string): string => (aborts.cancelledMs[name] ?? NaN).toFixed(0);
  return [
    table,
    `The JSON check: ${speeds.join(', ')}. ${aborts.clients.toLocaleString('en')} abandoned reads are cancelled after ${cancelled('gateway')} ms (floor: ${cancelled('node-net')} ms, goal: ${GOALS.cancelledMs} ms).`,
    describeRecords(results, ['connections', 'json', 'aborts']),
  ].join('\n\n');
}

function describeRecords(
  results: Results,
  names: readonly ('aborts' | 'connections' | 'growth' | 'guards' | 'hostile' | 'json' | 'peers' | 'startup')[],
): string {
  const dates = [...Map.groupBy(names, (name) => results[name].date)].map(
    ([date, group]) => `${date} (${group.join(', ')})`,
  );
  return [`Recorded on ${dates.join(', ')}.`, ...describeNoise(results, names)].join(' ');
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
  const twice = (contender: string): Cell => judge(rowOf(contender, 'fail-over')?.writtenTwice ?? NaN, 0, 0);
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
