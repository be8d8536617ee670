// The options of tokens, and what of them does not go together [D41, D42, D44, D48].

import { choice, file, integer, msMax } from '../../hosts/options/kinds.ts';
import type { SharedRow, ValuesOf } from '../../hosts/options/rows.ts';
import { algorithms, claimName, identityHeader, issuer, keysUrl, scopes, words } from './token-kinds.ts';

// The issuer is not to be asked without end.
const refreshTime = integer('ms', 1_000, msMax);

export const tokenRows = {
  /**
   * Who issues the tokens, as their claim `iss` has it to the letter; turns tokens on: every operation needs one [D41].
   * Default: none is wanted.
   */
  authIssuer: {
    kind: issuer,
    default: '',
    help: 'Who issues the tokens; turns them on. For instance `https://login.example.com/`: what stands in the claim `iss` of its tokens, to the letter. Then an operation without a token is answered with 401.',
  },
  /** For whom tokens must be: one of these must be in the claim `aud`. Required with `authIssuer`. */
  authAudience: {
    kind: words,
    default: '',
    help: 'For whom tokens must be; one of these must be in the claim `aud`. Required with {authIssuer}: a token that the same issuer has made for another service must not do here.',
  },
  /** Where the issuer's keys are, as a JSON Web Key Set: what its discovery document calls `jwks_uri` [D44]. */
  authJwksUrl: {
    kind: keysUrl,
    default: '',
    help: "Where the issuer's keys are, as a JSON Web Key Set; it is what the issuer's `/.well-known/openid-configuration` calls `jwks_uri`. Fetched in the background, without following redirects.",
  },
  /** A file with them instead. */
  authJwksFile: {
    kind: file,
    default: '',
    help: "File with the issuer's keys, as a JSON Web Key Set; instead of {authJwksUrl}. Read as often as the address would be fetched.",
  },
  /** Algorithms that tokens may be signed with. Default: `['RS256', 'ES256']`. */
  authAlgorithms: {
    kind: algorithms,
    default: 'RS256,ES256',
    help: 'Algorithms that tokens may be signed with; others are answered with 401.',
  },
  /** How far the issuer's clock may be from ours, in milliseconds. Default 30,000. */
  authClockSkewMs: {
    kind: integer('ms', 0, 600_000),
    default: 30_000,
    help: "How far the issuer's clock may be from ours; for the claims `exp` and `nbf`.",
  },
  /** What the header `typ` of a token must be. Default: `any`. */
  authTokenType: {
    kind: choice('any', 'at+jwt'),
    default: 'any',
    help: 'What the header `typ` of a token must be; `at+jwt` is that of access tokens by RFC 9068, so that no other token of the issuer will do.',
  },
  /** The scope that each operation needs; one that is not named needs only a valid token [D42]. Default: none. */
  authScopes: {
    kind: scopes,
    default: '',
    help: 'Scopes that operations need; for instance `list=items.read,read=items.read,create=items.write,update=items.write,delete=items.write`. A token without it is answered with 403; an operation that is not named needs only a valid token.',
  },
  /** The claim with a token's scopes. Default: `scope`. */
  authScopeClaim: {
    kind: claimName,
    default: 'scope',
    help: 'Claim that has the scopes of a token; words with spaces between them, or an array of words.',
  },
  /** From one fetch of the keys to the next, in milliseconds. Default 300,000. */
  authJwksRefreshMs: {
    kind: refreshTime,
    default: 300_000,
    help: 'From one fetch of the keys to the next.',
  },
  /** For how long keys count that cannot be fetched anew, in milliseconds. Default 86,400,000. */
  authJwksStaleMs: {
    kind: refreshTime,
    default: 86_400_000,
    help: 'For how long keys count that cannot be fetched anew; then a call with a token is answered with 503.',
  },
  /** Name of the header that tells the backend who calls: the token's claim `sub` [D48]. Default: it is not told. */
  backendIdentityHeader: {
    kind: identityHeader,
    default: '',
    help: "Header that tells the backend who calls; for instance `x-user`. Its value is the token's claim `sub`, with everything but printable ASCII, and `%`, percent-encoded. Without that claim there is none; what a client sends under that name never gets there.",
  },
} satisfies Readonly<Record<string, SharedRow>>;

type TokenName = keyof typeof tokenRows;

/**
 * What is wrong with the options of tokens as a whole. One whose value was refused is missing in `values`: it has its
 * problem already. `isGiven`: somebody has set it; `nameOf` has its name for people.
 */
export function findTokenProblems(
  values: Partial<ValuesOf<typeof tokenRows>>,
  isGiven: (name: TokenName) => boolean,
  nameOf: (name: TokenName) => string,
): string[] {
  const { authIssuer, authAudience, authJwksRefreshMs = 0, authJwksStaleMs = Infinity } = values;
  const issuerName = nameOf('authIssuer');
  const url = nameOf('authJwksUrl');
  const fileName = nameOf('authJwksFile');
  if (authIssuer === '') {
    return (Object.keys(tokenRows) as TokenName[])
      .filter((name) => name !== 'authIssuer' && isGiven(name))
      .map((name) => `${nameOf(name)} is set, but tokens are off: ${issuerName} is not set`);
  }
  const hasUrl = values.authJwksUrl !== '';
  const hasFile = values.authJwksFile !== '';
  return [
    ...(authAudience?.length === 0
      ? [`${issuerName} is set, but ${nameOf('authAudience')} is not: a token for anybody else would do`]
      : []),
    ...(hasUrl || hasFile
      ? []
      : [`${issuerName} is set, but neither ${url} nor ${fileName}: there are no keys`]),
    ...(hasUrl && hasFile ? [`${url} and ${fileName} are both set: the keys come from one place`] : []),
    ...(isGiven('authScopeClaim') && !isGiven('authScopes')
      ? [`${nameOf('authScopeClaim')} is set, but ${nameOf('authScopes')} is not: no scope is looked for`]
      : []),
    ...(authJwksStaleMs < authJwksRefreshMs
      ? [
          `${nameOf('authJwksStaleMs')} is below ${nameOf('authJwksRefreshMs')}: keys would cease to count before the next fetch`,
        ]
      : []),
  ];
}
