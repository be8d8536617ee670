// What `check` says of the Redis of the rate limit [D47].

import { idlePasswordText } from '../service/guards.ts';
import { escapeControls } from '../../core/text/escape.ts';
import { showRedisUrl } from '../../core/guards/rate-limit/rate-options.ts';

interface Checked {
  readonly isWell: boolean;
  readonly text: string;
}

/** Connects to `address` and counts there once. Never rejects. */
export async function checkRedis(address: string): Promise<Checked> {
  const { RedisCounter } = await import('../../core/guards/rate-limit/redis-counter.ts');
  let advice = '';
  const counter = new RedisCounter(new URL(address), () => {
    advice = `  ${idlePasswordText}\n`;
  });
  const shown = showRedisUrl(address);
  try {
    await counter.revive(() => undefined);
    const startedAt = performance.now();
    await counter.ask({ rate: { limit: 1, windowMs: 1_000 }, keys: ['check'], wanted: [1] });
    const tookMs = (performance.now() - startedAt).toFixed(1);
    const version = (await counter.version()) ?? 'of a version that it does not tell';
    return {
      isWell: true,
      text: `rate limit: Redis at ${shown} counts, in ${tookMs} ms: ${version}\n${advice}`,
    };
  } catch (error) {
    const cause = escapeControls(error instanceof Error ? error.message : String(error));
    return {
      isWell: false,
      text: `rate limit: Redis at ${shown} does not count: ${cause}\n  Is RATE_LIMIT_REDIS_URL right, its password too, and does it answer within 100 ms?\n`,
    };
  } finally {
    counter.close();
  }
}
