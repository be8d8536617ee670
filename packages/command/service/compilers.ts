// V8's optimizing compilers, TurboFan and Maglev, are off until the program has started: main.ts and worker-main.ts turn them
// off. The code of the start runs only once, so optimizing it saves no time, and would cost an idle gateway 8 MB of memory.

import { setFlagsFromString } from 'node:v8';

/** Turns the compilers on for every function. */
export function releaseCompilers(): void {
  setFlagsFromString('--turbo-filter=*');
  setFlagsFromString('--maglev-filter=*');
}
