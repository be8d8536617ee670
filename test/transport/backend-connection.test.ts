// The client side of HTTP/1.1 on real sockets, against a scripted server: how an exchange ends, and whether its
// connection can be used again. D18, D19, D20.

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer, type AddressInfo, type Socket } from 'node:net';
import { test, type TestContext } from 'node:test';

import { createOpenSocket, tapSockets, type SocketTap } from '../../packages/core/hosts/dialing/open-socket.ts';
import { BackendConnection } from '../../packages/core/http1/backend-connection.ts';
import { BorrowedBytes, noBody } from '../../packages/core/http1/borrowed-bytes.ts';
import type { Flaw } from '../../packages/core/http1/head.ts';
import { poll } from '../helpers/changes.ts';

/** Records the events of one exchange; `body` is one entry for all pieces. Throws an error at `faultAt`. */
function createExchange(faultAt?: string) {
  const events: string[] = [];
  const tell = (event: string): void => {
    if (event !== 'body' || events.at(-1) !== 'body') events.push(event);
    if (event === faultAt) throw new Error(`a fault at ${event}`);
  };
  const exchange = {
    events,
    error: undefined as Error | Flaw | undefined,
    onSent: () => tell('sent'),
    onAnswerHead: () => tell('head'),
    onAnswerBody: () => tell('body'),
    onAnswerEnd: (isReusable: boolean) => tell(isReusable ? 'end, reusable' : 'end'),
    onBroken: (error: Error | Flaw) => {
      exchange.error = error;
      tell('broken');
    },
    onFault: () => void events.push('fault'),
    get last() {
      return events.at(-1);
    },
    ends: (last: string) => poll(() => events.at(-1) === last, last),
  };
  return exchange;
}

async function serve(t: TestContext, isPaused = false) {
  const sockets: Socket[] = [];
  let received = '';
  const server = createServer({ allowHalfOpen: true, pauseOnConnect: isPaused }, (socket) => {
    sockets.push(socket.on('error', () => undefined));
    if (!isPaused) socket.setEncoding('latin1').on('data', (text: string) => (received += text));
  });
  await once(server.listen(0, '127.0.0.1'), 'listening');
  t.after(async () => {
    for (const socket of sockets) socket.destroy();
    server.close();
    await once(server, 'close');
  });
  const url = new URL(`http://127.0.0.1:${(server.address() as AddressInfo).port}`);
  /** The server's socket. */
  const socket = async (): Promise<Socket> => {
    await poll(() => sockets.length > 0, 'a connection');
    const [found] = sockets;
    assert.ok(found);
    return found;
  };
  /** `tap` is called with the opened socket; the function that it returns is called when bytes arrive. */
  const connect = async (tap: SocketTap = () => () => undefined) => {
    let closeCount = 0;
    const connection = await new Promise<BackendConnection>((resolve, reject) => {
      let opened: BackendConnection | undefined;
      const onOpen = (own: Socket) => resolve((opened = new BackendConnection(own, () => (closeCount += 1))));
      const open = tapSockets(createOpenSocket(url), tap);
      open({ onOpen, onFailed: reject, onBytes: (bytes) => opened?.onBytes(bytes) });
    });
    t.after(() => connection.destroy());
    return { connection, closeCount: () => closeCount };
  };
  return { received: () => received, socket, connect };
}

/** Makes one exchange on a new connection and leaves the connection idle. `end` is the server's socket. */
async function beginIdle(t: TestContext, tap?: SocketTap) {
  const served = await serve(t);
  const opened = await served.connect(tap);
  const exchange = createExchange();
  opened.connection.send(head, noBody, exchange);
  const end = await served.socket();
  end.write(small);
  await exchange.ends('end, reusable');
  return { ...served, ...opened, end };
}

/** Sends a request on a new connection. `isStuck`: the server does not read the request. */
async function begin(t: TestContext, { exchange = createExchange(), isStuck = false } = {}) {
  const served = await serve(t, isStuck);
  const opened = await served.connect();
  // More than all buffers hold.
  const body = isStuck ? BorrowedBytes.ofConstant(Buffer.alloc(30_000_000)) : noBody;
  opened.connection.send(head, body, exchange);
  return { ...served, ...opened, exchange };
}

const head = 'GET / HTTP/1.1\r\nhost: x\r\n\r\n';
const ok = 'HTTP/1.1 200 OK\r\n';
const small = `${ok}Content-Length: 2\r\n\r\n[]`;

test('an answer may come before its whole request has been sent: a cut breaks the exchange at once, as a reset does, and the connection is not used again [D19]', async (t) => {
  const cut = await begin(t, { isStuck: true });
  const end = await cut.socket();
  end.write(`${ok}Content-Length: 3\r\n\r\n[]`);
  await cut.exchange.ends('body');
  end.end();
  await cut.exchange.ends('broken');
  assert.equal((cut.exchange.error as Error).message, 'the connection was closed before the answer was complete');

  const reset = await begin(t);
  await reset.exchange.ends('sent');
  (await reset.socket()).resetAndDestroy();
  await reset.exchange.ends('broken');
  assert.equal((reset.exchange.error as NodeJS.ErrnoException).code, 'ECONNRESET');

  const { connection, exchange, socket } = await begin(t, { isStuck: true });
  (await socket()).write(small);
  await exchange.ends('end');
  assert.equal(connection.isClosed, true);
});

for (const [what, text, act] of [
  ['has not been flushed by then', small, undefined],
  ['is flushed, but has an answer with stray bytes', `${small}x`, (own: Socket) => setImmediate(() => own.uncork())],
  ['has its answer, and the socket closes', small, (own: Socket) => queueMicrotask(() => own.emit('close'))],
] as const) {
  test(`a connection can be used again if its request is flushed only in the event-loop turn of the answer, as happens over TLS, but not if it ${what}`, async (t) => {
    const { connect, socket } = await serve(t);
    let own: Socket | undefined;
    let onArrival: ((own: Socket) => unknown) | undefined;
    const { connection } = await connect((opened) => {
      own = opened;
      return () => onArrival?.(opened);
    });
    // `uncork` runs before the connection checks again whether its request has been sent.
    const flush = (opened: Socket): unknown => setImmediate(() => opened.uncork());
    for (const [onBytes, bytes, last] of [
      [flush, small, 'end, reusable'],
      [flush, small, 'end, reusable'],
      [act, text, 'end'],
    ] as const) {
      onArrival = onBytes;
      const exchange = createExchange();
      // From now on the socket buffers its writes.
      own?.cork();
      connection.send(head, noBody, exchange);
      await exchange.ends('sent');
      (await socket()).write(bytes);
      await exchange.ends(last);
      assert.deepEqual(exchange.events, ['sent', 'head', 'body', last]);
    }
    assert.equal(connection.isClosed, true);
  });
}

test('a connection whose write has failed is not used again', async (t) => {
  let own: Socket | undefined;
  const { connection, end } = await beginIdle(t, (opened) => {
    own = opened;
    return () => undefined;
  });
  const second = createExchange();
  connection.send(head, noBody, second);
  await second.ends('sent');
  Object.defineProperty(own, 'errored', { value: new Error('EPIPE') });
  end.write(small);
  await second.ends('end');
});

test('an owner that destroys the connection in onAnswerHead gets no more events, even if the whole answer has arrived', async (t) => {
  const { connect, socket } = await serve(t);
  const { connection, closeCount } = await connect();
  const exchange = createExchange();
  exchange.onAnswerHead = () => connection.destroy();
  connection.send(head, noBody, exchange);
  (await socket()).write(small);
  await poll(() => closeCount() > 0, 'the connection closes');
  assert.deepEqual(exchange.events, ['sent']);
  assert.equal(connection.isClosed, true);
});

test('nothing is sent on a failed connection, and the request can be sent on another connection [D20]', async (t) => {
  let own: Socket | undefined;
  const { connection, end } = await beginIdle(t, (opened) => {
    own = opened;
    return () => undefined;
  });
  const second = createExchange();
  // `send` runs between the `error` and the `close` of the socket.
  own?.once('error', () => connection.send(head, noBody, second));
  end.resetAndDestroy();
  await second.ends('broken');
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
    const second = createExchange();
    onStrike = () => {
      onStrike = undefined;
      connection.send(head, noBody, second);
    };
    strike(end);
    await second.ends('broken');
    assert.deepEqual(second.events, ['broken']);
    assert.equal(connection.hasDiedUnsent, true);
    assert.equal(received(), head);
  });
}

for (const faultAt of ['sent', 'head', 'body', 'end, reusable', 'broken']) {
  test(`an error thrown by the owner at "${faultAt}" is passed to onFault, and closes the connection unless the exchange is over [D28]`, async (t) => {
    const { connection, exchange, socket } = await begin(t, { exchange: createExchange(faultAt) });
    (await socket()).write(faultAt === 'broken' ? 'nonsense' : small);
    await poll(() => exchange.events.includes('fault'), 'the fault is reported');
    assert.equal(exchange.last, 'fault');
    assert.equal(connection.isClosed, faultAt !== 'end, reusable');
  });
}

test('destroy causes no event; breakOff causes `broken`', async (t) => {
  const destroyed = await begin(t);
  await destroyed.exchange.ends('sent');
  destroyed.connection.destroy();
  assert.equal(destroyed.connection.isClosed, true);
  await poll(() => destroyed.closeCount() > 0, 'the connection has closed');
  assert.deepEqual(destroyed.exchange.events, ['sent']);

  const idle = await beginIdle(t);
  idle.connection.breakOff();
  assert.equal(idle.closeCount(), 1, 'an idle connection reports its close at once');

  const { connection, exchange, closeCount } = await begin(t);
  await exchange.ends('sent');
  let isClosed = false;
  connection.breakOff(() => (isClosed = true));
  assert.equal(connection.isClosed, true);
  assert.equal(closeCount(), 0);
  await poll(() => exchange.last === 'broken' && isClosed, 'both are reported');
  assert.equal(connection.hasDiedUnsent, false);
});

test('a request that has not been sent before breakOff is never sent [D20]', async (t) => {
  const { connection, closeCount, received } = await beginIdle(t);
  const second = createExchange();
  connection.send(head, noBody, second);
  connection.breakOff();
  await poll(() => second.last === 'broken' && closeCount() > 0, 'both are reported');
  assert.deepEqual(second.events, ['broken']);
  assert.equal(connection.hasDiedUnsent, true);
  assert.equal(received(), head);
});

test('a connection keeps the process alive while it has an exchange, but an idle connection does not', async (t) => {
  const { connection, exchange: first, socket } = await begin(t);
  // Includes the server's sockets, which are in the same process.
  const alive = () => process.getActiveResourcesInfo().filter((name) => name === 'TCPSocketWrap').length;
  const end = await socket();
  await first.ends('sent');
  const busy = alive();
  end.write(small);
  await first.ends('end, reusable');
  assert.equal(alive(), busy - 1);
  const second = createExchange();
  connection.send(head, noBody, second);
  assert.equal(alive(), busy);
  await second.ends('sent');
  end.write(small);
  await second.ends('end, reusable');
  assert.equal(alive(), busy - 1);
});
