// Checks that the text of a work item is a JSON object, and finds its id. Never rebuilds the text from the parsed
// object.

const QUOTE = 0x22;
const COMMA = 0x2c;
const OPEN_BRACKET = 0x5b;
const BACKSLASH = 0x5c;
const CLOSE_BRACKET = 0x5d;
const OPEN_BRACE = 0x7b;
const CLOSE_BRACE = 0x7d;

/** Length of the longest spelling of the key `"id"`, in which both letters are escaped. */
const idKeyLengthMax = '"\\u0069\\u0064"'.length;

const strictUtf8 = new TextDecoder('utf-8', { fatal: true });

/**
 * The JSON text of a work item without the value of its `id`. `beforeId`, an id in decimal and `afterId` together are the
 * text of the item with that id.
 */
export interface ItemText {
  readonly beforeId: string;
  readonly afterId: string;
  /** The `id` in the original text, as `JSON.parse` reads it; undefined if the text has no `id`. */
  readonly sentId: unknown;
}

/** Reads the work item in `bytes`; undefined if they are not one JSON object in UTF-8. */
export function readItemText(bytes: Uint8Array): ItemText | undefined {
  let text: string;
  let value: unknown;
  try {
    text = strictUtf8.decode(bytes);
    value = JSON.parse(text);
  } catch {
    return undefined;
  }
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return undefined;
  return { ...splitAtId(text.trim()), sentId: (value as { id?: unknown }).id };
}

/**
 * Cuts the text of an object around the value of its first top-level `id`. Removes every further `id`, because parsers
 * differ on which of two equal keys they use. Adds an `id` at the start if there is none. Everything else stays
 * unchanged. `text` must be valid JSON without white space around it.
 */
function splitAtId(text: string): { beforeId: string; afterId: string } {
  let beforeId: string | undefined;
  let afterId = '';
  let copiedTo = 0;
  let memberEnd = 1;
  let at = skipWhiteSpace(text, 1);
  const isEmpty = text.charCodeAt(at) === CLOSE_BRACE;
  while (text.charCodeAt(at) === QUOTE) {
    const keyEnd = skipString(text, at);
    const valueStart = skipWhiteSpace(text, skipWhiteSpace(text, keyEnd) + 1);
    const valueEnd = skipValue(text, valueStart);
    if (keyEnd - at <= idKeyLengthMax && JSON.parse(text.slice(at, keyEnd)) === 'id') {
      if (beforeId === undefined) beforeId = text.slice(0, valueStart);
      // Cuts from the end of the previous member, so that the comma between them is removed too.
      else afterId += text.slice(copiedTo, memberEnd);
      copiedTo = valueEnd;
    }
    memberEnd = valueEnd;
    at = skipWhiteSpace(text, valueEnd);
    if (text.charCodeAt(at) === COMMA) at = skipWhiteSpace(text, at + 1);
  }
  if (beforeId !== undefined) return { beforeId, afterId: afterId + text.slice(copiedTo) };
  return { beforeId: '{"id":', afterId: (isEmpty ? '' : ',') + text.slice(1) };
}

/** Returns the position after the value at `at`. Counts levels instead of recursing, so nesting is unlimited. */
function skipValue(text: string, at: number): number {
  let depth = 0;
  do {
    const code = text.charCodeAt(at);
    if (code === QUOTE) {
      at = skipString(text, at);
      continue;
    }
    if (code === OPEN_BRACE || code === OPEN_BRACKET) depth++;
    else if (code === CLOSE_BRACE || code === CLOSE_BRACKET) depth--;
    at++;
  } while (depth > 0 || !isValueEnd(text.charCodeAt(at)));
  return at;
}

function skipString(text: string, at: number): number {
  for (at++; at < text.length && text.charCodeAt(at) !== QUOTE; at++) {
    if (text.charCodeAt(at) === BACKSLASH) at++;
  }
  return at + 1;
}

function skipWhiteSpace(text: string, at: number): number {
  while (isWhiteSpace(text.charCodeAt(at))) at++;
  return at;
}

function isValueEnd(code: number): boolean {
  return code === COMMA || code === CLOSE_BRACE || isWhiteSpace(code);
}

function isWhiteSpace(code: number): boolean {
  return code === 0x20 || code === 0x0a || code === 0x0d || code === 0x09;
}
