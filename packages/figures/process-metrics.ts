// The metrics that the Prometheus client library collects in this process: memory, CPU time, event loop, garbage
// collection, handles. Collection starts with the first request for these metrics.

import { createRequire } from 'node:module';

import type { Registry } from '@prometheus-io/client';

const require = createRequire(import.meta.url);

const unwanted = [
  // Gauges that are named like counters. The library also has these numbers by `type`, in metrics without `_total`.
  'nodejs_active_handles_total',
  'nodejs_active_requests_total',
  'nodejs_active_resources_total',
  // For the utilization, a timer takes ten samples a second. The event-loop lag shows the same.
  'nodejs_eventloop_utilization_histogram',
  'nodejs_eventloop_utilization_summary',
];
// The longest interval of a timer, 24.8 days. With it the library's timer hardly ever fires.
const longestMs = 2 ** 31 - 1;
const eventLoopMean = 'nodejs_eventloop_lag_mean_seconds';
const eventLoopLag = /^nodejs_eventloop_lag_\w+_seconds$/;

/** A metric with its values, in the Prometheus client's own form. */
export type ProcessMetric = object & { readonly name: string };

let registry: Registry | undefined;

/** The registry of these metrics. Throws if the library cannot be loaded; a later call tries again. */
export function processRegistry(): Registry {
  if (registry !== undefined) return registry;
  const client = loadPrometheusClient();
  const created = new client.Registry();
  client.collectDefaultMetrics({ register: created, eventLoopUtilizationTimeout: longestMs });
  for (const name of unwanted) created.removeSingleMetric(name);
  return (registry = created);
}

export async function readProcessMetrics(): Promise<readonly ProcessMetric[]> {
  const metrics = await processRegistry().getMetricsAsJSON();
  // Without a sample since the last read, the mean is NaN and the minimum 292 years, so these metrics are left out.
  const hasSample = metrics.some(
    ({ name, values }) => name === eventLoopMean && values.every(({ value }) => Number.isFinite(value)),
  );
  return hasSample ? metrics : metrics.filter(({ name }) => !eventLoopLag.test(name));
}

/**
 * Loads the Prometheus client on first use, so that a gateway that is never scraped saves the memory. Uses `require`, which
 * can succeed after a failure such as a lack of descriptors. An `import` that failed once always fails.
 */
export function loadPrometheusClient(): typeof import('@prometheus-io/client') {
  return require('@prometheus-io/client') as typeof import('@prometheus-io/client');
}
