// Parses `{id}` [spec 4, rules 1 and 2; D1 to D3]. An id stays text and never becomes a number, so an id of any length
// keeps all its digits.

import { decodePercent } from '../text/percent.ts';

export type ItemIdParsing = 'leading' | 'whole';

// White space, sign and digits as JavaScript's parseInt reads them; `\s` is exactly the set that parseInt skips.
const leadingInteger = /^\s*([+-]?)(\d+)/;
const wholeInteger = /^([+-]?)(\d+)$/;
const plainInteger = /^[1-9]\d*$/;

/**
 * Returns the integer of a path segment in canonical decimal (`007` gives `7`, `-0` gives `0`); undefined if the
 * segment has no integer. `segment` is still percent-encoded.
 */
export function parseItemId(segment: string, parsing: ItemIdParsing): string | undefined {
  // A fast path for nearly every id: digits without a leading zero are canonical in both grammars.
  if (plainInteger.test(segment)) return segment;
  // A segment with an invalid escape, or whose bytes are not UTF-8, is treated as empty [D1].
  const text = decodePercent(segment) ?? '';
  const match = (parsing === 'whole' ? wholeInteger : leadingInteger).exec(text);
  if (match === null) return undefined;
  const digits = (match[2] ?? '').replace(/^0+(?=\d)/, '');
  return match[1] === '-' && digits !== '0' ? `-${digits}` : digits;
}
