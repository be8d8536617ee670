// The server side of HTTP/1.1 on real sockets: request bodies, held bodies (`holdBody`), early replies (sent before the
// body is complete), and `100 Continue`. D11, D27.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { poll } from '../helpers/changes.ts';
import { requestBytes } from '../helpers/raw-client.ts';
import {
  assertEnds,
  assertLastReply,
  assertReplies,
  get,
  join,
  put,
  serve,
  serveOne,
  turns,
  type Script,
} from './served-connections.ts';

const hold: Script = { onStart: (received) => received.transport.holdBody() };

test('a body arrives unchanged, and the memory of its pieces is not overwritten later', async (t) => {
  const { client, exchange, request } = await serveOne(t);
  const body = Array.from({ length: 30_000 }, (_, index) => String.fromCharCode(97 + (index % 26))).join('');
  const chunks = Array.from(body.matchAll(/[^]{1,7}/g), ([data]) => `${data.length}\r\n${data}\r\n`);
  client.send(join(put('/1', 'chunked'), ...chunks, '0\r\n\r\n', get('/2')));
  const received = await request(0);
  await poll(() => received.events.includes('end'), 'the whole body');
  assert.equal(received.body, body);
  await exchange(client, 0, '1');
  await exchange(client, 1, '2');
  assert.equal(received.body, body);
});

test('after an early reply the rest of the body is dropped, and the next request is served', async (t) => {
  const { client, exchange, request } = await serveOne(t);
  client.send(`${put('/1', 8)}abcd`);
  const first = await request(0);
  await poll(() => first.body === 'abcd', 'a part of its body');
  first.reply('early');
  const reply = await client.reply();
  assert.deepEqual([reply.text, reply.header('connection')], ['early', 'keep-alive']);
  client.send(join('efgh', get('/2')));
  await exchange(client, 1, 'second');
  assert.deepEqual(first.events, ['start', 'body', 'taken']);
});

for (const [what, length, served] of [
  ['of the largest allowed size', 100, ['/1', '/2', '/3']],
  ['one byte over the limit', 101, ['/1']],
] as const) {
  test(`if two requests with a body ${what} get early replies, ${served.length} of 3 requests are served [D11]`, async (t) => {
    const script: Script = { onStart: (each) => each.reply(each.head.target) };
    const { client, received } = await serveOne(t, script, { requestBytesMax: 100 });
    const body = 'x'.repeat(length);
    client.send(join(put('/1', length), body, put('/2', length), body, get('/3', [['Connection', 'close']])));
    assert.equal(await client.closed(), 'end');
    assert.deepEqual(
      received.map(({ head }) => head.target),
      served,
    );
  });
}

test('a client that is still sending a body over the limit gets an early reply and no reset [D11]', async (t) => {
  const script: Script = { onStart: (each) => each.reply('early', { status: 400 }) };
  const { connect, received } = await serve(t, script, { requestBytesMax: 1_000 });
  for (let round = 0; round < 5; round += 1) {
    const client = await connect();
    client.pause();
    client.send(requestBytes('PUT', '/1', { body: Buffer.alloc(3_000_000, 'x') }));
    await poll(() => received.length > round, 'the request');
    client.resume();
    assert.equal((await client.reply()).status, 400);
    assert.equal(await client.closed(), 'end');
  }
});

for (const [what, rest] of [
  ['is malformed', 'x'],
  ['is cut off', undefined],
] as const) {
  test(`an early reply to a request whose body ${what} is the last reply of its connection [D27]`, async (t) => {
    const { client, exchange, refused, faults } = await serveOne(t);
    client.send(`${put('/1', 'chunked')}5\r\n`);
    await exchange(client, 0, 'early');
    if (rest === undefined) client.end();
    else client.send(join('hello', rest, get('/2')));
    await assertEnds(client);
    assert.deepEqual([refused, faults], [[], []]);
  });
}

test('100 Continue is sent once, when the handler reads the body, and only to HTTP/1.1 clients that expect it', async (t) => {
  const { client, request } = await serveOne(t);
  const expecting = (version: string): string =>
    `PUT /1 HTTP/${version}\r\nHost: x\r\nConnection: keep-alive\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n`;
  for (const [index, version] of ['1.1', '1.0'].entries()) {
    client.send(expecting(version));
    const received = await request(index);
    received.transport.readBody();
    received.transport.readBody();
    if (version === '1.1') assert.equal((await client.reply()).status, 100);
    client.send('ab');
    await poll(() => received.events.includes('end'), 'its body');
    received.reply(version);
    await assertReplies(client, version);
  }
  // Without a 100 the client may omit the body. The server cannot tell where the next request begins, so it closes the
  // connection.
  client.send(expecting('1.1'));
  (await request(2)).reply('no', { status: 417 });
  await assertLastReply(client, 417);
});

test('a complete held body is passed to the handler only when the handler reads it', async (t) => {
  const { client, connection, exchange, request } = await serveOne(t, hold);
  const bytes = `${put('/1', 5)}hello`;
  client.send(bytes);
  const first = await request(0);
  await poll(() => connection.socket.bytesRead === bytes.length, 'all has been read');
  await turns(5);
  assert.deepEqual(first.events, ['start']);
  first.transport.readBody();
  await poll(() => first.events.includes('end'), 'the body');
  assert.equal(first.body, 'hello');
  await exchange(client, 0, '1');
});

test('an early reply drops a held body, and the next request is served', async (t) => {
  const { client, connection, exchange, request } = await serveOne(t, hold);
  const bytes = join(put('/1', 5), 'hello', get('/2'));
  client.send(bytes);
  const first = await request(0);
  await poll(() => connection.socket.bytesRead === bytes.length, 'all has been read');
  await exchange(client, 0, 'early');
  await exchange(client, 1, '2');
  assert.deepEqual(first.events, ['start', 'taken']);
});

for (const [what, begun, rest] of [
  ['has no body', get('/1'), ''],
  ['has a body that has not arrived', put('/1', 5), 'hello'],
] as const) {
  test(`holdBody has no effect after the reply to a request that ${what}, and the next request is served`, async (t) => {
    const { client, exchange, request } = await serveOne(t);
    client.send(begun);
    const first = await request(0);
    first.reply('1');
    first.transport.holdBody();
    await assertReplies(client, '1');
    client.send(join(rest, get('/2')));
    await exchange(client, 1, '2');
  });
}
