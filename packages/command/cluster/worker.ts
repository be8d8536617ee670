// A worker process: serves clients under the control of the primary process (pool.ts), and reports its figures to it.

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

// Time limit for writing the last log lines. pool.ts gives a worker more time to exit after the message `cut`.
const logEndMs = 300;

/** Waits for the message `start` from the primary process, then serves. */
export function serveAsWorker(parts: Partial<Parts>): void {
  process.once('message', (message: ToWorker) => {
    if (message.kind === 'start') {
      run(message, parts).catch((error: unknown) => {
        // Uncaught, the error would reach the listeners for uncaught errors, which only request a stop [D28].
        process.stderr.write(`error: ${error instanceof Error ? (error.stack ?? error.message) : String(error)}\n`);
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
    void send({ kind: 'count', id, question });
  });
  process.on('message', (message: ToWorker) => {
    if (message.kind === 'counted') {
      counter.onAnswer(message.id, message.answer);
    }
  });
  process.once('disconnect', () => counter.onGone());
  const keeper = {
    counter,
    counts: new Map(),
    // The primary process sends only keys from the `AUTH_JWKS_URL` of this worker.
    findKeys: () => keys,
    keepKeys: (_jwksUrl: string, fetched: FetchedKeys): void => {
      void send({ kind: 'keys', keys: fetched });
    },
  };
  let service: ClientService;
  try {
    service = await startClientService(settings, log, { sharing, tls, passed, keeper, parts });
  } catch (error) {
    if (!(error instanceof StartError)) {
      throw error;
    }
    await send({ kind: 'start-error', message: error.message });
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
        await send({ kind: 'reports', id: message.id, reports });
      });
    }
  });
  outliveChannel(log.logger);
  await send({ kind: 'ready', url: service.url });
  // The primary process has already waited for SHUTDOWN_DELAY_MS.
  const exitCode = await runUntilStopped(service, () => ({ ...settings, shutdownDelayMs: 0 }), log.logger, request);
  await log.end(logEndMs);
  const last = { withProcessMetrics: false, probesBackend: false };
  await send({ kind: 'reports', id: -1, reports: await reportsOf(service, last, log.logger) });
  process.exit(exitCode);
}

// Always answers, even without figures, because a silent worker is killed as hanging. Process metrics need a library, which
// cannot be loaded without a free file descriptor. Then the other figures are sent without process metrics.
async function reportsOf(service: ClientService, request: ReportRequest, logger: Logger): Promise<readonly Report[]> {
  try {
    return await service.reports(request);
  } catch (error) {
    logger.error({ err: error }, 'could not read the figures of this worker');
    return request.withProcessMetrics
      ? await reportsOf(service, { ...request, withProcessMetrics: false }, logger)
      : [];
  }
}

// When the primary process ends, node:cluster ends the worker in the middle of its calls, unless `exitedAfterDisconnect`
// is true. This function sets that flag; listenForStop() then starts a drain.
function outliveChannel(logger: Logger): void {
  cluster.worker?.once('disconnect', () => {
    if (cluster.worker !== undefined) {
      cluster.worker.exitedAfterDisconnect = true;
    }
    logger.error('the primary process has ended: finishing requests in flight, then stopping');
  });
}

// A terminal or service manager sends signals to every process of the group. The worker ignores them, because the primary
// process handles them. If the primary process ends, the worker stops too.
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

// Sends nothing once the primary process has ended; the event `disconnect` reports that end.
async function send(message: FromWorker): Promise<void> {
  if (process.connected) {
    await new Promise((resolve) => process.send?.(message, undefined, undefined, resolve));
  }
}
