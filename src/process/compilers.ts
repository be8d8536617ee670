// V8's optimizing compilers, TurboFan and Maglev, wait until the program has started: what runs once gains nothing from
// them, and they bring some 8 MB of Node's own program into memory, which a gateway at rest does not need. Code that is
// hot when they are let go is compiled then.

import { setFlagsFromString } from 'node:v8';

// Which functions each of them takes: none (`~`), or all.
const holdingFlags = ['--turbo-filter=~', '--maglev-filter=~'];
const releasingFlags = ['--turbo-filter=*', '--maglev-filter=*'];

export function holdCompilers(): void {
  for (const flag of holdingFlags) {
    setFlagsFromString(flag);
  }
}

export function releaseCompilers(): void {
  for (const flag of releasingFlags) {
    setFlagsFromString(flag);
  }
}
