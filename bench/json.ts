// Compares the speed of the gateway's JSON check (the scanner) with strict UTF-8 decoding and JSON.parse (the oracle). Their
// results are compared first. Then they take turns; figures are medians. Flag: --record to place the figures in the documents.

import { parseArgs } from 'node:util';
import { createJsonChecker, isJson } from '../packages/core/json/json.ts';
import { record } from './figures.ts';
import { machine, today } from './results.ts';

const { values: flags } = parseArgs({ options: { record: { type: 'boolean', default: false } } });

const rounds = 41;
const sampleMs = 1;

const strictUtf8 = new TextDecoder('utf-8', { fatal: true });

function isJsonByOracle(bytes: Uint8Array): boolean {
  try {
    JSON.parse(strictUtf8.decode(bytes));
    return true;
  } catch {
    return false;
  }
}

function isJsonInPieces(bytes: Uint8Array): boolean {
  const checker = createJsonChecker();
  for (let at = 0; at < bytes.length; at += 65_536) {
    if (!checker.write(bytes.subarray(at, at + 65_536))) return false;
  }
  return checker.end();
}

// A fixed seed, so that every run has the same documents.
let state = 2_463_534_242;
function random(): number {
  state ^= state << 13;
  state ^= state >>> 17;
  state ^= state << 5;
  return (state >>> 0) / 0x1_0000_0000;
}
const below = (limit: number): number => Math.floor(random() * limit);
const pick = <T>(all: readonly T[]): T => all[below(all.length)] as T;
const many = <T>(count: number, make: (index: number) => T): T[] =>
  Array.from({ length: count }, (_, index) => make(index));

const words =
  'review the open work item before the release and update every linked document with a short note on latency ' +
  'backend gateway client request answer error budget café naïve señor über Zürich 東京 данные';
const wordList = words.split(' ');

function sentence(bytes: number): string {
  let text = pick(wordList);
  while (Buffer.byteLength(text) < bytes) text += ` ${pick(wordList)}`;
  return text;
}

function item(id: number): object {
  return {
    id,
    title: sentence(30),
    description: sentence(90 + below(60)),
    state: pick(['new', 'active', 'resolved', 'closed']),
    priority: 1 + below(4),
    assignedTo: { id: below(500), name: 'Ana Müller', email: `user${below(1000)}@example.com` },
    tags: ['backend', 'gateway', 'urgent'].slice(0, 1 + below(3)),
    estimateHours: below(800) / 10,
    done: random() < 0.5,
    parentId: random() < 0.5 ? null : below(10_000),
    createdAt: `2026-0${1 + below(9)}-1${below(10)}T1${below(10)}:2${below(10)}:00.000Z`,
  };
}

/** Of 200 items, the one closest to 432 bytes. */
function typicalItem(): object {
  const distance = (one: object): number => Math.abs(Buffer.byteLength(JSON.stringify(one)) - 432);
  return many(200, item).sort((a, b) => distance(a) - distance(b))[0] as object;
}

/** A list of items with about `bytes` bytes. */
function list(bytes: number): object[] {
  const items: object[] = [];
  for (let total = 0; total < bytes; total += Buffer.byteLength(JSON.stringify(items.at(-1))) + 1) {
    items.push(item(items.length + 1));
  }
  return items;
}

/** Nested arrays, opened and closed at random. */
function randomBrackets(length: number): string {
  let text = '[';
  let depth = 1;
  while (text.length < length) {
    if (random() < 0.5) {
      text += text.endsWith(']') ? ',[' : '[';
      depth += 1;
    } else if (depth > 1) {
      text += ']';
      depth -= 1;
    }
  }
  return text + ']'.repeat(depth);
}

interface Document {
  readonly name: string;
  readonly bytes: Buffer;
  readonly check?: (bytes: Uint8Array) => boolean;
}

const text = (name: string, content: string): Document => ({ name, bytes: Buffer.from(content) });
const value = (name: string, content: unknown): Document => text(name, JSON.stringify(content));

const largeList = value('list of items, 4.2 MB', list(4_200_000));
const documents: Document[] = [
  text('tiny: a number', '1'),
  text('tiny: an object of 8 bytes', '{"id":7}'),
  value('item, 432 B', typicalItem()),
  value('list of items, 41 KB', list(41_000)),
  value('list of items, 417 KB', list(417_000)),
  largeList,
  { name: 'list of items, 4.2 MB, in pieces of 64 KiB', bytes: largeList.bytes, check: isJsonInPieces },
  text('pretty-printed, 2 spaces', JSON.stringify(list(41_000), null, 2)),
  text('pretty-printed, 8 spaces', JSON.stringify(list(41_000), null, 8)),
  value(
    'strings, 200 to 800 B',
    many(100, () => sentence(200 + below(600))),
  ),
  value(
    'strings, up to 24 B',
    many(3000, () => 'abcdefghijklmnopqrstuvwxyz'.slice(below(25))),
  ),
  value(
    'integers, 1 to 9 digits',
    many(8000, () => below(10 ** (1 + below(9)))),
  ),
  value(
    'coordinates, 2 to 4 decimals',
    many(3000, () => [Number((random() * 180 - 90).toFixed(4)), Number((random() * 1000).toFixed(2))]),
  ),
  value(
    'doubles, 17 digits',
    many(3000, () => random() * 1000),
  ),
  value(
    'exponents',
    many(3000, () => random() * 1e-9),
  ),
  value(
    'literals',
    many(8000, () => pick([true, false, null])),
  ),
  text('deep: objects and arrays', '{"a":['.repeat(5000) + '1' + ']}'.repeat(5000)),
  value(
    'escapes among text',
    many(500, () => sentence(60).replaceAll(' ', '\n').replaceAll('e', '"').replaceAll('o', '\u0001')),
  ),
  value(
    'non-ASCII, 2 bytes',
    many(300, () => 'é'.repeat(40 + below(100))),
  ),
  value(
    'non-ASCII, 3 bytes',
    many(300, () => '日本語'.repeat(15 + below(20))),
  ),
  value(
    'non-ASCII, 4 bytes',
    many(300, () => '😀'.repeat(20 + below(40))),
  ),
  text('all brackets: nested', '['.repeat(30_000) + ']'.repeat(30_000)),
  text('all brackets: empty ones', `[${'[],{},'.repeat(8000)}1]`),
  text('all brackets: at random', randomBrackets(50_000)),
  text('all escapes: \\n', `"${'\\n'.repeat(25_000)}"`),
  text('all escapes: \\u00e9', `"${'\\u00e9'.repeat(8000)}"`),
  text('all digits: one number', '1'.repeat(50_000)),
  text('all digits: 1,1,1', `[${'1,'.repeat(25_000)}1]`),
  text('all white space', `${' \n\t\r'.repeat(12_500)}1`),
];

function time(check: (bytes: Uint8Array) => boolean, bytes: Uint8Array, times: number): number {
  const from = performance.now();
  for (let left = times; left > 0; left -= 1) check(bytes);
  return ((performance.now() - from) * 1e6) / times;
}

/** Warms `check` up. Returns how often it must run for a sample of about `sampleMs`. */
function timesFor(check: (bytes: Uint8Array) => boolean, bytes: Uint8Array): number {
  let nanoseconds = Infinity;
  for (let attempt = 0; attempt < 5; attempt += 1) nanoseconds = Math.min(nanoseconds, time(check, bytes, 1));
  for (let attempt = 0; attempt < 3; attempt += 1) {
    nanoseconds = Math.min(nanoseconds, time(check, bytes, Math.ceil((sampleMs * 1e6) / nanoseconds)));
  }
  return Math.max(1, Math.round((sampleMs * 1e6) / nanoseconds));
}

const median = (all: readonly number[]): number => all.toSorted((a, b) => a - b)[all.length >> 1] as number;

/** Checks a 64 MB answer in pieces. Returns the peak memory in bytes, without the body. */
function memoryBeyondBody(): number {
  const piece = Buffer.from(`${JSON.stringify(list(65_000)).slice(1, -1)},`);
  const body = many(Math.ceil(64_000_000 / piece.length), () => Buffer.from(piece));
  const check = (): number => {
    const checker = createJsonChecker();
    const before = process.memoryUsage();
    let most = 0;
    checker.write(Buffer.from('['));
    for (const one of body) {
      checker.write(one);
      const { arrayBuffers, heapUsed } = process.memoryUsage();
      most = Math.max(most, arrayBuffers - before.arrayBuffers + Math.max(0, heapUsed - before.heapUsed));
    }
    checker.write(Buffer.from('0]'));
    if (!checker.end()) throw new Error('the 64 MB answer is not JSON');
    return most;
  };
  check();
  return check();
}

for (const { name, bytes, check = isJson } of documents) {
  if (!check(bytes) || !isJsonByOracle(bytes)) throw new Error(`${name} is not JSON`);
  const broken = Buffer.concat([bytes, Buffer.from(']')]);
  if (check(broken) || isJsonByOracle(broken)) throw new Error(`${name} with a bracket behind it is JSON`);
}

// A full round before the measurement, so that V8 has compiled scanner and oracle as in real use.
const plans = [...documents, ...documents].map(({ bytes, check = isJson }) => ({
  scanner: timesFor(check, bytes),
  oracle: timesFor(isJsonByOracle, bytes),
}));
const samples = documents.map(() => ({ scanner: [] as number[], oracle: [] as number[] }));
for (let round = 0; round < rounds; round += 1) {
  documents.forEach(({ bytes, check = isJson }, index) => {
    const plan = plans[index + documents.length] as (typeof plans)[number];
    const sample = samples[index] as (typeof samples)[number];
    sample.scanner.push(time(check, bytes, plan.scanner));
    sample.oracle.push(time(isJsonByOracle, bytes, plan.oracle));
  });
}

const results = documents.map(({ name, bytes }, index) => {
  const { scanner, oracle } = samples[index] as (typeof samples)[number];
  return {
    name,
    bytes: bytes.length,
    scannerNs: median(scanner),
    oracleNs: median(oracle),
    scannerBestNs: Math.min(...scanner),
    oracleBestNs: Math.min(...oracle),
  };
});
const beyondBody = memoryBeyondBody();

const speed = (bytes: number, nanoseconds: number): string => (bytes / nanoseconds).toFixed(2);
const lines = [
  `# JSON check, ${today}`,
  '',
  `\`npm run bench:json\` on ${machine}. Medians of ${rounds} interleaved rounds; the oracle is strict UTF-8 decoding`,
  'and `JSON.parse`. "Best" is the fastest round of each.',
  '',
  '| document | bytes | scanner, us | scanner, GB/s | oracle, GB/s | ratio | best: scanner | oracle | ratio |',
  '|---|--:|--:|--:|--:|--:|--:|--:|--:|',
  ...results.map(
    (row) =>
      `| ${row.name} | ${row.bytes} | ${(row.scannerNs / 1000).toFixed(2)} | ${speed(row.bytes, row.scannerNs)} | ` +
      `${speed(row.bytes, row.oracleNs)} | ${(row.oracleNs / row.scannerNs).toFixed(1)} x | ` +
      `${speed(row.bytes, row.scannerBestNs)} | ${speed(row.bytes, row.oracleBestNs)} | ` +
      `${(row.oracleBestNs / row.scannerBestNs).toFixed(1)} x |`,
  ),
  '',
  `A 64 MB answer in pieces: at most ${(beyondBody / 1e6).toFixed(2)} MB beyond the body.`,
  '',
];
console.log(lines.join('\n'));

if (flags.record)
  await record('json', { date: today, machine, rounds, beyondBodyBytes: beyondBody, rows: results });
