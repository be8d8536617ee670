// An answer without a length ends when its connection ends. Anyone on the network path can end a TLS connection, and
// Node does not report whether the backend ended it. So an answer that may be incomplete fails [D18; RFC 9112, 8].

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { createServer, type AddressInfo } from 'node:net';
import { Duplex } from 'node:stream';
import { after, test } from 'node:test';
import { TLSSocket } from 'node:tls';
import { assertReply, operation } from '../helpers/expected.ts';
import { startGateway } from '../helpers/gateway.ts';

// A self-signed certificate for localhost and 127.0.0.1.
const cert = readFileSync(new URL('../vectors/tls/backend-certificate.pem', import.meta.url), 'utf8');
const key = readFileSync(new URL('../vectors/tls/backend-key.pem', import.meta.url), 'utf8');

// The next answer of the backend. Each piece is sent in TLS records of its own. The connection then ends by the close_notify
// of TLS, or by a TCP FIN alone, which anyone on the network path can send.
let maxVersion: 'TLSv1.2' | 'TLSv1.3' = 'TLSv1.3';
let pieces: readonly string[] = [];
let isCut = true;
let calls = 0;

const backend = createServer({ allowHalfOpen: true }, (socket) => {
  // Ending `socket` itself sends a FIN without a close_notify.
  const carrier = new Duplex({
    read: () => undefined,
    write: (bytes: Buffer, _encoding, done) => socket.write(bytes, done),
    final: (done) => socket.end(done),
  });
  socket
    .on('data', (bytes) => carrier.push(bytes))
    .on('end', () => carrier.push(null))
    .on('error', () => undefined);
  const tls = new TLSSocket(carrier, { isServer: true, key, cert, maxVersion });
  let received = '';
  const answer = async (data: Buffer): Promise<void> => {
    received += data.toString('latin1');
    if (!received.endsWith(received.startsWith('POST') ? '\r\n\r\n{}' : '\r\n\r\n')) return;
    calls += 1;
    for (const piece of pieces) await new Promise((resolve) => tls.write(piece, 'latin1', resolve));
    if (isCut) socket.end();
    else tls.end();
  };
  tls.on('error', () => undefined).on('data', (data: Buffer) => void answer(data));
}).listen(0, '127.0.0.1');
await once(backend, 'listening');
const backendUrl = `https://localhost:${(backend.address() as AddressInfo).port}`;
const server = await startGateway({ host: 'http1', settings: { backendUrl, backendTls: { ca: cert } } });
after(async () => {
  await server[Symbol.asyncDispose]();
  backend.close();
});

/** Asserts the reply to a call, and that the call was sent once and leaves no bytes buffered [D20]. */
async function check(number: 1 | 2 | 3, answer: readonly string[], status: number, body: string): Promise<void> {
  const { method, path, options } = operation(number);
  pieces = answer;
  calls = 0;
  assertReply(await server.call(method, path, options.body === undefined ? {} : { body: '{}' }), status, body);
  assert.deepEqual([calls, server.gateway.budget.bytes], [1, 0]);
}

const headOf = (...fields: string[]): string => ['HTTP/1.1 200 X', ...fields, '', ''].join('\r\n');
const latin1 = (text: string): string => Buffer.from(text).toString('latin1');
// An open body can be the start of a longer JSON text. A whole body can be followed only by white space.
const openBodies = ['12', '0', '-1', '1.5', '1e5', '1E+05', ' \r\n12', '\ufeff12', '1'.repeat(40_000)];
const openPieces = [['12'], ['1', '2'], ['1'.repeat(100_000), '2'.repeat(100_000)]];
const wholeBodies = ['12 ', '12\n', '[12]', '{"id":12}', '"12"', 'true', 'null', '"ends in 1"', '1\r\n\t '];

for (const [version, number, cuts] of [
  ['TLSv1.2', 2, false],
  ['TLSv1.2', 2, true],
  ['TLSv1.3', 1, false],
  ['TLSv1.3', 1, true],
  ['TLSv1.3', 2, true],
  ['TLSv1.3', 3, true],
] as const) {
  const { name, status, failure } = operation(number);
  test(`operation ${name} over ${version}, with a connection that ends by ${cuts ? 'a FIN alone' : 'close_notify'}: a body that ends with a digit fails, and other JSON succeeds [D18]`, async () => {
    [maxVersion, isCut] = [version, cuts];
    for (const body of openBodies) await check(number, [headOf() + latin1(body)], 500, failure);
    for (const parts of openPieces) await check(number, [headOf(), ...parts], 500, failure);
    for (const body of wholeBodies) await check(number, [headOf() + latin1(body)], status, body);
    // A body with a length, or in chunks, is known to be complete.
    for (const [framing, whole, part] of [
      ['content-length: 3', '123', '12'],
      ['transfer-encoding: chunked', '1\r\n1\r\n2\r\n23\r\n0\r\n\r\n', '1\r\n1\r\n2\r\n23\r\n'],
    ] as const) {
      await check(number, [headOf(framing) + whole], status, '123');
      await check(number, [headOf(framing) + part], 500, failure);
    }
  });
}

test('the cause of the failure says that the backend should send a content-length', async () => {
  await check(1, [`${headOf()}12`], 500, operation(1).failure);
  assert.match(String(server.told.ended.at(-1)?.cause), /may lack its last digits.*content-length/);
});
