// Checks that the text of a work item is a JSON object, and finds its id. Never rebuilds the text from the parsed
// object.

const strictUtf8 = new TextDecoder('utf-8', { fatal: true });

// A member whose key is `id`, up to its value. Each letter may be escaped.
const idMember = /^\s*"(?:i|\\u0069)(?:d|\\u0064)"\s*:\s*/;

/**
 * The JSON text of a work item without the value of its `id`. The item with an id has the text
 * `beforeId` + the id in decimal + `afterId`.
 */
export interface ItemText {
  readonly beforeId: string;
  readonly afterId: string;
  /** The last `id` in the original text, as `JSON.parse` reads it; undefined if the text has no `id`. */
  readonly sentId: unknown;
}

/** Returns undefined if `bytes` is not one JSON object in UTF-8. */
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
  const members = membersOf(text);
  const index = members.findIndex((member) => idMember.test(member));
  const found = members[index];
  if (found === undefined) {
    const isEmpty = members.length === 1 && members[0]?.trim() === '';
    return { beforeId: '{"id":', afterId: `${isEmpty ? '' : ','}${text.slice(1)}` };
  }
  const [start = ''] = idMember.exec(found) ?? [];
  const others = members.slice(index + 1).filter((member) => !idMember.test(member));
  const spaceAfter = found.slice(found.trimEnd().length);
  return {
    beforeId: `{${[...members.slice(0, index), start].join(',')}`,
    afterId: `${[spaceAfter, ...others].join(',')}}`,
  };
}

/** The texts between the commas of an object. Counts levels instead of recursing, so nesting is unlimited. */
function membersOf(text: string): string[] {
  const members: string[] = [];
  let depth = 0;
  let start = 1;
  for (let at = 1; at < text.length - 1; at++) {
    const character = text.charAt(at);
    if (character === '"') {
      at = endOfString(text, at);
    } else if ('{['.includes(character)) {
      depth++;
    } else if ('}]'.includes(character)) {
      depth--;
    } else if (character === ',' && depth === 0) {
      members.push(text.slice(start, at));
      start = at + 1;
    }
  }
  return [...members, text.slice(start, -1)];
}

function endOfString(text: string, at: number): number {
  do at += text[at] === '\\' ? 2 : 1;
  while (text[at] !== '"');
  return at;
}
