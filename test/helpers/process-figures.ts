// Descriptors, children and memory of a process. Linux only; other systems give undefined.

import { readdirSync, readFileSync, readlinkSync } from 'node:fs';

/** The value of `read`, or undefined if it throws. */
function attempt<T>(read: () => T): T | undefined {
  try {
    return read();
  } catch {
    return undefined;
  }
}

/** Open descriptors, including sockets. */
export function countDescriptors(pid = 0): number | undefined {
  return attempt(() => readdirSync(`/proc/${pid}/fd`).length);
}

/** Tells whether the process has this file open. */
export function hasOpen(pid: number, path: string): boolean {
  return readdirSync(`/proc/${pid}/fd`).some((name) => attempt(() => readlinkSync(`/proc/${pid}/fd/${name}`)) === path);
}

/** The process's children that have not been reaped. */
export function childrenOf(pid = 0): number[] | undefined {
  const text = attempt(() => readFileSync(`/proc/${pid}/task/${pid}/children`, 'latin1'));
  return text?.trim().split(' ').filter(Boolean).map(Number);
}

/** A process and all its descendants. */
export function treeOf(pid: number | undefined): number[] {
  return pid === undefined ? [] : [pid, ...(childrenOf(pid) ?? []).flatMap(treeOf)];
}

/** The state of a process (`Z`: zombie, `T`: stopped), or undefined if the process does not exist. */
export function stateOf(pid: number): string | undefined {
  return attempt(() => /\) (\S)/.exec(readFileSync(`/proc/${pid}/stat`, 'latin1'))?.[1]);
}

/** Resident memory now (`VmRSS`) or its maximum (`VmHWM`), in bytes. */
export function residentBytes(pid = 0, field: 'VmRSS' | 'VmHWM'): number | undefined {
  const status = attempt(() => readFileSync(`/proc/${pid}/status`, 'latin1')) ?? '';
  const kilobytes = new RegExp(`^${field}:\\s+(\\d+) kB`, 'm').exec(status)?.[1];
  return kilobytes === undefined ? undefined : Number(kilobytes) * 1024;
}

/** The value of a metric in the text of `/metrics`, or undefined. */
export function figureIn(metrics: string, name: string): number | undefined {
  const value = new RegExp(`^${name}(?:\\{[^}]*\\})? (\\S+)$`, 'm').exec(metrics)?.[1];
  return value === undefined ? undefined : Number(value);
}
