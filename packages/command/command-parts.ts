// The list of parts. To leave a part out, delete its folder and the lines that import from the folder (two for
// `cluster/`). `npm run leave-out` tests this for each part.

import type { Parts } from './service/process-parts.ts';

export const parts: Partial<Parts> = {
  dashboard: () => import('../dashboard/dashboard-server.ts'),
  standInBackend: () => import('../stand-in-backend/stand-in-server.ts'),
  contractCheck: () => import('../contract-check/contract-command.ts'),
  cluster: () => import('./cluster/worker-pool.ts'),
  worker: () => import('./cluster/worker.ts'),
  traces: () => import('./traces/traces.ts'),
  http2: () => import('../core/hosts/http2/http2.ts'),
};
