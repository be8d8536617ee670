// The client side of HTTP/1.1 on real sockets, against a scripted server: how an exchange ends, and whether its
// connection can be used again. D18, D19, D20.

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer, type AddressInfo, type Socket } from 'node:net';
import { test, type TestContext } from 'node:test';

import { createOpenSocket, tapSockets, type SocketTap } from '../../packages/core/hosts/dialing/open-socket.ts';
import { BackendConnection, type ExchangeOwner } from '../../packages/core/http1/backend-connection.ts';
import { BorrowedBytes, noBody } from '../../packages/core/http1/borrowed-bytes.ts';
import type { AnswerHead, Flaw } from '../../packages/core/http1/head.ts';
import { poll } from '../helpers/changes.ts';

/** Records the events of one exchange. */
class Exchange implements ExchangeOwner {
  /** Names of events: `sent`, `head`, `body` (one entry for all pieces), `end, reusable`, `end`, `broken`, `fault`. */
  readonly events: string[] = [];
  head: AnswerHead | undefined;
  body = '';
  error: Error | Flaw | undefined;
  readonly faultAt: string | undefined;

  constructor(faultAt?: string) {
    this.faultAt = faultAt;
  }

  #tell(event: string): void {
    if (event !== 'body' || this.events.at(-1) !== 'body') this.events.push(event);
    if (event === this.faultAt) throw new Error(`a fault at ${event}`);
  }

  onSent(): void {
    this.#tell('sent');
  }

  onAnswerHead(head: AnswerHead): void {
    this.head = head;
    this.#tell('head');
  }

  onAnswerBody(piece: Buffer): void {
    this.body += piece.toString('latin1');
    this.#tell('body');
  }

  onAnswerEnd(isReusable: boolean): void {
    this.#tell(isReusable ? 'end, reusable' : 'end');
  }

  onBroken(error: Error | Flaw): void {
    this.error = error;
    this.#tell('broken');
  }

  onFault(): void {
    this.events.push('fault');
  }

  get last(): string | undefined {
    return this.events.at(-1);
  }
}

async function serve(t: TestContext, { isPaused = false } = {}) {
  const sockets: Socket[] = [];
  const received: string[] = [];
  const server = createServer({ allowHalfOpen: true, pauseOnConnect: isPaused }, (socket) => {
    const index = sockets.push(socket) - 1;
    received[index] = '';
    socket.on('error', () => undefined);
    if (!isPaused) {
      socket.on('data', (bytes: Buffer) => {
        received[index] = `${received[index] ?? ''}${bytes.toString('latin1')}`;
      });
    }
  });
  await once(server.listen(0, '127.0.0.1'), 'listening');
  t.after(async () => {
    for (const socket of sockets) socket.destroy();
    server.close();
    await once(server, 'close');
  });
  const { port } = server.address() as AddressInfo;
  /** The server's socket of the connection with this index. */
  const socket = async (index: number): Promise<Socket> => {
    await poll(() => sockets.length > index, 'a connection');
    const found = sockets[index];
    assert.ok(found);
    return found;
  };
  return {
    port,
    received,
    /** `tap` is called with the opened socket; the function that it returns is called when bytes arrive. */
    connect: async (tap: SocketTap = () => () => undefined) => {
      let closeCount = 0;
      const connection = await new Promise<BackendConnection>((resolve, reject) => {
        let opened: BackendConnection | undefined;
        tapSockets(
          createOpenSocket(new URL(`http://127.0.0.1:${port}`)),
          tap,
        )({
          onOpen: (socket) => {
            opened = new BackendConnection(socket, () => (closeCount += 1));
            resolve(opened);
          },
          onFailed: reject,
          onBytes: (bytes) => opened?.onBytes(bytes),
        });
      });
      t.after(() => connection.destroy());
      return { connection, closeCount: () => closeCount };
    },
    socket,
  };
}

/** Makes one exchange on a new connection and leaves the connection idle. `end` is the server's socket. */
async function beginIdle(t: TestContext, tap?: SocketTap) {
  const served = await serve(t);
  const opened = await served.connect(tap);
  const exchange = new Exchange();
  opened.connection.send(head, noBody, exchange);
  const end = await served.socket(0);
  end.write(small);
  await poll(() => exchange.last === 'end, reusable', 'the answer');
  return { ...served, ...opened, end };
}

/** Sends a request on a new connection. `isStuck`: the server does not read the request. */
async function begin(t: TestContext, { exchange = new Exchange(), body = [] as Buffer[], isStuck = false } = {}) {
  const served = await serve(t, { isPaused: isStuck });
  const opened = await served.connect();
  opened.connection.send(head, new BorrowedBytes(body), exchange);
  return { ...served, ...opened, exchange };
}

/** The options of `begin` for a request that exceeds all buffers. */
const stuck = { body: [Buffer.alloc(30_000_000)], isStuck: true };

const head = 'GET / HTTP/1.1\r\nhost: x\r\n\r\n';
const ok = 'HTTP/1.1 200 OK\r\n';
const ok10 = 'HTTP/1.0 200 OK\r\n';
const small = `${ok}Content-Length: 2\r\n\r\n[]`;

for (const [what, answer, body, isReusable] of [
  ['an answer with a Content-Length', small, '[]', true],
  ['an answer in chunks', `${ok}Transfer-Encoding: chunked\r\n\r\n1\r\n[\r\n1\r\n]\r\n0\r\n\r\n`, '[]', true],
  ['an answer after an interim answer', `HTTP/1.1 103 Hints\r\n\r\n${small}`, '[]', true],
  ['Connection: close', `${ok}Connection: close\r\nContent-Length: 2\r\n\r\n[]`, '[]', false],
  ['an HTTP/1.0 answer', `${ok10}Content-Length: 2\r\n\r\n[]`, '[]', false],
  ['an HTTP/1.0 answer with keep-alive', `${ok10}Connection: keep-alive\r\nContent-Length: 2\r\n\r\n[]`, '[]', true],
  ['an answer with a byte after its end', `${small}H`, '[]', false],
  ['a 204 answer with a body', 'HTTP/1.1 204 x\r\nContent-Length: 2\r\n\r\n[]', '', false],
] as const) {
  test(`${what}: the connection ${isReusable ? 'can' : 'cannot'} be used again`, async (t) => {
    const { connection, closeCount, exchange: first, socket, received } = await begin(t);
    const end = await socket(0);
    await poll(() => received[0] === head, 'the request');
    assert.equal(connection.isReusedAndSilent, false);
    end.write(answer);
    await poll(() => first.last?.startsWith('end') === true, 'the answer');
    assert.equal(first.last, isReusable ? 'end, reusable' : 'end');
    assert.equal(first.body, body);
    assert.equal(connection.isClosed, !isReusable);
    if (isReusable) {
      const second = new Exchange();
      connection.send(head, BorrowedBytes.ofConstant(Buffer.from('body')), second);
      await poll(() => received[0] === `${head}${head}body`, 'the next request');
      assert.equal(connection.isReusedAndSilent, true);
      end.write(small.slice(0, 3));
      await poll(() => !connection.isReusedAndSilent, 'its first bytes');
      end.write(small.slice(3));
      await poll(() => second.last === 'end, reusable', 'its answer');
    } else {
      await poll(() => closeCount() > 0, 'the connection closes');
    }
  });
}

test('the close of the connection ends an answer without a length, and breaks any other answer [D18]', async (t) => {
  for (const [answer, last] of [
    [`${ok}\r\n[]`, 'end'],
    [`${ok}Content-Length: 3\r\n\r\n[]`, 'broken'],
    [`${ok}Content-Le`, 'broken'],
    ['', 'broken'],
    ['HTTP/1.1 100 Continue\r\n\r\n', 'broken'],
  ] as const) {
    const { connection, exchange, socket } = await begin(t);
    (await socket(0)).end(answer);
    await poll(() => exchange.last === last, `${last} of ${JSON.stringify(answer)}`);
    assert.equal(connection.isClosed, true);
  }
});

test('an answer cut off while its request is being sent breaks the exchange at once [D19]', async (t) => {
  const { exchange, socket } = await begin(t, stuck);
  (await socket(0)).write('HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n[]');
  await poll(() => exchange.events.includes('body'), 'a part of the answer');
  (await socket(0)).end();
  await poll(() => exchange.last === 'broken', 'the break is reported');
  assert.ok(exchange.error instanceof Error);
  assert.equal(exchange.error.message, 'the connection was closed before the answer was complete');
});

test('an answer may arrive before its whole request has been sent; then the connection is not used again', async (t) => {
  const { connection, exchange, socket } = await begin(t, stuck);
  (await socket(0)).write(small);
  await poll(() => exchange.last === 'end', 'the answer');
  assert.equal(connection.isClosed, true);
});

test('a connection can be used again even if its request is flushed only in the event-loop turn of the answer, as happens over TLS', async (t) => {
  const { connect, socket } = await serve(t);
  let own: Socket | undefined;
  let onArrival = (): void => undefined;
  const { connection } = await connect((opened) => {
    own = opened;
    return () => onArrival();
  });
  const ask = async (): Promise<Exchange> => {
    const exchange = new Exchange();
    connection.send(head, noBody, exchange);
    // From now on the socket buffers its writes.
    own?.cork();
    const end = await socket(0);
    await poll(() => exchange.last === 'sent', 'the request');
    end.write(small);
    await poll(() => exchange.last?.startsWith('end') === true, 'the answer');
    return exchange;
  };
  // `uncork` runs before the connection checks again whether its request has been sent.
  onArrival = () => setImmediate(() => own?.uncork());
  for (const exchange of [await ask(), await ask()]) {
    assert.deepEqual(exchange.events, ['sent', 'head', 'body', 'end, reusable']);
  }
  onArrival = () => undefined;
  assert.equal((await ask()).last, 'end');
  assert.equal(connection.isClosed, true);
});

test('an owner that destroys the connection in onAnswerHead gets no more events, even if the whole answer has arrived', async (t) => {
  const { connect, socket } = await serve(t);
  const { connection, closeCount } = await connect();
  const exchange = new Exchange();
  exchange.onAnswerHead = () => connection.destroy();
  connection.send(head, noBody, exchange);
  (await socket(0)).write(small);
  await poll(() => closeCount() > 0, 'the connection closes');
  assert.deepEqual(exchange.events, ['sent']);
  assert.equal(connection.isClosed, true);
});

test('a malformed answer breaks the exchange with its `Flaw`, and no event follows [D18]', async (t) => {
  const { connection, exchange, socket } = await begin(t);
  (await socket(0)).write('HTTP/1.1 200 OK\n');
  await poll(() => exchange.last === 'broken', 'the break is reported');
  assert.ok(exchange.error !== undefined && 'kind' in exchange.error);
  assert.equal(exchange.error.kind, 'invalid-head');
  assert.equal(connection.isClosed, true);
  assert.deepEqual(exchange.events, ['sent', 'broken']);
});

test('unsolicited bytes close an idle connection and are never read as the next answer [D18]', async (t) => {
  const { connection, closeCount, received, end } = await beginIdle(t);
  end.write(small);
  await poll(() => connection.isClosed, 'the connection closes');
  await poll(() => closeCount() > 0, 'its close is reported');
  assert.equal(received[0], head);
});

test('nothing is sent on a failed connection, and the request can be sent on another connection [D20]', async (t) => {
  let own: Socket | undefined;
  const { connection, end } = await beginIdle(t, (opened) => {
    own = opened;
    return () => undefined;
  });
  const second = new Exchange();
  // `send` runs between the `error` and the `close` of the socket.
  own?.once('error', () =>
    connection.send('PUT / HTTP/1.1\r\n\r\n', BorrowedBytes.ofConstant(Buffer.from('body')), second),
  );
  end.resetAndDestroy();
  await poll(() => second.last === 'broken', 'the break is reported');
  assert.deepEqual(second.events, ['broken']);
  assert.equal(connection.hasDiedUnsent, true);
});

for (const [what, strike] of [
  ['unsolicited bytes', (end: Socket) => end.write(small)],
  ['the end of the connection', (end: Socket) => end.end()],
] as const) {
  test(`a request is not sent if ${what} arrived just before it [D18, D20]`, async (t) => {
    let onStrike: (() => void) | undefined;
    // `onStrike` runs before the connection handles the event.
    const { connection, received, end } = await beginIdle(t, (opened) => {
      opened.once('end', () => onStrike?.());
      return () => onStrike?.();
    });
    const second = new Exchange();
    onStrike = () => {
      onStrike = undefined;
      connection.send('PUT / HTTP/1.1\r\n\r\n', BorrowedBytes.ofConstant(Buffer.from('body')), second);
    };
    strike(end);
    await poll(() => second.last === 'broken', 'the break is reported');
    assert.deepEqual(second.events, ['broken']);
    assert.equal(connection.hasDiedUnsent, true);
    assert.equal(received[0], head);
  });
}

test('if the server resets a connection just before a request, the request has been sent or can be sent on another connection [D20]', async (t) => {
  const { connection, end } = await beginIdle(t);
  end.resetAndDestroy();
  const second = new Exchange();
  // Either the reset arrives before the request is sent, or the request gets no answer.
  connection.send(head, noBody, second);
  await poll(() => second.last === 'broken', 'the break is reported');
  assert.equal(connection.hasDiedUnsent, !second.events.includes('sent'));
  assert.ok(connection.hasDiedUnsent || connection.isReusedAndSilent);
});

for (const faultAt of ['sent', 'head', 'body', 'end, reusable', 'broken']) {
  test(`an error thrown by the owner at "${faultAt}" is passed to onFault, and closes the connection unless the exchange is over [D28]`, async (t) => {
    const { connection, exchange, socket } = await begin(t, { exchange: new Exchange(faultAt) });
    (await socket(0)).write(faultAt === 'broken' ? 'nonsense' : small);
    await poll(() => exchange.events.includes('fault'), 'the fault is reported');
    assert.equal(exchange.last, 'fault');
    assert.equal(connection.isClosed, faultAt !== 'end, reusable');
  });
}

test('destroy causes no event; breakOff causes `broken`', async (t) => {
  const destroyed = await begin(t);
  await poll(() => destroyed.exchange.last === 'sent', 'the request');
  destroyed.connection.destroy();
  assert.equal(destroyed.connection.isClosed, true);
  await poll(() => destroyed.closeCount() > 0, 'the connection has closed');
  assert.deepEqual(destroyed.exchange.events, ['sent']);

  const idle = await beginIdle(t);
  idle.connection.breakOff();
  assert.equal(idle.closeCount(), 1, 'an idle connection reports its close at once');

  const { connection, exchange, closeCount } = await begin(t);
  await poll(() => exchange.last === 'sent', 'the request');
  let isClosed = false;
  connection.breakOff(() => (isClosed = true));
  assert.equal(connection.isClosed, true);
  assert.equal(closeCount(), 0);
  await poll(() => exchange.last === 'broken' && isClosed, 'both are reported');
  assert.equal(connection.hasDiedUnsent, false);
});

test('a request that has not been sent before breakOff is never sent [D20]', async (t) => {
  const { connection, closeCount, received } = await beginIdle(t);
  const second = new Exchange();
  connection.send(head, noBody, second);
  connection.breakOff();
  await poll(() => second.last === 'broken' && closeCount() > 0, 'both are reported');
  assert.deepEqual(second.events, ['broken']);
  assert.equal(connection.hasDiedUnsent, true);
  assert.equal(received[0], head);
});

test('a connection that breaks reports the error code of the OS', async (t) => {
  const { exchange, socket } = await begin(t);
  const end = await socket(0);
  await poll(() => exchange.last === 'sent', 'the request');
  end.resetAndDestroy();
  await poll(() => exchange.last === 'broken', 'the break is reported');
  assert.equal((exchange.error as NodeJS.ErrnoException).code, 'ECONNRESET');
});

test('a connection keeps the process alive while it has an exchange, but an idle connection does not', async (t) => {
  const { connection, exchange: first, socket } = await begin(t);
  // Includes the server's sockets, which are in the same process.
  const alive = () => process.getActiveResourcesInfo().filter((name) => name === 'TCPSocketWrap').length;
  const end = await socket(0);
  await poll(() => first.last === 'sent', 'the request');
  const busy = alive();
  end.write(small);
  await poll(() => first.last === 'end, reusable', 'the answer');
  assert.equal(alive(), busy - 1);
  const second = new Exchange();
  connection.send(head, noBody, second);
  assert.equal(alive(), busy);
  await poll(() => second.last === 'sent', 'the next request');
  end.write(small);
  await poll(() => second.last === 'end, reusable', 'its answer');
  assert.equal(alive(), busy - 1);
});
