// How calls get a connection to the backend: lookups, overlapping attempts, connections that become free, the age of
// connections, and connections that the backend closes without notice. D20, D30, D68.

import assert from 'node:assert/strict';
import dns from 'node:dns';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import type { Socket } from 'node:net';
import { describe, test, type TestContext } from 'node:test';
import { createServer as createTlsServer } from 'node:tls';
import type { OpenSocket } from '../../packages/core/http1/backend-connection.ts';
import type { LookUp } from '../../packages/core/hosts/dialing/addresses.ts';
import { BlockingListener, startBlackHole } from '../helpers/black-hole.ts';
import { createGate, poll, within } from '../helpers/changes.ts';
import { answer, answerBytes, behind, ScriptedBackend, timeout, type Answer } from '../helpers/scripted-backend.ts';
import { get, put, start } from './started-client.ts';

const backlogIsEndless = 'this system accepts connections without limit';
const cert = readFileSync(new URL('../vectors/tls/backend-certificate.pem', import.meta.url), 'utf8');
const key = readFileSync(new URL('../vectors/tls/backend-key.pem', import.meta.url), 'utf8');
// Addresses of a name: nothing listens on the first two, a full listen queue makes the third silent, and backends listen on
// the others.
const refusing = ['127.0.0.9', '127.0.0.10'] as const;
const silent = '127.0.0.1';
const living = '127.0.0.2';
const moved = '127.0.0.3';

/** Number of sockets that wait for an answer to their SYN from `port`. */
function countUnanswered(port: number): number {
  const remote = `:${port.toString(16).toUpperCase().padStart(4, '0')} 02 `;
  return readFileSync('/proc/net/tcp', 'latin1').split(remote).length - 1;
}

/** A lookup that always finds `addresses`. */
function finds(...addresses: string[]): LookUp {
  return () => Promise.resolve(addresses);
}

/** Lookups that the test ends. */
function holdLookups() {
  const held: PromiseWithResolvers<readonly string[]>[] = [];
  const lookUp: LookUp = () => {
    const next = Promise.withResolvers<readonly string[]>();
    held.push(next);
    return next.promise;
  };
  return { held, lookUp };
}

/** A backend at `host` that answers `{}`. */
async function serve(t: TestContext, host: string, port: number): Promise<ScriptedBackend> {
  const backend = await ScriptedBackend.start({ host, port });
  t.after(() => backend.stop());
  return backend.answers(answer('{}'));
}

async function serveTls(t: TestContext, host: string, port: number): Promise<void> {
  const sockets = new Set<Socket>();
  const server = createTlsServer({ cert, key }, (socket) => {
    sockets.add(socket.on('error', () => undefined).on('data', () => socket.write(answerBytes('{}'))));
  });
  await once(server.listen(port, host), 'listening');
  t.after(() => {
    for (const socket of sockets) socket.destroy();
    server.close();
  });
}

/** Starts a black hole, or skips the test. */
async function startHole(t: TestContext): Promise<BlockingListener | undefined> {
  const hole = await startBlackHole();
  if (hole === undefined) t.skip(backlogIsEndless);
  else t.after(() => hole[Symbol.asyncDispose]());
  return hole;
}

describe('connecting', { skip: process.platform === 'linux' ? false : 'needs 127.0.0.2, which only Linux has' }, () => {
  test('an address that answers after 0.7 s is used, although the others refuse [D30]', async (t) => {
    const script = `
      server.on('connection', (socket) => socket.on('data', () => socket.write(${JSON.stringify(answerBytes('{}').toString())})));
      server.once('listening', () => readSync(0, Buffer.alloc(1)));
    `;
    await using listener = await BlockingListener.start(script);
    if (!(await listener.fill())) {
      t.skip(backlogIsEndless);
      return;
    }
    await using one = await start({
      backendUrl: `http://backend.test:${listener.port}`,
      lookUp: finds(refusing[0], silent, refusing[1]),
      connectTimeoutMs: 30_000,
    });
    const calls = Array.from({ length: 10 }, () => one.send(get));
    await new Promise((resolve) => setTimeout(resolve, 700));
    listener.process.stdin?.write('x');
    for (const { outcome } of calls) assert.equal((await within(outcome, 'an outcome')).kind, 'ok');
  });

  for (const isTls of [false, true]) {
    for (const addresses of [
      [living, silent],
      [refusing[0], silent, living],
    ]) {
      const over = isTls ? ' over TLS' : '';
      test(`calls${over} to a name with the addresses ${addresses.join(', ')} use ${living}, and only its socket stays open [D30]`, async (t) => {
        const hole = await startHole(t);
        if (hole === undefined) return;
        if (isTls) await serveTls(t, living, hole.port);
        else await serve(t, living, hole.port);
        const before = countUnanswered(hole.port);
        await using one = await start({
          backendUrl: `${isTls ? 'https' : 'http'}://backend.test:${hole.port}`,
          lookUp: finds(...addresses),
          tls: { ca: cert, serverName: 'localhost' },
        });
        assert.equal((await one.call(get)).kind, 'ok');
        assert.equal((await one.call(get)).kind, 'ok');
        assert.equal(one.client.connectionCount, 1);
        await poll(() => countUnanswered(hole.port) === before, 'no attempt is left');
      });
    }
  }

  test('each attempt counts as a connection, and a cancelled call closes all of its attempts [D30]', async (t) => {
    const hole = await startHole(t);
    if (hole === undefined) return;
    const before = countUnanswered(hole.port);
    await using one = await start({
      backendUrl: `http://backend.test:${hole.port}`,
      lookUp: finds(silent, silent, silent),
    });
    const { exchange, outcomes } = one.send(get);
    await poll(() => one.client.connectionCount === 3, 'three attempts at once');
    assert.equal(countUnanswered(hole.port), before + 3);
    exchange.cancel();
    assert.equal(one.client.connectionCount, 0);
    await poll(() => countUnanswered(hole.port) === before, 'no attempt is left');
    assert.deepEqual(outcomes, []);
  });

  test('if every address fails, the outcome names the failure of each address', async (t) => {
    const hole = await startHole(t);
    if (hole === undefined) return;
    const { port } = hole;
    const refused = refusing.map((address) => `connect ECONNREFUSED ${address}:${port}`);
    const backendUrl = `http://backend.test:${port}`;
    await using all = await start({ backendUrl, lookUp: finds(...refusing) });
    assert.deepEqual(await all.call(get), {
      kind: 'unreachable',
      status: undefined,
      reason: 'connection-refused',
      cause: `ECONNREFUSED; ${refused.join('; ')}`,
    });
    await using some = await start({
      backendUrl,
      connectTimeoutMs: 600,
      lookUp: finds(refusing[0], silent, refusing[1]),
    });
    assert.deepEqual(await some.call(get), {
      kind: 'timed-out',
      status: undefined,
      reason: 'connect-timeout',
      cause: `no connection within 600 ms; ${refused.join('; ')}`,
    });
  });

  test('a TLS handshake or a lookup that does not end is named in the outcome', async () => {
    await using listener = await BlockingListener.start('');
    const { port } = listener;
    for (const [backendUrl, lookUp, what] of [
      [`https://127.0.0.1:${port}`, undefined, 'the TLS handshake with 127.0.0.1 has not ended'],
      [`http://backend.test:${port}`, holdLookups().lookUp, 'the lookup of backend.test has not ended'],
    ] as const) {
      await using one = await start({ backendUrl, connectTimeoutMs: 300, ...(lookUp && { lookUp }) });
      const outcome = await one.call(get);
      assert.ok(outcome.kind === 'timed-out');
      assert.equal(outcome.cause, `no connection within 300 ms; ${what}`);
    }
  });

  test('calls that begin during a lookup share this lookup [D68]', async (t) => {
    const { held, lookUp } = holdLookups();
    const backend = await serve(t, living, 0);
    await using one = await start({ backendUrl: `http://backend.test:${backend.port}`, lookUp });
    const calls = Array.from({ length: 300 }, () => one.send(get));
    assert.equal(held.length, 1);
    held[0]?.resolve([living]);
    for (const { outcome } of calls) assert.equal((await within(outcome, 'an outcome')).kind, 'ok');
    assert.equal(held.length, 1);
  });

  test('the next call after a failed lookup makes a new lookup [D68]', async (t) => {
    const { held, lookUp } = holdLookups();
    const backend = await serve(t, living, 0);
    await using one = await start({ backendUrl: `http://backend.test:${backend.port}`, lookUp });
    const failing = [one.send(get), one.send(put)];
    held[0]?.reject(Object.assign(new Error('getaddrinfo EAI_AGAIN backend.test'), { code: 'EAI_AGAIN' }));
    for (const { outcome } of failing) {
      assert.deepEqual(await within(outcome, 'an outcome'), {
        kind: 'unreachable',
        status: undefined,
        reason: 'lookup-failed',
        cause: 'getaddrinfo EAI_AGAIN backend.test',
      });
    }
    const next = one.send(get);
    assert.equal(held.length, 2);
    held[1]?.resolve([living]);
    assert.equal((await within(next.outcome, 'an outcome')).kind, 'ok');
  });

  test('a call does not wait for a lookup that has already taken 5 s [D68]', async (t) => {
    const { held, lookUp } = holdLookups();
    const backend = await serve(t, living, 0);
    await using one = await start({ backendUrl: `http://backend.test:${backend.port}`, lookUp });
    const first = one.send(get);
    const now = performance.now();
    t.mock.method(performance, 'now', () => now + 5_000);
    const second = one.send(get);
    assert.equal(held.length, 2);
    held[1]?.resolve([living]);
    for (const { outcome } of [first, second]) assert.equal((await within(outcome, 'an outcome')).kind, 'ok');
  });

  test('calls that wait for a lost lookup share a new lookup after half of the connect timeout [D68]', async (t) => {
    const { held, lookUp } = holdLookups();
    const backend = await serve(t, living, 0);
    await using one = await start({
      backendUrl: `http://backend.test:${backend.port}`,
      lookUp,
      connectTimeoutMs: 2_000,
    });
    const calls = Array.from({ length: 30 }, (_, index) => one.send(index % 2 === 0 ? get : put));
    assert.equal(held.length, 1);
    await poll(() => held.length === 2, 'a new lookup');
    // The error of a lookup that has been replaced counts for no call.
    held[0]?.reject(new Error('late'));
    await new Promise((resolve) => setImmediate(resolve));
    held[1]?.resolve([living]);
    for (const { outcome } of calls) assert.equal((await within(outcome, 'an outcome')).kind, 'ok');
    assert.equal(held.length, 2);
  });

  /** Makes dials, except those with these numbers, which never end. */
  function hangs(...numbers: number[]) {
    let count = 0;
    return (open: OpenSocket): OpenSocket =>
      (...given) => {
        count += 1;
        return numbers.includes(count) ? { socketCount: 1, troubles: [], close: () => undefined } : open(...given);
      };
  }

  test('a call does not depend on the dial of a call that has got another connection [D68]', async () => {
    await using one = await start({ change: hangs(2), connectTimeoutMs: 600_000, timeoutMs: 600_000 });
    const gate = createGate();
    one.backend.answersOnce(behind(gate, answer('{}')), timeout);
    const first = one.send(get);
    await one.backend.until(() => one.backend.requests.length === 1, 'the first call');
    const second = one.send(get);
    gate.open();
    await within(first.outcome, 'an outcome');
    await one.backend.until(() => one.backend.requests.length === 2, 'the second call, on the same connection');
    const third = one.send(put);
    assert.equal((await within(third.outcome, 'an outcome')).kind, 'ok');
    second.exchange.cancel();
  });

  test('if a call gets the connection of a later call, the later call does not depend on the dial of the first [D68]', async () => {
    await using one = await start({ change: hangs(1), connectTimeoutMs: 600_000, timeoutMs: 600_000 });
    one.backend.answersOnce(timeout);
    const first = one.send(get);
    const second = one.send(put);
    assert.equal((await within(second.outcome, 'an outcome')).kind, 'ok');
    first.exchange.cancel();
  });

  test('an exception while a connection is opened after a lookup fails the call', async () => {
    await using one = await start({
      backendUrl: 'https://backend.test:1',
      lookUp: finds(living),
      tls: { ca: cert, cert: 'no certificate', key },
    });
    assert.equal((await one.call(get)).kind, 'unreachable');
  });

  test('the system is asked for both families, and the attempts alternate between them [D30]', async (t) => {
    const asked: unknown[] = [];
    const lookup = dns.lookup;
    t.mock.method(
      dns,
      'lookup',
      (name: string, options: dns.LookupAllOptions, callback: (...found: unknown[]) => void) => {
        if (name !== 'backend.test.') {
          lookup(name, options, callback);
          return;
        }
        asked.push(options);
        const found = ['::1', '::ffff:127.0.0.11', ...refusing];
        setImmediate(
          callback,
          null,
          found.map((address) => ({ address, family: address.includes(':') ? 6 : 4 })),
        );
      },
    );
    const backend = await serve(t, '127.0.0.1', 0);
    await backend.stop();
    await using one = await start({ backendUrl: `http://backend.test.:${backend.port}` });
    const outcome = await one.call(get);
    assert.ok(outcome.kind === 'unreachable');
    const tried = [...outcome.cause.matchAll(/connect \w+ (\S+):\d+/g)].map(([, address]) => address);
    assert.deepEqual(tried, ['::1', refusing[0], '::ffff:127.0.0.11', refusing[1]]);
    assert.deepEqual(asked, [{ all: true, hints: dns.ADDRCONFIG }]);
  });

  test('a call that waits for a lookup takes a connection that becomes free, and the connection of the lookup serves a later call [D20, D68]', async (t) => {
    const { held, lookUp } = holdLookups();
    const backend = await serve(t, living, 0);
    await using one = await start({ backendUrl: `http://backend.test:${backend.port}`, lookUp });
    const gate = createGate();
    backend.answersOnce(behind(gate, answer('{}')));
    const first = one.send(get);
    held[0]?.resolve([living]);
    await backend.until(() => backend.requests.length === 1, 'the first call');
    const waiting = [one.send(get), one.send(put), one.send(get)];
    await poll(() => held.length === 2, 'the second lookup');
    gate.open();
    for (const { outcome } of [first, ...waiting]) assert.equal((await within(outcome, 'an outcome')).kind, 'ok');
    assert.deepEqual(
      backend.requests.map(({ connection }) => connection),
      [0, 0, 0, 0],
    );
    // Calls that come now need no further lookup.
    backend.answersOnce(timeout, answer('{}'));
    const busy = one.send(get);
    await backend.until(() => backend.requests.length === 5, 'the call on the first connection');
    const second = one.send(put);
    held[1]?.resolve([living]);
    assert.equal((await within(second.outcome, 'an outcome')).kind, 'ok');
    assert.equal(held.length, 2);
    await backend.until(() => backend.connectionsTaken === 4, 'the other connections');
    busy.exchange.cancel();
    // An unused connection that the backend closes is like any reused one: a read is sent again.
    await poll(() => one.client.connectionCount === 3, 'three idle connections');
    backend.answersOnce(({ socket }) => void socket.destroy());
    const last = one.send(get);
    await poll(() => held.length === 3, 'a new connection for the read');
    held[2]?.resolve([living]);
    assert.equal((await within(last.outcome, 'an outcome')).kind, 'ok');
  });

  test('no call starts on a connection that is older than the limit, busy or not [D68]', async (t) => {
    let addedMs = 0;
    const now = performance.now.bind(performance);
    t.mock.method(performance, 'now', () => now() + addedMs);
    const { held, lookUp } = holdLookups();
    const old = await serve(t, living, 0);
    await serve(t, moved, old.port);
    await using one = await start({
      backendUrl: `http://backend.test:${old.port}`,
      lookUp,
      connectionAgeMaxMs: 600_000,
      timeoutMs: 10_000_000,
      connectTimeoutMs: 10_000_000,
    });
    const first = one.send(get);
    held[0]?.resolve([living]);
    assert.equal((await within(first.outcome, 'an outcome')).kind, 'ok');
    // The connection is never idle for long. Its last call begins in time, and ends later.
    for (const stepMs of [200_000, 200_000, 100_000]) {
      for (let step = 0; step < stepMs; step += 50_000) {
        addedMs += 50_000;
        assert.equal((await one.call(get)).kind, 'ok');
      }
    }
    const gate = createGate();
    old.answersOnce(behind(gate, answer('{}')));
    const last = one.send(get);
    await old.until(() => old.requests.length === 12, 'the last call');
    addedMs += 150_000;
    gate.open();
    assert.equal((await within(last.outcome, 'an outcome')).kind, 'ok');
    assert.equal(old.connectionsTaken, 1);
    const fresh = one.send(get);
    assert.equal(held.length, 2, 'one lookup');
    held[1]?.resolve([moved]);
    assert.equal((await within(fresh.outcome, 'an outcome')).kind, 'ok');
    assert.equal(old.requests.length, 12);
    assert.equal(one.client.connectionCount, 1);
  });

  test('after renewConnections a call uses a new connection, also while others are in flight or being opened [D68]', async (t) => {
    const { held, lookUp } = holdLookups();
    const old = await serve(t, living, 0);
    const fresh = await serve(t, moved, old.port);
    await using one = await start({ backendUrl: `http://backend.test:${old.port}`, lookUp });
    const gate = createGate();
    old.answersOnce(behind(gate, answer('{}')), behind(gate, answer('{}')));
    const inFlight = [one.send(get), one.send(put)];
    held[0]?.resolve([living]);
    await old.until(() => old.requests.length === 2, 'the calls in flight');
    const waiting = one.send(get);
    assert.equal(held.length, 2);
    one.client.renewConnections();
    assert.equal(held.length, 3, 'a new lookup');
    gate.open();
    for (const { outcome } of inFlight) assert.equal((await within(outcome, 'an outcome')).kind, 'ok');
    held[1]?.resolve([living]);
    await new Promise((resolve) => setImmediate(resolve));
    assert.deepEqual(waiting.outcomes, []);
    held[2]?.resolve([moved]);
    for (const { outcome } of [waiting, one.send(put)]) assert.equal((await within(outcome, 'an outcome')).kind, 'ok');
    assert.equal(old.requests.length, 2);
    assert.equal(fresh.requests.length, 2);
    await poll(() => old.connectionsOpen === 0, 'the old connections are closed');
  });

  /** Answers the first `count` requests of a connection, and closes it `ms` later, without notice. */
  function answersOnly(count: number, ms: number, isReset = false): Answer {
    return async (exchange) => {
      const { indexOnConnection } = exchange.request;
      if (indexOnConnection >= count) return;
      await exchange.write(answerBytes('{}'));
      const close = () => (isReset ? exchange.socket.resetAndDestroy() : exchange.socket.end());
      if (indexOnConnection === count - 1) setTimeout(close, ms);
    };
  }

  /** Answers the first `count` requests of a connection, and closes it when the next one arrives. */
  function diesAfter(count: number): Answer {
    return (exchange) =>
      exchange.request.indexOnConnection < count ? exchange.write(answerBytes('{}')) : void exchange.socket.destroy();
  }

  for (const [name, answers] of [
    ['1 ms after each answer', answersOnly(1, 1)],
    ['by a reset, 5 ms after each answer', answersOnly(1, 5, true)],
    ['5 ms after every third answer', answersOnly(3, 5)],
    ['when a fourth request arrives', diesAfter(3)],
  ] as const) {
    test(`a backend closes connections without notice, ${name}: only the first write on such a connection fails [D20]`, async () => {
      await using one = await start();
      one.backend.answers(answers);
      const failed: number[] = [];
      for (let index = 0; index < 100; index += 1) {
        const request = index % 3 === 0 ? get : { ...put, requestId: `put-${index}` };
        if ((await one.call(request)).kind !== 'ok') failed.push(index);
      }
      assert.ok(failed.length <= 1, `failed: ${failed.join(', ')}`);
      const written = one.backend.requests
        .filter(({ method }) => method === 'PUT')
        .map((each) => each.header('x-request-id'));
      assert.equal(new Set(written).size, written.length, 'no write is sent twice');
    });
  }

  test('after a connection has died in use, a backend that keeps its connections gets writes on them again [D20]', async (t) => {
    let addedMs = 0;
    const now = performance.now.bind(performance);
    t.mock.method(performance, 'now', () => now() + addedMs);
    await using one = await start();
    one.backend.answersOnce(answer('{}'), ({ socket }) => void socket.destroy());
    one.backend.answers(answer('{}'));
    assert.equal((await one.call(get)).kind, 'ok');
    assert.equal((await one.call(put)).kind, 'unreachable');
    // In the first minute, a write uses an idle connection only when there are many.
    for (let count = 0; count < 64; count += 1) assert.equal((await one.call(put)).kind, 'ok');
    assert.equal(one.client.connectionCount, 64);
    addedMs += 5_000;
    for (let count = 0; count < 10; count += 1) assert.equal((await one.call(put)).kind, 'ok');
    assert.equal(one.client.connectionCount, 64);
  });

  test('while writes avoid idle connections, at most 128 stay open, however many writes there are [D20]', async () => {
    await using one = await start();
    one.backend.answersOnce(answer('{}'), ({ socket }) => void socket.destroy());
    one.backend.answers(answer('{}'));
    assert.equal((await one.call(get)).kind, 'ok');
    assert.equal((await one.call(put)).kind, 'unreachable');
    for (let count = 0; count < 200; count += 1) assert.equal((await one.call(put)).kind, 'ok');
    assert.equal(one.backend.connectionsTaken, 201);
    assert.equal(one.client.connectionCount, 128);
    assert.equal((await one.call(get)).kind, 'ok');
    assert.equal(one.backend.connectionsTaken, 201, 'a read uses an idle connection');
  });

  test('after each further death, writes avoid used connections for twice as long, up to an hour, whatever else succeeds [D20]', async (t) => {
    let addedMs = 0;
    const now = performance.now.bind(performance);
    t.mock.method(performance, 'now', () => now() + addedMs);
    await using one = await start();
    one.backend.answers(answer('{}'));
    const avoids = async () => {
      for (let count = 0; count < 3; count += 1) assert.equal((await one.call(get)).kind, 'ok');
      const before = one.backend.connectionsTaken;
      assert.equal((await one.call(put)).kind, 'ok');
      return one.backend.connectionsTaken > before;
    };
    for (const avoidedMs of [60_000, 120_000, 240_000, 480_000, 960_000, 1_920_000, 3_600_000, 3_600_000]) {
      assert.equal(await avoids(), false);
      one.backend.answersOnce(({ socket }) => void socket.destroy());
      assert.equal((await one.call(put)).kind, 'unreachable');
      assert.equal(await avoids(), true);
      addedMs += avoidedMs - 10_000;
      assert.equal(await avoids(), true, `within ${avoidedMs} ms`);
      addedMs += 10_000;
    }
    addedMs += 7_200_000;
    assert.equal(await avoids(), false);
    one.backend.answersOnce(({ socket }) => void socket.destroy());
    assert.equal((await one.call(put)).kind, 'unreachable');
    addedMs += 60_000;
    assert.equal(await avoids(), false, 'a minute again');
  });

  test('connections that die together count as one death, and those that `close` cuts as none [D20]', async (t) => {
    let addedMs = 0;
    const now = performance.now.bind(performance);
    t.mock.method(performance, 'now', () => now() + addedMs);
    await using one = await start();
    const together = async (answers: Answer, kind: string) => {
      const gate = createGate();
      one.backend.answers(behind(gate, answers));
      const from = one.backend.requests.length;
      const calls = Array.from({ length: 5 }, () => one.send(put));
      await one.backend.until(() => one.backend.requests.length === from + 5, 'the calls');
      gate.open();
      for (const { outcome } of calls) assert.equal((await within(outcome, 'an outcome')).kind, kind);
      one.backend.answers(answer('{}'));
    };
    const isReused = async () => {
      const before = one.backend.connectionsTaken;
      assert.equal((await one.call(put)).kind, 'ok');
      return one.backend.connectionsTaken === before;
    };
    await together(answer('{}'), 'ok');
    await together(({ socket }) => void socket.destroy(), 'unreachable');
    assert.equal((await one.call(get)).kind, 'ok');
    assert.equal(await isReused(), false);
    addedMs += 60_000;
    assert.equal((await one.call(get)).kind, 'ok');
    assert.equal(await isReused(), true);
    one.backend.answersOnce(timeout);
    const held = one.send(put);
    const from = one.backend.requests.length;
    await one.backend.until(() => one.backend.requests.length > from, 'a call on a used connection');
    await one.client.close();
    assert.equal((await within(held.outcome, 'an outcome')).kind, 'unreachable');
    one.client.reopen();
    assert.equal((await one.call(get)).kind, 'ok');
    assert.equal(await isReused(), true);
  });
});
