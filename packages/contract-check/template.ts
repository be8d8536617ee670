// The item that the check creates: a JSON object with a unique marker in one of its strings, by which the check finds
// the item again.

import { randomBytes } from 'node:crypto';
import { closeSync, openSync, readSync } from 'node:fs';

import { isIdName, isItem, readJson, type Item } from './items.ts';

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
  // `readJson` ignores a byte-order mark.
  const item = readJson(Buffer.from(text));
  if (!isItem(item)) return '--body must be a JSON object, such as {"title":"x","state":"New"}';
  const id = Object.keys(item).find(isIdName);
  if (id !== undefined) {
    return `--body must not have ${JSON.stringify(id)}, because a backend could overwrite the item with that id`;
  }
  const texts = Object.keys(item).filter((name) => typeof item[name] === 'string');
  const property = likely.flatMap((each) => texts.filter((name) => name.toLowerCase() === each))[0] ?? texts[0];
  return property === undefined
    ? '--body must have a string among its top-level properties, because the check puts its marker there to find the item again'
    : { item, property };
}

// Reads the start of a file, at most one byte more than allowed. This is enough to detect a file that is too long, or
// endless.
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

/** Returns the JSON of the item, with `marker` in its property. */
export function writeItem({ item, property }: Template, marker: string): Buffer {
  return Buffer.from(JSON.stringify({ ...item, [property]: marker }));
}

/** Creates a marker of 30 characters, short enough for a title; 16 of them are random. */
export function createMarker(): string {
  return `gateway-check-${randomBytes(8).toString('hex')}`;
}
