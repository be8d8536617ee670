// Places the recorded figures in the documents, between the marks `figures:begin` and `figures:end`, and draws
// bench/comparison.svg. Used by `npm run figures`, and by each benchmark with `--record`.
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { format, resolveConfig } from 'prettier';
import { LABELS, drawPicture } from './picture.ts';
import { readResults, writeSection, type GrowthRow, type GuardRow, type Results } from './results.ts';

const root = join(import.meta.dirname, '..');
const PICTURE = 'bench/comparison.svg';
const MARKED = /(?<=<!-- figures:begin -->\n).*?(?=<!-- figures:end -->)/gs;

type Cell = string | number | undefined;

export function makeTable(header: readonly string[], rows: readonly (readonly Cell[])[]): string {
  const line = (cells: readonly Cell[]): string =>
    `| ${cells.map((cell) => String(cell ?? '–')).join(' | ')} |`;
  return [
    line(header),
    line(header.map((_, index) => (index === 0 ? '---' : '---:'))),
    ...rows.map(line),
  ].join('\n');
}

export function formatUs(us: number | undefined): string | undefined {
  if (us === undefined || us === 0) return undefined;
  return us < 100 ? us.toFixed(1) : String(Math.round(us));
}

function costOf({ comparison }: Results, contender: string, workload: string): number | undefined {
  return comparison.throughput.find((row) => row.contender === contender && row.workload === workload)
    ?.processorUs.median;
}

function ratioOf(results: Results, one: string, other: string, workload: string): number {
  return (costOf(results, one, workload) ?? NaN) / (costOf(results, other, workload) ?? NaN);
}

/** A figure with its unit, bold if it misses its goal. */
function judge(value: number, digits: number, unit: string, goal: number | undefined): string {
  const text = `${value.toFixed(digits)}${unit}`;
  return goal !== undefined && Number(value.toFixed(digits)) > goal ? `**${text}**` : text;
}

/** A row of the table in docs/performance.md: title, figures, and their goals. */
type Line = [string, string, string];

const COLUMNS = ['item', 'put', 'post', 'list100', 'list1000'];

function ratioLine(results: Results, title: string, other: string, goals: readonly number[]): Line {
  const values = COLUMNS.map((workload, index) =>
    judge(ratioOf(results, 'gateway', other, workload), 2, '', goals[index]),
  );
  return [title, values.join(', '), goals.join(', ')];
}

function costLine(results: Results, title: string, contender: string): Line {
  const values = COLUMNS.map((workload) => formatUs(costOf(results, contender, workload)));
  return [title, `${values.join(', ')} µs`, ''];
}

function latencyLines({ comparison }: Results): Line[] {
  const rate = Math.max(...comparison.latency.map((row) => row.rate));
  const p99 = (contender: string): string =>
    ['item', 'mixed']
      .map((workload) => {
        const found = comparison.latency.find(
          (row) => row.contender === contender && row.workload === workload && row.rate === rate,
        );
        return found === undefined || found.overCapacity ? '–' : found.p99.toFixed(1);
      })
      .join(', ');
  return [
    ['gateway', 'gateway'],
    ['nginx + Lua', 'nginx-lua'],
  ].map(([name = '', contender = '']) => [
    `p99 at ${rate.toLocaleString('en')} calls/s, ${name}: only reads, mixed calls`,
    `${p99(contender)} ms`,
    '',
  ]);
}

function guardLine({ guards }: Results, name: string, title: string): Line {
  const row: Partial<GuardRow> = guards.rows.find((each) => each.name === name) ?? {};
  const isFactor = row.factor !== undefined;
  const value = row.factor ?? row.moreUs ?? NaN;
  return [
    title,
    isFactor ? `× ${judge(value, 2, '', row.goal)}` : `+ ${judge(value, 1, ' µs', row.goal)}`,
    row.goal === undefined ? '' : `${row.goal}${isFactor ? '' : ' µs'}`,
  ];
}

function growthLines({ growth }: Results): Line[] {
  const us = (rows: readonly GrowthRow[], index: number): number => rows[index]?.processorUs.median ?? NaN;
  const ofItem = (index: number): string => {
    const factor = us(growth.sizes, index) / us(growth.sizes, 0);
    return factor.toFixed(factor < 10 ? 1 : 0);
  };
  const costs = growth.connections.map(({ processorUs }) => processorUs.median);
  const [most, least] = [Math.max(...costs), Math.min(...costs)];
  const gain = (us(growth.workers, 0) / us(growth.workers, 1)) * 2;
  return [
    ['list of 42 KB, 417 KB, 4.2 MB ÷ read: processor time', `${ofItem(1)}, ${ofItem(2)}, ${ofItem(3)}`, ''],
    ['1 to 512 connections: highest ÷ lowest processor time per call', (most / least).toFixed(2), ''],
    ['capacity of two workers ÷ one', gain.toFixed(2), ''],
  ];
}

function startLines({ startup: { goals, rows } }: Results): Line[] {
  const find = (start: string) => rows.find(({ name }) => name.startsWith(start));
  const [built, source, bare] = [find('the gateway as built'), find('the gateway from'), find('a bare')];
  const ms = [source, bare].map((row) => (row?.firstReplyMs.median ?? NaN).toFixed(0));
  const mb = [source, bare].map((row) => (row?.idleMb ?? NaN).toFixed(0));
  return [
    [
      'time to the first reply: built command, command from source, bare node:http server',
      `${judge(built?.firstReplyMs.median ?? NaN, 0, '', goals.firstReplyMs)}, ${ms.join(', ')} ms`,
      `${goals.firstReplyMs} ms`,
    ],
    [
      'idle memory of these three programs',
      `${judge(built?.idleMb ?? NaN, 0, '', goals.idleMb)}, ${mb.join(', ')} MB`,
      `${goals.idleMb} MB`,
    ],
  ];
}

function hostileLines({ hostile }: Results): Line[] {
  return hostile.rows.flatMap(({ name, rest, p99Ms }): Line[] => {
    if (name !== rest) return [];
    const attacks = hostile.rows.filter((row) => row.rest === rest && row.name !== rest);
    const worst = attacks.toSorted((a, b) => b.p99Ms - a.p99Ms)[0];
    const goal = Math.max(250, 10 * p99Ms);
    return [
      [
        `p99${name.endsWith(', TLS') ? ' over TLS' : ''}: during an attack (${worst?.name ?? '–'}), without attack`,
        `${judge(worst?.p99Ms ?? NaN, 1, '', goal)}, ${p99Ms.toFixed(1)} ms`,
        `${goal} ms`,
      ],
    ];
  });
}

function makePerformance(results: Results): string {
  const { comparison, json, aborts } = results;
  const speeds = ['item, 432 B', 'list of items, 417 KB'].map((name) => {
    const row = json.rows.find((each) => each.name === name);
    return [
      ((row?.bytes ?? NaN) / (row?.scannerNs ?? NaN)).toFixed(1),
      ((row?.oracleNs ?? NaN) / (row?.scannerNs ?? NaN)).toFixed(1),
    ] as const;
  });
  const cancelled = (name: string): string =>
    (aborts.rows.find((row) => row.name === name)?.cancelledMs.median ?? NaN).toFixed(0);
  const ofNext = COLUMNS.map((workload) => ratioOf(results, 'next-gateway', 'next', workload).toFixed(2));
  const toFile = ratioOf(results, 'gateway-info', 'gateway', 'item');
  const lines: Line[] = [
    costLine(results, 'gateway', 'gateway'),
    costLine(results, 'Fastify plugin', 'gateway-plugin'),
    ratioLine(results, 'gateway ÷ nginx + Lua', 'nginx-lua', [0.95, 0.9, 0.9, 0.25, 0.15]),
    ratioLine(results, 'gateway ÷ floor', 'node-net', [1.35, 1.35, 1.35]),
    ratioLine(results, 'gateway ÷ @fastify/http-proxy', 'fastify-http-proxy', [0.3, 0.3, 0.3]),
    ['gateway as a Next.js route ÷ hand-written Next.js handlers', ofNext.join(', '), ''],
    ...latencyLines(results),
    guardLine(results, 'remembered token', 'token that was verified before'),
    guardLine(results, 'CORS', 'CORS'),
    guardLine(results, 'rate limit', 'rate limit'),
    guardLine(results, 'rate limit in Redis, 10,000/s', 'rate limit in Redis'),
    guardLine(results, 'traces, 1 %', 'traces, 1 % sampled'),
    guardLine(results, 'TLS, HTTP/1.1', 'TLS'),
    guardLine(results, 'TLS, HTTP/2, 32 streams', 'HTTP/2'),
    guardLine(results, 'a log line a call', 'log line for each call, into a pipe'),
    ['log line for each call, into a file', `× ${toFile.toFixed(2)}`, ''],
    ...growthLines(results),
    [
      'speed of the JSON check for 432 B, 417 KB (× speed of JSON.parse)',
      speeds.map(([speed, factor]) => `${speed} GB/s (× ${factor})`).join(', '),
      '',
    ],
    ...startLines(results),
    ...hostileLines(results),
    [
      `time until ${aborts.clients.toLocaleString('en')} abandoned reads are cancelled: gateway, floor`,
      `${cancelled('gateway')}, ${cancelled('node-net')} ms`,
      '100 ms',
    ],
  ];
  const { guards, growth, startup, hostile } = results;
  const days = Map.groupBy(
    Object.entries({ bench: comparison, guards, growth, json, startup, hostile, aborts }),
    ([, { date }]) => date,
  );
  const recorded = [...days].map(
    ([date, sections]) => `${date} (${sections.map(([name]) => name).join(', ')})`,
  );
  return `${makeTable(['Figure', 'Measured', 'Goal'], lines)}\n\nRecorded on ${recorded.join(', ')}.`;
}

/** Left out of the table: `direct`, which has no gateway, and the variants that run one workload only. */
const APART = ['direct', 'gateway-info', 'gateway-workers'];
const NAMES: Readonly<Record<string, string>> = {
  ...LABELS,
  'node-net': 'node:net alone',
  'gateway-plugin': 'Fastify plugin',
  'next-gateway': 'Next.js route',
};

function makeComparison(results: Results): string {
  const { date, commit, machine, rounds, seconds, contenders } = results.comparison;
  const workloads = ['item', 'list100', 'list1000', 'put', 'post', 'delete'];
  const table = makeTable(
    ['µs', 'checks JSON', 'read', '42 KB', '417 KB', 'update', 'create', 'delete'],
    contenders
      .filter(({ name }) => !APART.includes(name))
      .map(({ name, version, checksJson }) => [
        `${NAMES[name] ?? name}${name.startsWith('node-') ? '' : ` ${version}`}`,
        checksJson ? 'yes' : 'no',
        ...workloads.map((workload) => formatUs(costOf(results, name, workload))),
      ]),
  );
  const summary = `Recorded on ${date} at commit ${commit}, on ${machine.processor} with Node ${machine.node}. Each figure is the median of ${rounds} rounds of ${seconds} s.`;
  return `${summary}\n\n${table}`;
}

function makeReadme(results: Results): string {
  const ratio = (workload: string): string => ratioOf(results, 'gateway', 'nginx-lua', workload).toFixed(2);
  return `The gateway does the same job as nginx with Lua. Its processor time per call, relative to nginx, is ${ratio('item')} for a read, ${ratio('put')} for an
update, ${ratio('post')} for a create, ${ratio('delete')} for a delete and ${ratio('list100')} for a list of 42 KB. Each figure is the median of ${results.comparison.rounds} rounds on one core of a small virtual machine.`;
}

function makeReliability({ restart }: Results): string {
  const { contenders, date, rate, rounds } = restart;
  const rowOf = (contender: string, mode: string) =>
    restart.rows.find((row) => row.contender === contender && row.mode === mode);
  const failed = (contender: string, mode: string): string => {
    const row = rowOf(contender, mode);
    let [reads, writes] = [0, 0];
    for (const counts of [row?.cut, row?.down, row?.after]) {
      for (const [method, count] of Object.entries(counts ?? {})) {
        if (method === 'GET') reads += count;
        else writes += count;
      }
    }
    return `${reads} / ${writes}`;
  };
  const recovery = (contender: string): string => {
    const { median = NaN, max = NaN } = rowOf(contender, 'kill')?.recoveryMs ?? {};
    return `${median.toFixed(0)} (${max.toFixed(0)})`;
  };
  const line = (title: string, cellOf: (contender: string) => Cell): Cell[] => [
    title,
    ...contenders.map(({ name }) => cellOf(name)),
  ];
  const lateErrors = (name: string): number =>
    ['kill', 'stop']
      .flatMap((mode) => Object.values(rowOf(name, mode)?.after ?? {}))
      .reduce((sum, count) => sum + count, 0);
  const table = makeTable(
    [
      'Backend',
      ...contenders.map(({ name, version }) => (name === 'gateway' ? 'Gateway' : `${name} ${version}`)),
    ],
    [
      line('down 300 ms: failed calls sent after its return', lateErrors),
      line('killed: recovery, ms (worst)', recovery),
      line('killed, another listens: failed reads / writes', (name) => failed(name, 'fail-over')),
      line('killed, another listens: writes sent twice', (name) => {
        const twice = rowOf(name, 'fail-over')?.writtenTwice ?? 0;
        return twice === 0 ? 0 : `**${twice}**`;
      }),
      line('stopped, another listens: failed reads / writes', (name) => failed(name, 'hand-over')),
      line('closes idle connections: failed reads / writes', (name) => failed(name, 'close-idle')),
    ],
  );
  return `\`npm run bench:restart\` on ${date}: ${rate} calls a second, half of them reads. Each figure is for ${rounds} rounds, in which the contenders took turns.\n\n${table}`;
}

function makeFleet(results: Results): string {
  const { fleet } = results;
  const lost = makeTable(
    ['Fault', 'Calls lost', 'Lost calls whose write was done', 'Last lost call, s after the fault'],
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

/** The processes of a fleet for some calls a second, from recorded costs. */
function makeSizing(results: Results): string {
  const guard = (name: string): Partial<GuardRow> =>
    results.guards.rows.find((row) => row.name === name) ?? {};
  // At the highest rate that was measured, a process is about as busy as it should be.
  const rate = Math.max(...results.comparison.latency.map((row) => row.rate));
  const costOfCall = (contender: string): number => {
    const row = results.comparison.latency.find(
      (each) => each.contender === contender && each.workload === 'mixed' && each.rate === rate,
    );
    return row === undefined || row.overCapacity ? NaN : row.processorUs.median;
  };
  const tls = guard('TLS, HTTP/1.1').factor ?? NaN;
  const guards =
    (guard('remembered token').moreUs ?? NaN) + (guard('rate limit in Redis, 10,000/s').moreUs ?? NaN);
  const gatewayUs = costOfCall('gateway') * tls + guards;
  // TLS on both of its sides.
  const balancerUs = costOfCall('haproxy') * (2 * tls - 1);
  const busy = 0.7;
  const backendS = 0.05;
  const rates = [1_000, 10_000, 100_000, 1_000_000];
  const processesFor = (rate: number, us: number): number => Math.ceil((rate * us) / 1e6 / busy);
  const rows: [string, (rate: number) => number][] = [
    ['gateway processes (and a spare)', (rate) => processesFor(rate, gatewayUs) + 1],
    ['HAProxy threads', (rate) => processesFor(rate, balancerUs)],
    ['calls in flight (HAProxy needs a higher `maxconn`)', (rate) => rate * backendS],
    ['calls in flight in each gateway process', (rate) => Math.ceil((rate * backendS) / (processesFor(rate, gatewayUs) + 1))],
    ['Redis commands a second, at most', (rate) => Math.min(rate, 1_000 * (processesFor(rate, gatewayUs) + 1))],
    ['Mbit/s to the backends and back', (rate) => (rate * 1_375 * 8) / 1e6],
  ]; // prettier-ignore
  const table = makeTable(
    ['Calls a second', ...rates.map((rate) => rate.toLocaleString('en'))],
    rows.map(([title, valueOf]) => [title, ...rates.map((rate) => valueOf(rate).toLocaleString('en'))]),
  );
  return `A call costs ${gatewayUs.toFixed(0)} µs in a gateway and ${balancerUs.toFixed(0)} µs in HAProxy.\n\n${table}`;
}

const blocks: Readonly<Record<string, ((results: Results) => string)[]>> = {
  'README.md': [makeReadme],
  'bench/comparison.md': [makeComparison],
  'docs/fleet.md': [makeFleet, makeSizing],
  'docs/performance.md': [makePerformance],
  'docs/reliability.md': [makeReliability],
};

/** The new texts of all files that have recorded figures, by path. */
export async function makeFiles(results: Results = readResults()): Promise<Map<string, string>> {
  const files = new Map([[PICTURE, drawPicture(results.comparison)]]);
  for (const [path, makeBlocks] of Object.entries(blocks)) {
    const text = readFileSync(join(root, path), 'utf8');
    const marked = [...text.matchAll(MARKED)].length;
    if (marked !== makeBlocks.length) {
      throw new Error(`${path} has ${marked} pairs of marks for figures instead of ${makeBlocks.length}`);
    }
    let index = 0;
    files.set(
      path,
      await format(
        text.replace(MARKED, () => `\n${makeBlocks[index++]?.(results) ?? ''}\n\n`),
        { ...(await resolveConfig(join(root, path))), parser: 'markdown' },
      ),
    );
  }
  return files;
}

async function placeFigures(): Promise<void> {
  for (const [path, text] of await makeFiles()) writeFileSync(join(root, path), text);
}

/** Records a section of figures and places it in the documents. */
export async function record<Name extends keyof Results>(name: Name, section: Results[Name]): Promise<void> {
  writeSection(name, section);
  await placeFigures();
}

if (import.meta.main) await placeFigures();
