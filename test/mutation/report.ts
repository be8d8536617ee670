// Prints Markdown: the figures of the last run of each part as a table, and every surviving mutant.

import { existsSync, readFileSync } from 'node:fs';
import { parts, reportOf } from './parts.ts';

/** A mutant as in Stryker's JSON report; lines and columns are counted from 1. */
export interface ReportedMutant {
  readonly id: string;
  readonly mutatorName: string;
  readonly replacement: string;
  readonly location: { readonly start: Place; readonly end: Place };
  readonly status: string;
  readonly statusReason?: string;
}

interface Place {
  readonly line: number;
  readonly column: number;
}

interface ReportedFile {
  readonly source: string;
  readonly mutants: readonly ReportedMutant[];
}

/** Splits `source` into the text before, at and after `location`. */
export function cut(source: string, { start, end }: ReportedMutant['location']): [string, string, string] {
  const lineStarts = [0, ...[...source.matchAll(/\n/g)].map(({ index }) => index + 1)];
  const [from = 0, to = 0] = [start, end].map(({ line, column }) => (lineStarts[line - 1] ?? 0) + column - 1);
  return [source.slice(0, from), source.slice(from, to), source.slice(to)];
}

function row(name: string, mutants: readonly ReportedMutant[]): string {
  const count = (status: string) => mutants.filter((mutant) => mutant.status === status).length;
  const [killed, timedOut, survived, uncovered] = ['Killed', 'Timeout', 'Survived', 'NoCoverage'].map(count);
  const found = (killed ?? 0) + (timedOut ?? 0);
  const all = found + (survived ?? 0) + (uncovered ?? 0);
  const score = all === 0 ? '' : `${((found / all) * 100).toFixed(1)} %`;
  return `| ${[name, all, killed, timedOut, survived, uncovered, score].join(' | ')} |`;
}

function oneLine(text: string): string {
  const line = text.replace(/\s+/g, ' ').trim();
  return `\`${line.length > 70 ? `${line.slice(0, 67)}...` : line}\``;
}

if (process.argv[1] === import.meta.filename) {
  const files: [path: string, file: ReportedFile][] = parts
    .map(reportOf)
    .filter((path) => existsSync(path))
    .flatMap((path) =>
      Object.entries((JSON.parse(readFileSync(path, 'utf8')) as { files: Record<string, ReportedFile> }).files),
    );
  console.log('| file | mutants | killed | timed out | survived | not covered | score |');
  console.log('| --- | --: | --: | --: | --: | --: | --: |');
  const folders = Map.groupBy(files, ([path]) => path.slice(0, path.lastIndexOf('/') + 1));
  for (const [folder, within] of folders) {
    for (const [path, { mutants }] of within) console.log(row(`\`${path}\``, mutants));
    const all = within.flatMap(([, { mutants }]) => mutants);
    console.log(row(`**${folder}**`, all));
  }
  for (const [path, { source, mutants }] of files) {
    const survivors = mutants.filter(({ status }) => status === 'Survived' || status === 'NoCoverage');
    if (survivors.length === 0) continue;
    console.log(`\n## ${path}\n`);
    for (const { status, location, mutatorName, replacement } of survivors) {
      const place = `${location.start.line}:${location.start.column} ${mutatorName}`;
      const [, mutated] = cut(source, location);
      const uncovered = status === 'NoCoverage' ? ' (not covered)' : '';
      console.log(`- ${place}${uncovered}: ${oneLine(mutated)} → ${oneLine(replacement)}`);
    }
  }
}
