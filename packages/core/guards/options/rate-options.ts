// The options of the rate limit, and the checks on their combinations [D46, D47].

import { addressOf, choice, textOf } from '../../hosts/options/kinds.ts';
import { Problem } from '../../hosts/options/problem.ts';
import type { SharedRow, ValuesOf } from '../../hosts/options/rows.ts';
import { decodePercent } from '../../text/percent.ts';
import { parseRate, rateGrammar } from './rate.ts';

function parseRateText(text: string): string | Problem {
  return text === '' || parseRate(text) !== undefined
    ? text
    : new Problem(`must be ${rateGrammar}: at most 1000000 requests, in a window of 1s to 24h`);
}

// Parses a Redis address. The path is empty or a database number. A query is refused, because it would have no effect. The
// message hides the address, which is secret.
function parseRedisUrl(text: string): string | Problem {
  const url = URL.parse(text);
  const isOne =
    url !== null &&
    /^rediss?:$/.test(url.protocol) &&
    url.hostname !== '' &&
    /^\/?$|^\/\d{1,4}$/.test(url.pathname) &&
    url.search + url.hash === '' &&
    decodePercent(url.username) !== undefined &&
    decodePercent(url.password) !== undefined;
  return isOne || text === ''
    ? text
    : new Problem(
        'must be an address such as redis://redis.internal:6379/0 or, over TLS, rediss://user:password@redis.internal, with special characters of user name and password percent-encoded',
      );
}

/** Returns the address without user name and password. */
export function showRedisUrl(text: string): string {
  const url = URL.parse(text);
  return url === null ? '' : `${url.protocol}//${url.host}${url.pathname}`;
}

export const rateRows = {
  /** Largest number of requests per client and window, such as `100/60s`; further ones get 429 [D46]. Default: no limit. */
  rateLimit: {
    kind: textOf(parseRateText, { takes: `${rateGrammar}, or empty for no limit`, placeholder: 'rate' }),
    default: '',
    help: 'Largest number of requests to operations per client and window; for instance `100/60s`, `1000/5m` or `10000/1h`. The number is at most 1000000, and the window at most a day. A window begins with the first request of a client. Requests over the limit get 429 and are not counted. All workers count together.',
  },
  /** Counts clients by `address` (default), or by the token's subject (`identity`). */
  rateLimitKey: {
    kind: choice('address', 'identity'),
    default: 'address',
    help: 'How the rate limit tells clients apart; `address` means by IP address (IPv6: by /64), and behind {trustedProxies} by the forwarded address. `identity` means by the claim `sub` of the token.',
  },
  /** A Redis or Valkey that counts for all gateways [D47]. Default: each gateway counts by itself. */
  rateLimitRedisUrl: {
    kind: addressOf(parseRedisUrl, {
      show: showRedisUrl,
      takes: 'a redis or rediss address, or empty for none',
      placeholder: 'url',
      isSecret: true,
    }),
    default: '',
    help: 'Redis or Valkey server that counts for all gateways; for instance `redis://redis.internal:6379/0`, or over TLS `rediss://user:password@redis.internal`. User name and password are never shown.',
  },
  /** The rate limit while Redis does not answer: `local` (default), `allow` or `deny`. */
  rateLimitFallback: {
    kind: choice('local', 'allow', 'deny'),
    default: 'local',
    help: 'The rate limit while Redis does not answer within 100 ms; with `local` each gateway counts by itself. With `allow` all requests are admitted. With `deny` all requests get 429.',
  },
} satisfies Readonly<Record<string, SharedRow>>;

type RateValues = ValuesOf<typeof rateRows> & { readonly authIssuer: string };

/** Returns problems with combinations of options. `isSet`: the option was given. `settings` lacks refused values. */
export function findRateProblems(
  settings: Partial<RateValues>,
  isSet: (name: keyof RateValues) => boolean,
  nameOf: (name: keyof RateValues) => string,
): string[] {
  // An operator who sets a detail of a feature believes that the feature is on [D41].
  const details = [
    ['rateLimitKey', 'rateLimit'],
    ['rateLimitRedisUrl', 'rateLimit'],
    ['rateLimitFallback', 'rateLimitRedisUrl'],
  ] as const;
  const problems = details
    .filter(([name, needed]) => isSet(name) && settings[needed] === '')
    .map(([name, needed]) => `${nameOf(name)} is set, but has no effect without ${nameOf(needed)}`);
  return settings.rateLimitKey === 'identity' && settings.authIssuer === ''
    ? [...problems, `${nameOf('rateLimitKey')} is identity, but tokens are off: ${nameOf('authIssuer')} is not set`]
    : problems;
}
