// A worker process: serves clients as the primary process (pool.ts) tells it to, and says how it is. With
// packages/command/main.ts the only caller of process.exit.

import cluster from 'node:cluster';

import type { FetchedKeys } from '../../core/guards/options/ports.ts';
import type { Report, ReportRequest } from '../../figures/report.ts';
import { createStop, runUntilStopped, type StopRequest } from '../service/lifecycle.ts';
import type { Parts } from '../service/parts.ts';
import { createLog, type Logger } from '../log/log.ts';
import { startClientService } from '../service/client-service.ts';
import type { ClientService } from '../service/services.ts';
import { StartError } from '../../core/hosts/common/start-error.ts';
import { PrimaryCounter } from './primary-counter.ts';
import type { FromWorker, ToWorker } from './messages.ts';

// Less than the primary process gives a worker that it has told to cut everything.
const logEndMs = 300;

/** Waits for the primary process to say what to serve. */
export function serveAsWorker(parts: Partial<Parts>): void {
  process.once('message', (message: ToWorker) => {
    if (message.kind === 'start') {
      run(message, parts).catch((error: unknown) => {
        // Left to Node it would reach the listeners for stray errors, which only ask for a stop [D28].
        process.stderr.write(
          `error: ${error instanceof Error ? (error.stack ?? error.message) : String(error)}\n`,
        );
        process.exit(1);
      });
    }
  });
}

async function run(
  { settings: plain, sharing, tls, passed, keys }: Extract<ToWorker, { kind: 'start' }>,
  parts: Partial<Parts>,
): Promise<void> {
  const settings = { ...plain, backendUrl: new URL(plain.backendUrl) };
  const log = createLog({ ...settings, isShared: true });
  const request = listenForStop(log.logger);
  const counter = new PrimaryCounter((id, question) => {
    void tell({ kind: 'count', id, question });
  });
  process.on('message', (message: ToWorker) => {
    if (message.kind === 'counted') {
      counter.onAnswer(message.id, message.answer);
    }
  });
  process.once('disconnect', () => {
    counter.onGone();
  });
  const keeper = {
    counter,
    counts: new Map(),
    // The primary process gives those of this worker's address alone.
    findKeys: () => keys,
    keepKeys: (_jwksUrl: string, fetched: FetchedKeys): void => {
      void tell({ kind: 'keys', keys: fetched });
    },
  };
  let service: ClientService;
  try {
    service = await startClientService(settings, log, { sharing, tls, passed, keeper, parts });
  } catch (error) {
    if (!(error instanceof StartError)) {
      throw error;
    }
    await tell({ kind: 'start-error', message: error.message });
    await log.end(logEndMs);
    process.exit(1);
  }
  process.on('message', (message: ToWorker) => {
    if (message.kind === 'begin-drain') {
      service.beginDrain();
    } else if (message.kind === 'renew-tls') {
      service.renewTls(message.tls);
    } else if (message.kind === 'report') {
      void reportsOf(service, message.request, log.logger).then(async (reports) => {
        await tell({ kind: 'reports', id: message.id, reports });
      });
    }
  });
  outliveChannel(log.logger);
  await tell({ kind: 'ready', url: service.url });
  // The delay before a drain is the primary's affair.
  const exitCode = await runUntilStopped(
    service,
    () => ({ ...settings, shutdownDelayMs: 0 }),
    log.logger,
    request,
  );
  await log.end(logEndMs);
  const last = { withProcessMetrics: false, probesBackend: false };
  await tell({ kind: 'reports', id: -1, reports: await reportsOf(service, last, log.logger) });
  process.exit(exitCode);
}

// Figures are no reason to end. Those of the process need a library, which cannot be loaded when descriptors have run
// out: the others are told without them. None is an answer too: a worker that gives none counts as one that hangs.
async function reportsOf(
  service: ClientService,
  request: ReportRequest,
  logger: Logger,
): Promise<readonly Report[]> {
  try {
    return await service.reports(request);
  } catch (error) {
    logger.error({ err: error }, 'figures are missing');
    return request.withProcessMetrics
      ? await reportsOf(service, { ...request, withProcessMetrics: false }, logger)
      : [];
  }
}

// node:cluster ends a worker on the spot when its primary process has gone, and cuts its calls with it, unless it
// takes that for meant. listenForStop() begins a drain instead.
function outliveChannel(logger: Logger): void {
  cluster.worker?.once('disconnect', () => {
    if (cluster.worker !== undefined) {
      cluster.worker.exitedAfterDisconnect = true;
    }
    logger.error('the primary process has gone: finishing what is in flight');
  });
}

// Signals are the primary's to read: a terminal and a service manager send them to every process of a group,
// and what they mean (when a drain begins, what a second one does) is decided once. A primary that has gone
// cannot tell; then it is time to go too.
function listenForStop(logger: Logger): StopRequest {
  const { request, want, cut } = createStop(logger, process);
  for (const signal of ['SIGTERM', 'SIGINT', 'SIGHUP'] as const) {
    process.on(signal, () => undefined);
  }
  process.on('disconnect', want);
  process.on('message', ({ kind }: ToWorker) => {
    if (kind === 'finish-drain' || kind === 'cut') {
      want();
    }
    if (kind === 'cut') {
      cut();
    }
  });
  return request;
}

// A primary that has gone hears nothing; `disconnect` says so.
async function tell(message: FromWorker): Promise<void> {
  if (process.connected) {
    await new Promise((resolve) => process.send?.(message, undefined, undefined, resolve));
  }
}
