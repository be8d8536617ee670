// Counts of replies by status. A status without its own label would be counted as a client that left.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { Figures, statuses } from '../../packages/figures/figures.ts';
import { failureReplies, notFoundReplies, replies } from '../../packages/core/replies.ts';

test('every status of a reply is counted under its own label', () => {
  const all = [
    ...Object.values(replies),
    ...Object.values(failureReplies),
    ...Object.values(notFoundReplies),
  ];
  for (const { status } of all) {
    const known = statuses.find((each) => each === status);
    assert.ok(known !== undefined, `${status} is not among the statuses`);
    const figures = new Figures();
    figures.recordMalformed(status);
    assert.equal(figures.requests('none', known), 1, String(status));
  }
});
