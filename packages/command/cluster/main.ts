// The first file of a worker process, as packages/command/main.ts is of the command: what runs once is not compiled
// (service/compilers.ts), the loading of the rest above all.

import { setFlagsFromString } from 'node:v8';

setFlagsFromString('--turbo-filter=~');
setFlagsFromString('--maglev-filter=~');
await import('./worker.ts');
