// The decisions of the token guard: one table of tokens, and tables of headers, scopes,
// types and algorithms [D41 to D43]. token-keys.test.ts tests changes of keys. hosts.test.ts tests the replies of each host.

import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { guardRows } from '../../packages/core/options/guard-options.ts';
import { Problem } from '../../packages/core/options/problem.ts';
import { startGateway, hostNames } from '../helpers/gateway.ts';
import {
  audience,
  base64url,
  claimsAt,
  createPair,
  goodToken,
  issuerName,
  keySetOf,
  signatureOf,
  signToken,
} from '../helpers/issuer.ts';
import { oddTargets } from '../helpers/odd-targets.ts';
import { bearer, startTokenGuard } from '../helpers/tokens.ts';

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
  ...[undefined, null, 256, ['RS256']].map((alg): Row => [`the algorithm ${JSON.stringify(alg)}`, 'malformed', unsigned(alg, 'AAAA')]),
  ...['XX256', '', 'rs256', 'RS256 ', 'RS256\0', '__proto__', 'toString', 'constructor', 'dir', 'RSA-OAEP'].map((alg): Row => [`the algorithm ${JSON.stringify(alg)}`, 'algorithm', unsigned(alg, 'AAAA')]),
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
  ...[
    'x', '..', '.', '....', '.B.C', 'A..C', 'A.B.C.C', 'A.B.C.', 'A.B.C.C.C', 'A.B.', 'A.B', 'A. B.C', 'A.\tB.C', 'A.B.C x', 'A.B.C, A.B.C', 'bearer A.B.C', '"A.B.C"',
    'token=A.B.C', 'A.B.C;', 'A.B.C==', 'A=.B.C', 'A%2eB.C', 'A.B.\xe9C', 'A.B.CAAA', 'C.B.A', 'B.B.C', '{"protected":"A","payload":"B","signature":"C"}',
  ].map((form): Row => [`the form ${form}`, 'malformed', parts((A, B, C) => form.replace(/[ABC](?![a-z])/g, (part) => ({ A, B })[part] ?? C))]),
  ['base64 instead of base64url', 'malformed', parts((a, b, c) => `${a}.${b}.+/${c.slice(2)}`)],
  ['another last character that decodes to the same bytes', 'malformed', parts((a, b, c) => `${a}.${b}.${c.slice(0, -1)}${respell(c.at(-1) ?? '')}`)],
  ['the header in capitals', 'malformed', parts((a, b, c) => `${a.toUpperCase()}.${b}.${c}`)],
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

const invalid = forgedTokens.map(([title, cause, make]): Row => [title, `invalid-token: ${cause}`, make]);
const valid: readonly Row[] = [
  ['RS256', 'ada', (now) => goodToken(rsa, now)],
  ['ES256', 'ada', (now) => goodToken(ec, now)],
  ['no key id, and one key fits', 'ada', withHeader({ kid: undefined })],
  ['no typ', 'ada', withHeader({ typ: undefined })],
  ['an ignored key in the header', 'ada', withHeader({ jwk: stranger.jwk, jku: 'http://127.0.0.1:9/' })],
  ['several audiences', 'ada', withClaims({ aud: ['others', audience] })],
  ['exp with a fraction of a second', 'ada', (now) => goodToken(rsa, now, { exp: seconds(now, 600) + 0.5 })],
  ['expired within the skew', 'ada', (now) => goodToken(rsa, now, { exp: seconds(now, -29) })],
  ['not valid yet, within the skew', 'ada', (now) => goodToken(rsa, now, { nbf: seconds(now, 30) })],
  ['issued in the future', 'ada', (now) => goodToken(rsa, now, { iat: seconds(now, 3_600) })],
  ['no sub', '(no identity)', withClaims({ sub: undefined })],
  ['an empty sub', '(no identity)', withClaims({ sub: '' })],
  ['claims of other types', 'ada', withClaims({ x: [{ y: null }], 'a b': 1e3 })],
];

describe('a token with', () => {
  let guard: Awaited<ReturnType<typeof startTokenGuard>>;
  before(async () => {
    guard = await startTokenGuard(keySetOf(rsa, ec));
  });
  after(() => guard[Symbol.dispose]());

  for (const [title, expected, make] of [...invalid, ...valid]) {
    test(`${title}: ${expected}`, async () => {
      const { remembered } = guard.guard;
      const decision = await guard.ask(make(guard.clock.now()));
      if (expected === 'invalid-token: cut') assert.match(decision, /^invalid-token: (?:malformed|signature)$/);
      else assert.equal(decision, expected);
      assert.equal(guard.guard.remembered, remembered + (decision.startsWith('invalid-token') ? 0 : 1));
    });
  }
});

test('the token is read from one Authorization header with the scheme Bearer', async () => {
  using guard = await startTokenGuard(keySetOf(rsa));
  const token = goodToken(rsa);
  const good = ['authorization', `Bearer ${token}`];
  const none = [
    '', ' ', 'Bearer', 'bearer', 'BEARER', 'Bearer   ', 'Basic YTpi', `Basic ${token}`, `Token ${token}`, `Bearer${token}`,
    `Bearer:${token}`, `Bearer\t${token}`, `Bearer, ${token}`, `DPoP ${token}`, `JWT ${token}`, `xBearer ${token}`,
    `"Bearer" ${token}`, token, `Digest username="Bearer ${token}"`, `Bea rer ${token}`,
  ].map((value) => ['authorization', value]);
  const otherNames = [
    'proxy-authorization', 'x-authorization', 'cookie', 'x-forwarded-authorization', 'authorization-', 'x-access-token',
  ].map((name) => [name, `Bearer ${token}`]);
  const empty = ['authorization', ''];
  for (const [expected, ...fields] of [
    ...[[], ...none, ...otherNames].map((each) => ['no-token', ...each]),
    ...[[...good, ...good], [...good, ...empty], [...empty, ...good], [...good, ...good, ...good]].map(
      (each) => ['bad-request: two authorization fields', ...each],
    ),
    ['ada', ...good],
    ['ada', 'authorization', `BEARER     ${token}`],
    ['ada', 'x', 'y', 'authorization', `bearer ${token}`, 'z', ''],
  ]) {
    assert.equal(await guard.decide(fields), expected, fields.join());
  }
}); // prettier-ignore

test('with authTokenType at+jwt, only access tokens of RFC 9068 are accepted', async () => {
  using guard = await startTokenGuard(keySetOf(rsa), { authTokenType: 'at+jwt' });
  for (const [typ, expected] of [
    ...['at+jwt', 'AT+JWT', 'application/at+jwt'].map((typ) => [typ, 'ada'] as const),
    ...[undefined, 'JWT', 'jwt', '', 'at+jwt ', 'application/jwt', 'id+jwt', 7, null, ['at+jwt']].map(
      (typ) => [typ, 'invalid-token: type'] as const,
    ),
  ]) {
    assert.equal(await guard.ask(goodToken(rsa, undefined, {}, { typ })), expected, String(typ));
  }
});

for (const alg of ['RS256', 'RS384', 'RS512', 'PS256', 'PS384', 'PS512', 'ES256', 'ES384', 'ES512', 'EdDSA', 'Ed25519']) {
  test(`${alg} is accepted only if it is allowed`, async () => {
    const own = createPair('own', alg);
    const other = alg === 'ES256' ? 'ES384' : 'ES256';
    for (const [allowed, expected] of [[alg, 'ada'], [other, 'invalid-token: algorithm']] as const) {
      using guard = await startTokenGuard(keySetOf(own, createPair('x', allowed)), { authAlgorithms: [allowed] });
      assert.equal(await guard.ask(goodToken(own)), expected);
    }
  });
} // prettier-ignore

const authScopes = ['read=items.read', 'update=items.write'];
const lacks = (scope: string) => `insufficient-scope: the token lacks the scope ${scope}`;

test('an operation with a scope requires it; other operations require only a valid token', async () => {
  using guard = await startTokenGuard(keySetOf(ec), { authScopes });
  for (const [scope, mayRead, mayUpdate] of [
    ['items.read', true, false], ['items.read items.write', true, true], ['openid items.write  profile', false, true],
    [['items.read'], true, false], [['items.write', 'items.read', 7, null], true, true],
    ...[
      undefined, null, '', 'items.reads', 'ITEMS.READ', 'items.read,items.write', 'items.read\titems.write', 'items.*',
      [['items.read']], ['items.read items.write'], { 'items.read': true }, { 0: 'items.read', length: 1 }, 7, true,
    ].map((none) => [none, false, false] as const),
  ] as const) {
    const token = goodToken(ec, undefined, { scope });
    // The second round uses the remembered token.
    for (let round = 0; round < 2; round += 1) {
      assert.equal(await guard.ask(token, 'read'), mayRead ? 'ada' : lacks('items.read'), JSON.stringify(scope));
      assert.equal(await guard.ask(token, 'update'), mayUpdate ? 'ada' : lacks('items.write'), JSON.stringify(scope));
      assert.equal(await guard.ask(token, 'delete'), 'ada');
    }
  }
  const refusal = await guard.admit(['authorization', `Bearer ${goodToken(ec)}`]);
  assert.equal(refusal.identity, 'ada', 'the log has the subject');
}); // prettier-ignore

test('the scope claims may have other names and be in objects; inherited properties are ignored', async () => {
  const client = { 'my.client': { roles: ['items.read'] }, other: { roles: ['items.write'] } };
  const read = ['items.read'];
  for (const [claims, more, isAllowed] of [
    ['scp', { scp: read }, true], ['scp', { scope: 'items.read' }, false], ['permissions', { permissions: 'items.read' }, true],
    ['__proto__', { scope: 'items.read' }, false], ['toString', {}, false],
    // Entra ID: `scp` for users, `roles` for applications.
    ['scp,roles', { scp: 'openid items.read' }, true], ['scp,roles', { roles: read }, true],
    ['scp,roles', { scp: 'items.write', roles: read }, true], ['scp,roles', { scp: 'items.write', roles: ['items.delete'] }, false],
    ['scp,roles', { scope: 'items.read', 'scp,roles': 'items.read' }, false],
    // Keycloak.
    ['realm_access.roles', { realm_access: { roles: ['offline_access', 'items.read'] } }, true],
    ['realm_access.roles', { realm_access: { roles: 'items.write items.read' } }, true],
    ['realm_access.roles', { roles: read, realm_access: read }, false],
    ['realm_access.roles', { realm_access: 'items.read' }, false], ['realm_access.roles', { realm_access: null }, false],
    ['realm_access.roles', { realm_access: { roles: { 'items.read': true } } }, false],
    ['realm_access', { realm_access: { roles: read } }, false],
    ['resource_access.api.roles', { resource_access: { api: { roles: read } } }, true],
    ['resource_access.api.roles', { resource_access: { web: { roles: read } } }, false],
    ['resource_access.my.client.roles', { resource_access: client }, true],
    ['resource_access.other.roles', { resource_access: client }, false],
    ['scope,realm_access.roles', { realm_access: { roles: read } }, true],
    ['a.0', { a: read }, false], ['realm_access.constructor.name', { realm_access: {} }, false],
    // A name with dots, as Auth0 requires for own claims.
    ['https://x.y/roles', { 'https://x.y/roles': read }, true], ['https://x.y/auth.roles', { 'https://x.y/auth': { roles: read } }, true],
    ['https://x.y/roles', { 'https://x': { 'y/roles': read } }, true], ['https://x.y/roles', { 'https://x.z/roles': read }, false],
    ['cognito:groups', { 'cognito:groups': read }, true], ['sub', { sub: 'items.read' }, true],
  ] as const) {
    const authScopeClaim = guardRows.authScopeClaim.kind.parse(claims);
    assert.ok(!(authScopeClaim instanceof Problem), claims);
    using guard = await startTokenGuard(keySetOf(ec), { authScopes, authScopeClaim });
    const decision = await guard.ask(goodToken(ec, undefined, more));
    assert.equal(decision !== lacks('items.read'), isAllowed, `${claims} ${JSON.stringify(more)}`);
  }
}); // prettier-ignore

const subjects: readonly (readonly [sub: unknown, sent: string | undefined])[] = [
  ['ada', 'ada'], ['auth0|5f7c8ec7c33c6c004bbafe82', 'auth0|5f7c8ec7c33c6c004bbafe82'],
  ['Ada Lovelace', 'Ada Lovelace'], [' ada', '%20ada'], ['ada  ', 'ada%20%20'], [' ', '%20'],
  ['100%', '100%25'], ['%41', '%2541'], ['é', '%C3%A9'], ['日本', '%E6%97%A5%E6%9C%AC'],
  ['👩', '%F0%9F%91%A9'], ['a\r\nX-Admin: true', 'a%0D%0AX-Admin: true'], ['\0\t\x7f', '%00%09%7F'],
  ['a, b; c="d"', 'a, b; c="d"'],
  ['~!@#$^&*()_+`-={}|[]\\:";\'<>?,./', '~!@#$^&*()_+`-={}|[]\\:";\'<>?,./'], ['\ufeffx', '%EF%BB%BFx'],
  ['x'.repeat(3_000), 'x'.repeat(3_000)], ['', undefined], [undefined, undefined],
]; // prettier-ignore

test('the backend gets the verified sub, percent-encoded, and no header of the client with that name [D48]', async () => {
  using guard = await startTokenGuard(keySetOf(ec));
  await using server = await startGateway({ host: 'http1', guards: [guard.guard], identityHeader: 'X-User' });
  const forged = [['x-user', 'eve'], ['X-User', 'mallory'], ['x_user', 'eve'], ['connection', 'x-user']] as const; // prettier-ignore
  for (const [sub, sent] of subjects) {
    const headers = [bearer(goodToken(ec, undefined, { sub })), ...forged];
    for (const [method, options] of [['GET', {}], ['PUT', { body: '{}' }], ['DELETE', {}]] as const) {
      await server.call(method, '/api/work-items/5', { headers, ...options });
      const call = server.backend.requests.at(-1) ?? assert.fail();
      assert.equal(call.method, method);
      const own = call.headers.filter(([name]) => /user(?!-agent)/i.test(name));
      assert.deepEqual(own.map(([name, value]) => `${name.toLowerCase()}: ${value}`), sent === undefined ? [] : [`x-user: ${sent}`]);
    } // prettier-ignore
    if (sent !== undefined) assert.equal(decodeURIComponent(sent), sub);
  }
  assert.deepEqual(server.backend.violations, []);
  await using without = await startGateway({ host: 'http1', guards: [guard.guard] });
  // Not `ada`: these letters are hexadecimal digits, so a traceparent can contain them by chance.
  const headers = [bearer(goodToken(ec, undefined, { sub: 'grace.hopper' }))];
  await without.call('GET', '/api/work-items/5', { headers });
  assert.doesNotMatch(without.backend.requests[0]?.head ?? '', /grace.hopper/, 'without the setting');
});

const wanted = process.env['TEST_TARGETS']?.split(',');
for (const host of hostNames.filter((each) => wanted?.includes(each) ?? true)) {
  test(`${host}: a request without a token never reaches the backend, whatever its target, method or encoding`, async () => {
    const settings = { authIssuer: issuerName, authAudience: [audience], authJwksUrl: 'http://127.0.0.1:1/keys' };
    await using server = await startGateway({ host, settings });
    const methods = ['GET', 'HEAD', 'POST', 'PUT', 'DELETE', 'PATCH', 'get', 'TRACE', 'QUERY', 'OPTIONS'];
    const fields = 'X-Forwarded-User: ada\r\nX-Http-Method-Override: GET\r\nX-Original-Url: /api/work-items\r\n';
    const statuses = new Set<number>();
    for (const [index, target] of oddTargets().entries()) {
      const method = methods[index % methods.length] ?? 'GET';
      await using connection = await server.connect();
      const end = 'Content-Length: 2\r\nConnection: close\r\n\r\n{}';
      connection.send(`${method} ${target} HTTP/1.1\r\nHost: x\r\n${fields}${end}`);
      statuses.add((await connection.reply({ hasBody: method !== 'HEAD' })).status);
    }
    assert.equal(server.backend.requests.length, 0);
    assert.ok(statuses.has(401) && !statuses.has(200) && !statuses.has(201), String([...statuses]));
    if (host === 'server') assert.deepEqual([...statuses].sort(), [204, 400, 401, 404, 405]);
  });
}
