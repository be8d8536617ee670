// The rate limit guard [D46]: selects the key under which a request is counted, and refuses requests over the limit.

import { createHash } from 'node:crypto';

import type { Admission, Guard, GuardedRequest } from '../../call/guard.ts';
import { replyTooManyRequests } from '../../replies.ts';
import type { GuardSettings } from '../options/guard-options.ts';
import type { Count, Taken } from '../options/ports.ts';
import { rateHeaders, type Rate } from '../options/rate.ts';

export function createRateLimit(rate: Rate, by: GuardSettings['rateLimitKey'], count: Count): Guard {
  const refuse = createRefusals(rate);
  const keyOf = by === 'address' ? addressKeyOf : identityKeyOf;
  const decide = (taken: Taken | undefined, { identity }: GuardedRequest): Admission => {
    if (taken === undefined) {
      return { isAdmitted: true, identity };
    }
    // Rounding errors can make `msLeft` slightly longer than the window.
    const seconds = Math.min(Math.ceil(taken.msLeft / 1_000), rate.windowMs / 1_000);
    return taken.left < 0
      ? refuse(seconds)
      : { isAdmitted: true, identity, headers: rateHeaders(rate, taken.left, seconds) };
  };
  return {
    admit: (request) => {
      const taken = count.take(keyOf(request));
      return taken instanceof Promise ? taken.then((each) => decide(each, request)) : decide(taken, request);
    },
  };
}

// One refusal is cached for each number of seconds until the window ends, so that its head is built only once.
const keptRefusalsMax = 1_000;

function createRefusals(rate: Rate): (seconds: number) => Admission {
  const cause = `more than ${rate.limit} requests in ${rate.windowMs / 1_000} s`;
  const kept = new Map<number, Admission>();
  return (seconds) => {
    let refusal = kept.get(seconds);
    if (refusal === undefined) {
      const reply = replyTooManyRequests(seconds, rateHeaders(rate, 0, seconds));
      refusal = { isAdmitted: false, reply, outcome: 'rate-limited', cause };
      if (kept.size >= keptRefusalsMax) {
        kept.clear();
      }
      kept.set(seconds, refusal);
    }
    return refusal;
  };
}

// The key of all clients whose address is unknown, for instance because they have left. They share one count. Otherwise
// a client could evade the limit by leaving early.
const unknownAddress = 'unknown';

function addressKeyOf({ client }: GuardedRequest): string {
  return client === undefined ? unknownAddress : networkOf(client);
}

// The first four groups of an IPv6 address, if they are written without `::`.
const fourGroups = /^(?:[^:]+:){3}[^:]+(?=:)/;

/**
 * Returns an IPv4 address unchanged, and the first four groups of an IPv6 address: its /64, the smallest network that a
 * provider gives to a customer. `address` must come from `normalizeAddress`.
 */
export function networkOf(address: string): string {
  if (!address.includes(':')) {
    return address;
  }
  const [written] = fourGroups.exec(address) ?? [];
  if (written !== undefined) {
    return written;
  }
  const [front = '', back = ''] = address.split('::');
  const before = groupsOf(front);
  const after = groupsOf(back);
  // The last 32 bits can be written as an IPv4 address.
  const missing = 8 - before.length - after.length - (back.includes('.') ? 1 : 0);
  return [...before, ...zeroGroups.slice(0, missing), ...after].slice(0, 4).join(':');
}

const zeroGroups: readonly string[] = Array.from({ length: 8 }, () => '0');

function groupsOf(text: string): string[] {
  return text === '' ? [] : text.split(':');
}

// Longer identities are hashed, so that all keys need about the same memory.
const identityLengthMax = 64;

// If the token has no subject, the client's address is the key. The prefixes keep subjects and addresses apart.
function identityKeyOf(request: GuardedRequest): string {
  const { identity } = request;
  if (identity === undefined) {
    return addressKeyOf(request);
  }
  return identity.length <= identityLengthMax
    ? `sub:${identity}`
    : `sub-sha256:${createHash('sha256').update(identity).digest('base64url')}`;
}
