// The grammar of `{id}` [spec 4, rules 1 and 2; D1 to D3]. Text in, canonical text out: an id is never a
// number here, so that one of any length goes through digit for digit.

import { decodePercent } from '../text/percent.ts';

export type ItemIdParsing = 'leading' | 'whole';

// White space, sign and digits as the platform's parseInt reads them; `\s` is the very set that it skips.
const leadingInteger = /^\s*([+-]?)(\d+)/;
const wholeInteger = /^([+-]?)(\d+)$/;
const plainInteger = /^[1-9]\d*$/;

/**
 * The integer that a path segment stands for, in canonical decimal (`007` gives `7`, `-0` gives `0`), or
 * undefined when it holds none. `segment` is as it stood in the target, still percent-encoded.
 */
export function parseItemId(segment: string, parsing: ItemIdParsing): string | undefined {
  // Nearly every id: digits alone are their own canonical form under both grammars.
  if (plainInteger.test(segment)) {
    return segment;
  }
  // A malformed escape, or one that is not UTF-8 [D1]: as empty as the segment that holds no id.
  const text = decodePercent(segment) ?? '';
  const match = (parsing === 'whole' ? wholeInteger : leadingInteger).exec(text);
  if (match === null) {
    return undefined;
  }
  const digits = (match[2] ?? '').replace(/^0+(?=\d)/, '');
  return match[1] === '-' && digits !== '0' ? `-${digits}` : digits;
}
