// The kinds of values that settings have. Each reads a text, says for people what it takes, and knows what of a value may be
// shown. No kind knows a setting.

import { isIPv6 } from 'node:net';
import { availableParallelism } from 'node:os';

import { parseAddressRanges } from '../../core/admission/client-address.ts';
import { parseOrigins } from '../../core/hosts/options/cors-options.ts';
import { parseHostNames } from '../../core/admission/host-names.ts';
import { backendUrlExample, wishesForBackendUrl } from '../../core/hosts/options/accepted-values.ts';
import { Problem } from '../../core/hosts/options/problem.ts';
import { joinWithOr } from '../../core/hosts/options/similar.ts';
import { parseExporterHeaders } from './exporter-headers.ts';

export interface Kind<Value> {
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

export type Unit = 'port' | 'bytes' | 'ms' | 's' | 'calls' | 'connections';

const unitWords: ReadonlyMap<Unit, string> = new Map([
  ['ms', ' (milliseconds)'],
  ['s', ' (seconds)'],
  ['bytes', ' (bytes)'],
]);

function parseInteger(text: string): number {
  return /^\d{1,15}$/.test(text) ? Number(text) : NaN;
}

export function integer(unit: Unit, min: number, max: number): Kind<number> {
  const problem = new Problem(`a whole number from ${min} to ${max}${unitWords.get(unit) ?? ''}`);
  return {
    parse: (text) => {
      const value = parseInteger(text);
      return value >= min && value <= max ? value : problem;
    },
    takes: `${min} to ${max}`,
    placeholder: unit === 'calls' || unit === 'connections' ? 'number' : unit,
    ...(unit !== 'port' && { unit }),
  };
}

/** From 1 to `max`, or `auto` for one a core. */
export function count(max: number): Kind<number> {
  return {
    parse: (text) => {
      const value = text === 'auto' ? availableParallelism() : parseInteger(text);
      return value >= 1 && value <= max ? value : new Problem(`a whole number from 1 to ${max}, or auto`);
    },
    takes: `1 to ${max} or auto`,
    placeholder: 'number|auto',
  };
}

export const ratio: Kind<number> = {
  parse: (text) => {
    const value = /^(?:\d{1,3}(?:\.\d{0,20})?|\.\d{1,20})$/.test(text) ? Number(text) : NaN;
    return value <= 1 ? value : new Problem('a number from 0 to 1');
  },
  takes: 'a number from 0 to 1',
  placeholder: 'ratio',
};

export function choice<const Choice extends string>(...choices: readonly Choice[]): Kind<Choice> {
  return {
    parse: (text) => choices.find((each) => each === text) ?? new Problem(`one of ${choices.join(', ')}`),
    takes: joinWithOr(choices),
    placeholder: 'word',
    choices,
  };
}

const booleans: ReadonlyMap<string, boolean> = new Map([
  ['true', true],
  ['on', true],
  ['1', true],
  ['false', false],
  ['off', false],
  ['0', false],
]);

export const boolean: Kind<boolean> = {
  parse: (text) => booleans.get(text) ?? new Problem('true or false (or on, off, 1, 0)'),
  takes: 'true or false; as a flag alone it is true',
  placeholder: 'true|false',
  isSwitch: true,
};

function parseUrl(text: string, example: string): URL | Problem {
  const wishes = wishesForBackendUrl(text);
  return wishes.length > 0 ? new Problem(`${wishes.join(' and ')}, ${example}`) : new URL(text);
}

export const backendAddress: Kind<URL> = {
  parse: (text) => parseUrl(text, backendUrlExample),
  takes: 'an http or https address',
  placeholder: 'url',
  isSecret: true,
  // Whatever the checks let through, credentials and query are not among it.
  show: (text) => {
    const { origin, pathname } = new URL(text);
    return origin + pathname;
  },
};

export const optionalAddress: Kind<string> = {
  parse: (text) => {
    const url = text === '' ? undefined : parseUrl(text, 'for instance http://localhost:4318');
    return url instanceof URL ? url.href : (url ?? '');
  },
  takes: 'an http or https address, or nothing for none',
  placeholder: 'url',
  isSecret: true,
};

/** For addresses whose query may hold a secret: what stands before it. */
export function withoutQuery(address: string): string {
  return address.replace(/\?.*/s, '');
}

export const secretHeaders: Kind<string> = {
  parse: (text) =>
    parseExporterHeaders(text) === undefined
      ? new Problem('name=value separated by commas, each percent-encoded where it has more than plain text')
      : text,
  takes: '`name=value` separated by commas, or nothing for none',
  placeholder: 'list',
  isSecret: true,
  show: (text) => (text === '' ? '' : '(not shown)'),
};

export const host: Kind<string> = {
  // An address in brackets is what URLs have; the platform wants it bare.
  parse: (text) =>
    /^[A-Za-z0-9._-]+$/.test(text) || isIPv6(text)
      ? text
      : new Problem('a host name or an IP address, without brackets, port and http://'),
  takes: 'a host name or IP address',
  placeholder: 'address',
};

// A host name, and no address: not digits alone behind the last dot.
const serverNameForm = /^(?:[\w-]+\.)*[\w-]*[A-Za-z_-][\w-]*$/;

export const serverName: Kind<string> = {
  parse: (text) =>
    text === '' || serverNameForm.test(text) ? text : new Problem('a host name, without port and http://'),
  takes: 'a host name, or nothing for that of the address',
  placeholder: 'name',
};

export const hostNames: Kind<readonly string[]> = {
  parse: (text) => parseHostNames(text) ?? new Problem('host names separated by commas, without ports'),
  takes: 'host names separated by commas, or nothing for none',
  placeholder: 'names',
};

export const addressRanges: Kind<readonly string[]> = {
  parse: (text) =>
    parseAddressRanges(text) ??
    new Problem('IP addresses and ranges separated by commas, for instance 10.0.0.0/8,192.168.1.7'),
  takes: 'IP addresses and ranges separated by commas, or nothing for none',
  placeholder: 'ranges',
};

export const origins: Kind<readonly string[]> = {
  parse: (text) =>
    parseOrigins(text) ??
    new Problem(
      'origins as browsers send them, separated by commas, for instance https://app.example.com,http://localhost:5173: in small letters, without path, slash at the end, user name and the port that the scheme has anyway; or * alone',
    ),
  takes: 'origins separated by commas, `*` for any, or nothing for none',
  placeholder: 'origins',
};

const nameLengthMax = 64;

export const name: Kind<string> = {
  // On one line, and nothing that turns the letters after it round.
  parse: (text) =>
    text.length <= nameLengthMax && !/[\p{C}\p{Zl}\p{Zp}]/u.test(text)
      ? text
      : new Problem(`at most ${nameLengthMax} characters, none of them a control character`),
  takes: `up to ${nameLengthMax} characters`,
  placeholder: 'name',
};

export const nameOrMachine: Kind<string> = {
  ...name,
  takes: `${name.takes}, or nothing for the name of the machine`,
};

export const file: Kind<string> = {
  parse: (text) => text,
  takes: 'a file name, or nothing for none',
  placeholder: 'file',
};

export const database: Kind<string> = {
  // SQLite takes an empty name for a database that is gone at the end.
  parse: (text) => (text.trim() === '' ? new Problem('a file name or :memory:') : text),
  takes: 'a file name or :memory:',
  placeholder: 'file',
};
