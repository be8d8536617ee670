// Entry point of a worker process.

// A terminal or service manager sends signals to every process of the group. A worker ignores them, because the primary
// process handles them. This comes before anything is loaded, because a signal would otherwise end the worker.
for (const signal of ['SIGTERM', 'SIGINT', 'SIGHUP'] as const) process.on(signal, () => undefined);

const { parts } = await import('./command-parts.ts');
const worker = await parts.worker?.();
worker?.serveAsWorker(parts);
