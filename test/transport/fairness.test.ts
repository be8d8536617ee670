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
import { type EventListener, startGateway } from '../helpers/gateway.ts';
import { audience, createPair, issuerName, keySetOf } from '../helpers/issuer.ts';
import { bytesOf, chunk, RawClient, request, requestBytes } from '../helpers/raw-client.ts';
import { answer, behind, type ScriptedBackend } from '../helpers/scripted-backend.ts';
import { useFolder } from '../helpers/suites.ts';
import { startTokenGuard } from '../helpers/tokens.ts';

type Server = AsyncDisposable & { readonly backend: ScriptedBackend; readonly port: number };
type Start = (onEvent: EventListener) => Promise<Server>;

/** A gateway in this process that counts the requests it answers in each event-loop turn. */
async function serve(start: Start = async (listener) => await startGateway({ onEvent: listener })) {
  let answered = 0;
  let answeredInTurn = 0;
  let mostInTurn = 0;
  const server = await start((event) => {
    assert.equal(event, 'ended');
    answered += 1;
    answeredInTurn += 1;
  });
  server.backend.answers(answer('[]'));
  const countTurn = (): void => {
    mostInTurn = Math.max(mostInTurn, answeredInTurn);
    answeredInTurn = 0;
    ticker = setImmediate(countTurn);
  };
  let ticker = setImmediate(countTurn);
  return {
    backend: server.backend,
    port: server.port,
    answered: () => answered,
    /** The most requests that were answered in one event-loop turn. */
    mostInTurn: () => mostInTurn,
    [Symbol.asyncDispose]: async () => {
      clearImmediate(ticker);
      await server[Symbol.asyncDispose]();
    },
  };
}

const elsewhere = (msLeft: number): Guard =>
  createRateLimit({ limit: 1, windowMs: 60_000 }, 'address', {
    take: () => Promise.resolve({ left: msLeft > 0 ? -1 : 0, msLeft }),
  });

const keyFile = join(useFolder(), 'keys.json');
writeFileSync(keyFile, keySetOf(createPair('one', 'ES256')));

const badId = requestBytes('GET', '/api/work-items/a');
const withToken = requestBytes('GET', '/api/work-items', { headers: [['Authorization', 'Bearer x']] });
const chunkedHead = requestBytes('POST', '/api/work-items', { headers: [['Transfer-Encoding', 'chunked']] });

// The gateway refuses these requests.
const refusals: [string, Buffer, number, Start?][] = [
  ['a bad id', badId, 400],
  ['a body in chunks that is not JSON', Buffer.concat([chunkedHead, chunk('{'), bytesOf('0\r\n\r\n')]), 500],
  [
    'an invalid token, refused asynchronously but without I/O',
    withToken,
    401,
    async (listener) => {
      const { guard } = await startTokenGuard(keySetOf(createPair('one', 'ES256')));
      return await startGateway({ host: 'http1', guards: [guard], onEvent: listener });
    },
  ],
  ...(['node', 'plugin'] as const).map((host): [string, Buffer, number, Start] => [
    `${host}: an invalid token, refused asynchronously but without I/O`,
    withToken,
    401,
    (onEvent) =>
      startGateway({
        host,
        onEvent,
        settings: { authIssuer: issuerName, authAudience: [audience], authJwksFile: keyFile },
      }),
  ]),
  [
    'two guards, of which the second refuses asynchronously but without I/O',
    withToken,
    429,
    (listener) => startGateway({ host: 'http1', guards: [elsewhere(0), elsewhere(1)], onEvent: listener }),
  ],
];

describe('at most 16 pipelined requests are answered in one event-loop turn [D58]', () => {
  for (const [what, bytes, status, start] of refusals) {
    test(what, async () => {
      await using server = await serve(start);
      await using client = await RawClient.open(server.port);
      // Not a multiple of 16.
      const count = 1015;
      client.send(Buffer.concat(Array.from({ length: count }, () => bytes)));
      for (let index = 0; index < count; index += 1) assert.equal((await client.reply()).status, status);
      assert.equal(server.answered(), count);
      assert.ok(server.mostInTurn() <= 16, `${server.mostInTurn()} in one turn`);
      // The connection can still be used.
      if (start === undefined) assertReply(await client.call('GET', '/api/work-items'), 200, '[]');
    });
  }

  test('with 30 connections, a turn answers at most 16 waiting requests plus one new request from each connection', async () => {
    await using server = await serve();
    const clients = await Promise.all(Array.from({ length: 30 }, () => RawClient.open(server.port)));
    const count = 500;
    const bytes = Buffer.concat(Array.from({ length: count }, () => badId));
    for (const client of clients) client.send(bytes);
    await Promise.all(
      clients.map(async (client) => {
        for (let index = 0; index < count; index += 1) assertReply(await client.reply(), 400, invalidId);
        client.destroy();
      }),
    );
    assert.ok(server.mostInTurn() <= 16 + clients.length, `${server.mostInTurn()} in one turn`);
  });
});

test('a pipelined body in one-byte chunks arrives unchanged, and other clients are served meanwhile', async () => {
  await using server = await serve();
  const gate = createGate();
  server.backend.answersOnce(behind(gate, answer('[]')));
  await using client = await RawClient.open(server.port);
  client.send(requestBytes('GET', '/api/work-items'));
  await server.backend.nextRequest();
  const count = 100_000;
  const head = requestBytes('PUT', '/api/work-items/5', { headers: [['Transfer-Encoding', 'chunked']] });
  client.send(Buffer.concat([head, bytesOf('1\r\n1\r\n'.repeat(count)), bytesOf('0\r\n\r\n')]));

  for (let round = 0; round < 50; round += 1) await request(server.port, 'OPTIONS', '/api/work-items');
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
  const each = requestBytes('GET', '/api/work-items/5', { headers: [['X-Padding', 'x'.repeat(1_000)]] });
  const count = 2_000;
  client.send(Buffer.alloc(each.length * count, each));
  await server.backend.nextRequest();
  await poll(() => socket?.isPaused() === true, 'the connection is paused');
  const read = socket?.bytesRead ?? 0;
  assert.ok(read <= 3 * 65_536, `${read} bytes have been read`);
  gate.open();
  for (let index = 0; index < count; index += 1) {
    assertReply(await client.reply(), 200, '{"id":5}');
  }
});
