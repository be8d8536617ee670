// `ClientListener` over real sockets, with a handler that runs a test's script.

import assert from 'node:assert/strict';
import { once } from 'node:events';
import type { AddressInfo } from 'node:net';
import type { TestContext } from 'node:test';
import { BorrowedBytes } from '../../packages/core/http1/borrowed-bytes.ts';
import { fieldValue, type RequestHead } from '../../packages/core/http1/head.ts';
import type { ServerLimits } from '../../packages/core/http1/connection.ts';
import { ClientListener } from '../../packages/core/hosts/clients/client-listener.ts';
import type { BrokenReason, RequestReceiver, RequestHandler, Transport } from '../../packages/core/http1/transport.ts';
import { currentTurn } from '../../packages/core/http1/turns.ts';
import { createReplyHead } from '../../packages/core/http1/writer.ts';
import { poll } from '../helpers/changes.ts';
import '../helpers/connection-states.ts';
import { bytesOf, RawClient, requestBytes } from '../helpers/raw-client.ts';

interface ReplyOptions {
  readonly status?: number;
  readonly closes?: boolean;
  readonly drains?: boolean;
  readonly pieces?: readonly Buffer[];
}

/** A request, and the events that its handler received. */
export class Received implements RequestReceiver {
  readonly head: RequestHead;
  readonly transport: Transport;
  readonly #body: Buffer[] = [];
  /** `start`, `body` (once for consecutive pieces), `end`, `gone`, `stall`, `taken`, or why the request was broken. */
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
    // The piece is not copied: a handler may keep it, so the server must not write to its memory later.
    this.#body.push(piece);
    if (this.events.at(-1) !== 'body') this.events.push('body');
    this.#script.onBody?.(this, piece);
  }

  onBodyEnd(): void {
    this.events.push('end');
    this.#script.onBodyEnd?.(this);
  }

  onBroken(reason: BrokenReason): void {
    this.events.push(eventOf(reason));
    this.#script.onBroken?.(this);
  }

  onGone(): void {
    this.events.push('gone');
    this.#script.onGone?.(this);
  }

  onStall(): void {
    this.events.push('stall');
  }

  reply(text: string, options: ReplyOptions = {}) {
    const { status = 200, closes = false, drains = false, pieces = [Buffer.from(text)] } = options;
    this.transport.reply({
      head: createReplyHead(status, ['content-type', 'text/plain']),
      added: [],
      requestId: fieldValue(this.head.fields, 'x-request-id') ?? 'none',
      body: new BorrowedBytes(pieces, { drop: () => this.events.push('taken') }),
      closes,
      drains,
    });
  }
}

function eventOf(reason: BrokenReason): string {
  if (typeof reason === 'string') return reason;
  return reason.kind === 'head-too-large' ? reason.kind : 'malformed';
}

/** Functions that the handler calls for its events, and its reply to a refused request. */
export interface Script {
  onStart?: (received: Received) => void;
  onBody?: (received: Received, piece: Buffer) => void;
  onBodyEnd?: (received: Received) => void;
  onBroken?: (received: Received) => void;
  onGone?: (received: Received) => void;
  onRefuse?: () => void;
  readonly refusal?: Buffer;
  /** `closes` of the reply `refusal`; default: true. */
  readonly refusalCloses?: boolean;
}

/** Limits that no test reaches by accident. */
export const noLimits: ServerLimits = {
  requestHeadBytesMax: 16_384,
  requestBytesMax: 1_000_000,
  requestHeadersTimeoutMs: 60_000,
  requestTimeoutMs: 60_000,
  replyStallTimeoutMs: 60_000,
  idleTimeoutMs: 60_000,
  connectionsMax: 100,
};

/** A handler that runs `script`, and the requests, refusals and faults that it has received. */
export function createHandler(script: Script) {
  const received: Received[] = [];
  const refused: BrokenReason[] = [];
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
      const event = eventOf(reason);
      const status = event === 'timeout' ? 408 : event === 'malformed' ? 400 : 431;
      return {
        head: createReplyHead(status, []),
        added: [],
        requestId: 'refused',
        body: BorrowedBytes.ofConstant(script.refusal ?? Buffer.from(status === 408 ? 'late' : 'no')),
        closes: script.refusalCloses ?? true,
        drains: false,
      };
    },
    onFault: (error) => faults.push(error),
  };
  /** Waits for the request with this index. */
  const request = async (index: number): Promise<Received> => {
    await poll(() => received.length > index, `request ${index}`);
    return received[index] ?? assert.fail();
  };
  return { handler, received, refused, faults, request };
}

export async function serve(t: TestContext, script: Script = {}, limits: Partial<ServerLimits> = {}) {
  const { handler, request, ...told } = createHandler(script);
  const server = new ClientListener({ ...noLimits, ...limits }, handler);
  await once(server.listener.listen(0, '127.0.0.1'), 'listening');
  t.after(() => {
    server.closeAll();
    server.listener.close();
  });
  const { port } = server.listener.address() as AddressInfo;
  const connect = async (): Promise<RawClient> => {
    const client = await RawClient.open(port);
    t.after(() => client.destroy());
    return client;
  };
  return {
    ...told,
    server,
    connect,
    request,
    /** A client and the server's end of its connection. */
    connectBoth: async () => {
      const before = new Set(server);
      const find = () => [...server].find((each) => !before.has(each));
      const client = await connect();
      await poll(() => find() !== undefined, 'the connection is accepted');
      const connection = find();
      assert.ok(connection);
      return { client, connection };
    },
    /** Replies to the request with this index and asserts that the client receives that reply next. */
    exchange: async (client: RawClient, index: number, text: string): Promise<void> => {
      (await request(index)).reply(text);
      await assertReplies(client, text);
    },
  };
}

/** The result of `serve`, with a client and the server's end of its connection. */
export async function serveOne(t: TestContext, script?: Script, limits?: Partial<ServerLimits>) {
  const served = await serve(t, script, limits);
  return { ...served, ...(await served.connectBoth()) };
}

/** Answers each request with its target and body. */
export const echo: Script = {
  onStart: (received) => {
    if (received.head.bodyLength === 0) received.reply(received.head.target);
  },
  onBodyEnd: (received) => received.reply(`${received.head.target} ${received.body}`),
};

export function get(target: string, headers: readonly [string, string][] = []): Buffer {
  return requestBytes('GET', target, { headers });
}

/** Requests for /0, /1 and so on. */
export function gets(count: number, headers: readonly [string, string][] = []): Buffer {
  return Buffer.concat(Array.from({ length: count }, (_, index) => get(`/${index}`, headers)));
}

/** The head of a PUT with a body of this length. */
export function put(target: string, length: number | 'chunked'): string {
  const framing = length === 'chunked' ? 'Transfer-Encoding: chunked' : `Content-Length: ${length}`;
  return `PUT ${target} HTTP/1.1\r\nHost: x\r\n${framing}\r\n\r\n`;
}

export function join(...parts: readonly (string | Uint8Array)[]): Buffer {
  return Buffer.concat(parts.map(bytesOf));
}

/** Asserts the texts of the next replies. */
export async function assertReplies(client: RawClient, ...texts: readonly string[]): Promise<void> {
  for (const text of texts) assert.equal((await client.reply()).text, text);
}

/** Asserts that the connection ends without a reset, and without unread bytes. */
export async function assertEnds(client: RawClient): Promise<void> {
  assert.equal(await client.closed(), 'end');
  assert.equal(client.unread.length, 0);
}

/** Asserts that the next reply closes the connection and is its last. */
export async function assertLastReply(client: RawClient, status: number, text?: string): Promise<void> {
  const reply = await client.reply();
  assert.deepEqual([reply.status, reply.header('connection')], [status, 'close']);
  if (text !== undefined) assert.equal(reply.text, text);
  await assertEnds(client);
}

/** Replaces `performance.now()` with a clock that only the test advances. `reads`: how often it was read. */
export function stopClock(t: TestContext): { now: number; reads: number } {
  const clock = { now: 10_000, reads: 0 };
  t.mock.method(performance, 'now', () => {
    clock.reads += 1;
    return clock.now;
  });
  return clock;
}

export async function turn(): Promise<void> {
  await new Promise((resolve) => setImmediate(resolve));
}

export async function turns(count: number): Promise<void> {
  for (let round = 0; round < count; round += 1) await turn();
}

/** Counts events in each turn of the event loop. */
export class TurnCounter {
  /** The most events in one turn. */
  most = 0;
  inTurn = 0;
  #turn = 0;

  count(by = 1): void {
    if (this.#turn !== currentTurn()) this.inTurn = 0;
    this.#turn = currentTurn();
    this.inTurn += by;
    this.most = Math.max(this.most, this.inTurn);
  }
}
