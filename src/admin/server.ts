// The admin listener: /livez, /readyz and /metrics, on a port of its own so that no client reaches them.

import Fastify, { type FastifyInstance } from 'fastify';

import type { BackendMonitor } from './backend-status.ts';
import type { Metrics } from './metrics.ts';

export interface AdminSources {
  readonly metrics: Metrics;
  readonly backend: BackendMonitor;
  readonly isDraining: () => boolean;
}

/** The admin server, not yet listening. */
export function createAdminServer({ metrics, backend, isDraining }: AdminSources): FastifyInstance {
  const app = Fastify({ logger: false, forceCloseConnections: true });
  app.addHook('onSend', (_request, reply, _payload, done) => {
    reply.header('cache-control', 'no-store').header('x-content-type-options', 'nosniff');
    done();
  });
  app.get('/livez', () => ({ status: 'alive' }));
  // A backend that is away does not make this 503: every replica shares it, and all of them would go [D34].
  app.get('/readyz', async (_request, reply) => {
    const { isReachable, since, cause } = await backend.check();
    reply.code(isDraining() ? 503 : 200);
    return {
      status: isDraining() ? 'draining' : 'ready',
      backend: {
        reachable: isReachable,
        since: new Date(since).toISOString(),
        ...(cause === undefined ? {} : { cause }),
      },
    };
  });
  app.get('/metrics', async (_request, reply) => {
    reply.header('content-type', metrics.registry.contentType);
    return await metrics.registry.metrics();
  });
  app.setNotFoundHandler((_request, reply) => {
    void reply.code(404).send({ error: 'Not found' });
  });
  return app;
}
