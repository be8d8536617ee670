// Helpers for the OpenAPI document, and the options on which the document depends.

import type { guardRows } from '../../options/guard-options.ts';
import type { corsRows } from '../../options/cors-options.ts';
import type { limitRows } from '../../options/limits.ts';
import type { gatewayRows } from '../../options/gateway-options.ts';
import type { ValuesOf } from '../../options/rows.ts';

/** The values of the options whose effect clients can notice. */
export type Limits = ValuesOf<
  typeof limitRows &
    typeof corsRows &
    Pick<typeof gatewayRows, 'allowedHosts' | 'itemIdParsing'> &
    Pick<typeof guardRows, 'authIssuer' | 'authScopes' | 'rateLimit' | 'rateLimitKey'>
>;

/** A JSON value. Undefined members are left out of the document. */
export type Json = string | number | boolean | null | undefined | readonly Json[] | { readonly [name: string]: Json };
export type JsonObject = Readonly<Record<string, Json>>;

export function refTo(kind: string, name: string): JsonObject {
  return { $ref: `#/components/${kind}/${name}` };
}

/** Removes `false` and undefined. */
export function present<Part>(parts: readonly (Part | false | undefined)[]): Part[] {
  return parts.filter((part): part is Part => part !== false && part !== undefined);
}

export function hasTokens({ authIssuer }: Limits): boolean {
  return authIssuer !== '';
}

/** Formats a number: `1,024`. */
export function count(amount: number): string {
  return amount.toLocaleString('en');
}

/** Formats a time in ms as seconds: `10 s`. */
export function seconds(ms: number): string {
  return `${count(ms / 1_000)} s`;
}
