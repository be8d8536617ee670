// Descriptors, children and memory of a process. Linux only; other systems give undefined.

import { readdirSync, readFileSync, readlinkSync } from 'node:fs';

/** Open descriptors, including sockets. */
export function countDescriptors(pid: number | undefined): number | undefined {
  try {
    return readdirSync(`/proc/${pid ?? 0}/fd`).length;
  } catch {
    return undefined;
  }
}

/** Tells whether the process has this file open. */
export function hasOpen(pid: number, path: string): boolean {
  return readdirSync(`/proc/${pid}/fd`).some((name) => {
    try {
      return readlinkSync(`/proc/${pid}/fd/${name}`) === path;
    } catch {
      return false;
    }
  });
}

/** The process's children that have not been reaped. */
export function childrenOf(pid: number | undefined): number[] | undefined {
  try {
    const text = readFileSync(`/proc/${pid ?? 0}/task/${pid ?? 0}/children`, 'latin1');
    return text.trim().split(' ').filter(Boolean).map(Number);
  } catch {
    return undefined;
  }
}

/** A process and all its descendants. */
export function treeOf(pid: number | undefined): number[] {
  return pid === undefined ? [] : [pid, ...(childrenOf(pid) ?? []).flatMap(treeOf)];
}

/** The state of a process (`Z`: zombie, `T`: stopped), or undefined if the process does not exist. */
export function stateOf(pid: number): string | undefined {
  try {
    return /\) (\S)/.exec(readFileSync(`/proc/${pid}/stat`, 'latin1'))?.[1];
  } catch {
    return undefined;
  }
}

/** Resident memory now (`VmRSS`) or its maximum (`VmHWM`), in bytes. */
export function residentBytes(pid: number | undefined, field: 'VmRSS' | 'VmHWM'): number | undefined {
  try {
    const status = readFileSync(`/proc/${pid ?? 0}/status`, 'latin1');
    const kilobytes = new RegExp(`^${field}:\\s+(\\d+) kB`, 'm').exec(status)?.[1];
    return kilobytes === undefined ? undefined : Number(kilobytes) * 1024;
  } catch {
    return undefined;
  }
}

/** The value of a metric in the text of `/metrics`, or undefined. */
export function figureIn(metrics: string, name: string): number | undefined {
  const value = new RegExp(`^${name}(?:\\{[^}]*\\})? (\\S+)$`, 'm').exec(metrics)?.[1];
  return value === undefined ? undefined : Number(value);
}
