// Sends invalid tokens to the guard alone and to each host: each gets exactly the expected reply, and the backend is
// not called [D41, D43, D50].

import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { assertReply, operation, operations } from '../helpers/expected.ts';
import { type HostName, hostNames, startGateway } from '../helpers/gateway.ts';
import {
  audience,
  base64url,
  claimsAt,
  createPair,
  goodToken,
  issuerName,
  KeyServer,
  keySetOf,
  signatureOf,
  signToken,
} from '../helpers/issuer.ts';
import { oddTargets } from '../helpers/odd-targets.ts';
import type { RawClient } from '../helpers/raw-client.ts';
import { assertInvalidToken, bearer, serveWithTokens } from '../helpers/tokens.ts';

/** Keys of the issuer. */
const rsa = createPair('rsa', 'RS256');
const ec = createPair('ec', 'ES256');
/** Keys of another issuer, with the same ids. */
const stranger = createPair('rsa', 'RS256');
const strangerEc = createPair('ec', 'ES256');
/** A key that the issuer does not publish. */
const gone = createPair('gone', 'RS256');

/**
 * A title, the cause of the refusal, and a function that makes the token. The cause `cut` of a shortened token means
 * that `malformed` and `signature` are both accepted as the cause.
 */
type Row = [title: string, cause: string, make: (now: number) => string];
type Json = Readonly<Record<string, unknown>>;

const header: Json = { alg: 'RS256', kid: 'rsa', typ: 'at+jwt' };
const withClaims = (more: Json) => (now: number) => goodToken(rsa, now, more);
const withHeader = (more: Json) => (now: number) => goodToken(rsa, now, {}, more);
const claimText = (make: (text: string, now: number) => string) => (now: number) =>
  signToken(rsa, header, make(JSON.stringify(claimsAt(now)), now));
const headerText = (text: string) => (now: number) => signToken(rsa, text, claimsAt(now));
const parts = (change: (header: string, claims: string, signature: string) => string) => (now: number) => {
  const [first = '', second = '', third = ''] = goodToken(rsa, now).split('.');
  return change(first, second, third);
};
const flip = (text: string, index: number) => {
  const at = index < 0 ? text.length + index : index;
  return `${text.slice(0, at)}${text[at] === 'A' ? 'B' : 'A'}${text.slice(at + 1)}`;
};
/** Returns the NumericDate (RFC 7519) that is `more` seconds after `now` (in ms). */
const seconds = (now: number, more: number) => Math.floor(now / 1_000) + more;
const publicPem = rsa.publicKey.export({ type: 'spki', format: 'pem' });
const publicDer = rsa.publicKey.export({ type: 'spki', format: 'der' });
const unsigned = (alg: unknown, signature: string) => (now: number) =>
  `${base64url({ alg, kid: 'rsa' })}.${base64url(claimsAt(now))}.${signature}`;
const confused =
  (alg: string, key: string | Buffer, keyId: Json = { kid: 'rsa' }) =>
  (now: number) => {
    const input = `${base64url({ alg, ...keyId })}.${base64url(claimsAt(now))}`;
    return `${input}.${signatureOf(alg, input, key)}`;
  };

const forgedTokens: readonly Row[] = [
  // Unsigned, or signed with another key.
  ...['none', 'None', 'NONE', 'nOnE'].flatMap((alg): Row[] => [
    [`alg ${alg}, no signature`, 'malformed', unsigned(alg, '')],
    [`alg ${alg}, a signature of three zero bytes`, 'algorithm', unsigned(alg, 'AAAA')],
    [`alg ${alg}, another token's signature`, 'algorithm', (now) => unsigned(alg, goodToken(rsa, now).split('.')[2] ?? '')(now)],
  ]),
  ['an unknown algorithm', 'algorithm', unsigned('XX256', 'AAAA')],
  ['no algorithm', 'malformed', unsigned(undefined, 'AAAA')],
  ['the algorithm null', 'malformed', unsigned(null, 'AAAA')],
  ['an algorithm that is a number', 'malformed', unsigned(256, 'AAAA')],
  ['an algorithm that is a list', 'malformed', unsigned(['RS256'], 'AAAA')],
  ['an empty algorithm', 'algorithm', unsigned('', 'AAAA')],
  ['an algorithm in small letters', 'algorithm', unsigned('rs256', 'AAAA')],
  ['an algorithm with a space', 'algorithm', unsigned('RS256 ', 'AAAA')],
  ['an algorithm with a NUL', 'algorithm', unsigned('RS256\0', 'AAAA')],
  ['the algorithm __proto__', 'algorithm', unsigned('__proto__', 'AAAA')],
  ['the algorithm toString', 'algorithm', unsigned('toString', 'AAAA')],
  ['the algorithm constructor', 'algorithm', unsigned('constructor', 'AAAA')],
  ['the encryption algorithm dir', 'algorithm', unsigned('dir', 'AAAA')],
  ['the encryption algorithm RSA-OAEP', 'algorithm', unsigned('RSA-OAEP', 'AAAA')],
  ['no signature', 'malformed', parts((a, b) => `${a}.${b}.`)],
  ['no signature and no dot', 'malformed', parts((a, b) => `${a}.${b}`)],
  ['a signature of zeros', 'signature', parts((a, b) => `${a}.${b}.${Buffer.alloc(256).toString('base64url')}`)],
  ['a signature of one byte', 'signature', parts((a, b) => `${a}.${b}.AA`)],
  ['a signature of 4,096 bytes', 'signature', parts((a, b) => `${a}.${b}.${Buffer.alloc(4_096, 7).toString('base64url')}`)],
  ['an elliptic signature of one byte', 'signature', (now) => `${base64url({ alg: 'ES256', kid: 'ec' })}.${base64url(claimsAt(now))}.AA`],
  ['an elliptic signature of zeros', 'signature', (now) => `${base64url({ alg: 'ES256', kid: 'ec' })}.${base64url(claimsAt(now))}.${Buffer.alloc(64).toString('base64url')}`],
  ['an elliptic signature in DER', 'signature', (now) => `${goodToken(ec, now).split('.').slice(0, 2).join('.')}.${Buffer.from('3006020101020101', 'hex').toString('base64url')}`],
  ["another issuer's key with the same id", 'signature', (now) => goodToken(stranger, now)],
  ["another issuer's elliptic key with the same id", 'signature', (now) => goodToken(strangerEc, now)],
  ["another issuer's key without an id", 'signature', (now) => goodToken(stranger, now, {}, { kid: undefined })],
  ['an unpublished key', 'unknown-key', (now) => goodToken(gone, now)],
  ["another token's signature", 'signature', (now) => parts((a, b) => `${a}.${b}.${goodToken(rsa, now, { sub: 'eve' }).split('.')[2] ?? ''}`)(now)],
  ['other claims before the signature', 'signature', (now) => parts((a, _, c) => `${a}.${base64url(claimsAt(now, { sub: 'eve' }))}.${c}`)(now)],
  ['another header before the signature', 'signature', parts((_, b, c) => `${base64url({ ...header, x: 1 })}.${b}.${c}`)],
  ...[0, 1, 7, 50, 100, 200, 340].map((index): Row => [`the signature with character ${index} changed`, 'signature', parts((a, b, c) => `${a}.${b}.${flip(c, index)}`)]),
  ...[5, 20, 60, 100].map((index): Row => [`the claims with character ${index} changed`, 'signature', parts((a, b, c) => `${a}.${flip(b, index)}.${c}`)]),

  // A public key used as a secret, and keys under another algorithm.
  ...['HS256', 'HS384', 'HS512'].flatMap((alg): Row[] => [
    [`${alg} with the public key as PEM`, 'algorithm', confused(alg, publicPem)],
    [`${alg} with the public key as PEM, trimmed`, 'algorithm', confused(alg, publicPem.trim())],
    [`${alg} with the public key in DER`, 'algorithm', confused(alg, publicDer)],
    [`${alg} with the public key as JWK`, 'algorithm', confused(alg, JSON.stringify(rsa.jwk))],
    [`${alg} with the modulus`, 'algorithm', confused(alg, Buffer.from(String(rsa.jwk['n']), 'base64url'))],
    [`${alg} with an empty secret`, 'algorithm', confused(alg, '')],
    [`${alg} with the key id as secret`, 'algorithm', confused(alg, 'rsa')],
    [`${alg} with the public key as PEM, and no key id`, 'algorithm', confused(alg, publicPem, {})],
  ]),
  ['the RSA key and its id, alg ES256', 'unknown-key', (now) => goodToken(rsa, now, {}, { alg: 'ES256' })],
  ['the elliptic key and its id, alg RS256', 'unknown-key', (now) => goodToken(ec, now, {}, { alg: 'RS256' })],
  ['the id of the other key', 'unknown-key', (now) => goodToken(rsa, now, {}, { kid: 'ec' })],
  ...['RS384', 'RS512', 'PS256', 'PS384', 'PS512'].map((alg): Row => [`a correct ${alg} signature, which is not allowed`, 'algorithm', (now) => signToken(rsa, { alg, kid: 'rsa' }, claimsAt(now), alg)]),
  ...['RS384', 'PS256'].map((alg): Row => [`alg RS256, but signed with ${alg}`, 'signature', (now) => signToken(rsa, header, claimsAt(now), alg)]),

  // Key ids.
  ...[
    '', ' ', 'RSA', 'rsa ', ' rsa', 'rsa\0', 'rsa\n', './rsa', '../../etc/passwd', '/dev/null', 'file:///dev/null', "rsa' OR '1'='1",
    "x' UNION SELECT 'c2VjcmV0' --", '__proto__', 'constructor', 'toString', 'hasOwnProperty', '*', 'rsa;id', '$(id)', '`id`', '%00', 'http://127.0.0.1/keys',
    '‮asr', 'r\u0455a', 'x'.repeat(1_000), '0', 'null', 'undefined', '\ud800',
  ].map((kid): Row => [`kid ${JSON.stringify(kid).slice(0, 40)}`, 'unknown-key', withHeader({ kid })]),
  ...[7, null, true, ['rsa'], { rsa: 1 }, 0, { toString: 'rsa' }].map((kid): Row => [`kid ${JSON.stringify(kid)}`, 'malformed', withHeader({ kid })]),

  // Keys in the token.
  ['the signing key in the header', 'signature', (now) => goodToken(stranger, now, {}, { jwk: stranger.jwk })],
  ['the signing key in the header, and no key id', 'signature', (now) => goodToken(stranger, now, {}, { jwk: stranger.jwk, kid: undefined })],
  ['the signing key in the header, with an unknown key id', 'unknown-key', (now) => goodToken(stranger, now, {}, { jwk: stranger.jwk, kid: 'mine' })],
  ['jku', 'signature', (now) => goodToken(stranger, now, {}, { jku: 'http://127.0.0.1:9/keys' })],
  ['jku, and no key id', 'signature', (now) => goodToken(stranger, now, {}, { jku: 'http://127.0.0.1:9/keys', kid: undefined })],
  ["jku with the issuer's name", 'unknown-key', (now) => goodToken(stranger, now, {}, { jku: `${issuerName}@127.0.0.1/keys`, kid: 'mine' })],
  ['x5u', 'signature', (now) => goodToken(stranger, now, {}, { x5u: 'http://127.0.0.1:9/certificate' })],
  ['x5c', 'signature', (now) => goodToken(stranger, now, {}, { x5c: ['MIIB'] })],
  ['x5t', 'signature', (now) => goodToken(stranger, now, {}, { x5t: 'AAAA', 'x5t#S256': 'AAAA' })],
  ['a key in the claims', 'signature', (now) => goodToken(stranger, now, { cnf: { jwk: stranger.jwk } })],

  // Critical extensions.
  ...[['exp'], ['x'], ['jwk'], ['http://example.com/x'], ['b64', 'x'], ['alg'], ['__proto__'], ['toString']].map((crit): Row => [`crit ${JSON.stringify(crit)}`, 'malformed', withHeader({ crit, x: 1, exp: 1, 'http://example.com/x': 1, b64: true })]),
  ...[[], 'exp', {}, null, [7], [''], ['b64', 'b64']].map((crit): Row => [`crit ${JSON.stringify(crit)}`, 'malformed', withHeader({ crit, b64: 7 })]),
  ['b64 false, named in crit', 'malformed', (now) => signToken(rsa, { ...header, b64: false, crit: ['b64'] }, claimsAt(now))],

  // Another issuer or audience.
  ...[
    undefined, null, '', 'https://issuer.example', 'https://issuer.example//', 'https://ISSUER.example/', 'http://issuer.example/', 'https://issuer.example/ ',
    ' https://issuer.example/', 'https://issuer.example/x', 'https://issuer.example.evil/', 'https://issuer.example@evil/', [issuerName], { issuer: issuerName }, 7, true,
  ].map((iss): Row => [`iss ${iss === undefined ? 'missing' : JSON.stringify(iss)}`, 'issuer', withClaims({ iss })]),
  ...[
    undefined, null, '', 'others', 'work-items ', 'Work-Items', 'work-item', 'work-items,others', '*', [], ['others'], ['work-items-2', 'others'], [[audience]], [{ aud: audience }],
    { [audience]: true }, { 0: audience, length: 1 }, 7, true, [null], audience.split(''),
  ].map((aud): Row => [`aud ${aud === undefined ? 'missing' : JSON.stringify(aud)}`, 'audience', withClaims({ aud })]),

  // Times.
  ...[-31, -30, -60, -3_600, -1e9].map((more): Row => [`exp ${more} s from now`, 'expired', (now) => goodToken(rsa, now, { exp: seconds(now, more) })]),
  ...[31, 60, 3_600, 1e9].map((more): Row => [`nbf ${more} s from now`, 'not-yet-valid', (now) => goodToken(rsa, now, { nbf: seconds(now, more) })]),
  ['exp 0', 'expired', withClaims({ exp: 0 })],
  ['exp -1', 'expired', withClaims({ exp: -1 })],
  ['exp that is a fraction, long ago', 'expired', withClaims({ exp: 0.5 })],
  ['no exp', 'claims', withClaims({ exp: undefined })],
  ...[null, '', '9999999999', true, [9_999_999_999], { value: 9_999_999_999 }].flatMap((value): Row[] => [
    [`exp ${JSON.stringify(value)}`, 'claims', withClaims({ exp: value })],
    [`nbf ${JSON.stringify(value)}`, 'claims', withClaims({ nbf: value })],
    [`iat ${JSON.stringify(value)}`, 'claims', withClaims({ iat: value })],
  ]),
  ['exp that is infinite', 'claims', claimText((text) => text.replace(/"exp":\d+/, '"exp":1e999'))],
  ['exp that is minus infinity', 'expired', claimText((text) => text.replace(/"exp":\d+/, '"exp":-1e999'))],
  ['nbf that is infinite', 'not-yet-valid', claimText((text) => text.replace('{', '{"nbf":1e999,'))],
  ['exp NaN', 'malformed', claimText((text) => text.replace(/"exp":\d+/, '"exp":NaN'))],
  ['exp in hexadecimal', 'malformed', claimText((text) => text.replace(/"exp":\d+/, '"exp":0xffffffffff'))],
  ['two exp, the last one in the past', 'expired', claimText((text, now) => text.replace(/}$/, `,"exp":${seconds(now, -600)}}`))],
  ['exp in __proto__', 'claims', claimText((text, now) => text.replace(/"exp":\d+/, `"__proto__":{"exp":${seconds(now, 600)}}`))],
  ['aud renamed to __proto__', 'audience', claimText((text) => text.replace('"aud":', '"__proto__":'))],
  ['exp in capitals', 'claims', claimText((text) => text.replace('"exp"', '"EXP"'))],

  // Invalid subjects.
  ...[null, 7, true, ['ada'], { name: 'ada' }].map((sub): Row => [`sub ${JSON.stringify(sub)}`, 'claims', withClaims({ sub })]),
  ['sub with a lone surrogate', 'claims', claimText((text) => text.replace('"ada"', '"\\ud800"'))],

  // Claims that are not an object.
  ...['', '[]', 'null', '7', '"x"', '{', '{}x', "{'iss':1}", '\ufeff{}x', '{"iss":"x",}'].map((text): Row => [`claims ${JSON.stringify(text)}`, 'malformed', () => signToken(rsa, header, text)]),
  ['an empty object as claims', 'issuer', () => signToken(rsa, header, '{}')],
  ['claims that are a token', 'malformed', (now) => signToken(rsa, header, goodToken(rsa, now))],
  ['claims that are not UTF-8', 'malformed', (now) => {
    const bytes = Buffer.concat([Buffer.from(JSON.stringify(claimsAt(now)).slice(0, -1)), Buffer.from(',"x":"\xff"}', 'latin1')]);
    const input = `${base64url(header)}.${bytes.toString('base64url')}`;
    return `${input}.${signatureOf('RS256', input, rsa.privateKey)}`;
  }],
  // Headers that are not an object.
  ...['[]', 'null', '7', '"RS256"', '{', '{"alg":"RS256"', '{"alg":"RS256",}', "{'alg':'RS256'}", '\u0000', 'RS256'].map((text): Row => [`header ${JSON.stringify(text)}`, 'malformed', headerText(text)]),
  ['two alg, the last one none', 'algorithm', headerText('{"alg":"RS256","kid":"rsa","alg":"none"}')],
  ['two alg, the last one HS256', 'algorithm', headerText('{"alg":"RS256","kid":"rsa","alg":"HS256"}')],
  ['alg in __proto__', 'malformed', headerText('{"__proto__":{"alg":"RS256"},"kid":"rsa"}')],
  ['two kid, the last one unknown', 'unknown-key', headerText('{"alg":"RS256","kid":"rsa","kid":"x"}')],

  // The form of the token.
  ['a word', 'malformed', () => 'x'],
  ['dots', 'malformed', () => '..'],
  ['one dot', 'malformed', () => '.'],
  ['four dots', 'malformed', () => '....'],
  ['no header', 'malformed', parts((_, b, c) => `.${b}.${c}`)],
  ['no claims', 'malformed', parts((a, _, c) => `${a}..${c}`)],
  ['a fourth part', 'malformed', parts((a, b, c) => `${a}.${b}.${c}.${c}`)],
  ['an empty fourth part', 'malformed', parts((a, b, c) => `${a}.${b}.${c}.`)],
  ['five parts, as in an encrypted token', 'malformed', parts((a, b, c) => `${a}.${b}.${c}.${c}.${c}`)],
  ['a space after a dot', 'malformed', parts((a, b, c) => `${a}. ${b}.${c}`)],
  ['a tab after a dot', 'malformed', parts((a, b, c) => `${a}.\t${b}.${c}`)],
  ['a word after the token', 'malformed', parts((a, b, c) => `${a}.${b}.${c} x`)],
  ['another token after a comma', 'malformed', parts((a, b, c) => `${a}.${b}.${c}, ${a}.${b}.${c}`)],
  ['the scheme twice', 'malformed', parts((a, b, c) => `Bearer ${a}.${b}.${c}`)],
  ['the token in quotes', 'malformed', parts((a, b, c) => `"${a}.${b}.${c}"`)],
  ['the token as a parameter', 'malformed', parts((a, b, c) => `token=${a}.${b}.${c}`)],
  ['a semicolon after the token', 'malformed', parts((a, b, c) => `${a}.${b}.${c};`)],
  ['padding after the signature', 'malformed', parts((a, b, c) => `${a}.${b}.${c}==`)],
  ['padding after the header', 'malformed', parts((a, b, c) => `${a}=.${b}.${c}`)],
  ['base64 instead of base64url', 'malformed', parts((a, b, c) => `${a}.${b}.+/${c.slice(2)}`)],
  ['a percent escape', 'malformed', parts((a, b, c) => `${a}%2E${b}.${c}`)],
  ['a letter that is not ASCII', 'malformed', parts((a, b, c) => `${a}.${b}.\xe9${c}`)],
  ['a part of an impossible length', 'malformed', parts((a, b, c) => `${a}.${b}.${c}AAA`)],
  ['another last character that decodes to the same bytes', 'malformed', parts((a, b, c) => `${a}.${b}.${c.slice(0, -1)}${respell(c.at(-1) ?? '')}`)],
  ['the header in capitals', 'malformed', parts((a, b, c) => `${a.toUpperCase()}.${b}.${c}`)],
  ['the parts in another order', 'malformed', parts((a, b, c) => `${c}.${b}.${a}`)],
  ['the claims in place of the header', 'malformed', parts((_, b, c) => `${b}.${b}.${c}`)],
  ['the token as JSON', 'malformed', parts((a, b, c) => JSON.stringify({ protected: a, payload: b, signature: c }))],
  ['7,000 dots', 'malformed', () => '.'.repeat(7_000)],
  ['7,000 letters', 'malformed', () => 'a'.repeat(7_000)],
  ['7,000 letters of claims', 'signature', parts((a, _, c) => `${a}.${'a'.repeat(7_000)}.${c}`)],
  // Truncated.
  ...[0.1, 0.3, 0.5, 0.7, 0.9].map((share): Row => [`the first ${share} of the token`, share < 0.4 ? 'malformed' : 'cut', (now) => goodToken(rsa, now).slice(0, Math.floor(goodToken(rsa, now).length * share))]),
  ...[1, 2, 3, 4].map((count): Row => [`without the last ${count} characters`, 'cut', (now) => goodToken(rsa, now).slice(0, -count)]),
  ...[1, 2, 3, 4].map((count): Row => [`without the first ${count} characters`, 'cut', (now) => goodToken(rsa, now).slice(count)]),
]; // prettier-ignore

// Changes one of the four unused bits in the last character of a 256-byte signature in base64url.
function respell(last: string): string {
  const alphabet = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_';
  return alphabet[alphabet.indexOf(last) ^ 1] ?? '';
}

/** Starts a server with the guard in this process. The test sets the server's clock; the skew is 30 s. */
async function serveGuard() {
  const server = await serveWithTokens(keySetOf(rsa, ec));
  await server.keys.start();
  return { ...server, now: () => server.clock.now(), remembered: () => server.guard.remembered };
}

/** Starts a host, which uses the real clock. The skew is 0: otherwise a token with `nbf` in 31 s is valid after 1 s. */
async function serveOnHost(name: HostName) {
  const keys = await KeyServer.start(keySetOf(rsa, ec));
  const host = await startGateway({
    host: name,
    settings: { authIssuer: issuerName, authAudience: [audience], authJwksUrl: keys.url, authClockSkewMs: 0 },
  });
  return {
    ...host,
    now: () => Date.now(),
    remembered: () => 0,
    [Symbol.asyncDispose]: async () => {
      await host[Symbol.asyncDispose]();
      await keys[Symbol.asyncDispose]();
    },
  };
}

test('the list has at least 200 tokens with different titles', () => {
  assert.ok(forgedTokens.length >= 200, String(forgedTokens.length));
  assert.equal(new Set(forgedTokens.map(([title]) => title)).size, forgedTokens.length);
});

const wanted = process.env['TEST_TARGETS']?.split(',');
for (const name of (['in-process', ...hostNames] as const).filter((each) => wanted?.includes(each) ?? true)) {
  describe(name, () => {
    let server: Awaited<ReturnType<typeof serveGuard> | ReturnType<typeof serveOnHost>>;
    let client: RawClient;
    before(async () => {
      server = await (name === 'in-process' ? serveGuard() : serveOnHost(name));
      client = await server.connect();
    });
    after(async () => {
      await client[Symbol.asyncDispose]();
      await server[Symbol.asyncDispose]();
    });

    // Every host uses the same guard, so each host gets only every ninth token.
    const tokens = forgedTokens.filter((_, index) => name === 'in-process' || index % 9 === 0);
    for (const [index, [title, expected, make]] of tokens.entries()) {
      test(`a token is refused with the cause ${expected}: ${title}`, async () => {
        const { method, path, options } = operations[index % operations.length] ?? operation(1);
        const headers = [bearer(make(server.now()))];
        assertInvalidToken(await client.call(method, path, { ...options, headers }));
        const { outcome, cause } = server.told.ended.at(-1) ?? {};
        assert.equal(outcome, 'invalid-token');
        if (expected === 'cut') assert.match(String(cause), /^(?:malformed|signature)$/);
        else assert.equal(cause, expected);
        assert.equal(server.told.ended.length, index + 1);
        assert.equal(server.backend.requests.length, 0);
        assert.equal(server.remembered(), 0, 'the token is not remembered');
      });
    }

    if (name !== 'in-process') {
      test('a request without a token never reaches the backend, whatever its target, method or encoding', async () => {
        const methods = ['GET', 'HEAD', 'POST', 'PUT', 'DELETE', 'PATCH', 'get', 'TRACE', 'QUERY', 'OPTIONS'];
        const statuses = new Set<number>();
        for (const [index, target] of oddTargets().entries()) {
          const method = methods[index % methods.length] ?? 'GET';
          await using connection = await server.connect();
          connection.send(
            `${method} ${target} HTTP/1.1\r\nHost: x\r\nX-Forwarded-User: ada\r\nX-Http-Method-Override: GET\r\nX-Original-Url: /api/work-items\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}`,
          );
          statuses.add((await connection.reply({ hasBody: method !== 'HEAD' })).status);
        }
        assert.equal(server.backend.requests.length, 0);
        assert.ok(statuses.has(401) && !statuses.has(200) && !statuses.has(201), String([...statuses]));
        if (name === 'server') assert.deepEqual([...statuses].sort(), [204, 400, 401, 404, 405]);
      });
    }

    test('valid tokens are served', async () => {
      // A new connection, because a host may have closed the idle connection during the previous test.
      await using connection = await server.connect();
      const now = server.now();
      const good: [title: string, token: string][] = [
        ['RS256', goodToken(rsa, now)],
        ['ES256', goodToken(ec, now)],
        ['without a key id, and one key fits', goodToken(rsa, now, {}, { kid: undefined })],
        ['without typ', goodToken(rsa, now, {}, { typ: undefined })],
        ['an ignored key in the header', goodToken(rsa, now, {}, { jwk: stranger.jwk, jku: 'http://127.0.0.1:9/' })],
        ['several audiences', goodToken(rsa, now, { aud: ['others', audience] })],
        ['exp with a fraction of a second', goodToken(rsa, now, { exp: seconds(now, 600) + 0.5 })],
        ['issued in the future', goodToken(rsa, now, { iat: seconds(now, 3_600) })],
        ['without sub', goodToken(rsa, now, { sub: undefined })],
        ['claims of other types', goodToken(rsa, now, { x: [{ y: null }], 'a b': 1e3 })],
      ]; // prettier-ignore
      if (name === 'in-process') {
        good.push(
          ['expired within the skew', goodToken(rsa, now, { exp: seconds(now, -29) })],
          ['not valid yet, within the skew', goodToken(rsa, now, { nbf: seconds(now, 30) })],
        );
      }
      for (const [title, token] of good) {
        const reply = await connection.call('GET', '/api/work-items/5', { headers: [bearer(token)] });
        assertReply(reply, 200, '{"id":5}');
        assert.equal(server.told.ended.at(-1)?.outcome, 'ok', title);
      }
      assert.equal(server.backend.requests.length, good.length);
    });
  });
}
