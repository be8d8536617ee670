// V8's optimizing compilers, TurboFan and Maglev, wait until the program has started: what runs once gains nothing from
// them, and they bring some 8 MB of Node's own program into memory, which a gateway at rest does not need. The first file
// of a process (main.ts, cluster/main.ts) has them take no function, before it loads anything; code that is hot when they
// are let go is compiled then.

import { setFlagsFromString } from 'node:v8';

/** They take every function again. */
export function releaseCompilers(): void {
  setFlagsFromString('--turbo-filter=*');
  setFlagsFromString('--maglev-filter=*');
}
