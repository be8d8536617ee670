// The log's output gathers lines and writes them in pieces that the OS accepts. Waiting lines are buffered up to a
// limit; further lines are dropped and counted [D53].

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setImmediate as nextTurn } from 'node:timers/promises';
import fc from 'fast-check';
import { LogOutput } from '../../packages/command/log/log-output.ts';
import { poll } from '../helpers/changes.ts';

/** A disk whose writes the test controls. Like a slow OS, it reads the bytes only when the write ends. */
class Disk {
  text = '';
  /** The number of bytes that each write accepts, or the error code with which each write fails. */
  takes: number | string = Infinity;
  writes = 0;
  /** The number of failed writes that had begun before. */
  cuts = 0;
  #hasBegun = false;
  readonly pieces: string[] = [];
  isStalled = false;
  #stalled: (() => void) | undefined;

  readonly write = (bytes: Buffer, done: (error: NodeJS.ErrnoException | null, written: number) => void): void => {
    const finish = (): void => {
      this.writes += 1;
      if (typeof this.takes === 'string') {
        if (this.takes !== 'EAGAIN') {
          this.cuts += Number(this.#hasBegun);
          this.#hasBegun = false;
        }
        done(Object.assign(new Error(this.takes), { code: this.takes }), 0);
        return;
      }
      const taken = bytes.toString('latin1', 0, this.takes);
      this.#hasBegun = taken !== '' ? taken.length < bytes.length : this.#hasBegun;
      this.pieces.push(taken);
      this.text += taken;
      done(null, taken.length);
    };
    if (this.isStalled) this.#stalled = finish;
    else setImmediate(finish);
  };

  /** Ends the write that hangs. */
  resume(): void {
    this.isStalled = false;
    setImmediate(() => this.#stalled?.());
  }
}

function create({ gatherBytesMax = 10, heldBytesMax = 1_000_000 } = {}) {
  const disk = new Disk();
  const output = new LogOutput({
    write: disk.write,
    gatherMs: 100,
    gatherBytesMax,
    heldBytesMax,
    describeGap: (lines) => `<${lines} missing>\n`,
  });
  const gateway = { disk, output, dropped: 0 };
  output.onDrop = (lines) => (gateway.dropped += lines);
  return gateway;
}

test('lines are written whole, in order, in pieces up to the limit', async () => {
  const { disk, output } = create();
  for (const line of ['1234\n', '5678\n', 'é\n', 'ééé\n', 'a line longer than a piece\n', 'b\n']) output.write(line);
  await poll(() => disk.text.endsWith('b\n'), 'the last line is written without an end');
  const pieces = disk.pieces.map((piece) => Buffer.from(piece, 'latin1').toString('utf8'));
  assert.deepEqual(pieces, ['1234\n5678\n', 'é\nééé\n', 'a line longer than a piece\n', 'b\n']);
});

/** Sets the result of each write from now on, then writes lines, then lets turns of the event loop pass. */
const anyStep = fc.record({
  takes: fc.oneof(fc.integer({ min: 0, max: 12 }), fc.constantFrom('EAGAIN', 'ENOSPC', 'EPIPE')),
  lines: fc.nat(8),
  turns: fc.nat(6),
});

// The output once counted its report of dropped lines as a dropped line, too.
const cutAfterReport = ([[0, 1, 3], ['EAGAIN', 2, 1], ['ENOSPC', 6, 3], ['EPIPE', 3, 3], [12, 2, 1], ['EPIPE', 0, 1]] as const).map(
  ([takes, lines, turns]) => ({ takes, lines, turns }),
); // prettier-ignore

test('for any writes and errors, the lines are in order, each is whole or counted as dropped, and the limit stays exact', async () => {
  await fc.assert(
    fc.asyncProperty(fc.array(anyStep, { maxLength: 30 }), fc.constantFrom(10, 40), async (steps, gatherBytesMax) => {
      const heldBytesMax = 60;
      const gateway = create({ gatherBytesMax, heldBytesMax });
      const { disk, output } = gateway;
      let lines = 0;
      for (const step of steps) {
        disk.takes = step.takes;
        for (const end = lines + step.lines; lines < end; lines += 1)
          output.write(`[${lines}${'.'.repeat(lines % 9)}]\n`);
        if (step.turns % 2 === 0) output.flush();
        for (let turn = 0; turn < step.turns; turn += 1) await nextTurn();
      }
      disk.takes = Infinity;
      await output.end(5_000);
      output.write('last\n');
      await output.end(5_000);
      const read = disk.text.split('\n').slice(0, -1);
      assert.equal(read.pop(), 'last');
      const whole = read.flatMap((line) => /^\[(\d+)\.*\]$/.exec(line)?.[1] ?? []).map(Number);
      const gaps = read.flatMap((line) => /^<(\d+) missing>$/.exec(line)?.[1] ?? []).map(Number);
      const parts = read.filter((line) => /^(?:\[\d*\.*|<\d*(?: [a-z]*)?)?$/.test(line));
      assert.equal(whole.length + gaps.length + parts.length, read.length, disk.text);
      assert.deepEqual(
        whole,
        [...new Set(whole)].toSorted((one, other) => one - other),
      );
      // A line that was cut just before its end counts as dropped.
      const counted = whole.length + gateway.dropped;
      assert.ok(lines <= counted && counted <= lines + disk.cuts, `${lines}, ${counted}`);
      const told = gaps.reduce((sum, gap) => sum + gap, 0);
      assert.ok(disk.cuts === 0 ? told === gateway.dropped : told <= gateway.dropped, disk.text);
      assert.ok(parts.length <= disk.cuts, disk.text);
      disk.isStalled = true;
      const { dropped } = gateway;
      output.write(`${'x'.repeat(heldBytesMax - 1)}\n`);
      assert.equal(gateway.dropped, dropped);
      output.write('\n');
      assert.equal(gateway.dropped, dropped + 1);
    }),
    { numRuns: 300, examples: [[cutAfterReport, 40]] },
  );
});

test('after EAGAIN errors, retries wait up to 100 ms, and 1 ms again after a success', async (t) => {
  const { disk, output } = create();
  const waits: number[] = [];
  t.mock.method(globalThis, 'setTimeout', (retry: () => void, ms: number) => {
    waits.push(ms);
    return setImmediate(retry);
  });
  for (const expected of [[1, 2, 4, 8, 16, 32, 64, 100, 100], [1]]) {
    waits.length = 0;
    disk.takes = 'EAGAIN';
    output.write(`${'long line'.repeat(2)}\n`);
    await poll(() => waits.length >= expected.length, 'the retries');
    disk.takes = Infinity;
    await poll(() => disk.text.endsWith('\n'), 'the line');
    disk.text = '';
    assert.deepEqual(waits.slice(0, expected.length), expected);
  }
});

test('when the buffer is full, lines are dropped until half of it is written; the number of dropped lines is written instead', async () => {
  const gateway = create({ heldBytesMax: 100 });
  const { disk, output } = gateway;
  disk.isStalled = true;
  for (let index = 10; index < 60; index += 1) output.write(`line ${index}\n`);
  // 12 lines of 8 bytes fit.
  assert.equal(gateway.dropped, 50 - 12);
  disk.resume();
  await poll(() => disk.text.includes('missing'), 'the number is written before a further line arrives');
  output.write('after\n');
  await output.end(1_000);
  const kept = Array.from({ length: 12 }, (_, index) => `line ${index + 10}\n`).join('');
  assert.equal(disk.text, `${kept}<38 missing>\nafter\n`);
});

test('lines whose write fails, and a line above the limit, are dropped at once, and their number comes before the next line', async () => {
  const gateway = create({ heldBytesMax: 100 });
  const { disk, output } = gateway;
  disk.takes = 'ENOSPC';
  for (let index = 0; index < 5; index += 1) output.write(`line ${index}\n`);
  await poll(() => gateway.dropped === 5, 'all five are counted');
  assert.equal(disk.writes, 5, 'none is tried again');
  // The line that reports these five is lost, too, but not counted.
  output.write('line 5\n');
  await poll(() => gateway.dropped === 6, 'the sixth is counted');
  output.write(`${'x'.repeat(100)}\n`);
  disk.takes = Infinity;
  output.write('line 6\n');
  await output.end(1_000);
  assert.equal(disk.text, '<7 missing>\nline 6\n');
});

test('the end waits for a hanging write only until its limit, and for nothing if no line waits', async () => {
  const { disk, output } = create();
  const hasEnded = output.end(1_000_000).then(() => true);
  // Here `end` needs no timer and no write, so it comes before the next turn of the event loop.
  assert.ok(await Promise.race([hasEnded, nextTurn(false)]));
  disk.isStalled = true;
  output.write('line\n');
  const from = performance.now();
  await output.end(50);
  assert.ok(performance.now() - from >= 49);
});
