// Two gateways behind a real HAProxy are restarted in turn under load, and no call fails [D33]. HAProxy runs with
// deploy/haproxy.cfg, in which only addresses are replaced.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { poll } from '../helpers/changes.ts';
import { type Command, startCommand } from '../helpers/command.ts';
import { findFreePort, Haproxy, haproxyProgram, type GatewayPlace } from '../helpers/haproxy.ts';
import { isServed, judgeOutage, MarkedLoad } from '../fleet/marked-load.ts';
import { now, RestartingBackend } from '../fleet/restarting-backend.ts';

// `npm run rolling-restart` makes more calls. npm sets `npm_lifecycle_event` to the script's name.
const calls = process.env['npm_lifecycle_event'] === 'rolling-restart' ? 50_000 : 4000;
// Few calls at the same time, so that calls do not pile up on a busy machine.
const clients = { rate: 2_500, connections: 64, timeoutMs: 30_000 };
// The delay that deploy/haproxy.cfg requires.
const shutdownDelayMs = 3_000;
const limitMs = 240_000;

const skip = haproxyProgram === undefined && 'haproxy is not installed; on Debian: apt-get install haproxy';

test(`while two gateways behind HAProxy are restarted in turn, none of ${calls} calls fails [D33]`, { skip, timeout: limitMs }, async (t) => {
  assert.ok(haproxyProgram !== undefined);
  await using backend = await RestartingBackend.start();
  const places = await Promise.all(
    [1, 2].map(async (): Promise<GatewayPlace> => ({ port: await findFreePort(), adminPort: await findFreePort() })),
  );
  const [first, second] = places;
  assert.ok(first && second);
  const start = ({ port, adminPort }: GatewayPlace): Promise<Command> =>
    startCommand({
      BACKEND_URL: backend.url,
      PORT: String(port),
      ADMIN_PORT: String(adminPort),
      SHUTDOWN_DELAY_MS: String(shutdownDelayMs),
      LOG_LEVEL: 'warn',
    });
  const gateways = await Promise.all([start(first), start(second)]);
  await using stack = new AsyncDisposableStack();
  for (const gateway of gateways) stack.use(gateway);
  await using haproxy = await Haproxy.start(haproxyProgram, [first, second]);
  const load = new MarkedLoad(haproxy, clients);
  stack.defer(async () => {
    await load.stop();
  });
  const from = now();
  await load.more(500);

  let restarts = 0;
  while (restarts < 2 || load.calls.length < calls) {
    const turn = restarts % 2;
    const [gateway, place] = [gateways[turn], places[turn]];
    assert.ok(gateway && place);
    gateway.signal('SIGTERM');
    assert.equal(await gateway.exitCode(shutdownDelayMs + 15_000), 0, 'no call was cut');
    const next = stack.use(await start(place));
    gateways[turn] = next;
    // The other gateway is stopped only after HAProxy has sent calls to the new process.
    await poll(async () => hasServed(next), 'the new process serves', 20_000);
    restarts += 1;
  }
  const made = await load.stop();
  t.diagnostic(`${made.length} calls, ${restarts} restarts`);
  const verdict = judgeOutage(made, backend.readRecord(), { from, to: from });
  assert.deepEqual(
    made.filter((call) => !isServed(call)),
    [],
    `${made.length} calls were made, with ${restarts} restarts`,
  );
  assert.ok(made.length >= calls);
  assert.equal(verdict.writtenTwice, 0);
}); // prettier-ignore

async function hasServed(gateway: Command): Promise<boolean> {
  const text = await gateway.metrics();
  return /^work_item_gateway_requests_total\{operation="create",status="201"\} [1-9]/m.test(text);
}
