// Clients of the fleet. Each client has its own address and a persistent connection, calls at a constant rate, and
// repeats no call. The result of each call is recorded.

import { RawClient, requestBytes } from '../helpers/raw-client.ts';
import { clientAddress } from './network.ts';

export interface FleetCall {
  readonly method: 'GET' | 'POST' | 'PUT' | 'DELETE';
  /** Its unique request id. */
  readonly marker: string;
  /** On the clock of `performance.now()`. */
  readonly sentAt: number;
  readonly endedAt: number;
  /** The status. `none`: the connection ended before the reply was complete. */
  readonly end: number | 'none' | 'timeout' | 'no connection' | 'wrong reply';
}

const timeoutMs = 10_000;

// Half of the calls are reads.
const turns = [
  ['GET', '/api/work-items/7', undefined],
  ['POST', '/api/work-items', '{"title":"Paint the fence"}'],
  ['GET', '/api/work-items', undefined],
  ['PUT', '/api/work-items/7', '{"title":"Paint the fence"}'],
  ['GET', '/api/work-items/7', undefined],
  ['DELETE', '/api/work-items/7', undefined],
] as const;

const expectedStatus = { GET: 200, POST: 201, PUT: 200, DELETE: 200 } as const;

/** True if the reply was a success. */
export function isServed({ method, end }: FleetCall): boolean {
  return end === expectedStatus[method];
}

/** The address to which clients connect. */
export interface Balancer {
  readonly address: string;
  readonly port: number;
  /** The token of a call. */
  readonly token?: () => string;
}

/** One client: `call` opens a connection if none is open. */
export class FleetClient {
  readonly #balancer: Balancer;
  readonly #address: string;
  #connection: RawClient | undefined;

  /** `address`: its own. */
  constructor(balancer: Balancer, address: string) {
    this.#balancer = balancer;
    this.#address = address;
  }

  /** Makes the call of this turn, and never rejects. */
  async call(turn: number, marker: string): Promise<FleetCall> {
    const [method, path, body] = turns[turn % turns.length] ?? turns[0];
    let sentAt = performance.now();
    const ended = (end: FleetCall['end']): FleetCall => ({ method, marker, sentAt, endedAt: performance.now(), end });
    // A connection that was closed while idle is not a failure: the client opens another one.
    if (this.#connection?.isOpen !== true) {
      this.close();
      try {
        this.#connection = await RawClient.open(this.#balancer.port, this.#balancer.address, this.#address);
      } catch {
        return ended('no connection');
      }
      sentAt = performance.now();
    }
    const connection = this.#connection;
    const token = this.#balancer.token?.();
    const headers = [
      ['X-Request-Id', marker],
      ...(token === undefined ? [] : [['Authorization', `Bearer ${token}`] as const]),
    ] as const;
    connection.send(requestBytes(method, path, { headers, ...(body !== undefined && { body }) }));
    try {
      const reply = await connection.reply({ limitMs: timeoutMs });
      if (reply.header('connection')?.toLowerCase() === 'close') this.close();
      const expected = method === 'GET' || method === 'POST' ? `{"marker":"${marker}"}` : '{"success":true}';
      return ended(reply.status === expectedStatus[method] && reply.text !== expected ? 'wrong reply' : reply.status);
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
  readonly balancer: Balancer;
  readonly clients: number;
  /** Between two calls of a client. */
  readonly periodMs: number;
}

/** Runs all clients until `stop`. */
export class FleetLoad {
  readonly calls: FleetCall[] = [];
  readonly #running: Promise<void>[];
  #isOver = false;

  constructor({ balancer, clients, periodMs }: LoadOptions) {
    const startedAt = performance.now();
    this.#running = Array.from({ length: clients }, async (_, index) => {
      const client = new FleetClient(balancer, clientAddress(index));
      // The clients are spread evenly over the period. A late client does not catch up.
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

  /** Makes no further call and resolves when calls in flight have ended. */
  async stop(): Promise<void> {
    this.#isOver = true;
    await Promise.all(this.#running);
  }
}
