// What can be wrong with a token, as log and metrics call it. It says nothing of what is in it, and a client gets none of it
// [D43]. Imports nothing.

export const tokenFlawNames = [
  // Its form, its header or its claims cannot be read.
  'malformed',
  // One that AUTH_ALGORITHMS does not have.
  'algorithm',
  // No key of the issuer has its kid and its algorithm.
  'unknown-key',
  'signature',
  'issuer',
  'audience',
  'expired',
  'not-yet-valid',
  // Not of the type that AUTH_TOKEN_TYPE wants.
  'type',
  // One is missing, or of the wrong type.
  'claims',
] as const;

export type TokenFlaw = (typeof tokenFlawNames)[number];
