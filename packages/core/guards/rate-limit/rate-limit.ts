// How many requests each client may make [D46]: decides whom a request is counted for, and what one too many gets. Who
// counts, and where, is the affair of its `Count`.

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
    // A sum of fractions of milliseconds can be a little more than the window.
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

// One refusal a second of the window that is left: the text of their heads is made once for each.
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

// The system no longer knew it: they count together, or a client that leaves at once would not count at all.
const unknownAddress = 'unknown';

function addressKeyOf({ client }: GuardedRequest): string {
  return client === undefined ? unknownAddress : networkOf(client);
}

// Written out, as most addresses have them: the first four groups of an IPv6 address.
const fourGroups = /^(?:[^:]+:){3}[^:]+(?=:)/;

/**
 * The address, or of IPv6 the first four groups, which are the /64 that one customer gets at least; `address` is from
 * `normalizeAddress`.
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

// What may stand in a key as it is: longer ones are hashed, so that none takes more memory than others.
const identityLengthMax = 64;

// A token without a subject says nothing about who sends it: then the address counts. Neither can be taken for the other.
function identityKeyOf(request: GuardedRequest): string {
  const { identity } = request;
  if (identity === undefined) {
    return addressKeyOf(request);
  }
  return identity.length <= identityLengthMax
    ? `sub:${identity}`
    : `sub-sha256:${createHash('sha256').update(identity).digest('base64url')}`;
}
