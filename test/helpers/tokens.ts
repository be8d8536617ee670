// A gateway in the test's process that wants tokens, with an issuer's keys in memory and a clock of the test's.

import assert from 'node:assert/strict';
import { KeySet } from '../../packages/core/guards/tokens/key-set.ts';
import { TokenGuard, type TokenOptions } from '../../packages/core/guards/tokens/tokens.ts';
import { assertReply, unavailable } from './expected.ts';
import { HandClock } from './hand-clock.ts';
import { serveGuarded, type Deed } from './in-process.ts';
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
  assert.equal(
    reply.header('www-authenticate'),
    `${challenge}, error="insufficient_scope", scope="${scope}"`,
  );
}

export function assertNoKeys(reply: Reply): void {
  assertReply(reply, 503, unavailable, ['retry-after']);
  assert.equal(reply.header('retry-after'), '1');
}

export interface TokenServerOptions extends Partial<TokenOptions> {
  readonly staleMs?: number;
  readonly identityHeader?: string;
  readonly entriesMax?: number;
  readonly waitingMax?: number;
}

export async function serveWithTokens(keyText: string, options: TokenServerOptions = {}, deed?: Deed) {
  const clock = new HandClock();
  const { staleMs = 86_400_000, identityHeader, entriesMax, waitingMax, ...others } = options;
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
    observer: {
      onKeys: () => {
        guard.forgetAll();
      },
      onFetch: () => undefined,
    },
  });
  const guard = new TokenGuard(
    {
      issuer: issuerName,
      audiences: [audience],
      algorithms,
      clockSkewMs: 30_000,
      type: undefined,
      scopes: new Map(),
      scopeClaim: 'scope',
      ...others,
    },
    keys,
    clock,
    entriesMax,
    waitingMax,
  );
  const server = await serveGuarded([guard], identityHeader, deed);
  return {
    ...server,
    clock,
    keys,
    guard,
    issuer,
    /** `outcome cause` of the last request. */
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
