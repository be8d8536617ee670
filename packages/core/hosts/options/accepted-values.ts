// Parses the backend's base address, and decides how much of a refused value a message may repeat.

import { decodePercent } from '../../text/percent.ts';
import { Problem } from './problem.ts';

// A comma in the authority, or a second address after a comma.
const severalAddresses = /^[^/?#]*\/\/[^/?#]*,|,\s*https?:\/\//i;

/** Parses the address of a backend. The `Problem` repeats no part of `text`, because `text` may contain a secret. */
export function parseBackendUrl(text: string, example = 'for instance http://localhost:5104'): URL | Problem {
  const requirements = unmetRequirements(text);
  return requirements.length > 0 ? new Problem(`must be ${requirements.join(' and ')}, ${example}`) : new URL(text);
}

// Returns a list of the requirements that `text` does not meet, worded to follow `must be`. The list may be empty.
function unmetRequirements(text: string): string[] {
  if (severalAddresses.test(text)) return ['the address of one backend (put a load balancer in front of several)'];
  if (!URL.canParse(text)) return ['an address'];
  const { protocol, username, password, pathname } = new URL(text);
  return [
    !/^https?:$/.test(protocol) && 'an http or https address',
    username + password !== '' && 'an address without user name and password (the gateway sends no credentials)',
    // An escaped `?` or `#` most likely begins a query that was escaped by mistake, and a query may contain a secret.
    /[?#]|%3f|%23/i.test(text) && 'an address without query and fragment',
    decodePercent(pathname) === undefined && 'an address whose path has no malformed escape',
  ].filter((each) => each !== false);
}

// Matches a short text without `@`, `?`, `%` and `:` (except after a drive letter). An address with a password, a query
// or an escape contains at least one of these characters.
const plainText = /^(?:[A-Za-z]:(?=[/\\]))?[\p{L}\p{N} ._~/\\+*,()-]{0,100}$/u;

/**
 * Quotes `text` if it looks like a typing error or a file name. Returns undefined if `text` could be an address with a
 * secret, because no message may repeat a secret.
 */
export function quoteIfPlain(text: string): string | undefined {
  return plainText.test(text) ? JSON.stringify(text) : undefined;
}

/** Returns the name of a setting, with the path of its file if the path is safe to show. */
export function nameWithPath(name: string, path: string): string {
  const shown = quoteIfPlain(path);
  return shown === undefined ? name : `${name} (${shown})`;
}

/** Removes the query, which may contain a secret. */
export function withoutQuery(address: string): string {
  return address.replace(/\?.*/s, '');
}
