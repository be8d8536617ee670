// The log's output gathers lines and writes them in pieces that the OS accepts. Waiting lines are buffered up to a
// limit; further lines are dropped and counted [D53].

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { LogOutput } from '../../packages/command/log/log-output.ts';
import { poll } from '../helpers/changes.ts';

/** A disk whose writes the test controls. */
class Disk {
  text = '';
  /** The number of bytes that each write accepts, or the error code with which each write fails. */
  takes: number | string = Infinity;
  writes = 0;
  readonly pieces: string[] = [];
  #stalled: (() => void) | undefined;
  isStalled = false;

  readonly write = (bytes: Buffer, done: (error: NodeJS.ErrnoException | null, written: number) => void): void => {
    const copy = Buffer.from(bytes);
    const finish = (): void => {
      this.writes += 1;
      if (typeof this.takes === 'string') {
        done(Object.assign(new Error(this.takes), { code: this.takes }), 0);
        return;
      }
      const taken = copy.subarray(0, this.takes);
      this.pieces.push(taken.toString('latin1'));
      this.text += taken.toString('latin1');
      done(null, taken.length);
    };
    if (this.isStalled) {
      this.#stalled = finish;
    } else {
      setImmediate(finish);
    }
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

describe('gathering', () => {
  test('lines are written whole, in order, in pieces up to the limit', async () => {
    const { disk, output } = create();
    for (const line of ['1234\n', '5678\n', 'é\n', 'ééé\n', 'a line longer than a piece\n', 'b\n']) {
      output.write(line);
    }
    await output.end(1_000);
    const pieces = disk.pieces.map((piece) => Buffer.from(piece, 'latin1').toString('utf8'));
    assert.deepEqual(pieces, ['1234\n5678\n', 'é\nééé\n', 'a line longer than a piece\n', 'b\n']);
  });

  test('new lines do not overwrite bytes that are being written', async () => {
    const written: string[] = [];
    const output = new LogOutput({
      write: (bytes, done) => {
        // Reads the bytes late, like a slow OS.
        setTimeout(() => {
          written.push(bytes.toString());
          done(null, bytes.length);
        }, 1);
      },
      gatherMs: 100,
      gatherBytesMax: 16,
      heldBytesMax: 1_000_000,
      describeGap: () => '',
    });
    const lines = Array.from({ length: 300 }, (_, index) => `line ${index}\n`);
    for (const [index, line] of lines.entries()) {
      output.write(line);
      if (index % 7 === 0) await new Promise((resolve) => setImmediate(resolve));
    }
    await output.end(60_000);
    assert.equal(written.join(''), lines.join(''));
  });

  test('few waiting lines take little memory', () => {
    const { disk, output } = create({ gatherBytesMax: 1_048_576, heldBytesMax: 100_000 });
    disk.isStalled = true;
    const before = process.memoryUsage().arrayBuffers;
    for (let count = 0; count < 100; count += 1) {
      output.write('one line\n');
      output.flush();
    }
    assert.ok(process.memoryUsage().arrayBuffers - before < 4_000_000);
  });

  test('a single line is written', async () => {
    const { disk, output } = create();
    output.write('alone\n');
    await poll(() => disk.text === 'alone\n', 'the line is written');
  });
});

describe('partial writes', () => {
  for (const takes of [1, 2, 3, 7, 9, 10, 11]) {
    test(`if each write accepts no more than ${takes} of the bytes, every byte is written once and in order`, async () => {
      const { disk, output } = create();
      disk.takes = takes;
      const lines = Array.from({ length: 50 }, (_, index) => `line ${index}\n`);
      for (const line of lines) output.write(line);
      await output.end(5_000);
      assert.equal(disk.text, lines.join(''));
    });
  }

  test('a few EAGAIN errors lose no line', async () => {
    const gateway = create();
    const { disk, output } = gateway;
    disk.takes = 'EAGAIN';
    for (let index = 0; index < 10; index += 1) output.write(`line ${index}\n`);
    await poll(() => disk.writes >= 3, 'three attempts');
    disk.takes = 3;
    await output.end(5_000);
    assert.equal(disk.text, Array.from({ length: 10 }, (_, index) => `line ${index}\n`).join(''));
    assert.equal(gateway.dropped, 0);
  });

  test('after many EAGAIN errors, retries become rare', async () => {
    const { disk, output } = create();
    disk.takes = 'EAGAIN';
    output.write('line\n');
    await output.end(400);
    // Retries wait 1, 2, 4, 8, 16, 32, 64, 100, 100 ... ms.
    assert.ok(disk.writes >= 3 && disk.writes <= 14, `${disk.writes} attempts`);
  });
});

describe('the limit on buffered lines', () => {
  test('when the buffer is full, lines are dropped until half of it is written; the number of dropped lines is written instead', async () => {
    const gateway = create({ heldBytesMax: 100 });
    const { disk, output } = gateway;
    disk.isStalled = true;
    for (let index = 10; index < 60; index += 1) output.write(`line ${index}\n`);
    assert.ok(output.isFull);
    // 12 lines of 8 bytes fit.
    assert.equal(gateway.dropped, 50 - 12);
    disk.resume();
    await poll(() => disk.text.includes('missing'), 'the number is written before a further line arrives');
    output.write('after\n');
    await output.end(1_000);
    const kept = Array.from({ length: 12 }, (_, index) => `line ${index + 10}\n`).join('');
    assert.equal(disk.text, `${kept}<38 missing>\nafter\n`);
    assert.equal(gateway.dropped, 38);
  });

  test('a line larger than the limit is dropped, the next line is not', async () => {
    const gateway = create({ heldBytesMax: 100 });
    const { disk } = gateway;
    gateway.output.write(`${'x'.repeat(100)}\n`);
    gateway.output.write('next\n');
    await gateway.output.end(1_000);
    assert.equal(disk.text, '<1 missing>\nnext\n');
    assert.equal(gateway.dropped, 1);
  });
});

describe('failing writes', () => {
  test('lines are dropped immediately and counted, and their number is written before the next line', async () => {
    const gateway = create();
    const { disk, output } = gateway;
    disk.takes = 'ENOSPC';
    for (let index = 0; index < 5; index += 1) output.write(`line ${index}\n`);
    await poll(() => gateway.dropped === 5, 'all five are counted');
    // The line that reports these five is lost, too, but not counted.
    output.write('line 5\n');
    await poll(() => gateway.dropped === 6, 'the sixth is counted');
    disk.takes = Infinity;
    output.write('line 6\n');
    await output.end(1_000);
    assert.equal(disk.text, '<6 missing>\nline 6\n');
    assert.equal(gateway.dropped, 6);
  });

  test('after a line that was cut, the next line begins on a new line', async () => {
    const gateway = create({ gatherBytesMax: 100 });
    const { disk, output } = gateway;
    disk.takes = 10;
    output.write('line 1\n');
    output.write('line 2\n');
    output.write('line 3\n');
    output.flush();
    await poll(() => disk.writes === 1, 'a part is written');
    disk.takes = 'ENOSPC';
    await poll(() => gateway.dropped > 0, 'the rest is dropped');
    assert.equal(gateway.dropped, 2);
    disk.takes = Infinity;
    output.write('line 4\n');
    await output.end(1_000);
    assert.equal(disk.text, 'line 1\nlin\n<2 missing>\nline 4\n');
  });

  test('a batch whose write fails is not tried again', async () => {
    const gateway = create();
    const { disk } = gateway;
    disk.takes = 'EPIPE';
    for (let index = 0; index < 1_000; index += 1) gateway.output.write('12345678\n');
    await gateway.output.end(1_000);
    assert.equal(gateway.dropped, 1_000);
    assert.equal(disk.writes, 1_000);
  });
});

describe('the limit', () => {
  test('stays exact after lines that were written in part', async () => {
    const { disk, output } = create({ heldBytesMax: 20 });
    for (let count = 0; count < 10; count += 1) {
      // The first write accepts a part of the line, and the second fails.
      disk.takes = 3;
      output.write('12345678\n');
      output.flush();
      await poll(() => disk.writes === 3 * count + 1, 'a part is written');
      disk.takes = 'EIO';
      await poll(() => disk.writes === 3 * count + 2, 'the rest is dropped');
      disk.takes = Infinity;
      output.write('1\n');
      await output.end(1_000);
      disk.writes = 3 * (count + 1);
    }
    disk.isStalled = true;
    output.write('1234567890123456789\n');
    output.flush();
    assert.equal(output.isFull, false);
    output.write('\n');
    assert.equal(output.isFull, true);
  });
});

describe('end', () => {
  test('waits for a hanging write only until the given time limit', async () => {
    const { disk, output } = create();
    disk.isStalled = true;
    output.write('line\n');
    const from = performance.now();
    await output.end(50);
    assert.ok(performance.now() - from >= 49);
  });

  test('returns immediately if no line waits', async () => {
    const { output } = create();
    const hasEnded = output.end(1_000_000).then(() => true);
    // `end` needs no timer and no write here, so it comes before the next turn of the event loop.
    assert.ok(await Promise.race([hasEnded, new Promise((resolve) => setImmediate(resolve))]));
  });
});
