// Figures as people read them: digits in groups, as many decimals in a column as the others have, a unit, and a dash
// where there is nothing. What is above nothing is never shown as nothing.

const none = '–';
const space = '\u00a0';

/**
 * One decimal below a hundred, none above.
 * @param {number} value
 */
function even(value) {
  const digits = value < 99.95 ? 1 : 0;
  return value.toLocaleString('en', { minimumFractionDigits: digits, maximumFractionDigits: digits });
}

/** @type {(value: number, unit?: string) => string} */
const evenOrLess = (value, unit = '') =>
  `${value > 0 && value < 0.05 ? `<${space}0.1` : even(value)}${unit === '' ? '' : space}${unit}`;

/** @param {number} value */
export function formatCount(value) {
  return value.toLocaleString('en');
}

/**
 * Something a second.
 * @param {number} value
 */
export function formatRate(value) {
  return evenOrLess(value);
}

/**
 * A part of a whole as a percentage.
 * @type {(part: number, whole: number) => string}
 */
export const formatShare = (part, whole) => {
  const percent = (part / whole) * 100;
  if (whole === 0) {
    return none;
  }
  if (percent === 0 || percent === 100) {
    return `${percent}${space}%`;
  }
  return percent > 99.9 ? `>${space}99.9${space}%` : evenOrLess(percent, '%');
};

/**
 * A duration in milliseconds.
 * @param {number | null | undefined} ms
 */
export function formatMs(ms) {
  if (ms === null || ms === undefined) {
    return none;
  }
  return ms < 999.5 ? evenOrLess(ms, 'ms') : evenOrLess(ms / 1_000, 's');
}

/** @type {(bytes: number, format: (value: number) => string) => string} */
const inUnits = (bytes, format) => {
  const units = ['KiB', 'MiB', 'GiB', 'TiB'];
  let value = bytes;
  let unit = 'B';
  while (value >= 999.5 && units.length > 0) {
    value /= 1_024;
    unit = units.shift() ?? '';
  }
  return `${unit === 'B' ? formatCount(value) : format(value)}${space}${unit}`;
};

/** @param {number} bytes */
export function formatBytes(bytes) {
  return inUnits(bytes, even);
}

/**
 * What a setting says, in a unit that is easier to read; empty where its own is.
 * @type {(value: number, unit: string | undefined) => string}
 */
export const formatSetting = (value, unit) => {
  // What was chosen is round, what was measured is not.
  const round = (/** @type {number} */ each) => each.toLocaleString('en', { maximumSignificantDigits: 3 });
  if (unit === 'bytes' && value >= 1_024) {
    return inUnits(value, round);
  }
  return unit === 'ms' && value >= 1_000 ? `${round(value / 1_000)}${space}s` : '';
};

/**
 * How long something has lasted, in its two largest units.
 * @param {number} ms
 */
export function formatAge(ms) {
  const seconds = Math.max(0, Math.floor(ms / 1_000));
  const minutes = Math.floor(seconds / 60);
  const hours = Math.floor(minutes / 60);
  if (minutes === 0) {
    return `${seconds}${space}s`;
  }
  if (hours === 0) {
    return `${minutes}${space}min${minutes < 10 ? ` ${seconds % 60}${space}s` : ''}`;
  }
  return hours < 24
    ? `${hours}${space}h ${minutes % 60}${space}min`
    : `${Math.floor(hours / 24)}${space}d ${hours % 24}${space}h`;
}

/**
 * The time of day here, to the second.
 * @param {number} at
 */
export function formatTime(at) {
  return new Date(at).toTimeString().slice(0, 8);
}

/**
 * The time of day, and the day unless it is today.
 * @type {(at: number, now: number) => string}
 */
export const formatMoment = (at, now) => {
  const date = new Date(at);
  const day = date.toLocaleDateString('en', { day: 'numeric', month: 'short' });
  return date.toDateString() === new Date(now).toDateString()
    ? formatTime(at)
    : `${day}, ${formatTime(at).slice(0, 5)}`;
};

/** This place's distance to UTC, in which the log is. */
export function describeTimeZone() {
  const minutes = -new Date().getTimezoneOffset();
  if (minutes === 0) {
    return 'UTC, as in the log';
  }
  const size = Math.abs(minutes);
  const hours = `${Math.floor(size / 60)}${size % 60 === 0 ? '' : `:${String(size % 60).padStart(2, '0')}`}`;
  return `UTC${minutes < 0 ? '−' : '+'}${hours}; the log has UTC`;
}

/** @import { Facts } from '../state.ts' */

/** @type {Facts['kindWords']} */
let kindWords = {};

/**
 * Takes the words for the kinds of failure from the gateway, which has them in one table.
 * @param {Facts['kindWords']} words
 */
export function learnKinds(words) {
  kindWords = words;
}

/** @param {string} kind */
export function nameOfKind(kind) {
  return kindWords[kind]?.title ?? kind;
}

/** @param {string} kind */
export function meaningOfKind(kind) {
  return kindWords[kind]?.meaning ?? '';
}
