// Work items as far as a check of the backend has to understand them: which id an item has, whether the gateway can ask
// for it, and whether an item is one that the check itself has made. Everything else in them stays opaque.

import { parseItemId, type ItemIdParsing } from '../core/call/item-id.ts';

/** A number that JavaScript cannot hold: its text. */
class LongNumber {
  readonly text: string;

  constructor(text: string) {
    this.text = text;
  }

  toJSON(): unknown {
    return (JSON as unknown as { rawJSON: (text: string) => unknown }).rawJSON(this.text);
  }
}

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

function keepLongNumber(_key: string, value: unknown, context?: { readonly source?: string }): unknown {
  return typeof value === 'number' && !Number.isSafeInteger(value) && /^-?\d+$/.test(context?.source ?? '')
    ? new LongNumber(context?.source ?? '')
    : value;
}

export function isItem(value: unknown): value is Item {
  return (
    typeof value === 'object' && value !== null && !Array.isArray(value) && !(value instanceof LongNumber)
  );
}

/** What a list holds: `isPlain` where it is an array itself, and not an object around one. */
export interface ItemList {
  readonly isPlain: boolean;
  readonly items: readonly Item[];
}

/** The items of a list, or of the one array in an object around them; undefined where there are none to be found. */
export function itemsOf(value: unknown): ItemList | undefined {
  if (Array.isArray(value)) {
    return { isPlain: true, items: value.filter(isItem) };
  }
  const arrays = isItem(value) ? Object.values(value).filter(Array.isArray) : [];
  return arrays.length === 1 ? { isPlain: false, items: (arrays[0] ?? []).filter(isItem) } : undefined;
}

const idName = /^(?:id|_id|(?:work_?)?item_?id)$/i;

/** Whether a property's name is one that ids have. */
export function isIdName(name: string): boolean {
  return idName.test(name);
}

export interface ItemId {
  /** As it stands in the item. */
  readonly text: string;
  /** `whole`: the gateway asks for exactly that; `long` the same, but JavaScript would round it. */
  readonly kind: 'whole' | 'long' | 'text' | 'unusable';
  /** What the gateway asks for when a client puts it in a path; undefined where it refuses it. */
  readonly asked: string | undefined;
}

/** The id of an item; undefined where it has none, or several that differ. */
export function idOf(item: Item, parsing: ItemIdParsing): ItemId | undefined {
  const ids = Object.entries(item)
    .filter(([name]) => isIdName(name))
    .map(([, value]) => readId(value, parsing));
  const [first] = ids;
  return first !== undefined && ids.every(({ text }) => text === first.text) ? first : undefined;
}

/** Whether the item has no id that differs from `text`. */
export function hasNoOtherId(item: Item, text: string, parsing: ItemIdParsing): boolean {
  return Object.entries(item).every(
    ([name, value]) => !isIdName(name) || readId(value, parsing).text === text,
  );
}

function readId(value: unknown, parsing: ItemIdParsing): ItemId {
  const text =
    typeof value === 'string' ? value : value instanceof LongNumber ? value.text : JSON.stringify(value);
  const asked = parseItemId(encodeURIComponent(text.toWellFormed()), parsing);
  const isSame = asked === text && (typeof value !== 'object' || value instanceof LongNumber);
  return {
    text,
    kind: !isSame
      ? 'unusable'
      : typeof value === 'string'
        ? 'text'
        : value instanceof LongNumber
          ? 'long'
          : 'whole',
    asked,
  };
}

/** Whether one of the item's own texts, none of what is nested in it, has `marker` in it. */
export function carries(item: unknown, marker: string): item is Item {
  return (
    isItem(item) && Object.values(item).some((value) => typeof value === 'string' && value.includes(marker))
  );
}
