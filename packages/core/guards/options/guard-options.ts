// The options of tokens, rate limit and identity [D41 to D48]. The types here need no optional package.

import type { OptionsOf, ValuesOf } from '../../hosts/options/rows.ts';
import { rateRows } from './rate-options.ts';
import { tokenRows } from './token-options.ts';

// The type is written out, because an inferred type would lose the comments of the options in the published types.
export const guardRows: typeof tokenRows & typeof rateRows = { ...tokenRows, ...rateRows };

export type GuardOptions = OptionsOf<typeof guardRows>;

/** The parsed options of guards; an empty string means unset. */
export type GuardSettings = ValuesOf<typeof guardRows>;
