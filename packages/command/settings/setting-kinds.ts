// Kinds of values that only settings of the command have. Each kind parses text. The options of programs that embed the
// gateway (core/options/) do not use these kinds.

import { isIPv6 } from 'node:net';
import { availableParallelism } from 'node:os';

import { parseAddress } from '../../core/options/accepted-values.ts';
import { integer, parseInteger, parserOfList, type Kind } from '../../core/options/kinds.ts';
import { Problem } from '../../core/options/problem.ts';
import { splitList } from '../../core/text/lists.ts';
import { decodePercent } from '../../core/text/percent.ts';

export const port = integer('port', 0, 65_535);

type Traits = Omit<Kind<unknown, string>, 'accept' | 'parse'>;

function onlyAsText<Value>(parse: (text: string) => Value | Problem, traits: Traits): Kind<Value, string> {
  return { accept: parse, parse, ...traits };
}

/** A number from 1 to `max`, or `auto` for one per core. */
export function count(max: number): Kind<number, string> {
  return onlyAsText(
    (text) => {
      const value = text.toLowerCase() === 'auto' ? availableParallelism() : parseInteger(text);
      return value >= 1 && value <= max ? value : new Problem(`must be a whole number from 1 to ${max}, or auto`);
    },
    { takes: `1 to ${max} or auto`, placeholder: 'number|auto' },
  );
}

export const ratio = onlyAsText(
  (text) => {
    const value = /^(?:\d{1,3}(?:\.\d{0,20})?|\.\d{1,20})$/.test(text) ? Number(text) : NaN;
    return value <= 1 ? value : new Problem('must be a number from 0 to 1');
  },
  { takes: 'a number from 0 to 1', placeholder: 'ratio' },
);

export const optionalAddress = onlyAsText(
  (text) => {
    const url = text === '' ? undefined : parseAddress(text, 'http://localhost:4318');
    return url instanceof URL ? url.href : (url ?? '');
  },
  { takes: 'an http or https address, or empty for no address', placeholder: 'url', isSecret: true },
);

function text(isValid: (given: string) => boolean, requirement: string, traits: Traits): Kind<string, string> {
  return onlyAsText((given) => (isValid(given) ? given : new Problem(requirement)), traits);
}

const pairsRule = 'must be name=value pairs separated by commas, with special characters percent-encoded';

/** Pairs for which `parse` returns an object. A message about secret pairs does not repeat the list. */
function pairs(parse: (text: string) => object | undefined, what: string, isSecret: boolean): Kind<string, string> {
  const kind = text((given) => parse(given) !== undefined, pairsRule, {
    takes: `\`name=value\` pairs separated by commas, or empty for no ${what}`,
    placeholder: 'list',
    ...(isSecret && { isSecret, show: (given) => (given === '' ? '' : '(not shown)') }),
  });
  return { ...kind, parse: parserOfList(kind.parse, !isSecret) };
}

export const secretHeaders = pairs(parseExporterHeaders, 'headers', true);
export const resourceAttributes = pairs(parseResourceAttributes, 'attributes', false);

// A header name is a token (RFC 9110, 5.6.2). A value consists of printable ASCII and tabs.
const headerNameForm = /^[!#$%&'*+.^_`|~0-9A-Za-z-]{1,256}$/;
const headerValueForm = /^[\t -~]*$/;

export function parseExporterHeaders(text: string): Readonly<Record<string, string>> | undefined {
  const headers = parsePairs(text)?.map(([name, value]) => [name.toLowerCase(), value] as const);
  return headers?.every(([name, value]) => headerNameForm.test(name) && headerValueForm.test(value)) === true
    ? Object.fromEntries(headers)
    : undefined;
}

export function parseResourceAttributes(text: string): Readonly<Record<string, string>> | undefined {
  const attributes = parsePairs(text);
  return attributes?.every(([name]) => name !== '') === true ? Object.fromEntries(attributes) : undefined;
}

/** Parses and percent-decodes `name=value,name=value` (W3C Baggage); undefined if `text` is malformed. */
function parsePairs(text: string): (readonly [name: string, value: string])[] | undefined {
  const members = splitList(text).map((member) => {
    const at = member.indexOf('=');
    const parts = [member.slice(0, Math.max(at, 0)), member.slice(at + 1)];
    const [name, value] = parts.map((each) => decodePercent(each.trim()));
    return name === undefined || value === undefined ? undefined : ([name, value] as const);
  });
  return members.every((member) => member !== undefined) ? members : undefined;
}

// Other programs use the same variables as the two settings below. So, as OpenTelemetry's standard says, other values are
// no error: warnings.ts warns.
export const onlyTrue = onlyAsText((given) => given.toLowerCase(), {
  takes: 'true or false',
  placeholder: 'true|false',
});

export const exporters = onlyAsText<readonly string[]>((given) => splitList(given.toLowerCase()), {
  takes: 'otlp or none',
  placeholder: 'word',
});

// An IPv6 address has brackets only in a URL; Node's `listen` requires an address without brackets.
export const host = text(
  (given) => /^[A-Za-z0-9._-]+$/.test(given) || isIPv6(given),
  'must be a host name or an IP address, without http://, port or brackets',
  { takes: 'a host name or IP address', placeholder: 'address' },
);

// Matches a host name but no IP address, because the last label must have a character other than a digit. A dot at the end
// is dropped before TLS.
const serverNameForm = /^(?:[\w-]+\.)*[\w-]*[A-Za-z_-][\w-]*\.?$/;

export const serverName = text(
  (given) => given === '' || serverNameForm.test(given),
  'must be a host name, without http:// or port',
  { takes: 'a host name, or empty for the host name in BACKEND_URL', placeholder: 'name' },
);

const nameLengthMax = 64;

// Rejects line ends, and characters that reverse the text after them.
export const name = text(
  (given) => given.length <= nameLengthMax && !/[\p{C}\p{Zl}\p{Zp}]/u.test(given),
  `must be at most ${nameLengthMax} characters, without control characters`,
  { takes: `up to ${nameLengthMax} characters`, placeholder: 'name' },
);

export const nameOrMachine = { ...name, takes: `${name.takes}, or empty for the host name of the machine` };

// An empty name is rejected, because SQLite would open a temporary database.
export const database = text((given) => given.trim() !== '', 'must be a file name or :memory:', {
  takes: 'a file name or :memory:',
  placeholder: 'file',
});
