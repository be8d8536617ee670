// The names of token defects (flaws) in log and metrics. The names reveal nothing of a token's content, and clients
// never receive them [D43].

export const tokenFlawNames = [
  // The token, its header or its claims cannot be parsed.
  'malformed',
  // The token's algorithm is not in AUTH_ALGORITHMS.
  'algorithm',
  // The issuer has no key with the token's key id and algorithm.
  'unknown-key',
  'signature',
  'issuer',
  'audience',
  'expired',
  'not-yet-valid',
  // The token's type is not the required one (AUTH_TOKEN_TYPE).
  'type',
  // A claim is missing or has the wrong type.
  'claims',
] as const;

export type TokenFlaw = (typeof tokenFlawNames)[number];
