// Looks for bytes on which our readers of HTTP/1.1 and Node's strict parser differ, apart from the list in http-differences.ts:
// `npm run fuzz -- http`. Messages are generated from the grammar and then mutated. Also checks that readings do not depend on
// how the bytes are cut, that every read ends, and that work grows linearly. A finding is minimised and written to
// test/vectors/http, where a test reads it; the exit code is then 1. http-worker.ts does the work; this thread watches
// http-worker.ts for endless loops.

import { createHash } from 'node:crypto';
import { writeFileSync } from 'node:fs';
import { parseArgs } from 'node:util';
import { Worker } from 'node:worker_threads';
import type { Vector } from '../wire/http-vectors.ts';

/** The worker's task; `shared` has a count of reads, the length of the bytes that are being read, and these bytes. */
export interface Work {
  readonly seconds: number;
  readonly seed: number;
  readonly shared: SharedArrayBuffer;
}

/** A message of the worker. */
export type Told =
  | { readonly kind: 'finding'; readonly detail: string; readonly vector: Vector }
  | { readonly kind: 'summary'; readonly text: string };

const bytesMax = 1_048_576;
const hangMs = 20_000;

const { values } = parseArgs({
  options: { seconds: { type: 'string', default: '60' }, seed: { type: 'string', default: String(Date.now()) } },
});
const vectors = new URL('../vectors/http/', import.meta.url);

function report(detail: string, vector: Vector): void {
  process.exitCode = 1;
  const name = createHash('sha256').update(`${vector.role} ${vector.bytes}`).digest('hex').slice(0, 12);
  const file = new URL(`fuzz_${name}.json`, vectors);
  writeFileSync(file, `${JSON.stringify(vector, undefined, 2)}\n`);
  console.log(`${detail}\n  ${JSON.stringify(vector.bytes).slice(0, 1_000)}\n  written to ${file.pathname}`);
}

const shared = new SharedArrayBuffer(8 + bytesMax);
const state = new Int32Array(shared, 0, 2);
const work: Work = { seconds: Number(values.seconds), seed: Number(values.seed), shared };
console.log(`seed ${work.seed}, ${work.seconds} s`);
const worker = new Worker(new URL('http-worker.ts', import.meta.url), { workerData: work });
let count = 0;
let countedAt = performance.now();
const watch = setInterval(() => {
  const now = performance.now();
  if (state[0] !== count) {
    count = state[0] ?? 0;
    countedAt = now;
  } else if (now - countedAt > hangMs) {
    const bytes = Buffer.from(new Uint8Array(shared, 8, state[1]));
    const role = bytes.toString('latin1', 0, 4) === 'HTTP' ? 'answers' : 'requests';
    const what = 'a read does not end';
    const expected = { isEnded: false, messages: [], isRefused: true };
    report(what, { what, role, bytes: bytes.toString('latin1'), ...expected });
    void worker.terminate();
  }
}, 1_000);
worker
  .on('message', (told: Told) => {
    if (told.kind === 'finding') report(told.detail, told.vector);
    else console.log(told.text);
  })
  .on('error', (error) => {
    console.error(error);
    process.exitCode = 1;
  })
  .on('exit', () => clearInterval(watch));
