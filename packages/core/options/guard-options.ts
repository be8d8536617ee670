// The options of tokens, rate limit and identity, and the checks on their combinations [D41 to D48]. This file needs
// no optional package.

import { choice, file, integer, msMax } from './kinds.ts';
import type { OptionsOf, OptionRow, ValuesOf } from './rows.ts';
import {
  algorithms,
  claimNames,
  identityHeader,
  issuer,
  keysUrl,
  rateText,
  redisUrl,
  scopes,
  words,
} from './guard-kinds.ts';

// At least a second, to protect the issuer from too many fetches.
const refreshTime = integer('ms', 1_000, msMax);

export const tokenRows = {
  /** The issuer, as in the claim `iss`. Turns tokens on: a request without a valid token gets 401 [D41]. Default: none. */
  authIssuer: {
    kind: issuer,
    default: '',
    help: 'Issuer of the tokens; turns tokens on. Write it exactly as in the claim `iss`, for instance `https://login.example.com/`.',
  },
  /** Accepted audiences: one of them must be in the claim `aud`. Required with `authIssuer`. */
  authAudience: {
    kind: words,
    default: '',
    help: 'Accepted audiences of tokens; one of them must be in the claim `aud`, otherwise the request gets 401. Required with {authIssuer}, so that tokens of the same issuer for other services are refused.',
  },
  /** Address of the issuer's keys, a JSON Web Key Set: the `jwks_uri` in its discovery document [D44]. */
  authJwksUrl: {
    kind: keysUrl,
    default: '',
    help: "Address of the issuer's keys, a JSON Web Key Set; it is `jwks_uri` in the issuer's `/.well-known/openid-configuration`. The keys are fetched in the background, without following redirects.",
  },
  /** File with the issuer's keys, instead of `authJwksUrl`. */
  authJwksFile: {
    kind: file,
    default: '',
    help: "File with the issuer's keys, a JSON Web Key Set; replaces {authJwksUrl}. The file is read again at the interval {authJwksRefreshMs}.",
  },
  /** Accepted signature algorithms; a token with another algorithm gets 401. Default: `['RS256', 'ES256']`. */
  authAlgorithms: {
    kind: algorithms,
    default: 'RS256,ES256',
    help: 'Accepted signature algorithms of tokens; a token with another algorithm gets 401.',
  },
  /** Tolerated difference between the issuer's clock and ours, in milliseconds. Default 30,000. */
  authClockSkewMs: {
    kind: integer('ms', 0, 600_000),
    default: 30_000,
    help: 'Tolerated difference between the clocks of issuer and gateway; applies to the claims `exp` and `nbf`.',
  },
  /** Required header `typ` of tokens; a token with another type gets 401. Default: `any`. */
  authTokenType: {
    kind: choice('any', 'at+jwt'),
    default: 'any',
    help: 'Required header `typ` of tokens; tokens with another type get 401. `at+jwt` accepts only access tokens (RFC 9068).',
  },
  /** Scopes that operations require. An operation that is not listed requires only a valid token [D42]. Default: none. */
  authScopes: {
    kind: scopes,
    default: '',
    help: 'Scopes that operations require; for instance `list=items.read,read=items.read,create=items.write,update=items.write,delete=items.write`. An operation that is not listed requires only a valid token.',
  },
  /** The claims with the scopes of a token, such as `['scp', 'roles']` or `'realm_access.roles'` [D42]. Default: `scope`. */
  authScopeClaim: {
    kind: claimNames,
    default: 'scope',
    help: 'Claims with the scopes of a token; for instance `scp,roles` for Entra ID, or `realm_access.roles` for Keycloak, where the dot leads into an object. A claim is words separated by spaces, or an array of words.',
  },
  /** Interval between fetches of the keys, in milliseconds. Default 300,000. */
  authJwksRefreshMs: { kind: refreshTime, default: 300_000, help: 'Interval between fetches of the keys.' },
  /** How long keys stay valid without a refresh, in milliseconds; after that, requests get 503. Default 86,400,000. */
  authJwksStaleMs: {
    kind: refreshTime,
    default: 86_400_000,
    help: 'How long cached keys stay valid when they cannot be refreshed; after that, calls with a token get 503.',
  },
  /** Header that passes the token's claim `sub` to the backend [D48]. Default: none. */
  backendIdentityHeader: {
    kind: identityHeader,
    default: '',
    help: "Header that passes the client's identity to the backend; for instance `x-user`. Its value is the token's claim `sub`, percent-encoded. For a token without the claim, no header is sent.",
  },
} satisfies Readonly<Record<string, OptionRow>>;

export const rateRows = {
  /** Requests allowed per client and window, such as `100/60s`; further requests get 429 [D46]. Default: no limit. */
  rateLimit: {
    kind: rateText,
    default: '',
    help: 'Largest number of requests to operations per client and window. The number is at most 1000000, and the window at most a day. Requests over the limit get 429 and are not counted. All workers count together.',
  },
  /** Tells clients apart by `address` (default), or by the token's subject (`identity`). */
  rateLimitKey: {
    kind: choice('address', 'identity'),
    default: 'address',
    help: 'How the rate limit tells clients apart; `address` compares IP addresses (of IPv6 only the /64). Behind {trustedProxies}, these are the forwarded addresses. `identity` compares the claim `sub` of the tokens.',
  },
  /** A Redis or Valkey that counts for all gateways [D47]. Default: each gateway counts by itself. */
  rateLimitRedisUrl: {
    kind: redisUrl,
    default: '',
    help: 'Redis or Valkey server that counts for all gateways; for instance `redis://redis.internal:6379/0`, or over TLS `rediss://user:password@redis.internal`. User name and password are never shown.',
  },
  /** The rate limit while Redis does not answer: `local` (default), `allow` or `deny`. */
  rateLimitFallback: {
    kind: choice('local', 'allow', 'deny'),
    default: 'local',
    help: 'The rate limit while Redis does not answer within 100 ms; `local` counts in each gateway, `allow` admits all, `deny` answers 429. Under load, 50 ms is already too slow.',
  },
} satisfies Readonly<Record<string, OptionRow>>;

// The type is written out, because an inferred type would lose the comments of the options in the published types.
export const guardRows: typeof tokenRows & typeof rateRows = { ...tokenRows, ...rateRows };

export type GuardOptions = OptionsOf<typeof guardRows>;

/** The parsed options of guards; an empty string means unset. */
export type GuardSettings = ValuesOf<typeof guardRows>;

/**
 * Returns problems with combinations of options. `values` lacks refused values, because they are already reported.
 * `isGiven` returns true for an option that was set. `nameOf` returns the name of an option for messages.
 */
export function findGuardProblems(
  values: Partial<GuardSettings>,
  isGiven: (name: keyof GuardSettings) => boolean,
  nameOf: (name: keyof GuardSettings) => string,
): string[] {
  const { authIssuer, authJwksUrl, authJwksFile, authJwksRefreshMs = 0, authJwksStaleMs = Infinity } = values;
  const [issuerName, url, fileName] = [nameOf('authIssuer'), nameOf('authJwksUrl'), nameOf('authJwksFile')];
  const problems: string[] = [];
  // An operator who sets a detail of a feature believes the feature to be on. So if the feature is off, this setting is
  // a problem [D41].
  if (authIssuer === '') {
    for (const name of Object.keys(tokenRows) as (keyof typeof tokenRows)[]) {
      if (name !== 'authIssuer' && isGiven(name)) {
        problems.push(`${nameOf(name)} is set, but tokens are off: ${issuerName} is not set`);
      }
    }
  } else {
    if (values.authAudience?.length === 0) {
      const audienceName = nameOf('authAudience');
      problems.push(`${issuerName} is set, but ${audienceName} is not: tokens for other services would be accepted`);
    }
    if (authJwksUrl === '' && authJwksFile === '') {
      problems.push(`${issuerName} is set, but neither ${url} nor ${fileName}: there are no keys`);
    }
    if (authJwksUrl !== '' && authJwksFile !== '') {
      problems.push(`${url} and ${fileName} are both set: set only one of them`);
    }
    if (isGiven('authScopeClaim') && !isGiven('authScopes')) {
      problems.push(`${nameOf('authScopeClaim')} is set, but ${nameOf('authScopes')} is not: no scope is checked`);
    }
    if (authJwksStaleMs < authJwksRefreshMs) {
      const [stale, refresh] = [nameOf('authJwksStaleMs'), nameOf('authJwksRefreshMs')];
      problems.push(`${stale} is below ${refresh}: keys would expire before the next fetch`);
    }
  }
  for (const [name, needed] of [
    ['rateLimitKey', 'rateLimit'],
    ['rateLimitRedisUrl', 'rateLimit'],
    ['rateLimitFallback', 'rateLimitRedisUrl'],
  ] as const) {
    if (isGiven(name) && values[needed] === '') {
      problems.push(`${nameOf(name)} is set, but has no effect without ${nameOf(needed)}`);
    }
  }
  if (values.rateLimitKey === 'identity' && authIssuer === '') {
    problems.push(`${nameOf('rateLimitKey')} is identity, but tokens are off: ${issuerName} is not set`);
  }
  return problems;
}
