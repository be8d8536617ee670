// Entry point of a worker process. Turns off the optimizing compilers (service/compilers.ts) before it loads the rest.

import { setFlagsFromString } from 'node:v8';

setFlagsFromString('--turbo-filter=~');
setFlagsFromString('--maglev-filter=~');
const { parts } = await import('./parts.ts');
const worker = await parts.worker?.();
worker?.serveAsWorker(parts);
