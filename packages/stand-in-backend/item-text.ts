// The text of one work item: is it a JSON object, and where does its id stand? Works on the text as it was
// written and never re-serialises; knows nothing of HTTP or SQLite.

const QUOTE = 0x22;
const COMMA = 0x2c;
const OPEN_BRACKET = 0x5b;
const BACKSLASH = 0x5c;
const CLOSE_BRACKET = 0x5d;
const OPEN_BRACE = 0x7b;
const CLOSE_BRACE = 0x7d;

/** `"id"` with both letters escaped: no way of writing that key is longer. */
const idKeyLengthMax = '"\\u0069\\u0064"'.length;

const strictUtf8 = new TextDecoder('utf-8', { fatal: true });

/** A work item cut in two: `beforeId`, the id in decimal and `afterId` in a row are its JSON text. */
export interface ItemText {
  readonly beforeId: string;
  readonly afterId: string;
  /** The `id` that the text itself had, as `JSON.parse` reads it; undefined when it had none. */
  readonly sentId: unknown;
}

/** The work item that `bytes` hold, or undefined when they are not one JSON object in strict UTF-8. */
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
 * Cuts the text of an object around the value of its first top-level `id`. Further ones are taken out, since
 * readers differ on which of two equal keys counts; where there is none, one is put in front. Everything
 * else stays as it was written. `text` must be valid and without white space around it.
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
      // From the end of the member before it, so that the comma between the two goes as well.
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

/** The position after the value that starts at `at`. Counts levels instead of recursing: no limit on nesting. */
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
