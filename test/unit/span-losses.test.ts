// What is said of spans that are lost: each is counted at once and in one line, and lines come in pairs [D49].

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

const told = (): number => lines.reduce((sum, [, , spans]) => sum + spans, 0);

test('the first loss is told at once, the others with the end', () => {
  losses.lose(2, 'status 503');
  losses.lose(3, 'status 503');
  losses.lose(4, 'status 400');
  assert.deepEqual(lines, [['losing', 'status 503', 2]]);
  assert.equal(dropped, 9);
  losses.recover();
  assert.deepEqual(lines[1], ['recovered', 'status 400', 7]);
});

test('where nothing was lost there is nothing to tell', () => {
  losses.recover();
  losses.recover();
  assert.deepEqual(lines, []);
});

test('a collector that comes and goes: a pair of lines in ten seconds, and every span in one of them', async () => {
  const losing = (): number => lines.filter(([kind]) => kind === 'losing').length;
  for (let second = 0; second < 60; second += 1) {
    losses.lose(1, 'away');
    losses.recover();
    losses.lose(1, 'away');
    losses.recover();
    await clock.pass(1_000);
  }
  assert.equal(losing(), 6 + 1);
  assert.equal(lines.length, 2 * losing());
  assert.equal(told() + losses.close(0), 120);
  assert.equal(dropped, 120);
});

test('what was lost within ten seconds of the last beginning is told after them, with its end', async () => {
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

test('one that is still away after ten seconds has no end yet', async () => {
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

test('the end gives what no line has told of, and no line follows', async () => {
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

test('the end calls off what was still to be told', async () => {
  losses.lose(1, 'a');
  losses.recover();
  losses.lose(2, 'b');
  assert.equal(losses.close(0), 2);
  await clock.pass(10 * pairMs);
  assert.equal(lines.length, 2);
  assert.deepEqual(clock.waits, []);
});
