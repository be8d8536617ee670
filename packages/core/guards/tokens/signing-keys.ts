// A JSON Web Key Set [RFC 7517] as keys to verify with: those of its keys that one of our algorithms can use. Where the
// set comes from, and when, is key-set.ts's affair.

import { importJWK, type CryptoKey, type JWK } from 'jose';

import type { SignatureAlgorithm } from '../options/signature-algorithms.ts';

export interface SigningKey {
  /** Undefined where the issuer gave it no name. */
  readonly kid: string | undefined;
  readonly algorithm: SignatureAlgorithm;
  readonly key: CryptoKey;
}

// A set is fetched over the network: whatever it has, looking at it is soon done.
const keysMax = 200;
const kidLengthMax = 1_024;
// Shorter ones can be factored [RFC 7518, 3.3].
const rsaBitsMin = 2_048;
// Verifying takes four times as long with twice the bits, and anybody can have us do it.
const rsaBitsMax = 8_192;

/** What the keys are that can be used, and what tells them from others. */
export class SigningKeys {
  readonly keys: readonly SigningKey[];
  /** The same for the same keys, in whatever order they came. */
  readonly fingerprint: string;

  constructor(keys: readonly SigningKey[], fingerprint: string) {
    this.keys = keys;
    this.fingerprint = fingerprint;
  }

  /** Whether a key has this name, for whatever algorithm. */
  has(kid: string): boolean {
    return this.keys.some((key) => key.kid === kid);
  }

  /** The keys that a token of this algorithm can be signed with; without `kid`, those of any name. */
  find(algorithm: SignatureAlgorithm, kid: string | undefined): readonly SigningKey[] {
    return this.keys.filter((key) => key.algorithm === algorithm && (kid === undefined || key.kid === kid));
  }
}

export const noSigningKeys = new SigningKeys([], '');

/**
 * The keys of the JSON Web Key Set in `text` that one of `algorithms` can use. Others are left out: of another kind or use,
 * private, too short, broken. Rejects with an `Error` for the log when it is no such set.
 */
export async function readSigningKeys(
  text: string,
  algorithms: readonly SignatureAlgorithm[],
): Promise<SigningKeys> {
  const keys = await Promise.all(
    jwksOf(text)
      .slice(0, keysMax)
      .flatMap((jwk) => algorithms.filter((each) => fits(jwk, each)).map((each) => importKey(jwk, each))),
  );
  const usable = keys.flatMap((each) => each ?? []);
  const fingerprint = usable.map((each) => each.fingerprint).sort();
  return new SigningKeys(
    usable.map(({ key }) => key),
    JSON.stringify(fingerprint),
  );
}

function jwksOf(text: string): readonly JWK[] {
  let set: unknown;
  try {
    set = JSON.parse(text);
  } catch {
    throw new Error('it is not JSON');
  }
  const keys: unknown = isObject(set) ? set['keys'] : undefined;
  if (!Array.isArray(keys)) {
    throw new Error('it is JSON, but no JSON Web Key Set: it has no array "keys"');
  }
  return keys.filter(isObject);
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

// The curves of ECDSA; EdDSA has one that the platform can verify.
const curves: Readonly<Record<string, string>> = {
  ES256: 'P-256',
  ES384: 'P-384',
  ES512: 'P-521',
  EdDSA: 'Ed25519',
  Ed25519: 'Ed25519',
};

function fits(jwk: JWK, algorithm: SignatureAlgorithm): boolean {
  const { kty, crv, use, alg, kid, key_ops: operations } = jwk;
  const curve = curves[algorithm];
  const wanted = curve === undefined ? 'RSA' : curve === 'Ed25519' ? 'OKP' : 'EC';
  return (
    kty === wanted &&
    crv === curve &&
    (alg === undefined || alg === algorithm) &&
    (use === undefined || use === 'sig') &&
    (operations === undefined || (Array.isArray(operations) && operations.includes('verify'))) &&
    (kid === undefined || (typeof kid === 'string' && kid.length <= kidLengthMax)) &&
    // Whoever publishes a private key has none any more.
    jwk.d === undefined
  );
}

async function importKey(
  { kty, kid, n, e, crv, x, y }: JWK,
  algorithm: SignatureAlgorithm,
): Promise<{ readonly key: SigningKey; readonly fingerprint: string } | undefined> {
  const parts = { kty, n, e, crv, x, y };
  let key;
  try {
    // Only what makes the key: nothing else of the set has a say in how it is used.
    key = await importJWK(JSON.parse(JSON.stringify(parts)) as JWK, algorithm);
  } catch {
    return undefined;
  }
  if (key instanceof Uint8Array || key.type !== 'public') {
    return undefined;
  }
  const { modulusLength: bits } = key.algorithm as { readonly modulusLength?: number };
  return bits !== undefined && (bits < rsaBitsMin || bits > rsaBitsMax)
    ? undefined
    : { key: { kid, algorithm, key }, fingerprint: JSON.stringify([kid, algorithm, parts]) };
}
