// The settings of the rate limit: how they are read, and what does not go together [D46, D47].

import { parseRate, rateGrammar } from '../guards/rate.ts';
import { Problem } from './problem.ts';

export function parseRateText(text: string): string | Problem {
  return text === '' || parseRate(text) !== undefined
    ? text
    : new Problem(`${rateGrammar}: at most 1000000 requests, in a window of 1s to 24h`);
}

interface RateSettings {
  readonly rateLimit: string;
  readonly rateLimitKey: string;
  readonly authIssuer: string;
}

/** What does not go together; `isSet` says whether somebody has set it. Undefined where it has a problem of its own. */
export function findRateProblems(
  settings: Partial<RateSettings>,
  isSet: (name: 'rateLimit' | 'rateLimitKey') => boolean,
  variableOf: (name: 'rateLimit' | 'rateLimitKey') => string,
): string[] {
  const problems: string[] = [];
  // Whoever sets more of what is off thinks that it is on [D41].
  for (const [name, needed] of [['rateLimitKey', 'rateLimit']] as const) {
    if (isSet(name) && settings[needed] === '') {
      problems.push(`${variableOf(name)} is set, but does nothing without ${variableOf(needed)}`);
    }
  }
  if (settings.rateLimitKey === 'identity' && settings.authIssuer === '') {
    problems.push('RATE_LIMIT_KEY is identity, but no tokens say who a client is: AUTH_ISSUER is not set');
  }
  return problems;
}
