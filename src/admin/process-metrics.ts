// prom-client's figures of this process: memory, processor time, event loop, garbage collection, handles.
// They are gathered from the moment they are first asked for.

import type { Registry } from 'prom-client';

import { loadPromClient } from './prom-client.ts';
import type { ProcessMetric } from './report.ts';

let registry: Registry | undefined;

/** The registry of these figures; throws where the library cannot be loaded, and may be asked again. */
export function processRegistry(): Registry {
  return (registry ??= createRegistry());
}

/** What is known now; rejects where `processRegistry` throws. */
export async function readProcessMetrics(): Promise<readonly ProcessMetric[]> {
  return await processRegistry().getMetricsAsJSON();
}

function createRegistry(): Registry {
  const promClient = loadPromClient();
  const created = new promClient.Registry();
  promClient.collectDefaultMetrics({ register: created });
  return created;
}
