// A worker, as its primary process sees it. The worker is a real process that this test controls.

import assert from 'node:assert/strict';
import { fork, type ChildProcess } from 'node:child_process';
import type { Socket } from 'node:net';
import { join } from 'node:path';
import { afterEach, beforeEach, test } from 'node:test';
import { Member, type MemberObserver } from '../../packages/command/cluster/member.ts';
import type { FromWorker } from '../../packages/command/cluster/messages.ts';
import { resolveSettings } from '../../packages/command/settings/resolve.ts';
import type { Settings } from '../../packages/command/settings/settings.ts';
import { shareOf } from '../../packages/command/settings/shares.ts';
import { poll } from '../helpers/changes.ts';
import { openPair } from '../helpers/socket-pairs.ts';

const flags = { backendUrl: 'http://127.0.0.1:1', workers: '2', connectionsMax: '5', inFlightMax: '6' };
const { settings } = resolveSettings('serve', flags, {});
const question = { withProcessMetrics: true, probesBackend: true };

let member: Member;
let worker: ChildProcess;
let events: unknown[][];
let handedBack: Socket[];
let printed: string;
let inForce: Settings;
let onRefusal: () => void;

const told = (...event: unknown[]): void => void events.push(event);
const observer: MemberObserver = {
  isUpToDate: ({ state, settings: sent }) => state === 'ended' || sent === inForce,
  bringUpToDate: async () => {
    told('old settings', member.state);
    await member.reload(inForce, {}).catch(async () => {
      onRefusal();
      if (inForce === member.settings) await member.exited;
    });
  },
  onReady: () => told('ready'),
  onRoom: () => told('room'),
  onHandedBack: (sockets, _, isLost) => {
    handedBack.push(...sockets);
    told('handed back', sockets.length, isLost);
  },
  onFault: () => {
    told('fault');
    member.leave('fault');
  },
  onCount: (_, requests) => told('count', requests),
  onKeys: (jwksUrl, keys) => told('keys', jwksUrl, keys),
  onUnreachable: () => told('unreachable'),
  onGone: () => told('gone'),
  onExit: (_, code, signal) => told('exit', code, signal),
};

beforeEach(() => {
  [events, handedBack, printed] = [[], [], ''];
  [inForce, onRefusal] = [settings, () => assert.fail()];
  const exec = join(import.meta.dirname, './scripted-worker.ts');
  worker = fork(exec, { execArgv: [], silent: true, serialization: 'advanced' });
  member = new Member(worker, settings, { tls: {}, keys: undefined }, observer);
  worker.stdout?.on('data', (data: Buffer) => (printed += data.toString()));
});
afterEach(async () => {
  member.kill();
  await member.exited;
});

function say(message: FromWorker): void {
  worker.send({ say: message });
}

/** Waits until the worker has received `count` messages, and returns all that it has received. */
async function received(count: number): Promise<Record<string, unknown>[]> {
  const lines = (): string[] => printed.split('\n').slice(0, -1);
  await poll(() => lines().length >= count, `${count} messages`);
  return lines().map((line) => JSON.parse(line) as Record<string, unknown>);
}

async function becomeReady(): Promise<void> {
  say({ kind: 'ready', report: { pid: 0 } as never });
  assert.partialDeepStrictEqual(await member.started, { kind: 'ready' });
}

test('a worker starts with the settings, and enforces its share of the limits', async () => {
  const [start] = await received(1);
  const { kind, settings: sent } = start as { kind: string; settings: Settings };
  assert.equal(kind, 'start');
  assert.deepEqual([sent.connectionsMax, sent.inFlightMax, sent.backendUrl], [5, 6, 'http://127.0.0.1:1/']);
  const { connectionsMax, inFlightMax } = shareOf(sent);
  assert.deepEqual([connectionsMax, inFlightMax], [3, 3]);
});

test('new certificates are sent once, and not before the worker is ready', async () => {
  const [first, second] = [{ backend: { ca: 'one' } }, { backend: { ca: 'two' } }];
  member.renewTls(first);
  await becomeReady();
  member.renewTls(first);
  member.renewTls(first);
  member.renewTls(second);
  const messages = (await received(3)).slice(1);
  assert.deepEqual(messages, [
    { kind: 'renew-tls', tls: first },
    { kind: 'renew-tls', tls: second },
  ]);
});

test('each request for a report gets its own report', async () => {
  await becomeReady();
  const reports = [member.report(question), member.report(question)];
  const asked = (await received(3)).slice(1);
  assert.equal(asked.length, 2);
  for (const { kind, request } of asked) assert.deepEqual([kind, request], ['report', question]);
  const [one, two] = asked.map(({ id }) => id as number);
  assert.ok(one !== undefined && two !== undefined && one !== two);
  assert.deepEqual(member.lastReport, { pid: 0 }, 'a worker that is ready has sent its first report');
  say({ kind: 'report', id: two, report: { pid: 2 } as never });
  await reports[1];
  assert.deepEqual(member.lastReport, { pid: 2 });
  say({ kind: 'report', id: one, report: { pid: 1 } as never });
  await reports[0];
  assert.deepEqual(member.lastReport, { pid: 1 });
  say({ kind: 'report', id: -1, report: undefined });
  say({ kind: 'keys', jwksUrl: 'https://issuer.example', keys: { text: 'k' } as never });
  await poll(() => events.at(-1)?.[0] === 'keys', 'the last message has come');
  assert.deepEqual(member.lastReport, { pid: 1 }, 'a failed report does not replace the last one');
});

test('a reload sends the new settings, and ends when the calls with the old settings have ended', async () => {
  await becomeReady();
  const next = { ...settings, connectionsMax: 9 };
  const reloading = member.reload(next, { backend: { ca: 'new' } });
  const asked = (await received(2))[1] ?? assert.fail();
  const sent = asked['settings'] as Settings;
  assert.deepEqual([asked['kind'], sent.connectionsMax, asked['tls']], ['reload', 9, { backend: { ca: 'new' } }]);
  const id = asked['id'] as number;
  say({ kind: 'reloaded', id: id + 1, problem: 'another' });
  say({ kind: 'reloaded', id, problem: undefined });
  const { finished } = await reloading;
  assert.equal(member.settings, next);
  say({ kind: 'reload-finished', id });
  await finished;
  member.renewTls({ backend: { ca: 'newer' } });
  assert.deepEqual((await received(3))[2], { kind: 'renew-tls', tls: { backend: { ca: 'newer' } } });
});

test('a reload fails with the problem of the worker; it succeeds if the worker ends, because the next worker gets the new settings', async () => {
  await becomeReady();
  const reloading = member.reload(settings, {});
  const { id } = (await received(2))[1] ?? assert.fail();
  say({ kind: 'reloaded', id: id as number, problem: 'no keys' });
  await assert.rejects(reloading, /^StartError: no keys$/);
  const another = member.reload(settings, {});
  member.kill();
  await (
    await another
  ).finished;
});

test('a report is not awaited from a worker that starts, does not answer or has ended; the last report stays', async () => {
  await member.report(question);
  assert.equal(member.lastReport, undefined);
  await becomeReady();
  await member.report(question);
  const report = member.report(question);
  member.kill();
  await report;
  await member.exited;
  await member.report(question);
  assert.deepEqual(member.lastReport, { pid: 0 });
});

test('a worker that has missed two heartbeats is not asked for reports', async () => {
  await becomeReady();
  member.beat();
  member.beat();
  await member.report(question);
  member.send({ kind: 'cut' });
  assert.deepEqual(
    (await received(3)).slice(1).map(({ kind }) => kind),
    ['ping', 'cut'],
  );
});

test('a worker gets one ping until it answers; after five heartbeats it counts as silent, and it may miss ten', async () => {
  await becomeReady();
  for (let beats = 0; beats < 10; beats += 1) {
    assert.equal(member.isAnswering, beats < 5);
    assert.equal(member.beat(), undefined);
  }
  assert.equal(member.beat(), 10);
  member.send({ kind: 'cut' });
  assert.deepEqual((await received(3)).slice(1), [{ kind: 'ping', number: 0 }, { kind: 'cut' }]);
  say({ kind: 'count', requests: [] });
  await poll(() => events.at(-1)?.[0] === 'count', 'the worker asks the counter');
  assert.equal(member.beat(), undefined, 'any message answers all heartbeats');
});

test('a worker that is still starting gets no heartbeat message; its silence is reported after the time of sixty heartbeats', async () => {
  await received(1);
  for (let beats = 0; beats < 60; beats += 1) assert.equal(member.beat(), undefined);
  assert.equal(member.beat(), 60);
  await becomeReady();
  member.send({ kind: 'cut' });
  assert.deepEqual((await received(2)).slice(1), [{ kind: 'cut' }]);
});

test('the end of a worker is reported once, with its signal; a later message to the worker is ignored', async () => {
  say({ kind: 'start-error', message: 'the port is in use' });
  assert.deepEqual(await member.started, { kind: 'failed', message: 'the port is in use' });
  member.kill();
  await member.exited;
  await poll(() => events.at(-1)?.[0] === 'exit', 'the exit is reported');
  assert.deepEqual(events, [['gone'], ['exit', null, 'SIGKILL']]);
  member.send({ kind: 'cut' });
});

test('if a worker exits during its start, the start fails, and the message has the exit code', async () => {
  assert.deepEqual([member.state, member.departure], ['starting', undefined]);
  await received(1);
  worker.send({ exit: 3 });
  const message = 'a worker ended during its start with exit code 3';
  assert.deepEqual(await member.started, { kind: 'failed', message });
  await poll(() => events.at(-1)?.[0] === 'exit', 'the exit is reported');
  assert.deepEqual(events.at(-1), ['exit', 3, null]);
});

test('if the system cannot create the process, the start fails, and no exit is reported', async () => {
  const none = fork('none', { execPath: '/none', silent: true });
  const unborn = new Member(none, settings, { tls: {}, keys: undefined }, observer);
  const message = 'a worker could not be started: spawn /none ENOENT';
  assert.deepEqual(await unborn.started, { kind: 'failed', message });
  await unborn.exited;
  assert.deepEqual(events, [['gone']]);
});

test('an error of a running worker is reported, but is not treated as the end of the worker', async () => {
  await becomeReady();
  worker.emit('error', new Error('write EPIPE'));
  assert.deepEqual(events, [['ready'], ['unreachable']]);
});

test('the primary process closes a connection when the worker has confirmed it', async (t) => {
  const { client, socket } = await openPair(t);
  member.take(socket);
  assert.deepEqual([member.hasRoom, member.connections], [true, 1]);
  assert.equal(Buffer.concat(await client.take(1).toArray()).toString(), `${worker.pid}`);
  assert.equal(socket.destroyed, false);
  const second = await openPair(t);
  member.take(second.socket);
  assert.equal(member.hasRoom, false);
  say({ kind: 'taken', number: 1 });
  await poll(() => events.length > 0, 'the confirmation');
  assert.deepEqual([events, socket.destroyed, second.socket.destroyed], [[['room']], true, false]);
  assert.deepEqual([member.hasRoom, member.connections], [true, 2]);
  assert.deepEqual((await received(3)).slice(1), [
    { kind: 'connection', number: 1 },
    { kind: 'connection', number: 2 },
  ]);
});

test('connections that have closed count until the next pong', async (t) => {
  await becomeReady();
  for (const number of [1, 2]) {
    member.take((await openPair(t)).socket);
    say({ kind: 'taken', number });
    await poll(() => events.filter(([event]) => event === 'room').length === number, 'the confirmation');
  }
  assert.equal(member.connections, 2);
  member.beat();
  say({ kind: 'pong', number: 2, open: 0 });
  await poll(() => member.connections === 0, 'the pong');
});

test('a worker that does not confirm a connection soon is late', async (t) => {
  worker.kill('SIGSTOP');
  member.take((await openPair(t)).socket);
  assert.equal(member.isLate, false);
  await poll(() => member.isLate, 'the worker is late');
  worker.kill('SIGCONT');
});

test('a connection that a worker has not confirmed before its pong is handed back as lost', async (t) => {
  await becomeReady();
  const [first, second] = [await openPair(t), await openPair(t)];
  member.take(first.socket);
  member.beat();
  member.take(second.socket);
  assert.deepEqual((await received(4))[2], { kind: 'ping', number: 1 });
  say({ kind: 'pong', number: 1, open: 3 });
  await poll(() => handedBack.length > 0, 'it is handed back');
  assert.deepEqual(handedBack, [first.socket]);
  assert.deepEqual(events.at(-1), ['handed back', 1, true]);
  assert.deepEqual([first.socket.destroyed, member.connections], [false, 4]);
});

for (const end of ['fault', 'kill'] as const) {
  test(`the connections that a worker has not confirmed are handed back (${end})`, async (t) => {
    await becomeReady();
    worker.kill('SIGSTOP');
    const pairs = [await openPair(t), await openPair(t), await openPair(t)];
    for (const { socket } of pairs) member.take(socket);
    if (end === 'kill') {
      member.kill();
    } else {
      worker.kill('SIGCONT');
      say({ kind: 'taken', number: 1 });
      say({ kind: 'fault' });
    }
    await poll(() => handedBack.length > 0, 'they are handed back');
    assert.deepEqual(
      handedBack,
      pairs.slice(end === 'kill' ? 0 : 1).map(({ socket }) => socket),
    );
    assert.ok(handedBack.every(({ destroyed }) => !destroyed));
    if (end === 'fault') assert.deepEqual([member.state, member.departure], ['draining', 'fault']);
  });
}

test('a fault during the start makes the start fail', async () => {
  say({ kind: 'fault' });
  const message = 'a worker had an internal error during its start';
  assert.deepEqual(await member.started, { kind: 'failed', message });
});

test('the first reason to leave counts; a worker that becomes ready later stays in its drain', async () => {
  member.leave('stop');
  member.leave('hung');
  await becomeReady();
  assert.deepEqual([member.state, member.departure, member.isAnswering], ['draining', 'stop', false]);
  member.kill();
  await member.exited;
  assert.equal(member.state, 'ended');
  assert.throws(() => member.leave('stop'), /a worker that is ended cannot have the event leave/);
});

/** Makes the worker ready when its settings are no longer in force. Returns the number of its reload. */
async function reloadAtStart(): Promise<number> {
  inForce = { ...settings, connectionsMax: 9 };
  say({ kind: 'ready', report: undefined });
  const [, { kind, id } = assert.fail()] = await received(2);
  assert.equal(kind, 'reload');
  return id as number;
}

test('a worker that is ready with old settings counts as starting until it uses the settings in force [D65]', async () => {
  const first = await reloadAtStart();
  inForce = { ...settings, connectionsMax: 7 };
  say({ kind: 'reloaded', id: first, problem: undefined });
  const [, , next = assert.fail()] = await received(3);
  assert.equal((next['settings'] as Settings).connectionsMax, 7);
  say({ kind: 'reloaded', id: next['id'] as number, problem: undefined });
  assert.equal((await member.started).kind, 'ready');
  assert.deepEqual(events, [['old settings', 'starting'], ['old settings', 'starting'], ['ready']]);
});

test('a worker that ends while it gets the settings in force has failed to start', async () => {
  await reloadAtStart();
  worker.kill('SIGKILL');
  assert.equal((await member.started).kind, 'failed');
  await poll(() => events.at(-1)?.[0] === 'exit', 'the exit is reported');
  assert.deepEqual([member.state, member.readyAt], ['ended', undefined]);
  assert.deepEqual(events, [['old settings', 'starting'], ['gone'], ['exit', null, 'SIGKILL']]);
});

test('a worker that cannot use new settings gets the old ones if these are in force again', async () => {
  const first = await reloadAtStart();
  onRefusal = () => (inForce = settings);
  say({ kind: 'reloaded', id: first, problem: 'no keys' });
  const [, , next = assert.fail()] = await received(3);
  say({ kind: 'reloaded', id: next['id'] as number, problem: undefined });
  assert.equal((await member.started).kind, 'ready');
});

test('the message on a worker killed by its primary process gives no advice on memory', async () => {
  const id = await reloadAtStart();
  onRefusal = () => member.kill();
  say({ kind: 'reloaded', id, problem: 'no keys' });
  const message = 'a worker ended during its start with signal SIGKILL';
  assert.deepEqual(await member.started, { kind: 'failed', message });
});

for (const [signal, kind] of [
  ['SIGTERM', 'interrupted'],
  ['SIGINT', 'interrupted'],
  ['SIGHUP', 'interrupted'],
  ['SIGKILL', 'failed'],
] as const) {
  test(`if a worker ends by ${signal} during its start, the result is ${kind}`, async () => {
    await received(1);
    worker.kill(signal);
    const advice = kind === 'failed' ? ': check whether the system was out of memory' : '';
    const message = `a worker ended during its start with signal ${signal}${advice}`;
    assert.deepEqual(await member.started, { kind, message });
  });
}
