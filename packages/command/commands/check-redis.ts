// What `check` says of the Redis of the rate limit [D47].

import { idlePasswordText } from '../service/guards.ts';
import { loadRateLimit } from '../../core/guards/parts.ts';
import { escapeControls } from '../../core/text/escape.ts';
import { showRedisUrl } from '../../core/guards/options/rate-options.ts';
import type { Settings } from '../settings/settings.ts';
import type { CheckResult } from './command.ts';

/** Connects to it and counts there once, where there is one. Never rejects. */
export async function checkRedis({ rateLimitRedisUrl: address }: Settings): Promise<CheckResult> {
  if (address === '') {
    return {};
  }
  const shown = showRedisUrl(address);
  try {
    const { tryRedis } = await loadRateLimit();
    const {
      version = 'of a version that it does not tell',
      tookMs,
      hasIdlePassword,
    } = await tryRedis(address);
    const line = `rate limit: Redis at ${shown} counts, in ${tookMs.toFixed(1)} ms: ${version}`;
    return { lines: hasIdlePassword ? [line, `  ${idlePasswordText}`] : [line] };
  } catch (error) {
    const cause = escapeControls(error instanceof Error ? error.message : String(error));
    return {
      problems: [
        `rate limit: Redis at ${shown} does not count: ${cause}`,
        '  Is RATE_LIMIT_REDIS_URL right, its password too, and does it answer within 100 ms?',
      ],
    };
  }
}
