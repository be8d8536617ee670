// The OS's tables of TCP sockets, and the inode that identifies a socket in them [D35]. Their use is tested in
// test/transport/stall-watch.test.ts.

import assert from 'node:assert/strict';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test, type TestContext } from 'node:test';

import { handleOf } from '../../packages/core/http1/node-internals.ts';
import { inodeOf, readUnacknowledged } from '../../packages/core/http1/stall-watch.ts';
import { poll } from '../helpers/changes.ts';
import { openPair, openSecurePair } from '../helpers/socket-pairs.ts';

const onlyLinux = process.platform === 'linux' ? false : 'only Linux has these tables';

// The format of Linux: each row ends with spaces, and rows from number 10,000 on do not begin with a space.
const columns = '  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode';
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
  t.after(() => rmSync(folder, { recursive: true }));
  for (const [name, text] of Object.entries(texts)) writeFileSync(join(folder, name), text);
  return (name) => join(folder, name);
}

test('sockets with unacknowledged bytes are found in both tables, in any state', async (t) => {
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

test('if one table is missing, the other table is used; if both are missing, the result is undefined', async (t) => {
  const path = write(t, { tcp: table, tcp6: table6, empty: '', none: `${columns}\n` });
  assert.deepEqual([...((await readUnacknowledged([path('missing'), path('tcp6')])) ?? [])], [['202', 2_600_000]]);
  assert.equal((await readUnacknowledged([path('tcp'), path('missing')]))?.size, 3);
  assert.equal(await readUnacknowledged([path('missing'), path('gone')]), undefined);
  assert.equal(await readUnacknowledged([path('missing'), path('empty')]), undefined);
  assert.deepEqual(await readUnacknowledged([path('none'), path('missing')]), new Map(), 'an empty table');
});

test('an incomplete row is ignored', async (t) => {
  const row = '   1: 0100007F:0BB8 0100007F:C350 01 0003D090:00000000 01:00000019 00000000';
  const path = write(t, { tcp: `${table}${row}` });
  assert.equal((await readUnacknowledged([path('tcp')]))?.size, 3);
});

test('a socket has an inode until it is closed', { skip: onlyLinux }, async (t) => {
  const { client, socket } = await openPair(t);
  const inodes = [inodeOf(socket), inodeOf(client)];
  assert.match(inodes[0] ?? '', /^\d+$/);
  assert.match(inodes[1] ?? '', /^\d+$/);
  assert.notEqual(inodes[0], inodes[1]);
  socket.write(Buffer.alloc(32_000_000));
  const held = async () => (await readUnacknowledged())?.get(inodes[0] ?? '') ?? 0;
  await poll(async () => (await held()) > 0, 'bytes that the client does not read');
  assert.equal((await readUnacknowledged())?.has(inodes[1] ?? ''), false, 'the client has sent nothing');
  socket.destroy();
  client.destroy();
  await poll(() => !handleOf(socket), 'the socket is closed');
  assert.equal(inodeOf(socket), undefined);
});

test('a TLS socket has the inode of the TCP socket below it', { skip: onlyLinux }, async (t) => {
  const { secure, carrier } = await openSecurePair(t);
  assert.match(inodeOf(secure) ?? '', /^\d+$/);
  assert.equal(inodeOf(secure), inodeOf(carrier));
});
