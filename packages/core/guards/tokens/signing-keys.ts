// Parses a JSON Web Key Set [RFC 7517] and imports the keys for the accepted algorithms. Loads jose, an optional package.

import type { CryptoKey, JWK } from 'jose';

import { escapeControls } from '../../text/escape.ts';
import { explainLoading } from '../ports/missing-package.ts';

/** Undefined until `loadJose` has resolved. */
export let jose: typeof import('jose');

/** Rejects with a MissingPackageError if jose is not installed. */
export async function loadJose(): Promise<void> {
  // In a `try`, so that bundlers accept that the package is not installed.
  try {
    jose = await import('jose');
  } catch (error) {
    throw explainLoading('authIssuer', 'jose', error);
  }
}

export interface SigningKey {
  readonly kid: string | undefined;
  readonly algorithm: string;
  readonly key: CryptoKey;
  /** The key material with its id and algorithm, as text. */
  readonly fingerprint: string;
}

// A key set comes from the network, so it has limits.
const keysMax = 200;
const kidLengthMax = 1_024;
const explainedMax = 5;
const kidShownMax = 40;
// Required by RFC 7518, 3.3.
const rsaBitsMin = 2_048;
// Limits the time of a verification, since any client can send a token. A key of twice the size takes four times as
// long.
const rsaBitsMax = 8_192;

/**
 * Returns the keys of the JSON Web Key Set `text` that one of `algorithms` can use. Leaves out private and invalid
 * keys, and RSA keys of a wrong size. Without a key, `flaws` has the reason for each of the first five:
 * `<kid>: <reason>`. Rejects with an `Error` for the log if `text` is not a key set.
 */
export async function readSigningKeys(
  text: string,
  algorithms: readonly string[],
): Promise<{ readonly keys: readonly SigningKey[]; readonly flaws: readonly string[] }> {
  await loadJose();
  const jwks = jwksOf(text).slice(0, keysMax);
  const read = await Promise.all(jwks.map((jwk) => readKey(jwk, algorithms)));
  const keys = read.flatMap((each) => (typeof each === 'string' ? [] : each));
  const flaws = read.filter((each) => typeof each === 'string').slice(0, explainedMax);
  return { keys, flaws: keys.length === 0 ? flaws : [] };
}

/** Returns a text that is equal for the same keys in any order. */
export function fingerprintOf(keys: readonly SigningKey[]): string {
  return JSON.stringify(keys.map(({ fingerprint }) => fingerprint).sort());
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
  const { kty, crv, alg, kid, key_ops: operations } = jwk;
  const [type, curve] = keyForms[algorithm] ?? ['RSA', undefined];
  return (
    kty === type &&
    crv === curve &&
    (alg === undefined || alg === algorithm) &&
    (operations === undefined || (Array.isArray(operations) && operations.includes('verify'))) &&
    (kid === undefined || (typeof kid === 'string' && kid.length <= kidLengthMax))
  );
}

/** Returns the key for each algorithm that it fits, or why it cannot be used. */
async function readKey(jwk: JWK, algorithms: readonly string[]): Promise<readonly SigningKey[] | string> {
  // Only a private key has `d`. A published private key is compromised, so it is not used.
  const isPrivate = jwk.d !== undefined;
  const signs = !isPrivate && (jwk.use === undefined || jwk.use === 'sig');
  const fitting = signs ? algorithms.filter((each) => fits(jwk, each)) : [];
  const imported = await Promise.all(fitting.map((each) => importKey(jwk, each)));
  const keys = imported.filter((each) => typeof each !== 'string');
  if (keys.length > 0) return keys;
  const unfit = signs ? `not for ${algorithms.join(' or ')}` : 'not for signatures';
  const [flaw = isPrivate ? 'a private key, which must not be published' : unfit] = imported.filter(
    (each) => typeof each === 'string',
  );
  const kid = typeof jwk.kid === 'string' ? escapeControls(jwk.kid.slice(0, kidShownMax)) : '(no kid)';
  return `${kid}: ${flaw}`;
}

async function importKey({ kty, kid, n, e, crv, x, y }: JWK, algorithm: string): Promise<SigningKey | string> {
  // Imports only the key material, so that no other member of the key influences its use.
  const parts = JSON.stringify({ kty, n, e, crv, x, y });
  let key;
  try {
    key = await jose.importJWK(JSON.parse(parts) as JWK, algorithm);
  } catch {
    return 'malformed';
  }
  if (key instanceof Uint8Array || key.type !== 'public') return 'malformed';
  const { modulusLength: bits = rsaBitsMin } = key.algorithm as { readonly modulusLength?: number };
  return bits < rsaBitsMin || bits > rsaBitsMax
    ? `an RSA key of ${bits} bits, not ${rsaBitsMin} to ${rsaBitsMax}`
    : { kid, algorithm, key, fingerprint: JSON.stringify([kid, algorithm, parts]) };
}
