// Extracts from work items what the check needs: the ids, whether the gateway can request them, and whether the check
// created the item.

import { parseItemId, type ItemIdParsing } from '../core/call/item-id.ts';

// `rawJSON` keeps the text of numbers beyond JavaScript's precision.
const { rawJSON, isRawJSON } = JSON as unknown as {
  readonly rawJSON: (text: string) => unknown;
  readonly isRawJSON: (value: unknown) => boolean;
};

export type Item = Readonly<Record<string, unknown>>;

/** Parses JSON, with integers beyond 2^53 kept as text; undefined if it cannot be parsed. */
export function readJson(bytes: Buffer): unknown {
  try {
    const text = new TextDecoder().decode(bytes);
    return /\d{16}/.test(text) ? (JSON.parse(text, keepLongNumber) as unknown) : (JSON.parse(text) as unknown);
  } catch {
    // The gateway accepts this JSON, but it is nested too deeply for the platform's parser.
    return undefined;
  }
}

function keepLongNumber(_key: string, value: unknown, { source = '' }: { source?: string } = {}): unknown {
  const isLong = typeof value === 'number' && !Number.isSafeInteger(value) && /^-?\d+$/.test(source);
  return isLong ? rawJSON(source) : value;
}

export function isItem(value: unknown): value is Item {
  return typeof value === 'object' && value !== null && !Array.isArray(value) && !isRawJSON(value);
}

/** Returns the items of a list, or of the only array in an object; undefined if there is no such array. */
export function itemsOf(list: unknown): readonly Item[] | undefined {
  const arrays = isItem(list) ? Object.values(list).filter(Array.isArray) : [list].filter(Array.isArray);
  return arrays.length === 1 ? arrays[0]?.filter(isItem) : undefined;
}

/** Returns true for a property name that ids usually have. */
export function isIdName(name: string): boolean {
  return /^(?:id|_id|(?:work_?)?item_?id)$/i.test(name);
}

export interface ItemId {
  /** As written in the item. */
  readonly text: string;
  /**
   * `whole`: an integer. `long`: an integer that JavaScript would round. `text`: a string with an integer. `unusable`:
   * an id that the gateway refuses or changes.
   */
  readonly kind: 'whole' | 'long' | 'text' | 'unusable';
  /** The id that the gateway requests when a client sends `text` in a path; undefined if it refuses `text`. */
  readonly asked: string | undefined;
}

/** All ids of an item. */
export function idsOf(item: Item, parsing: ItemIdParsing): ItemId[] {
  return Object.entries(item)
    .filter(([name]) => isIdName(name))
    .map(([, value]) => readId(value, parsing));
}

function readId(value: unknown, parsing: ItemIdParsing): ItemId {
  const isText = typeof value === 'string';
  const isLong = isRawJSON(value);
  const text = isText ? value : JSON.stringify(value);
  const asked = parseItemId(encodeURIComponent(text.toWellFormed()), parsing);
  const isUsable = asked === text && (typeof value !== 'object' || isLong);
  return { text, kind: !isUsable ? 'unusable' : isText ? 'text' : isLong ? 'long' : 'whole', asked };
}

/** Returns true if a top-level string of the item contains `marker`. */
export function carries(item: unknown, marker: string): item is Item {
  return isItem(item) && Object.values(item).some((value) => typeof value === 'string' && value.includes(marker));
}
