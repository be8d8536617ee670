// The algorithms that a token may be signed with [RFC 7518, 3.1; RFC 8037]: those where the issuer alone has what signs.
// `none` and those with a shared secret (`HS256` and the like) are not among them [D41]. Imports nothing.

export const signatureAlgorithms = [
  'RS256',
  'RS384',
  'RS512',
  'PS256',
  'PS384',
  'PS512',
  'ES256',
  'ES384',
  'ES512',
  'EdDSA',
  'Ed25519',
] as const;

export type SignatureAlgorithm = (typeof signatureAlgorithms)[number];

export function isSignatureAlgorithm(text: unknown): text is SignatureAlgorithm {
  return (signatureAlgorithms as readonly unknown[]).includes(text);
}
