// V8's optimizing compilers, TurboFan and Maglev, wait until the program has started: what runs once gains nothing from
// them, and they bring 8 MB into memory, which an idle gateway does not need. The first file of a process (main.ts,
// worker-main.ts) turns them off before it loads anything; code that is hot when they start is compiled then.

import { setFlagsFromString } from 'node:v8';

/** They take every function again. */
export function releaseCompilers(): void {
  setFlagsFromString('--turbo-filter=*');
  setFlagsFromString('--maglev-filter=*');
}
