// The speed of the gateway's JSON check (the scanner) and of strict UTF-8 decoding with JSON.parse (the oracle). First their results
// are compared. Then their speeds are measured in turns.
import { isJson } from '../../packages/core/json/json.ts';
import { isJsonByOracle, isJsonInPieces } from '../../test/json/oracle.ts';
import type { Scenario } from '../bench.ts';
import { median } from '../tables.ts';
import { ITEM, makeList } from '../work-items.ts';

const SAMPLE_MS = 1;
const PIECE_BYTES = 65_536;

type Check = (bytes: Uint8Array) => boolean;

const many = <T>(count: number, make: (index: number) => T): T[] =>
  Array.from({ length: count }, (_, index) => make(index));

const inPieces: Check = (bytes) => {
  const cuts = many(Math.floor((bytes.length - 1) / PIECE_BYTES), (index) => (index + 1) * PIECE_BYTES);
  return isJsonInPieces(bytes, cuts);
};

function makeDocuments(): { name: string; bytes: Buffer; check: Check }[] {
  const text = (name: string, json: string) => ({ name, bytes: Buffer.from(json), check: isJson });
  const list = { name: 'list of items, 4.2 MB', bytes: makeList(10_000), check: isJson };
  return [
    text('tiny: an object of 8 bytes', '{"id":7}'),
    { name: 'item, 432 B', bytes: ITEM, check: isJson },
    { name: 'list of items, 42 KB', bytes: makeList(100), check: isJson },
    { name: 'list of items, 417 KB', bytes: makeList(1_000), check: isJson },
    list,
    { ...list, name: `${list.name}, in pieces of 64 KiB`, check: inPieces },
    text('pretty-printed, 2 spaces', JSON.stringify(JSON.parse(makeList(100).toString()), null, 2)),
    text('integers, 1 to 9 digits', JSON.stringify(many(8_000, (index) => (index * 7_919) % 10 ** (1 + (index % 9))))),
    text('doubles, 17 digits', JSON.stringify(many(3_000, (index) => Math.sqrt(index)))),
    text('deep: objects and arrays', '{"a":['.repeat(5_000) + '1' + ']}'.repeat(5_000)),
    text('escapes among text', JSON.stringify(makeList(100).toString())),
    text('non-ASCII, 3 bytes', JSON.stringify('日本語'.repeat(7_000))),
    text('all brackets: nested', '['.repeat(30_000) + ']'.repeat(30_000)),
    text('all white space', `${' \n\t\r'.repeat(12_500)}1`),
  ];
}

/** The time of one check in ns. */
function time(check: Check, bytes: Uint8Array, times: number): number {
  const from = performance.now();
  for (let left = times; left > 0; left -= 1) check(bytes);
  return ((performance.now() - from) * 1e6) / times;
}

/** Warms `check` up. Returns how often it must run for a sample of about `SAMPLE_MS`. */
function timesFor(check: Check, bytes: Uint8Array): number {
  let best = Math.min(...many(5, () => time(check, bytes, 1)));
  for (let attempt = 0; attempt < 3; attempt += 1)
    best = Math.min(best, time(check, bytes, Math.ceil((SAMPLE_MS * 1e6) / best)));
  return Math.max(1, Math.round((SAMPLE_MS * 1e6) / best));
}

export const scenario: Scenario = {
  title: 'the JSON check',
  rounds: 5,
  seconds: 0.1,
  minutes: 0.7,
  run: async (bench) => {
    const documents = bench.choose(makeDocuments());
    for (const { name, bytes, check } of documents) {
      const broken = Buffer.concat([bytes, Buffer.from(']')]);
      if (!check(bytes) || !isJsonByOracle(bytes)) throw new Error(`${name} is not JSON`);
      if (check(broken) || isJsonByOracle(broken)) throw new Error(`a check accepts ${name} with a bracket at the end`);
    }
    // Every document is planned twice: the first time makes V8 compile scanner and oracle as in real use.
    const plan = ({ bytes, check }: (typeof documents)[number]) => ({
      scanner: timesFor(check, bytes),
      oracle: timesFor(isJsonByOracle, bytes),
    });
    documents.forEach(plan);
    const plans = new Map(documents.map((one) => [one.name, plan(one)]));
    const results = await bench.takeTurns(
      documents,
      ({ name, bytes, check }) => {
        const { scanner = 1, oracle = 1 } = plans.get(name) ?? {};
        const samples: { scannerNs: number; oracleNs: number }[] = [];
        const until = performance.now() + bench.seconds * 1_000;
        do {
          samples.push({ scannerNs: time(check, bytes, scanner), oracleNs: time(isJsonByOracle, bytes, oracle) });
        } while (performance.now() < until);
        const scannerNs = median(samples.map((sample) => sample.scannerNs));
        return Promise.resolve({ scannerNs, oracleNs: median(samples.map((sample) => sample.oracleNs)) });
      },
      ({ scannerNs, oracleNs }) => `${(oracleNs / scannerNs).toFixed(1)} times the speed of JSON.parse`,
    );
    const rows = [...results].map(([{ name, bytes }, all]) => ({
      name,
      bytes: bytes.length,
      scannerNs: median(all.map(({ scannerNs }) => scannerNs)),
      oracleNs: median(all.map(({ oracleNs }) => oracleNs)),
    }));
    bench.print(
      'Scanner, and strict decoding with JSON.parse',
      ['', 'bytes', 'scanner, µs', 'scanner, GB/s', 'JSON.parse, GB/s', 'ratio', 'other work, cores'],
      rows.map(({ name, bytes, scannerNs, oracleNs }) => [
        name,
        bytes,
        (scannerNs / 1_000).toFixed(2),
        (bytes / scannerNs).toFixed(2),
        (bytes / oracleNs).toFixed(2),
        (oracleNs / scannerNs).toFixed(1),
        bench.noise(name),
      ]),
    );
    return { json: { ...bench.section, rows } };
  },
};
