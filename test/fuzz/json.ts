// Looks for texts on which the JSON checker and its oracle differ: `npm run fuzz -- json --seconds 60 [--seed 1]`.
// The search is guided by coverage: a step of the scanner is its state, the byte, the byte's position modulo 64, and whether the
// depth is 0. A text with a new step is kept and mutated further. A finding is minimised and written to
// test/vectors/json, where tests read it; the exit code is then 1.

import { createHash } from 'node:crypto';
import { readFileSync, writeFileSync } from 'node:fs';
import { parseArgs } from 'node:util';
import { isJson } from '../../packages/core/json/json.ts';
import { isJsonByOracle, isJsonByteByByte, isJsonInPieces, shown } from '../json/oracle.ts';
import { createRandom, everyToken, fragments, minimise, mutate } from '../json/texts.ts';

const { values } = parseArgs({
  options: { seconds: { type: 'string', default: '60' }, seed: { type: 'string', default: String(Date.now()) } },
});
const seconds = Number(values.seconds);
const seed = Number(values.seed);
if (!(seconds > 0) || !Number.isInteger(seed)) throw new Error('usage: npm run fuzz -- json --seconds N [--seed N]');

const kept = 4000;
const longest = 3000;
const vectors = new URL('../vectors/json/', import.meta.url);
const random = createRandom(seed);
const below = (limit: number): number => Math.floor(random() * limit);

// A separate scanner that reads byte by byte, so that each step is visible.
type Scanner = Readonly<Record<'WINDOW' | 'DEPTH' | 'START' | 'INVALID', { readonly value: number }>> & {
  readonly memory: { readonly buffer: ArrayBuffer };
  readonly scan: (length: number, state: number, depth: number) => number;
};
const { WebAssembly: webAssembly } = globalThis as unknown as {
  WebAssembly: { instantiate: (code: Uint8Array) => Promise<{ instance: { exports: Scanner } }> };
};
const code = readFileSync(new URL('../../packages/core/json/scanner.wasm', import.meta.url));
const scanner = (await webAssembly.instantiate(code)).instance.exports;
const slot = new Uint8Array(scanner.memory.buffer, scanner.WINDOW.value, 1);
const depth = new Int32Array(scanner.memory.buffer, scanner.DEPTH.value, 1);

const steps = new Uint8Array(64 * 256 * 64 * 2); // state, byte, position modulo 64, and whether the depth is 0
let seen = 0;

/** The number of steps that the scanner makes through `bytes` for the first time in this run. */
function countNewSteps(bytes: Uint8Array): number {
  let state = scanner.START.value;
  let count = 0;
  depth.fill(0);
  for (let at = 0; at < bytes.length && state !== scanner.INVALID.value; at += 1) {
    const byte = bytes[at] ?? 0;
    const step = ((((state & 63) * 256 + byte) * 64 + (at & 63)) << 1) | (depth[0] === 0 ? 1 : 0);
    if (steps[step] === 0) {
      steps[step] = 1;
      count += 1;
    }
    slot[0] = byte;
    state = scanner.scan(1, state, depth[0] ?? 0);
  }
  seen += count;
  return count;
}

/** True if the checker differs from the oracle: on the whole text, byte by byte, or in the pieces between `cuts`. */
function differs(bytes: Uint8Array, cuts: readonly number[]): boolean {
  const expected = isJsonByOracle(bytes);
  if (isJson(bytes) !== expected || isJsonByteByByte(bytes) !== expected) return true;
  return isJsonInPieces(bytes, cuts) !== expected;
}

function differsAnyhow(bytes: Uint8Array): boolean {
  return Array.from({ length: bytes.length + 1 }, (_, cut) => [cut]).some((cuts) => differs(bytes, cuts));
}

async function report(bytes: Uint8Array, cuts: readonly number[]): Promise<void> {
  // Not shortened if the difference needs more than one cut.
  const least = await minimise(bytes, differsAnyhow);
  const name = createHash('sha256').update(least).digest('hex').slice(0, 12);
  const file = new URL(`${isJsonByOracle(least) ? 'y' : 'n'}_fuzz_${name}.json`, vectors);
  writeFileSync(file, least);
  console.log(`the checker and the oracle differ on ${shown(least)} (found with cuts at ${cuts.join()})`);
  console.log(`written to ${file.pathname}`);
}

const corpus: Uint8Array[] = [everyToken, ...fragments];
for (const text of corpus) countNewSteps(text);
const pick = (): Uint8Array => corpus[below(corpus.length)] ?? everyToken;

console.log(`seed ${seed}, ${seconds} s`);
const end = performance.now() + seconds * 1000;
let runs = 0;
let findings = 0;
while (performance.now() < end && findings < 10) {
  runs += 1;
  let bytes = mutate(pick(), pick(), random);
  // One text in 2,000 is long and crosses the end of the scanner's window.
  if (below(2000) === 0) bytes = Buffer.concat([Buffer.alloc(65_536 - below(bytes.length + 1), 0x20), bytes]);
  else if (bytes.length > longest) continue;
  const cuts = Array.from({ length: below(5) }, () => below(bytes.length + 1)).sort((a, b) => a - b);
  if (differs(bytes, cuts)) {
    findings += 1;
    await report(bytes, cuts);
  } else if (bytes.length <= longest && countNewSteps(bytes) > 0) {
    if (corpus.length < kept) corpus.push(bytes);
    else corpus[below(kept)] = bytes;
  }
}
console.log(`${runs} texts, ${corpus.length} kept, ${seen} steps of the scanner seen, ${findings} findings`);
process.exitCode = findings > 0 ? 1 : 0;
