// Fairness between clients: pipelined requests and bodies in tiny chunks do not delay other clients. Measured in
// event-loop turns, not in time. D58.

import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import type { Socket } from 'node:net';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import type { Guard } from '../../packages/core/call/guard.ts';
import { createRateLimit } from '../../packages/core/guards/rate-limit/rate-limit.ts';
import { createGate, poll } from '../helpers/changes.ts';
import { assertReply, invalidId, succeeded } from '../helpers/expected.ts';
import { startGateway, type HostName } from '../helpers/gateway.ts';
import { audience, createPair, issuerName, keySetOf } from '../helpers/issuer.ts';
import { bytesOf, chunk, RawClient, request, requestBytes } from '../helpers/raw-client.ts';
import { answer, behind } from '../helpers/scripted-backend.ts';
import { useFolder } from '../helpers/suites.ts';
import { startTokenGuard } from '../helpers/tokens.ts';
import { TurnCounter } from './served-connections.ts';

const [collection, item] = ['/api/work-items', '/api/work-items/5'];
const keys = keySetOf(createPair('one', 'ES256'));
const keyFile = join(useFolder(), 'keys.json');
writeFileSync(keyFile, keys);
const { guard } = await startTokenGuard(keys);
const settings = { authIssuer: issuerName, authAudience: [audience], authJwksFile: keyFile };
const rateLimit = (msLeft: number): Guard =>
  createRateLimit({ limit: 1, windowMs: 60_000 }, 'address', {
    take: () => Promise.resolve({ left: msLeft > 0 ? -1 : 0, msLeft }),
  });

const badId = requestBytes('GET', '/api/work-items/a');
const withToken = requestBytes('GET', collection, { headers: [['Authorization', 'Bearer x']] });
const chunked = (method: string, path: string, ...parts: Buffer[]) =>
  Buffer.concat([requestBytes(method, path, { headers: [['Transfer-Encoding', 'chunked']] }), ...parts, chunk('')]);

describe('at most 16 pipelined requests are answered in one event-loop turn [D58]', () => {
  // The gateway refuses these requests at once, or asynchronously but without I/O.
  for (const [what, bytes, status, options] of [
    ['a bad id', badId, 400, {}],
    ['a body in chunks that is not JSON', chunked('POST', collection, chunk('{')), 500, {}],
    ['an invalid token', withToken, 401, { host: 'http1', guards: [guard] }],
    ['node: an invalid token', withToken, 401, { host: 'node', settings }],
    ['plugin: an invalid token', withToken, 401, { host: 'plugin', settings }],
    ['two guards, of which the second refuses', withToken, 429, { host: 'http1', guards: [rateLimit(0), rateLimit(1)] }],
  ] as const) {
    test(what, async () => {
      const answered = new TurnCounter();
      await using server = await startGateway<HostName>({ ...options, onEvent: () => answered.count() });
      await using client = await RawClient.open(server.port);
      // Not a multiple of 16.
      const count = 215;
      client.send(Buffer.alloc(count * bytes.length, bytes));
      for (let index = 0; index < count; index += 1) assert.equal((await client.reply()).status, status);
      assert.equal(server.told.ended.length, count);
      // A server of Node may pass on one more request before its connection's turn.
      assert.ok(answered.most <= ('settings' in options ? 17 : 16), `${answered.most} in one turn`);
      if (status < 401) assertReply(await client.call('GET', item), 200, '{"id":5}');
    });
  } // prettier-ignore

  test('with 30 connections, a turn answers at most 16 waiting requests plus one new request from each connection', async () => {
    const answered = new TurnCounter();
    await using server = await startGateway({ onEvent: () => answered.count() });
    const clients = await Promise.all(Array.from({ length: 30 }, () => RawClient.open(server.port)));
    // From then on, the gateway reads from all connections in the same turn.
    for (const client of clients) await client.call('OPTIONS', collection);
    for (const client of clients) client.send(Buffer.alloc(150 * badId.length, badId));
    for (const client of clients) {
      for (let index = 0; index < 150; index += 1) assertReply(await client.reply(), 400, invalidId);
      client.destroy();
    }
    assert.ok(answered.most <= 16 + clients.length, `${answered.most} in one turn`);
  });
});

test('a pipelined body in one-byte chunks arrives unchanged, and other clients are served meanwhile', async () => {
  await using server = await startGateway();
  const gate = createGate();
  server.backend.answersOnce(behind(gate, answer('[]')));
  await using client = await RawClient.open(server.port);
  client.send(requestBytes('GET', collection));
  await server.backend.nextRequest();
  const count = 100_000;
  client.send(chunked('PUT', item, bytesOf('1\r\n1\r\n'.repeat(count))));
  for (let round = 0; round < 20; round += 1) await request(server.port, 'OPTIONS', collection);
  gate.open();
  assertReply(await client.reply(), 200, '[]');
  assertReply(await client.reply(), 200, succeeded);
  assert.ok(server.backend.requests[1]?.body.equals(Buffer.alloc(count, '1')));
});

test("Node's server stops reading from a connection while many of its requests wait for their turn [D58]", async () => {
  let socket: Socket | undefined;
  await using server = await startGateway({
    host: 'node',
    mount: (handler) => (incoming, response) => {
      socket = incoming.socket;
      handler(incoming, response);
    },
  });
  const gate = createGate();
  server.backend.answers(behind(gate, answer('{"id":5}')));
  await using client = await RawClient.open(server.port);
  const each = requestBytes('GET', item, { headers: [['X-Padding', 'x'.repeat(3_000)]] });
  client.send(Buffer.alloc(each.length * 500, each));
  await server.backend.nextRequest();
  await poll(() => socket?.isPaused() === true, 'the connection is paused');
  const read = socket?.bytesRead ?? 0;
  assert.ok(read <= 3 * 65_536, `${read} bytes have been read`);
  gate.open();
  for (let index = 0; index < 500; index += 1) assertReply(await client.reply(), 200, '{"id":5}');
});
