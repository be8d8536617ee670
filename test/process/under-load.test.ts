// Events while clients read and write at a constant rate: gateways and backends restart, certificates and keys are
// replaced. Each test is a list of events and a list of invariants. `npm run rolling-restart` and `npm run rotation` make
// more calls; npm sets `npm_lifecycle_event` to the script's name. `npm run bench -- restart` compares with other proxies.

import assert from 'node:assert/strict';
import { renameSync } from 'node:fs';
import { test } from 'node:test';
import { noOpenssl } from '../helpers/certificates.ts';
import { poll } from '../helpers/changes.ts';
import { type Command, startCommand } from '../helpers/command.ts';
import { findFreePort, Haproxy, haproxyProgram } from '../helpers/haproxy.ts';
import { audience, createPair, goodToken, issuerName, keySetOf, KeyServer, sending } from '../helpers/issuer.ts';
import type { Place } from '../helpers/load.ts';
import { RawClient } from '../helpers/raw-client.ts';
import { useCertificates } from '../helpers/suites.ts';
import { bearer } from '../helpers/tokens.ts';
import { isServed, judgeOutage, MarkedLoad, type MarkedLoadOptions } from '../fleet/marked-load.ts';
import { now, RestartingBackend } from '../fleet/restarting-backend.ts';

const script = process.env['npm_lifecycle_event'];
const limitMs = 240_000;
/** The longest recovery allowed: several times the measured recovery, because machines may be busy. */
const recoveryMsMax = 1_000;

/** Makes calls to `place` during `events`, which returns the outage, if any. No write may be sent twice. */
async function underLoad(
  place: Place,
  backend: RestartingBackend,
  options: Partial<MarkedLoadOptions>,
  events: (load: MarkedLoad) => Promise<{ from: number; to: number } | undefined>,
) {
  // Few concurrent calls, so that they do not pile up on a busy machine.
  const load = new MarkedLoad(place, { rate: 800, connections: 16, timeoutMs: 30_000, ...options });
  await using stops = new AsyncDisposableStack();
  stops.defer(async () => {
    await load.stop();
  });
  const from = now();
  const outage = await events(load);
  const calls = await load.stop();
  const verdict = judgeOutage(calls, backend.readRecord(), outage ?? { from, to: from });
  assert.equal(verdict.writtenTwice, 0, 'no write is sent twice');
  return { ...verdict, failed: calls.filter((call) => !isServed(call)), count: calls.length };
}

for (const [name, signal] of [
  ['killed', 'SIGKILL'],
  ['stopped by SIGTERM', 'SIGTERM'],
] as const) {
  test(`while a backend is ${name} and restarts, failed calls get 500; afterwards calls succeed immediately [D20, D34]`, async () => {
    await using backend = await RestartingBackend.start({ answerMs: 2 });
    await using command = await startCommand({ BACKEND_URL: backend.url, LOG_LEVEL: 'warn' });
    const verdict = await underLoad(command, backend, {}, async (load) => {
      await load.more(200, isServed);
      const from = now();
      await backend.end(signal);
      await load.more(100, (call) => !isServed(call));
      const to = await backend.start();
      await load.more(300, (call) => isServed(call) && call.sentAt > to);
      return { from, to };
    });
    assert.deepEqual(Object.keys(verdict.failures), ['500'], 'no client was cut off or kept waiting');
    assert.deepEqual(verdict.after, {}, 'every call after the restart succeeds');
    assert.ok(verdict.recoveryMs <= recoveryMsMax, `recovered after ${verdict.recoveryMs.toFixed()} ms`);
  });
}

test('if a backend closes idle connections, every read succeeds, and if it is killed while another listens on its port, calls succeed immediately [D20]', async () => {
  await using backend = await RestartingBackend.start({ answerMs: 5 });
  await using command = await startCommand({ BACKEND_URL: backend.url, LOG_LEVEL: 'warn' });
  const closing = await underLoad(command, backend, {}, async (load) => {
    for (let round = 0; round < 100; round += 1) {
      await load.more(15);
      backend.closeIdleConnections();
    }
    await load.more(100, isServed);
    return undefined;
  });
  const failedReads = closing.failed.filter(({ method }) => method === 'GET');
  assert.deepEqual(failedReads, [], `of ${closing.count} calls: ${command.output}`);
  const verdict = await underLoad(command, backend, {}, async (load) => {
    await load.more(200, isServed);
    const from = await backend.handOver('SIGKILL');
    const to = now();
    await load.more(200, (call) => isServed(call) && call.sentAt > to);
    return { from, to };
  });
  assert.equal(verdict.after['GET'], undefined, 'every read that is sent after the first backend has ended succeeds');
  assert.ok(verdict.recoveryMs <= recoveryMsMax, `recovered after ${verdict.recoveryMs.toFixed()} ms`);
});

const restartCalls = script === 'rolling-restart' ? 50_000 : 4_000;
const noHaproxy = haproxyProgram === undefined && 'haproxy is not installed; on Debian: apt-get install haproxy';

// HAProxy runs with deploy/haproxy.cfg, in which only addresses are replaced.
test(`while two gateways behind HAProxy are restarted in turn, none of ${restartCalls} calls fails [D33]`, { skip: noHaproxy, timeout: limitMs }, async (t) => {
  await using backend = await RestartingBackend.start();
  await using gateways = new AsyncDisposableStack();
  const ports = await Promise.all(Array.from({ length: 4 }, findFreePort));
  const places = [0, 2].map((at) => ({ port: ports[at] ?? 0, adminPort: ports[at + 1] ?? 0 }));
  // The delay that deploy/haproxy.cfg requires.
  const settings = { BACKEND_URL: backend.url, SHUTDOWN_DELAY_MS: '3000', LOG_LEVEL: 'warn' };
  const start = async ({ port, adminPort }: { port: number; adminPort: number }): Promise<Command> =>
    gateways.use(await startCommand({ ...settings, PORT: String(port), ADMIN_PORT: String(adminPort) }));
  const running = await Promise.all(places.map(start));
  await using haproxy = await Haproxy.start(haproxyProgram ?? '', places);
  let restarts = 0;
  const verdict = await underLoad(haproxy, backend, { connections: 64 }, async (load) => {
    await load.more(500);
    for (; restarts < 2 || load.calls.length < restartCalls; restarts += 1) {
      const turn = restarts % 2;
      running[turn]?.signal('SIGTERM');
      assert.equal(await running[turn]?.exitCode(18_000), 0, 'no call was cut');
      const next = await start(places[turn] ?? assert.fail());
      running[turn] = next;
      // The other gateway is stopped only after HAProxy has sent calls to the new process.
      const served = /^work_item_gateway_requests_total\{operation="create",status="201"\} [1-9]/m;
      await poll(async () => served.test(await next.metrics()), 'the new process serves', 20_000);
    }
    return undefined;
  });
  t.diagnostic(`${verdict.count} calls, ${restarts} restarts`);
  assert.deepEqual(verdict.failed, []);
  assert.ok(verdict.count >= restartCalls);
}); // prettier-ignore

const rotation = script === 'rotation' ? { calls: 100_000, rounds: 5 } : { calls: 2_000, rounds: 1 };

test(`while certificates and keys are replaced, none of ${rotation.calls} calls fails, and an old key is refused after the next refresh [D37, D44]`, { skip: noOpenssl, timeout: limitMs }, async (t) => {
  const folder = useCertificates();
  const authority = folder.authority('authority');
  const [certFile, keyFile] = [folder.file('in-force.pem'), folder.file('in-force-key.pem')];
  let shown = 0;
  // Each file is replaced atomically. Between the two steps, the key does not match the certificate.
  const putCertificate = (): void => {
    const { cert, key } = folder.issue(authority, `certificate-${(shown += 1)}`);
    for (const [file, text] of [[certFile, cert], [keyFile, key]] as const) renameSync(folder.write('next.pem', text), file);
  };
  putCertificate();
  let pair = createPair('key-0', 'ES256');
  let token = goodToken(pair);
  await using backend = await RestartingBackend.start();
  await using issuer = await KeyServer.start(keySetOf(pair));
  await using gateway = await startCommand({
    BACKEND_URL: backend.url,
    ...{ TLS_CERT_FILE: certFile, TLS_KEY_FILE: keyFile, TLS_RELOAD_MS: '100', LOG_LEVEL: 'error' },
    ...{ AUTH_ISSUER: issuerName, AUTH_AUDIENCE: audience, AUTH_JWKS_URL: issuer.url, AUTH_JWKS_REFRESH_MS: '1000' },
  });
  /** Makes a call on a new connection: returns its status and the name in the gateway's certificate. */
  const look = async (withToken = token) => {
    await using client = await RawClient.openSecure(gateway.port, { ca: authority.cert, servername: 'localhost' });
    const { status } = await client.call('GET', '/api/work-items/7', { headers: [bearer(withToken)] });
    return { status, name: client.secureSocket.getPeerX509Certificate()?.subject };
  };
  await poll(async () => (await look()).status === 200, 'the keys are fetched');
  let made = 0;
  const replaceCertificate = async (): Promise<void> => {
    putCertificate();
    await poll(async () => (await look()).name === `CN=certificate-${shown}`, 'the new certificate is shown');
  };
  // Does what an issuer does: publishes a new key, then signs with the new key, then removes the old key.
  const replaceKey = async (load: MarkedLoad): Promise<void> => {
    const [old, next] = [pair, createPair(`key-${made}`, 'ES256')];
    const remembered = token;
    assert.equal((await look(remembered)).status, 200);
    issuer.respond = sending(keySetOf(old, next));
    const fetched = issuer.count;
    await poll(() => issuer.count >= fetched + 2, 'the new key is fetched', 13_000);
    [pair, token] = [next, goodToken(next)];
    // After more calls than there are connections, no call with the old key is in flight.
    await load.more(64);
    issuer.respond = sending(keySetOf(next));
    await poll(async () => (await look(remembered)).status === 401, 'the old key is refused', 3_000);
    assert.equal((await look(goodToken(old))).status, 401);
  };
  const place = { port: gateway.port, host: 'localhost', ca: authority.cert };
  for (let round = 0; round < rotation.rounds || made < rotation.calls; round += 1) {
    // The connections of each round are new.
    const verdict = await underLoad(place, backend, { rate: 1_000, token: () => token }, async (load) => {
      await load.more(200);
      await replaceCertificate();
      await Promise.all([replaceKey(load), replaceCertificate()]);
      return undefined;
    });
    assert.deepEqual(verdict.failed, []);
    made += verdict.count;
  }
  t.diagnostic(`${made} calls`);
  const errors = gateway.logs.filter(({ level, msg }) => level === 'error' && !String(msg).startsWith('new certificate files refused'));
  assert.deepEqual(errors, []);
}); // prettier-ignore
