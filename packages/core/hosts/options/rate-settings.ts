// The settings of the rate limit: how they are read, and what does not go together [D46, D47].

import { decodePercent } from '../../text/percent.ts';
import { parseRate, rateGrammar } from '../../guards/rate-limit/rate.ts';
import { Problem } from './problem.ts';

export function parseRateText(text: string): string | Problem {
  return text === '' || parseRate(text) !== undefined
    ? text
    : new Problem(`${rateGrammar}: at most 1000000 requests, in a window of 1s to 24h`);
}

// A name or an address; then the number of a database. Options behind it would be the library's, and none of ours.
const databasePattern = /^\/?$|^\/\d{1,4}$/;

/** `redis:` and `rediss:`, with or without user name and password: what it is not allowed to be is never shown. */
export function parseRedisUrl(text: string): string | Problem {
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
        'an address such as redis://redis.internal:6379/0 or, over TLS, rediss://user:password@redis.internal, with odd characters of both percent-encoded',
      );
}

/** The address without user name and password. */
export function showRedisUrl(text: string): string {
  const url = URL.parse(text);
  return url === null ? '' : `${url.protocol}//${url.host}${url.pathname}`;
}

interface RateSettings {
  readonly rateLimit: string;
  readonly rateLimitKey: string;
  readonly authIssuer: string;
  readonly rateLimitRedisUrl: string;
  readonly rateLimitFallback: string;
}

/** What does not go together; `isSet` says whether somebody has set it. Undefined where it has a problem of its own. */
export function findRateProblems(
  settings: Partial<RateSettings>,
  isSet: (name: keyof RateSettings) => boolean,
  nameOf: (name: keyof RateSettings) => string,
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
