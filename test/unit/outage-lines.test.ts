// Log lines about repeated outages [D47].

import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { OutageLines, quietMs } from '../../packages/command/service/outage-lines.ts';
import { HandClock } from '../helpers/hand-clock.ts';

function create() {
  const clock = new HandClock();
  const said: { at: number; is: 'down' | 'up'; outages: number; cause?: unknown }[] = [];
  const lines = new OutageLines(
    (cause, outages) => said.push({ at: clock.steady(), is: 'down', outages, cause }),
    () => said.push({ at: clock.steady(), is: 'up', outages: 0 }),
    clock,
  );
  return { clock, said, lines };
}

test('for any sequence of outages, at most two lines are logged in ten seconds, the first at once, every outage is counted, and the last line shows the current state', async () => {
  await fc.assert(
    fc.asyncProperty(fc.array(fc.nat(6_000), { maxLength: 40 }), fc.boolean(), async (pauses, closes) => {
      const { clock, said, lines } = create();
      for (const [index, pause] of pauses.entries()) {
        if (index % 2 === 0) lines.down(index);
        else lines.up();
        await clock.pass(pause);
      }
      if (closes) lines.close();
      else await clock.pass(quietMs);
      if (closes) assert.deepEqual(clock.waits, []);
      const downs = said.filter(({ is }) => is === 'down');
      if (pauses.length > 0) assert.deepEqual(said[0], { at: 0, is: 'down', outages: 1, cause: 0 });
      const outages = Math.ceil(pauses.length / 2);
      assert.equal(downs.reduce((sum, line) => sum + line.outages, 0), outages);
      for (const [index, { cause }] of downs.entries()) {
        const told = downs.slice(0, index + 1).reduce((sum, line) => sum + line.outages, 0);
        assert.equal(cause, 2 * (told - 1), 'the cause of the last outage');
      }
      assert.equal(said.at(-1)?.is ?? 'up', pauses.length % 2 === 1 ? 'down' : 'up');
      for (const [index, { at, is }] of said.entries()) {
        assert.equal(is, index % 2 === 0 ? 'down' : 'up');
        const third = said[index + 2];
        const isLast = closes && index + 2 >= said.length - 2;
        if (third !== undefined && !isLast) assert.ok(third.at - at >= quietMs, `${at} to ${third.at}`);
      }
    }),
    { numRuns: 100 },
  );
}); // prettier-ignore
