// CPU time and memory of a process tree, and of the whole machine, from /proc. On other systems than Linux all figures are 0.
import { readFileSync, writeFileSync } from 'node:fs';
import { residentBytes, treeOf } from '../test/helpers/process-figures.ts';

// USER_HZ, the unit of utime and stime, is 100 on every Linux that Node runs on.
const MS_PER_TICK = 10;

function readText(path: string): string {
  try {
    return readFileSync(path, 'latin1');
  } catch {
    return '';
  }
}

/** CPU time (user and system) of a process tree so far, in ms. `withEnded` includes children that have ended. */
export function processorMs(root: number, withEnded = false): number {
  let ticks = 0;
  for (const pid of root === 0 ? [] : treeOf(root)) {
    const stat = readText(`/proc/${pid}/stat`);
    // After the command's closing bracket, fields 11 to 14 (from 0) are utime, stime, cutime and cstime.
    const times = stat.slice(stat.lastIndexOf(')') + 2).split(' ').slice(11, withEnded ? 15 : 13); // prettier-ignore
    for (const time of times) ticks += Number(time);
  }
  return ticks * MS_PER_TICK;
}

/** Peak (`VmHWM`) or current (`VmRSS`) memory of the tree in MB; shared pages count once per process. */
export function memoryMb(root: number, field: 'VmHWM' | 'VmRSS'): number {
  return treeOf(root).reduce((sum, pid) => sum + (residentBytes(pid, field) ?? 0), 0) / 2 ** 20;
}

/** Resets the peak to the current memory. */
export function resetPeakMemory(root: number): void {
  for (const pid of treeOf(root)) {
    try {
      writeFileSync(`/proc/${pid}/clear_refs`, '5');
    } catch {
      // This program lacks the permission, so the peak covers the whole life of the process.
    }
  }
}

/** Busy time of all cores in ms, including the time that the host of a virtual machine gave to other guests. */
export function busyMs(): number {
  const [total = ''] = readText('/proc/stat').split('\n', 1);
  const [user = 0, nice = 0, system = 0, , , interrupts = 0, softInterrupts = 0, stolen = 0] = total
    .split(/\s+/)
    .slice(1)
    .map(Number);
  return (user + nice + system + interrupts + softInterrupts + stolen) * MS_PER_TICK;
}

/** Returns a function that tells how many cores other programs have used on average since `watchOthers` was called. */
export function watchOthers(): () => number {
  const read = (): number => busyMs() - processorMs(process.pid, true);
  const [from, before] = [performance.now(), read()];
  return () => Math.max(0, (read() - before) / (performance.now() - from));
}
