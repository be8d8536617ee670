// What the system says of a process: descriptors and memory. Linux only; elsewhere undefined.

import { readdirSync, readFileSync } from 'node:fs';

/** Open descriptors, sockets among them. */
export function countDescriptors(pid: number | undefined): number | undefined {
  try {
    return readdirSync(`/proc/${pid ?? 0}/fd`).length;
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
