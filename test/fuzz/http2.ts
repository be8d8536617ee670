// Fuzzes HTTP/2 connections: `npm run fuzz -- http2`. Sends random frames in random pieces over real sockets. Checks that
// every connection ends, that the tables of states allow each change, and that nothing is held afterwards. The seed and
// each finding are printed; a finding gives exit code 1.

import { parseArgs } from 'node:util';
import { attackAtRandom } from '../helpers/hostile-frames.ts';
import { watchHttp2States } from '../helpers/http2-states.ts';

const { values } = parseArgs({
  options: { seconds: { type: 'string', default: '60' }, seed: { type: 'string', default: String(Date.now()) } },
});
const rounds = 6;

function report(what: string): void {
  console.log(what);
  process.exitCode = 1;
}

console.log(`seed ${values.seed}, ${values.seconds} s`);
const wrongMoves = watchHttp2States();
const end = performance.now() + Number(values.seconds) * 1_000;
let seed = Number(values.seed);
for (; performance.now() < end && process.exitCode === undefined; seed += 40 * rounds) {
  await attackAtRandom(seed, rounds).catch((error: unknown) => report(`from seed ${seed}: ${String(error)}`));
}
for (const move of wrongMoves) report(`a change of state that its table does not allow: ${move}`);
const count = seed - Number(values.seed);
console.log(`${count} connections, ${process.exitCode === undefined ? 'no findings' : 'findings'}`);
