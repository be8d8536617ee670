// An answer without a length ends with its connection. Anyone on the network path can end a TLS connection, and Node
// does not report whether the backend did. So an answer that may be incomplete fails [D18; RFC 9112, 8; RFC 9110, 15].

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { createServer, type AddressInfo, type Socket } from 'node:net';
import { Duplex } from 'node:stream';
import { after, before, describe, test } from 'node:test';
import { TLSSocket, type SecureVersion } from 'node:tls';
import { fileURLToPath } from 'node:url';
import { BackendClient, type BackendRequest, type Outcome } from '../../packages/core/backend/client.ts';
import { BufferBudget } from '../../packages/core/body/budget.ts';
import { assertReply, succeeded } from '../helpers/expected.ts';
import { startCommand, type Command } from '../helpers/targets.ts';

// A self-signed certificate for localhost and 127.0.0.1.
const certificatePath = fileURLToPath(new URL('../vectors/tls/backend-certificate.pem', import.meta.url));
const cert = readFileSync(certificatePath);
const key = readFileSync(new URL('../vectors/tls/backend-key.pem', import.meta.url));

/** How an answer ends: by the close_notify of TLS, or by a TCP FIN alone, which anyone on the network path can send. */
type Ending = 'close_notify' | 'cut';
const endings: readonly Ending[] = ['close_notify', 'cut'];

interface CutAnswer {
  /** No TLS record contains bytes of two pieces. */
  readonly pieces: readonly string[];
  readonly ending: Ending;
}

const headOf = (status = 200, ...fields: string[]): string => [`HTTP/1.1 ${status} X`, ...fields, '', ''].join('\r\n');

/** A backend over TLS that answers each request as scripted and then ends the connection. */
async function startBackend(version: SecureVersion = 'TLSv1.3') {
  let next: CutAnswer = { pieces: [headOf()], ending: 'cut' };
  let calls = 0;
  const sockets = new Set<Socket>();
  const server = createServer({ allowHalfOpen: true }, (socket) => {
    sockets.add(socket.on('error', () => undefined));
    const tls = new TLSSocket(carry(socket), { isServer: true, key, cert, maxVersion: version });
    let received = '';
    tls
      .on('error', () => undefined)
      .on('data', (data: Buffer) => {
        received += data.toString('latin1');
        const [, length = '0'] = /\r\ncontent-length: (\d+)\r\n/.exec(received) ?? [];
        const bodyAt = received.indexOf('\r\n\r\n') + 4;
        if (bodyAt < 4 || received.length < bodyAt + Number(length)) return;
        received = '';
        calls += 1;
        void answerWith(tls, socket, next);
      });
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  return {
    url: `https://localhost:${(server.address() as AddressInfo).port}`,
    answers(answer: CutAnswer) {
      next = answer;
    },
    calls: () => calls,
    [Symbol.asyncDispose]: async () => {
      for (const socket of sockets) socket.destroy();
      server.close();
      await once(server, 'close');
    },
  };
}

async function answerWith(tls: TLSSocket, socket: Socket, { pieces, ending }: CutAnswer): Promise<void> {
  for (const piece of pieces) {
    await new Promise((resolve) => tls.write(piece, 'latin1', resolve));
  }
  if (ending === 'cut') socket.end();
  else tls.end();
}

/** Carries TLS over `socket`. Ending the socket itself sends a FIN without a close_notify. */
function carry(socket: Socket): Duplex {
  const carrier = new Duplex({
    read: () => undefined,
    write: (bytes: Buffer, _encoding, done) => socket.write(bytes, done),
    final: (done) => socket.end(done),
  });
  socket.on('data', (bytes) => carrier.push(bytes)).on('end', () => carrier.push(null));
  return carrier;
}

// A longer JSON text could begin with an open body. Only white space can follow a whole body.
const openBodies = ['12', '0', '-1', '1.5', '1e5', '1E+05', ' \r\n12', '\ufeff12', '1'.repeat(40_000)];
const wholeBodies = ['12 ', '12\n', '[12]', '{"id":12}', '"12"', 'true', 'null', '"ends in 1"', '1\r\n\t '];

const operations = [
  ['GET', '/api/work-items', 200, '{"error":"Failed to fetch work items"}'],
  ['POST', '/api/work-items', 201, '{"error":"Failed to create work item"}'],
  ['GET', '/api/work-items/7', 200, '{"error":"Failed to fetch work item"}'],
] as const;

const latin1 = (text: string): string => Buffer.from(text).toString('latin1');

describe('the command with a backend over TLS', () => {
  let backend: Awaited<ReturnType<typeof startBackend>>;
  let gateway: Command;
  before(async () => {
    backend = await startBackend();
    gateway = await startCommand({ BACKEND_URL: backend.url, NODE_EXTRA_CA_CERTS: certificatePath });
  });
  after(async () => {
    await gateway.stop();
    await backend[Symbol.asyncDispose]();
  });

  for (const [method, path, status, failed] of operations) {
    const options = method === 'POST' ? { body: '{}' } : {};
    for (const ending of endings) {
      test(`${method} ${path}: when the connection ends (${ending}), a number without a length fails, and a text that only white space can follow succeeds [D18]`, async () => {
        for (const body of openBodies) {
          backend.answers({ pieces: [headOf() + latin1(body)], ending });
          assertReply(await gateway.call(method, path, options), 500, failed);
        }
        for (const body of wholeBodies) {
          backend.answers({ pieces: [headOf() + latin1(body)], ending });
          assertReply(await gateway.call(method, path, options), status, body);
        }
      });
    }

    test(`${method} ${path}: a number with a length or in chunks succeeds, unless it is cut off [D18]`, async () => {
      for (const [framing, whole, part] of [
        ['content-length: 3', '123', '12'],
        ['transfer-encoding: chunked', '1\r\n1\r\n2\r\n23\r\n0\r\n\r\n', '1\r\n1\r\n2\r\n23\r\n'],
      ] as const) {
        backend.answers({ pieces: [headOf(200, framing) + whole], ending: 'cut' });
        assertReply(await gateway.call(method, path, options), status, '123');
        backend.answers({ pieces: [headOf(200, framing) + part], ending: 'cut' });
        assertReply(await gateway.call(method, path, options), 500, failed);
      }
    });
  }

  test('PUT and DELETE need no answer body: the head decides the outcome [D17]', async () => {
    for (const [method, options] of [
      ['PUT', { body: '{}' }],
      ['DELETE', {}],
    ] as const) {
      for (const ending of endings) {
        backend.answers({ pieces: [`${headOf()}12`], ending });
        assertReply(await gateway.call(method, '/api/work-items/7', options), 200, succeeded);
      }
    }
  });

  test('a 404 whose body is cut off stays a 404 [spec 7]', async () => {
    backend.answers({ pieces: [`${headOf(404)}12`], ending: 'cut' });
    assertReply(await gateway.call('GET', '/api/work-items/7'), 404, '{"error":"Work item not found"}');
  });

  test('the log line says that the backend should send a content-length', async () => {
    backend.answers({ pieces: [`${headOf()}12`], ending: 'close_notify' });
    const before = gateway.logs.length;
    await gateway.call('GET', '/api/work-items/7', { headers: [['X-Request-Id', 'cut-number']] });
    const line = await gateway.log(({ requestId }) => requestId === 'cut-number', 'a line about the failure');
    assert.ok(gateway.logs.length > before);
    assert.match(String(line['cause']), /may be incomplete.*content-length/);
  });
});

describe('the client of the backend', () => {
  const request: BackendRequest = {
    method: 'POST',
    path: '/api/WorkItem',
    body: Buffer.from('{}'),
    requestId: 'id',
    traceContext: [],
    needsAnswer: true,
  };

  for (const version of ['TLSv1.2', 'TLSv1.3'] as const) {
    for (const ending of endings) {
      test(`${version}, ${ending}: a number without a length causes one call and leaves no bytes buffered [D18, D20]`, async () => {
        await using backend = await startBackend(version);
        const budget = new BufferBudget(1_000_000);
        const client = new BackendClient({
          backendUrl: new URL(backend.url),
          tls: { ca: cert.toString() },
          timeoutMs: 30_000,
          connectTimeoutMs: 30_000,
          idleTimeoutMs: 60_000,
          responseBytesMax: 1_000_000,
          budget,
        });
        try {
          for (const pieces of [
            [`${headOf()}12`],
            [headOf(), '12'],
            [headOf(), '1', '2'],
            [headOf(), '1'.repeat(100_000), '2'.repeat(100_000)],
          ]) {
            backend.answers({ pieces, ending });
            const calls = backend.calls();
            const outcome = await new Promise<Outcome>((resolve, reject) =>
              client.send(request, { onOutcome: resolve, onFault: reject }),
            );
            assert.equal(outcome.kind, 'unreachable');
            assert.equal(backend.calls() - calls, 1);
            assert.equal(budget.bytes, 0);
          }
        } finally {
          await client.close();
        }
      });
    }
  }
});
