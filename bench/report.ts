// Prints a comparison as tables. `node bench/report.ts` prints the recorded run, `node bench/report.ts FILE` the run in FILE.
import { readFileSync } from 'node:fs';
import { formatUs, makeTable } from './figures.ts';
import { readResults, type Comparison, type Latency, type Throughput } from './results.ts';

/** The two contenders with which the gateway is compared. */
const REFERENCES = [
  ['nginx-lua', '÷ nginx+Lua'],
  ['fastify-http-proxy', '÷ @fastify/http-proxy'],
] as const;

type Cell = string | number | undefined;

function formatCount(count: number): string {
  return Math.round(count).toLocaleString('en-US');
}

function find(result: Comparison | undefined, workload: string, contender: string): Throughput | undefined {
  return result?.throughput.find((row) => row.workload === workload && row.contender === contender);
}

function formatChange(now: number, before: number | undefined): string | undefined {
  if (before === undefined || before === 0) return undefined;
  const percent = Math.round((now / before - 1) * 100);
  return `${percent > 0 ? '+' : ''}${String(percent)} %`;
}

function describeRun(result: Comparison): string {
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

function makeSummary(result: Comparison): string {
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

function makeRatios(result: Comparison): string {
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

/** A sentence that compares the CPU times of a read. */
function makeConclusions(result: Comparison): string {
  const us = (contender: string): number => find(result, 'item', contender)?.processorUs.median ?? 0;
  const [one, next] = [us('gateway'), us('next')];
  return one && next
    ? `- One core serves ${(next / one).toFixed(1)} times the requests of Next.js handlers.`
    : '';
}

function makeDetail(
  result: Comparison,
  workload: Comparison['workloads'][number],
  last: Comparison | undefined,
): string {
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

function makeLatencies(result: Comparison): string {
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

/** All tables of `result`. The column `change` compares its CPU times with those of `last`. */
export function makeReport(result: Comparison, last: Comparison): string {
  const skipped = result.skipped.map(({ name, reason }) => `- ${name}: ${reason}`).join('\n');
  const failed = result.failures.map((failure) => `- ${failure.split('\n')[0] ?? ''}`).join('\n');
  return [
    describeRun(result),
    '## Processor time of a request, in microseconds',
    makeSummary(result),
    '## Ratios to the two references',
    makeRatios(result),
    makeConclusions(result),
    '## Each workload',
    `change: processor time compared with the recorded run of ${last.date} (commit ${last.commit}).`,
    ...result.workloads.map((workload) => makeDetail(result, workload, last)),
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

if (import.meta.main) {
  const recorded = readResults().comparison;
  const file = process.argv[2];
  const result = file === undefined ? recorded : (JSON.parse(readFileSync(file, 'utf8')) as Comparison);
  console.log(makeReport(result, recorded));
}
