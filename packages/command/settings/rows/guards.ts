// Settings: rate limit and tokens.

import {
  parseAlgorithms,
  parseClaimName,
  parseIdentityHeader,
  parseKeysUrl,
  parseScopes,
  parseWord,
  parseWords,
} from '../../../core/hosts/options/token-settings.ts';
import { parseRateText, parseRedisUrl, showRedisUrl } from '../../../core/hosts/options/rate-settings.ts';
import { rateGrammar } from '../../../core/guards/rate-limit/rate.ts';
import { choice, file, withoutQuery } from '../../options/kinds.ts';
import { gateway, msLimit, type Row } from '../../options/row.ts';

export const guardsRows = {
  rateLimit: {
    kind: { parse: parseRateText, takes: `${rateGrammar}, or nothing for any number`, placeholder: 'rate' },
    group: 'rateLimit',
    default: '',
    help: 'Requests of operations that each client may make in a window; for instance `100/60s`, `1000/5m` or `10000/1h`: up to 1000000 in up to a day. The window begins with the first request. What is over is answered with 429 and does not count. All workers count together.',
    commands: gateway,
  },
  rateLimitKey: {
    kind: choice('address', 'identity'),
    group: 'rateLimit',
    default: 'address',
    help: 'What a client is; `address` is its IP address (of IPv6 the /64), behind TRUSTED_PROXIES the forwarded one, `identity` whom its token names (`sub`).',
    commands: gateway,
  },
  rateLimitRedisUrl: {
    kind: {
      parse: parseRedisUrl,
      show: showRedisUrl,
      takes: 'a redis or rediss address, or nothing for none',
      placeholder: 'url',
      isSecret: true,
    },
    group: 'rateLimit',
    default: '',
    help: 'Redis or Valkey that counts for all gateways; for instance `redis://redis.internal:6379/0`, or over TLS `rediss://user:password@redis.internal`. User name and password are never shown.',
    commands: gateway,
  },
  rateLimitFallback: {
    kind: choice('local', 'allow', 'deny'),
    group: 'rateLimit',
    default: 'local',
    help: 'What counts while Redis does not answer within 100 ms; `local`: each gateway counts by itself, `allow`: every request is let in, `deny`: every one is answered with 429.',
    commands: gateway,
  },
  authIssuer: {
    kind: { parse: parseWord, takes: "the issuer's name, or nothing for no tokens", placeholder: 'name' },
    default: '',
    group: 'tokens',
    help: 'Who issues the tokens; turns them on. For instance `https://login.example.com/`: what stands in the claim `iss` of its tokens, to the letter. Then an operation without a token is answered with 401.',
    commands: gateway,
  },
  authAudience: {
    kind: { parse: parseWords, takes: 'names separated by commas', placeholder: 'names' },
    default: '',
    group: 'tokens',
    help: 'For whom tokens must be; one of these must be in the claim `aud`. Required with AUTH_ISSUER: a token that the same issuer has made for another service must not do here.',
    commands: gateway,
  },
  authJwksUrl: {
    kind: {
      parse: parseKeysUrl,
      takes: 'an https address, http for this machine alone, or nothing for none',
      placeholder: 'url',
      show: withoutQuery,
      isSecret: true,
    },
    default: '',
    group: 'tokens',
    help: "Where the issuer's keys are, as a JSON Web Key Set; it is what the issuer's `/.well-known/openid-configuration` calls `jwks_uri`. Fetched in the background, without following redirects.",
    commands: gateway,
  },
  authJwksFile: {
    kind: file,
    default: '',
    group: 'tokens',
    help: "File with the issuer's keys, as a JSON Web Key Set; instead of AUTH_JWKS_URL. Read as often as the address would be fetched.",
    commands: gateway,
  },
  authAlgorithms: {
    kind: {
      parse: parseAlgorithms,
      takes:
        'some of RS256, RS384, RS512, PS256, PS384, PS512, ES256, ES384, ES512, EdDSA, Ed25519, separated by commas',
      placeholder: 'names',
    },
    default: 'RS256,ES256',
    group: 'tokens',
    help: 'Algorithms that tokens may be signed with; others are answered with 401.',
    commands: gateway,
  },
  authClockSkewMs: msLimit(
    'authClockSkewMs',
    "How far the issuer's clock may be from ours; for the claims `exp` and `nbf`.",
    'tokens',
  ),
  authTokenType: {
    kind: choice('any', 'at+jwt'),
    group: 'tokens',
    default: 'any',
    help: 'What the header `typ` of a token must be; `at+jwt` is that of access tokens by RFC 9068, so that no other token of the issuer will do.',
    commands: gateway,
  },
  authScopes: {
    kind: {
      parse: parseScopes,
      takes: 'a list of operation=scope separated by commas, or nothing for none',
      placeholder: 'list',
    },
    default: '',
    group: 'tokens',
    help: 'Scopes that operations need; for instance `list=items.read,read=items.read,create=items.write,update=items.write,delete=items.write`. A token without it is answered with 403; an operation that is not named needs only a valid token.',
    commands: gateway,
  },
  authScopeClaim: {
    kind: { parse: parseClaimName, takes: 'the name of a claim', placeholder: 'name' },
    default: 'scope',
    group: 'tokens',
    help: 'Claim that has the scopes of a token; words with spaces between them, or an array of words.',
    commands: gateway,
  },
  authJwksRefreshMs: msLimit('authJwksRefreshMs', 'From one fetch of the keys to the next.', 'tokens'),
  authJwksStaleMs: msLimit(
    'authJwksStaleMs',
    'For how long keys count that cannot be fetched anew; then a call with a token is answered with 503.',
    'tokens',
  ),
  backendIdentityHeader: {
    kind: {
      parse: parseIdentityHeader,
      takes: 'the name of a header, or nothing for none',
      placeholder: 'name',
    },
    default: '',
    group: 'tokens',
    help: "Header that tells the backend who calls; for instance `x-user`. Its value is the token's claim `sub`, with everything but printable ASCII, and `%`, percent-encoded. Without that claim there is none; what a client sends under that name never gets there.",
    commands: gateway,
  },
} as const satisfies Record<string, Row>;
