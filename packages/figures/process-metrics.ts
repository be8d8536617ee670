// The Prometheus client's figures of this process: memory, processor time, event loop, garbage collection, handles.
// They are gathered from the moment they are first asked for.

import { createRequire } from 'node:module';

import type { Registry } from '@prometheus-io/client';

const require = createRequire(import.meta.url);

const unwanted = [
  // Gauges with a counter's name; without it and by `type` they are there too.
  'nodejs_active_handles_total',
  'nodejs_active_requests_total',
  'nodejs_active_resources_total',
  // Taken ten times a second by a timer; the lag of the event loop says the same.
  'nodejs_eventloop_utilization_histogram',
  'nodejs_eventloop_utilization_summary',
];
// So that this timer never fires.
const longestMs = 2 ** 31 - 1;
const eventLoopMean = 'nodejs_eventloop_lag_mean_seconds';
const ofEventLoop = /^nodejs_eventloop_lag_\w+_seconds$/;

/** One of the Prometheus client's metrics with its values, as it takes it back. */
export type ProcessMetric = object & { readonly name: string };

let registry: Registry | undefined;

/** The registry of these figures; throws where the library cannot be loaded, and may be asked again. */
export function processRegistry(): Registry {
  return (registry ??= createRegistry());
}

/** What is known now; rejects where `processRegistry` throws. */
export async function readProcessMetrics(): Promise<readonly ProcessMetric[]> {
  const metrics = await processRegistry().getMetricsAsJSON();
  // Before the first sample since they were last asked, their mean is no number and their least 292 years.
  const hasSample = metrics.some(
    ({ name, values }) => name === eventLoopMean && values.every(({ value }) => Number.isFinite(value)),
  );
  return hasSample ? metrics : metrics.filter(({ name }) => !ofEventLoop.test(name));
}

/**
 * Loads the Prometheus client when it is first needed: whoever does not scrape does not pay for it. `require` forgets a
 * failure, since descriptors may have run out; an `import` that has failed once fails for ever.
 */
export function loadPrometheusClient(): typeof import('@prometheus-io/client') {
  return require('@prometheus-io/client') as typeof import('@prometheus-io/client');
}

function createRegistry(): Registry {
  const client = loadPrometheusClient();
  const created = new client.Registry();
  client.collectDefaultMetrics({ register: created, eventLoopUtilizationTimeout: longestMs });
  for (const name of unwanted) {
    created.removeSingleMetric(name);
  }
  return created;
}
