// Fuzzes clients' connections: `npm run fuzz -- connections`. Sends generated requests in random pieces over real
// sockets, then FIN, a reset or nothing. Half of the requests are mutated. The server answers at random moments. Checks
// that each reply comes once and in order, that nothing follows the last reply, that each request gets a reply or the
// event that its client has gone, and that every connection ends. The seed and each finding are printed; a finding
// gives exit code 1.

import { once } from 'node:events';
import { connect, type AddressInfo, type Socket } from 'node:net';
import { parseArgs } from 'node:util';
import { BorrowedBytes } from '../../packages/core/http1/borrowed-bytes.ts';
import type { RequestHead } from '../../packages/core/http1/head.ts';
import { ClientListener } from '../../packages/core/hosts/clients/client-listener.ts';
import type { Requester, RequestReceiver, RequestHandler, Transport } from '../../packages/core/http1/transport.ts';
import { createReplyHead } from '../../packages/core/http1/writer.ts';
import { accounted } from '../helpers/leftovers.ts';
import { createChoices, createRequests, httpParts } from '../wire/http-messages.ts';
import { readRequests } from '../wire/http-readings.ts';
import { createRandom, mutate } from '../json/texts.ts';

const { values } = parseArgs({
  options: { seconds: { type: 'string', default: '60' }, seed: { type: 'string', default: String(Date.now()) } },
});
const random = createRandom(Number(values.seed));
const choices = createChoices(random);
const { below, chance, pick } = choices;

const atOnce = 40;
const findingsMax = 10;
// Longer than any connection here lasts, including the 5 s after a last reply.
const stuckMs = 12_000;
const requestHeadBytesMax = 4_096;
const largeReply = Buffer.alloc(300_000, 'z');

let findings = 0;

function report(what: string, connection: Connection): void {
  findings += 1;
  console.log(`${what}\n  ${JSON.stringify(connection.text).slice(0, 1_000)}`);
  process.exitCode = 1;
}

/** One request, answered at a random moment. */
class Received implements RequestReceiver {
  readonly head: RequestHead;
  readonly id: string;
  state: 'new' | 'coming' | 'whole' | 'broken' = 'new';
  isReplied = false;
  isGone = false;
  isCut = false;
  releasedCount = 0;
  readonly isLast: boolean;
  readonly #transport: Transport;
  readonly #connection: Connection;
  readonly #moment = pick(['start', 'body', 'end', 'end', 'later', 'microtask']);
  readonly #isLarge = chance(0.05);
  readonly #cuts = chance(0.01);
  readonly #asks = chance(0.8);

  constructor(head: RequestHead, transport: Transport, connection: Connection) {
    this.head = head;
    this.#transport = transport;
    this.#connection = connection;
    this.id = String(connection.received.length);
    this.isLast = chance(0.05);
  }

  get isOver(): boolean {
    return this.isReplied || this.isGone || this.isCut;
  }

  #expect(isSo: boolean, what: string): void {
    if (!isSo) report(`request ${this.id}, ${this.state}: ${what}`, this.#connection);
  }

  readonly #answer = (): void => {
    if (this.isOver) return;
    if (this.#cuts) {
      this.isCut = true;
      this.#transport.cut();
      return;
    }
    this.isReplied = true;
    const body = this.#isLarge ? largeReply : Buffer.from(this.id);
    this.#transport.reply({
      head: createReplyHead(200, []),
      added: [],
      requestId: this.id,
      body: new BorrowedBytes([body], { drop: () => (this.releasedCount += 1) }),
      closes: this.isLast,
      drains: false,
    });
  };

  start(): void {
    const before = this.#connection.received.at(-2);
    this.#expect(this.state === 'new', 'started twice');
    this.#expect(before === undefined || before.isReplied, 'started before the previous request had its reply');
    this.state = 'coming';
    if (this.#asks) this.#transport.readBody();
    if (this.#moment === 'later') setTimeout(this.#answer, below(8));
    else if (this.#moment === 'start') this.#answer();
    else if (this.#moment === 'microtask' && this.head.bodyLength === 0) queueMicrotask(this.#answer);
    else if (this.head.bodyLength === 0) this.#answer();
  }

  onBody(piece: Buffer): void {
    this.#expect(this.state === 'coming' && !this.isGone && piece.length > 0, 'must not get a piece of its body now');
    if (this.#moment === 'body') this.#answer();
  }

  onBodyEnd(): void {
    this.#expect(this.state === 'coming' && !this.isGone, 'must not get the end of its body now');
    this.state = 'whole';
    if (this.#moment !== 'later') this.#answer();
  }

  onBroken(): void {
    this.#expect(this.state === 'coming' && !this.isGone && !this.isReplied, 'must not be broken off now');
    this.state = 'broken';
    setTimeout(this.#answer, below(3));
  }

  onGone(): void {
    this.#expect(!this.isGone && !this.isReplied, 'must not get the event that its client has gone');
    this.isGone = true;
  }

  onStall(): void {
    this.#expect(false, 'must not stall');
  }
}

/** One connection: the text that is sent on it, and the requests that arrive. */
class Connection {
  readonly text: string;
  readonly received: Received[] = [];
  refusedCount = 0;

  constructor(text: string) {
    this.text = text;
  }
}

const byPort = new Map<number | undefined, Connection>();
const byClient = new WeakMap<Requester, Connection>();

// Remembers the connection of each client, since a reset socket no longer has a port.
function connectionOf(client: Requester): Connection {
  const known = byClient.get(client);
  const { socket } = client as Requester & { readonly socket: Socket };
  const connection = known ?? byPort.get(socket.remotePort) ?? new Connection('(unknown, because the client has gone)');
  byClient.set(client, connection);
  return connection;
}

const handler: RequestHandler = {
  accept: (head, transport, client) => {
    const connection = connectionOf(client);
    const received = new Received(head, transport, connection);
    connection.received.push(received);
    return received;
  },
  refuse: (_reason, client) => {
    const connection = connectionOf(client);
    connection.refusedCount += 1;
    const last = connection.received.at(-1);
    if (connection.refusedCount > 1 || (last?.isReplied === true && (last.isLast || !last.head.persists))) {
      report('a request was refused after the last reply', connection);
    }
    return {
      head: createReplyHead(400, []),
      added: [],
      requestId: 'refused',
      body: BorrowedBytes.ofConstant(Buffer.from('no')),
      closes: true,
      drains: false,
    };
  },
  onFault: (error) => report(`a fault: ${String(error)}`, new Connection('unknown')),
};

const server = new ClientListener(
  {
    requestHeadBytesMax,
    requestBytesMax: 5_000,
    requestHeadersTimeoutMs: 60_000,
    requestTimeoutMs: 60_000,
    replyStallTimeoutMs: 60_000,
    idleTimeoutMs: 60_000,
    connectionsMax: 2 * atOnce,
  },
  handler,
);
server.listener.on('connection', (socket) => {
  const connection = byPort.get(socket.remotePort);
  socket.on('error', (error: NodeJS.ErrnoException) => {
    if (connection !== undefined && error.code !== 'ECONNRESET' && error.code !== 'EPIPE') {
      report(`a socket error: ${error.code ?? error.message}`, connection);
    }
  });
});

/** The ids of the replies in `bytes`, with `!` if the reply closes the connection; `...` for an incomplete reply. */
function idsOf(bytes: Buffer, { received }: Connection): string[] {
  const text = bytes.toString('latin1').replaceAll('HTTP/1.1 100 Continue\r\n\r\n', '');
  const ids: string[] = [];
  for (let at = 0; at < text.length;) {
    const headEnd = text.indexOf('\r\n\r\n', at);
    const head = text.slice(at, headEnd);
    const id = /\r\nx-request-id: (\w+)/.exec(head)?.[1];
    if (headEnd < 0 || id === undefined) return [...ids, '...'];
    const hasBody = received[Number(id)]?.head.method !== 'HEAD';
    const length = hasBody ? Number(/content-length: (\d+)/.exec(head)?.[1]) : 0;
    at = headEnd + 4 + length;
    ids.push(at > text.length ? '...' : id + (head.includes('\r\nconnection: close') ? '!' : ''));
  }
  return ids;
}

function createText(): Buffer {
  const parts = Array.from({ length: 1 + below(4) }, () => createRequests(choices));
  const copies = chance(0.03) ? 60 : 1;
  const bytes = Buffer.concat(Array.from({ length: copies }, () => parts).flat());
  return chance(0.5) ? mutate(bytes, createRequests(choices), random, httpParts) : bytes;
}

function wait(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms));
}

async function runOne(): Promise<void> {
  const bytes = createText();
  const connection = new Connection(bytes.toString('latin1'));
  const { port } = server.listener.address() as AddressInfo;
  const socket = connect({ port, host: '127.0.0.1', allowHalfOpen: true, noDelay: true });
  const arrived: Buffer[] = [];
  const seen = { isOver: false, wasReset: false };
  socket
    .on('connect', () => byPort.set(socket.localPort, connection))
    .on('data', (piece: Buffer) => arrived.push(piece))
    .on('end', () => (seen.isOver = true))
    .on('close', () => (seen.isOver = true))
    .on('error', () => (seen.wasReset = true));
  await once(socket, 'connect');
  for (let at = 0; at < bytes.length && !socket.destroyed;) {
    const length = pick([1, 3, 20, 200, 5_000, bytes.length]);
    socket.write(bytes.subarray(at, at + length));
    at += length;
    if (chance(0.3)) await wait(0);
  }
  const ids = (): string[] => idsOf(Buffer.concat(arrived), connection);
  const { received } = connection;
  const startedAt = performance.now();
  const waitUntil = async (isSo: () => boolean, what: string): Promise<void> => {
    while (!isSo()) {
      if (performance.now() - startedAt > stuckMs) {
        report(`${what}: ${received.length} requests arrived, and the replies ${ids().join()}`, connection);
        return;
      }
      await wait(2);
    }
  };
  const ending = pick(['FIN', 'FIN later', 'reset', 'none', 'none']);
  if (ending === 'FIN later') await wait(below(15));
  if (ending === 'reset') {
    await wait(below(5));
    socket.resetAndDestroy();
  } else if (ending === 'none') {
    // Waits until all complete requests are answered, or the connection has ended.
    const reading = readRequests([Buffer.from(bytes)], { headBytesMax: requestHeadBytesMax });
    await waitUntil(
      () =>
        seen.isOver ||
        (reading.flaw === undefined &&
          received.length >= reading.messages.length &&
          received.every((each) => each.isOver || (each.state === 'coming' && each.head.bodyLength !== 0)) &&
          ids().length >= received.filter(({ isReplied }) => isReplied).length &&
          ids().at(-1) !== '...'),
      'not all requests get a reply',
    );
    const replied = received.filter(({ isReplied }) => isReplied).length;
    const whole = ids().filter((id) => id !== '...' && !id.startsWith('refused')).length;
    if (!seen.wasReset && whole < replied && !received.some(({ isCut }) => isCut)) {
      report(`only ${whole} of ${replied} replies arrived`, connection);
    }
  }
  socket.end();
  await waitUntil(() => seen.isOver, 'the connection does not end');
  socket.destroy();
  await wait(50);
  const came = ids().filter((id) => id !== '...');
  if (came.some((id, index) => id.replace('!', '') !== String(index) && !id.startsWith('refused'))) {
    report(`the replies are out of order: ${came.join()}`, connection);
  }
  if (came.slice(0, -1).some((id) => id.endsWith('!'))) {
    report(`a reply follows a reply that closes the connection: ${came.join()}`, connection);
  }
  for (const each of received) {
    if (!each.isOver)
      report(`request ${each.id} got neither a reply nor the event that its client has gone`, connection);
    if (each.releasedCount !== (each.isReplied ? 1 : 0)) {
      report(`the body of the reply to request ${each.id} was released ${each.releasedCount} times`, connection);
    }
  }
  byPort.delete(socket.localPort);
}

console.log(`seed ${values.seed}, ${values.seconds} s`);
await once(server.listener.listen(0, '127.0.0.1'), 'listening');
const account = accounted({ clients: server, [Symbol.asyncDispose]: () => Promise.resolve() });
const end = performance.now() + Number(values.seconds) * 1_000;
let count = 0;
await Promise.all(
  Array.from({ length: atOnce }, async () => {
    while (performance.now() < end && findings < findingsMax) {
      count += 1;
      await runOne();
    }
  }),
);
await account[Symbol.asyncDispose]().catch((error: unknown) => report(String(error), new Connection('all')));
console.log(`${count} connections, ${findings} findings`);
server.closeAll();
server.listener.close();
