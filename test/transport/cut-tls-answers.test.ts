// An answer without a length ends when its connection ends. Anyone on the network path can end a TLS connection, and
// Node does not report whether the backend ended it. So an answer that may be incomplete fails [D18; RFC 9112, 8].

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { createServer, type AddressInfo, type Socket } from 'node:net';
import { Duplex } from 'node:stream';
import { after, before, describe, test } from 'node:test';
import { TLSSocket, type SecureVersion } from 'node:tls';
import { assertReply } from '../helpers/expected.ts';
import { startGateway } from '../helpers/gateway.ts';

// A self-signed certificate for localhost and 127.0.0.1.
const cert = readFileSync(new URL('../vectors/tls/backend-certificate.pem', import.meta.url));
const key = readFileSync(new URL('../vectors/tls/backend-key.pem', import.meta.url));

/** How an answer ends: by the close_notify of TLS, or by a TCP FIN alone, which anyone on the network path can send. */
type Ending = 'close_notify' | 'cut';
const endings: readonly Ending[] = ['close_notify', 'cut'];

interface CutAnswer {
  /** Each piece is sent in TLS records of its own. */
  readonly pieces: readonly string[];
  readonly ending: Ending;
}

const headOf = (status = 200, ...fields: string[]): string => [`HTTP/1.1 ${status} X`, ...fields, '', ''].join('\r\n');

/** A backend over TLS that answers each request as scripted and then ends the connection. */
async function startBackend(version: SecureVersion) {
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

// An open body can be the start of a longer JSON text. A whole body can be followed only by white space.
const openBodies = ['12', '0', '-1', '1.5', '1e5', '1E+05', ' \r\n12', '\ufeff12', '1'.repeat(40_000)];
const wholeBodies = ['12 ', '12\n', '[12]', '{"id":12}', '"12"', 'true', 'null', '"ends in 1"', '1\r\n\t '];

const operations = [
  ['GET', '/api/work-items', 200, '{"error":"Failed to fetch work items"}'],
  ['POST', '/api/work-items', 201, '{"error":"Failed to create work item"}'],
  ['GET', '/api/work-items/7', 200, '{"error":"Failed to fetch work item"}'],
] as const;

const latin1 = (text: string): string => Buffer.from(text).toString('latin1');

for (const [version, called] of [
  ['TLSv1.2', operations.slice(1, 2)],
  ['TLSv1.3', operations],
] as const) {
  describe(`a backend over ${version}`, () => {
    let backend: Awaited<ReturnType<typeof startBackend>>;
    let server: Awaited<ReturnType<typeof startGateway<'http1'>>>;
    before(async () => {
      backend = await startBackend(version);
      const tls = { ca: cert.toString() };
      server = await startGateway({ host: 'http1', settings: { backendUrl: backend.url, backendTls: tls } });
    });
    after(async () => {
      await server[Symbol.asyncDispose]();
      await backend[Symbol.asyncDispose]();
    });

    /** Asserts the reply to a call, and that the call was sent once and leaves no bytes buffered [D20]. */
    async function check(method: string, path: string, answer: CutAnswer, status: number, body: string): Promise<void> {
      backend.answers(answer);
      const options = method === 'POST' || method === 'PUT' ? { body: '{}' } : {};
      const calls = backend.calls();
      assertReply(await server.call(method, path, options), status, body);
      assert.deepEqual([backend.calls() - calls, server.gateway.budget.bytes], [1, 0]);
    }

    for (const [method, path, status, failed] of called) {
      for (const ending of endings) {
        test(`${method} ${path}: if only the end of the connection (${ending}) ends the body, a body that ends with a digit fails, and other JSON succeeds [D18]`, async () => {
          for (const body of openBodies) {
            await check(method, path, { pieces: [headOf() + latin1(body)], ending }, 500, failed);
          }
          for (const pieces of [['12'], ['1', '2'], ['1'.repeat(100_000), '2'.repeat(100_000)]]) {
            await check(method, path, { pieces: [headOf(), ...pieces], ending }, 500, failed);
          }
          for (const body of wholeBodies) {
            await check(method, path, { pieces: [headOf() + latin1(body)], ending }, status, body);
          }
        });
      }

      test(`${method} ${path}: a body that is a number succeeds with a length or in chunks, unless the body is cut off [D18]`, async () => {
        for (const [framing, whole, part] of [
          ['content-length: 3', '123', '12'],
          ['transfer-encoding: chunked', '1\r\n1\r\n2\r\n23\r\n0\r\n\r\n', '1\r\n1\r\n2\r\n23\r\n'],
        ] as const) {
          const start = headOf(200, framing);
          await check(method, path, { pieces: [start + whole], ending: 'cut' }, status, '123');
          await check(method, path, { pieces: [start + part], ending: 'cut' }, 500, failed);
        }
      });
    }

    test('the cause of the failure says that the backend should send a content-length', async () => {
      const answer: CutAnswer = { pieces: [`${headOf()}12`], ending: 'close_notify' };
      await check('GET', '/api/work-items', answer, 500, '{"error":"Failed to fetch work items"}');
      assert.match(String(server.told.ended.at(-1)?.cause), /may lack its last digits.*content-length/);
    });
  });
}
