// What `check` says of the Redis of the rate limit [D47].

import { idlePasswordText } from '../service/guards.ts';
import { loadRateLimit } from '../../core/guards/parts.ts';
import { escapeControls } from '../../core/text/escape.ts';
import { showRedisUrl } from '../../core/guards/options/rate-options.ts';

interface Checked {
  readonly isWell: boolean;
  readonly text: string;
}

/** Connects to `address` and counts there once. Never rejects. */
export async function checkRedis(address: string): Promise<Checked> {
  const shown = showRedisUrl(address);
  try {
    const { tryRedis } = await loadRateLimit();
    const {
      version = 'of a version that it does not tell',
      tookMs,
      hasIdlePassword,
    } = await tryRedis(address);
    const advice = hasIdlePassword ? `  ${idlePasswordText}\n` : '';
    return {
      isWell: true,
      text: `rate limit: Redis at ${shown} counts, in ${tookMs.toFixed(1)} ms: ${version}\n${advice}`,
    };
  } catch (error) {
    const cause = escapeControls(error instanceof Error ? error.message : String(error));
    return {
      isWell: false,
      text: `rate limit: Redis at ${shown} does not count: ${cause}\n  Is RATE_LIMIT_REDIS_URL right, its password too, and does it answer within 100 ms?\n`,
    };
  }
}
