// Replies to requests with tokens, and a token guard.

import assert from 'node:assert/strict';
import type { Admission } from '../../packages/core/call/guard.ts';
import { guardRows, type GuardSettings } from '../../packages/core/options/guard-options.ts';
import { KeySet } from '../../packages/core/guards/tokens/key-set.ts';
import { TokenGuard } from '../../packages/core/guards/tokens/tokens.ts';
import type { OperationName } from '../../packages/core/operations.ts';
import { defaultsOf } from '../../packages/core/options/rows.ts';
import { assertReply, badRequest, forbidden, unavailable } from './expected.ts';
import { HandClock } from './hand-clock.ts';
import { audience, issuerName } from './issuer.ts';
import type { Reply } from './raw-client.ts';

const challenge = 'Bearer realm="work-items"';
export const unauthorized = '{"error":"Unauthorized"}';

const noScope = (scope: string) =>
  [403, forbidden, 'www-authenticate', `${challenge}, error="insufficient_scope", scope="${scope}"`] as const;

/** The refusals of tokens: status, body, and the header after those that every reply has. */
const refusals = {
  'no-token': [401, unauthorized, 'www-authenticate', challenge],
  'invalid-token': [401, unauthorized, 'www-authenticate', `${challenge}, error="invalid_token"`],
  'bad-request': [400, badRequest],
  'no-keys': [503, unavailable, 'retry-after', '1'],
  overload: [503, unavailable, 'retry-after', '1'],
} as const;

function assertRefusal(
  reply: Reply,
  [status, body, name, value]: ReturnType<typeof noScope> | (typeof refusals)['no-token' | 'invalid-token' | 'no-keys'],
): void {
  assertReply(reply, status, body, [name]);
  assert.equal(reply.header(name), value);
}

export const assertNoToken = (reply: Reply) => assertRefusal(reply, refusals['no-token']);
export const assertInvalidToken = (reply: Reply) => assertRefusal(reply, refusals['invalid-token']);
export const assertNoScope = (reply: Reply, scope: string) => assertRefusal(reply, noScope(scope));
export const assertNoKeys = (reply: Reply) => assertRefusal(reply, refusals['no-keys']);

/**
 * Returns the decision in words: `ada` or `(no identity)` for an admitted request, otherwise outcome and cause. Checks that a
 * refused request gets the right reply.
 */
function describeAdmission(admission: Admission): string {
  if (admission.isAdmitted) return admission.identity ?? '(no identity)';
  const { reply, outcome, cause } = admission;
  const [scope] = /[^ ]+$/.exec(cause ?? '') ?? [];
  const expected: unknown = outcome === 'insufficient-scope' ? noScope(scope ?? '') : Reflect.get(refusals, outcome);
  assert.deepEqual([reply.status, reply.body.toString(), ...reply.headers.slice(6)], expected, outcome);
  return cause === undefined ? outcome : `${outcome}: ${cause}`;
}

/** A guard without a gateway. Its keys come from memory, and the test sets its clock. */
export function createTokenGuard(keyText: string, options: Partial<GuardSettings> = {}, waitingMax?: number) {
  const clock = new HandClock();
  const own = { authIssuer: issuerName, authAudience: [audience] };
  const settings: GuardSettings = { ...defaultsOf(guardRows), ...own, ...options };
  const issuer = { read: (): Promise<string> => Promise.resolve(keyText), fetches: 0 };
  const keys = new KeySet({
    source: async () => {
      issuer.fetches += 1;
      return await issuer.read();
    },
    settings,
    clock,
    observer: { onKeys: () => guard.forgetAll(), onFetch: () => undefined },
  });
  const guard = new TokenGuard(settings, keys, clock, waitingMax);
  const admit = (fields: readonly string[], operation: OperationName = 'read') =>
    guard.admit({ head: { ...head, fields }, operation, client: undefined, identity: undefined });
  return {
    clock,
    keys,
    guard,
    issuer,
    admit,
    /** Describes the decision about a request with these fields. */
    decide: async (fields: readonly string[], operation?: OperationName) =>
      describeAdmission(await admit(fields, operation)),
    /** Describes the decision about a request with `token`. */
    ask: async (token: string, operation?: OperationName) =>
      describeAdmission(await admit(['authorization', `Bearer ${token}`], operation)),
    [Symbol.dispose]: () => keys.close(),
  };
}

/** Like `createTokenGuard`, but the guard has its first keys. */
export async function startTokenGuard(...options: Parameters<typeof createTokenGuard>) {
  const started = createTokenGuard(...options);
  await started.keys.start();
  return started;
}

const head = {
  method: 'GET',
  target: '/',
  bodyLength: 0,
  expectation: 'none',
  persists: true,
  version: '1.1',
} as const;

export function bearer(token: string): readonly [string, string] {
  return ['Authorization', `Bearer ${token}`];
}
