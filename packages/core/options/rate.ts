// A rate is a number of requests per window. Parses rates, and writes the reply headers of
// draft-ietf-httpapi-ratelimit-headers (structured fields, RFC 9651).

export interface Rate {
  /** Largest number of requests in a window. */
  readonly limit: number;
  readonly windowMs: number;
}

/** The grammar of a rate, for help, documents and error messages. */
export const rateGrammar = 'requests/window, for instance 100/60s, 10/1s, 1000/5m or 10000/1h';

// A window lasts at most a day, and a whole number of seconds, because `w` and `t` in the reply headers are in seconds.
const windowSecondsMax = 86_400;
/** Largest `limit` that a rate can have. */
export const limitMax = 1_000_000;
const ratePattern = /^(\d{1,7})\/(\d{1,5})([smh])$/;
const secondsOf: Readonly<Record<string, number>> = { s: 1, m: 60, h: 3_600 };

/** Parses a rate of the form `rateGrammar`, from 1/1s to 1000000/24h; undefined for anything else. */
export function parseRate(text: string): Rate | undefined {
  const [, limitText, amount, unit = ''] = ratePattern.exec(text) ?? [];
  const limit = Number(limitText);
  const seconds = Number(amount) * (secondsOf[unit] ?? NaN);
  return limit >= 1 && limit <= limitMax && seconds >= 1 && seconds <= windowSecondsMax
    ? { limit, windowMs: seconds * 1_000 }
    : undefined;
}

/** Returns the headers for a counted request [D64]: names and values. `seconds` is the time until the window ends. */
export function rateHeaders({ limit, windowMs }: Rate, left: number, seconds: number): string[] {
  const policy = `"default";q=${limit};w=${windowMs / 1_000}`;
  return ['ratelimit-policy', policy, 'ratelimit', `"default";r=${left};t=${seconds}`];
}
