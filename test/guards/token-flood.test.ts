// A flood of tokens that have to be verified: two at a time, the others in order and up to a bound, and what is remembered
// waits for none of them [D44, D58]. With keys of RS256.

import assert from 'node:assert/strict';
import { test, type TestContext } from 'node:test';
import { createGate, poll } from '../helpers/changes.ts';
import { assertReply, unavailable } from '../helpers/expected.ts';
import { createPair, goodToken, keySetOf } from '../helpers/issuer.ts';
import { requestBytes, type RawClient } from '../helpers/raw-client.ts';
import { assertInvalidToken, bearer, serveWithTokens } from '../helpers/tokens.ts';

const pair = createPair('one', 'RS256');
/** Another key of the same name. */
const stranger = createPair('one', 'RS256');
const read = ['GET', '/api/work-items/5'] as const;
const atOnceMax = 2;

function requestOf(sub: string, signer = pair): Buffer {
  return requestBytes(...read, { headers: [bearer(goodToken(signer, undefined, { sub }))] });
}

/** A server, a client whose token is remembered, and verifications that do not end before `gate` is opened. */
async function serve(t: TestContext, options: { readonly waitingMax?: number } = {}) {
  const server = await serveWithTokens(keySetOf(pair), options);
  await server.keys.start();
  const good = await server.connect();
  const known = requestOf('known');
  const callGood = async () => {
    good.send(known);
    assertReply(await good.reply(), 200, '{"id":5}');
  };
  await callGood();
  const gate = createGate();
  /** Whose tokens have been looked at, in this order. */
  const begun: string[] = [];
  let now = 0;
  let most = 0;
  const { subtle } = globalThis.crypto;
  const verify = subtle.verify.bind(subtle);
  t.mock.method(subtle, 'verify', async (...input: Parameters<typeof verify>) => {
    const [, payload = ''] = Buffer.from(input[3] as Uint8Array)
      .toString()
      .split('.');
    begun.push((JSON.parse(Buffer.from(payload, 'base64url').toString()) as { sub: string }).sub);
    now += 1;
    most = Math.max(most, now);
    await gate.opened;
    try {
      return await verify(...input);
    } finally {
      now -= 1;
    }
  });
  return {
    ...server,
    callGood,
    gate,
    begun,
    most: () => most,
    /** Sends each request on a connection of its own, when the one before it has come. */
    sendInOrder: async (requests: readonly Buffer[]): Promise<RawClient[]> => {
      const clients: RawClient[] = [];
      for (const bytes of requests) {
        const client = await server.connect();
        client.send(bytes);
        await callGood();
        clients.push(client);
      }
      return clients;
    },
    [Symbol.asyncDispose]: async () => {
      good.destroy();
      await server[Symbol.asyncDispose]();
    },
  };
}

test('of the tokens of 100 clients two are verified at a time, and a token that is remembered waits for none [D58]', async (t) => {
  await using server = await serve(t);
  const clients = await Promise.all(Array.from({ length: 100 }, () => server.connect()));
  for (const client of clients) client.send(requestOf('ada', stranger));
  await poll(() => server.begun.length === atOnceMax, 'two are being verified');
  for (let call = 0; call < 10; call += 1) await server.callGood();
  assert.equal(server.begun.length, atOnceMax);
  server.gate.open();
  for (const client of clients) {
    assertInvalidToken(await client.reply());
    client.destroy();
  }
  assert.equal(server.begun.length, clients.length);
  assert.equal(server.most(), atOnceMax);
});

test('tokens are verified in the order in which they came, good and forged [D58]', async (t) => {
  await using server = await serve(t);
  const rows = ['ada', 'bob', 'eve', 'dan', 'kim', 'mallory'].map((sub) => ({
    sub,
    signer: sub === 'eve' || sub === 'mallory' ? stranger : pair,
  }));
  const clients = await server.sendInOrder(rows.map(({ sub, signer }) => requestOf(sub, signer)));
  server.gate.open();
  for (const [index, client] of clients.entries()) {
    assert.equal((await client.reply()).status, rows[index]?.signer === pair ? 200 : 401);
    client.destroy();
  }
  assert.deepEqual(
    server.begun,
    rows.map(({ sub }) => sub),
  );
});

test('a token behind too many others is 503 at once, and those before it have their reply [D26, D58]', async (t) => {
  await using server = await serve(t, { waitingMax: 3 });
  const clients = await server.sendInOrder(Array.from({ length: atOnceMax + 3 }, () => requestOf('ada')));
  await using late = await server.connect();
  late.send(requestOf('late'));
  const reply = await late.reply();
  assertReply(reply, 503, unavailable, ['retry-after']);
  assert.equal(reply.header('retry-after'), '1');
  assert.equal(server.last(), 'overload too many tokens wait to be verified');
  // What needs no verification is answered as ever.
  for (const [headers, status] of [
    [[], 401],
    [[bearer('x')], 401],
    [[bearer(goodToken(pair, undefined, {}, { kid: 'unknown' }))], 401],
  ] as const) {
    assert.equal((await late.call(...read, { headers })).status, status);
  }
  await server.callGood();
  server.gate.open();
  for (const client of clients) {
    assertReply(await client.reply(), 200, '{"id":5}');
    client.destroy();
  }
  late.send(requestOf('late'));
  assertReply(await late.reply(), 200, '{"id":5}');
});

test('a key that is taken away while a token waits does not verify it [D44]', async (t) => {
  await using server = await serve(t);
  const clients = await server.sendInOrder(['ada', 'bob', 'eve'].map((sub) => requestOf(sub)));
  server.issuer.read = () => Promise.resolve(keySetOf(createPair('two', 'RS256')));
  await server.clock.pass(300_000);
  server.gate.open();
  // The first two had begun before.
  assert.deepEqual(
    await Promise.all(clients.map(async (each) => (await each.reply()).status)),
    [200, 200, 401],
  );
  assert.deepEqual(server.begun, ['ada', 'bob']);
  for (const client of clients) client.destroy();
});
