// Formats figures with grouped digits, one decimal below a hundred, and a unit. A missing value is a dash. A value above
// zero is never shown as zero.

const none = '–';
const space = '\u00a0';

/** @type {(value: number) => string} one decimal below a hundred, none above */
const even = (value) => {
  const digits = value < 99.95 ? 1 : 0;
  return value.toLocaleString('en', { minimumFractionDigits: digits, maximumFractionDigits: digits });
};

/** @type {(value: number, unit?: string) => string} */
const evenOrLess = (value, unit = '') =>
  `${value > 0 && value < 0.05 ? `<${space}0.1` : even(value)}${unit === '' ? '' : space}${unit}`;

/** @type {(value: number) => string} */
export const formatCount = (value) => value.toLocaleString('en');

/** @type {(value: number) => string} */
export const formatRate = (value) => evenOrLess(value);

/** @type {(part: number, whole: number) => string} a percentage */
export const formatShare = (part, whole) => {
  const percent = (part / whole) * 100;
  if (whole === 0) return none;
  if (percent === 0 || percent === 100) return `${percent}${space}%`;
  return percent > 99.9 ? `>${space}99.9${space}%` : evenOrLess(percent, '%');
};

/** @type {(ms: number | null | undefined) => string} */
export const formatMs = (ms) => {
  if (ms === null || ms === undefined) return none;
  return ms < 999.5 ? evenOrLess(ms, 'ms') : evenOrLess(ms / 1_000, 's');
};

/** @type {(bytes: number, format: (value: number) => string) => string} */
const inUnits = (bytes, format) => {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let power = 0;
  while (bytes / 1_024 ** power >= 999.5 && power < 4) {
    power += 1;
  }
  return `${(power === 0 ? formatCount : format)(bytes / 1_024 ** power)}${space}${units[power]}`;
};

/** @type {(bytes: number) => string} */
export const formatBytes = (bytes) => inUnits(bytes, even);

/**
 * The value in a larger unit; empty if the value is easy to read in the setting's own unit.
 * @type {(value: number, unit: string | undefined) => string}
 */
export const formatSetting = (value, unit) => {
  // Three significant digits instead of fixed decimals, because settings are mostly round numbers.
  const round = (/** @type {number} */ each) => each.toLocaleString('en', { maximumSignificantDigits: 3 });
  if (unit === 'bytes' && value >= 1_024) return inUnits(value, round);
  return unit === 'ms' && value >= 1_000 ? `${round(value / 1_000)}${space}s` : '';
};

/** @type {(ms: number) => string} a duration in its one or two largest units */
export const formatAge = (ms) => {
  const seconds = Math.max(0, Math.floor(ms / 1_000));
  const minutes = Math.floor(seconds / 60);
  const hours = Math.floor(minutes / 60);
  if (minutes === 0) return `${seconds}${space}s`;
  if (hours === 0) return `${minutes}${space}min${minutes < 10 ? ` ${seconds % 60}${space}s` : ''}`;
  return hours < 24
    ? `${hours}${space}h ${minutes % 60}${space}min`
    : `${Math.floor(hours / 24)}${space}d ${hours % 24}${space}h`;
};

/** @type {(at: number) => string} the local time of day, to the second */
export const formatTime = (at) => new Date(at).toTimeString().slice(0, 8);

/** @type {(at: number, now: number) => string} the local time of day, with the date unless it is today */
export const formatMoment = (at, now) => {
  const date = new Date(at);
  const day = date.toLocaleDateString('en', { day: 'numeric', month: 'short' });
  return date.toDateString() === new Date(now).toDateString()
    ? formatTime(at)
    : `${day}, ${formatTime(at).slice(0, 5)}`;
};

/** Describes the browser's time zone by its offset from UTC, because the log's times are in UTC. */
export function describeTimeZone() {
  if (new Date().getTimezoneOffset() === 0) return 'UTC, as in the log';
  const parts = new Intl.DateTimeFormat('en', { timeZoneName: 'shortOffset' }).formatToParts();
  const zone = parts.find(({ type }) => type === 'timeZoneName')?.value ?? '';
  return `${zone.replace('GMT', 'UTC').replace('-', '−')}; the log uses UTC`;
}
