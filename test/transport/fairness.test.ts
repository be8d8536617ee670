// No client makes others wait by what it sends: requests sent ahead and bodies in tiny pieces are taken in turns, and
// what waits is bytes. Seen in turns of the event loop, not in time. D58.

import assert from 'node:assert/strict';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, describe, test } from 'node:test';
import type { Guard } from '../../packages/core/call/guard.ts';
import { createRateLimit } from '../../packages/core/guards/rate-limit/rate-limit.ts';
import { createGate, poll } from '../helpers/changes.ts';
import { assertReply, invalidId, succeeded } from '../helpers/expected.ts';
import { serveGuarded, serveInProcess, type Deed } from '../helpers/in-process.ts';
import { audience, createPair, issuerName, keySetOf } from '../helpers/issuer.ts';
import { bytesOf, chunk, RawClient, request, requestBytes } from '../helpers/raw-client.ts';
import { answer, behind, type ScriptedBackend } from '../helpers/scripted-backend.ts';
import { serveWithTokens } from '../helpers/tokens.ts';

const pair = createPair('one', 'ES256');
const folder = mkdtempSync(join(tmpdir(), 'work-item-gateway-fairness-'));
after(() => {
  rmSync(folder, { recursive: true });
});

type Server = AsyncDisposable & { readonly backend: ScriptedBackend; readonly port: number };
type Start = (deed: Deed) => Promise<Server>;

/** A gateway in this process, and what it does in each turn of the loop. */
async function serve(start: Start = async (deed) => await serveInProcess({}, deed)) {
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
    /** The most requests that were answered in one turn of the event loop. */
    mostInTurn: () => mostInTurn,
    [Symbol.asyncDispose]: async () => {
      clearImmediate(ticker);
      await server[Symbol.asyncDispose]();
    },
  };
}

const refusals: [string, Buffer, number][] = [
  ['a bad id', requestBytes('GET', '/api/work-items/a'), 400],
  ['OPTIONS', requestBytes('OPTIONS', '/api/work-items'), 204],
  ['a method that the path does not have', requestBytes('PATCH', '/api/work-items/1'), 405],
  ['an unknown path, as short as can be', Buffer.from('GET / HTTP/1.1\r\nHost:\r\n\r\n'), 404],
  ['a body that is not JSON', requestBytes('POST', '/api/work-items', { body: '{' }), 500],
  ['a bad id with a body', requestBytes('PUT', '/api/work-items/a', { body: '\n\n\r\n\r\n' }), 400],
  [
    'a body in chunks that is not JSON',
    Buffer.concat([
      requestBytes('POST', '/api/work-items', { headers: [['Transfer-Encoding', 'chunked']] }),
      chunk('{'),
      bytesOf('0\r\n\r\n'),
    ]),
    500,
  ],
];

const elsewhere = (msLeft: number): Guard =>
  createRateLimit({ limit: 1, windowMs: 60_000 }, 'address', {
    take: () => Promise.resolve({ left: msLeft > 0 ? -1 : 0, msLeft }),
  });

// Each gives its reply with a promise, and without IO.
const asyncGuards: [string, Start, number][] = [
  [
    'a token that nobody has issued',
    async (deed) => {
      const server = await serveWithTokens(keySetOf(pair), {}, deed);
      await server.keys.start();
      return server;
    },
    401,
  ],
  [
    'a token that nobody has issued, in a host',
    async (deed) => {
      const authJwksFile = join(folder, 'keys.json');
      writeFileSync(authJwksFile, keySetOf(pair));
      return await serveInProcess({ authIssuer: issuerName, authAudience: [audience], authJwksFile }, deed);
    },
    401,
  ],
  ['a request too many, as others count', (deed) => serveGuarded([elsewhere(1)], undefined, deed), 429],
  [
    'two guards, of which the second refuses',
    (deed) => serveGuarded([elsewhere(0), elsewhere(1)], undefined, deed),
    429,
  ],
];

describe('of requests sent ahead at most 16 are answered in one turn of the event loop', () => {
  for (const [what, bytes, status] of refusals) {
    test(what, async () => {
      await using server = await serve();
      await using client = await RawClient.open(server.port);
      const count = 2000;
      client.send(Buffer.concat(Array.from({ length: count }, () => bytes)));
      for (let index = 0; index < count; index += 1) assert.equal((await client.reply()).status, status);
      assert.equal(server.answered(), count);
      assert.ok(server.mostInTurn() <= 16, `${server.mostInTurn()} in one turn`);
      // It is read on as ever.
      assertReply(await client.call('GET', '/api/work-items'), 200, '[]');
    });
  }

  for (const [what, start, status] of asyncGuards) {
    test(`${what} [D58]`, async () => {
      await using server = await serve(start);
      await using client = await RawClient.open(server.port);
      const count = 1015;
      const bytes = requestBytes('GET', '/api/work-items', { headers: [['Authorization', 'Bearer x']] });
      client.send(Buffer.concat(Array.from({ length: count }, () => bytes)));
      for (let index = 0; index < count; index += 1) assert.equal((await client.reply()).status, status);
      assert.equal(server.answered(), count);
      assert.ok(server.mostInTurn() <= 16, `${server.mostInTurn()} in one turn`);
    });
  }

  test('in the order in which they were sent, whatever they are', async () => {
    await using server = await serve();
    await using client = await RawClient.open(server.port);
    const kinds = [
      ['GET', '/api/work-items/a', {}, 400],
      ['GET', '/api/work-items/1', {}, 200],
      ['PUT', '/api/work-items/1', { body: '[1,\r\n\r\n\n\n2]' }, 200],
      ['PUT', '/api/work-items/1', { body: '[1' }, 500],
      ['OPTIONS', '/api/work-items', {}, 204],
      ['DELETE', '/api/work-items/x', { body: 'x'.repeat(3000) }, 400],
    ] as const;
    const count = 1200;
    const all = Array.from({ length: count }, (_, index) => {
      const [method, path, options] = kinds[index % kinds.length] ?? assert.fail();
      return requestBytes(method, path, { ...options, headers: [['X-Request-Id', `r${index}`]] });
    });
    client.send(Buffer.concat(all));
    for (let index = 0; index < count; index += 1) {
      const reply = await client.reply();
      assert.deepEqual(
        [reply.status, reply.header('x-request-id')],
        [kinds[index % kinds.length]?.[3], `r${index}`],
      );
    }
    assert.ok(server.mostInTurn() <= 16, `${server.mostInTurn()} in one turn`);
  });

  test('of many connections those of one, and one of each as it comes', async () => {
    await using server = await serve();
    const clients = await Promise.all(Array.from({ length: 30 }, () => RawClient.open(server.port)));
    const count = 500;
    const bytes = Buffer.concat(
      Array.from({ length: count }, () => requestBytes('GET', '/api/work-items/a')),
    );
    for (const client of clients) client.send(bytes);
    await Promise.all(
      clients.map(async (client) => {
        for (let index = 0; index < count; index += 1) assertReply(await client.reply(), 400, invalidId);
        client.destroy();
      }),
    );
    assert.ok(server.mostInTurn() <= 16 + clients.length, `${server.mostInTurn()} in one turn`);
  });

  test('those that have waited for an answer, too', async () => {
    await using server = await serve();
    const gate = createGate();
    server.backend.answersOnce(behind(gate, answer('[]')));
    await using client = await RawClient.open(server.port);
    const count = 200;
    client.send(requestBytes('GET', '/api/work-items'));
    client.send(Buffer.concat(Array.from({ length: count }, () => requestBytes('GET', '/api/work-items/a'))));
    await server.backend.nextRequest();
    gate.open();
    assertReply(await client.reply(), 200, '[]');
    for (let index = 0; index < count; index += 1) assertReply(await client.reply(), 400, invalidId);
    assert.ok(server.mostInTurn() <= 16, `${server.mostInTurn()} in one turn`);
  });
});

test('bodies in chunks of one byte are what they are, behind a slow reply too', async () => {
  await using server = await serve();
  const gate = createGate();
  server.backend.answersOnce(behind(gate, answer('[]')));
  await using client = await RawClient.open(server.port);
  client.send(requestBytes('GET', '/api/work-items'));
  await server.backend.nextRequest();
  const count = 100_000;
  const head = requestBytes('PUT', '/api/work-items/5', { headers: [['Transfer-Encoding', 'chunked']] });
  client.send(Buffer.concat([head, bytesOf('1\r\n1\r\n'.repeat(count)), bytesOf('0\r\n\r\n')]));
  // Others are served meanwhile.
  for (let round = 0; round < 50; round += 1) await request(server.port, 'OPTIONS', '/api/work-items');
  gate.open();
  assertReply(await client.reply(), 200, '[]');
  assertReply(await client.reply(), 200, succeeded);
  assert.ok(server.backend.requests[1]?.body.equals(Buffer.alloc(count, '1')));
});

test('requests sent ahead are the same requests wherever the bytes are split', async () => {
  await using server = await serve();
  const bytes = Buffer.concat([
    bytesOf('\r\n'),
    requestBytes('PUT', '/api/work-items/1', { body: '[\r\n\r\n1]' }),
    requestBytes('GET', '/api/work-items/a'),
    requestBytes('POST', '/api/work-items', { headers: [['Transfer-Encoding', 'chunked']] }),
    chunk('['),
    chunk('\r\n\r\n\n\n'),
    chunk('1]'),
    bytesOf('0\r\nTrailer: 1\r\n\r\n'),
    requestBytes('DELETE', '/api/work-items/2', { body: 'GET / HTTP/1.1\r\nHost: x\r\n\r\n' }),
    requestBytes('GET', '/api/work-items/3'),
  ]);
  const expected = [200, 400, 201, 200, 200];
  for (let split = 1; split < bytes.length; split += 1) {
    await using client = await RawClient.open(server.port);
    await client.sendPieces([bytes.subarray(0, split), bytes.subarray(split)]);
    const statuses: number[] = [];
    while (statuses.length < expected.length) statuses.push((await client.reply()).status);
    assert.deepEqual(statuses, expected, `split at ${split}`);
    const calls = server.backend.requests.splice(0);
    assert.deepEqual(
      calls.map(({ method, target, body }) => `${method} ${target} ${body.toString()}`),
      [
        'PUT /api/WorkItem/1 [\r\n\r\n1]',
        'POST /api/WorkItem [\r\n\r\n\n\n1]',
        'DELETE /api/WorkItem/2 ',
        'GET /api/WorkItem/3 ',
      ],
    );
  }
});

test('a client that leaves while its requests wait for their turn costs nothing more', async () => {
  await using server = await serve();
  const bytes = Buffer.concat(Array.from({ length: 2000 }, () => requestBytes('GET', '/api/work-items/a')));
  for (let round = 0; round < 20; round += 1) {
    const client = await RawClient.open(server.port);
    client.send(bytes);
    await client.receives(1);
    if (round % 2 === 0) client.destroy();
    else client.reset();
  }
  let answered = -1;
  await poll(async () => {
    const before = answered;
    assertReply(await request(server.port, 'GET', '/api/work-items'), 200, '[]');
    answered = server.answered();
    return answered === before + 1;
  }, 'nothing but our own calls is answered any more');
});
