// Puts the parts together: the client listener with the gateway, the admin listener, log and metrics. Knows
// how to start and how to drain; when to do either is lifecycle.ts's affair.

import Fastify from 'fastify';

import { BackendMonitor } from './admin/backend-status.ts';
import { Metrics } from './admin/metrics.ts';
import { createAdminServer } from './admin/server.ts';
import type { Gateway, GatewayObserver } from './gateway/gateway.ts';
import { gatewayServerOptions, trackConnections, workItemGateway } from './gateway/plugin.ts';
import { listen, type Listener } from './listen.ts';
import { logCall, type Logger } from './log.ts';
import type { Settings } from './settings.ts';
import { version } from './version.ts';

export interface Service {
  readonly url: string;
  readonly adminUrl: string;
  /** From now on `/readyz` says 503 and every reply closes its connection [D33]. */
  beginDrain(): void;
  /** Takes no new connection and resolves when the last one has closed by itself and no call is under way. */
  finishDrain(signal: AbortSignal): Promise<void>;
  /** Cuts whatever is left. */
  stop(): Promise<void>;
}

// A connection with no request on its way for this long is closed while draining: long enough for a
// keep-alive client under load to send its next request and be told to close [D33].
const drainQuietMs = 1_000;
const drainPollMs = 20;

/** Starts both listeners; rejects with a ListenError, everything stopped again. */
export async function startService(settings: Settings, logger: Logger): Promise<Service> {
  const backend = new BackendMonitor(settings.backendUrl);
  let isDraining = false;
  const mounted: { gateway?: Gateway } = {};
  const metrics = new Metrics({
    inFlight: () => mounted.gateway?.inFlight ?? 0,
    bufferedBytes: () => mounted.gateway?.budget.bytes ?? 0,
    backendConnections: () => mounted.gateway?.backend.connectionCount ?? 0,
    backendReachable: async () => ((await backend.check()).isReachable ? 1 : 0),
    version,
  });

  const app = Fastify(gatewayServerOptions(settings));
  const connections = trackConnections(app.server);
  await app.register(workItemGateway, {
    ...settings,
    observer: createObserver(logger, metrics, backend),
    onMounted: (gateway) => (mounted.gateway = gateway),
  });
  const admin = createAdminServer({ metrics, backend, isDraining: () => isDraining });
  await Promise.all([app.ready(), admin.ready()]);

  const listeners: Listener[] = [];
  const stop = async (): Promise<void> => {
    await Promise.all(
      listeners.map(async (listener) => {
        await listener.close();
      }),
    );
    app.server.closeAllConnections();
    admin.server.closeAllConnections();
    await Promise.all([app.close(), admin.close()]);
  };
  try {
    listeners.push(await listen(app.server, settings.host, settings.port, '--port (PORT)'));
    listeners.push(
      await listen(admin.server, settings.adminHost, settings.adminPort, '--admin-port (ADMIN_PORT)'),
    );
  } catch (error) {
    await stop();
    throw error;
  }
  const [clientListener, adminListener] = listeners as [Listener, Listener];

  return {
    url: clientListener.url,
    adminUrl: adminListener.url,
    beginDrain: () => {
      isDraining = true;
      if (mounted.gateway !== undefined) {
        mounted.gateway.isDraining = true;
      }
    },
    finishDrain: async (signal) => {
      const from = performance.now();
      await clientListener.close();
      while (!signal.aborted && (connections.size > 0 || (mounted.gateway?.inFlight ?? 0) > 0)) {
        for (const connection of connections) {
          if (connection.isQuiet(drainQuietMs, from)) {
            connection.socket.destroy();
          }
        }
        await new Promise((resolve) => setTimeout(resolve, drainPollMs));
      }
    },
    stop,
  };
}

function createObserver(logger: Logger, metrics: Metrics, backend: BackendMonitor): GatewayObserver {
  return {
    onCallEnd: (call) => {
      metrics.record(call);
      if (call.backendOutcome !== undefined && call.backendOutcome !== 'cancelled') {
        const hasNoAnswer = call.backendOutcome === 'unreachable' || call.backendOutcome === 'timed-out';
        backend.report(hasNoAnswer ? String(call.cause) : undefined);
      }
      logCall(logger, call);
    },
    onMalformed: (requestId, reply, code) => {
      metrics.recordMalformed(reply.status);
      logger.info({ requestId, status: reply.status, outcome: 'bad-request', code }, 'not a request');
    },
    onBug: (error, call) => {
      metrics.recordBug();
      logger.error(
        { requestId: call.requestId, err: error },
        'a fault of the gateway after its reply had begun',
      );
    },
  };
}
