// A gateway in the test's process that requires tokens, with keys in memory and a clock that the test sets.

import assert from 'node:assert/strict';
import { KeySet } from '../../packages/core/guards/tokens/key-set.ts';
import type { SignatureAlgorithm } from '../../packages/core/guards/options/signature-algorithms.ts';
import { TokenGuard } from '../../packages/core/guards/tokens/tokens.ts';
import type { OperationName } from '../../packages/core/operations.ts';
import { assertReply, unavailable } from './expected.ts';
import { HandClock } from './hand-clock.ts';
import { serveGuarded, type EventListener } from './in-process.ts';
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

export interface TokenServerOptions {
  readonly issuer?: string;
  readonly audiences?: readonly string[];
  readonly algorithms?: readonly SignatureAlgorithm[];
  readonly clockSkewMs?: number;
  readonly type?: 'at+jwt';
  readonly scopes?: ReadonlyMap<OperationName, string>;
  readonly scopeClaim?: string;
  readonly staleMs?: number;
  readonly identityHeader?: string;
  readonly entriesMax?: number;
  readonly waitingMax?: number;
}

export async function serveWithTokens(keyText: string, options: TokenServerOptions = {}, listener?: EventListener) {
  const clock = new HandClock();
  const { staleMs = 86_400_000, identityHeader, entriesMax, waitingMax } = options;
  const algorithms = options.algorithms ?? ['RS256', 'ES256'];
  const issuer = { read: (): Promise<string> => Promise.resolve(keyText), fetches: 0 };
  const keys = new KeySet({
    source: {
      read: async () => {
        issuer.fetches += 1;
        return await issuer.read();
      },
    },
    algorithms,
    refreshMs: 300_000,
    staleMs,
    clock,
    observer: { onKeys: () => guard.forgetAll(), onFetch: () => undefined },
  });
  const guard = new TokenGuard(
    {
      authIssuer: options.issuer ?? issuerName,
      authAudience: options.audiences ?? [audience],
      authAlgorithms: algorithms,
      authClockSkewMs: options.clockSkewMs ?? 30_000,
      authTokenType: options.type ?? 'any',
      authScopes: [...(options.scopes ?? [])].map(([operation, scope]) => `${operation}=${scope}`),
      authScopeClaim: options.scopeClaim ?? 'scope',
    },
    keys,
    clock,
    entriesMax,
    waitingMax,
  );
  const server = await serveGuarded([guard], identityHeader, listener);
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
