// The server of clients' connections over real sockets, with a handler that does what a test tells it.

import assert from 'node:assert/strict';
import { once } from 'node:events';
import type { AddressInfo } from 'node:net';
import type { TestContext } from 'node:test';
import { fieldValue, type RequestHead } from '../../packages/core/http1/head.ts';
import type { ServerLimits } from '../../packages/core/http1/connection.ts';
import { ClientServer } from '../../packages/core/http1/server.ts';
import type { Broken, Incoming, RequestHandler, Transport } from '../../packages/core/http1/transport.ts';
import { createReplyHead } from '../../packages/core/http1/writer.ts';
import { poll } from './changes.ts';
import { RawClient, requestBytes } from './raw-client.ts';

interface ReplyOptions {
  readonly status?: number;
  readonly closes?: boolean;
  readonly pieces?: readonly Buffer[];
}

/** A request as the handler got it, and what it was told of it since. */
export class Received implements Incoming {
  readonly head: RequestHead;
  readonly transport: Transport;
  readonly #body: Buffer[] = [];
  /** `start`, `body` (once), `end`, `gone`, `taken`, or why it was broken. */
  readonly events: string[] = [];
  readonly #script: Script;

  constructor(head: RequestHead, transport: Transport, script: Script) {
    this.head = head;
    this.transport = transport;
    this.#script = script;
  }

  get body(): string {
    return Buffer.concat(this.#body).toString('latin1');
  }

  get bodyBytes(): number {
    return this.#body.reduce((sum, piece) => sum + piece.length, 0);
  }

  start(): void {
    this.events.push('start');
    this.#script.onStart?.(this);
  }

  onBody(piece: Buffer): void {
    // A copy: whoever is told may keep the memory, and the test looks whether it stays as it is.
    this.#body.push(piece);
    if (this.events.at(-1) !== 'body') {
      this.events.push('body');
    }
    this.#script.onBody?.(this, piece);
  }

  onBodyEnd(): void {
    this.events.push('end');
    this.#script.onBodyEnd?.(this);
  }

  onBroken(reason: Broken): void {
    this.events.push(typeof reason === 'string' ? reason : reason.kind);
    this.#script.onBroken?.(this);
  }

  onGone(): void {
    this.events.push('gone');
    this.#script.onGone?.(this);
  }

  onStall(): void {
    this.events.push('stall');
  }

  reply(
    text: string,
    { status = 200, closes = false, pieces = [Buffer.from(text)] }: ReplyOptions = {},
  ): void {
    this.transport.reply(
      {
        head: createReplyHead(status, ['content-type', 'text/plain']),
        added: [],
        requestId: fieldValue(this.head.fields, 'x-request-id') ?? 'none',
        pieces,
        length: pieces.reduce((sum, piece) => sum + piece.length, 0),
        closes,
        drains: false,
      },
      () => this.events.push('taken'),
    );
  }
}

/** What the handler does, besides remembering. */
export interface Script {
  onStart?: (received: Received) => void;
  onBody?: (received: Received, piece: Buffer) => void;
  onBodyEnd?: (received: Received) => void;
  onBroken?: (received: Received) => void;
  onGone?: (received: Received) => void;
  onRefuse?: () => void;
  readonly refusal?: Buffer;
  /** What a refusal says of its connection (true). */
  readonly refusalCloses?: boolean;
}

/** Limits that no test meets by chance. */
export const noLimits: ServerLimits = {
  requestHeadBytesMax: 16_384,
  requestBytesMax: 1_000_000,
  requestHeadersTimeoutMs: 60_000,
  requestTimeoutMs: 60_000,
  replyStallTimeoutMs: 60_000,
  idleTimeoutMs: 60_000,
  connectionsMax: 100,
};

export async function serve(t: TestContext, script: Script = {}, limits: Partial<ServerLimits> = {}) {
  const received: Received[] = [];
  const refused: Broken[] = [];
  const faults: unknown[] = [];
  const handler: RequestHandler = {
    accept: (head, transport) => {
      const next = new Received(head, transport, script);
      received.push(next);
      return next;
    },
    refuse: (reason) => {
      refused.push(reason);
      script.onRefuse?.();
      const [status, text] =
        reason === 'timeout'
          ? [408, 'late']
          : [reason !== 'overload' && reason.kind === 'malformed' ? 400 : 431, 'no'];
      const body = script.refusal ?? Buffer.from(text);
      const { length } = body;
      return {
        head: createReplyHead(status, []),
        added: [],
        requestId: 'refused',
        pieces: [body],
        length,
        closes: script.refusalCloses ?? true,
        drains: false,
      };
    },
    onFault: (error) => faults.push(error),
  };
  const server = new ClientServer({ ...noLimits, ...limits }, handler);
  await once(server.listener.listen(0, '127.0.0.1'), 'listening');
  t.after(async () => {
    server.closeAll();
    server.listener.close();
    await once(server.listener, 'close');
  });
  const { port } = server.listener.address() as AddressInfo;
  return {
    server,
    port,
    received,
    refused,
    faults,
    connect: async (): Promise<RawClient> => {
      const client = await RawClient.open(port);
      t.after(() => {
        client.destroy();
      });
      return client;
    },
    /** A client and our end of its connection. */
    connectBoth: async () => {
      const before = new Set(server);
      const client = await RawClient.open(port);
      t.after(() => {
        client.destroy();
      });
      await poll(() => server.size > before.size, 'the connection has come');
      const connection = [...server].find((each) => !before.has(each));
      assert.ok(connection);
      return { client, connection };
    },
    /** The request with this index, when it has come. */
    request: async (index: number): Promise<Received> => {
      await poll(() => received.length > index, `request ${index}`);
      const found = received[index];
      assert.ok(found);
      return found;
    },
  };
}

/** Answers each request at once with its target. */
export const echo: Script = {
  onStart: (received) => {
    if (received.head.bodyLength === 0) received.reply(received.head.target);
  },
  onBodyEnd: (received) => {
    received.reply(`${received.head.target} ${received.body}`);
  },
};

export function get(target: string, headers: readonly [string, string][] = []): Buffer {
  return requestBytes('GET', target, { headers });
}

export async function turn(): Promise<void> {
  await new Promise((resolve) => setImmediate(resolve));
}

/** Counts what happens in each turn of the event loop. */
export class TurnCounter {
  readonly perTurn: number[] = [];
  #inTurn = 0;

  count(): void {
    if (this.#inTurn === 0) {
      setImmediate(() => {
        this.perTurn.push(this.#inTurn);
        this.#inTurn = 0;
      });
    }
    this.#inTurn += 1;
  }
}
