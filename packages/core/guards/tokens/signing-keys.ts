// Parses a JSON Web Key Set [RFC 7517] and imports the keys for the accepted algorithms.

import type { CryptoKey, JWK } from 'jose';

import { escapeControls } from '../../text/escape.ts';
import { jose, loadJose } from './jose.ts';

export interface SigningKey {
  readonly kid: string | undefined;
  readonly algorithm: string;
  readonly key: CryptoKey;
  /** The key material with its id and algorithm, as text. */
  readonly fingerprint: string;
}

// A key set comes from the network, so it has limits: for the number of keys read, and for the length of a key id.
const keysMax = 200;
const kidLengthMax = 1_024;
// Limits of the explanation of unusable keys: the number of keys, and the characters shown of a key id.
const explainedMax = 5;
const kidShownMax = 40;
// Required by RFC 7518, 3.3.
const rsaBitsMin = 2_048;
// Limits the time of a verification, since any client can send a token. A key of twice the size takes four times as
// long.
const rsaBitsMax = 8_192;

/**
 * Returns the keys of the JSON Web Key Set `text` that one of `algorithms` can use. Leaves out private and invalid
 * keys, and RSA keys of a wrong size. Rejects with an `Error` for the log if `text` is not a key set.
 */
export async function readSigningKeys(text: string, algorithms: readonly string[]): Promise<readonly SigningKey[]> {
  await loadJose();
  const keys = await Promise.all(
    jwksOf(text)
      .slice(0, keysMax)
      .flatMap((jwk) => algorithms.filter((each) => fits(jwk, each)).map((each) => importKey(jwk, each))),
  );
  return keys.flatMap((each) => each ?? []);
}

/** Returns a text that is equal for the same keys in any order. */
export function fingerprintOf(keys: readonly SigningKey[]): string {
  return JSON.stringify(keys.map(({ fingerprint }) => fingerprint).sort());
}

/**
 * Explains to the operator why no key in `text` can be used: `<kid>: <reason>` for each of the first five keys. Call it
 * only if no key can be used.
 */
export function explainUnusable(text: string, algorithms: readonly string[]): string[] {
  return jwksOf(text)
    .slice(0, explainedMax)
    .map((jwk) => {
      const kid = typeof jwk.kid === 'string' ? escapeControls(jwk.kid.slice(0, kidShownMax)) : '(no kid)';
      return `${kid}: ${explainFlaw(jwk, algorithms)}`;
    });
}

function explainFlaw(jwk: JWK, algorithms: readonly string[]): string {
  if (jwk.d !== undefined) return 'a private key, which must not be published';
  if (jwk.use !== undefined && jwk.use !== 'sig') return 'not for signatures';
  if (!algorithms.some((each) => fits(jwk, each))) return `not for ${algorithms.join(' or ')}`;
  // In base64url, 4 characters are 3 bytes.
  const bits = typeof jwk.n === 'string' ? Math.floor((jwk.n.length * 3) / 4) * 8 : rsaBitsMin;
  return bits < rsaBitsMin || bits > rsaBitsMax
    ? `an RSA key of ${bits} bits, not ${rsaBitsMin} to ${rsaBitsMax}`
    : 'malformed';
}

function jwksOf(text: string): readonly JWK[] {
  let set: unknown;
  try {
    set = JSON.parse(text);
  } catch {
    throw new Error('the key set is not JSON');
  }
  const keys: unknown = isObject(set) ? set['keys'] : undefined;
  if (!Array.isArray(keys)) throw new Error('the key set is JSON, but not a JSON Web Key Set: it has no array "keys"');
  return keys.map((key: unknown) => (isObject(key) ? key : {}));
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

// For each algorithm except the RSA algorithms: the type and curve of its keys.
const keyForms: Readonly<Record<string, readonly [type: string, curve: string]>> = {
  ES256: ['EC', 'P-256'],
  ES384: ['EC', 'P-384'],
  ES512: ['EC', 'P-521'],
  EdDSA: ['OKP', 'Ed25519'],
  Ed25519: ['OKP', 'Ed25519'],
};

function fits(jwk: JWK, algorithm: string): boolean {
  const { kty, crv, use, alg, kid, key_ops: operations } = jwk;
  const [type, curve] = keyForms[algorithm] ?? ['RSA', undefined];
  return (
    kty === type &&
    crv === curve &&
    (alg === undefined || alg === algorithm) &&
    (use === undefined || use === 'sig') &&
    (operations === undefined || (Array.isArray(operations) && operations.includes('verify'))) &&
    (kid === undefined || (typeof kid === 'string' && kid.length <= kidLengthMax)) &&
    // Only a private key has `d`. A published private key is compromised, so it is not used.
    jwk.d === undefined
  );
}

async function importKey({ kty, kid, n, e, crv, x, y }: JWK, algorithm: string): Promise<SigningKey | undefined> {
  // Imports only the key material, so that no other member of the key influences its use.
  const parts = JSON.stringify({ kty, n, e, crv, x, y });
  let key;
  try {
    key = await jose.importJWK(JSON.parse(parts) as JWK, algorithm);
  } catch {
    return undefined;
  }
  if (key instanceof Uint8Array || key.type !== 'public') return undefined;
  const { modulusLength: bits = rsaBitsMin } = key.algorithm as { readonly modulusLength?: number };
  return bits < rsaBitsMin || bits > rsaBitsMax
    ? undefined
    : { kid, algorithm, key, fingerprint: JSON.stringify([kid, algorithm, parts]) };
}
