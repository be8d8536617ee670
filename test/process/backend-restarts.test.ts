// Under load, the backend is killed or stopped by SIGTERM and restarts, or it closes idle connections. D20, D34.
// `npm run bench -- restart` compares the gateway with other proxies.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { startCommand } from '../helpers/command.ts';
import { isServed, judgeOutage, MarkedLoad } from '../fleet/marked-load.ts';
import { now, RestartingBackend } from '../fleet/restarting-backend.ts';

// Few concurrent calls, so that they do not pile up on a busy machine.
const load = { rate: 800, connections: 16, timeoutMs: 15_000 };
/** The longest recovery allowed: several times the measured recovery, because machines may be busy. */
const recoveryMsMax = 1_000;

for (const [name, signal] of [
  ['killed', 'SIGKILL'],
  ['stopped by SIGTERM', 'SIGTERM'],
] as const) {
  // prettier-ignore
  test(`while a backend is ${name} and restarts, failed calls get 500, and no write is sent twice; afterwards calls succeed immediately [D20, D34]`, async () => {
    await using backend = await RestartingBackend.start({ answerMs: 2 });
    await using command = await startCommand({ BACKEND_URL: backend.url, LOG_LEVEL: 'warn' });
    const clients = new MarkedLoad(command, load);
    await clients.more(200, isServed);
    const from = now();
    await backend.end(signal);
    await clients.more(100, (call) => !isServed(call));
    const to = await backend.start();
    await clients.more(300, (call) => isServed(call) && call.sentAt > to);
    const verdict = judgeOutage(await clients.stop(), backend.readRecord(), { from, to });
    assert.deepEqual(Object.keys(verdict.failures), ['500'], 'no client was cut off or kept waiting');
    assert.equal(verdict.writtenTwice, 0, 'no write is sent twice');
    assert.deepEqual(verdict.after, {}, 'every call after the restart succeeds');
    assert.ok(verdict.recoveryMs <= recoveryMsMax, `recovered after ${verdict.recoveryMs.toFixed()} ms`);
    assert.ok(command.isRunning);
  });
}

test('if a backend is killed while a second backend listens on its port, no write is sent twice, and calls succeed immediately [D20]', async () => {
  await using backend = await RestartingBackend.start({ answerMs: 10 });
  await using command = await startCommand({ BACKEND_URL: backend.url, LOG_LEVEL: 'warn' });
  const clients = new MarkedLoad(command, load);
  await clients.more(200, isServed);
  const from = await backend.handOver('SIGKILL');
  const to = now();
  await clients.more(200, (call) => isServed(call) && call.sentAt > to);
  const verdict = judgeOutage(await clients.stop(), backend.readRecord(), { from, to });
  assert.equal(verdict.writtenTwice, 0, 'no write is sent twice');
  assert.equal(verdict.after['GET'], undefined, 'every read that is sent after the first backend has ended succeeds');
  assert.ok(verdict.recoveryMs <= recoveryMsMax, `recovered after ${verdict.recoveryMs.toFixed()} ms`);
});

test('if a backend closes idle connections under load, every read succeeds, and no write is sent twice [D20]', async () => {
  await using backend = await RestartingBackend.start({ answerMs: 2 });
  await using command = await startCommand({ BACKEND_URL: backend.url, LOG_LEVEL: 'warn' });
  const clients = new MarkedLoad(command, load);
  const from = now();
  for (let closing = 0; closing < 100; closing += 1) {
    await clients.more(20);
    backend.closeIdleConnections();
  }
  await clients.more(100, isServed);
  const calls = await clients.stop();
  const verdict = judgeOutage(calls, backend.readRecord(), { from, to: from });
  const failedReads = calls.filter((call) => !isServed(call) && call.method === 'GET');
  const logged = command.logs.filter((line) => failedReads.some(({ marker }) => marker === line['requestId']));
  assert.deepEqual(failedReads, [], `failed reads among ${verdict.calls} calls; log lines: ${JSON.stringify(logged)}`);
  assert.equal(verdict.writtenTwice, 0, 'no write is sent twice');
});
