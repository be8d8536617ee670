// How calls get a connection to the backend: lookups, overlapping attempts, connections that become free, the age of
// connections, and connections that the backend closes without notice. D20, D30, D68.

import assert from 'node:assert/strict';
import dns from 'node:dns';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import type { Socket } from 'node:net';
import { after, describe, test, type TestContext } from 'node:test';
import { createServer as createTlsServer } from 'node:tls';
import type { Outcome } from '../../packages/core/backend/client.ts';
import type { OpenSocket } from '../../packages/core/http1/backend-connection.ts';
import type { LookUp } from '../../packages/core/hosts/dialing/addresses.ts';
import { BlockingListener, startBlackHole } from '../helpers/black-hole.ts';
import { createGate, poll, within } from '../helpers/changes.ts';
import { answer, answerBytes, behind, ScriptedBackend, timeout, type Answer } from '../helpers/scripted-backend.ts';
import { get, put, start, type StartOptions } from './started-client.ts';

const backlogIsEndless = 'this system accepts connections without limit';
const isLinux = process.platform === 'linux';
const [cert, key] = ['certificate', 'key'].map((name) =>
  readFileSync(new URL(`../vectors/tls/backend-${name}.pem`, import.meta.url), 'utf8'),
) as [string, string];
// Addresses of a name: nothing listens on the first two, a full listen queue makes the third silent, and backends listen on
// the others.
const refusing = ['127.0.0.9', '127.0.0.10'] as const;
const silent = '127.0.0.1';
const living = '127.0.0.2';
const moved = '127.0.0.3';
const hole = isLinux ? await startBlackHole() : undefined;
after(() => hole?.[Symbol.asyncDispose]());
const { port } = hole ?? { port: 0 };
const withHole = { skip: hole === undefined && backlogIsEndless };

/** Number of sockets that wait for an answer to their SYN from the hole. */
function countUnanswered(): number {
  const remote = `:${port.toString(16).toUpperCase().padStart(4, '0')} 02 `;
  return readFileSync('/proc/net/tcp', 'latin1').split(remote).length - 1;
}

/** A lookup that always finds `addresses`. */
function finds(...addresses: string[]): LookUp {
  return () => Promise.resolve(addresses);
}

/** A backend at `host` that answers `{}`. */
async function serve(t: TestContext, host: string, atPort: number): Promise<ScriptedBackend> {
  const backend = await ScriptedBackend.start({ host, port: atPort });
  t.after(() => backend.stop());
  return backend.answers(answer('{}'));
}

async function serveTls(t: TestContext, host: string, atPort: number): Promise<void> {
  const sockets = new Set<Socket>();
  const server = createTlsServer({ cert, key }, (socket) => {
    sockets.add(socket.on('error', () => undefined).on('data', () => socket.write(answerBytes('{}'))));
  });
  await once(server.listen(atPort, host), 'listening');
  t.after(() => {
    for (const socket of sockets) socket.destroy();
    server.close();
  });
}

/** A client of a backend with a name. The test ends the lookups. */
async function startNamed(t: TestContext, options: StartOptions = {}) {
  const held: PromiseWithResolvers<readonly string[]>[] = [];
  const lookUp: LookUp = () => {
    const next = Promise.withResolvers<readonly string[]>();
    held.push(next);
    return next.promise;
  };
  const backend = await serve(t, living, 0);
  const one = await start({ backendUrl: `http://backend.test:${backend.port}`, lookUp, ...options });
  t.after(() => one[Symbol.asyncDispose]());
  return { ...one, backend, held, find: (index: number, address = living) => held[index]?.resolve([address]) };
}

type Call = ReturnType<Awaited<ReturnType<typeof start>>['send']>;

async function assertOutcomes(calls: readonly Call[], kind = 'ok'): Promise<void> {
  for (const { outcome } of calls) assert.equal((await within(outcome, 'an outcome')).kind, kind);
}

/** Returns a function that moves the clock forward. */
function holdClock(t: TestContext): (ms: number) => void {
  let addedMs = 0;
  const now = performance.now.bind(performance);
  t.mock.method(performance, 'now', () => now() + addedMs);
  return (ms) => (addedMs += ms);
}

const dies: Answer = ({ socket }) => void socket.destroy();

describe('connecting', { skip: isLinux ? false : 'needs 127.0.0.2, which only Linux has' }, () => {
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
    await assertOutcomes(calls);
  });

  for (const scheme of ['http', 'https']) {
    test(
      `calls over ${scheme} to a name use its first address that accepts, and only its socket stays open [D30]`,
      withHole,
      async (t) => {
        await (scheme === 'https' ? serveTls : serve)(t, living, port);
        const before = countUnanswered();
        await using one = await start({
          backendUrl: `${scheme}://backend.test:${port}`,
          lookUp: finds(refusing[0], silent, living),
          tls: { ca: cert, serverName: 'localhost' },
        });
        assert.equal((await one.call(get)).kind, 'ok');
        assert.equal((await one.call(get)).kind, 'ok');
        assert.equal(one.client.connectionCount, 1);
        await poll(() => countUnanswered() === before, 'no attempt is left');
      },
    );
  }

  test(
    'each attempt counts as a connection, and a cancelled call closes all of its attempts [D30]',
    withHole,
    async () => {
      const before = countUnanswered();
      const lookUp = finds(silent, silent, silent);
      await using one = await start({ backendUrl: `http://backend.test:${port}`, lookUp });
      const { exchange, outcomes } = one.send(get);
      await poll(() => one.client.connectionCount === 3, 'three attempts at once');
      assert.equal(countUnanswered(), before + 3);
      exchange.cancel();
      assert.equal(one.client.connectionCount, 0);
      await poll(() => countUnanswered() === before, 'no attempt is left');
      assert.deepEqual(outcomes, []);
    },
  );

  test('the outcome names the failure of each address, and what has not ended', withHole, async () => {
    await using listener = await BlockingListener.start('');
    const refused = refusing.map((address) => `connect ECONNREFUSED ${address}:${port}`).join('; ');
    const backendUrl = `http://backend.test:${port}`;
    const late = ['timed-out', 'connect-timeout'];
    for (const [options, [kind, reason], cause] of [
      [{ lookUp: finds(...refusing) }, ['unreachable', 'connection-refused'], `ECONNREFUSED; ${refused}`],
      [
        { lookUp: finds(refusing[0], silent, refusing[1]), connectTimeoutMs: 600 },
        late,
        `no connection within 600 ms; ${refused}`,
      ],
      [
        { backendUrl: `https://127.0.0.1:${listener.port}`, connectTimeoutMs: 300 },
        late,
        'no connection within 300 ms; the TLS handshake with 127.0.0.1 has not ended',
      ],
      [
        { lookUp: () => new Promise<never>(() => undefined), connectTimeoutMs: 300 },
        late,
        'no connection within 300 ms; the lookup of backend.test has not ended',
      ],
    ] as const) {
      await using one = await start({ backendUrl, ...options });
      assert.deepEqual(await one.call(get), { kind, status: undefined, reason, cause });
    }
  });

  test('calls share a lookup while it runs; the next call after it makes a new one [D68]', async (t) => {
    const { held, find, send } = await startNamed(t);
    const failing = [send(get), send(put)];
    assert.equal(held.length, 1);
    held[0]?.reject(Object.assign(new Error('getaddrinfo EAI_AGAIN backend.test'), { code: 'EAI_AGAIN' }));
    for (const { outcome } of failing) {
      assert.deepEqual(await within(outcome, 'an outcome'), {
        kind: 'unreachable',
        status: undefined,
        reason: 'lookup-failed',
        cause: 'getaddrinfo EAI_AGAIN backend.test',
      });
    }
    const calls = Array.from({ length: 100 }, () => send(get));
    assert.equal(held.length, 2);
    find(1);
    await assertOutcomes(calls);
    assert.equal(held.length, 2);
  });

  test('a call does not wait for a lookup that has already taken 5 s [D68]', async (t) => {
    const { held, find, send } = await startNamed(t);
    const advance = holdClock(t);
    const first = send(get);
    advance(5_000);
    const second = send(get);
    assert.equal(held.length, 2);
    find(1);
    await assertOutcomes([first, second]);
  });

  test('calls that wait for a lost lookup share a new lookup after half of the connect timeout [D68]', async (t) => {
    const { held, find, send } = await startNamed(t, { connectTimeoutMs: 2_000 });
    const calls = Array.from({ length: 30 }, (_, index) => send(index % 2 === 0 ? get : put));
    assert.equal(held.length, 1);
    await poll(() => held.length === 2, 'a new lookup');
    // The error of a lookup that has been replaced counts for no call.
    held[0]?.reject(new Error('late'));
    await new Promise((resolve) => setImmediate(resolve));
    find(1);
    await assertOutcomes(calls);
    assert.equal(held.length, 2);
  });

  /** Makes dials, except the one with this number, which never ends. `onClose` gets the number of dials at its close. */
  function hangs(number: number, onClose: (dials: number) => void = () => undefined) {
    let count = 0;
    return (open: OpenSocket): OpenSocket =>
      (...given) => {
        count += 1;
        if (count !== number) return open(...given);
        return { socketCount: 1, troubles: [], close: () => queueMicrotask(() => onClose(count)) };
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
    assert.equal((await one.call(put)).kind, 'ok');
    second.exchange.cancel();
  });

  test('if a call gets the connection of a later call, the later call does not depend on the dial of the first [D68]', async () => {
    await using one = await start({ change: hangs(1), connectTimeoutMs: 600_000, timeoutMs: 600_000 });
    one.backend.answersOnce(timeout);
    const first = one.send(get);
    assert.equal((await one.call(put)).kind, 'ok');
    first.exchange.cancel();
  });

  test('when a dial reaches its time limit, a new dial begins for a call that still waits [D68]', async () => {
    const { promise: dialsAtClose, resolve } = Promise.withResolvers<number>();
    // Less than the 250 ms after which a call no longer counts on the dial of another.
    await using one = await start({ change: hangs(1, resolve), connectTimeoutMs: 200 });
    one.backend.answers(timeout);
    const calls = [one.send(get), one.send(get)];
    assert.equal(await within(dialsAtClose, 'the time limit'), 3);
    for (const { exchange } of calls) exchange.cancel();
  });

  test('an exception while a connection is opened after a lookup fails the call', async () => {
    const tls = { ca: cert, cert: 'no certificate', key };
    await using one = await start({ backendUrl: 'https://backend.test:1', lookUp: finds(living), tls });
    assert.equal((await one.call(get)).kind, 'unreachable');
  });

  test('the system is asked for both families, and the attempts alternate between them [D30]', async (t) => {
    await using one = await start({ backendUrl: 'http://backend.test.:1' });
    const asked: unknown[] = [];
    t.mock.method(dns, 'lookup', (_: string, options: unknown, callback: (...found: unknown[]) => void) => {
      asked.push(options);
      const found = ['::1', '::ffff:127.0.0.11', ...refusing];
      const list = found.map((address) => ({ address, family: address.includes(':') ? 6 : 4 }));
      setImmediate(callback, null, list);
    });
    const outcome = await one.call(get);
    assert.ok(outcome.kind === 'unreachable');
    const tried = [...outcome.cause.matchAll(/connect \w+ (\S+):\d+/g)].map(([, address]) => address);
    assert.deepEqual(tried, ['::1', refusing[0], '::ffff:127.0.0.11', refusing[1]]);
    assert.deepEqual(asked, [{ all: true, hints: dns.ADDRCONFIG }]);
  });

  test('a call that waits for a lookup takes a connection that becomes free, and the connection of the lookup serves a later call [D20, D68]', async (t) => {
    const { backend, client, held, find, send } = await startNamed(t);
    const gate = createGate();
    backend.answersOnce(behind(gate, answer('{}')));
    const first = send(get);
    find(0);
    await backend.until(() => backend.requests.length === 1, 'the first call');
    const waiting = [send(get), send(put), send(get)];
    await poll(() => held.length === 2, 'the second lookup');
    gate.open();
    await assertOutcomes([first, ...waiting]);
    assert.deepEqual(
      backend.requests.map(({ connection }) => connection),
      [0, 0, 0, 0],
    );
    // Calls that come now need no further lookup.
    backend.answersOnce(timeout);
    const busy = send(get);
    await backend.until(() => backend.requests.length === 5, 'the call on the first connection');
    const second = send(put);
    find(1);
    await assertOutcomes([second]);
    assert.equal(held.length, 2);
    await backend.until(() => backend.connectionsTaken === 4, 'the other connections');
    busy.exchange.cancel();
    // An unused connection that the backend closes is like any reused one: a read is sent again.
    await poll(() => client.connectionCount === 3, 'three idle connections');
    backend.answersOnce(dies, dies, dies);
    const last = [send(get), send(get), send(get)];
    await poll(() => held.length === 3, 'new connections for the reads');
    find(2);
    await assertOutcomes(last);
  });

  test('no call starts on a connection that is older than the limit, busy or not [D68]', async (t) => {
    const advance = holdClock(t);
    const limits = { connectionAgeMaxMs: 600_000, timeoutMs: 10_000_000, connectTimeoutMs: 10_000_000 };
    const { backend: old, client, held, find, send, call } = await startNamed(t, limits);
    await serve(t, moved, old.port);
    const first = send(get);
    find(0);
    await assertOutcomes([first]);
    // The connection is never idle for long. Its last call begins in time, and ends later.
    for (let step = 0; step < 10; step += 1) {
      advance(50_000);
      assert.equal((await call(get)).kind, 'ok');
    }
    const gate = createGate();
    old.answersOnce(behind(gate, answer('{}')));
    const last = send(get);
    await old.until(() => old.requests.length === 12, 'the last call');
    advance(150_000);
    gate.open();
    await assertOutcomes([last]);
    assert.equal(old.connectionsTaken, 1);
    const fresh = send(get);
    assert.equal(held.length, 2, 'one lookup');
    find(1, moved);
    await assertOutcomes([fresh]);
    assert.equal(old.requests.length, 12);
    assert.equal(client.connectionCount, 1);
  });

  test('after renewConnections a call uses a new connection, also while others are in flight or being opened [D68]', async (t) => {
    const { backend: old, client, held, find, send } = await startNamed(t);
    const fresh = await serve(t, moved, old.port);
    const gate = createGate();
    old.answers(behind(gate, answer('{}')));
    const inFlight = [send(get), send(put)];
    find(0);
    await old.until(() => old.requests.length === 2, 'the calls in flight');
    const waiting = send(get);
    assert.equal(held.length, 2);
    client.renewConnections();
    assert.equal(held.length, 3, 'a new lookup');
    gate.open();
    await assertOutcomes(inFlight);
    find(1);
    await new Promise((resolve) => setImmediate(resolve));
    assert.deepEqual(waiting.outcomes, []);
    find(2, moved);
    await assertOutcomes([waiting, send(put)]);
    assert.equal(old.requests.length, 2);
    assert.equal(fresh.requests.length, 2);
    await poll(() => old.connectionsOpen === 0, 'the old connections are closed');
  });

  test('a write that finds the end of its connection is sent on another; this is no death in use [D20]', async () => {
    const { promise: opened, resolve } = Promise.withResolvers<Socket>();
    const change =
      (open: OpenSocket): OpenSocket =>
      (owner, ...rest) => {
        const onOpen = (socket: Socket): void => {
          resolve(socket);
          owner.onOpen(socket);
        };
        return open({ ...owner, onOpen }, ...rest);
      };
    await using one = await start({ change });
    assert.equal((await one.call(get)).kind, 'ok');
    const socket = await opened;
    const outcome = new Promise<Outcome>((onOutcome) => {
      socket.prependOnceListener('end', () => onOutcome(one.call(put)));
    });
    one.backend.closeConnections();
    assert.equal((await outcome).kind, 'ok');
    assert.equal((await one.call(put)).kind, 'ok');
    assert.equal(one.backend.connectionsTaken, 2);
  });

  /** A client whose last connection has died in use. */
  async function startAfterDeath(t: TestContext) {
    const one = await start();
    t.after(() => one[Symbol.asyncDispose]());
    one.backend.answersOnce(answer('{}'), dies);
    one.backend.answers(answer('{}'));
    assert.equal((await one.call(get)).kind, 'ok');
    assert.equal((await one.call(put)).kind, 'unreachable');
    return one;
  }

  test('after a connection has died in use, a backend that keeps its connections gets writes on them again [D20]', async (t) => {
    const advance = holdClock(t);
    const one = await startAfterDeath(t);
    // In the first minute, a write uses an idle connection only when there are many.
    for (let count = 0; count < 64; count += 1) assert.equal((await one.call(put)).kind, 'ok');
    assert.equal(one.client.connectionCount, 64);
    advance(5_000);
    for (let count = 0; count < 10; count += 1) assert.equal((await one.call(put)).kind, 'ok');
    assert.equal(one.client.connectionCount, 64);
  });

  test('once a backend that is down has refused a connection, writes use idle connections again [D20]', async (t) => {
    const one = await startAfterDeath(t);
    await one.backend.stop();
    assert.equal((await one.call(put)).kind, 'unreachable');
    await one.backend.restart();
    assert.equal((await one.call(get)).kind, 'ok');
    const before = one.backend.connectionsTaken;
    assert.equal((await one.call(put)).kind, 'ok');
    assert.equal(one.backend.connectionsTaken, before);
  });

  test('while writes avoid idle connections, at most 128 stay open, however many writes there are [D20]', async (t) => {
    const one = await startAfterDeath(t);
    for (let count = 0; count < 140; count += 1) assert.equal((await one.call(put)).kind, 'ok');
    assert.equal(one.backend.connectionsTaken, 141);
    assert.equal(one.client.connectionCount, 128);
    assert.equal((await one.call(get)).kind, 'ok');
    assert.equal(one.backend.connectionsTaken, 141, 'a read uses an idle connection');
  });

  test('after each further death, writes avoid used connections for twice as long, up to an hour, whatever else succeeds [D20]', async (t) => {
    const advance = holdClock(t);
    await using one = await start();
    one.backend.answers(answer('{}'));
    const avoids = async () => {
      assert.equal((await one.call(get)).kind, 'ok');
      const before = one.backend.connectionsTaken;
      assert.equal((await one.call(put)).kind, 'ok');
      return one.backend.connectionsTaken > before;
    };
    const die = async () => {
      assert.equal(await avoids(), false);
      one.backend.answersOnce(dies);
      assert.equal((await one.call(put)).kind, 'unreachable');
      assert.equal(await avoids(), true);
    };
    for (const avoidedMs of [60_000, 120_000, 240_000, 480_000, 960_000, 1_920_000, 3_600_000, 3_600_000]) {
      await die();
      advance(avoidedMs - 10_000);
      assert.equal(await avoids(), true, `within ${avoidedMs} ms`);
      advance(10_000);
    }
    advance(7_200_000);
    await die();
    advance(60_000);
    assert.equal(await avoids(), false, 'a minute again');
  });

  test('connections that die together count as one death, and those that `close` cuts as none [D20]', async (t) => {
    const advance = holdClock(t);
    await using one = await start();
    const together = async (answers: Answer, kind: string) => {
      const gate = createGate();
      one.backend.answersOnce(...Array<Answer>(5).fill(behind(gate, answers)));
      const from = one.backend.requests.length;
      const calls = Array.from({ length: 5 }, () => one.send(put));
      await one.backend.until(() => one.backend.requests.length === from + 5, 'the calls');
      gate.open();
      await assertOutcomes(calls, kind);
    };
    const isReused = async () => {
      const before = one.backend.connectionsTaken;
      assert.equal((await one.call(put)).kind, 'ok');
      return one.backend.connectionsTaken === before;
    };
    await together(answer('{}'), 'ok');
    await together(dies, 'unreachable');
    assert.equal((await one.call(get)).kind, 'ok');
    assert.equal(await isReused(), false);
    advance(60_000);
    assert.equal((await one.call(get)).kind, 'ok');
    assert.equal(await isReused(), true);
    one.backend.answersOnce(timeout);
    const held = one.send(put);
    const from = one.backend.requests.length;
    await one.backend.until(() => one.backend.requests.length > from, 'a call on a used connection');
    await one.client.close();
    await assertOutcomes([held], 'unreachable');
    one.client.reopen();
    assert.equal((await one.call(get)).kind, 'ok');
    assert.equal(await isReused(), true);
  });
});
