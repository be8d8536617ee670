// A rate: so many requests in a window. How it is written, and how replies say it, by
// draft-ietf-httpapi-ratelimit-headers (structured fields, RFC 9651). Pure.

export interface Rate {
  /** Requests in a window. */
  readonly limit: number;
  readonly windowMs: number;
}

/** For `--help`, the documents and what is said of one that is refused. */
export const rateGrammar = 'requests/window, for instance 100/60s, 10/1s, 1000/5m or 10000/1h';

// Windows of whole seconds, since `w` and `t` know no others, up to a day.
const windowSecondsMax = 86_400;
/** No rate has more requests in a window. */
export const limitMax = 1_000_000;
const ratePattern = /^(\d{1,7})\/(\d{1,5})([smh])$/;
const secondsOf: Readonly<Record<string, number>> = { s: 1, m: 60, h: 3_600 };

/** A rate as `rateGrammar` says it, from 1/1s to 1000000/24h; undefined for anything else. */
export function parseRate(text: string): Rate | undefined {
  const [, limitText, amount, unit = ''] = ratePattern.exec(text) ?? [];
  const limit = Number(limitText);
  const seconds = Number(amount) * (secondsOf[unit] ?? NaN);
  return limit >= 1 && limit <= limitMax && seconds >= 1 && seconds <= windowSecondsMax
    ? { limit, windowMs: seconds * 1_000 }
    : undefined;
}

/** The headers of a reply that counts [D64], as name, value, ...: `left` more in a window that ends in `seconds`. */
export function rateHeaders({ limit, windowMs }: Rate, left: number, seconds: number): string[] {
  return [
    'ratelimit-policy',
    `"default";q=${limit};w=${windowMs / 1_000}`,
    'ratelimit',
    `"default";r=${left};t=${seconds}`,
  ];
}
