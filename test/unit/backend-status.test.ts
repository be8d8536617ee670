// The backend's status as seen by one process, and merged from several processes [D34].

import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { OpenSocket } from '../../packages/core/http1/backend-connection.ts';
import { BackendMonitor, JoinedBackendStatus, type BackendStatus } from '../../packages/figures/backend-status.ts';

const down = { isReachable: false, cause: 'refused' };
const up = { isReachable: true, cause: undefined };

/** Returns the merged status after each set of reports. */
function join(...sets: BackendStatus[][]): (Partial<BackendStatus> | undefined)[] {
  const joined = new JoinedBackendStatus();
  return sets.map((statuses) => {
    const all = joined.join(statuses.map((backend) => ({ backend })));
    assert.ok(all.every(({ backend }) => backend === all[0]?.backend));
    return all[0]?.backend;
  });
}

const cases = [
  [
    'a backend that was never checked is not reachable',
    [[{ ...down, cause: undefined, since: 0, seenAt: 0 }]],
    [{ isReachable: false, since: 0 }],
  ],
  ['the latest check decides', [[{ ...down, since: 10, seenAt: 20 }, { ...up, since: 5, seenAt: 30 }]], [{ isReachable: true, since: 5 }]],
  [
    'a new process that reports the same status does not change `since`',
    [
      [{ ...down, since: 10, seenAt: 20 }],
      [{ ...down, cause: 'timed out', since: 30, seenAt: 30 }],
      [],
      [{ ...down, since: 0, seenAt: 0 }],
    ],
    [
      { isReachable: false, since: 10 },
      { isReachable: false, since: 10, cause: 'timed out' },
      undefined,
      { isReachable: false, since: 10, cause: 'timed out' },
    ],
  ],
  [
    'a change of the status is never dated earlier than the previous check',
    [
      [{ ...up, since: 10, seenAt: 50 }],
      [{ ...down, since: 40, seenAt: 60 }],
      [{ ...up, since: 70, seenAt: 71 }],
    ],
    [
      { isReachable: true, since: 10 },
      { isReachable: false, since: 50, cause: 'refused' },
      { isReachable: true, since: 70 },
    ],
  ],
] as const; // prettier-ignore
for (const [name, sets, expected] of cases) {
  test(name, () => {
    const joined = join(...sets.map((statuses) => [...statuses]));
    assert.equal(joined.length, expected.length);
    for (const [index, one] of expected.entries()) {
      assert.deepEqual(one === undefined ? undefined : { ...joined[index], ...one }, joined[index]);
    }
  });
}

/** Returns a function that starts a dial. The dial fails with the next of `errors`. */
function failing(...errors: Error[]): OpenSocket {
  return (owner) => {
    setImmediate(() => owner.onFailed(errors.shift() ?? new Error('no more errors')));
    return { socketCount: 1, troubles: [], close: () => undefined };
  };
}

function errorOf(code: string): Error {
  return Object.assign(new Error(`connect ${code}`), { code });
}

test('while the backend is down, the latest cause is reported [D34]', async () => {
  const monitor = new BackendMonitor(failing(errorOf('ECONNREFUSED')));
  monitor.report('a certificate that is not trusted');
  const { since } = await monitor.check();
  monitor.report('a reset');
  const { isReachable, cause, since: sinceNow } = monitor.status;
  assert.deepEqual([isReachable, cause, sinceNow], [false, 'a reset', since]);
});

for (const code of ['EMFILE', 'ENFILE']) {
  for (const error of [errorOf(code), new AggregateError([errorOf('ECONNREFUSED'), errorOf(code)])]) {
    test(`a check that fails for lack of file descriptors (${error.name} of ${code}) does not change the status [D34, D51]`, async () => {
      const monitor = new BackendMonitor(failing(error, errorOf('ECONNREFUSED')));
      const { isReachable, cause, seenAt } = await monitor.check();
      assert.deepEqual({ isReachable, cause, seenAt }, { isReachable: false, cause: undefined, seenAt: 0 });
      assert.equal((await monitor.check()).cause, 'connect ECONNREFUSED');
    });
  }
}
