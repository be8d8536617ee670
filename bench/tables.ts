// Tables and figures as text.

export type Cell = string | number | undefined;

export function makeTable(header: readonly string[], rows: readonly (readonly Cell[])[]): string {
  const line = (cells: readonly Cell[]): string => `| ${cells.map((cell) => cell ?? '–').join(' | ')} |`;
  return [line(header), line(header.map((_, index) => (index === 0 ? '---' : '---:'))), ...rows.map(line)].join('\n');
}

export function formatUs(us: number | undefined): string | undefined {
  if (us === undefined || us === 0) return undefined;
  return us < 100 ? us.toFixed(1) : String(Math.round(us));
}

export function formatCount(count: number): string {
  return Math.round(count).toLocaleString('en');
}

export function formatBytes(bytes: number): string {
  if (bytes < 1_000) return `${bytes} B`;
  if (bytes < 1e6) return `${bytes < 10_000 ? (bytes / 1e3).toFixed(1) : Math.round(bytes / 1e3)} KB`;
  return `${bytes < 1e7 ? (bytes / 1e6).toFixed(1) : Math.round(bytes / 1e6)} MB`;
}

export function median(values: readonly number[]): number {
  return quantile(values, 0.5);
}

/** The sorted value at `share`. For the share 0.5, the median: if the number of values is even, the mean of the middle two. */
export function quantile(values: readonly number[], share: number): number {
  const sorted = values.toSorted((a, b) => a - b);
  if (share !== 0.5) return sorted[Math.max(0, Math.ceil(sorted.length * share) - 1)] ?? NaN;
  const middle = (sorted.length - 1) / 2;
  return ((sorted[Math.floor(middle)] ?? NaN) + (sorted[Math.ceil(middle)] ?? NaN)) / 2;
}

/** The least and the greatest value. */
export function formatRange(values: readonly number[], digits = 1): string {
  return `${Math.min(...values).toFixed(digits)}–${Math.max(...values).toFixed(digits)}`;
}

export function escapeText(text: string): string {
  return text.replaceAll('&', '&amp;').replaceAll('<', '&lt;');
}

/** Asserts that a value exists. */
export function existing<T>(value: T | undefined): T {
  if (value === undefined) throw new Error('a value is missing');
  return value;
}
