// Suggests known names for a misspelt name.

const editsMax = 3;
// Only a word of at least this length is searched for inside names, because too many names contain a shorter word.
const partLengthMin = 4;

/** Returns the names most similar to `word`. If none is similar, returns the names that contain `word`, if any. */
export function findSimilar(word: string, known: readonly string[]): string[] {
  const distances = known
    .map((name) => ({ name, edits: countEdits(word, name) }))
    .filter(({ name, edits }) => edits <= editsMax && edits * 2 < Math.max(word.length, name.length));
  const best = Math.min(...distances.map(({ edits }) => edits));
  const nearest = distances.filter(({ edits }) => edits === best).map(({ name }) => name);
  const part = word.replace(/^-+/, '');
  return nearest.length > 0 || part.length < partLengthMin ? nearest : known.filter((name) => name.includes(part));
}

/** Returns `: did you mean a, b or c?`, or an empty string. */
export function suggest(word: string, known: readonly string[]): string {
  const similar = findSimilar(word, known);
  return similar.length === 0 ? '' : `: did you mean ${joinWithOr(similar)}?`;
}

/** Returns `a, b or c`. */
export function joinWithOr(names: readonly string[]): string {
  const last = names.at(-1) ?? '';
  return names.length < 2 ? last : `${names.slice(0, -1).join(', ')} or ${last}`;
}

/** Edit distance from `a` to `b`, where swapping two adjacent characters is one edit (optimal string alignment). */
export function countEdits(a: string, b: string): number {
  let beforeLast: number[] = [];
  let last = Array.from({ length: b.length + 1 }, (_, index) => index);
  for (let row = 1; row <= a.length; row += 1) {
    const next = [row];
    for (let column = 1; column <= b.length; column += 1) {
      const isSame = a[row - 1] === b[column - 1];
      const isExchange = a[row - 1] === b[column - 2] && a[row - 2] === b[column - 1];
      next.push(
        Math.min(
          (last[column] ?? 0) + 1,
          (next[column - 1] ?? 0) + 1,
          (last[column - 1] ?? 0) + (isSame ? 0 : 1),
          isExchange ? (beforeLast[column - 2] ?? 0) + 1 : Infinity,
        ),
      );
    }
    [beforeLast, last] = [last, next];
  }
  return last[b.length] ?? 0;
}
