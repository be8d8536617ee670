// The grammar of HTTP/1.1 messages [RFC 9110, RFC 9112]: which bytes may stand where, and what the few fields mean that
// say where a message ends. Where two parsers could read something differently it is a flaw [D18, D27]. Every framing
// rule is in this file; reader.ts walks through bytes by it. Nothing here keeps state.

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

/** A table that has 1 for each byte for which `isIn` holds. */
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

/** Field values, reasons: a tab, a space, what is visible, and bytes above ASCII [RFC 9110, 5.5]. */
export const textBytes = bytesThat((byte) => byte === tab || (byte >= space && byte !== 0x7f));

/**
 * A method: capitals, digits, `-` and `_`, as everything is that anyone has registered. `get` is none: some would read
 * it as GET [D6, D27].
 */
export const methodBytes = bytesThat((byte) => /^[A-Z0-9_-]$/.test(String.fromCharCode(byte)));

/** Longer ones are no methods but an attack. */
export const methodBytesMax = 64;

/** A target: what is visible in ASCII [RFC 9112, 3.2]. */
export const targetBytes = bytesThat((byte) => byte > space && byte < 0x7f);

export const notHexadecimal = 255;

/** The value of each hexadecimal digit, `notHexadecimal` for what is none: sizes of chunks [RFC 9112, 7.1]. */
export const hexadecimalValues = Uint8Array.from({ length: 256 }, (_, byte) => {
  const value = Number.parseInt(String.fromCharCode(byte), 16);
  return Number.isNaN(value) ? notHexadecimal : value;
});

/** Larger chunks are refused: with one more digit their size is still an exact number. */
export const chunkSizeMax = 2 ** 48;
/** Zeros in front are valid, and not without end. */
export const chunkSizeDigitsMax = 64;

/** Chunk extensions of one message, in bytes: nobody uses any [RFC 9112, 7.1.1]. */
export const extensionBytesMax = 16_384;

const decimal = /^\d{1,15}$/;

/**
 * The length that a `content-length` gives, in bytes; undefined for anything but up to 15 digits. A list (`7, 7`) is
 * two parsers' choice, so it is a flaw, and so are two fields [RFC 9112, 6.3].
 */
export function parseContentLength(value: string): number | undefined {
  // Zeros in front are valid, however many.
  const digits = value.length > 15 ? value.replace(/^0+(?=\d)/, '') : value;
  return decimal.test(digits) ? Number(digits) : undefined;
}

/**
 * True for the one coding that is understood. Behind any other, or more than one, the end of the body is a matter of
 * opinion [RFC 9112, 6.1].
 */
export function isChunked(transferEncoding: string): boolean {
  return transferEncoding.toLowerCase() === 'chunked';
}

/** `close` and `keep-alive` among the options of a `connection` field [RFC 9110, 7.6.1]. */
export function parseConnection(value: string): { readonly closes: boolean; readonly keepsAlive: boolean } {
  switch (value) {
    case 'keep-alive':
    case 'Keep-Alive':
      return onlyKeepAlive;
    case 'close':
      return onlyClose;
  }
  const options = value.toLowerCase().split(',').map(withoutSpaces);
  return { closes: options.includes('close'), keepsAlive: options.includes('keep-alive') };
}

// Not by a regular expression: one that looks for spaces before something takes the square of their number.
function withoutSpaces(text: string): string {
  let start = 0;
  let end = text.length;
  while (start < end && (text.charCodeAt(start) === space || text.charCodeAt(start) === tab)) {
    start += 1;
  }
  while (end > start && (text.charCodeAt(end - 1) === space || text.charCodeAt(end - 1) === tab)) {
    end -= 1;
  }
  return text.slice(start, end);
}

const onlyKeepAlive = { closes: false, keepsAlive: true };
const onlyClose = { closes: true, keepsAlive: false };

// RFC 9110, 7.2 with RFC 3986, 3.2.2: a registered name, IPv4 address or bracketed IPv6 address, and a port. Without
// the comma, which RFC 3986 allows and a parser of lists would read as two hosts.
const authorityForm =
  /^(?:\[([0-9A-Fa-f:.]+)\]|(?:[A-Za-z0-9._~!$&'()*+;=-]|%[0-9A-Fa-f]{2})*)(?::(\d{0,5}))?$/;
const escapes = /%[0-9A-Fa-f]{2}/;
let lastAuthority = '';

/** A `host` that is valid; an empty one is [RFC 9110, 7.2], a port of no host is not. */
export function isAuthority(value: string): boolean {
  // A client sends the same one again and again.
  if (value === lastAuthority) {
    return true;
  }
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

/** The start of an absolute-form target, its host and port as the first group [D27]. */
export const absoluteForm = /^https?:\/\/([^/?]*)/i;
const slash = 0x2f;

/**
 * True for an origin-form target, an absolute-form one with a host and nothing else before its path, `*` for OPTIONS,
 * and a host and port for CONNECT [RFC 9112, 3.2]. A fragment is never part of a target: some parsers cut there and
 * some do not.
 */
export function isTarget(target: string, method: string): boolean {
  if (target.includes('#')) {
    return false;
  }
  if (method === 'CONNECT') {
    return target !== '' && !target.startsWith('/') && isAuthority(target);
  }
  if (target.charCodeAt(0) === slash) {
    return true;
  }
  if (target === '*') {
    return method === 'OPTIONS';
  }
  const authority = absoluteForm.exec(target)?.[1];
  return authority !== undefined && !/^(?::|$)/.test(authority) && isAuthority(authority);
}

const keepAliveTimeout = /(?:^|[,; \t])timeout[ \t]*=[ \t]*"?(\d{1,9})/i;

/** The seconds that a `keep-alive` field promises; undefined without any [RFC 2068, 19.7.1.1]. */
export function parseKeepAliveSeconds(value: string): number | undefined {
  const seconds = keepAliveTimeout.exec(value)?.[1];
  return seconds === undefined ? undefined : Number(seconds);
}

const versionStart = Buffer.from('HTTP/1.', 'latin1');

/** Whether `byte` may stand at `index` of a version, HTTP/1.0 or HTTP/1.1. */
export function isVersionByte(byte: number, index: number): boolean {
  return index < versionStart.length
    ? byte === versionStart[index]
    : byte === digitZero || byte === digitZero + 1;
}

export const versionLength = versionStart.length + 1;
