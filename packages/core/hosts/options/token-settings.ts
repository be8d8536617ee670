// What the settings of tokens may be, each by itself and all together [D41, D42, D44, D48]. The rows are in settings.ts.

import { isSignatureAlgorithm, signatureAlgorithms } from '../../guards/tokens/signature-algorithms.ts';
import { operations, type OperationName } from '../../operations.ts';
import { suggest } from './similar.ts';
import { Problem } from './problem.ts';
import { splitList } from '../../text/lists.ts';
import { isThisMachine } from '../../text/addresses.ts';

const listOfAlgorithms = signatureAlgorithms.join(', ');

/** A text without white space or control characters, as issuers, audiences and names of claims are; empty for none. */
export function parseWord(text: string): string | Problem {
  return /^[^\s\p{C}]*$/u.test(text) ? text : new Problem('a text without spaces and control characters');
}

/** The same, but not empty. */
export function parseClaimName(text: string): string | Problem {
  return text === '' ? new Problem('the name of a claim') : parseWord(text);
}

/** A comma list of such texts. */
export function parseWords(text: string): readonly string[] | Problem {
  const words = splitList(text);
  return words.find((word) => parseWord(word) instanceof Problem) === undefined
    ? words
    : new Problem('texts without spaces and control characters, separated by commas');
}

/** A comma list of algorithms, at least one, each once. */
export function parseAlgorithms(text: string): readonly string[] | Problem {
  const names = splitList(text);
  const refused = names.find((name) => !isSignatureAlgorithm(name));
  if (names.length > 0 && refused === undefined) {
    return [...new Set(names)];
  }
  if (refused?.toLowerCase() === 'none') {
    return new Problem(`some of ${listOfAlgorithms} (a token that nobody has signed proves nothing)`);
  }
  return refused !== undefined && /^hs\d*$/i.test(refused)
    ? new Problem(`some of ${listOfAlgorithms} (with a shared secret, whoever checks a token can make one)`)
    : new Problem(
        `some of ${listOfAlgorithms}${refused === undefined ? '' : suggest(refused, signatureAlgorithms)}`,
      );
}

// RFC 6749, 3.3: printable, without spaces, quotes and backslashes.
const scopeForm = /^[!#-[\]-~]+$/;

export function isScope(text: unknown): text is string {
  return typeof text === 'string' && scopeForm.test(text);
}

/** A comma list of `operation=scope`, each operation at most once. */
export function parseScopes(text: string): readonly string[] | Problem {
  const entries = splitList(text);
  const names: readonly string[] = operations.map(({ name }) => name);
  const seen = new Set<string>();
  for (const entry of entries) {
    const [, name = '', scope = ''] = /^([^=]*)=(.*)$/.exec(entry) ?? [];
    if (!names.includes(name)) {
      return new Problem(
        `a list such as list=items.read,create=items.write of ${names.join(', ')}${suggest(name, names)}`,
      );
    }
    if (!isScope(scope)) {
      return new Problem(`a list with one scope behind each "=", and ${name} has none that can be one`);
    }
    if (seen.has(name)) {
      return new Problem(`a list that has each operation once, and it has ${name} twice`);
    }
    seen.add(name);
  }
  return entries;
}

/** Such a list by operation. */
export function scopesOf(entries: readonly string[]): ReadonlyMap<OperationName, string> {
  return new Map(
    entries.map((entry) => {
      const at = entry.indexOf('=');
      return [entry.slice(0, at) as OperationName, entry.slice(at + 1)];
    }),
  );
}

/** An address of a JSON Web Key Set, or empty for none [D44]. */
export function parseKeysUrl(text: string): string | Problem {
  if (text === '') {
    return text;
  }
  const url = URL.canParse(text) ? new URL(text) : undefined;
  if (url === undefined || (url.protocol !== 'https:' && url.protocol !== 'http:')) {
    return new Problem('an https address, for instance https://login.example.com/keys');
  }
  if (url.username !== '' || url.password !== '' || url.hash !== '') {
    return new Problem('an https address without user name, password and fragment');
  }
  // On its way anybody could put in a key of their own.
  return url.protocol === 'https:' || isThisMachine(url.hostname)
    ? url.href
    : new Problem('an https address (plain http only for localhost, 127.0.0.1 and [::1])');
}

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

/** The name of a header that tells the backend who calls, or empty for none [D48]. */
export function parseIdentityHeader(text: string): string | Problem {
  if (text === '') {
    return text;
  }
  const small = text.toLowerCase();
  if (!fieldNameForm.test(text)) {
    return new Problem('the name of a header, for instance x-user');
  }
  return takenFields.includes(small) || small.startsWith('content-')
    ? new Problem('the name of a header that has no meaning of its own, for instance x-user')
    : text;
}

/** The settings of tokens, in the order of the documents. */
const tokenSettingNames = [
  'authIssuer',
  'authAudience',
  'authJwksUrl',
  'authJwksFile',
  'authAlgorithms',
  'authClockSkewMs',
  'authTokenType',
  'authScopes',
  'authScopeClaim',
  'authJwksRefreshMs',
  'authJwksStaleMs',
  'backendIdentityHeader',
] as const;

type TokenSettingName = (typeof tokenSettingNames)[number];

interface TokenSettings {
  readonly authIssuer?: string;
  readonly authAudience?: readonly string[];
  readonly authJwksUrl?: string;
  readonly authJwksFile?: string;
  readonly authJwksRefreshMs?: number;
  readonly authJwksStaleMs?: number;
}

/**
 * What is wrong with the settings of tokens as a whole. A setting whose value was refused is missing in `settings`: it
 * has its problem already. `isGiven`: somebody has set it; `nameOf` has its name for people.
 */
export function findTokenProblems(
  settings: TokenSettings,
  isGiven: (name: TokenSettingName) => boolean,
  nameOf: (name: TokenSettingName) => string,
): string[] {
  const { authIssuer, authAudience, authJwksRefreshMs = 0, authJwksStaleMs = Infinity } = settings;
  const issuer = nameOf('authIssuer');
  const url = nameOf('authJwksUrl');
  const file = nameOf('authJwksFile');
  if (authIssuer === '') {
    return tokenSettingNames
      .filter((name) => name !== 'authIssuer' && isGiven(name))
      .map((name) => `${nameOf(name)} is set, but tokens are off: ${issuer} is not set`);
  }
  const hasUrl = settings.authJwksUrl !== '';
  const hasFile = settings.authJwksFile !== '';
  return [
    ...(authAudience?.length === 0
      ? [`${issuer} is set, but ${nameOf('authAudience')} is not: a token for anybody else would do`]
      : []),
    ...(hasUrl || hasFile ? [] : [`${issuer} is set, but neither ${url} nor ${file}: there are no keys`]),
    ...(hasUrl && hasFile ? [`${url} and ${file} are both set: the keys come from one place`] : []),
    ...(isGiven('authScopeClaim') && !isGiven('authScopes')
      ? [`${nameOf('authScopeClaim')} is set, but ${nameOf('authScopes')} is not: no scope is looked for`]
      : []),
    ...(authJwksStaleMs < authJwksRefreshMs
      ? [
          `${nameOf('authJwksStaleMs')} is below ${nameOf('authJwksRefreshMs')}: keys would cease to count before the next fetch`,
        ]
      : []),
  ];
}
