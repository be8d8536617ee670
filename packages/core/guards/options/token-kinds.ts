// The kinds of values that only options of tokens have [D41, D42, D44, D48].

import { withoutQuery } from '../../hosts/options/accepted-values.ts';
import { addressOf, textOf, textsOf, type Kind } from '../../hosts/options/kinds.ts';
import { Problem } from '../../hosts/options/problem.ts';
import { suggest } from '../../hosts/options/similar.ts';
import { operations, type OperationName } from '../../operations.ts';
import { isThisMachine } from '../../text/addresses.ts';
import { splitList } from '../../text/lists.ts';
import { isSignatureAlgorithm, signatureAlgorithms } from './signature-algorithms.ts';

const listOfAlgorithms = signatureAlgorithms.join(', ');

// A text without white space or control characters, as issuers, audiences and names of claims are; empty for none.
function parseWord(text: string): string | Problem {
  return /^[^\s\p{C}]*$/u.test(text)
    ? text
    : new Problem('must be a text without spaces and control characters');
}

export const issuer = textOf(parseWord, {
  takes: "the issuer's name, or nothing for no tokens",
  placeholder: 'name',
});

function parseClaimName(text: string): string | Problem {
  return text === '' ? new Problem('must be the name of a claim') : parseWord(text);
}

export const claimName = textOf(parseClaimName, { takes: 'the name of a claim', placeholder: 'name' });

function parseWords(text: string): readonly string[] | Problem {
  const words = splitList(text);
  return words.find((word) => parseWord(word) instanceof Problem) === undefined
    ? words
    : new Problem('must be texts without spaces and control characters, separated by commas');
}

export const words = textsOf(parseWord, parseWords, {
  takes: 'names separated by commas',
  placeholder: 'names',
});

// A comma list of algorithms, at least one, each once.
function parseAlgorithms(text: string): readonly string[] | Problem {
  const names = splitList(text);
  const refused = names.find((name) => !isSignatureAlgorithm(name));
  if (names.length > 0 && refused === undefined) {
    return [...new Set(names)];
  }
  const why =
    refused?.toLowerCase() === 'none'
      ? ' (a token that nobody has signed proves nothing)'
      : /^hs\d*$/i.test(refused ?? '')
        ? ' (with a shared secret, whoever checks a token can make one)'
        : suggest(refused ?? '', signatureAlgorithms);
  return new Problem(`must be some of ${listOfAlgorithms}${why}`);
}

// No item of an array is a list: it has no comma or space.
export const algorithms = textsOf(
  (text) => parseAlgorithms(text.replaceAll(/[\s,]/g, '?')),
  parseAlgorithms,
  { takes: `some of ${listOfAlgorithms}, separated by commas`, placeholder: 'names' },
);

// RFC 6749, 3.3: printable, without spaces, quotes and backslashes.
const scopeForm = /^[!#-[\]-~]+$/;

function isScope(text: unknown): text is string {
  return typeof text === 'string' && scopeForm.test(text);
}

const operationNames: readonly string[] = operations.map(({ name }) => name);

// Scopes by operation, as a list of `operation=scope`.
function acceptScopes(given: unknown): readonly string[] | Problem {
  if (typeof given !== 'object' || given === null || Array.isArray(given)) {
    return new Problem("must be an object such as { list: 'items.read', create: 'items.write' }");
  }
  const scopes = Object.entries(given).filter(([, scope]: [string, unknown]) => scope !== undefined);
  const unknown = scopes.map(([name]) => name).find((name) => !operationNames.includes(name));
  if (unknown !== undefined) {
    return new Problem(`must have scopes of ${operationNames.join(', ')}${suggest(unknown, operationNames)}`);
  }
  return scopes.every(([, scope]) => isScope(scope))
    ? scopes.map(([name, scope]) => `${name}=${String(scope)}`)
    : new Problem('must have one scope, a text without spaces, quotes and backslashes, for each operation');
}

// A comma list of `operation=scope`, each operation at most once.
function parseScopes(text: string): readonly string[] | Problem {
  const entries = splitList(text);
  const seen = new Set<string>();
  for (const entry of entries) {
    const [, name = '', scope = ''] = /^([^=]*)=(.*)$/.exec(entry) ?? [];
    if (!operationNames.includes(name)) {
      return new Problem(
        `must be a list such as list=items.read,create=items.write of ${operationNames.join(', ')}${suggest(name, operationNames)}`,
      );
    }
    if (!isScope(scope)) {
      return new Problem(
        `must be a list with one scope behind each "=", and ${name} has none that can be one`,
      );
    }
    if (seen.has(name)) {
      return new Problem(`must be a list that has each operation once, and it has ${name} twice`);
    }
    seen.add(name);
  }
  return entries;
}

/** The scope that each operation needs, by its name. */
type Scopes = Readonly<Partial<Record<OperationName, string>>>;

export const scopes: Kind<readonly string[], Scopes> = {
  accept: acceptScopes,
  parse: parseScopes,
  takes: 'a list of operation=scope separated by commas, or nothing for none',
  placeholder: 'list',
};

/** Such a list by operation. */
export function scopesOf(entries: readonly string[]): ReadonlyMap<OperationName, string> {
  return new Map(
    entries.map((entry) => {
      const at = entry.indexOf('=');
      return [entry.slice(0, at) as OperationName, entry.slice(at + 1)];
    }),
  );
}

function parseKeysUrl(text: string): string | Problem {
  if (text === '') {
    return text;
  }
  const url = URL.canParse(text) ? new URL(text) : undefined;
  if (url === undefined || (url.protocol !== 'https:' && url.protocol !== 'http:')) {
    return new Problem('must be an https address, for instance https://login.example.com/keys');
  }
  if (url.username !== '' || url.password !== '' || url.hash !== '') {
    return new Problem('must be an https address without user name, password and fragment');
  }
  // On its way anybody could put in a key of their own.
  return url.protocol === 'https:' || isThisMachine(url.hostname)
    ? url.href
    : new Problem('must be an https address (plain http only for localhost, 127.0.0.1 and [::1])');
}

/** The address of a JSON Web Key Set. */
export const keysUrl = addressOf(parseKeysUrl, {
  takes: 'an https address, http for this machine alone, or nothing for none',
  placeholder: 'url',
  show: withoutQuery,
  isSecret: true,
});

// What the gateway writes itself [D23], what belongs to a connection [RFC 9110, 7.6.1], and what would change how the
// backend reads or answers a call.
const takenFields = [
  'host',
  'expect',
  'authorization',
  'x-request-id',
  'traceparent',
  'tracestate',
  'connection',
  'keep-alive',
  'proxy-authenticate',
  'proxy-authorization',
  'proxy-connection',
  'te',
  'trailer',
  'transfer-encoding',
  'upgrade',
  'accept-encoding',
];
const fieldNameForm = /^[\w!#$%&'*+.^`|~-]{1,100}$/;

function parseIdentityHeader(text: string): string | Problem {
  if (text === '') {
    return text;
  }
  const small = text.toLowerCase();
  if (!fieldNameForm.test(text)) {
    return new Problem('must be the name of a header, for instance x-user');
  }
  return takenFields.includes(small) || small.startsWith('content-')
    ? new Problem('must be the name of a header that has no meaning of its own, for instance x-user')
    : text;
}

/** A header that tells the backend who calls. */
export const identityHeader = textOf(parseIdentityHeader, {
  takes: 'the name of a header, or nothing for none',
  placeholder: 'name',
});
