// Tests each fault of faults.ts with all five operations, on fresh and on reused backend connections. In each
// test the client must get the exact reply of the specification, in time and without bytes of another call. The backend
// connection must be kept or closed as expected, and a closed connection is never used again. No call is sent twice,
// except where D20 allows it. At the end, a good call on the same client connection must succeed.

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { createGate } from '../helpers/changes.ts';
import { assertReply, itemNotFound, operation, operations, succeeded, type Operation } from '../helpers/expected.ts';
import type { RawClient, Reply } from '../helpers/raw-client.ts';
import {
  answer,
  answerBytes,
  informational,
  raw,
  rawThenClose,
  resetPeer,
  ScriptedBackend,
  type Answer,
  type Exchange,
} from '../helpers/scripted-backend.ts';
import { forEachTarget, type Target } from '../helpers/targets.ts';
import { bodyOf, expectedReply, promptKinds, slow, stalls, type Fault } from './faults.ts';

/** The deadline in the tests that wait for the deadline. */
const deadlineMs = 1000;
/** Longer than any test, so that no connection is closed as idle. */
const backendIdleTimeoutMs = 60_000;
const responseBytesMax = 100_000;

type Connection = 'fresh' | 'reused';
const connections: readonly Connection[] = ['fresh', 'reused'];

interface Cell {
  readonly name: string;
  readonly each: Operation;
  /** The fault of every answer to this call, unless `recovers` is true; undefined in a good call. */
  readonly fault: Fault | undefined;
  /** True if only the first answer has the fault. If the call is sent again, the second answer is good. */
  readonly recovers: boolean;
}

/** A running cell. Its marker is the request id, and is part of everything that the backend sends for this call. */
interface Run {
  readonly cell: Cell;
  readonly marker: string;
  exchange: Exchange | undefined;
}

let markers = 0;
const good = (marker: string): Answer => answer(bodyOf(marker), { headers: [['X-Backend', marker]] });

/** Closes all connections to the backend. */
async function closeConnections(backend: ScriptedBackend): Promise<void> {
  backend.closeConnections();
  await backend.until(() => backend.connectionsOpen === 0, 'idle connections are closed');
}

function cellsOf(faults: readonly Fault[], which: (fault: Fault, each: Operation) => boolean = () => true): Cell[] {
  return faults.flatMap((fault) =>
    operations
      .filter((each) => which(fault, each))
      .flatMap((each) =>
        (fault.isSilentDeath ? [true, false] : [false]).map((recovers) => ({
          name: `${fault.name}${recovers ? ' once' : ''}, operation ${each.name}`,
          each,
          fault,
          recovers,
        })),
      ),
  );
}

function goodCall(each: Operation): Cell {
  return { name: `a good call, operation ${each.name}`, each, fault: undefined, recovers: false };
}

/** Good calls that run at the same time as the faulty ones; they must succeed. */
const bystanders: readonly Cell[] = [goodCall(operation(2)), goodCall(operation(3))];

/** Runs cells with its own clients. Each client has one connection for all its calls. */
class Matrix implements Disposable {
  readonly #target: Target;
  readonly #clients: RawClient[] = [];

  constructor(target: Target) {
    this.#target = target;
  }

  [Symbol.dispose](): void {
    for (const client of this.#clients) client.destroy();
  }

  /** Runs the cells in parallel, each with its own client, and checks every outcome. */
  async run(faulty: readonly Cell[], connection: Connection): Promise<void> {
    const { backend } = this.#target;
    const cells = [...faulty, ...bystanders];
    await closeConnections(backend);
    if (connection === 'reused') await this.#fill(cells.length);

    const runs = await this.#call(cells, (run, reply) => this.#assertReply(run, reply, connection));
    for (const { cell, marker, exchange } of runs) {
      if (cell.fault?.late) await exchange?.write(cell.fault.late(marker));
    }
    const kept = new Set<number>();
    const closed: number[] = [];
    for (const { cell, marker } of runs) {
      const number = this.#assertSent(cell, marker, connection);
      if (cell.fault?.connection === 'closed') closed.push(number);
      else kept.add(number);
    }
    await backend.until(
      () => closed.every((number) => backend.isClosed(number)),
      'every connection that must not be kept is closed',
    );

    // Each round makes as many parallel calls as there are idle connections, so that every connection is used. After a silent
    // death, writes use new connections.
    const followers = cells.map(() => goodCall(operation(1)));
    for (let round = 0; kept.size > 0 || round === 0; round += 1) {
      const lost = [...kept].filter((number) => backend.isClosed(number));
      assert.deepEqual(lost, [], 'a connection that must be kept stays open');
      assert.ok(round < 1000, `connections ${[...kept].join(', ')} are used again`);
      while (followers.length < backend.connectionsOpen) followers.push(goodCall(operation(1)));
      for (const { exchange } of await this.#call(followers, (run, reply) => this.#assertReply(run, reply, 'reused'))) {
        const { connection: number = -1 } = exchange?.request ?? {};
        assert.ok(!closed.includes(number), 'a closed connection is never used again');
        kept.delete(number);
      }
    }
  }

  /** Makes calls while the port is closed. A reused connection is reset when a call arrives on it. */
  async runRefused(connection: Connection): Promise<void> {
    const { backend } = this.#target;
    await closeConnections(backend);
    if (connection === 'reused') await this.#fill(operations.length);
    await this.#connect(operations.length);
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
    const { requests } = backend;
    assert.deepEqual(
      requests.map(({ method }) => method).sort(),
      connection === 'fresh' ? [] : operations.map(({ method }) => method).sort(),
      'on fresh connections no call arrives; on reused connections each call arrives once',
    );
    await this.#call(operations.map(goodCall), (run, reply) => this.#assertReply(run, reply, 'fresh'));
  }

  /** Makes the cells' calls in parallel. The backend answers when all have arrived, so each has its own connection. */
  async #call(cells: readonly Cell[], assertIt: (run: Run, reply: Reply) => void): Promise<Run[]> {
    await this.#connect(cells.length);
    const { backend } = this.#target;
    const runs = cells.map((cell): Run => ({ cell, marker: `m${(markers += 1)}x`, exchange: undefined }));
    const byMarker = new Map(runs.map((run) => [run.marker, run]));
    const gate = createGate();
    let arrived = 0;
    backend.reset();
    backend.answers(async (exchange) => {
      const marker = exchange.request.header('x-request-id') ?? '';
      const run = byMarker.get(marker);
      assert.ok(run, `a request of another test: ${exchange.request.head}`);
      const { fault, recovers } = run.cell;
      const isFirst = run.exchange === undefined;
      run.exchange ??= exchange;
      if (isFirst && (arrived += 1) === runs.length) gate.open();
      // Calls that wait for the deadline need no gate: their connections are not used again.
      if (isFirst && !fault?.waits(run.cell.each)) await Promise.race([gate.opened, exchange.closed]);
      await (fault && (isFirst || !recovers) ? fault.answer(marker) : good(marker))(exchange);
    });
    await Promise.all(
      runs.map(async (run, index) => {
        const { method, path, options } = run.cell.each;
        const headers = [['X-Request-Id', run.marker]] as const;
        assertIt(run, await this.#client(index).call(method, path, { ...options, headers }));
      }),
    );
    return runs;
  }

  /** Asserts that the client got exactly the specified reply. */
  #assertReply({ cell: { name, each, fault, recovers }, marker }: Run, reply: Reply, connection: Connection): void {
    const isWell = !fault || (recovers && mayBeSentAgain(each, connection));
    const [status, body] = isWell
      ? [each.status, each.passesBody ? bodyOf(marker) : each.body]
      : expectedReply(fault, each, marker);
    try {
      assertReply(reply, status, body);
      assert.equal(reply.header('x-request-id'), marker);
      assert.equal(reply.header('connection'), 'keep-alive', 'the client keeps its connection');
      const rest = reply.headers.filter(([key]) => key !== 'x-request-id');
      assert.doesNotMatch(JSON.stringify([reply.statusLine, rest]), /m\d+x/, 'no header of the backend');
    } catch (error) {
      throw new Error(`${name}, ${connection}: ${String(error)}`, { cause: error });
    }
  }

  /** Asserts that the call was sent once, or twice where D20 allows it. Returns the first connection's number. */
  #assertSent({ name, each, fault }: Cell, marker: string, connection: Connection): number {
    const sent = this.#target.backend.requests.filter((request) => request.header('x-request-id') === marker);
    const isAgain = fault?.isSilentDeath === true && mayBeSentAgain(each, connection);
    assert.deepEqual(
      sent.map(({ method, indexOnConnection }) => `${method}, ${indexOnConnection > 0 ? 'reused' : 'fresh'}`),
      isAgain ? [`${each.method}, reused`, `${each.method}, fresh`] : [`${each.method}, ${connection}`],
      `the requests to the backend: ${name}, ${connection}`,
    );
    const [first, second = first] = sent;
    assert.equal(second?.head, first?.head, 'the same request');
    return first?.connection ?? -1;
  }

  async #connect(count: number): Promise<void> {
    while (this.#clients.length < count) this.#clients.push(await this.#target.connect());
  }

  #client(index: number): RawClient {
    const client = this.#clients[index];
    assert.ok(client);
    return client;
  }

  /** Opens at least `count` connections to the backend: each serves a call and is then idle. */
  async #fill(count: number): Promise<void> {
    const { backend } = this.#target;
    // After a backend that is down, writes use all connections again.
    await this.#connect(1);
    await backend.stop();
    await this.#client(0).call('GET', '/api/work-items');
    await backend.restart();
    // On a busy machine some calls miss a short deadline, so repeat until enough connections are open.
    for (let attempt = 0; backend.connectionsOpen < count; attempt += 1) {
      assert.ok(attempt < 20, `${count} idle connections`);
      await this.#call(Array<Cell>(count).fill(goodCall(operation(1))), () => undefined);
    }
  }
}

/** True for a GET on a reused connection [D20]. */
function mayBeSentAgain(each: Operation, connection: Connection): boolean {
  return connection === 'reused' && each.method === 'GET';
}

/** The client's reply if the backend answers `status` and, where allowed, `body` [D15 to D18; spec 7, rule 1]. */
function expectedOf(status: number, each: Operation, body: string): [status: number, body: string] {
  const isInterim = status >= 100 && status < 200 && status !== 101;
  if (isInterim || (status >= 200 && status < 300 && !(status === 204 && each.passesBody))) {
    return [each.status, each.passesBody ? body : succeeded];
  }
  return status === 404 && each === operation(3) ? [404, itemNotFound] : [500, each.failure];
}

function answerWith(status: number, body: string): Answer {
  if (status >= 100 && status < 200) return informational([status], answerBytes(body));
  if (status === 204 || status === 304) return raw(`HTTP/1.1 ${status} Scripted\r\n\r\n`);
  return answer(body, { status, headers: status >= 300 && status < 400 ? [['Location', '/api/WorkItem/9']] : [] });
}

describe('within the deadline', () => {
  forEachTarget(
    (target) => {
      test('statuses 000 to 999 have the specified outcomes [D15 to D18; spec 7, rule 1]', async () => {
        const { backend } = target();
        backend.answers((exchange) => {
          const marker = exchange.request.header('x-request-id') ?? '';
          return answerWith(Number.parseInt(marker), bodyOf(marker))(exchange);
        });
        await Promise.all(
          operations.map(async (each, index) => {
            await using client = await target().connect();
            for (let status = 0; status < 1000; status += 1) {
              // Statuses that are not 100 to 599 have one rule for all operations, so one operation tests them.
              if ((status < 100 || status >= 600) && status % operations.length !== index) continue;
              const marker = `${String(status).padStart(3, '0')}-${index}`;
              const options = { ...each.options, headers: [['X-Request-Id', marker]] as const };
              const reply = await client.call(each.method, each.path, options);
              assertReply(reply, ...expectedOf(status, each, bodyOf(marker)));
              assert.equal(reply.header('x-request-id'), marker);
            }
          }),
        );
        const markers = backend.requests.map((request) => request.header('x-request-id'));
        assert.equal(new Set(markers).size, markers.length, 'no call was sent twice');
      });

      for (const each of operations) {
        test(`operation ${each.name}: bytes that a backend sends before the request are the answer to the first call on that connection, and to no other call [D18]`, async () => {
          const { backend } = target();
          await closeConnections(backend);
          backend.greeting = answerBytes('{"early":true}');
          backend.answers(good('late'));
          assertReply(
            await target().call(each.method, each.path, each.options),
            each.status,
            each.passesBody ? '{"early":true}' : succeeded,
          );
          backend.greeting = undefined;
          await backend.until(() => backend.connectionsOpen === 0, 'the connection is closed');
          backend.answers(good('next'));
          for (const { method, path, options, status, passesBody } of operations) {
            const reply = await target().call(method, path, options);
            assertReply(reply, status, passesBody ? bodyOf('next') : succeeded);
          }
        });
      }

      for (const each of operations.filter(({ options }) => options.body !== undefined)) {
        const body = `"${'x'.repeat(500_000)}"`;
        for (const [name, act, status, text] of [
          ['is answered', good('early'), each.status, each.passesBody ? bodyOf('early') : succeeded],
          ['is refused', answer(bodyOf('early'), { status: 413 }), 500, each.failure],
          ['is cut off by a reset', resetPeer(), 500, each.failure],
          ['is cut off by a close', rawThenClose(''), 500, each.failure],
        ] as const) {
          test(`operation ${each.name}: a request that ${name} before its body has arrived is not sent twice [D18, D20]`, async () => {
            const { backend } = target();
            for (const connection of connections) {
              if (connection === 'fresh') await closeConnections(backend);
              else await target().settle();
              let heads = 0;
              let ended: Promise<void> | undefined;
              backend.answersAtHead = (exchange) => {
                if (exchange.request.method === each.method) heads += 1;
                if (name.startsWith('is cut off')) ended = exchange.closed;
                return act(exchange);
              };
              await using client = await target().connect();
              assertReply(await client.call(each.method, each.path, { body }), status, text);
              backend.answersAtHead = undefined;
              // The rest of the body arrives before the next call.
              await ended;
              await target().settle();
              assertReply(await client.call('GET', '/api/work-items'), 200, '[]');
              assert.equal(heads, 1, connection);
            }
          });
        }
      }

      for (const connection of connections) {
        for (const [kind, faults] of Object.entries(promptKinds)) {
          test(`${kind}: each fault has the specified outcome on ${connection} connections [spec 7; D15 to D18, D20]`, async () => {
            using matrix = new Matrix(target());
            await matrix.run(cellsOf(faults), connection);
          });
        }

        for (const fault of slow) {
          test(`each call succeeds with the fault "${fault.name}" on ${connection} connections [spec 7]`, async () => {
            using matrix = new Matrix(target());
            await matrix.run(cellsOf([fault]), connection);
          });
        }

        test(`if the head of an answer decides the reply, the client gets the reply immediately, even if the answer stops or never ends, on ${connection} connections [D17]`, async () => {
          using matrix = new Matrix(target());
          await matrix.run(
            cellsOf(stalls, (fault, each) => !fault.waits(each)),
            connection,
          );
        });

        test(`if the backend's port is closed, each call gets its operation's 500, on ${connection} connections [spec 7, D20]`, async () => {
          using matrix = new Matrix(target());
          await matrix.runRefused(connection);
        });
      }
    },
    { backendIdleTimeoutMs, responseBytesMax },
  );
});

describe('at the deadline', () => {
  forEachTarget(
    (target) => {
      for (const connection of connections) {
        test(`if the part of an answer that decides the reply does not arrive before the deadline, the client gets the operation's 500, on ${connection} connections [D19]`, async () => {
          const cells = cellsOf(stalls, (fault, each) => fault.waits(each));
          using matrix = new Matrix(target());
          await matrix.run(cells, connection);
        });
      }
    },
    { backendTimeoutMs: deadlineMs, backendIdleTimeoutMs, responseBytesMax },
  );
});
