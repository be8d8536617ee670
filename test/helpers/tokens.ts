// A gateway in the test's process that requires tokens, with keys in memory and a clock that the test sets.

import assert from 'node:assert/strict';
import { guardRows, type GuardSettings } from '../../packages/core/options/guard-options.ts';
import { KeySet } from '../../packages/core/guards/tokens/key-set.ts';
import { TokenGuard } from '../../packages/core/guards/tokens/tokens.ts';
import { defaultsOf } from '../../packages/core/options/rows.ts';
import { assertReply, unavailable } from './expected.ts';
import { type EventListener, startGateway } from './gateway.ts';
import { HandClock } from './hand-clock.ts';
import { audience, issuerName } from './issuer.ts';
import type { Reply } from './raw-client.ts';

const challenge = 'Bearer realm="work-items"';
export const unauthorized = '{"error":"Unauthorized"}';

export function assertNoToken(reply: Reply): void {
  assertReply(reply, 401, unauthorized, ['www-authenticate']);
  assert.equal(reply.header('www-authenticate'), challenge);
}

export function assertInvalidToken(reply: Reply): void {
  assertReply(reply, 401, unauthorized, ['www-authenticate']);
  assert.equal(reply.header('www-authenticate'), `${challenge}, error="invalid_token"`);
}

export function assertNoScope(reply: Reply, scope: string): void {
  assertReply(reply, 403, '{"error":"Forbidden"}', ['www-authenticate']);
  assert.equal(reply.header('www-authenticate'), `${challenge}, error="insufficient_scope", scope="${scope}"`);
}

export function assertNoKeys(reply: Reply): void {
  assertReply(reply, 503, unavailable, ['retry-after']);
  assert.equal(reply.header('retry-after'), '1');
}

export interface TokenServerOptions extends Partial<GuardSettings> {
  readonly waitingMax?: number;
}

export async function serveWithTokens(keyText: string, options: TokenServerOptions = {}, listener?: EventListener) {
  const clock = new HandClock();
  const { waitingMax, ...given } = options;
  const own = { authIssuer: issuerName, authAudience: [audience] };
  const settings: GuardSettings = { ...defaultsOf(guardRows), ...own, ...given };
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
  const server = await startGateway({
    host: 'http1',
    guards: [guard],
    identityHeader: given.backendIdentityHeader,
    onEvent: listener,
  });
  return {
    ...server,
    clock,
    keys,
    guard,
    issuer,
    /** The outcome and the cause of the last request. */
    last: () => {
      const { outcome, cause } = server.told.ended.at(-1) ?? {};
      return `${outcome ?? ''} ${String(cause)}`;
    },
    [Symbol.asyncDispose]: async () => {
      keys.close();
      await server[Symbol.asyncDispose]();
    },
  };
}

export function bearer(token: string): readonly [string, string] {
  return ['Authorization', `Bearer ${token}`];
}
