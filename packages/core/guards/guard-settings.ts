// What guards are made of, whoever asks for them. Types of hosts lead here: nothing here leads to a library's types.

import type { OperationName } from '../operations.ts';
import type { RateKey } from './rate-limit/rate-limit.ts';

/** What guards are made of: each as the setting of that name has it; an empty text is none. */
export interface GuardSettings {
  readonly authIssuer: string;
  readonly authAudience: readonly string[];
  readonly authJwksUrl: string;
  readonly authJwksFile: string;
  readonly authAlgorithms: readonly string[];
  readonly authClockSkewMs: number;
  readonly authTokenType: 'any' | 'at+jwt';
  readonly authScopes: ReadonlyMap<OperationName, string>;
  readonly authScopeClaim: string;
  readonly authJwksRefreshMs: number;
  readonly authJwksStaleMs: number;
  readonly rateLimit: string;
  readonly rateLimitKey: RateKey;
  readonly rateLimitRedisUrl: string;
  readonly rateLimitFallback: 'local' | 'allow' | 'deny';
}
