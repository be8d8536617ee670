// Reads a process tree from /proc: its members, their CPU time and memory. On systems other than Linux the tree is empty
// and the figures are 0.
import { readdirSync, readFileSync, writeFileSync } from 'node:fs';

// USER_HZ, the unit of utime and stime, is 100 on every Linux that Node runs on.
const MS_PER_TICK = 10;

/** The fields of /proc/<pid>/stat after the command's closing bracket; empty if the process has ended. */
function readStat(pid: number): string[] | undefined {
  try {
    const text = readFileSync(`/proc/${String(pid)}/stat`, 'latin1');
    return text.slice(text.lastIndexOf(')') + 2).split(' ');
  } catch {
    return undefined;
  }
}

/** The root and all its living descendants. */
export function listProcessTree(root: number): number[] {
  const children = new Map<number, number[]>();
  let names: string[];
  try {
    names = readdirSync('/proc');
  } catch {
    return [];
  }
  for (const name of names) {
    const pid = Number(name);
    const stat = Number.isInteger(pid) ? readStat(pid) : undefined;
    if (!stat) continue;
    const parent = Number(stat[1]);
    children.set(parent, [...(children.get(parent) ?? []), pid]);
  }
  const tree = [root];
  for (let index = 0; index < tree.length; index++) tree.push(...(children.get(tree[index] ?? 0) ?? []));
  return tree;
}

/** CPU time (user and system) of each process so far, in milliseconds. */
export function readProcessorMs(pids: number[]): Map<number, number> {
  const result = new Map<number, number>();
  for (const pid of pids) {
    const stat = readStat(pid);
    if (stat) result.set(pid, (Number(stat[11]) + Number(stat[12])) * MS_PER_TICK);
  }
  return result;
}

function readMemoryKb(pid: number, field: 'VmHWM' | 'VmRSS'): number {
  try {
    const status = readFileSync(`/proc/${String(pid)}/status`, 'latin1');
    return Number(new RegExp(`^${field}:\\s+(\\d+)`, 'm').exec(status)?.[1] ?? 0);
  } catch {
    return 0;
  }
}

/** Peak (`VmHWM`) or current (`VmRSS`) memory of the tree in MB; shared pages count once per process. */
export function readMemoryMb(root: number, field: 'VmHWM' | 'VmRSS'): number {
  const kilobytes = listProcessTree(root).reduce((sum, pid) => sum + readMemoryKb(pid, field), 0);
  return kilobytes / 1024;
}

/** Resets the peak to the current memory. */
export function resetPeakMemory(root: number): void {
  for (const pid of listProcessTree(root)) {
    try {
      writeFileSync(`/proc/${String(pid)}/clear_refs`, '5');
    } catch {
      // There is no permission. The peak then covers the whole life of the process.
    }
  }
}

/** Busy time of all cores in milliseconds, with the time that the host of a virtual machine gave to other guests. */
export function readBusyMs(): number {
  try {
    const total = readFileSync('/proc/stat', 'latin1').split('\n', 1)[0] ?? '';
    const [user = 0, nice = 0, system = 0, , , interrupts = 0, softInterrupts = 0, stolen = 0] = total
      .split(/\s+/)
      .slice(1)
      .map(Number);
    return (user + nice + system + interrupts + softInterrupts + stolen) * MS_PER_TICK;
  } catch {
    return 0;
  }
}
