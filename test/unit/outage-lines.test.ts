// What is logged of outages that come and go [D47].

import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { OutageLines, quietMs } from '../../packages/command/service/outage-lines.ts';
import { HandClock } from '../helpers/hand-clock.ts';

interface Line {
  readonly at: number;
  readonly is: 'away' | 'back';
  readonly outages: number;
  readonly cause: unknown;
}

function create() {
  const clock = new HandClock();
  const said: Line[] = [];
  const lines = new OutageLines({
    clock,
    onAway: (cause, outages) => said.push({ at: clock.steady(), is: 'away', outages, cause }),
    onBack: () => said.push({ at: clock.steady(), is: 'back', outages: 0, cause: undefined }),
  });
  const texts = () => said.map(({ at, is, outages, cause }) => `${at} ${is === 'away' ? `away ${outages} ${String(cause)}` : is}`); // prettier-ignore
  return { clock, said, lines, texts };
}

test('an outage is said at once, and its end', async () => {
  const { clock, lines, texts } = create();
  lines.away('killed');
  await clock.pass(60_000);
  lines.back();
  await clock.pass(60_000);
  lines.away('stopped');
  lines.back();
  assert.deepEqual(texts(), ['0 away 1 killed', '60000 back', '120000 away 1 stopped', '120000 back']);
  assert.deepEqual(clock.waits, [quietMs]);
});

test('outages soon after it are said together, ten seconds later, and whether it is back', async () => {
  const { clock, lines, texts } = create();
  lines.away('first');
  for (const cause of ['second', 'third', 'fourth']) {
    await clock.pass(100);
    lines.back();
    await clock.pass(100);
    lines.away(cause);
  }
  await clock.pass(9_499);
  assert.deepEqual(texts(), ['0 away 1 first', '100 back']);
  await clock.pass(1);
  assert.deepEqual(texts().slice(2), ['10100 away 3 fourth']);
  lines.back();
  lines.away('fifth');
  lines.back();
  await clock.pass(quietMs);
  assert.deepEqual(texts().slice(3), ['10100 back', '20100 away 1 fifth', '20100 back']);
});

test('at the end nothing is left unsaid, and nothing waits', () => {
  const { clock, lines, texts } = create();
  for (const cause of ['first', 'second', 'third']) {
    lines.away(cause);
    lines.back();
  }
  lines.away('last');
  lines.close();
  assert.deepEqual(texts(), ['0 away 1 first', '0 back', '0 away 3 last']);
  assert.deepEqual(clock.waits, []);
});

test('whatever comes: no three lines in ten seconds, every outage is counted, and the last line is true in the end', async () => {
  await fc.assert(
    fc.asyncProperty(fc.array(fc.nat(6_000), { maxLength: 40 }), async (pauses) => {
      const { clock, said, lines } = create();
      for (const [index, pause] of pauses.entries()) {
        if (index % 2 === 0) lines.away(index);
        else lines.back();
        await clock.pass(pause);
      }
      await clock.pass(quietMs);
      const outages = said.reduce((sum, line) => sum + line.outages, 0);
      assert.equal(outages, Math.ceil(pauses.length / 2));
      assert.equal(said.at(-1)?.is ?? 'back', pauses.length % 2 === 1 ? 'away' : 'back');
      for (const [index, { at, is }] of said.entries()) {
        assert.equal(is, index % 2 === 0 ? 'away' : 'back');
        const third = said[index + 2];
        if (third !== undefined) assert.ok(third.at - at >= quietMs, `${at} to ${third.at}`);
      }
    }),
    { numRuns: 50 },
  );
});
