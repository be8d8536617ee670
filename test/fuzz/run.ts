// `npm run fuzz` runs all fuzzers; `-- json`, `-- http` or `-- http2` runs one. Flags: `--seconds N` for each fuzzer
// (default: 60) and `--seed N` (default: the present time). Not part of `npm test`. The exit code is 1 after a finding.

import { spawnSync } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';

const fuzzers = ['json', 'http', 'http2'];
const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: { seconds: { type: 'string', default: '60' }, seed: { type: 'string', default: String(Date.now()) } },
});
if (
  positionals.some((name) => !fuzzers.includes(name)) ||
  !(Number(values.seconds) > 0) ||
  !Number.isInteger(Number(values.seed))
) {
  console.error('usage: npm run fuzz -- [json] [http] [http2] [--seconds N] [--seed N]');
  process.exit(2);
}
for (const name of positionals.length === 0 ? fuzzers : positionals) {
  console.log(`${name}:`);
  const file = fileURLToPath(new URL(`${name}.ts`, import.meta.url));
  const options = ['--seconds', values.seconds, '--seed', values.seed];
  const timeout = (Number(values.seconds) + 120) * 1_000;
  const { status } = spawnSync(process.execPath, [file, ...options], { stdio: 'inherit', timeout });
  if (status === null) console.log('a text of this seed does not end');
  if (status !== 0) process.exitCode = 1;
}
