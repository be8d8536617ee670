// The supported signature algorithms of tokens [RFC 7518, 3.1; RFC 8037]. All are asymmetric, so only the issuer can sign.
// `none` and shared-secret algorithms such as `HS256` are excluded [D41].

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
