// The path before those of the operations, where a host has one.

const prefixPattern = /^(?:\/[^/?#]+)*$/;

/** What is wrong with what stands before our paths, as an option. */
export function findPrefixProblems(prefix: string): string[] {
  return prefixPattern.test(prefix) ? [] : ['prefix must begin with a slash and not end in one'];
}
