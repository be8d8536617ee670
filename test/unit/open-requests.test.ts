// The plugin's open requests, which a shutdown waits for, and the connections that it cuts [D55].

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer, type ServerResponse } from 'node:http';
import type { AddressInfo, Socket } from 'node:net';
import { after, before, test } from 'node:test';
import { OpenRequests } from '../../packages/core/hosts/fastify/open-requests.ts';
import { poll } from '../helpers/changes.ts';
import { closed, RawClient, requestBytes } from '../helpers/raw-client.ts';

let open = new OpenRequests();
let responses: ServerResponse[] = [];
let over: number[] = [];
const server = createServer((request, response) => {
  const number = responses.push(response);
  // Keeps the list of this test, because the client may leave after the next test has replaced `over`.
  const ended = over;
  open.add(request.socket, response, () => ended.push(number));
});
before(async () => {
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
});
after(() => server.close());

/** Sends requests on one connection, and waits until all have arrived. None is answered yet. */
async function send(count: number): Promise<RawClient> {
  [open, responses, over] = [new OpenRequests(), [], []];
  const client = await RawClient.open((server.address() as AddressInfo).port);
  client.send(Buffer.concat(Array.from({ length: count }, () => requestBytes('GET', '/'))));
  await poll(() => responses.length === count, `${count} requests`);
  return client;
}

function areOver(count: number): Promise<void> {
  return poll(() => over.length === count, `${count} requests are over`);
}

test('when a client leaves, its requests are over, including those that waited for earlier replies', async () => {
  const client = await send(3);
  await client[Symbol.asyncDispose]();
  await areOver(3);
  assert.deepEqual(over.toSorted(), [1, 2, 3]);
  await open.end(60_000);
});

test('a shutdown waits for the last reply', async () => {
  await using client = await send(2);
  const ended = open.end(60_000).then(() => over.length);
  responses[0]?.end();
  await areOver(1);
  responses[1]?.end();
  assert.equal(await ended, 2);
  assert.equal((await client.reply()).status, 200);
});

test('a shutdown waits no longer than its limit', async () => {
  await using client = await send(1);
  await open.end(1);
  assert.deepEqual(over, []);
  assert.ok(client.isOpen);
});

test('a request that is added twice is counted once; it is not counted if its client has left', async () => {
  const client = await send(1);
  const [response] = responses;
  assert.ok(response?.socket);
  const { socket } = response;
  open.add(socket, response, () => over.push(NaN));
  response.end();
  await areOver(1);
  await client[Symbol.asyncDispose]();
  await closed(socket);
  open.add(socket, response, () => over.push(NaN));
  await open.end(60_000);
  assert.deepEqual(over, [1]);
});

test('all connections are cut, also one that has sent nothing', async () => {
  await using client = await send(1);
  const accepted = once(server, 'connection') as Promise<[Socket]>;
  await using silent = await RawClient.open((server.address() as AddressInfo).port);
  open.watch((await accepted)[0]);
  open.cut();
  await client.closed();
  await silent.closed();
});
