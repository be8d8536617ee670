// The Prometheus client, loaded when it is first needed: whoever does not scrape does not pay for it. `require` forgets a
// failure, since descriptors may have run out; an `import` that has failed once fails for ever.

import { createRequire } from 'node:module';

const require = createRequire(import.meta.url);

export function loadPrometheusClient(): typeof import('@prometheus-io/client') {
  return require('@prometheus-io/client') as typeof import('@prometheus-io/client');
}
