// Work items: their ids, whether the gateway can request an item by its id, and the item that the check creates. The
// check finds that item again by a unique marker in one of the item's strings.

import { closeSync, openSync, readSync } from 'node:fs';

import { parseItemId, type ItemIdParsing } from '../core/call/item-id.ts';

// `rawJSON` keeps the text of numbers beyond JavaScript's precision.
const { rawJSON, isRawJSON } = JSON as unknown as {
  readonly rawJSON: (text: string) => unknown;
  readonly isRawJSON: (value: unknown) => boolean;
};

export type Item = Readonly<Record<string, unknown>>;

/** Parses JSON. Keeps integers beyond 2^53 as text. Returns undefined if the JSON cannot be parsed. */
export function readJson(bytes: Buffer): unknown {
  try {
    const text = new TextDecoder().decode(bytes);
    return JSON.parse(text, /\d{16}/.test(text) ? keepLongNumber : undefined) as unknown;
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

// The property names that ids usually have.
const idName = /^(?:id|_id|(?:work_?)?item_?id)$/i;

export interface ItemId {
  readonly text: string;
  /**
   * `whole`: an integer. `long`: an integer that JavaScript would round. `text`: a string with an integer. `unusable`:
   * an id that the gateway refuses or changes.
   */
  readonly kind: 'whole' | 'long' | 'text' | 'unusable';
  /** The id that the gateway requests when a client sends `text` in a path; undefined if the gateway refuses `text`. */
  readonly asked: string | undefined;
}

/** All ids of an item. */
export function idsOf(item: Item, parsing: ItemIdParsing): ItemId[] {
  return Object.entries(item)
    .filter(([name]) => idName.test(name))
    .map(([, value]) => {
      const isText = typeof value === 'string';
      const isLong = isRawJSON(value);
      const text = isText ? value : JSON.stringify(value);
      const asked = parseItemId(encodeURIComponent(text.toWellFormed()), parsing);
      const isUsable = asked === text && (typeof value !== 'object' || isLong);
      return { text, kind: !isUsable ? 'unusable' : isText ? 'text' : isLong ? 'long' : 'whole', asked };
    });
}

/** Returns true if a top-level string of the item contains `marker`. */
export function carries(item: unknown, marker: string): item is Item {
  return isItem(item) && Object.values(item).some((value) => typeof value === 'string' && value.includes(marker));
}

export interface Template {
  readonly item: Item;
  /** The property whose value is the marker. */
  readonly property: string;
}

/** Accepted by the embedded backend, and by every backend that requires only a title. */
export const defaultTemplate: Template = { item: { title: '' }, property: 'title' };

// Properties that most likely accept any text, the likeliest first.
const likely = ['title', 'name', 'subject', 'summary', 'description', 'text'];
const bytesMax = 1_048_576;

/**
 * Reads the template from `given`: a JSON object, or the name of a file that contains one. If `given` is invalid,
 * returns a description of the problem.
 */
export function readTemplate(given: string): Template | string {
  let text = given;
  if (!given.trimStart().startsWith('{')) {
    try {
      text = readStart(given);
    } catch (error) {
      const { code = 'unknown' } = error as NodeJS.ErrnoException;
      return `--body must be a JSON object or the name of a file that contains one; this file cannot be read (${code})`;
    }
  }
  if (Buffer.byteLength(text) > bytesMax) return `--body must have at most ${bytesMax} bytes`;
  // `readJson` also accepts a file with a byte-order mark, which `JSON.parse` refuses.
  const item = readJson(Buffer.from(text));
  if (!isItem(item)) return '--body must be a JSON object, such as {"title":"x","state":"New"}';
  const id = Object.keys(item).find((name) => idName.test(name));
  if (id !== undefined) {
    return `--body must not have ${JSON.stringify(id)}, because a backend could overwrite the item with that id`;
  }
  const texts = Object.keys(item).filter((name) => typeof item[name] === 'string');
  const property = likely.flatMap((each) => texts.filter((name) => name.toLowerCase() === each))[0] ?? texts[0];
  return property === undefined
    ? '--body must have a string among its top-level properties, because the check puts its marker there to find the item again'
    : { item, property };
}

// Reads at most one byte more than allowed, because a file can be endless.
function readStart(name: string): string {
  const bytes = Buffer.alloc(bytesMax + 1);
  const file = openSync(name, 'r');
  try {
    let length = 0;
    for (let read = -1; read !== 0 && length < bytes.length; length += read) {
      read = readSync(file, bytes, length, bytes.length - length, null);
    }
    return bytes.toString('utf8', 0, length);
  } finally {
    closeSync(file);
  }
}

/** Returns the JSON of the item, with `marker` as the value of `property`. */
export function writeItem({ item, property }: Template, marker: string): Buffer {
  return Buffer.from(JSON.stringify({ ...item, [property]: marker }));
}
