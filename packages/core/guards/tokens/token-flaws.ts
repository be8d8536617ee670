// What can be wrong with a token: the words for log and metrics. They say nothing of what is in it, and a client gets none
// of them [D43]. Imports nothing.

export const tokenFlaws = {
  malformed: 'no token: its form, its header or its claims cannot be read',
  algorithm: 'an algorithm that AUTH_ALGORITHMS does not have',
  'unknown-key': 'no key of the issuer has its kid and its algorithm',
  signature: 'the signature is wrong',
  issuer: 'of another issuer, or of none',
  audience: 'for another audience, or for none',
  expired: 'it has expired',
  'not-yet-valid': 'it is not valid yet',
  type: 'not of the type that AUTH_TOKEN_TYPE wants',
  claims: 'a claim is missing, or of the wrong type',
} as const satisfies Readonly<Record<string, string>>;

export type TokenFlaw = keyof typeof tokenFlaws;

export const tokenFlawNames = Object.keys(tokenFlaws) as readonly TokenFlaw[];
