// What is known of the backend: what one process has seen, and what several have, told as one [D34].

import assert from 'node:assert/strict';
import { Socket } from 'node:net';
import { test } from 'node:test';
import {
  BackendMonitor,
  JoinedBackendStatus,
  type BackendStatus,
} from '../../packages/figures/backend-status.ts';

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
      { isReachable: false, since: 10, cause: 'timed out' },
      undefined,
      { isReachable: false, since: 10, cause: 'timed out' },
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

/** Opens sockets that fail with `errors`, one after the other. */
function failing(...errors: Error[]) {
  return () => new Socket().destroy(errors.shift());
}

function errorOf(code: string): Error {
  return Object.assign(new Error(`connect ${code}`), { code });
}

test('the last cause is told, for as long as the backend is away [D34]', async () => {
  const monitor = new BackendMonitor(failing(errorOf('ECONNREFUSED')));
  monitor.report('a certificate that is not trusted');
  const { since } = await monitor.check();
  monitor.report('a reset');
  assert.deepEqual(
    [monitor.last().isReachable, monitor.last().cause, monitor.last().since],
    [false, 'a reset', since],
  );
});

for (const code of ['EMFILE', 'ENFILE']) {
  for (const error of [errorOf(code), new AggregateError([errorOf('ECONNREFUSED'), errorOf(code)])]) {
    test(`a look without a descriptor of our own, ${error.name} of ${code}, says nothing about the backend [D34, D51]`, async () => {
      const monitor = new BackendMonitor(failing(error, errorOf('ECONNREFUSED')));
      const { isReachable, cause, seenAt } = await monitor.check();
      assert.deepEqual({ isReachable, cause, seenAt }, { isReachable: false, cause: undefined, seenAt: 0 });
      assert.equal((await monitor.check()).cause, 'connect ECONNREFUSED');
    });
  }
}
