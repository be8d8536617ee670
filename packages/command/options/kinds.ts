// The kinds of values that only settings of the command have: they read a text, and take no value of a program.

import { isIPv6 } from 'node:net';
import { availableParallelism } from 'node:os';

import { parseBackendUrl } from '../../core/hosts/options/accepted-values.ts';
import { integer, parseInteger, type TextKind } from '../../core/hosts/options/kinds.ts';
import { Problem } from '../../core/hosts/options/problem.ts';
import { parseExporterHeaders } from './exporter-headers.ts';

export const port = integer('port', 0, 65_535);

/** From 1 to `max`, or `auto` for one a core. */
export function count(max: number): TextKind<number> {
  return {
    parse: (text) => {
      const value = text === 'auto' ? availableParallelism() : parseInteger(text);
      return value >= 1 && value <= max
        ? value
        : new Problem(`must be a whole number from 1 to ${max}, or auto`);
    },
    takes: `1 to ${max} or auto`,
    placeholder: 'number|auto',
  };
}

export const ratio: TextKind<number> = {
  parse: (text) => {
    const value = /^(?:\d{1,3}(?:\.\d{0,20})?|\.\d{1,20})$/.test(text) ? Number(text) : NaN;
    return value <= 1 ? value : new Problem('must be a number from 0 to 1');
  },
  takes: 'a number from 0 to 1',
  placeholder: 'ratio',
};

export const optionalAddress: TextKind<string> = {
  parse: (text) => {
    const url = text === '' ? undefined : parseBackendUrl(text, 'for instance http://localhost:4318');
    return url instanceof URL ? url.href : (url ?? '');
  },
  takes: 'an http or https address, or nothing for none',
  placeholder: 'url',
  isSecret: true,
};

export const secretHeaders: TextKind<string> = {
  parse: (text) =>
    parseExporterHeaders(text) === undefined
      ? new Problem(
          'must be name=value separated by commas, each percent-encoded where it has more than plain text',
        )
      : text,
  takes: '`name=value` separated by commas, or nothing for none',
  placeholder: 'list',
  isSecret: true,
  show: (text) => (text === '' ? '' : '(not shown)'),
};

export const host: TextKind<string> = {
  // An address in brackets is what URLs have; the platform wants it bare.
  parse: (text) =>
    /^[A-Za-z0-9._-]+$/.test(text) || isIPv6(text)
      ? text
      : new Problem('must be a host name or an IP address, without brackets, port and http://'),
  takes: 'a host name or IP address',
  placeholder: 'address',
};

// A host name, and no address: not digits alone behind the last dot.
const serverNameForm = /^(?:[\w-]+\.)*[\w-]*[A-Za-z_-][\w-]*$/;

export const serverName: TextKind<string> = {
  parse: (text) =>
    text === '' || serverNameForm.test(text)
      ? text
      : new Problem('must be a host name, without port and http://'),
  takes: 'a host name, or nothing for that of the address',
  placeholder: 'name',
};

const nameLengthMax = 64;

export const name: TextKind<string> = {
  // On one line, and nothing that turns the letters after it round.
  parse: (text) =>
    text.length <= nameLengthMax && !/[\p{C}\p{Zl}\p{Zp}]/u.test(text)
      ? text
      : new Problem(`must be at most ${nameLengthMax} characters, none of them a control character`),
  takes: `up to ${nameLengthMax} characters`,
  placeholder: 'name',
};

export const nameOrMachine: TextKind<string> = {
  ...name,
  takes: `${name.takes}, or nothing for the name of the machine`,
};

export const database: TextKind<string> = {
  // SQLite takes an empty name for a database that is gone at the end.
  parse: (text) => (text.trim() === '' ? new Problem('must be a file name or :memory:') : text),
  takes: 'a file name or :memory:',
  placeholder: 'file',
};
