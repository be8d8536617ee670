// The first file of a worker process, as src/main.ts is of the command: the rest is loaded when the compilers wait.

import { holdCompilers } from '../process/compilers.ts';

holdCompilers();
await import('./worker.ts');
