// Serves clients by one set of settings: gateway, guards, traces and connections. It does not listen: it takes the
// connections that it is given. So a reload makes a second one, and lets the first finish what it has [D65].

import type { Socket } from 'node:net';
import { setImmediate as nextTurn } from 'node:timers/promises';

import { parseHostNames } from '../../core/admission/host-names.ts';
import { describeTlsError } from '../../core/backend/describe-error.ts';
import type { Keeper } from '../../core/guards/options/ports.ts';
import { createGateway } from '../../core/hosts/options/options.ts';
import { createOpenSocket } from '../../core/http1/client-connection.ts';
import { ClientServer } from '../../core/http1/server.ts';
import { BackendMonitor, backendPeer } from '../../figures/backend-status.ts';
import type { Figures } from '../../figures/figures.ts';
import { KeyRecords } from '../../figures/key-status.ts';
import type { Records, ReportedServing } from '../../figures/report.ts';
import type { TlsInForce } from '../certificates/certificates.ts';
import type { Logger } from '../log/log.ts';
import type { SpanObserver } from '../options/tracing.ts';
import type { Settings } from '../settings/settings.ts';
import { createGuards } from './guards.ts';
import { createObserver } from './observer.ts';
import { loadPart, type Parts } from './parts.ts';
import type { ClientService } from './services.ts';

export interface Serving extends ReportedServing, Pick<ClientService, 'renewTls' | 'beginDrain' | 'stop'> {
  readonly scheme: 'http' | 'https';
  /** Serves the connection, or closes it when there are too many. */
  take(socket: Socket): void;
  /** Resolves when the last connection has closed by itself and no call is under way, or when `signal` is aborted. */
  drain(signal: AbortSignal): Promise<void>;
}

/** What several servings of one process, one after the other, have in common. */
interface ServingSurroundings {
  readonly logger: Logger;
  readonly records: Pick<Records, 'figures' | 'failures'>;
  readonly keeper: Keeper;
  readonly parts: Partial<Parts>;
}

// How long the end of the process waits for the collector [D49].
const tracesEndMs = 1_000;

/** Rejects with a StartError when it cannot serve by these settings. */
export async function createServing(
  settings: Settings,
  tls: TlsInForce,
  { logger, records: shared, keeper, parts }: ServingSurroundings,
): Promise<Serving> {
  const { allowedHosts, backendUrl, host } = settings;
  // The last that were given, for what looks at the backend.
  let { backend: backendTls } = tls;
  const backend = new BackendMonitor(createOpenSocket(backendUrl, () => backendTls));
  const records: Records = { ...shared, backend, keys: new KeyRecords() };
  const values = {
    ...settings,
    backendTls: backendUrl.protocol === 'https:' ? backendTls : undefined,
    allowedHosts: allowedHosts.length === 0 ? [] : [...(parseHostNames(host) ?? []), ...allowedHosts],
  };
  // What is loaded comes before what has to be closed again. Only what is wanted is loaded: neither the start nor the memory of
  // a gateway without it pays.
  const pages = settings.docs ? (await import('../api-reference/pages.ts')).loadPages(settings) : undefined;
  const traces =
    settings.otelExporterOtlpEndpoint === ''
      ? undefined
      : await loadPart(parts, 'traces', 'OTEL_EXPORTER_OTLP_ENDPOINT');
  const http2 = settings.http2 ? await loadPart(parts, 'http2', 'HTTP2') : undefined;
  const guards = await createGuards(settings, logger, records, keeper);
  const tracer = traces?.createTraces(settings, observeSpans(settings, logger, records.figures));
  const gateway = createGateway(values, {
    observer: createObserver(logger, records, settings.logClient),
    guards: guards.guards,
    identityHeader: settings.backendIdentityHeader,
    tracer,
    peer: backendPeer,
  });
  if (pages !== undefined) {
    gateway.servePages(pages);
  }
  const protocols = http2 && { h2: http2.serveHttp2(settings, gateway) };
  const secure = tls.clients && { tls: tls.clients, ...(protocols && { protocols }) };
  let connections: ClientServer;
  try {
    connections = new ClientServer(settings, gateway, secure);
  } catch (error) {
    // Certificates that the platform cannot use: the serving before this one goes on.
    guards.close();
    await tracer?.end(0);
    throw error;
  }
  connections.onHandshakeFailure = (error, address) => {
    records.figures.recordFailedHandshake();
    const client = settings.logClient ? address : undefined;
    logger.debug({ client, cause: describeTlsError(error) }, 'a client did not set up TLS');
  };
  connections.onFull = () => {
    const { connectionsMax } = settings;
    logger.warn({ connectionsMax }, 'too many connections: those at rest make room, or newcomers are closed');
  };
  connections.onShed = () => {
    records.figures.recordShedConnection();
  };
  connections.onStalledRefusal = () => {
    records.figures.recordStalledConnection();
    logger.info('the client took nothing of the reply to what was not a request and was cut off');
  };
  let isDrained = false;
  let stopped: Promise<void> | undefined;
  const cut = async (): Promise<void> => {
    gateway.isCutting = true;
    connections.closeAll();
    guards.close();
    // Their calls hear of it, reads are cancelled; then the backend's connections, and with them writes.
    await nextTurn();
    await gateway.backend.close();
    // The turn in which the last of them is recorded.
    await nextTurn();
    // Where what was left has been cut, nothing waits any more.
    const lost = (await tracer?.end(isDrained ? tracesEndMs : 0)) ?? 0;
    if (lost > 0) {
      logger.warn({ spans: lost }, 'the collector has not taken the last traces');
    }
  };
  return {
    gateway,
    connections,
    backend,
    keys: records.keys,
    redisAnswers: () => guards.redisAnswers(),
    scheme: connections.scheme,
    take: (socket) => {
      connections.take(socket);
    },
    renewTls: (next) => {
      if (next.clients !== undefined) {
        connections.renewTls(next.clients);
      }
      backendTls = next.backend;
      gateway.backend.renewTls(next.backend ?? {});
    },
    beginDrain: () => {
      gateway.isDraining = true;
    },
    drain: async (signal) => {
      await connections.drain(signal, () => gateway.inFlight === 0);
      isDrained = !signal.aborted;
    },
    stop: () => (stopped ??= cut()),
  };
}

function observeSpans(
  { otelExporterOtlpEndpoint: endpoint }: Settings,
  logger: Logger,
  figures: Figures,
): SpanObserver {
  return {
    onDropped: (spans) => {
      figures.recordDroppedSpans(spans);
    },
    onLosing: (cause, spans) => {
      logger.warn({ endpoint, cause, spans }, 'the collector does not take traces: they are dropped');
    },
    onRecovered: (cause, spans) => {
      logger.info({ endpoint, cause, spans }, 'the collector takes traces again');
    },
  };
}
