// A worker process: serves clients and reports its figures. The primary process (pool.ts) controls it.

import type { Socket } from 'node:net';

import { StartError } from '../../core/hosts/common/start-error.ts';
import type { Report, ReportRequest } from '../../figures/report.ts';
import { createLog, type Log, type Logger } from '../log/log.ts';
import { startClientService, type LocalClientService } from '../service/client-service.ts';
import { createKeeper } from '../service/keeper.ts';
import { createStop, runUntilStopped, type Stop } from '../service/lifecycle.ts';
import { onceASecond } from '../service/listener.ts';
import type { Parts } from '../service/parts.ts';
import type { Settings } from '../settings/settings.ts';
import { fromPlain, type FromWorker, type ToWorker } from './messages.ts';
import { PrimaryCounter } from './primary-counter.ts';

// Time limit for writing the last log lines, shorter than the time that pool.ts gives a worker to exit after `cut`.
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
  const settings = fromPlain(plain);
  const inForce = { settings };
  const log = createLog({ ...settings, isShared: true });
  const stop = listenForStop(log.logger);
  const counter = new PrimaryCounter((id, question) => {
    void send({ kind: 'count', id, question });
  });
  process.on('message', (message: ToWorker) => {
    if (message.kind === 'counted') counter.onAnswer(message.id, message.answer);
  });
  process.once('disconnect', () => counter.onGone());
  const own = createKeeper();
  if (keys !== undefined) own.keepKeys(settings.authJwksUrl, keys);
  const keeper = {
    ...own,
    counter,
    keepKeys: (...[jwksUrl, fetched]: Parameters<typeof own.keepKeys>): void => {
      own.keepKeys(jwksUrl, fetched);
      void send({ kind: 'keys', jwksUrl, keys: fetched });
    },
  };
  let service: LocalClientService;
  try {
    service = await startClientService(settings, log, { sharing, tls, passed, keeper, parts });
  } catch (error) {
    if (!(error instanceof StartError)) throw error;
    await send({ kind: 'start-error', message: error.message });
    await log.end(logEndMs);
    process.exit(1);
  }
  let lastConnection = 0;
  const reportLost = onceASecond((count: number) => {
    log.logger.error({ count }, 'could not accept connections: no file descriptor was free');
  });
  process.on('message', (message: ToWorker, socket: Socket | undefined) => {
    switch (message.kind) {
      case 'connection':
        // Node drops a message whose descriptor cannot be received. So a gap in the numbers means lost connections.
        if (message.number > lastConnection + 1) reportLost(message.number - lastConnection - 1);
        lastConnection = message.number;
        // `socket` is undefined if the client has left.
        if (socket !== undefined) service.take(socket);
        break;
      case 'renew-tls':
        service.renewTls(message.tls);
        break;
      case 'reload':
        void reload(service, message, log, inForce);
        break;
      case 'begin-drain':
        service.beginDrain();
        break;
      case 'report':
        void reportsOf(service, message.request, log.logger).then(async (reports) => {
          await send({ kind: 'reports', id: message.id, reports });
        });
        break;
    }
  });
  await send({ kind: 'ready', url: service.url });
  // The primary process has already waited for SHUTDOWN_DELAY_MS, so the worker does not wait.
  const settingsInForce = (): Settings => ({ ...inForce.settings, shutdownDelayMs: 0 });
  const exitCode = await runUntilStopped(service, settingsInForce, log.logger, stop);
  await log.end(logEndMs);
  const last = { withProcessMetrics: false, probesBackend: false };
  await send({ kind: 'reports', id: -1, reports: await reportsOf(service, last, log.logger) });
  process.exit(exitCode);
}

async function reload(
  service: LocalClientService,
  { id, settings: plain, tls }: Extract<ToWorker, { kind: 'reload' }>,
  log: Log,
  inForce: { settings: Settings },
): Promise<void> {
  const settings = fromPlain(plain);
  try {
    const { finished } = await service.reload(settings, tls);
    inForce.settings = settings;
    log.apply(settings);
    await send({ kind: 'reloaded', id, problem: undefined });
    await finished;
  } catch (error) {
    if (!(error instanceof StartError)) log.logger.error({ err: error }, 'internal error during a reload');
    await send({ kind: 'reloaded', id, problem: error instanceof Error ? error.message : String(error) });
  }
  await send({ kind: 'reload-finished', id });
}

// Always answers, even without figures, because the primary process kills a worker that sends no message. Process
// metrics need a library, which cannot be loaded without a free file descriptor. Without the library, the other figures are sent.
async function reportsOf(
  service: LocalClientService,
  request: ReportRequest,
  logger: Logger,
): Promise<readonly Report[]> {
  try {
    return await service.reports(request);
  } catch (error) {
    logger.error({ err: error }, 'could not read the figures of this worker');
    return request.withProcessMetrics
      ? await reportsOf(service, { ...request, withProcessMetrics: false }, logger)
      : [];
  }
}

// A terminal or service manager sends signals to every process of the group. The worker ignores signals, because the
// primary process handles them. If the primary process ends, the worker stops too.
function listenForStop(logger: Logger): Stop {
  const stop = createStop(logger, process);
  for (const signal of ['SIGTERM', 'SIGINT', 'SIGHUP'] as const) {
    process.on(signal, () => undefined);
  }
  process.once('disconnect', () => {
    logger.error('the primary process has ended: finishing requests in flight, then stopping');
    stop.wanted.abort();
  });
  process.on('message', ({ kind }: ToWorker) => {
    if (kind === 'finish-drain' || kind === 'cut') stop.wanted.abort();
    if (kind === 'cut') stop.cut.abort();
  });
  return stop;
}

// Sends nothing once the primary process has ended; the event `disconnect` reports that end.
async function send(message: FromWorker): Promise<void> {
  if (process.connected) await new Promise((resolve) => process.send?.(message, undefined, undefined, resolve));
}
