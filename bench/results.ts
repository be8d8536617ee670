// Reads and writes the recorded figures, bench/results/<version>.json: a section for each scenario, and a line for each row.
import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { cpus } from 'node:os';
import { join } from 'node:path';

export interface Run {
  date: string;
  machine: string;
  rounds?: number;
  seconds?: number;
  /** The cases that other work on the machine disturbed. */
  noisy?: string[];
}

/** CPU time of a call by workload, in µs; for some contenders also the latency at a constant rate. */
export interface PeerRow {
  name: string;
  version: string;
  us: Record<string, number>;
  paced?: Record<string, { p99Ms: number; us: number }>;
}

export interface GuardRow {
  name: string;
  /** CPU time of a call in µs; absent if only the difference was recorded. */
  us?: number;
  /** The name of the variant to compare with. */
  comparedWith?: string;
  /** The median of all rounds' differences (`moreUs`) or of their ratios (`factor`). */
  moreUs?: number;
  factor?: number;
  goal?: number;
}

/** CPU time of a call in µs, and latency at as many calls as possible, by contender. */
export interface ConnectionsRow {
  workload: string;
  connections: number;
  us: Record<string, number>;
  p99Ms: Record<string, number>;
}

/** Sums over all rounds: `reads` are failed reads, `writes` failed writes, and `writtenTwice` writes that arrived repeatedly. */
export interface RestartRow {
  contender: string;
  mode: string;
  reads: number;
  writes: number;
  /** The number of calls that were sent after the backend's return and failed. */
  late: number;
  writtenTwice: number;
  recoveryMs: number;
  recoveryMaxMs: number;
}

/** One section for each scenario that records its figures. */
export interface Results {
  peers: Run & { commit: string; rate: number; rows: PeerRow[] };
  guards: Run & { rows: GuardRow[] };
  connections: Run & { rows: ConnectionsRow[] };
  /** CPU time of a call in µs, by size of the reply and by workers. */
  growth: Run & Record<'sizes' | 'workers', Record<string, number>>;
  json: Run & { rows: { name: string; bytes: number; scannerNs: number; oracleNs: number }[] };
  startup: Run & { rows: { name: string; firstReplyMs: number; idleMb: number }[] };
  /** `rest` is the name of the row to compare with: the same gateway without an attack. */
  hostile: Run & { rate: number; rows: { name: string; rest: string; p99Ms: number }[] };
  aborts: Run & { clients: number; cancelledMs: Record<string, number> };
  restart: Run & { rate: number; contenders: { name: string; version: string }[]; rows: RestartRow[] };
  /** CPU time in µs that a call saves if a part is left out, by workload. The row of the whole gateway has the CPU time of a call. */
  ablation: Run & { rows: { name: string; us: Record<string, number> }[] };
  /** Written by test/fleet: `done` is the number of lost calls whose write a backend had done. */
  fleet: Run & {
    calls: number;
    seconds: number;
    writesTwice: number;
    lostOtherwise: number;
    rows: { fault: string; lost: number; done: number; recoveredMs: number }[];
  };
}

const folder = join(import.meta.dirname, 'results');

export const today = new Date().toISOString().slice(0, 10);
export const machine = `${cpus()[0]?.model ?? 'unknown processor'}, ${cpus().length} cores, Node ${process.versions.node}`;

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

/** Replaces sections in the file of this version. The other sections come from the newest file. */
export function writeSections(sections: Partial<Results>): void {
  const packageFile = readFileSync(join(import.meta.dirname, '../package.json'), 'utf8');
  const { version } = JSON.parse(packageFile) as { version: string };
  writeFileSync(join(folder, `${version}.json`), formatResults({ ...readResults(), ...sections }));
}

export function formatResults(results: Results): string {
  const sections = Object.entries(results).map(([name, section]: [string, object]) => {
    const fields = Object.entries(section).map(
      ([field, value]: [string, unknown]) => `    ${JSON.stringify(field)}: ${formatField(value)}`,
    );
    return `  ${JSON.stringify(name)}: {\n${fields.join(',\n')}\n  }`;
  });
  return `{\n${sections.join(',\n')}\n}\n`;
}

function formatField(value: unknown): string {
  if (!Array.isArray(value) || typeof value[0] !== 'object') return formatRow(value);
  return `[\n${value.map((row) => `      ${formatRow(row)}`).join(',\n')}\n    ]`;
}

/** Fractions have four digits, which is more precise than the measurement. */
function formatRow(row: unknown): string {
  return JSON.stringify(row, (_, value: unknown) =>
    typeof value === 'number' && !Number.isInteger(value) ? Number(value.toPrecision(4)) : value,
  );
}
