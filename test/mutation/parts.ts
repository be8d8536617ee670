// The parts that `npm run mutation` runs in turn, and their reports.

/**
 * The files that Stryker mutates, by part. No pattern may have a comma, even in braces: Stryker splits its argument at
 * commas. `scanner` is packages/core/json/scanner.as.ts, which has its own runner.
 */
export const filesOf: Readonly<Record<string, readonly string[]>> = {
  json: ['packages/core/json/*.ts'],
  scanner: [],
  http1: ['packages/core/http1/*.ts'],
  backend: ['packages/core/backend/*.ts', 'packages/core/body/*.ts'],
  call: ['packages/core/*.ts', 'packages/core/call/*.ts', 'packages/core/text/*.ts'],
  guards: ['packages/core/admission/**/*.ts', 'packages/core/guards/**/*.ts'],
  // Without the OpenAPI document: a test of each of its texts would only repeat the text. test/docs/openapi.test.ts
  // compares the document with the gateway's replies.
  hosts: ['packages/core/options/*.ts', 'packages/core/hosts/**/*.ts', '!packages/core/hosts/openapi/*.ts'],
  cluster: ['packages/command/cluster/*.ts'],
};
export const notMutated = '!packages/**/*.as.ts';
export const parts = Object.keys(filesOf);
export const outputDirectory = 'build/mutation';
export const strykerReport = `${outputDirectory}/report.json`;

/** The report of a part, in Stryker's format. */
export function reportOf(part: string): string {
  return `${outputDirectory}/part-${part}.json`;
}
