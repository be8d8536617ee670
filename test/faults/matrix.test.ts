// Tests each fault of faults.ts with a read and two writes. The client must get the exact reply of the specification, in
// time and without bytes of another call. The backend connection must be kept or closed as expected, and a closed one is
// never used again. No call is sent twice, except where D20 allows it. test/simulation combines faults with moments.

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { createGate } from '../helpers/changes.ts';
import { assertReply, itemNotFound, operation, operations, type Operation } from '../helpers/expected.ts';
import type { RawClient, Reply } from '../helpers/raw-client.ts';
import {
  answer,
  answerBytes,
  informational,
  raw,
  resetPeer,
  type Answer,
  type Exchange,
} from '../helpers/scripted-backend.ts';
import { forEachTarget, type Target } from '../helpers/targets.ts';
import { bodyOf, expectedReply, expectedSuccess, promptKinds, slow, stalls, waits, type Fault } from './faults.ts';

/** Longer than any test, so that no connection is closed as idle. */
const settings = { backendIdleTimeoutMs: 60_000, responseBytesMax: 100_000 };

type Connection = 'fresh' | 'reused';

interface Cell {
  readonly each: Operation;
  /** The fault of every answer to this call, unless `recovers` is true; undefined in a good call. */
  readonly fault?: Fault;
  /** True if only the first answer has the fault. If the call is sent again, the second answer is good. */
  readonly recovers?: boolean;
}

/** A running cell. Its marker is the request id, and is part of everything that the backend sends for this call. */
interface Run extends Cell {
  readonly marker: string;
  exchange: Exchange | undefined;
}

/** A read, and a write of each kind: the client gets the backend's body, or not. */
const combined = [operation(2), operation(3), operation(5)];
const bystanders: readonly Cell[] = [{ each: operation(2) }, { each: operation(3) }];
let markers = 0;
const good = (marker: string): Answer => answer(bodyOf(marker), { headers: [['X-Backend', marker]] });

function cellsOf(faults: readonly Fault[], which: (fault: Fault, each: Operation) => boolean = () => true): Cell[] {
  return faults.flatMap((fault) =>
    combined
      .filter((each) => which(fault, each))
      .flatMap((each) =>
        (fault.isSilentDeath ? [true, false] : [false]).map((recovers) => ({ each, fault, recovers })),
      ),
  );
}

/** True for a GET on a reused connection [D20]. */
function mayBeSentAgain(each: Operation, connection: Connection): boolean {
  return connection === 'reused' && each.method === 'GET';
}

/** Makes calls with clients that each have one connection for all their calls. */
class Matrix implements Disposable {
  readonly #target: Target;
  readonly #clients: RawClient[] = [];

  constructor(target: Target) {
    this.#target = target;
  }

  [Symbol.dispose](): void {
    for (const client of this.#clients) client.destroy();
  }

  /** Runs the cells in parallel, together with good calls, and checks every outcome. */
  async run(faulty: readonly Cell[], connection: Connection): Promise<void> {
    const { backend } = this.#target;
    const cells = [...faulty, ...bystanders];
    await this.#prepare(cells.length, connection);
    const runs = await this.#call(cells, connection);
    for (const { fault, marker, exchange } of runs) {
      if (fault?.late) await exchange?.write(fault.late(marker));
    }
    const kept = new Set<number>();
    const closed = new Set<number>();
    for (const run of runs) (run.fault?.connection === 'closed' ? closed : kept).add(this.#assertSent(run, connection));
    const isClosed = (number: number): boolean => backend.isClosed(number);
    await backend.until(() => [...closed].every(isClosed), 'every connection that must not be kept is closed');
    // Each round makes as many parallel calls as there are idle connections, so that every connection is used. After a silent
    // death, writes use new connections.
    for (let round = 0; kept.size > 0 || round === 0; round += 1) {
      assert.deepEqual([...kept].filter(isClosed), [], 'a connection that must be kept stays open');
      assert.ok(round < 1000, `connections ${[...kept].join(', ')} are used again`);
      const count = Math.max(cells.length, backend.connectionsOpen);
      for (const { exchange } of await this.#call(Array<Cell>(count).fill({ each: operation(1) }), 'reused')) {
        const { connection: number = -1 } = exchange?.request ?? {};
        assert.ok(!closed.has(number), 'a closed connection is never used again');
        kept.delete(number);
      }
    }
  }

  /** Makes calls while the port is closed. A reused connection is reset when a call arrives on it. */
  async runRefused(connection: Connection): Promise<void> {
    const { backend } = this.#target;
    await this.#prepare(operations.length, connection);
    backend.stopListening();
    backend.reset();
    backend.answers(resetPeer());
    try {
      await Promise.all(
        operations.map(async ({ method, path, options, failure }, index) => {
          assertReply(await this.#client(index).call(method, path, options), 500, failure);
        }),
      );
    } finally {
      await backend.restart();
    }
    const sent = backend.requests.map(({ method }) => method).sort();
    assert.deepEqual(sent, connection === 'fresh' ? [] : operations.map(({ method }) => method).sort());
    await this.#call(operations.map((each) => ({ each })), 'fresh'); // prettier-ignore
  }

  /** Connects `count` clients. Closes all connections to the backend; then opens `count` idle ones for reused connections. */
  async #prepare(count: number, connection: Connection): Promise<void> {
    const { backend } = this.#target;
    while (this.#clients.length < count) this.#clients.push(await this.#target.connect());
    backend.closeConnections();
    await backend.until(() => backend.connectionsOpen === 0, 'idle connections are closed');
    if (connection === 'fresh') return;
    // After a backend that is down, writes use all connections again.
    await backend.stop();
    await this.#client(0).call('GET', '/api/work-items');
    await backend.restart();
    // On a busy machine some calls miss a short deadline, so repeat until enough connections are open.
    for (let attempt = 0; backend.connectionsOpen < count; attempt += 1) {
      assert.ok(attempt < 20, `${count} idle connections`);
      await this.#call(Array<Cell>(count).fill({ each: operation(1) }), undefined);
    }
  }

  /**
   * Makes the cells' calls in parallel, and checks the replies unless `connection` is undefined. The backend answers when all
   * have arrived, so each has its own connection.
   */
  async #call(cells: readonly Cell[], connection: Connection | undefined): Promise<Run[]> {
    const { backend } = this.#target;
    while (this.#clients.length < cells.length) this.#clients.push(await this.#target.connect());
    const runs = cells.map((cell): Run => ({ ...cell, marker: `m${(markers += 1)}x`, exchange: undefined }));
    const byMarker = new Map(runs.map((run) => [run.marker, run]));
    const gate = createGate();
    let arrived = 0;
    backend.reset();
    backend.answers(async (exchange) => {
      const marker = exchange.request.header('x-request-id') ?? '';
      const run = byMarker.get(marker);
      assert.ok(run, `a request of another test: ${exchange.request.head}`);
      const { fault, recovers, each } = run;
      const isFirst = run.exchange === undefined;
      run.exchange ??= exchange;
      if (isFirst && (arrived += 1) === runs.length) gate.open();
      // Calls that wait for the deadline need no gate: their connections are not used again.
      if (isFirst && !(fault && waits(fault, each))) await Promise.race([gate.opened, exchange.closed]);
      await (fault && (isFirst || !recovers) ? fault.answer(marker) : good(marker))(exchange);
    });
    await Promise.all(
      runs.map(async (run, index) => {
        const { method, path, options } = run.each;
        const headers = [['X-Request-Id', run.marker]] as const;
        const reply = await this.#client(index).call(method, path, { ...options, headers });
        if (connection !== undefined) this.#assertReply(run, reply, connection);
      }),
    );
    return runs;
  }

  #assertReply({ each, fault, recovers, marker }: Run, reply: Reply, connection: Connection): void {
    const isWell = !fault || (recovers === true && mayBeSentAgain(each, connection));
    try {
      assertReply(reply, ...(isWell ? expectedSuccess(each, marker) : expectedReply(fault, each, marker)));
      assert.equal(reply.header('x-request-id'), marker);
      assert.equal(reply.header('connection'), 'keep-alive', 'the client keeps its connection');
      const rest = reply.headers.filter(([key]) => key !== 'x-request-id');
      assert.doesNotMatch(JSON.stringify([reply.statusLine, rest]), /m\d+x/, 'no header of the backend');
    } catch (error) {
      throw new Error(`${fault?.name ?? 'good'}, ${each.name}, ${connection}: ${String(error)}`, { cause: error });
    }
  }

  /** Asserts that the call was sent once, or twice where D20 allows it. Returns the first connection's number. */
  #assertSent({ each, fault, marker }: Run, connection: Connection): number {
    const sent = this.#target.backend.requests.filter((request) => request.header('x-request-id') === marker);
    const isAgain = fault?.isSilentDeath === true && mayBeSentAgain(each, connection);
    assert.deepEqual(
      sent.map(({ method, indexOnConnection }) => `${method}, ${indexOnConnection > 0 ? 'reused' : 'fresh'}`),
      isAgain ? [`${each.method}, reused`, `${each.method}, fresh`] : [`${each.method}, ${connection}`],
      `${fault?.name ?? 'good'}, ${each.name}, ${connection}`,
    );
    const [first, second = first] = sent;
    assert.equal(second?.head, first?.head, 'the same request');
    return first?.connection ?? -1;
  }

  #client(index: number): RawClient {
    const client = this.#clients[index];
    assert.ok(client);
    return client;
  }
}

/** The client's reply if the backend answers `status` and, where allowed, `body` [D15 to D18; spec 7, rule 1]. */
function expectedOf(status: number, each: Operation, marker: string): [status: number, body: string] {
  const isInterim = status >= 100 && status < 200 && status !== 101;
  if (isInterim || (status >= 200 && status < 300 && !(status === 204 && each.passesBody))) {
    return expectedSuccess(each, marker);
  }
  return status === 404 && each === operation(3) ? [404, itemNotFound] : [500, each.failure];
}

function answerWith(status: number, body: string): Answer {
  if (status >= 100 && status < 200) return informational([status], answerBytes(body));
  if (status === 204 || status === 304) return raw(`HTTP/1.1 ${status} Scripted\r\n\r\n`);
  return answer(body, { status, headers: status >= 300 && status < 400 ? [['Location', '/api/WorkItem/9']] : [] });
}

const statuses = [0, 99, 100, 101, 102, 103, 199, 200, 201, 204, 206, 299, 300, 304, 399, 400, 401, 404, 408, 410, 499, 500, 503, 599, 600, 999]; // prettier-ignore

describe('within the deadline', () => {
  forEachTarget((target) => {
    test('answers with each kind of status have the specified outcomes [D15 to D18; spec 7, rule 1]', async () => {
      const { backend } = target();
      backend.answers((exchange) => {
        const marker = exchange.request.header('x-request-id') ?? '';
        return answerWith(Number.parseInt(marker), bodyOf(marker))(exchange);
      });
      await using client = await target().connect();
      for (const each of operations) {
        for (const status of statuses) {
          const marker = `${status}-${each.name.slice(0, 1)}`;
          const options = { ...each.options, headers: [['X-Request-Id', marker]] as const };
          assertReply(await client.call(each.method, each.path, options), ...expectedOf(status, each, marker));
        }
      }
      assert.equal(backend.requests.length, statuses.length * operations.length, 'no call was sent twice');
    });

    test('bytes that a backend sends before the request are the answer to the first call on that connection, and to no other call [D18]', async () => {
      const { backend } = target();
      for (const each of combined) {
        backend.closeConnections();
        await backend.until(() => backend.connectionsOpen === 0, 'idle connections are closed');
        backend.greeting = answerBytes(bodyOf('early'));
        backend.answers(good('late'));
        assertReply(await target().call(each.method, each.path, each.options), ...expectedSuccess(each, 'early'));
        backend.greeting = undefined;
        await backend.until(() => backend.connectionsOpen === 0, 'the connection is closed');
        backend.answers(good('next'));
        assertReply(await target().call(each.method, each.path, each.options), ...expectedSuccess(each, 'next'));
      }
    });

    for (const [kind, faults] of Object.entries(promptKinds)) {
      test(`${kind}: each fault has the specified outcome [spec 7; D15 to D18, D20]`, async () => {
        using matrix = new Matrix(target());
        await matrix.run(cellsOf(faults), 'reused');
        if (faults === promptKinds['answers that are cut off']) await matrix.run(cellsOf(faults), 'fresh');
      });
    }

    test('slow good answers are passed on [spec 7]', async () => {
      using matrix = new Matrix(target());
      // The rest of an answer that is not passed on may take over 1 s, and its connection would be closed.
      await matrix.run(cellsOf(slow, (_, { passesBody }) => passesBody), 'reused'); // prettier-ignore
    });

    test('if the head of an answer decides the reply, the client gets the reply immediately, even if the answer stops or never ends [D17]', async () => {
      using matrix = new Matrix(target());
      await matrix.run(cellsOf(stalls, (fault, each) => !waits(fault, each)), 'reused'); // prettier-ignore
    });

    test("if the backend's port is closed, each call gets its operation's 500 [spec 7, D20]", async () => {
      using matrix = new Matrix(target());
      await matrix.runRefused('fresh');
      await matrix.runRefused('reused');
    });
  }, settings); // prettier-ignore
});

describe('at the deadline', () => {
  forEachTarget((target) => {
    test("if the part of an answer that decides the reply does not arrive before the deadline, the client gets the operation's 500 [D19]", async () => {
      using matrix = new Matrix(target());
      await matrix.run(cellsOf(stalls, waits), 'reused');
    });
  }, { ...settings, backendTimeoutMs: 1000 }); // prettier-ignore
});
