// Tokens, rate limit and identity as options [D41 to D48]. Types here are whole without any library's.

import type { OptionsOf, ValuesOf } from '../../hosts/options/rows.ts';
import { rateRows } from './rate-options.ts';
import { tokenRows } from './token-options.ts';

// By name, so that comments of options stay in the published types.
export const guardRows: typeof tokenRows & typeof rateRows = { ...tokenRows, ...rateRows };

export type GuardOptions = OptionsOf<typeof guardRows>;

/** What guards are made of; an empty text is none. */
export type GuardSettings = ValuesOf<typeof guardRows>;
