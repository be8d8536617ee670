// Entry point of a worker process.

import { parts } from './parts.ts';

const worker = await parts.worker?.();
worker?.serveAsWorker(parts);
