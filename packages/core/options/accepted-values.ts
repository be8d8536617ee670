// Parses addresses such as the backend's, and decides how much of a refused value a message may repeat.

import { isIPv6 } from 'node:net';

import { backendPath } from '../operations.ts';
import { withoutEndSlashes } from '../text/addresses.ts';
import { decodePercent } from '../text/percent.ts';
import { Problem } from './problem.ts';
import { findSimilar, joinWithOr } from './similar.ts';

// The path that the gateway adds to BACKEND_URL, or the path that its clients use, as a pasted address has it.
const workItemPath = /[\\/]+api[\\/]+work-?items?(?=[\\/?#;%\s"'`>]|$).*/is;
// The host may be called `api`, so its name is not a part of the path.
const authorityAndPath = /^(\s*(?:[a-z]+:)?[\\/]*[^\\/?#]+)(.*)$/is;
// A separator in the authority, or a second address after a separator or a space.
const severalAddresses = /^[^/?#]*\/\/[^/?#]*[,;|]|\S[,;|\s]\s*https?:\/\//i;
// An escaped `?` or `#` most likely begins a query that was escaped by mistake, and a query may contain a secret.
const queryOrFragment = /(?:[?#]|%3f|%23).*/is;
// `URL` accepts fewer than two slashes.
const missingSlashes = /^(\s*https?:)[\\/]?(?![\\/])/i;
const doubledScheme = /^\s*https?:\/*(?=https?:?\/\/)/i;

/** Parses the address of a backend. The address must not have the path that the gateway adds. */
export function parseBackendUrl(text: string): URL | Problem {
  return parseAddress(text, 'http://localhost:5104', (base) =>
    base.replace(authorityAndPath, (_, authority: string, path: string) => authority + path.replace(workItemPath, '')),
  );
}

/**
 * Parses an http or https address. A `Problem` repeats no part of `text`, which may contain a secret, except in a corrected
 * address without user name, password and query. `cutPath` removes a path that the address must not have.
 */
export function parseAddress(text: string, example: string, cutPath = (base: string): string => base): URL | Problem {
  const requirements = unmetRequirements(text);
  if (cutPath(text) !== text) {
    requirements.push(`an address without the path of the work items (the gateway adds ${backendPath})`);
  }
  if (requirements.length === 0) return new URL(text);
  const corrected = correct(text, cutPath).filter((each) => unmetRequirements(each).length === 0);
  const advice = corrected.length === 0 ? `, for instance ${example}` : `: did you mean ${joinWithOr(corrected)}?`;
  return new Problem(`must be ${requirements.join(' and ')}${advice}`);
}

// Returns a list of the requirements that `text` does not meet, worded to follow `must be`. The list may be empty.
function unmetRequirements(text: string): string[] {
  if (severalAddresses.test(text)) return ['the address of one backend (put a load balancer in front of several)'];
  if (!URL.canParse(text) || doubledScheme.test(text)) return ['an address'];
  const { protocol, username, password, pathname } = new URL(text);
  return [
    !/^https?:$/.test(protocol) && 'an http or https address',
    missingSlashes.test(text) && 'an address with // after its scheme',
    username + password !== '' && 'an address without user name and password (the gateway sends no credentials)',
    queryOrFragment.test(text) && 'an address without query and fragment',
    decodePercent(pathname) === undefined && 'an address whose path has no malformed escape',
  ].filter((each) => each !== false);
}

// Matches scheme, host with ports, and path. Without a scheme or `//`, the host must have a port, or be `localhost` or an IP
// address, because any other word may be a secret.
const addressForm =
  /^(?:([a-z]*):?[\\/]{2,}|(?=(?:localhost|\d+(?:\.\d+){3}|\[[\da-f:]+\]|[\w.-]+:\d+)(?:[:/]|$)))([\w.:[\]\s-]+)(\/[\w./~-]*)?$/i;

// Guesses which addresses were meant by `text`. Returns none if `text` may contain a password.
function correct(text: string, cutPath: (base: string) => string): string[] {
  if (/@|%40/i.test(text) || severalAddresses.test(text)) return [];
  const base = cutPath(text.replace(queryOrFragment, '')).replaceAll(/^[\s"'`<]+|[\s"'`>]+$/g, '');
  const [, scheme = '', written = '', path = ''] =
    addressForm.exec(base.replace(doubledScheme, '').replace(missingSlashes, '$1//')) ?? [];
  const host = written.replaceAll(/\s/g, '');
  const [protocol] = scheme === '' ? ['http'] : findSimilar(scheme.toLowerCase(), ['http', 'https']);
  if (host === '' || protocol === undefined) return [];
  const [, name = '', ...ports] = /^([^:]*):(\d+):(\d+)$/.exec(host) ?? [];
  const [, address = '', port = ''] = /^(.*):(\d+)$/.exec(host) ?? [];
  const hosts = isIPv6(address)
    ? [`[${address}]:${port}`]
    : isIPv6(host)
      ? [`[${host}]`]
      : ports.length > 0
        ? ports.map((each) => `${name}:${each}`)
        : [host];
  return hosts.map((each) => `${protocol}://${each}${withoutEndSlashes(path)}`);
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

/** True for `localhost` and loopback addresses; false for names under `.localhost`, which DNS may resolve elsewhere. */
export function isThisMachine(host: string): boolean {
  return /^(?:localhost|127\.[\d.]+|\[?::1\]?)$/.test(host);
}
