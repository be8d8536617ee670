// A worker process: serves clients and reports its figures. The primary process (worker-pool.ts) controls it.

import type { Socket } from 'node:net';

import { handleOf } from '../../core/http1/node-internals.ts';
import { placeOfKeys } from '../../core/guards/ports/ports.ts';
import { StartError } from '../../core/hosts/common/start-error.ts';
import type { Report, ReportRequest } from '../../figures/report.ts';
import { createLog, type Log, type Logger } from '../log/log.ts';
import { startLocalService, type LocalService } from '../service/local-service.ts';
import { createKeeper } from '../service/keeper.ts';
import { createStop, runUntilStopped, type Stop } from '../service/lifecycle.ts';
import type { Parts } from '../service/process-parts.ts';
import type { Settings } from '../settings/settings.ts';
import { fromPlain, type FromWorker, type ToWorker } from './messages.ts';
import { PrimaryCounter } from './primary-counter.ts';

// Time limit for writing the last log lines, shorter than the time that worker-pool.ts gives a worker to exit after `cut`.
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
  { settings: plain, tls, keys }: Extract<ToWorker, { kind: 'start' }>,
  parts: Partial<Parts>,
): Promise<void> {
  const settings = fromPlain(plain);
  const inForce = { settings };
  const log = createLog({ ...settings, isShared: true });
  const stop = listenForStop(log.logger);
  const counter = new PrimaryCounter((requests) => void send({ kind: 'count', requests }));
  process.on('message', (message: ToWorker) => {
    if (message.kind === 'counted') counter.onAnswer(message.taken);
  });
  process.once('disconnect', () => counter.onGone());
  const own = createKeeper();
  if (keys !== undefined) own.keepKeys(placeOfKeys(settings), keys);
  const keeper = {
    ...own,
    counter,
    replacesFile: keys !== undefined,
    keepKeys: (...[place, fetched]: Parameters<typeof own.keepKeys>): void => {
      own.keepKeys(place, fetched);
      void send({ kind: 'keys', place, keys: fetched });
    },
  };
  let service: LocalService;
  try {
    service = await startLocalService(settings, log, { listens: false, tls, keeper, parts });
  } catch (error) {
    if (!(error instanceof StartError)) throw error;
    await send({ kind: 'start-error', message: error.message });
    await log.end(logEndMs);
    process.exit(1);
  }
  const confirming = new Set<Promise<void>>();
  const open = (): number => service.connectionCount + confirming.size;
  // After a fault or during a drain, connections are not confirmed: the primary process passes them to another worker.
  const receive = (number: number, socket: Socket | undefined): void => {
    if (stop.wanted.signal.aborted) {
      socket?.destroy();
    } else {
      const confirmed = confirm(number, socket, (own) => service.take(own));
      confirming.add(confirmed);
      void confirmed.finally(() => confirming.delete(confirmed));
    }
  };
  process.on('message', (message: ToWorker, socket: Socket | undefined) => {
    switch (message.kind) {
      case 'connection':
        receive(message.number, socket);
        break;
      case 'ping':
        void send({ kind: 'pong', number: message.number, open: open() });
        break;
      case 'renew-tls':
        service.renewTls(message.tls);
        break;
      case 'reload':
        if (message.keys !== undefined) own.keepKeys(placeOfKeys(message.settings), message.keys);
        keeper.replacesFile = message.keys !== undefined;
        void reload(service, message, log, inForce);
        break;
      case 'begin-drain':
        service.beginDrain();
        break;
      case 'report':
        void reportOf(service, message.request, log.logger).then(async (report) => {
          await send({ kind: 'report', id: message.id, report });
        });
        break;
    }
  });
  const withoutExtras = { withProcessMetrics: false, probesBackend: false };
  await send({ kind: 'ready', report: await reportOf(service, withoutExtras, log.logger) });
  // The primary process has already waited for SHUTDOWN_DELAY_MS, so the worker does not wait.
  const settingsInForce = (): Settings => ({ ...inForce.settings, shutdownDelayMs: 0 });
  const draining = {
    beginDrain: () => service.beginDrain(),
    finishDrain: async (signal: AbortSignal) => {
      await Promise.all(confirming);
      await service.finishDrain(signal);
    },
    stop: () => service.stop(),
  };
  const exitCode = await runUntilStopped(draining, settingsInForce, log.logger, stop);
  await log.end(logEndMs);
  await send({ kind: 'report', id: -1, report: await reportOf(service, withoutExtras, log.logger) });
  process.exit(exitCode);
}

async function reload(
  service: LocalService,
  { id, settings: plain, tls }: Extract<ToWorker, { kind: 'reload' }>,
  log: Log,
  inForce: { settings: Settings },
): Promise<void> {
  const settings = fromPlain(plain);
  try {
    const { finished } = await service.reload(settings, tls);
    if (finished !== undefined) inForce.settings = settings;
    await send({ kind: 'reloaded', id, problem: undefined });
    // From now on, an exception no longer refuses the settings.
    if (finished !== undefined) log.apply(settings);
    await finished;
  } catch (error) {
    if (!(error instanceof StartError)) log.logger.error({ err: error }, 'internal error during a reload');
    await send({ kind: 'reloaded', id, problem: error instanceof Error ? error.message : String(error) });
  }
  await send({ kind: 'reload-finished', id });
}

// Confirms the connection, then passes it to `take`. The connection is not read before the OS has the confirmation:
// otherwise, if this worker ended, another worker would get a connection without its first bytes. `socket` is undefined if
// the client has left. If the primary process has ended, no other worker can get the connection.
async function confirm(number: number, socket: Socket | undefined, take: (socket: Socket) => void): Promise<void> {
  const handle = socket && handleOf(socket);
  handle?.readStop?.();
  await send({ kind: 'taken', number });
  handle?.readStart?.();
  if (socket !== undefined) take(socket);
}

// Process metrics need a library, which cannot be loaded without a free file descriptor. Without the library, the report
// has all other figures.
async function reportOf(service: LocalService, request: ReportRequest, logger: Logger): Promise<Report | undefined> {
  try {
    const { living } = await service.reports(request);
    return living[0];
  } catch (error) {
    logger.error({ err: error }, 'could not read the figures of this worker');
    return request.withProcessMetrics
      ? await reportOf(service, { ...request, withProcessMetrics: false }, logger)
      : undefined;
  }
}

// The primary process handles signals, and stops the worker by messages. If the primary process ends, the worker stops too.
function listenForStop(logger: Logger): Stop {
  const stop = createStop(logger, process, () => void send({ kind: 'fault' }));
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
