// The list of parts. To leave a part out, delete its folder and the lines that import from the folder (two for
// `cluster/`). `npm run leave-out` tests this for each part.

import type { Parts } from './service/parts.ts';

export const parts: Partial<Parts> = {
  dashboard: () => import('../dashboard/server.ts'),
  standInBackend: () => import('../stand-in-backend/server.ts'),
  contractCheck: () => import('../contract-check/command.ts'),
  cluster: () => import('./cluster/pool.ts'),
  worker: () => import('./cluster/worker.ts'),
  traces: () => import('./traces/traces.ts'),
  http2: () => import('../core/hosts/http2/http2.ts'),
};
