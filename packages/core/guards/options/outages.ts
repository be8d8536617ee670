// What is said when somebody that guards depend on does not answer.

import { describeError, nodeAuthorities, type Peer } from '../../backend/describe-error.ts';

/** For people: what has begun where somebody that guards depend on ceases to answer, and that it has ended. */
export const outageTexts = {
  keys: {
    begins: 'the keys of the issuer cannot be fetched',
    ends: 'the keys of the issuer can be fetched again',
  },
  redis: { begins: 'Redis does not count requests', ends: 'Redis counts requests again' },
} as const;

const issuer: Peer = { name: 'the issuer', plainScheme: 'http:', authorities: nodeAuthorities };

/** What has kept keys from being fetched, in one line. */
export function describeFetchError(error: Error): string {
  // Of several addresses each has its own; all of them together say nothing more.
  const errors: readonly unknown[] = error instanceof AggregateError ? error.errors : [error];
  return errors.map((each) => describeError(each, issuer)).join('; ');
}
