// The table of tokens that are forged, stale, meant for others, malformed or odd [D41, D43], for everything that checks tokens.
// Whoever adds a way to make a token adds it here.

import {
  audience,
  base64url,
  claimsAt,
  createPair,
  goodToken,
  issuerName,
  signatureOf,
  signToken,
} from './issuer.ts';

/** Keys of the issuer. */
export const rsa = createPair('rsa', 'RS256');
export const ec = createPair('ec', 'ES256');
/** Of somebody else, under the name of the first. */
export const stranger = createPair('rsa', 'RS256');
const strangerEc = createPair('ec', 'ES256');
const gone = createPair('gone', 'RS256');

/** What it is, the flaw that is found (`cut`: its form or its signature), and how it is made at a time. */
export type Row = [what: string, cause: string, make: (now: number) => string];
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
/** A time as tokens have it, `more` seconds from `now`. */
export const seconds = (now: number, more: number) => Math.floor(now / 1_000) + more;
const publicPem = rsa.publicKey.export({ type: 'spki', format: 'pem' });
const publicDer = rsa.publicKey.export({ type: 'spki', format: 'der' });
const unsigned = (alg: unknown, signature: string) => (now: number) =>
  `${base64url({ alg, kid: 'rsa' })}.${base64url(claimsAt(now))}.${signature}`;
const confused =
  (alg: string, key: string | Buffer, kid: unknown = 'rsa') =>
  (now: number) => {
    const input = `${base64url({ alg, kid })}.${base64url(claimsAt(now))}`;
    return `${input}.${signatureOf(alg, input, key)}`;
  };

export const forgedTokens: readonly Row[] = [
  // Nobody, or somebody else, has signed it.
  ...['none', 'None', 'NONE', 'nOnE'].flatMap((alg): Row[] => [
    [`alg ${alg}, no signature`, 'malformed', unsigned(alg, '')],
    [`alg ${alg}, a signature of nothing`, 'algorithm', unsigned(alg, 'AAAA')],
    [`alg ${alg}, another token's signature`, 'algorithm', (now) => unsigned(alg, goodToken(rsa, now).split('.')[2] ?? '')(now)],
  ]),
  ['an algorithm of its own name', 'algorithm', unsigned('XX256', 'AAAA')],
  ['no algorithm', 'malformed', unsigned(undefined, 'AAAA')],
  ['the algorithm null', 'malformed', unsigned(null, 'AAAA')],
  ['an algorithm that is a number', 'malformed', unsigned(256, 'AAAA')],
  ['an algorithm that is a list', 'malformed', unsigned(['RS256'], 'AAAA')],
  ['an empty algorithm', 'algorithm', unsigned('', 'AAAA')],
  ['an algorithm in small letters', 'algorithm', unsigned('rs256', 'AAAA')],
  ['an algorithm with a space', 'algorithm', unsigned('RS256 ', 'AAAA')],
  ['an algorithm with a NUL', 'algorithm', unsigned('RS256\0', 'AAAA')],
  ['an algorithm of the prototype', 'algorithm', unsigned('__proto__', 'AAAA')],
  ['the algorithm toString', 'algorithm', unsigned('toString', 'AAAA')],
  ['the algorithm constructor', 'algorithm', unsigned('constructor', 'AAAA')],
  ['the algorithm dir of encryption', 'algorithm', unsigned('dir', 'AAAA')],
  ['the algorithm RSA-OAEP of encryption', 'algorithm', unsigned('RSA-OAEP', 'AAAA')],
  ['no signature', 'malformed', parts((a, b) => `${a}.${b}.`)],
  ['no signature and no dot', 'malformed', parts((a, b) => `${a}.${b}`)],
  ['a signature of zeros', 'signature', parts((a, b) => `${a}.${b}.${Buffer.alloc(256).toString('base64url')}`)],
  ['a signature of one byte', 'signature', parts((a, b) => `${a}.${b}.AA`)],
  ['a signature of 4,096 bytes', 'signature', parts((a, b) => `${a}.${b}.${Buffer.alloc(4_096, 7).toString('base64url')}`)],
  ['an empty elliptic signature', 'signature', (now) => `${base64url({ alg: 'ES256', kid: 'ec' })}.${base64url(claimsAt(now))}.AA`],
  ['an elliptic signature of zeros', 'signature', (now) => `${base64url({ alg: 'ES256', kid: 'ec' })}.${base64url(claimsAt(now))}.${Buffer.alloc(64).toString('base64url')}`],
  ['an elliptic signature in DER', 'signature', (now) => `${goodToken(ec, now).split('.').slice(0, 2).join('.')}.${Buffer.from('3006020101020101', 'hex').toString('base64url')}`],
  ["another issuer's key of the same name", 'signature', (now) => goodToken(stranger, now)],
  ["another issuer's elliptic key of the same name", 'signature', (now) => goodToken(strangerEc, now)],
  ["another issuer's key without a name", 'signature', (now) => goodToken(stranger, now, {}, { kid: undefined })],
  ['a key that nobody has published', 'unknown-key', (now) => goodToken(gone, now)],
  ["another token's signature", 'signature', (now) => parts((a, b) => `${a}.${b}.${goodToken(rsa, now, { sub: 'eve' }).split('.')[2] ?? ''}`)(now)],
  ['other claims under the signature', 'signature', (now) => parts((a, _, c) => `${a}.${base64url(claimsAt(now, { sub: 'eve' }))}.${c}`)(now)],
  ['another header over the signature', 'signature', parts((_, b, c) => `${base64url({ ...header, x: 1 })}.${b}.${c}`)],
  // Each byte of it counts.
  ...[0, 1, 7, 50, 100, 200, 340].map((index): Row => [`character ${index} of the signature`, 'signature', parts((a, b, c) => `${a}.${b}.${flip(c, index)}`)]),
  ...[5, 20, 60, 100].map((index): Row => [`character ${index} of the claims`, 'signature', parts((a, b, c) => `${a}.${flip(b, index)}.${c}`)]),

  // Keys that are taken for others.
  ...['HS256', 'HS384', 'HS512'].flatMap((alg): Row[] => [
    [`${alg} with the public key as PEM`, 'algorithm', confused(alg, publicPem)],
    [`${alg} with the public key as PEM, trimmed`, 'algorithm', confused(alg, publicPem.trim())],
    [`${alg} with the public key in DER`, 'algorithm', confused(alg, publicDer)],
    [`${alg} with the public key as JWK`, 'algorithm', confused(alg, JSON.stringify(rsa.jwk))],
    [`${alg} with the modulus`, 'algorithm', confused(alg, Buffer.from(String(rsa.jwk['n']), 'base64url'))],
    [`${alg} with no secret`, 'algorithm', confused(alg, '')],
    [`${alg} with the name of the key`, 'algorithm', confused(alg, 'rsa')],
    [`${alg} without a name`, 'algorithm', confused(alg, publicPem, undefined)],
  ]),
  ['the RSA key under ES256', 'unknown-key', (now) => goodToken(rsa, now, {}, { alg: 'ES256' })],
  ['the elliptic key under RS256', 'unknown-key', (now) => goodToken(ec, now, {}, { alg: 'RS256' })],
  ['the name of the other key', 'unknown-key', (now) => goodToken(rsa, now, {}, { kid: 'ec' })],
  ...['RS384', 'RS512', 'PS256', 'PS384', 'PS512'].map((alg): Row => [`${alg}, truly signed, which is not allowed`, 'algorithm', (now) => signToken(rsa, { alg, kid: 'rsa' }, claimsAt(now), alg)]),
  ...['RS384', 'PS256'].map((alg): Row => [`RS256 in name, but ${alg} in truth`, 'signature', (now) => signToken(rsa, header, claimsAt(now), alg)]),

  // Names of keys that lead elsewhere.
  ...[
    '', ' ', 'RSA', 'rsa ', ' rsa', 'rsa\0', 'rsa\n', './rsa', '../../etc/passwd', '/dev/null', 'file:///dev/null', "rsa' OR '1'='1",
    "x' UNION SELECT 'c2VjcmV0' --", '__proto__', 'constructor', 'toString', 'hasOwnProperty', '*', 'rsa;id', '$(id)', '`id`', '%00', 'http://127.0.0.1/keys',
    '‮asr', 'r\u0455a', 'x'.repeat(1_000), '0', 'null', 'undefined', '\ud800',
  ].map((kid): Row => [`kid ${JSON.stringify(kid).slice(0, 40)}`, 'unknown-key', withHeader({ kid })]),
  ...[7, null, true, ['rsa'], { rsa: 1 }, 0, { toString: 'rsa' }].map((kid): Row => [`kid ${JSON.stringify(kid)}`, 'malformed', withHeader({ kid })]),

  // Keys that the token brings along.
  ['its own key in the header', 'signature', (now) => goodToken(stranger, now, {}, { jwk: stranger.jwk })],
  ['its own key in the header, and no name', 'signature', (now) => goodToken(stranger, now, {}, { jwk: stranger.jwk, kid: undefined })],
  ['its own key in the header, under a name of its own', 'unknown-key', (now) => goodToken(stranger, now, {}, { jwk: stranger.jwk, kid: 'mine' })],
  ['jku', 'signature', (now) => goodToken(stranger, now, {}, { jku: 'http://127.0.0.1:9/keys' })],
  ['jku, and no name', 'signature', (now) => goodToken(stranger, now, {}, { jku: 'http://127.0.0.1:9/keys', kid: undefined })],
  ['jku under the name of the issuer', 'unknown-key', (now) => goodToken(stranger, now, {}, { jku: `${issuerName}@127.0.0.1/keys`, kid: 'mine' })],
  ['x5u', 'signature', (now) => goodToken(stranger, now, {}, { x5u: 'http://127.0.0.1:9/certificate' })],
  ['x5c', 'signature', (now) => goodToken(stranger, now, {}, { x5c: ['MIIB'] })],
  ['x5t', 'signature', (now) => goodToken(stranger, now, {}, { x5t: 'AAAA', 'x5t#S256': 'AAAA' })],
  ['a key in its claims', 'signature', (now) => goodToken(stranger, now, { cnf: { jwk: stranger.jwk } })],

  // Extensions that must be understood.
  ...[['exp'], ['x'], ['jwk'], ['http://example.com/x'], ['b64', 'x'], ['alg'], ['__proto__'], ['toString']].map((crit): Row => [`crit ${JSON.stringify(crit)}`, 'malformed', withHeader({ crit, x: 1, exp: 1, 'http://example.com/x': 1, b64: true })]),
  ...[[], 'exp', {}, null, [7], [''], ['b64', 'b64']].map((crit): Row => [`crit ${JSON.stringify(crit)}`, 'malformed', withHeader({ crit, b64: 7 })]),
  ['claims that are not encoded', 'malformed', (now) => signToken(rsa, { ...header, b64: false, crit: ['b64'] }, claimsAt(now))],

  // For others, or by others.
  ...[
    undefined, null, '', 'https://issuer.example', 'https://issuer.example//', 'https://ISSUER.example/', 'http://issuer.example/', 'https://issuer.example/ ',
    ' https://issuer.example/', 'https://issuer.example/x', 'https://issuer.example.evil/', 'https://issuer.example@evil/', [issuerName], { issuer: issuerName }, 7, true,
  ].map((iss): Row => [`iss ${iss === undefined ? 'missing' : JSON.stringify(iss)}`, iss === undefined ? 'claims' : 'issuer', withClaims({ iss })]),
  ...[
    undefined, null, '', 'others', 'work-items ', 'Work-Items', 'work-item', 'work-items,others', '*', [], ['others'], ['work-items-2', 'others'], [[audience]], [{ aud: audience }],
    { [audience]: true }, { 0: audience, length: 1 }, 7, true, [null], audience.split(''),
  ].map((aud): Row => [`aud ${aud === undefined ? 'missing' : JSON.stringify(aud)}`, aud === undefined ? 'claims' : 'audience', withClaims({ aud })]),

  // Too late, too early, or at no time.
  ...[-31, -30, -60, -3_600, -1e9].map((more): Row => [`exp ${more} s from now`, 'expired', (now) => goodToken(rsa, now, { exp: seconds(now, more) })]),
  ...[31, 60, 3_600, 1e9].map((more): Row => [`nbf ${more} s from now`, 'not-yet-valid', (now) => goodToken(rsa, now, { nbf: seconds(now, more) })]),
  ['exp 0', 'expired', withClaims({ exp: 0 })],
  ['exp -1', 'expired', withClaims({ exp: -1 })],
  ['exp of a fraction, long ago', 'expired', withClaims({ exp: 0.5 })],
  ['no exp', 'claims', withClaims({ exp: undefined })],
  ...[null, '', '9999999999', true, [9_999_999_999], { value: 9_999_999_999 }].flatMap((value): Row[] => [
    [`exp ${JSON.stringify(value)}`, 'claims', withClaims({ exp: value })],
    [`nbf ${JSON.stringify(value)}`, 'claims', withClaims({ nbf: value })],
    [`iat ${JSON.stringify(value)}`, 'claims', withClaims({ iat: value })],
  ]),
  ['exp that is beyond numbers', 'claims', claimText((text) => text.replace(/"exp":\d+/, '"exp":1e999'))],
  ['exp that is below numbers', 'expired', claimText((text) => text.replace(/"exp":\d+/, '"exp":-1e999'))],
  ['nbf that is beyond numbers', 'not-yet-valid', claimText((text) => text.replace('{', '{"nbf":1e999,'))],
  ['exp NaN', 'malformed', claimText((text) => text.replace(/"exp":\d+/, '"exp":NaN'))],
  ['exp in hexadecimal', 'malformed', claimText((text) => text.replace(/"exp":\d+/, '"exp":0xffffffffff'))],
  ['two exp, the last one over', 'expired', claimText((text, now) => text.replace(/}$/, `,"exp":${seconds(now, -600)}}`))],
  ['exp in the prototype', 'claims', claimText((text, now) => text.replace(/"exp":\d+/, `"__proto__":{"exp":${seconds(now, 600)}}`))],
  ['aud in the prototype', 'claims', claimText((text) => text.replace('"aud":', '"__proto__":'))],
  ['exp in capitals', 'claims', claimText((text) => text.replace('"exp"', '"EXP"'))],

  // Names that are none.
  ...[null, 7, true, ['ada'], { name: 'ada' }].map((sub): Row => [`sub ${JSON.stringify(sub)}`, 'claims', withClaims({ sub })]),
  ['sub with half of a pair', 'claims', claimText((text) => text.replace('"ada"', '"\\ud800"'))],

  // Claims that are no object.
  ...['', '[]', 'null', '7', '"x"', '{', '{}x', "{'iss':1}", '\ufeff{}x', '{"iss":"x",}'].map((text): Row => [`claims ${JSON.stringify(text)}`, 'malformed', () => signToken(rsa, header, text)]),
  ['claims that are empty', 'claims', () => signToken(rsa, header, '{}')],
  ['claims that are a token', 'malformed', (now) => signToken(rsa, header, goodToken(rsa, now))],
  ['claims that are not UTF-8', 'malformed', (now) => {
    const bytes = Buffer.concat([Buffer.from(JSON.stringify(claimsAt(now)).slice(0, -1)), Buffer.from(',"x":"\xff"}', 'latin1')]);
    const input = `${base64url(header)}.${bytes.toString('base64url')}`;
    return `${input}.${signatureOf('RS256', input, rsa.privateKey)}`;
  }],
  // Headers that are no object.
  ...['[]', 'null', '7', '"RS256"', '{', '{"alg":"RS256"', '{"alg":"RS256",}', "{'alg':'RS256'}", '\u0000', 'RS256'].map((text): Row => [`header ${JSON.stringify(text)}`, 'malformed', headerText(text)]),
  ['two alg, the last one none', 'algorithm', headerText('{"alg":"RS256","kid":"rsa","alg":"none"}')],
  ['two alg, the last one HS256', 'algorithm', headerText('{"alg":"RS256","kid":"rsa","alg":"HS256"}')],
  ['alg in the prototype', 'malformed', headerText('{"__proto__":{"alg":"RS256"},"kid":"rsa"}')],
  ['two kid, the last one unknown', 'unknown-key', headerText('{"alg":"RS256","kid":"rsa","kid":"x"}')],

  // Its form.
  ['a word', 'malformed', () => 'x'],
  ['dots', 'malformed', () => '..'],
  ['one dot', 'malformed', () => '.'],
  ['four dots', 'malformed', () => '....'],
  ['no header', 'malformed', parts((_, b, c) => `.${b}.${c}`)],
  ['no claims', 'malformed', parts((a, _, c) => `${a}..${c}`)],
  ['a fourth part', 'malformed', parts((a, b, c) => `${a}.${b}.${c}.${c}`)],
  ['an empty fourth part', 'malformed', parts((a, b, c) => `${a}.${b}.${c}.`)],
  ['five parts, as of an encrypted token', 'malformed', parts((a, b, c) => `${a}.${b}.${c}.${c}.${c}`)],
  ['a space behind a dot', 'malformed', parts((a, b, c) => `${a}. ${b}.${c}`)],
  ['a tab behind a dot', 'malformed', parts((a, b, c) => `${a}.\t${b}.${c}`)],
  ['a word behind it', 'malformed', parts((a, b, c) => `${a}.${b}.${c} x`)],
  ['another token behind a comma', 'malformed', parts((a, b, c) => `${a}.${b}.${c}, ${a}.${b}.${c}`)],
  ['the scheme twice', 'malformed', parts((a, b, c) => `Bearer ${a}.${b}.${c}`)],
  ['in quotes', 'malformed', parts((a, b, c) => `"${a}.${b}.${c}"`)],
  ['as a parameter', 'malformed', parts((a, b, c) => `token=${a}.${b}.${c}`)],
  ['a semicolon behind it', 'malformed', parts((a, b, c) => `${a}.${b}.${c};`)],
  ['padding behind the signature', 'malformed', parts((a, b, c) => `${a}.${b}.${c}==`)],
  ['padding behind the header', 'malformed', parts((a, b, c) => `${a}=.${b}.${c}`)],
  ['the other alphabet of base64', 'malformed', parts((a, b, c) => `${a}.${b}.+/${c.slice(2)}`)],
  ['a percent escape', 'malformed', parts((a, b, c) => `${a}%2E${b}.${c}`)],
  ['a letter that is not ASCII', 'malformed', parts((a, b, c) => `${a}.${b}.\xe9${c}`)],
  ['a part of a length that none has', 'malformed', parts((a, b, c) => `${a}.${b}.${c}AAA`)],
  ['its last character spelled otherwise', 'malformed', parts((a, b, c) => `${a}.${b}.${c.slice(0, -1)}${respell(c.at(-1) ?? '')}`)],
  ['its header in capitals', 'malformed', parts((a, b, c) => `${a.toUpperCase()}.${b}.${c}`)],
  ['its parts in another order', 'malformed', parts((a, b, c) => `${c}.${b}.${a}`)],
  ['the claims where the header is', 'malformed', parts((_, b, c) => `${b}.${b}.${c}`)],
  ['as JSON', 'malformed', parts((a, b, c) => JSON.stringify({ protected: a, payload: b, signature: c }))],
  ['7,000 dots', 'malformed', () => '.'.repeat(7_000)],
  ['7,000 letters', 'malformed', () => 'a'.repeat(7_000)],
  ['7,000 letters of claims', 'signature', parts((a, _, c) => `${a}.${'a'.repeat(7_000)}.${c}`)],
  // Cut anywhere.
  ...[0.1, 0.3, 0.5, 0.7, 0.9].map((share): Row => [`the first ${share} of it`, share < 0.4 ? 'malformed' : 'cut', (now) => goodToken(rsa, now).slice(0, Math.floor(goodToken(rsa, now).length * share))]),
  ...[1, 2, 3, 4].map((count): Row => [`without its last ${count}`, 'cut', (now) => goodToken(rsa, now).slice(0, -count)]),
  ...[1, 2, 3, 4].map((count): Row => [`without its first ${count}`, 'cut', (now) => goodToken(rsa, now).slice(count)]),
]; // prettier-ignore

// The last character of a signature of 256 bytes has four bits that mean nothing.
function respell(last: string): string {
  const alphabet = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_';
  return alphabet[alphabet.indexOf(last) ^ 1] ?? '';
}
