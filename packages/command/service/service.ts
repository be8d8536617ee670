// Puts the parts together: the client listener with the gateway, the admin listener, log and figures. Knows
// how to start and how to drain; when to do either is lifecycle.ts's affair.

import { setImmediate as nextTurn } from 'node:timers/promises';
import type { Server } from 'node:net';

import { KeyRecords } from '../../figures/key-status.ts';
import { BackendMonitor, JoinedBackendStatus } from '../../figures/backend-status.ts';
import { RecentFailures } from '../../figures/failures.ts';
import { Figures } from '../../figures/figures.ts';
import { createReporter, type Records, type Reporter } from '../../figures/report.ts';
import { createAdminServer } from '../admin/server.ts';
import type { GatewayObserver } from '../../core/call/gateway.ts';
import { createGateway } from '../../core/hosts/options/options.ts';
import { outcomeOfMalformed } from '../../core/outcomes.ts';
import type { CertificateStatus } from '../../figures/certificate-status.ts';
import { describeTlsError } from '../../core/backend/describe-error.ts';
import type { TlsInForce } from '../certificates/certificates.ts';
import { normalizeHostName, parseHostNames } from '../../core/admission/host-names.ts';
import type { Primary } from '../../core/guards/create-guards.ts';
import { createGuards } from './guards.ts';
import { listen, listenOnPassed, type Listener, type PortSharing } from '../../core/hosts/common/listen.ts';
import { logCall, type Log, type Logger } from '../log/log.ts';
import type { PassedSockets } from './passed-sockets.ts';
import { describeSettings } from '../settings/describe.ts';
import { type ResolvedSettings, type Settings } from '../settings/settings.ts';
import { parseExporterHeaders } from '../traces/trace-settings.ts';
import type { Traces } from '../traces/traces.ts';
import { createOpenSocket } from '../../core/http1/client-connection.ts';
import { ClientServer } from '../../core/http1/server.ts';
import { version } from '../../core/version.ts';
import { listenNames } from '../options/listen-names.ts';
import { backendPeer } from '../../figures/backend-peer.ts';

/** What can be drained and stopped. */
export interface Service {
  /** From now on `/readyz` says 503 and every reply closes its connection [D33]. */
  beginDrain(): void;
  /** Takes no new connection and resolves when the last one has closed by itself and no call is under way. */
  finishDrain(signal: AbortSignal): Promise<void>;
  /** Cuts whatever is left. */
  stop(): Promise<void>;
  /** Part of it has ended as it should not have. */
  readonly hasFailed?: () => boolean;
}

export interface ClientService extends Service, Reporter {
  readonly url: string;
  /** New connections of clients and to the backend get these, open ones live on [D37]. */
  renewTls(tls: TlsInForce): void;
}

export interface WholeService extends Service {
  readonly url: string;
  readonly adminUrl: string;
}

/** What the admin listener is of: a service in this process, or several in others. */
export type AdminSubject = ClientService;

const acceptErrorReportMs = 1_000;
// How long the end of the process waits for the collector [D49].
const tracesEndMs = 1_000;

/** The certificates in force; undefined where there are none. */
export interface Certificates {
  readonly inForce: TlsInForce;
  onChange: (tls: TlsInForce) => void;
  begin(): void;
  /** Compares them with their files now. Never rejects. */
  look(): Promise<void>;
  end(): void;
  status(): CertificateStatus[];
}

const noSockets: PassedSockets = { clients: [], admin: [] };

/** Starts both listeners in this process; rejects with a StartError, everything stopped again. */
export async function startService(
  inForce: () => ResolvedSettings,
  log: Log,
  certificates: Certificates | undefined,
  passed: PassedSockets = noSockets,
): Promise<WholeService> {
  const { settings } = inForce();
  const tls = certificates?.inForce ?? {};
  const clients = await startClientService(settings, log, 'none', tls, undefined, passed.clients);
  return await addAdmin(clients, inForce, log.logger, certificates, passed);
}

/**
 * Adds the admin listener to what serves clients; `inForce` gives the settings in force, which a reload may
 * change. Rejects with a StartError, all of it stopped again.
 */
export async function addAdmin(
  clients: AdminSubject,
  inForce: () => ResolvedSettings,
  logger: Logger,
  certificates: Certificates | undefined,
  passed: PassedSockets = noSockets,
): Promise<WholeService> {
  const { settings } = inForce();
  let isDraining = false;
  const backend = new JoinedBackendStatus();
  const adminHost = normalizeHostName(settings.adminHost);
  const admin = createAdminServer({
    reports: async (request) => backend.join(await clients.reports(request)),
    isDraining: () => isDraining,
    allowedHosts: () => [adminHost, ...inForce().settings.adminAllowedHosts],
    onFault: (error) => {
      logger.error({ err: error }, 'a fault of the gateway in an answer of the admin listener');
    },
    facts: () => ({
      instanceName: inForce().settings.instanceName,
      url: clients.url,
      backendUrl: inForce().settings.backendUrl.href,
      inFlightMax: inForce().settings.inFlightMax,
      bufferedBytesMax: inForce().settings.bufferedBytesMax,
      certificates: certificates?.status() ?? [],
      settings: describeSettings(inForce()),
    }),
  });
  let listener: Listener;
  try {
    listener =
      passed.admin.length > 0
        ? await listenOnPassed(admin.server, passed.admin)
        : await listen(admin.server, settings.adminHost, settings.adminPort, listenNames('ADMIN_'));
  } catch (error) {
    admin.close();
    await clients.stop();
    throw error;
  }
  surviveAcceptErrors(admin.server, logger);
  if (certificates !== undefined) {
    certificates.onChange = (tls) => {
      clients.renewTls(tls);
    };
    certificates.begin();
  }
  return {
    url: clients.url,
    adminUrl: listener.url,
    beginDrain: () => {
      isDraining = true;
      clients.beginDrain();
    },
    finishDrain: async (signal) => {
      await clients.finishDrain(signal);
    },
    stop: async () => {
      admin.close();
      certificates?.end();
      await Promise.all([clients.stop(), listener.close()]);
      admin.cut();
    },
    hasFailed: () => clients.hasFailed?.() === true,
  };
}

/**
 * Starts the client listener in this process, on the listening sockets `passed` where there are any; rejects with a
 * StartError, everything stopped again. `primary` is undefined where this is not one of several workers.
 */
export async function startClientService(
  settings: Settings,
  { logger, output }: Log,
  sharing: PortSharing,
  tls: TlsInForce,
  primary?: Primary,
  passed: readonly number[] = [],
): Promise<ClientService> {
  // The last that were given, for what looks at the backend.
  let { backend: backendTls } = tls;
  const records: Records = {
    figures: new Figures(),
    failures: new RecentFailures(),
    backend: new BackendMonitor(createOpenSocket(settings.backendUrl, () => backendTls)),
    keys: new KeyRecords(),
  };
  output.onDrop = (lines) => {
    records.figures.recordDroppedLogLines(lines);
  };
  const { allowedHosts, host } = settings;
  const limits = {
    ...settings,
    ...(backendTls !== undefined && settings.backendUrl.protocol === 'https:' && { backendTls }),
    allowedHosts: allowedHosts.length === 0 ? [] : [...(parseHostNames(host) ?? []), ...allowedHosts],
  };
  const traces = await startTraces(settings, logger, records.figures);
  const guards = await createGuards(settings, logger, records, primary);
  const observer = createObserver(logger, records, settings.logClient);
  const identityHeader = settings.backendIdentityHeader === '' ? undefined : settings.backendIdentityHeader;
  const gateway = createGateway(limits, {
    observer,
    guards: guards.guards,
    identityHeader,
    tracer: traces?.tracer,
    peer: backendPeer,
  });
  if (settings.docs) {
    // Loaded only when wanted: neither the start nor the memory of a gateway without it pays.
    gateway.servePages((await import('../api-reference/pages.ts')).loadPages(settings));
  }
  // Loaded only when wanted, as well.
  const protocols = settings.http2
    ? { h2: (await import('../../core/hosts/http2/http2.ts')).serveHttp2(settings, gateway) }
    : undefined;
  const connections = new ClientServer(
    settings,
    gateway,
    tls.clients && { tls: tls.clients, ...(protocols && { protocols }) },
  );
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
  let listener: Listener | undefined;
  let isDrained = false;
  const stop = async (): Promise<void> => {
    await listener?.close();
    gateway.isCutting = true;
    connections.closeAll();
    guards.close();
    // Their calls hear of it, reads are cancelled; then the backend's connections, and with them writes.
    await nextTurn();
    await gateway.backend.close();
    // The turn in which the last of them is recorded.
    await nextTurn();
    // Where what was left has been cut, nothing waits any more.
    const lost = (await traces?.end(isDrained ? tracesEndMs : 0)) ?? 0;
    if (lost > 0) {
      logger.warn({ spans: lost }, 'the collector has not taken the last traces');
    }
  };
  try {
    const { listener: server, scheme } = connections;
    listener =
      passed.length > 0
        ? await listenOnPassed(server, passed, scheme)
        : await listen(server, settings.host, settings.port, listenNames(''), sharing, scheme);
  } catch (error) {
    await stop();
    throw error;
  }
  surviveAcceptErrors(connections.listener, logger);
  const { url } = listener;
  return {
    url,
    ...createReporter(records, gateway, connections, () => guards.redisAnswers()),
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
    finishDrain: async (signal) => {
      await listener.close();
      await connections.drain(signal, () => gateway.inFlight === 0);
      isDrained = !signal.aborted;
    },
    stop,
  };
}

// Loaded only when wanted, as the pages are; undefined where nothing is traced [D49].
async function startTraces(
  settings: Settings,
  logger: Logger,
  figures: Figures,
): Promise<Traces | undefined> {
  const endpoint = settings.otelExporterOtlpEndpoint;
  if (endpoint === '') {
    return undefined;
  }
  const { createTraces } = await import('../traces/traces.ts');
  return createTraces({
    endpoint,
    headers: parseExporterHeaders(settings.otelExporterOtlpHeaders) ?? {},
    serviceName: settings.otelServiceName || 'work-item-gateway',
    serviceVersion: version,
    sampler: settings.otelTracesSampler,
    samplerRatio: settings.otelTracesSamplerArg,
    backendUrl: settings.backendUrl,
    scheme: settings.tlsCertFile === '' ? 'http' : 'https',
    showsClients: settings.logClient,
    observer: {
      onDropped: (spans) => {
        figures.recordDroppedSpans(spans);
      },
      onLosing: (cause, spans) => {
        logger.warn({ endpoint, cause, spans }, 'the collector does not take traces: they are dropped');
      },
      onRecovered: (cause, spans) => {
        logger.info({ endpoint, cause, spans }, 'the collector takes traces again');
      },
    },
  });
}

// Taking a connection can fail, above all when the file descriptors have run out. That is no fault of ours to
// stop for: the next one may well succeed.
function surviveAcceptErrors(server: Server, logger: Logger): void {
  let reportedAt = -Infinity;
  server.on('error', (error: Error) => {
    const now = performance.now();
    if (now - reportedAt >= acceptErrorReportMs) {
      reportedAt = now;
      logger.error({ err: error }, 'a connection could not be taken');
    }
  });
}

function createObserver(
  logger: Logger,
  { figures, failures, backend }: Records,
  showsClients: boolean,
): GatewayObserver {
  return {
    onCallEnd: (call) => {
      // Each by itself: where the figures are broken, the line is still written.
      try {
        figures.record(call);
        failures.record(call, showsClients);
      } finally {
        logCall(logger, call, showsClients);
      }
      if (call.backendOutcome !== undefined && call.backendOutcome !== 'cancelled') {
        const hasNoAnswer = call.backendOutcome === 'unreachable' || call.backendOutcome === 'timed-out';
        backend.report(hasNoAnswer ? String(call.cause) : undefined, call.reason);
      }
    },
    onMalformed: (requestId, reply, code, address) => {
      const client = showsClients ? address : undefined;
      figures.recordMalformed(reply.status);
      failures.recordMalformed(requestId, reply.status, code, client);
      const { status } = reply;
      logger.info({ requestId, client, status, outcome: outcomeOfMalformed(status), code }, 'not a request');
    },
    onStall: ({ requestId, operation, path, client, status, replyBytes }) => {
      figures.recordStalledConnection();
      logger.info(
        {
          requestId,
          operation: operation?.name,
          path,
          client: showsClients ? client : undefined,
          status,
          replyBytes,
        },
        'the client took nothing more of its reply and was cut off',
      );
    },
    onBug: (error, call) => {
      figures.recordBug();
      logger.error(
        { requestId: call?.requestId, err: error },
        'a fault of the gateway after its reply had begun',
      );
    },
  };
}
