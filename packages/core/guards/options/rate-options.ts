// The options of the rate limit: what each is, and what does not go together [D46, D47].

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

// A name or an address; then the number of a database. Options behind it would be the library's, and none of ours.
const databasePattern = /^\/?$|^\/\d{1,4}$/;

// `redis:` and `rediss:`, with or without user name and password: what it is not allowed to be is never shown.
function parseRedisUrl(text: string): string | Problem {
  const url = URL.parse(text);
  const isOne =
    text === '' ||
    (url !== null &&
      ['redis:', 'rediss:'].includes(url.protocol) &&
      url.hostname !== '' &&
      databasePattern.test(url.pathname) &&
      url.search === '' &&
      url.hash === '' &&
      decodePercent(url.username) !== undefined &&
      decodePercent(url.password) !== undefined);
  return isOne
    ? text
    : new Problem(
        'must be an address such as redis://redis.internal:6379/0 or, over TLS, rediss://user:password@redis.internal, with odd characters of both percent-encoded',
      );
}

/** The address without user name and password. */
export function showRedisUrl(text: string): string {
  const url = URL.parse(text);
  return url === null ? '' : `${url.protocol}//${url.host}${url.pathname}`;
}

export const rateRows = {
  /** Requests that each client may make in a window, such as `100/60s` [D46]. Default: any number. */
  rateLimit: {
    kind: textOf(parseRateText, { takes: `${rateGrammar}, or nothing for any number`, placeholder: 'rate' }),
    default: '',
    help: 'Requests of operations that each client may make in a window; for instance `100/60s`, `1000/5m` or `10000/1h`: up to 1000000 in up to a day. The window begins with the first request. What is over is answered with 429 and does not count. All workers count together.',
  },
  /** What a client is: its address (default), or whom its token names. */
  rateLimitKey: {
    kind: choice('address', 'identity'),
    default: 'address',
    help: 'What a client is; `address` is its IP address (of IPv6 the /64), behind {trustedProxies} the forwarded one, `identity` whom its token names (`sub`).',
  },
  /** A Redis or Valkey that counts for all gateways [D47]. Default: each counts by itself. */
  rateLimitRedisUrl: {
    kind: addressOf(parseRedisUrl, {
      show: showRedisUrl,
      takes: 'a redis or rediss address, or nothing for none',
      placeholder: 'url',
      isSecret: true,
    }),
    default: '',
    help: 'Redis or Valkey that counts for all gateways; for instance `redis://redis.internal:6379/0`, or over TLS `rediss://user:password@redis.internal`. User name and password are never shown.',
  },
  /** What counts while it does not answer: `local` (default), `allow` or `deny`. */
  rateLimitFallback: {
    kind: choice('local', 'allow', 'deny'),
    default: 'local',
    help: 'What counts while Redis does not answer within 100 ms; `local`: each gateway counts by itself, `allow`: every request is let in, `deny`: every one is answered with 429.',
  },
} satisfies Readonly<Record<string, SharedRow>>;

type RateValues = ValuesOf<typeof rateRows> & { readonly authIssuer: string };

/** What does not go together; `isSet` says whether somebody has set it. Undefined where it has a problem of its own. */
export function findRateProblems(
  settings: Partial<RateValues>,
  isSet: (name: keyof RateValues) => boolean,
  nameOf: (name: keyof RateValues) => string,
): string[] {
  const problems: string[] = [];
  // Whoever sets more of what is off thinks that it is on [D41].
  for (const [name, needed] of [
    ['rateLimitKey', 'rateLimit'],
    ['rateLimitRedisUrl', 'rateLimit'],
    ['rateLimitFallback', 'rateLimitRedisUrl'],
  ] as const) {
    if (isSet(name) && settings[needed] === '') {
      problems.push(`${nameOf(name)} is set, but does nothing without ${nameOf(needed)}`);
    }
  }
  if (settings.rateLimitKey === 'identity' && settings.authIssuer === '') {
    problems.push(
      `${nameOf('rateLimitKey')} is identity, but no tokens say who a client is: ${nameOf('authIssuer')} is not set`,
    );
  }
  return problems;
}
