// A rate limit guard without a gateway.

import assert from 'node:assert/strict';
import type { Admission } from '../../packages/core/call/guard.ts';
import { guardRows, type GuardSettings } from '../../packages/core/options/guard-options.ts';
import type { Keeper } from '../../packages/core/guards/ports/ports.ts';
import { parseRate } from '../../packages/core/options/rate.ts';
import { createRateGuard as create } from '../../packages/core/guards/rate-limit/rate-limit-part.ts';
import { defaultsOf } from '../../packages/core/options/rows.ts';

const head = { method: 'GET', target: '/', bodyLength: 0, expectation: 'none', persists: true, version: '1.1', fields: [] } as const; // prettier-ignore

/** The number of requests left after a request, or `refused` or `uncounted`. */
function leftOf(admission: Admission): string {
  if (!admission.isAdmitted) return 'refused';
  return /;r=(\d+);/.exec(admission.headers?.at(-1) ?? '')?.[1] ?? 'uncounted';
}

/** Creates a guard. `told` has the events that the guard reports. */
export async function createRateGuard(settings: Partial<GuardSettings>, keeper?: Keeper) {
  const told: string[] = [];
  const all = { ...defaultsOf(guardRows), ...settings };
  const observer = {
    onKeys: () => undefined,
    onFetch: () => undefined,
    onInherited: () => undefined,
    onCounter: (who: string, cause: unknown) =>
      told.push(`${who}: ${cause instanceof Error ? cause.message : String(cause)}`),
    onUnusedPassword: () => told.push('unused password'),
  };
  const rate = parseRate(all.rateLimit) ?? assert.fail();
  const made = await create(all, rate, observer, keeper);
  const ask = (client: string) => made.guard.admit({ head, operation: 'list', client, identity: undefined });
  const admit = async (client = 'a') => leftOf(await ask(client));
  return {
    told,
    redisAnswers: made.redisAnswers,
    /** Sends a request of `client`. */
    admit,
    /** Sends a request of each of these clients at once. */
    admitAll: (clients: readonly string[]) => Promise.all(clients.map(admit)),
    /** Like `admit`; returns `waits` if the guard has to wait. */
    admitNow: (client = 'a') => {
      const admission = ask(client);
      return admission instanceof Promise ? 'waits' : leftOf(admission);
    },
    [Symbol.dispose]: () => made.close(),
  };
}

export function repeat<T>(times: number, value: T): T[] {
  return Array.from({ length: times }, () => value);
}
