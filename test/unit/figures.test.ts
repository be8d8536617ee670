// Labels of metrics: statuses of replies, and causes of a worker's end. A status without a label would be counted as a
// client that left.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { causeOfDeath, Figures, statuses } from '../../packages/figures/figures.ts';
import { failureReplies, notFoundReplies, replies } from '../../packages/core/replies.ts';

test('every status of a reply is counted under its own label', () => {
  const all = [...Object.values(replies), ...Object.values(failureReplies), ...Object.values(notFoundReplies)];
  for (const { status } of all) {
    const known = statuses.find((each) => each === status);
    assert.ok(known !== undefined, `the status ${status} has no label`);
    const figures = new Figures();
    figures.recordMalformed(status);
    assert.equal(figures.requests('none', known), 1, String(status));
  }
});

test("a worker's end has one of five causes [D63]", () => {
  for (const [signal, isFrozen, cause] of [
    [null, false, 'exit'],
    ['SIGKILL', false, 'killed'],
    ['SIGKILL', true, 'frozen'],
    ['SIGABRT', false, 'aborted'],
    ['SIGSEGV', false, 'signal'],
    ['SIGTERM', false, 'signal'],
  ] as const) {
    assert.equal(causeOfDeath(signal, isFrozen), cause, String(signal));
  }
});
