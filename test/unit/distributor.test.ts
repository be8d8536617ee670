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
let distributor: Distributor<Worker>;

beforeEach(() => {
  workers = [];
  distributor = new Distributor(
    () => workers,
    () => ({ connectionsMax: 10_000, requestHeadersTimeoutMs: 60_000 }),
    assert.fail,
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
  assert.ok(workers.every(({ connections }) => connections >= 35 && connections <= 40));
  assert.equal(workers[2]?.taken.length, 0);
});

test('a connection waits for the worker with the fewest connections: if it is late, or after about 200 ms, another gets it', async () => {
  for (const isLate of [true, false]) {
    const [slow, other] = [new Worker(), new Worker(4)];
    workers = [slow, other];
    slow.hasRoom = false;
    accept(2);
    assert.deepEqual(counts(), [0, 0]);
    slow.isLate = isLate;
    await poll(() => other.taken.length === 2, 'the other worker gets the connections');
    Object.assign(slow, { isLate: false, hasRoom: true });
    accept(1);
    assert.deepEqual(counts(), [1, 2]);
  }
});

test('up to CONNECTIONS_MAX connections wait for a worker; a further one is closed', () => {
  const limits = { connectionsMax: 2, requestHeadersTimeoutMs: 60_000 };
  let refused = 0;
  const sockets = [new Socket(), new Socket(), new Socket()];
  const few = new Distributor(() => workers, () => limits, () => (refused += 1)); // prettier-ignore
  for (const socket of sockets) few.accept(socket);
  assert.deepEqual([refused, sockets.map(({ destroyed }) => destroyed)], [1, [false, false, true]]);
  few.close();
  assert.equal(refused, 3);
});

test('connections that are handed back are passed on before those that wait', () => {
  const waiting = accept(2);
  const back = [new Socket(), new Socket()];
  distributor.handBack(back);
  workers = [new Worker()];
  distributor.distribute();
  assert.deepEqual(workers[0]?.taken, [...back, ...waiting]);
});

test('a connection that every worker hands back is closed after REQUEST_HEADERS_TIMEOUT_MS', async () => {
  workers = [new Worker()];
  const limits = { connectionsMax: 1, requestHeadersTimeoutMs: 10 };
  let refused = 0;
  distributor = new Distributor(() => workers, () => limits, () => (refused += 1)); // prettier-ignore
  const back = new Socket();
  await poll(() => {
    if (!back.destroyed) distributor.handBack([back]);
    return refused === 1;
  }, 'the connection is closed');
  assert.ok(back.destroyed && workers[0]?.taken.includes(back));
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
