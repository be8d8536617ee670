// The item that a check of the backend creates: a JSON object, one of whose texts is replaced by a marker that no other
// item has. By this marker, read back, the check knows its own item.

import { randomBytes } from 'node:crypto';
import { closeSync, openSync, readSync } from 'node:fs';

import { isIdName, isItem, readJson, type Item } from './items.ts';

export interface Template {
  readonly item: Item;
  /** The property that the marker goes into. */
  readonly property: string;
}

/** What the embedded backend takes, and every backend that wants no more than a title. */
export const defaultTemplate: Template = { item: { title: '' }, property: 'title' };

// Those that most likely take any text come first.
const likely = ['title', 'name', 'subject', 'summary', 'description', 'text'];
const bytesMax = 1_048_576;

/** The template in `given`, a JSON object or the name of a file with one; or what is wrong with it. */
export function readTemplate(given: string): Template | string {
  let text = given;
  if (!given.trimStart().startsWith('{')) {
    try {
      text = readStart(given);
    } catch (error) {
      const { code = 'unknown' } = error as NodeJS.ErrnoException;
      return `--body must be a JSON object, or a file with one; a file of that name cannot be read (${code})`;
    }
  }
  if (Buffer.byteLength(text) > bytesMax) {
    return `--body must be at most ${bytesMax} bytes long`;
  }
  // A byte-order mark is read over, as of an answer.
  const item = readJson(Buffer.from(text));
  if (!isItem(item)) {
    return '--body must be a JSON object, such as {"title":"x","state":"New"}';
  }
  const id = Object.keys(item).find(isIdName);
  if (id !== undefined) {
    return `--body must not have ${JSON.stringify(id)}: with it a backend could overwrite the item of that id`;
  }
  const texts = Object.keys(item).filter((name) => typeof item[name] === 'string');
  const property =
    likely.flatMap((each) => texts.filter((name) => name.toLowerCase() === each))[0] ?? texts[0];
  return property === undefined
    ? '--body must have a text among its own properties: the marker goes into it, by which the item is known again'
    : { item, property };
}

// One byte more than is taken tells that there are more: what has no end is not read to it.
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

/** The JSON of the item with `marker` in it. */
export function writeItem({ item, property }: Template, marker: string): Buffer {
  return Buffer.from(JSON.stringify({ ...item, [property]: marker }));
}

/** A marker: 30 characters, since titles may not be long, of which 16 are random. */
export function createMarker(): string {
  return `gateway-check-${randomBytes(8).toString('hex')}`;
}
