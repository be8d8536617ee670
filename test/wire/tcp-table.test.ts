// What is read from the system's tables of TCP sockets, and how a socket is found in them [D35]. That a client's progress
// is seen by it is in test/transport/stall-watch.test.ts.

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { connect, createServer, type AddressInfo, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test, type TestContext } from 'node:test';
import { connect as connectTls, createServer as createTlsServer, type TLSSocket } from 'node:tls';

import { handleOf } from '../../packages/core/http1/node-internals.ts';
import { inodeOf, readUnacknowledged } from '../../packages/core/http1/tcp-table.ts';
import { poll } from '../helpers/changes.ts';

const onlyLinux = process.platform === 'linux' ? false : 'the tables are seen on Linux only';

// As Linux writes them: each row ends in blanks, and from the ten-thousandth on it begins without one.
const columns =
  '  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode';
const end = ' 1 0000000000000000 20 4 30 10 -1                  ';
const table = `${columns}
   0: 00000000:0BB8 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 101${end}
   1: 0100007F:0BB8 0100007F:C350 01 0003D090:00000000 01:00000019 00000000  1000        0 102${end}
   2: 0100007F:C350 0100007F:0BB8 01 00000000:0001E240 00:00000000 00000000  1000        0 103${end}
   3: 0100007F:0BB8 0100007F:C351 08 00000001:00000005 01:00000019 00000000  1000        0 104${end}
   4: 0100007F:0BB8 0100007F:C352 06 00000000:00000000 03:00000F2A 00000000     0        0 0 3 0000000000000000
10000: 0100007F:0BB8 0100007F:C353 04 FFFFFFFF:00000000 01:00000019 00000000  1000        0 105${end}
`;
const table6 = `${columns.replace('local_address rem_address  ', 'local_address                         remote_address                       ')}
   0: 00000000000000000000000000000000:0BB8 00000000000000000000000000000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 201${end}
   1: 00000000000000000000000001000000:0BB8 00000000000000000000000001000000:D431 01 0027AC40:00000000 01:00000014 00000000  1000        0 202${end}
   2: 0000000000000000FFFF00000100007F:0BB8 0000000000000000FFFF00000100007F:D432 01 00000000:00000000 00:00000000 00000000  1000        0 203${end}
`;

function write(t: TestContext, texts: Readonly<Record<string, string>>): (name: string) => string {
  const folder = mkdtempSync(join(tmpdir(), 'work-item-gateway-tcp-'));
  t.after(() => {
    rmSync(folder, { recursive: true });
  });
  for (const [name, text] of Object.entries(texts)) writeFileSync(join(folder, name), text);
  return (name) => join(folder, name);
}

test('of both tables, those sockets are known that hold something, in whatever state they are', async (t) => {
  const path = write(t, { tcp: table, tcp6: table6 });
  assert.deepEqual(
    [...((await readUnacknowledged([path('tcp'), path('tcp6')])) ?? [])],
    [
      ['102', 250_000],
      ['104', 1],
      ['105', 4_294_967_295],
      ['202', 2_600_000],
    ],
  );
});

test('a table that is missing leaves the other one; without any nothing is known', async (t) => {
  const path = write(t, { tcp: table, tcp6: table6, empty: '', none: `${columns}\n` });
  assert.deepEqual(
    [...((await readUnacknowledged([path('missing'), path('tcp6')])) ?? [])],
    [['202', 2_600_000]],
  );
  assert.equal((await readUnacknowledged([path('tcp'), path('missing')]))?.size, 3);
  assert.equal(await readUnacknowledged([path('missing'), path('gone')]), undefined);
  assert.equal(await readUnacknowledged([path('missing'), path('empty')]), undefined);
  assert.deepEqual(await readUnacknowledged([path('none'), path('missing')]), new Map(), 'a table of nobody');
});

test('a row that is not whole is nobody', async (t) => {
  const row = '   1: 0100007F:0BB8 0100007F:C350 01 0003D090:00000000 01:00000019 00000000';
  const path = write(t, { tcp: `${table}${row}` });
  assert.equal((await readUnacknowledged([path('tcp')]))?.size, 3);
});

test('a socket is found by its number until it is closed', { skip: onlyLinux }, async (t) => {
  const server = createServer();
  await once(server.listen(0, '127.0.0.1'), 'listening');
  const client = connect((server.address() as AddressInfo).port, '127.0.0.1');
  const [socket] = (await once(server, 'connection')) as [Socket];
  t.after(() => {
    client.destroy();
    socket.destroy();
    server.close();
  });
  const inodes = [inodeOf(socket), inodeOf(client)];
  assert.match(inodes[0] ?? '', /^\d+$/);
  assert.match(inodes[1] ?? '', /^\d+$/);
  assert.notEqual(inodes[0], inodes[1]);
  socket.write(Buffer.alloc(32_000_000));
  const held = async () => (await readUnacknowledged())?.get(inodes[0] ?? '') ?? 0;
  await poll(async () => (await held()) > 0, 'what the client does not take');
  assert.equal((await readUnacknowledged())?.has(inodes[1] ?? ''), false, 'the client has sent nothing');
  socket.destroy();
  client.destroy();
  await poll(() => !handleOf(socket), 'it is closed');
  assert.equal(inodeOf(socket), undefined);
});

test('a socket of TLS has the number of the one below it', { skip: onlyLinux }, async (t) => {
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
  assert.match(inodeOf(secure) ?? '', /^\d+$/);
  assert.equal(inodeOf(secure), inodeOf(carrier));
});
