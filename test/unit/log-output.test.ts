// Where the log's lines go: gathered, written in pieces that the system takes, and where it takes none held up to a
// bound, then dropped and counted. D53.

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { LogOutput } from '../../packages/command/log/log-output.ts';
import { poll } from '../helpers/changes.ts';

/** What the output asks to be written, and what the test lets become of it. */
class Disk {
  text = '';
  /** Bytes taken of each write, or why none is. */
  takes: number | string = Infinity;
  writes = 0;
  /** The pieces as they came. */
  readonly pieces: string[] = [];
  #stalled: (() => void) | undefined;
  isStalled = false;

  readonly write = (
    bytes: Buffer,
    done: (error: NodeJS.ErrnoException | null, written: number) => void,
  ): void => {
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

  /** The write that hangs comes to its end. */
  resume(): void {
    this.isStalled = false;
    setImmediate(() => this.#stalled?.());
  }
}

function create(disk: Disk, { gatherBytesMax = 10, heldBytesMax = 1_000_000 } = {}) {
  const output = new LogOutput({
    write: disk.write,
    gatherMs: 100,
    gatherBytesMax,
    heldBytesMax,
    describeGap: (lines) => `<${lines} missing>\n`,
  });
  let dropped = 0;
  output.onDrop = (lines) => (dropped += lines);
  return {
    output,
    get dropped() {
      return dropped;
    },
  };
}

describe('gathering', () => {
  test('lines are written whole, in order, in pieces of so many bytes at most', async () => {
    const disk = new Disk();
    const { output } = create(disk);
    for (const line of ['1234\n', '5678\n', 'é\n', 'ééé\n', 'a line longer than a piece\n', 'b\n']) {
      output.write(line);
    }
    await output.end(1_000);
    const pieces = disk.pieces.map((piece) => Buffer.from(piece, 'latin1').toString('utf8'));
    assert.deepEqual(pieces, ['1234\n5678\n', 'é\nééé\n', 'a line longer than a piece\n', 'b\n']);
  });

  test('bytes that are being written are not overwritten by lines that come meanwhile', async () => {
    const written: string[] = [];
    const output = new LogOutput({
      write: (bytes, done) => {
        // Looked at only when it is done, as a system does that is slow.
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
      if (index % 7 === 0) {
        await new Promise((resolve) => setImmediate(resolve));
      }
    }
    await output.end(60_000);
    assert.equal(written.join(''), lines.join(''));
  });

  test('few lines that wait for a slow reader hold the memory of few lines', () => {
    const disk = new Disk();
    disk.isStalled = true;
    const { output } = create(disk, { gatherBytesMax: 1_048_576, heldBytesMax: 100_000 });
    const before = process.memoryUsage().arrayBuffers;
    for (let count = 0; count < 100; count += 1) {
      output.write('one line\n');
      output.flush();
    }
    assert.ok(process.memoryUsage().arrayBuffers - before < 4_000_000);
  });

  test('a line that stays alone is written all the same', async () => {
    const disk = new Disk();
    create(disk).output.write('alone\n');
    await poll(() => disk.text === 'alone\n', 'it is written');
  });
});

describe('where the system takes little', () => {
  for (const takes of [1, 2, 3, 7, 9, 10, 11]) {
    test(`every byte is written once and in order: ${takes} at a time`, async () => {
      const disk = new Disk();
      disk.takes = takes;
      const { output } = create(disk);
      const lines = Array.from({ length: 50 }, (_, index) => `line ${index}\n`);
      for (const line of lines) output.write(line);
      await output.end(5_000);
      assert.equal(disk.text, lines.join(''));
    });
  }

  test('nothing is lost where there is no room for a while', async () => {
    const disk = new Disk();
    disk.takes = 'EAGAIN';
    const gateway = create(disk);
    const { output } = gateway;
    for (let index = 0; index < 10; index += 1) output.write(`line ${index}\n`);
    await poll(() => disk.writes >= 3, 'three attempts');
    disk.takes = 3;
    await output.end(5_000);
    assert.equal(disk.text, Array.from({ length: 10 }, (_, index) => `line ${index}\n`).join(''));
    assert.equal(gateway.dropped, 0);
  });

  test('attempts become rare where there is no room for long', async () => {
    const disk = new Disk();
    disk.takes = 'EAGAIN';
    const { output } = create(disk);
    output.write('line\n');
    await output.end(1_000);
    // After 1, 2, 4, 8, 16, 32, 64, 100, 100 ... ms.
    assert.ok(disk.writes >= 3 && disk.writes <= 20, `${disk.writes} attempts`);
  });
});

describe('what is held is bounded', () => {
  test('beyond the bound lines are dropped until half of it is written, and their number stands in their place', async () => {
    const disk = new Disk();
    disk.isStalled = true;
    const gateway = create(disk, { heldBytesMax: 100 });
    const { output } = gateway;
    for (let index = 10; index < 60; index += 1) output.write(`line ${index}\n`);
    assert.ok(output.isFull);
    // 12 lines of 8 bytes fit.
    assert.equal(gateway.dropped, 50 - 12);
    disk.resume();
    await poll(() => disk.text.includes('missing'), 'the number is written without a further line');
    output.write('after\n');
    await output.end(1_000);
    const kept = Array.from({ length: 12 }, (_, index) => `line ${index + 10}\n`).join('');
    assert.equal(disk.text, `${kept}<38 missing>\nafter\n`);
    assert.equal(gateway.dropped, 38);
  });

  test('a line that is larger than the bound is dropped, and the next one is not', async () => {
    const disk = new Disk();
    const gateway = create(disk, { heldBytesMax: 100 });
    gateway.output.write(`${'x'.repeat(100)}\n`);
    gateway.output.write('next\n');
    await gateway.output.end(1_000);
    assert.equal(disk.text, '<1 missing>\nnext\n');
    assert.equal(gateway.dropped, 1);
  });
});

describe('where writing fails', () => {
  test('lines are dropped at once and counted, and their number stands in front of the next line', async () => {
    const disk = new Disk();
    disk.takes = 'ENOSPC';
    const gateway = create(disk);
    const { output } = gateway;
    for (let index = 0; index < 5; index += 1) output.write(`line ${index}\n`);
    await poll(() => gateway.dropped === 5, 'all five are counted');
    // The number is lost, too, and is no line that anybody misses.
    output.write('line 5\n');
    await poll(() => gateway.dropped === 6, 'the sixth is counted');
    disk.takes = Infinity;
    output.write('line 6\n');
    await output.end(1_000);
    assert.equal(disk.text, '<6 missing>\nline 6\n');
    assert.equal(gateway.dropped, 6);
  });

  test('a line that was cut off does not take the next one with it', async () => {
    const disk = new Disk();
    const gateway = create(disk, { gatherBytesMax: 100 });
    const { output } = gateway;
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

  test('each batch is one attempt', async () => {
    const disk = new Disk();
    disk.takes = 'EPIPE';
    const gateway = create(disk);
    for (let index = 0; index < 1_000; index += 1) gateway.output.write('12345678\n');
    await gateway.output.end(1_000);
    assert.equal(gateway.dropped, 1_000);
    assert.equal(disk.writes, 1_000);
  });
});

describe('the end', () => {
  test('it waits no longer than it may for a write that hangs', async () => {
    const disk = new Disk();
    disk.isStalled = true;
    const { output } = create(disk);
    output.write('line\n');
    const from = performance.now();
    await output.end(50);
    assert.ok(performance.now() - from >= 49);
  });

  test('it waits for nothing where nothing is held', async () => {
    const { output } = create(new Disk());
    await output.end(1_000_000);
  });
});
