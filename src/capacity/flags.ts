// The flags of `capacity`: what they take, and a demand from them. Every problem is told at once.

import { quoteIfPlain } from '../gateway/accepted-values.ts';
import { limits } from '../gateway/limits.ts';
import { figures } from './figures.ts';
import type { Demand } from './plan.ts';

export interface CapacityFlag {
  /** What stands for its value in the help; undefined for one that takes none. */
  readonly placeholder: string | undefined;
  readonly help: string;
}

/** By their names, in the order of the help. */
export const capacityFlags = {
  '--rate': {
    placeholder: 'calls',
    help: 'calls a second at the busiest time, for instance 10000, 10k or 1.5M (required)',
  },
  '--body': {
    placeholder: 'bytes',
    help: `a body, of a request or an answer, for instance 400, 2k or 1M (default ${figures.smallBytes})`,
  },
  '--write-share': {
    placeholder: 'share',
    help: 'of the calls, how many are creates and updates, for instance 0.2 or 20% (default 20%)',
  },
  '--backend-ms': { placeholder: 'ms', help: 'how long the backend takes for a call (default 50)' },
  '--connections': {
    placeholder: 'number',
    help: 'client connections open at once (default: twice the calls in flight, as behind a balancer)',
  },
  '--cores': {
    placeholder: 'number',
    help: 'cores of a machine, where machines serve and no pods (default 4)',
  },
  '--tls': { placeholder: undefined, help: 'clients come by TLS' },
  '--tokens': { placeholder: undefined, help: 'AUTH_ISSUER is set: every call has a token' },
  '--rate-limit': { placeholder: undefined, help: 'RATE_LIMIT is set' },
  '--redis': { placeholder: undefined, help: 'Redis counts for the rate limit (RATE_LIMIT_REDIS_URL)' },
  '--request-log': {
    placeholder: undefined,
    help: 'a line of the log for each call (LOG_LEVEL=info); else LOG_LEVEL=warn',
  },
  '--json': { placeholder: undefined, help: 'print the plan as JSON' },
} as const satisfies Readonly<Record<string, CapacityFlag>>;

export type CapacityFlagName = keyof typeof capacityFlags;

/** What was given: the text behind a flag, or true for a flag without any. */
export type GivenFlags = Readonly<Partial<Record<CapacityFlagName, string | true>>>;

const suffixes: Readonly<Record<string, number>> = { '': 1, k: 1e3, m: 1e6, g: 1e9 };

/** A number with or without a suffix: `400`, `2k`, `1.5M`, `10_000`, `10,000`; NaN where it is none. */
function parseAmount(text: string): number {
  const [, whole = '', fraction = '', suffix = ''] =
    /^(\d{1,15}|\d{1,3}(?:[_,]\d{3}){1,4})(\.\d{1,6})?([kmg]?)$/i.exec(text) ?? [];
  const factor = suffixes[suffix.toLowerCase()] ?? NaN;
  // 1.001 times a million is no whole number for a computer.
  return whole === '' ? NaN : Number((Number(whole.replace(/[_,]/g, '') + fraction) * factor).toFixed(6));
}

/** The same, with or without a B for bytes. */
function parseBytes(text: string): number {
  return parseAmount(text.replace(/b$/i, ''));
}

/** A share of one: `0.2` or `20%`; NaN where it is none. */
function parseShare(text: string): number {
  const [, digits = '', percent] = /^(\d{1,3}(?:\.\d{1,6})?)(%)?$/.exec(text) ?? [];
  return digits === '' ? NaN : Number(digits) / (percent === undefined ? 1 : 100);
}

/** The demand that the flags describe, and the problems with them: without any, the demand is whole. */
export function readDemand(given: GivenFlags): {
  readonly demand: Demand;
  readonly problems: readonly string[];
} {
  const problems: string[] = [];
  const read = (
    flag: CapacityFlagName,
    standard: number,
    [min, max]: readonly [number, number],
    what: string,
    { parse = parseAmount, isWhole = true }: { parse?: (text: string) => number; isWhole?: boolean } = {},
  ): number => {
    const text = given[flag];
    if (text === undefined) return standard;
    if (text === true) {
      problems.push(`${flag} needs a value`);
      return standard;
    }
    const value = parse(text);
    if (!(value >= min && value <= max) || (isWhole && !Number.isInteger(value))) {
      const shown = quoteIfPlain(text);
      problems.push(`${flag} ${shown === undefined ? '' : `is ${shown}, but `}must be ${what}`);
    }
    return value;
  };
  for (const [name, { placeholder }] of Object.entries(capacityFlags) as [CapacityFlagName, CapacityFlag][]) {
    if (placeholder === undefined && typeof given[name] === 'string') problems.push(`${name} takes no value`);
  }
  if (given['--rate'] === undefined)
    problems.push('--rate is missing: how many calls a second, for instance --rate 10000');
  const bodyMax = limits.responseBytesMax.standard;
  const demand: Demand = {
    rate: read('--rate', 1, [1, 1e8], 'a number of calls a second from 1 to 100M', { isWhole: false }),
    bodyBytes: read(
      '--body',
      figures.smallBytes,
      [0, bodyMax],
      `a whole number of bytes from 0 to ${bodyMax}, the default of RESPONSE_BYTES_MAX`,
      { parse: parseBytes },
    ),
    writeShare: read('--write-share', 0.2, [0, 1], 'a share from 0 to 1, or from 0% to 100%', {
      parse: parseShare,
      isWhole: false,
    }),
    backendMs: read(
      '--backend-ms',
      50,
      [0.001, limits.backendTimeoutMs.standard],
      `a number of milliseconds up to ${limits.backendTimeoutMs.standard}, the default of BACKEND_TIMEOUT_MS`,
      { isWhole: false },
    ),
    connections:
      given['--connections'] === undefined
        ? undefined
        : read('--connections', 0, [1, 1e9], 'a whole number from 1 to 1G'),
    coresOfMachine: read('--cores', 4, [1, 1_024], 'a whole number from 1 to 1024'),
    tls: given['--tls'] !== undefined,
    tokens: given['--tokens'] !== undefined,
    rateLimit: given['--rate-limit'] !== undefined || given['--redis'] !== undefined,
    redis: given['--redis'] !== undefined,
    requestLog: given['--request-log'] !== undefined,
  };
  return { demand, problems };
}
