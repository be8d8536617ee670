// The properties of Node that are read though they are not public, with this Node: what needs them has no other way.

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { globSync, readFileSync } from 'node:fs';
import { connect, createServer, type AddressInfo, type Socket } from 'node:net';
import { join } from 'node:path';
import { test } from 'node:test';
import { connect as connectTls, createServer as createTlsServer, type TLSSocket } from 'node:tls';

import { carrierOf, handleOf } from '../../packages/core/http1/node-internals.ts';
import { poll } from '../helpers/changes.ts';

test('a socket tells how much of one large write the system has not taken, and its descriptor', async (t) => {
  const server = createServer();
  await once(server.listen(0, '127.0.0.1'), 'listening');
  const client = connect((server.address() as AddressInfo).port, '127.0.0.1').pause();
  const [socket] = (await once(server, 'connection')) as [Socket];
  t.after(() => {
    client.destroy();
    socket.destroy();
    server.close();
  });
  const size = 64_000_000;
  assert.equal(handleOf(socket)?.writeQueueSize, 0);
  socket.write(Buffer.alloc(size));
  const queued = (): number => handleOf(socket)?.writeQueueSize ?? NaN;
  await poll(() => queued() > 0 && queued() < size, 'the system has taken a part');
  assert.equal(socket.writableLength, size, 'which the public property does not tell');
  if (process.platform !== 'win32') {
    const fd = handleOf(socket)?.fd ?? assert.fail('no descriptor');
    assert.ok(Number.isInteger(fd) && fd > 2, String(fd));
  }
  socket.destroy();
  await poll(() => !handleOf(socket), 'it is closed');
});

test('a server takes another length for the queue of its connections', async (t) => {
  const server = createServer();
  await once(server.listen(0, '127.0.0.1'), 'listening');
  t.after(() => server.close());
  assert.equal(handleOf(server)?.listen?.(0), 0, 'listen(2) has succeeded');
  const client = connect((server.address() as AddressInfo).port, '127.0.0.1');
  const [socket] = (await once(server, 'connection')) as [Socket];
  client.destroy();
  socket.destroy();
});

test('a socket of TLS names the one below it, and another one none', async (t) => {
  const file = (name: string) => readFileSync(new URL(`../vectors/tls/${name}.pem`, import.meta.url));
  const server = createTlsServer({ cert: file('backend-certificate'), key: file('backend-key') });
  await once(server.listen(0, '127.0.0.1'), 'listening');
  const accepted = once(server, 'connection') as Promise<[Socket]>;
  const secured = once(server, 'secureConnection') as Promise<[TLSSocket]>;
  const client = connectTls({
    port: (server.address() as AddressInfo).port,
    host: '127.0.0.1',
    ca: file('backend-certificate'),
  });
  const [carrier] = await accepted;
  const [secure] = await secured;
  t.after(() => {
    client.destroy();
    secure.destroy();
    server.close();
  });
  assert.equal(carrierOf(secure), carrier);
  assert.equal(carrierOf(carrier), undefined);
});

test('no other file of the core reads them', () => {
  const root = join(import.meta.dirname, '../..');
  const found = globSync('packages/core/**/*.ts', { cwd: root }).filter((path) =>
    /\b_(?:handle|parent|events|httpMessage|readableState|writableState)\b|destroySoon|removeAllListeners|process\.binding/.test(
      readFileSync(join(root, path), 'utf8'),
    ),
  );
  assert.deepEqual(found.toSorted(), [
    'packages/core/hosts/node/linger.ts',
    'packages/core/http1/node-internals.ts',
  ]);
});
