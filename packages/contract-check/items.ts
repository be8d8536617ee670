// Work items as far as a check of the backend has to understand them: which id an item has, whether the gateway can ask
// for it, and whether an item is one that the check itself has made. Everything else in them stays opaque.

import { parseItemId, type ItemIdParsing } from '../core/call/item-id.ts';

// What the platform has for a number that JavaScript cannot hold: it keeps the text.
const { rawJSON, isRawJSON } = JSON as unknown as {
  readonly rawJSON: (text: string) => unknown;
  readonly isRawJSON: (value: unknown) => boolean;
};

export type Item = Readonly<Record<string, unknown>>;

/** The JSON in `bytes`, integers beyond 2^53 as their text; undefined where this cannot read it. */
export function readJson(bytes: Buffer): unknown {
  try {
    const text = new TextDecoder().decode(bytes);
    return /\d{16}/.test(text)
      ? (JSON.parse(text, keepLongNumber) as unknown)
      : (JSON.parse(text) as unknown);
  } catch {
    // The gateway has found it to be JSON; it is nested deeper than the platform's parser goes.
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

/** The items of a list, or of the one array in an object around them; undefined where there are none to be found. */
export function itemsOf(list: unknown): readonly Item[] | undefined {
  const arrays = isItem(list) ? Object.values(list).filter(Array.isArray) : [list].filter(Array.isArray);
  return arrays.length === 1 ? arrays[0]?.filter(isItem) : undefined;
}

/** Whether a property's name is one that ids have. */
export function isIdName(name: string): boolean {
  return /^(?:id|_id|(?:work_?)?item_?id)$/i.test(name);
}

export interface ItemId {
  /** As it stands in the item. */
  readonly text: string;
  /** `whole`: the gateway asks for exactly that; `long` the same, but JavaScript would round it. */
  readonly kind: 'whole' | 'long' | 'text' | 'unusable';
  /** What the gateway asks for when a client puts it in a path; undefined where it refuses it. */
  readonly asked: string | undefined;
}

/** Every id of an item. */
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

/** Whether one of the item's own texts, none of what is nested in it, has `marker` in it. */
export function carries(item: unknown, marker: string): item is Item {
  return (
    isItem(item) && Object.values(item).some((value) => typeof value === 'string' && value.includes(marker))
  );
}
