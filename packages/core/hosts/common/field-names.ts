// The names of fields, for hosts in which a library reads them.

import { fieldNames, type FieldName } from '../../http1/fields.ts';

const known: ReadonlySet<string> = new Set(fieldNames);

/** The field of this name, in any case; undefined for one that nobody reads. */
export function fieldNameOf(name: string): FieldName | undefined {
  const small = name.toLowerCase();
  return known.has(small) ? (small as FieldName) : undefined;
}
