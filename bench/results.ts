// Reads and writes the recorded figures: bench/results/<version>.json. Each release has a file, each benchmark a section, and
// each row a line.
import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { cpus } from 'node:os';
import { join } from 'node:path';

export interface Spread {
  median: number;
  min: number;
  max: number;
}

export interface Throughput {
  workload: string;
  contender: string;
  /** CPU time of a request, summed over the contender's processes. */
  processorUs: Spread;
  requestsPerSecond: Spread;
  /** The share of one core that the contender used. If it is well below 1, something else was the limit. */
  busy: number;
  peakMemoryMb: number;
  reconnects: number;
  /** The largest share of one core that other processes used in a round that counts. */
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

/** A run of bench/run.ts. */
export interface Comparison {
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

export interface Run {
  date: string;
  machine: string;
}

export interface GrowthRow {
  label: string;
  processorUs: Spread;
  requestsPerSecond: number;
  peakMb: number;
}

export interface GuardRow {
  name: string;
  date: string;
  rounds: number;
  /** CPU time of a call; absent if only the difference was kept. */
  us?: number;
  /** The variant that this one is compared with. */
  comparedWith?: string;
  /** Median of the rounds' differences, or ratios. */
  moreUs?: number;
  factor?: number;
  goal?: number;
}

export interface RestartRow {
  contender: string;
  mode: string;
  calls: number;
  /** Failed calls by method: sent before the backend stopped, while no backend listened, and after its return. */
  cut: Record<string, number>;
  down: Record<string, number>;
  after: Record<string, number>;
  failures: Record<string, number>;
  writtenTwice: number;
  readTwice: number;
  recoveryMs: Spread;
}

export interface HostileRow {
  name: string;
  /** The name of the row without an attack that this one is compared with. */
  rest: string;
  connections: number;
  streams: number;
  p50Ms: Spread;
  p99Ms: number;
  maxMs: number;
}

export interface JsonRow {
  name: string;
  bytes: number;
  scannerNs: number;
  oracleNs: number;
  scannerBestNs: number;
  oracleBestNs: number;
}

export interface FleetRow {
  fault: string;
  lost: number;
  /** Lost writes that a backend had done. */
  done: number;
  /** From the fault to the last lost call that was sent. */
  recoveredMs: number;
}

/** One section for each benchmark that records its figures. */
export interface Results {
  comparison: Comparison;
  guards: Run & { rows: GuardRow[] };
  growth: Run & {
    rounds: number;
    seconds: number;
    idleMb: number;
    sizes: GrowthRow[];
    connections: GrowthRow[];
    workers: GrowthRow[];
  };
  json: Run & { rounds: number; beyondBodyBytes: number; rows: JsonRow[] };
  startup: Run & {
    goals: { firstReplyMs: number; idleMb: number };
    rows: { name: string; firstReplyMs: Spread; idleMb: number }[];
  };
  fleet: Run & {
    calls: number;
    seconds: number;
    writesTwice: number;
    lostOtherwise: number;
    rows: FleetRow[];
  };
  restart: Run & {
    rounds: number;
    rate: number;
    contenders: { name: string; title: string; version: string }[];
    skipped: { name: string; why: string }[];
    rows: RestartRow[];
  };
  hostile: Run & { rounds: number; seconds: number; rate: number; rows: HostileRow[] };
  aborts: Run & { rounds: number; clients: number; rows: { name: string; cancelledMs: Spread }[] };
}

const folder = join(import.meta.dirname, 'results');

export const today = new Date().toISOString().slice(0, 10);
export const machine = `${cpus()[0]?.model ?? 'unknown processor'}, ${cpus().length} cores, Node ${process.versions.node}`;

export function spreadOf(values: readonly number[]): Spread {
  const sorted = values.toSorted((a, b) => a - b);
  const middle = (sorted.length - 1) / 2;
  const median = ((sorted[Math.floor(middle)] ?? 0) + (sorted[Math.ceil(middle)] ?? 0)) / 2;
  return { median, min: sorted[0] ?? 0, max: sorted.at(-1) ?? 0 };
}

/** The file of the newest release that has recorded figures. */
export function findResults(): string {
  const newest = readdirSync(folder)
    .filter((name) => name.endsWith('.json'))
    .sort((a, b) => a.localeCompare(b, 'en', { numeric: true }))
    .at(-1);
  if (newest === undefined) throw new Error('bench/results has no recorded figures');
  return join(folder, newest);
}

export function readResults(): Results {
  return JSON.parse(readFileSync(findResults(), 'utf8')) as Results;
}

/** Replaces a section in the file of this version. The other sections come from the newest file. */
export function writeSection<Name extends keyof Results>(name: Name, section: Results[Name]): void {
  const { version } = JSON.parse(
    readFileSync(join(import.meta.dirname, '../package.json'), 'utf8'),
  ) as Record<'version', string>;
  writeFileSync(join(folder, `${version}.json`), formatResults({ ...readResults(), [name]: section }));
}

export function formatResults(results: Results): string {
  const sections = Object.entries(results).map(([name, section]) => {
    const fields = Object.entries(section as object).map(
      ([field, value]) => `    ${JSON.stringify(field)}: ${formatField(value)}`,
    );
    return `  ${JSON.stringify(name)}: {\n${fields.join(',\n')}\n  }`;
  });
  return `{\n${sections.join(',\n')}\n}\n`;
}

function formatField(value: unknown): string {
  if (!Array.isArray(value) || value.length === 0) return formatRow(value);
  return `[\n${value.map((row) => `      ${formatRow(row)}`).join(',\n')}\n    ]`;
}

/** Fractions have four digits, which is more precise than the measurement. */
function formatRow(row: unknown): string {
  return JSON.stringify(row, (_, value: unknown) =>
    typeof value === 'number' && !Number.isInteger(value) ? Number(value.toPrecision(4)) : value,
  );
}
