// From one result file: the tables (markdown) and the picture (SVG). `node report.ts [result.json]` makes them again
// from a committed result; without a name, from the newest one.
import { execFileSync } from 'node:child_process';
import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join, relative, resolve } from 'node:path';
import { drawPicture } from './picture.ts';

export interface Spread {
  median: number;
  min: number;
  max: number;
}

export interface Throughput {
  workload: string;
  contender: string;
  /** Processor time of a request, of the whole process tree. */
  processorUs: Spread;
  requestsPerSecond: Spread;
  /** How much of one core the contender used; well below 1, something else was the limit. */
  busy: number;
  peakMemoryMb: number;
  reconnects: number;
  /** The most of one core that anything else on the machine used in a round that counts. */
  disturbance: number;
}

export type Latency = { workload: string; rate: number; contender: string } & (
  | { overCapacity: true }
  | {
      overCapacity?: never;
      requests: number;
      p50: Spread;
      p90: number;
      p99: number;
      p999: number;
      max: number;
      unanswered: number;
      processorUs: Spread;
    }
);

export interface Result {
  date: string;
  commit: string;
  machine: {
    processor: string;
    cores: number;
    system: string;
    kernel: string;
    node: string;
    pinned: boolean;
  };
  rounds: number;
  seconds: number;
  workloads: { name: string; title: string; connections: number }[];
  contenders: {
    name: string;
    title: string;
    job: 'gateway' | 'proxy' | 'none';
    checksJson: boolean;
    exact: boolean;
    version: string;
  }[];
  skipped: { name: string; reason: string }[];
  failures: string[];
  throughput: Throughput[];
  latency: Latency[];
}

const here = import.meta.dirname;
const resultsFolder = join(here, 'results');
/** The two contenders that the bars are set against. */
const REFERENCES = [
  ['nginx-lua', '÷ nginx+Lua'],
  ['fastify-http-proxy', '÷ @fastify/http-proxy'],
] as const;

type Cell = string | number | undefined;

function makeTable(header: string[], rows: Cell[][]): string {
  const line = (cells: Cell[]): string => `| ${cells.map((cell) => String(cell ?? '–')).join(' | ')} |`;
  return [
    line(header),
    line(header.map((_, index) => (index === 0 ? '---' : '---:'))),
    ...rows.map(line),
  ].join('\n');
}

function formatUs(us: number | undefined): string | undefined {
  if (us === undefined || us === 0) return undefined;
  return us < 100 ? us.toFixed(1) : String(Math.round(us));
}

function formatCount(count: number): string {
  return Math.round(count).toLocaleString('en-US');
}

function find(result: Result | undefined, workload: string, contender: string): Throughput | undefined {
  return result?.throughput.find((row) => row.workload === workload && row.contender === contender);
}

/** The last committed result, as it was committed, and its name. */
function readLastCommitted(): { name: string; result: Result } | undefined {
  try {
    const git = (...args: string[]): string =>
      execFileSync('git', args, { cwd: here, encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'] });
    const last = git('ls-tree', '--name-only', 'HEAD', 'results/')
      .trim()
      .split('\n')
      .filter(isResult)
      .sort()
      .at(-1);
    if (last === undefined) return undefined;
    return { name: last, result: JSON.parse(git('show', `HEAD:./${last}`)) as Result };
  } catch {
    return undefined;
  }
}

function isResult(name: string): boolean {
  // The JSON check keeps its results beside these, under names of its own.
  return /(?:^|\/)\d{4}-\d{2}-\d{2}\.json$/.test(name);
}

function formatChange(now: number, before: number | undefined): string | undefined {
  if (before === undefined || before === 0) return undefined;
  const percent = Math.round((now / before - 1) * 100);
  return `${percent > 0 ? '+' : ''}${String(percent)} %`;
}

function describeRun(result: Result): string {
  const { machine } = result;
  const pinned = machine.pinned
    ? 'the contender alone on one core, load and backend on another'
    : 'nothing pinned to a core';
  return (
    `${result.date}, commit ${result.commit || 'unknown'}: ${machine.processor}, ${String(machine.cores)} cores, ` +
    `${machine.system}, Linux ${machine.kernel}, Node ${machine.node}; ${pinned}; medians of ` +
    `${String(result.rounds)} interleaved rounds of ${String(result.seconds)} s.`
  );
}

function makeSummary(result: Result): string {
  return makeTable(
    ['contender', 'checks JSON', 'exact bytes', ...result.workloads.map(({ title }) => title)],
    result.contenders.map(({ name, title, job, checksJson, exact, version }) => [
      job === 'none' ? title : `${title} ${version}`,
      checksJson ? 'yes' : 'no',
      exact ? 'yes' : 'no',
      ...result.workloads.map((workload) => formatUs(find(result, workload.name, name)?.processorUs.median)),
    ]),
  );
}

function makeRatios(result: Result): string {
  const ours = result.contenders.filter(({ name }) => name === 'gateway' || name === 'gateway-plugin');
  const rows = ours.flatMap(({ name, title }) =>
    REFERENCES.map(([reference, label]) => [
      `${title} ${label}`,
      ...result.workloads.map((workload) => {
        const own = find(result, workload.name, name)?.processorUs.median;
        const other = find(result, workload.name, reference)?.processorUs.median;
        return own && other ? (own / other).toFixed(2) : undefined;
      }),
    ]),
  );
  return makeTable(['processor time', ...result.workloads.map(({ title }) => title)], rows);
}

/** What follows from the processor time of an item beyond the references, a sentence each. */
function makeConclusions(result: Result): string {
  const us = (contender: string): number => find(result, 'item', contender)?.processorUs.median ?? 0;
  const [one, next] = [us('gateway'), us('next')];
  return one && next
    ? `- One core serves ${(next / one).toFixed(1)} times the requests of Next.js handlers.`
    : '';
}

function makeDetail(result: Result, workload: Result['workloads'][number], last: Result | undefined): string {
  const rows = result.contenders.flatMap(({ name }) => {
    const row = find(result, workload.name, name);
    if (!row) return [];
    const { processorUs, requestsPerSecond } = row;
    const hasProcess = processorUs.median > 0;
    return [
      [
        name,
        formatUs(processorUs.median),
        hasProcess ? `${formatUs(processorUs.min) ?? ''}–${formatUs(processorUs.max) ?? ''}` : undefined,
        formatChange(processorUs.median, find(last, workload.name, name)?.processorUs.median),
        ...REFERENCES.map(([reference]) => {
          const other = find(result, workload.name, reference)?.processorUs.median;
          return hasProcess && other ? (processorUs.median / other).toFixed(2) : undefined;
        }),
        `${formatCount(requestsPerSecond.median)} (${formatCount(requestsPerSecond.min)}–${formatCount(requestsPerSecond.max)})`,
        hasProcess ? `${String(Math.round(row.busy * 100))} %` : undefined,
        hasProcess ? row.peakMemoryMb : undefined,
        `${String(Math.round(row.disturbance * 100))} %`,
      ],
    ];
  });
  const header = ['contender', 'µs a request', 'min–max', 'change', ...REFERENCES.map(([, label]) => label)];
  return (
    `### ${workload.title}, ${String(workload.connections)} connections\n\n` +
    makeTable([...header, 'requests a second (min–max)', 'core used', 'peak MB', 'disturbed'], rows)
  );
}

function makeLatencies(result: Result): string {
  const groups = new Map<string, Latency[]>();
  for (const row of result.latency) {
    const key = `### ${row.workload}, ${formatCount(row.rate)} requests a second`;
    groups.set(key, [...(groups.get(key) ?? []), row]);
  }
  const header = ['contender', 'p50', 'p50 min–max', 'p90', 'p99', 'p99.9', 'max', 'µs a request'];
  return [...groups]
    .map(([title, rows]) => {
      const cells = rows.map((row): Cell[] =>
        row.overCapacity
          ? [row.contender, 'too close to its capacity']
          : [
              row.contender,
              row.p50.median.toFixed(2),
              `${row.p50.min.toFixed(2)}–${row.p50.max.toFixed(2)}`,
              row.p90.toFixed(2),
              row.p99.toFixed(2),
              row.p999.toFixed(2),
              row.max.toFixed(1),
              formatUs(row.processorUs.median),
            ],
      );
      return `${title}\n\n${makeTable(
        header,
        cells.map((row) => header.map((_, index) => row[index])),
      )}`;
    })
    .join('\n\n');
}

function makeMarkdown(result: Result, last: { name: string; result: Result } | undefined): string {
  const skipped = result.skipped.map(({ name, reason }) => `- ${name}: ${reason}`).join('\n');
  const failed = result.failures.map((failure) => `- ${failure.split('\n')[0] ?? ''}`).join('\n');
  return [
    '# Comparison',
    describeRun(result),
    'Made from a result file by `node bench/report.ts`; [README.md](README.md) says how it was measured.',
    '## Processor time a request, in microseconds',
    makeSummary(result),
    '## Against the two references',
    makeRatios(result),
    makeConclusions(result),
    '## Each workload',
    last
      ? `Change is the processor time against ${last.name} as last committed (commit ${last.result.commit}).`
      : 'There is no committed result to compare with yet.',
    ...result.workloads.map((workload) => makeDetail(result, workload, last?.result)),
    ...(result.latency.length > 0
      ? [
          '## Latency at a constant rate, in milliseconds',
          'From the time a request was due, not from when it could be sent.',
          makeLatencies(result),
        ]
      : []),
    ...(skipped ? ['## Skipped', skipped] : []),
    ...(failed ? ['## Failed', failed] : []),
  ].join('\n\n');
}

/** The repository's formatting where its formatter is installed, and the text as it is otherwise. */
async function format(text: string, parser: 'markdown' | 'json'): Promise<string> {
  try {
    const prettier = await import('prettier');
    return await prettier.format(text, { parser, singleQuote: true, printWidth: 110 });
  } catch {
    return `${text}\n`;
  }
}

export async function writeResult(file: string, result: Result): Promise<void> {
  writeFileSync(file, await format(JSON.stringify(result, null, 2), 'json'));
}

/** Writes the tables and the picture beside the result, or for a published one to bench/; gives the tables. */
export async function writeReport(file: string, isPublished: boolean): Promise<string> {
  const result = JSON.parse(readFileSync(file, 'utf8')) as Result;
  const markdown = await format(makeMarkdown(result, readLastCommitted()), 'markdown');
  const base = isPublished ? join(here, 'comparison') : file.replace(/\.json$/, '');
  writeFileSync(`${base}.md`, markdown);
  writeFileSync(`${base}.svg`, drawPicture(result));
  return markdown;
}

if (process.argv[1] === import.meta.filename) {
  const named = process.argv[2];
  const newest = readdirSync(resultsFolder).filter(isResult).sort().at(-1);
  const file = named === undefined ? join(resultsFolder, newest ?? 'none') : resolve(named);
  await writeReport(file, relative(resultsFolder, file) === newest);
}
