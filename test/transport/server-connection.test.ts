// The server's side of HTTP/1.1 over real sockets, with a handler that does what a test tells it: whose turn it is, what is
// read when, replies before the end of a body, last replies, times, and which connections make room. D11, D26, D27, D33,
// D35, D58.

import assert from 'node:assert/strict';
import { once } from 'node:events';
import type { AddressInfo } from 'node:net';
import { test, type TestContext } from 'node:test';
import { fieldValue, type RequestHead } from '../../src/wire/head.ts';
import { ClientServer, type ServerLimits } from '../../src/wire/server.ts';
import type { Broken, Incoming, RequestHandler, Transport } from '../../src/wire/transport.ts';
import { poll } from '../helpers/changes.ts';
import { RawClient, requestBytes } from '../helpers/raw-client.ts';

interface ReplyOptions {
  readonly status?: number;
  readonly closes?: boolean;
  readonly pieces?: readonly Buffer[];
}

/** A request as the handler got it, and what it was told of it since. */
class Received implements Incoming {
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
    this.#script.onBody?.(this);
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
  }

  reply(
    text: string,
    { status = 200, closes = false, pieces = [Buffer.from(text)] }: ReplyOptions = {},
  ): void {
    this.transport.reply(
      {
        status,
        headers: ['content-type', 'text/plain'],
        requestId: fieldValue(this.head.fields, 'x-request-id') ?? 'none',
        pieces,
        length: pieces.reduce((sum, piece) => sum + piece.length, 0),
        closes,
      },
      () => this.events.push('taken'),
    );
  }
}

/** What the handler does, besides remembering. */
interface Script {
  onStart?: (received: Received) => void;
  onBody?: (received: Received) => void;
  onBodyEnd?: (received: Received) => void;
  onBroken?: (received: Received) => void;
  onRefuse?: () => void;
}

const noLimits: ServerLimits = {
  requestHeadBytesMax: 16_384,
  requestBytesMax: 1_000_000,
  requestHeadersTimeoutMs: 60_000,
  requestTimeoutMs: 60_000,
  replyStallTimeoutMs: 60_000,
  idleTimeoutMs: 60_000,
  connectionsMax: 100,
};

async function serve(t: TestContext, script: Script = {}, limits: Partial<ServerLimits> = {}) {
  const received: Received[] = [];
  const refused: Broken[] = [];
  const stalled: Incoming[] = [];
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
      const body = Buffer.from(text);
      return { status, headers: [], requestId: 'refused', pieces: [body], length: body.length, closes: true };
    },
    onStall: (incoming) => stalled.push(incoming),
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
    stalled,
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
const echo: Script = {
  onStart: (received) => {
    if (received.head.bodyLength === 0) received.reply(received.head.target);
  },
  onBodyEnd: (received) => {
    received.reply(`${received.head.target} ${received.body}`);
  },
};

function get(target: string, headers: readonly [string, string][] = []): Buffer {
  return requestBytes('GET', target, { headers });
}

async function turn(): Promise<void> {
  await new Promise((resolve) => setImmediate(resolve));
}

test('behind a last reply nothing more is read, be it malformed: there is one reply [D27]', async (t) => {
  const { connect, refused, received, faults } = await serve(t, {
    onStart: (each) => {
      each.reply('last', { closes: true });
    },
  });
  for (const behind of [
    'Transfer-Encoding: chunked\r\n\r\nnot a chunk\r\n',
    'Transfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\nno trailer\r\n',
    'Content-Length: 3\r\n\r\nabcnot HTTP',
  ]) {
    const client = await connect();
    client.send(`PUT /1 HTTP/1.1\r\nHost: x\r\n${behind}`);
    const reply = await client.reply();
    assert.deepEqual([reply.status, reply.text, reply.header('connection')], [200, 'last', 'close']);
    assert.equal(await client.closed(), 'end');
    assert.equal(client.unread.length, 0);
  }
  assert.deepEqual(refused, []);
  assert.deepEqual(faults, []);
  assert.equal(received.length, 3);
});

for (const [what, create] of [
  ['without a body', (index: number) => get(`/${index}`)],
  ['with a body', (index: number) => requestBytes('PUT', `/${index}`, { body: 'b' })],
] as const) {
  test(`of requests ${what} that are answered at once, 16 have their turn at a time [D58]`, async (t) => {
    const perTurn: number[] = [];
    let inTurn = 0;
    const count = 200;
    const { connect, received } = await serve(t, {
      ...echo,
      onStart: (each) => {
        if (inTurn === 0) {
          setImmediate(() => {
            perTurn.push(inTurn);
            inTurn = 0;
          });
        }
        inTurn += 1;
        echo.onStart?.(each);
      },
    });
    const client = await connect();
    client.send(Buffer.concat(Array.from({ length: count }, (_, index) => create(index))));
    for (let index = 0; index < count; index += 1) {
      assert.equal((await client.reply()).text.split(' ')[0], `/${index}`);
    }
    await turn();
    assert.equal(received.length, count);
    assert.ok(Math.max(...perTurn) <= 17, `${Math.max(...perTurn)} in one turn`);
  });
}

test('behind a body that is cut off for its length no request is taken [D11]', async (t) => {
  const { connect, received } = await serve(
    t,
    {
      onStart: (each) => {
        each.reply('early', { status: 413 });
      },
    },
    { requestBytesMax: 100 },
  );
  const client = await connect();
  client.send(
    Buffer.concat([requestBytes('PUT', '/1', { body: 'x'.repeat(101) }), requestBytes('DELETE', '/2')]),
  );
  await client.closed();
  assert.deepEqual(
    received.map(({ head }) => head.target),
    ['/1'],
  );
});
