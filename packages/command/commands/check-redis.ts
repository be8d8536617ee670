// `check` of the rate limit's Redis [D47].

import { unusedPasswordText } from '../service/guards.ts';
import { loadRateLimit } from '../../core/guards/parts.ts';
import { escapeControls } from '../../core/text/escape.ts';
import { showRedisUrl } from '../../core/guards/options/rate-options.ts';
import type { Settings } from '../settings/settings.ts';
import type { CheckResult } from './command.ts';

/** Connects to Redis, if one is configured, and counts one request there. Never rejects. */
export async function checkRedis({ rateLimitRedisUrl: address }: Settings): Promise<CheckResult> {
  if (address === '') {
    return {};
  }
  const shown = showRedisUrl(address);
  try {
    const { tryRedis } = await loadRateLimit();
    const { version = 'unknown version', tookMs, hasUnusedPassword } = await tryRedis(address);
    const line = `rate limit: Redis at ${shown} counted a request in ${tookMs.toFixed(1)} ms (${version})`;
    return { lines: hasUnusedPassword ? [line, `  ${unusedPasswordText}`] : [line] };
  } catch (error) {
    const cause = escapeControls(error instanceof Error ? error.message : String(error));
    return {
      problems: [
        `rate limit: Redis at ${shown} does not count: ${cause}`,
        '  Check the address and the password in RATE_LIMIT_REDIS_URL, and that Redis answers within 100 ms.',
      ],
    };
  }
}
