// Looks for bytes on which our readers of HTTP/1.1 and Node's strict parser differ, apart from the list in http-differences.ts:
// `npm run fuzz -- http`. Messages are generated from the grammar and then mutated. Also checks that readings do not depend on
// how the bytes are cut, and that work grows linearly. A finding is minimised and written to test/vectors/http, where a test
// reads it; the exit code is then 1.

import { createHash } from 'node:crypto';
import { writeFileSync } from 'node:fs';
import { isDeepStrictEqual, parseArgs } from 'node:util';
import type { AnswerHead, RequestHead } from '../../packages/core/http1/head.ts';
import { createAnswer, createChoices, createRequests, httpParts } from '../wire/http-messages.ts';
import { judgeAnswers, judgeRequests, type Judgement } from './http-oracle.ts';
import { byteByByte, comparable, cutAt, readAnswers, readRequests, type Reading } from '../wire/http-readings.ts';
import { malformed, valid, type Vector } from '../wire/http-vectors.ts';
import { createRandom, minimise, mutate } from '../json/texts.ts';
import { compare, nameOfKnown } from './http-differences.ts';

type Role = Vector['role'];

interface Case {
  readonly role: Role;
  readonly bytes: Buffer;
  readonly isEnded: boolean;
}

const { values } = parseArgs({
  options: { seconds: { type: 'string', default: '60' }, seed: { type: 'string', default: String(Date.now()) } },
});
const vectors = new URL('../vectors/http/', import.meta.url);
const random = createRandom(Number(values.seed));
const choices = createChoices(random);
const { below, chance } = choices;

const batchSize = 64;
const longest = 8_192;
const findingsMax = 10;
const keptMax = 2_000;
// Turns of the event loop that Node's parser gets before a difference is reported.
const patientTurns = 40;

function read(
  { role, isEnded }: Case,
  pieces: readonly Buffer[],
  headBytesMax?: number,
): Reading<RequestHead | AnswerHead> {
  const options = { isEnded, ...(headBytesMax !== undefined && { headBytesMax }) };
  return role === 'requests' ? readRequests(pieces, options) : readAnswers(pieces, options);
}

function judge(role: Role, texts: readonly Buffer[], isEnded: boolean, turns?: number): Promise<Judgement[]> {
  return role === 'requests' ? judgeRequests(texts, turns) : judgeAnswers(texts, isEnded, turns);
}

/** A fault found without a comparison with Node: an exception, or a reading that depends on the cuts. */
function findOwnFault(it: Case, cutsList: readonly (readonly number[])[]): string | undefined {
  const { bytes } = it;
  try {
    const whole = comparable(read(it, [Buffer.from(bytes)]));
    for (const cuts of cutsList) {
      if (!isDeepStrictEqual(comparable(read(it, cutAt(bytes, cuts))), whole)) {
        return `the reading changes if the bytes are cut at ${cuts.join()}`;
      }
    }
    if (!isDeepStrictEqual(comparable(read(it, byteByByte(bytes))), whole)) {
      return 'the reading changes if the bytes arrive one by one';
    }
    return undefined;
  } catch (error) {
    return `the reader throws: ${String(error)}`;
  }
}

const knownCounts = new Map<string, number>();

/** The difference between our reading and Node's, as a key; undefined if the readings agree, or if the difference is known. */
function findDifference(it: Case, judgement: Judgement, isCounted: boolean): string | undefined {
  const difference = compare(it.bytes, read(it, [Buffer.from(it.bytes)]), judgement);
  if (difference === undefined) return undefined;
  const known = nameOfKnown(it.role, difference);
  if (known !== undefined) {
    const name = `${it.role}: ${known}`;
    if (isCounted) knownCounts.set(name, (knownCounts.get(name) ?? 0) + 1);
    return undefined;
  }
  const { kind, error = 'none', flaw = 'none' } = difference;
  return `the readings differ (${kind}). Node's error: ${error}. Our flaw: ${flaw}`;
}

async function judgeOne(it: Case): Promise<Judgement> {
  const [judgement] = await judge(it.role, [it.bytes], it.isEnded, patientTurns);
  return judgement ?? { messages: [], error: undefined };
}

let findings = 0;
const found = new Set<string>();

/** `reading`: the expected reading, if known. */
function reportFinding(
  { role, bytes, isEnded }: Case,
  what: string,
  reading: Pick<Vector, 'messages' | 'isRefused'> = { messages: [], isRefused: true },
  detail = what,
): void {
  findings += 1;
  process.exitCode = 1;
  const vector: Vector = { what, role, bytes: bytes.toString('latin1'), isEnded, ...reading };
  const name = createHash('sha256').update(`${role} ${vector.bytes}`).digest('hex').slice(0, 12);
  const file = new URL(`fuzz_${name}.json`, vectors);
  writeFileSync(file, `${JSON.stringify(vector, undefined, 2)}\n`);
  console.log(`${role}: ${detail}\n  ${JSON.stringify(vector.bytes).slice(0, 1_000)}\n  written to ${file.pathname}`);
}

async function reportDifference(it: Case): Promise<void> {
  const what = findDifference(it, await judgeOne(it), false);
  if (what === undefined || found.has(what)) return;
  found.add(what);
  const isSame = async (shorter: Case) => findDifference(shorter, await judgeOne(shorter), false) === what;
  const least = { ...it, bytes: await minimise(it.bytes, (bytes) => isSame({ ...it, bytes })) };
  const { messages, error } = await judgeOne(least);
  reportFinding(least, what, {
    // Node's reading. A person must decide whether this reading is right.
    messages: messages.map(({ start, body, isWhole, persists }) => ({
      start,
      body: body.toString('latin1'),
      isWhole,
      persists: persists ?? false,
    })),
    isRefused: error !== undefined,
  });
}

async function reportOwnFault(it: Case, what: string): Promise<void> {
  const key = what.replaceAll(/\d+/g, 'n');
  if (found.has(key)) return;
  found.add(key);
  const least = await minimise(it.bytes, (bytes) => {
    const allCuts = Array.from(bytes, (_, cut) => [cut]);
    return findOwnFault({ ...it, bytes }, allCuts) !== undefined;
  });
  reportFinding({ ...it, bytes: least }, what);
}

// Work must not grow faster than linearly: the limit is twice that, plus a slack in ms for other work of the machine.
const smallBytes = 4_096;
const growth = 4;
const slackMs = 1;

/** Reports that reading `it` takes more than linear time if some of its bytes are repeated. */
function lookAtGrowth(it: Case): void {
  const { bytes } = it;
  const from = below(bytes.length);
  const to = Math.min(bytes.length, from + 1 + below(chance(0.5) ? 2 : 40));
  const pump = (length: number): Buffer => {
    const count = Math.max(1, Math.ceil((length - bytes.length) / (to - from)));
    const middles = Array<Buffer>(count).fill(bytes.subarray(from, to));
    return Buffer.concat([bytes.subarray(0, from), ...middles, bytes.subarray(to)]);
  };
  const [small, large] = [pump(smallBytes), pump(smallBytes * growth)];
  for (const cut of [(whole: Buffer) => [Buffer.from(whole)], byteByByte]) {
    // Even on a busy machine, the fastest of many rounds is hardly slowed.
    const leastMs = (whole: Buffer, rounds: number): number => {
      const times = Array.from({ length: rounds }, () => {
        const pieces = cut(whole);
        const startedAt = performance.now();
        read(it, pieces, 1_048_576);
        return performance.now() - startedAt;
      });
      return Math.min(...times);
    };
    if ([1, 4, 16].every((rounds) => leastMs(large, rounds) > 2 * growth * leastMs(small, rounds) + slackMs)) {
      const what = 'reading takes more than linear time';
      const repeated = JSON.stringify(bytes.toString('latin1', from, to));
      reportFinding({ ...it, bytes: large }, what, undefined, `${what} if ${repeated} is repeated`);
      return;
    }
  }
}

// Keeps texts with a new combination of readings and mutates them further.
const seen = new Set<string>();
const textsOf = (role: Role): Buffer[] =>
  [...valid, ...malformed].filter((each) => each.role === role).map(({ bytes }) => Buffer.from(bytes, 'latin1'));
const corpus: Record<Role, Buffer[]> = { requests: textsOf('requests'), answers: textsOf('answers') };

function keepIfNew({ role, bytes }: Case, judgement: Judgement, { flaw, messages }: Reading<object>): void {
  const key = `${role} ${flaw?.reason ?? ''} ${judgement.error ?? ''} ${messages.map(({ head, isWhole }) => `${'bodyLength' in head ? typeof head.bodyLength : ''}${String(isWhole)}`).join()}`;
  if (bytes.length > longest || seen.has(key)) return;
  seen.add(key);
  const texts = corpus[role];
  if (texts.length < keptMax) texts.push(bytes);
  else texts[below(keptMax)] = bytes;
}

function createText(role: Role): Buffer {
  const make = (): Buffer => {
    const kept = chance(0.4) ? corpus[role][below(corpus[role].length)] : undefined;
    return kept ?? (role === 'requests' ? createRequests(choices) : createAnswer(choices));
  };
  const bytes = make();
  return chance(0.8) ? mutate(bytes, make(), random, httpParts) : bytes;
}

console.log(`seed ${values.seed}, ${values.seconds} s`);
const end = performance.now() + Number(values.seconds) * 1_000;
let runs = 0;
while (performance.now() < end && findings < findingsMax) {
  for (const role of ['requests', 'answers'] as const) {
    const isEnded = role === 'answers' && chance(0.5);
    const cases = Array.from({ length: batchSize }, (): Case => ({ role, bytes: createText(role), isEnded }));
    const judgements = await judge(
      role,
      cases.map(({ bytes }) => bytes),
      isEnded,
    );
    for (const [index, it] of cases.entries()) {
      runs += 1;
      const judgement = judgements[index];
      const cuts = Array.from({ length: below(5) }, () => below(it.bytes.length + 1)).sort((a, b) => a - b);
      const what = findOwnFault(it, [cuts]);
      if (what !== undefined) {
        await reportOwnFault(it, what);
      } else if (judgement !== undefined) {
        if (findDifference(it, judgement, true) !== undefined) await reportDifference(it);
        keepIfNew(it, judgement, read(it, [Buffer.from(it.bytes)]));
      }
    }
    const first = cases.find(({ bytes }) => bytes.length > 0 && bytes.length < smallBytes / 2);
    if (first !== undefined) lookAtGrowth(first);
  }
}
const counts = [...knownCounts].sort((a, b) => b[1] - a[1]).map(([name, count]) => `  ${count} ${name}`);
console.log(`${runs} texts with ${seen.size} different readings, ${findings} findings`);
console.log(`Known differences, each with its count:\n${counts.join('\n')}`);
