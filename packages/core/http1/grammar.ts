// The grammar of HTTP/1.1 messages [RFC 9110, RFC 9112]: the bytes that are valid in each element, and the meaning of the
// few fields that delimit a message. Input that two parsers could read differently is refused; the code calls such input a
// flaw [D18, D27]. The rules for combinations of fields are in head.ts.

import { isIPv6 } from 'node:net';
import { decodePercent } from '../text/percent.ts';

export const tab = 0x09;
export const lineFeed = 0x0a;
export const carriageReturn = 0x0d;
export const space = 0x20;
export const doubleQuote = 0x22;
export const digitZero = 0x30;
export const colon = 0x3a;
export const semicolon = 0x3b;
export const equals = 0x3d;
export const backslash = 0x5c;

/** Returns a table of all bytes: 1 if `isIn` returns true for the byte, otherwise 0. */
function bytesThat(isIn: (byte: number) => boolean): Uint8Array {
  return Uint8Array.from({ length: 256 }, (_, byte) => (isIn(byte) ? 1 : 0));
}

function isOneOf(byte: number, characters: string): boolean {
  return characters.includes(String.fromCharCode(byte));
}

function isLetterOrDigit(byte: number): boolean {
  return /^[A-Za-z0-9]$/.test(String.fromCharCode(byte));
}

/** `token`: names of fields and of chunk extensions [RFC 9110, 5.6.2]. */
export const tokenBytes = bytesThat((byte) => isLetterOrDigit(byte) || isOneOf(byte, "!#$%&'*+-.^_`|~"));

/** Field values and reason phrases: tab, space, visible characters and bytes above ASCII [RFC 9110, 5.5]. */
export const textBytes = bytesThat((byte) => byte === tab || (byte >= space && byte !== 0x7f));

/** Methods: `A` to `Z`, digits, `-`, `_`. `get` is invalid, because some servers read it as GET [D6, D27]. */
export const methodBytes = bytesThat((byte) => /^[A-Z0-9_-]$/.test(String.fromCharCode(byte)));

/** Longest method, in bytes. Registered methods have at most 17. */
export const methodBytesMax = 64;

/** A target: visible ASCII [RFC 9112, 3.2]. */
export const targetBytes = bytesThat((byte) => byte > space && byte < 0x7f);

export const notHexadecimal = 255;

/** The value of each hexadecimal digit, for chunk sizes [RFC 9112, 7.1]; `notHexadecimal` for all other bytes. */
export const hexadecimalValues = Uint8Array.from({ length: 256 }, (_, byte) => {
  const value = Number.parseInt(String.fromCharCode(byte), 16);
  return Number.isNaN(value) ? notHexadecimal : value;
});

/**
 * Largest chunk, in bytes. A size that is one hexadecimal digit longer still fits exactly into a JavaScript number, so
 * the comparison that refuses it is reliable.
 */
export const chunkSizeMax = 2 ** 48;
/** Largest number of digits of a chunk size, including leading zeros. */
export const chunkSizeDigitsMax = 64;

/** Limit of the chunk extensions of one message, in bytes. Extensions are unused in practice [RFC 9112, 7.1.1]. */
export const extensionBytesMax = 16_384;

const decimal = /^\d{1,15}$/;

/**
 * Parses a `content-length`, in bytes: up to 15 digits after leading zeros. Returns undefined for anything else. A list
 * (`7, 7`) and a second field are refused, because parsers disagree on them [RFC 9112, 6.3].
 */
export function parseContentLength(value: string): number | undefined {
  const digits = value.length > 15 ? value.replace(/^0+(?=\d)/, '') : value;
  return decimal.test(digits) ? Number(digits) : undefined;
}

/** True for `chunked`. With any other coding, parsers disagree on the end of the body [RFC 9112, 6.1]. */
export function isChunked(transferEncoding: string): boolean {
  return transferEncoding.toLowerCase() === 'chunked';
}

/** Parses the options `close` and `keep-alive` of a `connection` field [RFC 9110, 7.6.1]. */
export function parseConnection(value: string): { readonly closes: boolean; readonly keepsAlive: boolean } {
  switch (value) {
    case 'keep-alive':
    case 'Keep-Alive':
      return onlyKeepAlive;
    case 'close':
      return onlyClose;
  }
  return { closes: closeOption.test(value), keepsAlive: keepAliveOption.test(value) };
}

const closeOption = /(?:^|,)[ \t]*close[ \t]*(?:,|$)/i;
const keepAliveOption = /(?:^|,)[ \t]*keep-alive[ \t]*(?:,|$)/i;

const onlyKeepAlive = { closes: false, keepsAlive: true };
const onlyClose = { closes: true, keepsAlive: false };

// A registered name, an IPv4 address or an IPv6 address in brackets, and an optional port [RFC 9110, 7.2; RFC 3986, 3.2.2].
// A comma, which RFC 3986 allows, is invalid here, because a parser of lists would read two hosts.
const authorityForm = /^(?:\[([0-9A-Fa-f:.]+)\]|(?:[A-Za-z0-9._~!$&'()*+;=-]|%[0-9A-Fa-f]{2})*)(?::(\d{0,5}))?$/;
const escapes = /%[0-9A-Fa-f]{2}/;
let lastAuthority = '';

/** True if `value` is a valid `host`. An empty value is valid [RFC 9110, 7.2]; a port without a host is invalid. */
export function isAuthority(value: string): boolean {
  // Most requests repeat the host of the previous request.
  if (value === lastAuthority) return true;
  const match = authorityForm.exec(value);
  if (
    match === null ||
    value.startsWith(':') ||
    Number(match[2] ?? 0) > 65_535 ||
    (match[1] !== undefined && !isIPv6(match[1])) ||
    (escapes.test(value) && decodePercent(value) === undefined)
  ) {
    return false;
  }
  lastAuthority = value;
  return true;
}

/** The start of a target in absolute-form [RFC 9112, 3.2.2]. The first group is the host and port [D27]. */
export const absoluteForm = /^https?:\/\/([^/?]*)/i;
const slash = 0x2f;

/**
 * True for a valid target [RFC 9112, 3.2]: origin-form; absolute-form with a host and without user information; `*` for
 * OPTIONS; host and port for CONNECT. A fragment is invalid, because some parsers cut it off and some do not.
 */
export function isTarget(target: string, method: string): boolean {
  if (target.includes('#')) return false;
  if (method === 'CONNECT') return target !== '' && !target.startsWith('/') && isAuthority(target);
  if (target.charCodeAt(0) === slash) return true;
  if (target === '*') return method === 'OPTIONS';
  const authority = absoluteForm.exec(target)?.[1];
  return authority !== undefined && !/^(?::|$)/.test(authority) && isAuthority(authority);
}

const keepAliveTimeout = /(?:^|[,; \t])timeout[ \t]*=[ \t]*"?(\d{1,9})/i;

/** Parses the `timeout` of a `keep-alive` field, in seconds; undefined if there is none [RFC 2068, 19.7.1.1]. */
export function parseKeepAliveSeconds(value: string): number | undefined {
  const seconds = keepAliveTimeout.exec(value)?.[1];
  return seconds === undefined ? undefined : Number(seconds);
}

const versionStart = Buffer.from('HTTP/1.', 'latin1');

/** True if `byte` is valid at position `index` of `HTTP/1.0` or `HTTP/1.1`. */
export function isVersionByte(byte: number, index: number): boolean {
  return index < versionStart.length ? byte === versionStart[index] : byte === digitZero || byte === digitZero + 1;
}

export const versionLength = versionStart.length + 1;
