// The rate limit guard [D46]: selects the key under which a request is counted, and refuses requests over the limit.

import { createHash } from 'node:crypto';

import type { Admission, Guard, GuardedRequest } from '../../call/guard.ts';
import { replyTooManyRequests } from '../../replies.ts';
import type { GuardSettings } from '../../options/guard-options.ts';
import type { Taken } from '../ports/ports.ts';
import { rateHeaders, type Rate } from '../../options/rate.ts';

interface Count {
  /** Counts one request of `key`. Returns undefined to admit the request without a count. The promise never rejects. */
  take(key: string): Taken | undefined | Promise<Taken | undefined>;
}

// Refusals differ only in the seconds left in the window. They are cached by this number, so their heads are reused.
const keptRefusalsMax = 1_000;

export function createRateLimit(rate: Rate, by: GuardSettings['rateLimitKey'], count: Count): Guard {
  const windowSeconds = rate.windowMs / 1_000;
  const cause = `more than ${rate.limit} requests in ${windowSeconds} s`;
  const refusals = new Map<number, Admission>();
  const refuse = (seconds: number): Admission => {
    let refusal = refusals.get(seconds);
    if (refusal === undefined) {
      const reply = replyTooManyRequests(seconds, rateHeaders(rate, 0, seconds));
      refusal = { isAdmitted: false, reply, outcome: 'rate-limited', cause };
      if (refusals.size >= keptRefusalsMax) refusals.clear();
      refusals.set(seconds, refusal);
    }
    return refusal;
  };
  const decide = (taken: Taken | undefined, { identity }: GuardedRequest): Admission => {
    if (taken === undefined) return { isAdmitted: true, identity };
    // `Math.min`, because rounding errors can make `msLeft` slightly longer than the window.
    const seconds = Math.min(Math.ceil(taken.msLeft / 1_000), windowSeconds);
    return taken.left < 0
      ? { ...refuse(seconds), identity }
      : { isAdmitted: true, identity, headers: rateHeaders(rate, taken.left, seconds) };
  };
  const keyOf = by === 'address' ? addressKeyOf : identityKeyOf;
  return {
    admit: (request) => {
      const taken = count.take(keyOf(request));
      return taken instanceof Promise ? taken.then((each) => decide(each, request)) : decide(taken, request);
    },
  };
}

// Clients whose address is unknown, for instance because they have left, share one count. Otherwise a client could evade
// the limit by leaving early.
function addressKeyOf({ client }: GuardedRequest): string {
  return client === undefined ? 'unknown' : networkOf(client);
}

// Identities longer than this are hashed, so that all keys need about the same memory.
const identityLengthMax = 64;

// If the token has no subject, the client's address is the key. The prefixes keep subjects and addresses apart.
function identityKeyOf(request: GuardedRequest): string {
  const { identity } = request;
  if (identity === undefined) return addressKeyOf(request);
  return identity.length <= identityLengthMax
    ? `sub:${identity}`
    : `sub-sha256:${createHash('sha256').update(identity).digest('base64url')}`;
}

// The first four groups of an IPv6 address, if they are written without `::`.
const fourGroups = /^(?:[^:]+:){3}[^:]+(?=:)/;

// Returns an IPv4 address unchanged. For an IPv6 address, returns the first four groups. They are its /64, the smallest
// network that a provider gives to a customer. `address` must come from `normalizeAddress`.
function networkOf(address: string): string {
  if (!address.includes(':')) return address;
  const [written] = fourGroups.exec(address) ?? [];
  if (written !== undefined) return written;
  const [before = [], after = []] = address.split('::').map((part) => part.split(':').filter((group) => group !== ''));
  // An IPv4 address at the end stands for two groups.
  const missing = 8 - before.length - after.length - (address.includes('.') ? 1 : 0);
  return [...before, ...Array<string>(missing).fill('0'), ...after].slice(0, 4).join(':');
}
