// Makes tokens signed with RS256 by a temporary issuer, and the settings of a gateway that trusts the issuer.
import { createSign, generateKeyPairSync, type KeyObject } from 'node:crypto';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';

const base64url = (value: object): string => Buffer.from(JSON.stringify(value)).toString('base64url');

export interface Tokens {
  tokens: string[];
  /** The first token, but signed with another key. */
  forged: string;
  settings: Record<string, string>;
}

/** Makes `count` tokens, and writes the issuer's keys into `folder`. */
export function makeTokens(folder: string, count: number): Tokens {
  const { privateKey, publicKey } = generateKeyPairSync('rsa', { modulusLength: 2_048 });
  const file = join(folder, 'jwks.json');
  const jwk = {
    ...(publicKey as KeyObject).export({ format: 'jwk' }),
    kid: 'bench',
    alg: 'RS256',
    use: 'sig',
  };
  writeFileSync(file, JSON.stringify({ keys: [jwk] }));
  const now = Math.floor(Date.now() / 1_000);
  const sign = (index: number, key: KeyObject): string => {
    const claims = {
      iss: 'https://issuer.example',
      aud: 'work-items',
      sub: `client-${index}`,
      iat: now,
      exp: now + 3_600,
    };
    const text = `${base64url({ alg: 'RS256', kid: 'bench', typ: 'JWT' })}.${base64url(claims)}`;
    return `${text}.${createSign('RSA-SHA256').update(text).sign(key, 'base64url')}`;
  };
  return {
    tokens: Array.from({ length: count }, (_, index) => sign(index, privateKey)),
    forged: sign(0, generateKeyPairSync('rsa', { modulusLength: 2_048 }).privateKey),
    settings: { AUTH_ISSUER: 'https://issuer.example', AUTH_AUDIENCE: 'work-items', AUTH_JWKS_FILE: file },
  };
}
