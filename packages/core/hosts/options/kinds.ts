// The kinds of values that options have. A kind accepts a value of a program, parses a text (a flag, a variable, a line of a
// file), describes what is valid, and hides what must not be shown. No kind knows an option.

import { parseAddressRanges, isAddressRange } from '../../admission/client-address.ts';
import { parseHostNames } from '../../admission/host-names.ts';
import { parseBackendUrl } from './accepted-values.ts';
import { Problem } from './problem.ts';
import { joinWithOr } from './similar.ts';

/** Accepts a value that a program gives. */
export interface ValueKind<Value, Given = Value> {
  readonly accept: (given: Given) => Value | Problem;
}

/** Parses a text. */
export interface TextKind<Value> {
  readonly parse: (text: string) => Value | Problem;
  /** What it takes, for the help and the documents: `0 to 65535`, `leading or whole`. */
  readonly takes: string;
  /** What stands for a value behind its flag in the help: `port`. */
  readonly placeholder: string;
  readonly unit?: string;
  /** The words of which it takes one. */
  readonly choices?: readonly string[];
  /** Its flag may stand alone, without a value. */
  readonly isSwitch?: boolean;
  /** A value that is refused may have a secret in it, and is not shown. */
  readonly isSecret?: boolean;
  /** What may be shown of a value in force, as text; default: all of it. */
  readonly show?: (text: string) => string;
}

/** For settings and options alike: `Given` is what a program gives, `Value` the result, of a text too. */
export interface Kind<Value, Given = Value> extends ValueKind<Value, Given>, TextKind<Value> {}

/** How a kind describes its texts, and how much of them it shows. */
type TextTraits = Pick<TextKind<unknown>, 'takes' | 'placeholder' | 'isSecret' | 'show'>;

type Unit = 'port' | 'bytes' | 'ms' | 's' | 'calls' | 'connections';

const unitWords: ReadonlyMap<Unit, string> = new Map([
  ['ms', ' (milliseconds)'],
  ['s', ' (seconds)'],
  ['bytes', ' (bytes)'],
]);

/** The longest time that a timer of the platform can hold, 2^31 - 1 ms: about 24.8 days. */
export const msMax = 2_147_483_647;

/** NaN for a text that is not a whole number. */
export function parseInteger(text: string): number {
  return /^\d{1,15}$/.test(text) ? Number(text) : NaN;
}

export function integer(unit: Unit, min: number, max: number): Kind<number> {
  const wish = `must be a whole number from ${min} to ${max}`;
  const accept = (given: unknown, words = ''): number | Problem =>
    typeof given === 'number' && Number.isInteger(given) && given >= min && given <= max
      ? given
      : new Problem(wish + words);
  return {
    accept: (given) => accept(given),
    parse: (text) => accept(parseInteger(text), unitWords.get(unit)),
    takes: `${min} to ${max}`,
    placeholder: unit === 'calls' || unit === 'connections' ? 'number' : unit,
    ...(unit !== 'port' && { unit }),
  };
}

/** A time of at least 1 ms. */
export const milliseconds = integer('ms', 1, msMax);

export function choice<const Choice extends string>(...choices: readonly Choice[]): Kind<Choice> {
  const find = (given: unknown): Choice | undefined => choices.find((each) => each === given);
  return {
    accept: (given) =>
      find(given) ?? new Problem(`must be ${choices.map((each) => `'${each}'`).join(' or ')}`),
    parse: (text) => find(text) ?? new Problem(`must be one of ${choices.join(', ')}`),
    takes: joinWithOr(choices),
    placeholder: 'word',
    choices,
  };
}

const booleans: ReadonlyMap<string, boolean> = new Map(
  Object.entries({ true: true, on: true, 1: true, false: false, off: false, 0: false }),
);

export const boolean: Kind<boolean> = {
  accept: (given: unknown) => (typeof given === 'boolean' ? given : new Problem('must be true or false')),
  parse: (text) => booleans.get(text) ?? new Problem('must be true or false (or on, off, 1, 0)'),
  takes: 'true or false; as a flag alone it is true',
  placeholder: 'true|false',
  isSwitch: true,
};

function isText(given: unknown): given is string {
  return typeof given === 'string' && given !== '';
}

/**
 * A text as `parse` reads it. An empty setting is off. An empty option is an error: most often it is a variable that was not
 * set, and it must not turn off a guard.
 */
export function textOf(parse: (text: string) => string | Problem, traits: TextTraits): Kind<string> {
  return {
    accept: (given: unknown) =>
      isText(given) ? parse(given) : new Problem('must be a text, and not empty (leave it out for none)'),
    parse,
    ...traits,
  };
}

/** The same for an address. */
export function addressOf(
  parse: (text: string) => string | Problem,
  traits: TextTraits,
): Kind<string, string | URL> {
  const kind = textOf(parse, traits);
  return { ...kind, accept: (given) => kind.accept(given instanceof URL ? given.href : given) };
}

/** Texts, at least one, each as `parseOne` reads it; `parse` reads them all from a comma list. */
export function textsOf(
  parseOne: (text: string) => unknown,
  parse: (text: string) => readonly string[] | Problem,
  traits: TextTraits,
): Kind<readonly string[]> {
  return {
    accept: (given: unknown) =>
      Array.isArray(given) && given.length > 0 && given.every(isText)
        ? (given.map(parseOne).find((each) => each instanceof Problem) ?? given)
        : new Problem('must be an array of texts, none of them empty, with at least one'),
    parse,
    ...traits,
  };
}

/** A list that may be empty: an array that `isList` holds for, or what `parse` reads from a comma list. */
export function listOf(
  isList: (given: readonly unknown[]) => boolean,
  wish: string,
  parse: (text: string) => readonly string[] | undefined,
  textWish: string,
  traits: TextTraits,
): Kind<readonly string[]> {
  return {
    accept: (given: unknown) =>
      (Array.isArray(given) && isList(given) ? parse(given.join()) : undefined) ?? new Problem(wish),
    parse: (each) => parse(each) ?? new Problem(textWish),
    ...traits,
  };
}

export const hostNames = listOf(
  (given) => given.every((each) => typeof each === 'string' && parseHostNames(each)?.length === 1),
  'must be an array of host names without ports',
  parseHostNames,
  'must be host names separated by commas, without ports',
  { takes: 'host names separated by commas, or nothing for none', placeholder: 'names' },
);

export const addressRanges = listOf(
  (given) => given.every(isAddressRange),
  'must be a list of IP addresses and ranges such as 10.0.0.0/8',
  parseAddressRanges,
  'must be IP addresses and ranges separated by commas, for instance 10.0.0.0/8,192.168.1.7',
  { takes: 'IP addresses and ranges separated by commas, or nothing for none', placeholder: 'ranges' },
);

export const backendAddress: Kind<URL, string | URL> = {
  accept: (given) => parseBackendUrl(String(given)),
  parse: parseBackendUrl,
  takes: 'an http or https address',
  placeholder: 'url',
  isSecret: true,
  // Whatever the checks let through, credentials and query are not among it.
  show: (each) => {
    const { origin, pathname } = new URL(each);
    return origin + pathname;
  },
};

export const file = textOf((name) => name, {
  takes: 'a file name, or nothing for none',
  placeholder: 'file',
});
