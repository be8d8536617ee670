// Log lines about lost spans: each span is counted at once and is in one line, and lines come in pairs [D49].

import assert from 'node:assert/strict';
import { beforeEach, test } from 'node:test';
import { pairMs, SpanLosses } from '../../packages/command/traces/span-losses.ts';
import { HandClock } from '../helpers/hand-clock.ts';

let clock: HandClock;
let losses: SpanLosses;
let dropped: number;
let lines: (readonly ['losing' | 'recovered', cause: string, spans: number])[];

beforeEach(() => {
  clock = new HandClock();
  dropped = 0;
  lines = [];
  losses = new SpanLosses(
    {
      onDropped: (spans) => {
        dropped += spans;
      },
      onLosing: (cause, spans) => lines.push(['losing', cause, spans]),
      onRecovered: (cause, spans) => lines.push(['recovered', cause, spans]),
    },
    clock,
  );
});

const spansInLines = (): number => lines.reduce((sum, [, , spans]) => sum + spans, 0);

test('the first loss is reported at once, later ones with the recovery', () => {
  losses.lose(2, 'status 503');
  losses.lose(3, 'status 503');
  losses.lose(4, 'status 400');
  assert.deepEqual(lines, [['losing', 'status 503', 2]]);
  assert.equal(dropped, 9);
  losses.recover();
  assert.deepEqual(lines[1], ['recovered', 'status 400', 7]);
});

test('a recovery without a loss is not reported', () => {
  losses.recover();
  losses.recover();
  assert.deepEqual(lines, []);
});

test('a flapping collector causes one pair of lines in ten seconds, and every span is in one of them', async () => {
  const losing = (): number => lines.filter(([kind]) => kind === 'losing').length;
  for (let second = 0; second < 60; second += 1) {
    losses.lose(1, 'down');
    losses.recover();
    losses.lose(1, 'down');
    losses.recover();
    await clock.pass(1_000);
  }
  assert.equal(losing(), 6 + 1);
  assert.equal(lines.length, 2 * losing());
  assert.equal(spansInLines() + losses.close(0), 120);
  assert.equal(dropped, 120);
});

test('losses within ten seconds of the last report are reported after these ten seconds, with the recovery', async () => {
  losses.lose(1, 'a');
  losses.recover();
  losses.lose(5, 'b');
  losses.recover();
  assert.equal(lines.length, 2);
  await clock.pass(pairMs - 1);
  assert.equal(lines.length, 2);
  await clock.pass(1);
  assert.deepEqual(lines.slice(2), [
    ['losing', 'b', 5],
    ['recovered', 'b', 0],
  ]);
});

test('while a collector is still down after ten seconds, no recovery is reported', async () => {
  losses.lose(1, 'a');
  losses.recover();
  losses.lose(5, 'b');
  await clock.pass(pairMs);
  assert.deepEqual(lines.slice(2), [['losing', 'b', 5]]);
  losses.lose(6, 'b');
  await clock.pass(10 * pairMs);
  losses.recover();
  assert.deepEqual(lines.slice(3), [['recovered', 'b', 6]]);
});

test('close returns the number of unreported spans, and no line follows', async () => {
  losses.lose(1, 'a');
  losses.lose(2, 'a');
  assert.equal(losses.close(4), 6);
  assert.equal(dropped, 7);
  losses.recover();
  losses.lose(1, 'b');
  const count = lines.length;
  await clock.pass(10 * pairMs);
  assert.equal(lines.length, count);
});

test('close cancels pending lines', async () => {
  losses.lose(1, 'a');
  losses.recover();
  losses.lose(2, 'b');
  assert.equal(losses.close(0), 2);
  await clock.pass(10 * pairMs);
  assert.equal(lines.length, 2);
  assert.deepEqual(clock.waits, []);
});
