// What several processes have seen of one backend, told as one.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { JoinedBackendStatus, type BackendStatus } from '../../src/telemetry/backend-status.ts';

const away = { isReachable: false, cause: 'refused' };
const there = { isReachable: true, cause: undefined };

/** What is told after each set of reports. */
function tell(...sets: BackendStatus[][]): (Partial<BackendStatus> | undefined)[] {
  const joined = new JoinedBackendStatus();
  return sets.map((statuses) => {
    const all = joined.join(statuses.map((backend) => ({ backend })));
    assert.ok(all.every(({ backend }) => backend === all[0]?.backend));
    return all[0]?.backend;
  });
}

for (const [name, sets, expected] of [
  [
    'nobody has looked yet',
    [[{ ...away, cause: undefined, since: 0, seenAt: 0 }]],
    [{ isReachable: false, since: 0 }],
  ],
  [
    'what was seen last counts',
    [
      [
        { ...away, since: 10, seenAt: 20 },
        { ...there, since: 5, seenAt: 30 },
      ],
    ],
    [{ isReachable: true, since: 5 }],
  ],
  [
    'a new process that sees the same has seen it later',
    [
      [{ ...away, since: 10, seenAt: 20 }],
      [{ ...away, cause: 'timed out', since: 30, seenAt: 30 }],
      [],
      [{ ...away, since: 0, seenAt: 0 }],
    ],
    [
      { isReachable: false, since: 10 },
      { isReachable: false, since: 10, cause: 'refused' },
      undefined,
      { isReachable: false, since: 10 },
    ],
  ],
  [
    'a change is not older than what was seen before it',
    [
      [{ ...there, since: 10, seenAt: 50 }],
      [{ ...away, since: 40, seenAt: 60 }],
      [{ ...there, since: 70, seenAt: 71 }],
    ],
    [
      { isReachable: true, since: 10 },
      { isReachable: false, since: 50, cause: 'refused' },
      { isReachable: true, since: 70 },
    ],
  ],
] as const) {
  test(name, () => {
    const told = tell(...sets.map((statuses) => [...statuses]));
    assert.equal(told.length, expected.length);
    for (const [index, one] of expected.entries()) {
      assert.deepEqual(one === undefined ? undefined : { ...told[index], ...one }, told[index]);
    }
  });
}
