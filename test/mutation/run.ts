// Runs mutation testing and prints the report: `npm run mutation` for all parts, `-- json backend` for some parts,
// `-- packages/core/call/item-id.ts` for a file, or `...:10-20` for some of its lines.

import { spawnSync } from 'node:child_process';
import { mkdirSync, renameSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { filesOf, notMutated, outputDirectory, parts, reportOf, strykerReport } from './parts.ts';

process.chdir(fileURLToPath(new URL('../..', import.meta.url)));
mkdirSync(outputDirectory, { recursive: true });

function run(...command: string[]): void {
  const { status } = spawnSync(process.execPath, command, { stdio: 'inherit' });
  if (status !== 0) process.exit(status ?? 1);
}

const wanted = process.argv.slice(2);
for (const part of wanted.length === 0 ? parts : wanted) {
  if (part === 'scanner') {
    run('test/mutation/scanner.ts');
    continue;
  }
  const isPath = part.includes('/');
  run(
    'test/mutation/node_modules/@stryker-mutator/core/bin/stryker.js',
    'run',
    'test/mutation/stryker.config.ts',
    '--mutate',
    isPath ? part : [...(filesOf[part] ?? []), notMutated].join(),
  );
  if (!isPath) renameSync(strykerReport, reportOf(part));
}
run('test/mutation/report.ts');
