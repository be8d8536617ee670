// Tokens, rate limit and identity as options of a host: what each is, and whether it can be [D41 to D48]. The names are those
// of the command's settings, and so are defaults and bounds. Types here are whole without any library's.

import { limitsOf, type LimitName } from '../../call/limits.ts';
import { operations, type OperationName } from '../../operations.ts';
import { suggest } from './similar.ts';
import type { GuardSettings } from '../../guards/guard-settings.ts';
import { Problem } from './problem.ts';
import { findRateProblems, parseRateText, parseRedisUrl } from './rate-settings.ts';
import {
  findTokenProblems,
  isScope,
  parseAlgorithms,
  parseClaimName,
  parseIdentityHeader,
  parseKeysUrl,
  parseWord,
} from './token-settings.ts';

export interface GuardOptions {
  /**
   * Who issues the tokens, as their claim `iss` has it to the letter; turns tokens on: every operation needs one [D41].
   * Default: none is wanted.
   */
  readonly authIssuer?: string;
  /** For whom tokens must be: one of these must be in the claim `aud`. Required with `authIssuer`. */
  readonly authAudience?: readonly string[];
  /** Where the issuer's keys are, as a JSON Web Key Set: what its discovery document calls `jwks_uri` [D44]. */
  readonly authJwksUrl?: string | URL;
  /** A file with them instead. */
  readonly authJwksFile?: string;
  /** Algorithms that tokens may be signed with. Default: `['RS256', 'ES256']`. */
  readonly authAlgorithms?: readonly string[];
  /** How far the issuer's clock may be from ours, in milliseconds. Default 30,000. */
  readonly authClockSkewMs?: number;
  /** What the header `typ` of a token must be. Default: `any`. */
  readonly authTokenType?: 'any' | 'at+jwt';
  /** The scope that each operation needs; one that is not named needs only a valid token [D42]. Default: none. */
  readonly authScopes?: Readonly<Partial<Record<OperationName, string>>>;
  /** The claim with a token's scopes. Default: `scope`. */
  readonly authScopeClaim?: string;
  /** From one fetch of the keys to the next, in milliseconds. Default 300,000. */
  readonly authJwksRefreshMs?: number;
  /** For how long keys count that cannot be fetched anew, in milliseconds. Default 86,400,000. */
  readonly authJwksStaleMs?: number;
  /** Name of the header that tells the backend who calls: the token's claim `sub` [D48]. Default: it is not told. */
  readonly backendIdentityHeader?: string;
  /** Requests that each client may make in a window, such as `100/60s` [D46]. Default: any number. */
  readonly rateLimit?: string;
  /** What a client is: its address (default), or whom its token names. */
  readonly rateLimitKey?: 'address' | 'identity';
  /** A Redis or Valkey that counts for all gateways [D47]. Default: each counts by itself. */
  readonly rateLimitRedisUrl?: string | URL;
  /** What counts while it does not answer: `local` (default), `allow` or `deny`. */
  readonly rateLimitFallback?: 'local' | 'allow' | 'deny';
}

type GuardOptionName = keyof GuardOptions;

// What is wrong with a value that is given, as it stands behind the option's name; undefined for nothing.
type Check = (value: unknown) => string | undefined;

const checks: Readonly<Record<GuardOptionName, Check>> = {
  authIssuer: ofText(parseWord),
  authAudience: ofTexts(parseWord),
  authJwksUrl: ofAddress(parseKeysUrl),
  authJwksFile: ofText((text) => text),
  authAlgorithms: ofTexts((text) => parseAlgorithms(text.replaceAll(/[\s,]/g, '?'))),
  // Its bounds are those of a limit, which every host checks.
  authClockSkewMs: () => undefined,
  authTokenType: ofChoice('any', 'at+jwt'),
  authScopes: checkScopes,
  authScopeClaim: ofText(parseClaimName),
  authJwksRefreshMs: () => undefined,
  authJwksStaleMs: () => undefined,
  backendIdentityHeader: ofText(parseIdentityHeader),
  rateLimit: ofText(parseRateText),
  rateLimitKey: ofChoice('address', 'identity'),
  rateLimitRedisUrl: ofAddress(parseRedisUrl),
  rateLimitFallback: ofChoice('local', 'allow', 'deny'),
};

/** The names of these options, for whoever lists what can be given. */
export const guardOptionNames = Object.keys(checks) as readonly GuardOptionName[];

/** What is wrong with them, each by itself and all together. Never has a part of a value, which may be a secret. */
export function findGuardProblems(options: GuardOptions): string[] {
  const isGiven = (name: GuardOptionName): boolean => options[name] !== undefined;
  const wrong = new Map<GuardOptionName, string>();
  for (const name of guardOptionNames.filter(isGiven)) {
    const problem = checks[name](options[name]);
    if (problem !== undefined) {
      wrong.set(name, `${name} ${problem}`);
    }
  }
  // What is wrong by itself is left out: it has its problem.
  const settings = Object.fromEntries(
    Object.entries(readGuardOptions(options)).filter(([name]) => !wrong.has(name as GuardOptionName)),
  ) as Partial<GuardSettings>;
  const nameOf = (name: GuardOptionName): string => name;
  return [
    ...wrong.values(),
    ...findTokenProblems(settings, isGiven, nameOf),
    ...findRateProblems(settings, isGiven, nameOf),
  ];
}

/** What guards are made of, from options that have no problem. */
export function readGuardOptions(options: GuardOptions): GuardSettings {
  return {
    authIssuer: options.authIssuer ?? '',
    authAudience: options.authAudience ?? [],
    authJwksUrl: addressOf(options.authJwksUrl),
    authJwksFile: options.authJwksFile ?? '',
    authAlgorithms: options.authAlgorithms ?? ['RS256', 'ES256'],
    authTokenType: options.authTokenType ?? 'any',
    authScopes: new Map(scopesIn(options.authScopes ?? {}) as [OperationName, string][]),
    authScopeClaim: options.authScopeClaim ?? 'scope',
    ...limitsOf(options, tokenLimits),
    rateLimit: options.rateLimit ?? '',
    rateLimitKey: options.rateLimitKey ?? 'address',
    rateLimitRedisUrl: addressOf(options.rateLimitRedisUrl),
    rateLimitFallback: options.rateLimitFallback ?? 'local',
  };
}

function addressOf(value: string | URL | undefined): string {
  return value instanceof URL ? value.href : (value ?? '');
}

const tokenLimits = [
  'authClockSkewMs',
  'authJwksRefreshMs',
  'authJwksStaleMs',
] as const satisfies readonly LimitName[];

type Scopes = NonNullable<GuardOptions['authScopes']>;

function scopesIn(scopes: Scopes): readonly (readonly [string, unknown])[] {
  return Object.entries(scopes).filter(([, scope]: readonly [string, unknown]) => scope !== undefined);
}

/** The scopes as the setting has them: `read=items.read`. */
export function scopeEntries(scopes: Scopes): string[] {
  return scopesIn(scopes).map(([operation, scope]) => `${operation}=${String(scope)}`);
}

const operationNames: readonly string[] = operations.map(({ name }) => name);

function checkScopes(value: unknown): string | undefined {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) {
    return "must be an object such as { list: 'items.read', create: 'items.write' }";
  }
  const scopes = scopesIn(value);
  const unknown = scopes.map(([name]) => name).find((name) => !operationNames.includes(name));
  if (unknown !== undefined) {
    return `must have scopes of ${operationNames.join(', ')}${suggest(unknown, operationNames)}`;
  }
  return scopes.every(([, scope]) => isScope(scope))
    ? undefined
    : 'must have one scope, a text without spaces, quotes and backslashes, for each operation';
}

// An empty text would be none for a setting. As an option it is a variable that was not there: it must not turn off a guard.
function ofText(parse: (text: string) => unknown): Check {
  return (value) =>
    typeof value === 'string' && value !== ''
      ? problemOf(parse(value))
      : 'must be a text, and not empty (leave it out for none)';
}

function ofAddress(parse: (text: string) => unknown): Check {
  const check = ofText(parse);
  return (value) => check(value instanceof URL ? value.href : value);
}

function ofTexts(parse: (text: string) => unknown): Check {
  return (value) => {
    const texts: readonly unknown[] = Array.isArray(value) ? value : [];
    return texts.length > 0 && texts.every((each) => typeof each === 'string' && each !== '')
      ? texts.map((each) => problemOf(parse(each as string))).find((each) => each !== undefined)
      : 'must be an array of texts, none of them empty, with at least one';
  };
}

function ofChoice(...choices: readonly string[]): Check {
  return (value) =>
    choices.includes(value as string)
      ? undefined
      : `must be ${choices.map((each) => `'${each}'`).join(' or ')}`;
}

function problemOf(parsed: unknown): string | undefined {
  return parsed instanceof Problem ? `must be ${parsed.expectation}` : undefined;
}
