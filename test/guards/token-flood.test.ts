// A flood of RS256 tokens: two are verified at a time, a limited number waits in order, and remembered tokens do not wait
// [D44, D58].

import assert from 'node:assert/strict';
import { test, type TestContext } from 'node:test';
import { createGate, poll } from '../helpers/changes.ts';
import { assertReply, unavailable } from '../helpers/expected.ts';
import { createPair, goodToken, keySetOf } from '../helpers/issuer.ts';
import { requestBytes, type RawClient } from '../helpers/raw-client.ts';
import { assertInvalidToken, bearer, serveWithTokens } from '../helpers/tokens.ts';

const pair = createPair('one', 'RS256');
/** Another key with the same id. */
const stranger = createPair('one', 'RS256');
const read = ['GET', '/api/work-items/5'] as const;
const atOnceMax = 2;

function requestOf(sub: string, signer = pair): Buffer {
  return requestBytes(...read, { headers: [bearer(goodToken(signer, undefined, { sub }))] });
}

/** Starts a server that remembers the token of `callGood`. All later verifications wait for `gate`. */
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
  /** Subjects of the tokens whose verification has begun, in that order. */
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
    /** Sends each request on its own connection, after the previous request has arrived. */
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

test('the tokens of 100 clients are verified two at a time; a remembered token does not wait [D58]', async (t) => {
  await using server = await serve(t);
  const clients = await Promise.all(Array.from({ length: 100 }, () => server.connect()));
  for (const client of clients) client.send(requestOf('ada', stranger));
  await poll(() => server.begun.length === atOnceMax, 'two tokens are being verified');
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

test('good and forged tokens are verified in the order of their arrival [D58]', async (t) => {
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

test('when too many tokens wait, the next token is 503 immediately; the waiting tokens get their replies [D26, D58]', async (t) => {
  await using server = await serve(t, { waitingMax: 3 });
  const clients = await server.sendInOrder(Array.from({ length: atOnceMax + 3 }, () => requestOf('ada')));
  await using late = await server.connect();
  late.send(requestOf('late'));
  const reply = await late.reply();
  assertReply(reply, 503, unavailable, ['retry-after']);
  assert.equal(reply.header('retry-after'), '1');
  assert.equal(server.last(), 'overload too many tokens wait to be verified');
  // Calls that need no verification are answered.
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

test('a waiting token is refused if its key is removed meanwhile [D44]', async (t) => {
  await using server = await serve(t);
  const clients = await server.sendInOrder(['ada', 'bob', 'eve'].map((sub) => requestOf(sub)));
  server.issuer.read = () => Promise.resolve(keySetOf(createPair('two', 'RS256')));
  await server.clock.pass(300_000);
  server.gate.open();
  // The verification of the first two tokens began before the keys changed.
  assert.deepEqual(await Promise.all(clients.map(async (each) => (await each.reply()).status)), [200, 200, 401]);
  assert.deepEqual(server.begun, ['ada', 'bob']);
  for (const client of clients) client.destroy();
});
