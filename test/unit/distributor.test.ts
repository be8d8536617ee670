// The choice of the worker that gets a connection, and the connections that wait for a worker.

import assert from 'node:assert/strict';
import { Socket } from 'node:net';
import { beforeEach, test } from 'node:test';
import { Distributor, type Receiver } from '../../packages/command/cluster/distributor.ts';
import { poll } from '../helpers/changes.ts';

class Worker implements Receiver {
  hasRoom = true;
  isLate = false;
  connections: number;
  readonly taken: Socket[] = [];

  constructor(connections = 0) {
    this.connections = connections;
  }

  take(socket: Socket): void {
    this.taken.push(socket);
    this.connections += 1;
  }
}

let workers: Worker[];
let refused: number;
let limits: { connectionsMax: number; requestHeadersTimeoutMs: number };
let distributor: Distributor<Worker>;

beforeEach(() => {
  [workers, refused, limits] = [[], 0, { connectionsMax: 10_000, requestHeadersTimeoutMs: 60_000 }];
  distributor = new Distributor(
    () => workers,
    () => limits,
    () => (refused += 1),
  );
});

const counts = (): number[] => workers.map(({ taken }) => taken.length);

function accept(count: number): Socket[] {
  const sockets = Array.from({ length: count }, () => new Socket());
  for (const socket of sockets) distributor.accept(socket);
  return sockets;
}

test('workers get connections in turn', () => {
  workers = [new Worker(), new Worker(), new Worker()];
  const sockets = accept(7);
  assert.deepEqual(counts(), [3, 2, 2]);
  assert.deepEqual(workers[0]?.taken, [sockets[0], sockets[3], sockets[6]]);
});

test('a worker with more connections than others is left out until the others have as many, or nearly as many', () => {
  workers = [new Worker(0), new Worker(10), new Worker(40)];
  accept(10);
  assert.deepEqual(counts(), [9, 1, 0]);
  accept(52);
  assert.deepEqual(
    workers.map(({ connections }) => connections).every((count) => count >= 35 && count <= 40),
    true,
  );
  assert.equal(workers[2]?.taken.length, 0);
});

test('a connection waits for the worker with the fewest connections, but not if that worker is late', async () => {
  const [slow, other] = [new Worker(), new Worker(4)];
  workers = [slow, other];
  slow.hasRoom = false;
  accept(2);
  assert.deepEqual(counts(), [0, 0]);
  slow.isLate = true;
  await poll(() => other.taken.length === 2, 'the other worker gets the connections');
  Object.assign(slow, { isLate: false, hasRoom: true });
  accept(1);
  assert.deepEqual(counts(), [1, 2]);
});

test('a connection waits about 200 ms for the worker with the fewest connections, then any worker with room gets it', async () => {
  const [busy, other] = [new Worker(), new Worker(4)];
  workers = [busy, other];
  busy.hasRoom = false;
  accept(2);
  assert.deepEqual(counts(), [0, 0]);
  await poll(() => other.taken.length === 2, 'the other worker gets the connections');
  assert.equal(busy.isLate, false);
});

test('connections that are handed back are passed on before those that wait', () => {
  const waiting = accept(2);
  const back = [new Socket(), new Socket()];
  distributor.handBack(back);
  workers = [new Worker()];
  distributor.distribute();
  assert.deepEqual(workers[0]?.taken, [...back, ...waiting]);
});

test('any worker with room gets a connection that is handed back, and other connections wait no longer for that', async () => {
  const [busy, other] = [new Worker(), new Worker(4)];
  workers = [busy, other];
  busy.hasRoom = false;
  const [waiting] = accept(1);
  const back = new Socket();
  distributor.handBack([back]);
  assert.deepEqual([busy.taken, other.taken], [[], [back]]);
  await poll(() => {
    distributor.handBack([new Socket()]);
    return other.taken.some((socket) => socket === waiting);
  }, 'the other worker gets the connection');
});

test('a connection waits no longer than REQUEST_HEADERS_TIMEOUT_MS, and at most CONNECTIONS_MAX connections wait', async () => {
  limits = { connectionsMax: 2, requestHeadersTimeoutMs: 20 };
  const [first, second, third] = accept(3);
  assert.deepEqual([refused, third?.destroyed], [1, true]);
  await poll(() => refused === 3, 'the others are closed');
  assert.deepEqual([first?.destroyed, second?.destroyed], [true, true]);
  workers = [new Worker()];
  distributor.distribute();
  assert.deepEqual(counts(), [0]);
});

test('at its end a distributor passes all connections on, even to workers without room, and refuses later ones', () => {
  const waiting = accept(3);
  workers = [new Worker(), new Worker(9)];
  for (const worker of workers) worker.hasRoom = false;
  distributor.close();
  assert.deepEqual(counts(), [2, 1]);
  assert.deepEqual(workers[0]?.taken, [waiting[0], waiting[2]]);
  const [late] = accept(1);
  const back = new Socket();
  distributor.handBack([back]);
  assert.deepEqual([refused, late?.destroyed, back.destroyed], [2, true, true]);
  workers = [];
  accept(1);
  distributor.close();
  assert.equal(refused, 3);
});
