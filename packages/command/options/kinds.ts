// The kinds of values that only settings of the command have. Each kind parses text. The options of programs that embed
// the gateway (core/hosts/options/) do not use these kinds.

import { isIPv6 } from 'node:net';
import { availableParallelism } from 'node:os';

import { parseBackendUrl } from '../../core/hosts/options/accepted-values.ts';
import { integer, parseInteger, type TextKind } from '../../core/hosts/options/kinds.ts';
import { Problem } from '../../core/hosts/options/problem.ts';
import { parseExporterHeaders } from './exporter-headers.ts';

export const port = integer('port', 0, 65_535);

/** A number from 1 to `max`, or `auto` for one per core. */
export function count(max: number): TextKind<number> {
  return {
    parse: (text) => {
      const value = text === 'auto' ? availableParallelism() : parseInteger(text);
      return value >= 1 && value <= max ? value : new Problem(`must be a whole number from 1 to ${max}, or auto`);
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
  takes: 'an http or https address, or empty for none',
  placeholder: 'url',
  isSecret: true,
};

export const secretHeaders: TextKind<string> = {
  parse: (text) =>
    parseExporterHeaders(text) === undefined
      ? new Problem('must be name=value pairs separated by commas, with special characters percent-encoded')
      : text,
  takes: '`name=value` pairs separated by commas, or empty for none',
  placeholder: 'list',
  isSecret: true,
  show: (text) => (text === '' ? '' : '(not shown)'),
};

export const host: TextKind<string> = {
  // An IPv6 address has brackets only in a URL; Node's `listen` requires it without them.
  parse: (text) =>
    /^[A-Za-z0-9._-]+$/.test(text) || isIPv6(text)
      ? text
      : new Problem('must be a host name or an IP address, without http://, port or brackets'),
  takes: 'a host name or IP address',
  placeholder: 'address',
};

// Matches a host name but no IP address, because the last label must have a character other than a digit.
const serverNameForm = /^(?:[\w-]+\.)*[\w-]*[A-Za-z_-][\w-]*$/;

export const serverName: TextKind<string> = {
  parse: (text) =>
    text === '' || serverNameForm.test(text) ? text : new Problem('must be a host name, without http:// or port'),
  takes: 'a host name, or empty for the one in BACKEND_URL',
  placeholder: 'name',
};

const nameLengthMax = 64;

export const name: TextKind<string> = {
  // Rejects line ends, and characters that reverse the text after them.
  parse: (text) =>
    text.length <= nameLengthMax && !/[\p{C}\p{Zl}\p{Zp}]/u.test(text)
      ? text
      : new Problem(`must be at most ${nameLengthMax} characters, without control characters`),
  takes: `up to ${nameLengthMax} characters`,
  placeholder: 'name',
};

export const nameOrMachine: TextKind<string> = {
  ...name,
  takes: `${name.takes}, or empty for the host name of the machine`,
};

export const database: TextKind<string> = {
  // An empty name is rejected, because SQLite would open a temporary database.
  parse: (text) => (text.trim() === '' ? new Problem('must be a file name or :memory:') : text),
  takes: 'a file name or :memory:',
  placeholder: 'file',
};
