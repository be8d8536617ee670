// What the backend's base address may be, for the settings of the command and the options of the
// plugin alike; and what may be shown of a value that was refused.

import { decodePercent } from '../../text/percent.ts';
import { Problem } from './problem.ts';

// A comma in the authority, or a second address after one.
const severalAddresses = /^[^/?#]*\/\/[^/?#]*,|,\s*https?:\/\//i;

/** The address of a backend. What is wrong with it never has a part of `text`, which may be a secret. */
export function parseBackendUrl(text: string, example = 'for instance http://localhost:5104'): URL | Problem {
  const wishes = wishesForBackendUrl(text);
  return wishes.length > 0 ? new Problem(`must be ${wishes.join(' and ')}, ${example}`) : new URL(text);
}

// What `text` would have to be instead, each as in `an address ...`; empty when it is right.
function wishesForBackendUrl(text: string): string[] {
  if (severalAddresses.test(text)) {
    return ['one address, of one backend (several need a balancer between)'];
  }
  if (!URL.canParse(text)) {
    return ['an address'];
  }
  const { protocol, username, password, pathname } = new URL(text);
  return [
    !/^https?:$/.test(protocol) && 'an http or https address',
    username + password !== '' &&
      'an address without user name and password (the gateway sends no credentials)',
    // An escaped one is a part of the path to the letter, but most likely a query that was escaped once too often, and what
    // is in a query may be a secret.
    /[?#]|%3f|%23/i.test(text) && 'an address without query and fragment',
    decodePercent(pathname) === undefined && 'an address whose path has no malformed escape',
  ].filter((wish) => wish !== false);
}

// Short, and without any of what an address with a password, a query or an escape has.
const plainText = /^(?:[A-Za-z]:(?=[/\\]))?[\p{L}\p{N} ._~/\\+*,()-]{0,100}$/u;

/**
 * `text` in quotes where it is no more than a slip of the keyboard or the name of a file; undefined where it could be
 * an address with a secret in it, which no message must repeat.
 */
export function quoteIfPlain(text: string): string | undefined {
  return plainText.test(text) ? JSON.stringify(text) : undefined;
}

/** For addresses whose query may hold a secret: what stands before it. */
export function withoutQuery(address: string): string {
  return address.replace(/\?.*/s, '');
}
