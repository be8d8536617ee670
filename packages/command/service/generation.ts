// A `Generation` serves clients with one set of settings: it has a gateway, guards, traces and connections. It receives accepted
// connections and does not listen. So a reload can create a second `Generation` while the first finishes its calls [D65].

import type { Socket } from 'node:net';
import { setImmediate as nextTurn } from 'node:timers/promises';

import type { GatewayObserver } from '../../core/call/gateway.ts';
import { normalizeAddress } from '../../core/admission/client-address.ts';
import { parseHostNames } from '../../core/admission/host-names.ts';
import { describeTlsError } from '../../core/backend/describe-error.ts';
import type { Keeper } from '../../core/guards/ports/ports.ts';
import { createOpenSocket } from '../../core/hosts/dialing/open-socket.ts';
import { createGateway } from '../../core/hosts/common/create-gateway.ts';
import type { Connection } from '../../core/http1/connection.ts';
import { ClientListener } from '../../core/hosts/clients/client-listener.ts';
import type { RequestHandler } from '../../core/http1/transport.ts';
import { outcomeOfMalformed } from '../../core/outcomes.ts';
import { BackendMonitor, backendPeer } from '../../figures/backend-status.ts';
import { KeyRecords, type Records, type ReportedGeneration } from '../../figures/report.ts';
import type { TlsInForce } from '../certificates/certificates.ts';
import { logCall } from '../log/call-line.ts';
import type { Logger } from '../log/log.ts';
import { variableOf, type Settings } from '../settings/settings.ts';
import { shareOf } from '../settings/shares.ts';
import { findCollector } from '../settings/trace-settings.ts';
import { createGuards } from './serving-guards.ts';
import { onceASecond } from './listener.ts';
import { loadPart, type ServingProcesses, type Parts, type ProcessHandler } from './process-parts.ts';

export interface Generation extends ReportedGeneration, Pick<ServingProcesses, 'renewTls' | 'beginDrain' | 'stop'> {
  readonly scheme: 'http' | 'https';
  /** Serves the connection, or closes it if there are too many connections and none is idle. */
  take(socket: Socket): void;
  /** Serves a request, also one of a connection that an older `Generation` has. */
  readonly accept: RequestHandler['accept'];
  /** Closes idle connections. Resolves when no connection is open and all calls have ended, or when `signal` is aborted. */
  drain(signal: AbortSignal): Promise<void>;
}

/** Shared by the successive generations of a process. */
interface GenerationContext {
  readonly logger: Logger;
  readonly records: Pick<Records, 'figures' | 'failures'>;
  readonly keeper: Keeper;
  readonly parts: Partial<Parts>;
  readonly handler: ProcessHandler;
  readonly connections: Set<Connection>;
}

// Longest time that an ending process waits for the collector of traces [D49].
const tracesEndMs = 1_000;

export async function createGeneration(
  settings: Settings,
  tls: TlsInForce,
  { logger, records: shared, keeper, parts, handler, connections: all }: GenerationContext,
): Promise<Generation> {
  const { allowedHosts, backendUrl, host } = settings;
  // The TLS settings in force for the backend.
  let { backend: backendTls } = tls;
  const open = createOpenSocket(backendUrl, () => backendTls);
  const backend = new BackendMonitor(open);
  const records: Records = { ...shared, backend, keys: new KeyRecords() };
  const share = shareOf(settings);
  const values = {
    ...settings,
    ...share,
    // `open` uses the options in force.
    backendTls: undefined,
    allowedHosts: allowedHosts.length === 0 ? [] : [...(parseHostNames(host) ?? []), ...allowedHosts],
  };
  // Loads only the code that the settings need, to save start-up time and memory. Loading comes first, so that nothing
  // has to be closed if the loading fails.
  const pages = settings.docs ? (await import('../api-reference/pages.ts')).loadPages(settings) : undefined;
  const collector = findCollector(settings);
  const traces = collector && (await loadPart(parts, 'traces', variableOf(collector.setting)));
  const http2 = settings.http2 ? await loadPart(parts, 'http2', 'HTTP2') : undefined;
  const guards = await createGuards(settings, logger, records, keeper);
  const onDropped = (spans: number): void => records.figures.count('span dropped', spans);
  const tracer = collector && traces?.createTraces(settings, collector, logger, onDropped);
  const observer = createObserver(logger, records, settings.logClient);
  // Calls that have been accepted and have not ended. Those in flight to the backend are a part of them.
  let calls = 0;
  const gateway = createGateway(values, {
    observer: {
      ...observer,
      onCallEnd: (call) => {
        calls -= 1;
        observer.onCallEnd(call);
      },
    },
    guards: guards.guards,
    identityHeader: settings.backendIdentityHeader,
    tracer,
    peer: backendPeer,
    open,
    budget: handler.budget,
  });
  if (pages !== undefined) gateway.servePages(pages);
  const protocols = http2 && { h2: http2.serveHttp2(settings, handler) };
  const secure = tls.clients && { tls: tls.clients, ...(protocols && { protocols }) };
  let connections: ClientListener;
  try {
    connections = new ClientListener({ ...settings, ...share }, handler, secure, all);
  } catch (error) {
    // Node cannot use the certificates. If this is a reload, the previous `Generation` stays in use.
    guards.close();
    await tracer?.end(0);
    throw error;
  }
  connections.onHandshakeFailure = (error, address) => {
    records.figures.count('handshake failed');
    const client = settings.logClient && address !== undefined ? normalizeAddress(address) : undefined;
    logger.debug({ client, cause: describeTlsError(error) }, 'TLS handshake with a client failed');
  };
  const warnOfLimit = onceASecond((connectionsMax: number) => {
    logger.warn({ connectionsMax }, 'connection limit reached: closing idle connections or refusing new ones');
  });
  connections.onFull = () => warnOfLimit(settings.connectionsMax);
  connections.onShed = () => records.figures.count('connection shed');
  connections.onStalledRefusal = () => {
    records.figures.count('connection stalled');
    logger.info('disconnected a client that did not read the reply to a malformed request');
  };
  let isDrained = false;
  let stopped: Promise<void> | undefined;
  const cut = async (): Promise<void> => {
    gateway.isCutting = true;
    connections.closeAll();
    // First, calls are notified of the stop, and backend calls that only read are cancelled. This takes two turns of
    // the event loop, because a socket reports its end late in a turn. After these turns, the guards are closed, which
    // decides about held calls, and the connections to the backend, which ends the other calls.
    await nextTurn();
    await nextTurn();
    guards.close();
    await gateway.backend.close();
    // The last calls are recorded in this turn.
    await nextTurn();
    // After a drain that was cut short, the process does not wait for the collector.
    const lost = (await tracer?.end(isDrained ? tracesEndMs : 0)) ?? 0;
    if (lost > 0) logger.warn({ spans: lost }, 'the last traces were not exported');
  };
  return {
    gateway,
    connections,
    backend,
    keys: records.keys,
    redisAnswers: () => guards.redisAnswers(),
    scheme: connections.scheme,
    take: (socket) => connections.take(socket),
    accept: (head, transport, client) => {
      const call = gateway.accept(head, transport, client);
      calls += 1;
      return call;
    },
    renewTls: (next) => {
      if (next.clients !== undefined) connections.renewTls(next.clients);
      backendTls = next.backend;
    },
    beginDrain: () => {
      gateway.isDraining = true;
    },
    drain: async (signal) => {
      await connections.drain(signal, () => calls === 0);
      isDrained = !signal.aborted;
    },
    stop: () => (stopped ??= cut()),
  };
}

function createObserver(
  logger: Logger,
  { figures, failures, backend }: Records,
  showsClients: boolean,
): GatewayObserver {
  return {
    onCallEnd: (call) => {
      // The log line is written even if the figures throw.
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
    onMalformed: (requestId, { status }, cause, address, reason) => {
      const client = showsClients ? address : undefined;
      figures.recordMalformed(status);
      failures.recordMalformed(requestId, status, cause, client);
      const outcome = outcomeOfMalformed(status);
      logger.info({ requestId, client, status, outcome, reason, cause }, 'malformed request');
    },
    onStall: ({ requestId, operation, path, client, status, replyBytes }) => {
      figures.count('connection stalled');
      logger.info(
        { requestId, operation: operation?.name, path, client: showsClients ? client : undefined, status, replyBytes },
        'disconnected a client that stopped reading its reply',
      );
    },
    onBug: (error, call) => {
      figures.count('bug');
      logger.error({ requestId: call?.requestId, err: error }, 'internal error after the reply had begun');
    },
  };
}
