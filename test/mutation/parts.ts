// What `npm run mutation` runs one after the other, and where each leaves its report.

/** Stryker's parts are the folders; `scanner` is src/json/scanner.as.ts. */
export const parts = [
  'json',
  'scanner',
  'wire',
  'backend',
  'gateway',
  'guards',
  'adapters',
  'workers',
] as const;
export const outputDirectory = 'build/mutation';
export const strykerReport = `${outputDirectory}/report.json`;

/** The report of a part, in Stryker's format. */
export function reportOf(part: string): string {
  return `${outputDirectory}/part-${part}.json`;
}
