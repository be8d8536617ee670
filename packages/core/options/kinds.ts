// The kinds of option values. A kind accepts a value from code, parses a string (a flag, a variable, a line of a file),
// describes the valid values and hides secrets.

import { parseHostNames } from '../admission/host-names.ts';
import { splitList } from '../text/lists.ts';
import { parseBackendUrl } from './accepted-values.ts';
import { parseAddressRanges } from './address-ranges.ts';
import { Problem } from './problem.ts';
import { joinWithOr } from './similar.ts';

/**
 * The kind of an option's value. Code passes a `Given` to `accept`; `parse` reads the text of a setting. Both return a
 * `Value` or a `Problem`.
 */
export interface Kind<Value, Given = Value> {
  readonly accept: (given: Given) => Value | Problem;
  readonly parse: (text: string) => Value | Problem;
  /** The valid values, for help and documents: `0 to 65535`, `leading or whole`. */
  readonly takes: string;
  /** The word that stands for the value in the help: `port` in `--port [port]`. */
  readonly placeholder: string;
  readonly unit?: string;
  /** The valid values, if they are a few fixed words. */
  readonly choices?: readonly string[];
  /** True if the flag may be given without a value. */
  readonly isSwitch?: boolean;
  /** True if a refused value is not shown, because it may contain a secret. */
  readonly isSecret?: boolean;
  /** Returns the part of an accepted value that may be shown; default: the whole value. */
  readonly show?: (text: string) => string;
}

type TextTraits = Pick<Kind<unknown>, 'takes' | 'placeholder' | 'isSecret' | 'show'>;

/** A value that has no text, such as a function. Only code can give it. */
export function onlyInCode<Value, Given = Value>(accept: Kind<Value, Given>['accept']): Kind<Value, Given> {
  return { accept, parse: () => new Problem('cannot be given as text'), takes: 'nothing', placeholder: 'value' };
}

type Unit = 'port' | 'bytes' | 'ms' | 's' | 'calls' | 'connections';

const unitWords: ReadonlyMap<Unit, string> = new Map([
  ['ms', ' (milliseconds)'],
  ['s', ' (seconds)'],
  ['bytes', ' (bytes)'],
]);

/** The longest timeout of Node's timers: 2^31 - 1 ms, about 24.8 days. */
export const msMax = 2_147_483_647;

/** Parses a whole number of up to 15 digits; NaN for anything else. */
export function parseInteger(text: string): number {
  return /^\d{1,15}$/.test(text) ? Number(text) : NaN;
}

export function integer(unit: Unit, min: number, max: number): Kind<number> {
  const requirement = `must be a whole number from ${min} to ${max}`;
  const accept = (given: unknown, words = ''): number | Problem =>
    typeof given === 'number' && Number.isInteger(given) && given >= min && given <= max
      ? given
      : new Problem(requirement + words);
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

/** One of `choices`, which are in lower case. A setting may have them in any case [D32]. */
export function choice<const Choice extends string>(...choices: readonly Choice[]): Kind<Choice> {
  const find = (given: unknown): Choice | undefined => choices.find((each) => each === given);
  return {
    accept: (given) => find(given) ?? new Problem(`must be ${choices.map((each) => `'${each}'`).join(' or ')}`),
    parse: (text) => find(text.toLowerCase()) ?? new Problem(`must be one of ${choices.join(', ')}`),
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
  parse: (text) => booleans.get(text.toLowerCase()) ?? new Problem('must be true or false (or on, off, 1, 0)'),
  takes: 'true or false; the flag alone means true',
  placeholder: 'true|false',
  isSwitch: true,
};

function isText(given: unknown): given is string {
  return typeof given === 'string' && given !== '';
}

/**
 * A string, checked by `parse`. An empty setting usually turns its feature off. An empty option in code is an error,
 * because it most likely comes from an unset variable, which must not turn off a guard.
 */
export function textOf(parse: (text: string) => string | Problem, traits: TextTraits): Kind<string> {
  return {
    accept: (given: unknown) =>
      isText(given) ? parse(given) : new Problem('must be a non-empty string (to set no value, leave out the option)'),
    parse,
    ...traits,
  };
}

/** Like `textOf`, for an address; accepts a `URL` too. */
export function addressOf(parse: (text: string) => string | Problem, traits: TextTraits): Kind<string, string | URL> {
  const kind = textOf(parse, traits);
  return { ...kind, accept: (given) => kind.accept(given instanceof URL ? given.href : given) };
}

/**
 * Returns `parse` with a check of a comma-separated list: an empty entry is refused, because a value may be missing there
 * [D32]. `shows`: the message may repeat the list.
 */
export function parserOfList<Value>(
  parse: (text: string) => Value | Problem,
  shows = true,
): (text: string) => Value | Problem {
  return (text) => {
    const value = parse(text);
    const entries = splitList(text);
    if (value instanceof Problem || text.trim() === '' || entries.length === text.split(',').length) return value;
    const advice = shows && entries.length > 0 ? `write ${entries.join()}` : 'remove the extra comma';
    return new Problem(`must be a list without empty entries: ${advice}`);
  };
}

/** A list of strings: a non-empty array whose strings `parseOne` checks, or comma-separated text for `parse`. */
export function textsOf(
  parseOne: (text: string) => unknown,
  parse: (text: string) => readonly string[] | Problem,
  traits: TextTraits,
): Kind<readonly string[]> {
  return {
    accept: (given: unknown) =>
      Array.isArray(given) && given.length > 0 && given.every(isText)
        ? (given.map(parseOne).find((each) => each instanceof Problem) ?? given)
        : new Problem('must be a non-empty array of non-empty strings'),
    parse: parserOfList(parse),
    ...traits,
  };
}

/** A list that may be empty: an array that passes `isList`, or comma-separated text. `parse` checks both. */
export function listOf(
  isList: (given: readonly unknown[]) => boolean,
  requirement: string,
  parse: (text: string, requirement: string) => readonly string[] | Problem | undefined,
  textRequirement: string,
  traits: TextTraits,
): Kind<readonly string[]> {
  const parser = (problem: string) => parserOfList((text) => parse(text, problem) ?? new Problem(problem));
  return {
    accept: (given: unknown) =>
      Array.isArray(given) && isList(given) ? parser(requirement)(given.join()) : new Problem(requirement),
    parse: parser(textRequirement),
    ...traits,
  };
}

export const hostNames = listOf(
  (given) => given.every((each) => typeof each === 'string' && parseHostNames(each)?.length === 1),
  'must be an array of host names without ports',
  parseHostNames,
  'must be host names separated by commas, without ports',
  { takes: 'host names separated by commas, or empty for no list', placeholder: 'names' },
);

export const addressRanges = listOf(
  (given) => given.every((each) => typeof each === 'string' && splitList(each).length === 1),
  'must be an array of IP addresses and ranges such as 10.0.0.0/8',
  parseAddressRanges,
  'must be IP addresses and ranges separated by commas, for instance 10.0.0.0/8,192.168.1.7',
  { takes: 'IP addresses and ranges separated by commas, or empty for no addresses', placeholder: 'ranges' },
);

export const backendAddress: Kind<URL, string | URL> = {
  accept: (given) => parseBackendUrl(String(given)),
  parse: parseBackendUrl,
  takes: 'an http or https address',
  placeholder: 'url',
  isSecret: true,
  // Leaves out credentials and query, in case the checks have missed them.
  show: (each) => {
    const { origin, pathname } = new URL(each);
    return origin + pathname;
  },
};

export const file = textOf((name) => name, { takes: 'a file name, or empty for no file', placeholder: 'file' });
