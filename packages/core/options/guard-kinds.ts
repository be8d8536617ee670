// The kinds of values that the options of guards accept [D41, D42, D44, D46 to D48].

import { isThisMachine, withoutQuery } from './accepted-values.ts';
import { addressOf, parserOfList, textOf, textsOf, type Kind } from './kinds.ts';
import { Problem } from './problem.ts';
import { suggest } from './similar.ts';
import { operations, type OperationName } from '../operations.ts';
import { splitList } from '../text/lists.ts';
import { decodePercent } from '../text/percent.ts';
import { parseRate, rateGrammar } from './rate.ts';

// The supported signature algorithms of tokens [RFC 7518, 3.1; RFC 8037]. All are asymmetric, so only the issuer can sign.
// `none` and shared-secret algorithms such as `HS256` are excluded [D41].
const signatureAlgorithms = [
  ...['RS256', 'RS384', 'RS512', 'PS256', 'PS384', 'PS512'],
  ...['ES256', 'ES384', 'ES512', 'EdDSA', 'Ed25519'],
];
const listOfAlgorithms = signatureAlgorithms.join(', ');

// A string without white space or control characters, for issuers and audiences; may be empty.
function parseWord(text: string): string | Problem {
  return /^[^\s\p{C}]*$/u.test(text) ? text : new Problem('must be a string without spaces and control characters');
}

// A comma, or another separator before the end or a second address.
const severalIssuers = /,|[;|]\s*(?:$|[a-z][a-z0-9+.-]*:)/i;

function parseIssuer(text: string): string | Problem {
  return severalIssuers.test(text)
    ? new Problem('must be one issuer, as in the claim iss, not a list (start one gateway for each issuer)')
    : parseWord(text);
}

export const issuer = textOf(parseIssuer, {
  takes: "the issuer's name, or empty to turn tokens off",
  placeholder: 'name',
});

// A dot leads into an object. Quotes, brackets and asterisks come from other notations, which would find no claim.
const claimName = /^[^\s\p{C}.,"'`\\*[\]{}()]+(?:\.[^\s\p{C}.,"'`\\*[\]{}()]+)*$/u;
const times: readonly string[] = ['exp', 'nbf', 'iat'];
const claimNamesRule =
  'must be names of claims separated by commas, with a dot between the name of an object and a name in it: for instance scope, or scp,roles, or realm_access.roles';

const parseClaimNames = parserOfList((text): readonly string[] | Problem => {
  const names = splitList(text);
  const time = names.find((name) => times.includes(name));
  if (time !== undefined) return new Problem(`${claimNamesRule} (${time} is a time)`);
  return names.length > 0 && names.every((name) => claimName.test(name)) ? names : new Problem(claimNamesRule);
});

/** Claims that can have scopes [D42]: text separated by commas, or an array with one name in each item. */
export const claimNames: Kind<readonly string[], string | readonly string[]> = {
  accept: (given: unknown) => {
    const items: readonly unknown[] = Array.isArray(given) ? given : [given];
    const isOne = (item: unknown): boolean => typeof item === 'string' && !(Array.isArray(given) && item.includes(','));
    return items.every(isOne) ? parseClaimNames(items.join()) : new Problem(claimNamesRule);
  },
  parse: parseClaimNames,
  takes: 'names of claims separated by commas',
  placeholder: 'names',
};

function parseWords(text: string): readonly string[] | Problem {
  const words = splitList(text);
  return words.some((word) => parseWord(word) instanceof Problem)
    ? new Problem('must be strings without spaces and control characters, separated by commas')
    : words;
}

export const words = textsOf(parseWord, parseWords, { takes: 'names separated by commas', placeholder: 'names' });

// Parses a comma-separated list of at least one algorithm, and removes duplicates.
function parseAlgorithms(text: string): readonly string[] | Problem {
  const names = splitList(text);
  const refused = names.find((name) => !signatureAlgorithms.includes(name));
  if (names.length > 0 && refused === undefined) return [...new Set(names)];
  const why =
    refused?.toLowerCase() === 'none'
      ? ' (an unsigned token proves nothing)'
      : /^hs\d*$/i.test(refused ?? '')
        ? ' (HMAC uses a shared secret, so any service that verifies a token could also forge one)'
        : suggest(refused ?? '', signatureAlgorithms);
  return new Problem(`must be one or more of ${listOfAlgorithms}${why}`);
}

// In an array, each item is one name, so commas and spaces in an item become `?`, which makes the item invalid.
export const algorithms = textsOf((text) => parseAlgorithms(text.replaceAll(/[\s,]/g, '?')), parseAlgorithms, {
  takes: `one or more of ${listOfAlgorithms}, separated by commas`,
  placeholder: 'names',
});

// RFC 6749, 3.3: printable ASCII characters except space, quote and backslash.
function isScope(text: unknown): boolean {
  return typeof text === 'string' && /^[!#-[\]-~]+$/.test(text);
}

const operationNames: readonly string[] = operations.map(({ name }) => name);

// Converts an object such as `{ list: 'items.read' }` to a list of `operation=scope`.
function acceptScopes(given: unknown): readonly string[] | Problem {
  if (typeof given !== 'object' || given === null || Array.isArray(given)) {
    return new Problem("must be an object such as { list: 'items.read', create: 'items.write' }");
  }
  const scopes = Object.entries(given).filter(([, scope]: [string, unknown]) => scope !== undefined);
  const [unknown] = scopes.find(([name]) => !operationNames.includes(name)) ?? [];
  if (unknown !== undefined) {
    return new Problem(`may have only the operations ${operationNames.join(', ')}${suggest(unknown, operationNames)}`);
  }
  return scopes.every(([, scope]) => isScope(scope))
    ? scopes.map(([name, scope]) => `${name}=${String(scope)}`)
    : new Problem('must have one scope for each operation, without spaces, quotes and backslashes');
}

// Parses a comma-separated list of `operation=scope`, with each operation at most once.
function parseScopes(text: string): readonly string[] | Problem {
  const entries = splitList(text);
  const seen = new Set<string>();
  for (const entry of entries) {
    const [, name = '', scope = ''] = /^([^=]*)=(.*)$/.exec(entry) ?? [];
    if (!operationNames.includes(name)) {
      return new Problem(
        `must be a list such as list=items.read,create=items.write, with only the operations ${operationNames.join(', ')}${suggest(name, operationNames)}`,
      );
    }
    if (!isScope(scope)) {
      return new Problem(`must have one valid scope after each "=", but the scope of ${name} is missing or invalid`);
    }
    if (seen.has(name)) return new Problem(`must have each operation at most once, but has ${name} twice`);
    seen.add(name);
  }
  return entries;
}

/** The scope that each operation requires. */
export const scopes: Kind<readonly string[], Readonly<Partial<Record<OperationName, string | undefined>>>> = {
  accept: acceptScopes,
  parse: parserOfList(parseScopes),
  takes: 'a list of operation=scope separated by commas, or empty to require no scopes',
  placeholder: 'list',
};

/** Converts a list of `operation=scope` to a map. */
export function scopesOf(entries: readonly string[]): ReadonlyMap<OperationName, string> {
  return new Map(entries.map((entry) => entry.split(/=(.*)/, 2) as [OperationName, string]));
}

function parseKeysUrl(text: string): string | Problem {
  if (text === '') return text;
  const url = URL.parse(text);
  if (/[,;|]\s*https?:/i.test(text)) return new Problem('must be one https address, not a list');
  if (url?.protocol !== 'https:' && url?.protocol !== 'http:') {
    return new Problem('must be an https address, for instance https://login.example.com/keys');
  }
  if (url.username !== '' || url.password !== '' || url.hash !== '') {
    return new Problem('must be an https address without user name, password and fragment');
  }
  // With plain http, an attacker on the network could add a key.
  return url.protocol === 'https:' || isThisMachine(url.hostname)
    ? url.href
    : new Problem('must be an https address (plain http only for localhost, 127.0.0.1 and [::1])');
}

/** The address of a JSON Web Key Set. */
export const keysUrl = addressOf(parseKeysUrl, {
  takes: 'an https address (http only for this machine), or empty for no address',
  placeholder: 'url',
  show: withoutQuery,
  isSecret: true,
});

// Headers that cannot carry the identity: the gateway writes them itself [D23], they belong to a connection [RFC 9110,
// 7.6.1], or they would change how the backend reads or answers a call.
const takenFields = [
  ...['host', 'expect', 'authorization', 'x-request-id', 'traceparent', 'tracestate'],
  ...['connection', 'keep-alive', 'proxy-authenticate', 'proxy-authorization', 'proxy-connection'],
  ...['te', 'trailer', 'transfer-encoding', 'upgrade', 'accept-encoding'],
  ...['if-match', 'if-none-match', 'if-unmodified-since', 'idempotency-key'],
];

function parseIdentityHeader(text: string): string | Problem {
  if (!/^[\w!#$%&'*+.^`|~-]{0,100}$/.test(text)) {
    return new Problem('must be the name of a header, for instance x-user');
  }
  const lowerCase = text.toLowerCase();
  return takenFields.includes(lowerCase) || lowerCase.startsWith('content-')
    ? new Problem('must be the name of a header that has no other use, for instance x-user')
    : text;
}

export const identityHeader = textOf(parseIdentityHeader, {
  takes: 'the name of a header, or empty for no header',
  placeholder: 'name',
});

function parseRateText(text: string): string | Problem {
  return text === '' || parseRate(text) !== undefined
    ? text
    : new Problem(`must be ${rateGrammar}: at most 1000000 requests, in a window of 1s to 24h`);
}

export const rateText = textOf(parseRateText, { takes: `${rateGrammar}, or empty for no limit`, placeholder: 'rate' });

// The path is empty or a database number. A query is refused, because it would have no effect. The message does not
// repeat the address, which is secret.
function parseRedisUrl(text: string): string | Problem {
  const url = URL.parse(text);
  const isOne =
    url !== null &&
    /^rediss?:$/.test(url.protocol) &&
    /^[^,;|]+$/.test(url.hostname) &&
    /^\/?$|^\/\d{1,4}$/.test(url.pathname) &&
    url.search + url.hash === '' &&
    decodePercent(url.username) !== undefined &&
    decodePercent(url.password) !== undefined;
  return isOne || text === ''
    ? text
    : new Problem(
        'must be an address such as redis://redis.internal:6379/0 or, over TLS, rediss://user:password@redis.internal, with special characters of user name and password percent-encoded',
      );
}

/** Returns the address without user name and password. */
export function showRedisUrl(text: string): string {
  const url = URL.parse(text);
  return url === null ? '' : `${url.protocol}//${url.host}${url.pathname}`;
}

export const redisUrl = addressOf(parseRedisUrl, {
  takes: 'a redis or rediss address, or empty for no Redis',
  placeholder: 'url',
  show: showRedisUrl,
  isSecret: true,
});
