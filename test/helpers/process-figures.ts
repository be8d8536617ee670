// What the system says of a process: descriptors, children and memory. Linux only; elsewhere undefined.

import { readdirSync, readFileSync } from 'node:fs';

/** Open descriptors, sockets among them. */
export function countDescriptors(pid: number | undefined): number | undefined {
  try {
    return readdirSync(`/proc/${pid ?? 0}/fd`).length;
  } catch {
    return undefined;
  }
}

/** The processes that this one has started and that have not been reaped. */
export function childrenOf(pid: number | undefined): number[] | undefined {
  try {
    const text = readFileSync(`/proc/${pid ?? 0}/task/${pid ?? 0}/children`, 'latin1');
    return text.trim().split(' ').filter(Boolean).map(Number);
  } catch {
    return undefined;
  }
}

/** `Z` for one that has ended and not been reaped, `T` for one that is stopped, and so on; undefined when it is not there. */
export function stateOf(pid: number): string | undefined {
  try {
    return /\) (\S)/.exec(readFileSync(`/proc/${pid}/stat`, 'latin1'))?.[1];
  } catch {
    return undefined;
  }
}

/** Resident memory now (`VmRSS`) or at its highest (`VmHWM`), in bytes. */
export function residentBytes(pid: number | undefined, field: 'VmRSS' | 'VmHWM'): number | undefined {
  try {
    const status = readFileSync(`/proc/${pid ?? 0}/status`, 'latin1');
    const kilobytes = new RegExp(`^${field}:\\s+(\\d+) kB`, 'm').exec(status)?.[1];
    return kilobytes === undefined ? undefined : Number(kilobytes) * 1024;
  } catch {
    return undefined;
  }
}

/** A figure of `/metrics`, or undefined. */
export function figureIn(metrics: string, name: string): number | undefined {
  const value = new RegExp(`^${name}(?:\\{[^}]*\\})? (\\S+)$`, 'm').exec(metrics)?.[1];
  return value === undefined ? undefined : Number(value);
}
