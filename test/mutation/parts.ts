// What `npm run mutation` runs one after the other, and where each leaves its report.

/** By the part's name, what Stryker mutates; `scanner` is packages/core/json/scanner.as.ts, which has a runner of its own. */
export const filesOf: Readonly<Record<string, string>> = {
  json: 'packages/core/json/*.ts',
  scanner: '',
  http1: 'packages/core/http1/*.ts',
  backend: 'packages/core/{backend,body}/*.ts',
  call: 'packages/core/*.ts,packages/core/{call,text}/*.ts',
  guards: 'packages/core/{admission,guards}/**/*.ts',
  hosts: 'packages/core/hosts/**/*.ts',
  cluster: 'packages/command/cluster/*.ts',
};
export const notMutated = '!packages/**/*.as.ts';
export const parts = Object.keys(filesOf);
export const outputDirectory = 'build/mutation';
export const strykerReport = `${outputDirectory}/report.json`;

/** The report of a part, in Stryker's format. */
export function reportOf(part: string): string {
  return `${outputDirectory}/part-${part}.json`;
}
