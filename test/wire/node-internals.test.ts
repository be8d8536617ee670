// Tests that this version of Node has the private properties that the core reads.

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { globSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';

import { carrierOf, handleOf, setReading } from '../../packages/core/http1/node-internals.ts';
import { poll } from '../helpers/changes.ts';
import { turn } from '../transport/served-connections.ts';
import { openPair, openSecurePair } from '../helpers/socket-pairs.ts';

test('the handle of a socket has the numbers of written bytes, and of those that the OS has not accepted', async (t) => {
  const { socket } = await openPair(t);
  const size = 64_000_000;
  assert.equal(handleOf(socket)?.writeQueueSize, 0);
  socket.write(Buffer.alloc(size));
  const queued = (): number => handleOf(socket)?.writeQueueSize ?? NaN;
  await poll(() => queued() > 0 && queued() < size, 'the OS has accepted a part');
  assert.equal(socket.writableLength, size, 'the public property');
  assert.equal(handleOf(socket)?.bytesWritten, size);
  socket.destroy();
  await poll(() => !handleOf(socket), 'the socket is closed');
});

test('the handle of a socket stops reading, and continues without loss', async (t) => {
  const { client, socket } = await openPair(t);
  const texts: string[] = [];
  socket
    .setEncoding('latin1')
    .on('data', (text: string) => texts.push(text))
    .resume();
  client.write('w');
  await poll(() => texts.length > 0, 'the socket reads');
  assert.equal(handleOf(socket)?.readStop?.(), 0);
  client.write('x');
  const echoed = once(client.resume(), 'data');
  socket.write('y');
  await echoed;
  assert.deepEqual(texts, ['w']);
  assert.equal(handleOf(socket)?.readStart?.(), 0);
  await poll(() => texts.join('') === 'wx', 'the byte is read');
});

test('the handle of a server accepts a new backlog', async (t) => {
  const { server } = await openPair(t);
  assert.equal(handleOf(server)?.listen?.(0), 0, 'listen(2) has succeeded');
});

test('the carrier of a TLS socket is the TCP socket below it; a TCP socket has no carrier', async (t) => {
  const { secure, carrier } = await openSecurePair(t);
  assert.equal(carrierOf(secure), carrier);
  assert.equal(carrierOf(carrier), undefined);
});

test('the reads of a TLS socket stop at once, and start again', async (t) => {
  const { secure, client } = await openSecurePair(t);
  let bytes = 0;
  secure.on('data', (piece: Buffer) => (bytes += piece.length));
  setReading(secure, false);
  client.write('one');
  for (let round = 0; round < 50; round += 1) await turn();
  assert.deepEqual([bytes, secure.isPaused()], [0, false]);
  setReading(secure, true);
  await poll(() => bytes === 3, 'the bytes are read');
});

test('only three files of the core read private properties of Node', () => {
  const cwd = join(import.meta.dirname, '../..');
  const isPrivate =
    /\b_(?:handle|parent|consumed|paused|events|httpMessage|readableState|writableState)\b|destroySoon|removeAllListeners|process\.binding/;
  const found = globSync('packages/core/**/*.ts', { cwd }).filter((path) =>
    isPrivate.test(readFileSync(join(cwd, path), 'utf8')),
  );
  assert.deepEqual(found.toSorted(), [
    'packages/core/hosts/node/linger.ts',
    'packages/core/hosts/node/upgrade-offers.ts',
    'packages/core/http1/node-internals.ts',
  ]);
});
