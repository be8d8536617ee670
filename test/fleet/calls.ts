// Clients of the fleet: each has an address of its own and a connection that it keeps, and calls at an even pace. Nothing is
// ever repeated; how each call ended is noted.

import { RawClient, requestBytes } from '../helpers/raw-client.ts';

export interface FleetCall {
  readonly method: 'GET' | 'POST' | 'PUT' | 'DELETE';
  /** Its request id, which no other call has. */
  readonly marker: string;
  /** On the clock of `performance.now()`. */
  readonly sentAt: number;
  readonly endedAt: number;
  /** `none`: the connection ended without a whole reply. `timeout`, `no connection` and `wrong reply` say what they are. */
  readonly end: number | 'none' | 'timeout' | 'no connection' | 'wrong reply';
}

const timeoutMs = 60_000;

// Half of them reads.
const turns = [
  ['GET', '/api/work-items/7', undefined],
  ['POST', '/api/work-items', '{"title":"Paint the fence"}'],
  ['GET', '/api/work-items', undefined],
  ['PUT', '/api/work-items/7', '{"title":"Paint the fence"}'],
  ['GET', '/api/work-items/7', undefined],
  ['DELETE', '/api/work-items/7', undefined],
] as const;

const expectedStatus = { GET: 200, POST: 201, PUT: 200, DELETE: 200 } as const;

/** Whether it got the reply of a success. */
export function isServed({ method, end }: FleetCall): boolean {
  return end === expectedStatus[method];
}

/** One client: `call` opens a connection where it has none that is open. */
export class FleetClient {
  readonly #port: number;
  readonly #address: string;
  #connection: RawClient | undefined;

  constructor(port: number, address: string) {
    this.#port = port;
    this.#address = address;
  }

  /** Makes the call of this turn, and never rejects. */
  async call(turn: number, marker: string): Promise<FleetCall> {
    const [method, path, body] = turns[turn % turns.length] ?? turns[0];
    let sentAt = performance.now();
    const ended = (end: FleetCall['end']): FleetCall => ({
      method,
      marker,
      sentAt,
      endedAt: performance.now(),
      end,
    });
    // One that was closed while nothing was on its way is no failure: the client has seen it.
    if (this.#connection?.isOpen !== true) {
      this.close();
      try {
        this.#connection = await RawClient.open(this.#port, '127.0.0.1', this.#address);
      } catch {
        return ended('no connection');
      }
      sentAt = performance.now();
    }
    const connection = this.#connection;
    const headers = [['X-Request-Id', marker]] as const;
    connection.send(requestBytes(method, path, { headers, ...(body !== undefined && { body }) }));
    try {
      const reply = await connection.reply({ limitMs: timeoutMs });
      if (reply.header('connection')?.toLowerCase() === 'close') this.close();
      const expected = method === 'GET' || method === 'POST' ? `{"marker":"${marker}"}` : '{"success":true}';
      return ended(
        reply.status === expectedStatus[method] && reply.text !== expected ? 'wrong reply' : reply.status,
      );
    } catch {
      const isLate = connection.isOpen;
      this.close();
      return ended(isLate ? 'timeout' : 'none');
    }
  }

  close(): void {
    this.#connection?.destroy();
    this.#connection = undefined;
  }
}

export interface LoadOptions {
  readonly port: number;
  readonly clients: number;
  /** From the end of one call's turn to the next, for each client. */
  readonly periodMs: number;
}

/** The address of client number `index`: 127.0.1.1 and on, which no proxy has. */
export function addressOf(index: number): string {
  return `127.0.${1 + Math.floor(index / 250)}.${1 + (index % 250)}`;
}

/** All clients, until `stop`. */
export class FleetLoad {
  readonly calls: FleetCall[] = [];
  readonly #running: Promise<void>[];
  #isOver = false;

  constructor({ port, clients, periodMs }: LoadOptions) {
    const startedAt = performance.now();
    this.#running = Array.from({ length: clients }, async (_, index) => {
      const client = new FleetClient(port, addressOf(index));
      // Evenly spread over the period. Who is late does not catch up: no client makes more calls than its pace.
      let dueAt = startedAt + (index / clients) * periodMs;
      for (let made = 0; ; made += 1) {
        const waitMs = dueAt - performance.now();
        if (waitMs > 0) await new Promise((resolve) => setTimeout(resolve, waitMs));
        if (this.#isOver) break;
        dueAt = Math.max(dueAt, performance.now()) + periodMs;
        this.calls.push(await client.call(index + made, `call-${index}-${made}`));
      }
      client.close();
    });
  }

  /** Makes no further call, and resolves when all that are on their way have ended. */
  async stop(): Promise<void> {
    this.#isOver = true;
    await Promise.all(this.#running);
  }
}
