// Short ways to write parts of the OpenAPI document, and what of the options it depends on.

import type { guardRows } from '../../guards/options/guard-options.ts';
import type { corsRows } from '../options/cors-options.ts';
import type { limitRows } from '../options/limits.ts';
import type { gatewayRows } from '../options/options.ts';
import type { ValuesOf } from '../options/rows.ts';

/** What of the options a client can meet. */
export type Limits = ValuesOf<
  typeof limitRows &
    typeof corsRows &
    Pick<typeof gatewayRows, 'allowedHosts' | 'itemIdParsing'> &
    Pick<typeof guardRows, 'authIssuer' | 'authScopes' | 'rateLimit' | 'rateLimitKey'>
>;

/** Undefined stands for what is not in the document. */
export type Json =
  string | number | boolean | null | undefined | readonly Json[] | { readonly [name: string]: Json };
export type JsonObject = Readonly<Record<string, Json>>;

export function refTo(kind: string, name: string): JsonObject {
  return { $ref: `#/components/${kind}/${name}` };
}

/** The parts of a list that are there. */
export function present<Part>(parts: readonly (Part | false | undefined)[]): Part[] {
  return parts.filter((part): part is Part => part !== false && part !== undefined);
}

export function hasTokens({ authIssuer }: Limits): boolean {
  return authIssuer !== '';
}

/** `1,024` */
export function count(amount: number): string {
  return amount.toLocaleString('en');
}

/** `10 s` */
export function seconds(ms: number): string {
  return `${count(ms / 1_000)} s`;
}
