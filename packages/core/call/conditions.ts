// Reads the conditions of a write, which go to the backend. A condition that is dropped turns a guarded write into an
// unguarded one [RFC 9110, 13.2.1; D67].

import { fieldValues } from '../http1/head.ts';
import { splitList } from '../text/lists.ts';

// The form of each value. A host may have joined two lines with a comma, which is valid for the lists only.
const forms = new Map([
  ['if-match', /^/],
  ['if-none-match', /^/],
  ['if-unmodified-since', /^(?:(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)[a-z]*,)?[^,]+$/],
  ['idempotency-key', /^[^,]+$|^"(?:[^"\\]|\\.)*"$/],
]);
const text = /^[ -~]{1,1024}$/;

/** Returns the conditions as name, value, name, value; or why the write must be refused, in words. */
export function readConditions(method: string, fields: readonly string[]): readonly string[] | string {
  let values: Map<string, string> | undefined;
  for (let index = 0; index < fields.length; index += 2) {
    const name = fields[index] ?? '';
    // The backend would replace the whole item by a part [RFC 9110, 14.5].
    if (name === 'content-range' && method === 'PUT') return 'a content-range';
    if (!forms.has(name)) continue;
    values ??= new Map();
    const before = values.get(name);
    if (before !== undefined && !name.endsWith('match')) return `two ${name} fields`;
    const value = fields[index + 1] ?? '';
    values.set(name, before === undefined ? value : `${before}, ${value}`);
  }
  if (values === undefined) return [];
  const hops = splitList(fieldValues(fields, 'connection').join().toLowerCase());
  for (const [name, value] of values) {
    if (!text.test(value) || forms.get(name)?.test(value) !== true) return `an invalid ${name}`;
    if (hops.includes(name)) return `a connection field that names ${name}`;
  }
  return [...values].flat();
}
