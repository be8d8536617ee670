// Messages about outages of the issuer and of Redis.

import { describeError, nodeAuthorities, type Peer } from '../../backend/describe-error.ts';

/** Log messages for the beginning and the end of an outage. */
export const outageTexts = {
  keys: { begins: 'the keys of the issuer cannot be fetched', ends: 'the keys of the issuer can be fetched again' },
  redis: { begins: 'Redis does not count requests', ends: 'Redis counts requests again' },
} as const;

const issuer: Peer = { name: 'the issuer', plainScheme: 'http:', authorities: nodeAuthorities };

/** Describes in one line why the keys could not be fetched. */
export function describeFetchError(error: Error): string {
  // If several addresses failed, only the error of each address is informative.
  const errors: readonly unknown[] = error instanceof AggregateError ? error.errors : [error];
  return errors.map((each) => describeError(each, issuer)).join('; ');
}
