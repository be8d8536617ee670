// The faults of the fleet show it when a balancer or a gateway sends writes twice, each time: here both are changed to do so.

import assert from 'node:assert/strict';
import { join } from 'node:path';
import { test } from 'node:test';
import { replaceEach } from '../helpers/documents.ts';
import { configure, findFreePort, Haproxy, haproxyProgram } from '../helpers/haproxy.ts';
import { RestartingBackend } from '../helpers/restarting-backend.ts';
import { startCommand } from '../helpers/targets.ts';
import { FleetLoad } from './calls.ts';
import { cutDoneWrites, heardMs, killWithDoneWrites } from './done-writes.ts';
import { judge, type Kill, type Verdict } from './verdict.ts';

const skip =
  (haproxyProgram === undefined &&
    'haproxy is not installed, so nothing was tested here; on Debian: apt-get install haproxy') ||
  (process.platform !== 'linux' && 'clients need the addresses 127.0.0.0/8, which Linux alone has');
const clients = 12;
const twice = /writes came to the backends more than once/;

async function run(balancerChange: Record<string, string>, nodeFlags: readonly string[]): Promise<Verdict> {
  await using backend = await RestartingBackend.start();
  const environment = { BACKEND_URL: backend.url, LOG_LEVEL: 'warn' };
  await using first = await startCommand(environment, { nodeFlags });
  await using second = await startCommand(environment, { nodeFlags });
  const port = await findFreePort();
  const configuration = replaceEach(configure(port, [first, second]), balancerChange);
  await using haproxy = await Haproxy.startWith(haproxyProgram ?? '', configuration, port);
  const load = new FleetLoad({ port: haproxy.port, clients, periodMs: 20 });
  const kills: Kill[] = [];
  try {
    await killWithDoneWrites([backend], clients, async () => {
      const from = performance.now();
      first.signal('SIGKILL');
      await first.exited;
      kills.push({ what: 'gateway', from, to: performance.now() + heardMs });
    });
    kills.push(await cutDoneWrites([backend], 1));
  } finally {
    await load.stop();
  }
  // With it the last lines of its log come.
  await second.stop();
  return judge({
    calls: load.calls,
    records: [backend.readRecord()],
    kills,
    outcomes: new Map(second.logs.map(({ requestId, outcome }) => [String(requestId), String(outcome)])),
    probes: [{ when: 'not here', asked: 0, served: 0, refused: 0, limit: 0 }],
  });
}

test('as they are, writes are lost that had been done, and none is done twice', { skip }, async () => {
  const { problems, lostButDone } = await run({}, []);
  assert.deepEqual(problems, []);
  assert.ok(lostButDone > 1, String(lostButDone));
});

test('a balancer that sends writes again is found out', { skip }, async () => {
  const change = { 'retry-on conn-failure\n': 'retry-on all-retryable-errors\n' };
  assert.match((await run(change, [])).problems.join(), twice);
});

test('a gateway that sends writes again is found out', { skip }, async () => {
  const flags = ['--import', join(import.meta.dirname, '../helpers/repeat-writes.ts')];
  assert.match((await run({}, flags)).problems.join(), twice);
});
