// The first file of a worker process, as main.ts is of the command: what runs once is not compiled (service/compilers.ts), the
// loading of the rest above all.

import { setFlagsFromString } from 'node:v8';

setFlagsFromString('--turbo-filter=~');
setFlagsFromString('--maglev-filter=~');
const { parts } = await import('./parts.ts');
const worker = await parts.worker?.();
worker?.serveAsWorker(parts);
