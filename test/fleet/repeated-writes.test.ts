// The fleet run causes faults. If the balancer or a gateway repeats a write after such a fault, the run detects it. To show this,
// these tests make the balancer or the gateways repeat writes.

import assert from 'node:assert/strict';
import { join } from 'node:path';
import { test } from 'node:test';
import { startCommand } from '../helpers/command.ts';
import { replaceEach } from '../helpers/documents.ts';
import { configure, findFreePort, Haproxy, haproxyProgram } from '../helpers/haproxy.ts';
import { MarkedLoad } from './marked-load.ts';
import { cutDoneWrites, RestartingBackend, withhold } from './restarting-backend.ts';
import { clientAddress, timeoutMs } from './network.ts';
import { judge, outcomesIn, recoveryMs, type Fault, type Verdict } from './verdict.ts';

const skip =
  (haproxyProgram === undefined && 'haproxy is not installed; on Debian: apt-get install haproxy') ||
  (process.platform !== 'linux' && 'clients need the addresses 127.0.0.0/8, which only Linux has');
const clients = 12;
const twice = /writes reached the backends more than once/;

async function run(balancerChange: Readonly<Record<string, string>>, nodeFlags: readonly string[]): Promise<Verdict> {
  await using backend = await RestartingBackend.start();
  const environment = { BACKEND_URL: backend.url, LOG_LEVEL: 'warn' };
  await using first = await startCommand(environment, { nodeFlags });
  await using second = await startCommand(environment, { nodeFlags });
  const port = await findFreePort();
  const configuration = replaceEach(configure(port, [first, second]), balancerChange);
  await using haproxy = await Haproxy.startWith(haproxyProgram ?? '', configuration, port);
  const options = { rate: 50 * clients, connections: clients, addressOf: clientAddress, timeoutMs };
  const load = new MarkedLoad(haproxy, options);
  const faults: Fault[] = [];
  try {
    await withhold([backend], 'held', clients, async () => {
      const from = performance.now();
      first.signal('SIGKILL');
      await first.exited;
      faults.push({ what: 'gateway', name: 'gateway killed', from, limitMs: recoveryMs });
    });
    faults.push(await cutDoneWrites([backend], 1));
  } finally {
    await load.stop();
  }
  // The gateway writes its last log lines when it ends.
  await second.stop();
  return judge({
    isComplete: true,
    calls: load.calls,
    records: [backend.readRecord()],
    faults,
    outcomes: outcomesIn([second]),
    probes: [],
  });
}

for (const [what, change, flags, problem] of [
  ['the normal balancer and gateway lose replies to writes, but never repeat a write', {}, [], undefined],
  [
    'a balancer that repeats writes is detected',
    { 'retry-on conn-failure\n': 'retry-on all-retryable-errors\n' },
    [],
    twice,
  ],
  [
    'a gateway that repeats writes is detected',
    {},
    ['--import', join(import.meta.dirname, './repeat-writes.ts')],
    twice,
  ],
] as const) {
  test(what, { skip }, async () => {
    const { problems, lostButDone } = await run(change, flags);
    if (problem === undefined) assert.deepEqual(problems, []);
    else assert.match(problems.join(), problem);
    assert.ok(lostButDone > 1 || problem !== undefined, String(lostButDone));
  });
}
