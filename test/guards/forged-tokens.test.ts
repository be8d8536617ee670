// Tokens that are forged, stale, meant for others, malformed or odd: each is refused with exact bytes, and the backend is not
// called [D41, D43]. The table is in a file of its own: hosts are tried with it as well.

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { assertReply, operation, operations } from '../helpers/expected.ts';
import { ec, forgedTokens, rsa, seconds, stranger } from '../helpers/forged-tokens.ts';
import { audience, goodToken, keySetOf } from '../helpers/issuer.ts';
import type { RawClient } from '../helpers/raw-client.ts';
import { assertInvalidToken, bearer, serveWithTokens } from '../helpers/tokens.ts';

let server: Awaited<ReturnType<typeof serveWithTokens>>;
let client: RawClient;
before(async () => {
  server = await serveWithTokens(keySetOf(rsa, ec), { scopes: new Map(), clockSkewMs: 30_000 });
  await server.keys.start();
  client = await server.connect();
});
after(async () => {
  await client[Symbol.asyncDispose]();
  await server[Symbol.asyncDispose]();
});

test('there are at least 200 of them, no two the same', () => {
  assert.ok(forgedTokens.length >= 200, String(forgedTokens.length));
  assert.equal(new Set(forgedTokens.map(([what]) => what)).size, forgedTokens.length);
});

for (const [index, [what, cause, make]] of forgedTokens.entries()) {
  test(`${what}: ${cause}`, async () => {
    const { method, path, options } = operations[index % operations.length] ?? operation(1);
    const token = make(server.clock.now());
    const reply = await client.call(method, path, { ...options, headers: [bearer(token)] });
    assertInvalidToken(reply);
    if (cause === 'cut') assert.match(server.last(), /^invalid-token (?:malformed|signature)$/);
    else assert.equal(server.last(), `invalid-token ${cause}`);
    assert.equal(server.backend.requests.length, 0);
    assert.equal(server.guard.remembered, 0, 'nothing of it is remembered');
  });
}

test('what is right, next to all of these, is served', async () => {
  const now = server.clock.now();
  const good: [string, string][] = [
    ['RS256', goodToken(rsa, now)],
    ['ES256', goodToken(ec, now)],
    ['without a name, and one key fits', goodToken(rsa, now, {}, { kid: undefined })],
    ['without typ', goodToken(rsa, now, {}, { typ: undefined })],
    [
      'a key in the header that is not looked at',
      goodToken(rsa, now, {}, { jwk: stranger.jwk, jku: 'http://127.0.0.1:9/' }),
    ],
    ['several audiences', goodToken(rsa, now, { aud: ['others', audience] })],
    ['expired within the skew', goodToken(rsa, now, { exp: seconds(now, -29) })],
    ['not valid yet, within the skew', goodToken(rsa, now, { nbf: seconds(now, 30) })],
    ['a fraction of a second', goodToken(rsa, now, { exp: seconds(now, 100) + 0.5 })],
    ['issued in the future', goodToken(rsa, now, { iat: seconds(now, 3_600) })],
    ['without sub', goodToken(rsa, now, { sub: undefined })],
    ['claims of other kinds', goodToken(rsa, now, { x: [{ y: null }], 'a b': 1e3 })],
  ];
  for (const [what, token] of good) {
    assertReply(await client.call('GET', '/api/work-items/5', { headers: [bearer(token)] }), 200, '{"id":5}');
    assert.equal(server.last(), 'ok undefined', what);
  }
  assert.equal(server.backend.requests.length, good.length);
});
