// Log lines about repeated outages [D47].

import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { OutageLines, quietMs } from '../../packages/command/service/outage-lines.ts';
import { HandClock } from '../helpers/hand-clock.ts';

interface Line {
  readonly at: number;
  readonly is: 'down' | 'up';
  readonly outages: number;
  readonly cause: unknown;
}

function create() {
  const clock = new HandClock();
  const said: Line[] = [];
  const lines = new OutageLines(
    (cause, outages) => said.push({ at: clock.steady(), is: 'down', outages, cause }),
    () => said.push({ at: clock.steady(), is: 'up', outages: 0, cause: undefined }),
    clock,
  );
  const texts = () => said.map(({ at, is, outages, cause }) => `${at} ${is === 'down' ? `down ${outages} ${String(cause)}` : is}`); // prettier-ignore
  return { clock, said, lines, texts };
}

test('an outage and its end are logged immediately', async () => {
  const { clock, lines, texts } = create();
  lines.down('killed');
  await clock.pass(60_000);
  lines.up();
  await clock.pass(60_000);
  lines.down('stopped');
  lines.up();
  assert.deepEqual(texts(), ['0 down 1 killed', '60000 up', '120000 down 1 stopped', '120000 up']);
  assert.deepEqual(clock.waits, [quietMs]);
});

test('after a logged outage ends, the outages of the next ten seconds get one line when these ten seconds are over, and a second line when the last of them ends', async () => {
  const { clock, lines, texts } = create();
  lines.down('first');
  for (const cause of ['second', 'third', 'fourth']) {
    await clock.pass(100);
    lines.up();
    await clock.pass(100);
    lines.down(cause);
  }
  await clock.pass(9_499);
  assert.deepEqual(texts(), ['0 down 1 first', '100 up']);
  await clock.pass(1);
  assert.deepEqual(texts().slice(2), ['10100 down 3 fourth']);
  lines.up();
  lines.down('fifth');
  lines.up();
  await clock.pass(quietMs);
  assert.deepEqual(texts().slice(3), ['10100 up', '20100 down 1 fifth', '20100 up']);
});

test('close() logs the outages that are not logged yet, and cancels the timer', () => {
  const { clock, lines, texts } = create();
  for (const cause of ['first', 'second', 'third']) {
    lines.down(cause);
    lines.up();
  }
  lines.down('last');
  lines.close();
  assert.deepEqual(texts(), ['0 down 1 first', '0 up', '0 down 3 last']);
  assert.deepEqual(clock.waits, []);
});

test('for any sequence of outages, at most two lines are logged in ten seconds, every outage is counted, and the last line shows the current state', async () => {
  await fc.assert(
    fc.asyncProperty(fc.array(fc.nat(6_000), { maxLength: 40 }), async (pauses) => {
      const { clock, said, lines } = create();
      for (const [index, pause] of pauses.entries()) {
        if (index % 2 === 0) lines.down(index);
        else lines.up();
        await clock.pass(pause);
      }
      await clock.pass(quietMs);
      const outages = said.reduce((sum, line) => sum + line.outages, 0);
      assert.equal(outages, Math.ceil(pauses.length / 2));
      assert.equal(said.at(-1)?.is ?? 'up', pauses.length % 2 === 1 ? 'down' : 'up');
      for (const [index, { at, is }] of said.entries()) {
        assert.equal(is, index % 2 === 0 ? 'down' : 'up');
        const third = said[index + 2];
        if (third !== undefined) assert.ok(third.at - at >= quietMs, `${at} to ${third.at}`);
      }
    }),
    { numRuns: 50 },
  );
});
