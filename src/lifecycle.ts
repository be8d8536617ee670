// The life of the process: starting, ready, draining, stopped; signals, the deadline, the exit code [D33].
// What draining means for connections is service.ts's affair.

import type { Log } from './log.ts';
import type { Service } from './service.ts';
import type { Settings } from './settings.ts';

/** Where signals and stray errors come from: the process. */
export type SignalSource = Pick<NodeJS.Process, 'on' | 'off'>;

const signals = ['SIGTERM', 'SIGINT'] as const;
// Ctrl-C under `npm run` comes twice: from the terminal, and once more from npm, which passes it on.
const sameSignalMs = 100;

/**
 * Resolves with the exit code when the service has stopped: 0 after a drain that cut nothing, 1 when
 * something was cut (a second signal, or past the shutdown timeout) or a fault of our own ended it.
 */
export async function runUntilStopped(
  service: Service,
  settings: Pick<Settings, 'shutdownDelayMs' | 'shutdownTimeoutMs'>,
  { logger, flush }: Log,
  source: SignalSource,
): Promise<number> {
  const cut = new AbortController();
  const { promise: stopRequested, resolve: requestStop } = Promise.withResolvers<'signal' | 'fault'>();
  let firstSignalAt: number | undefined;
  const onSignal = (signal: NodeJS.Signals): void => {
    const now = performance.now();
    if (firstSignalAt !== undefined && now - firstSignalAt < sameSignalMs) {
      return;
    }
    if (firstSignalAt === undefined) {
      firstSignalAt = now;
      logger.info({ signal }, 'draining: requests under way finish; a second signal cuts them');
      requestStop('signal');
    } else {
      logger.warn({ signal }, 'second signal: cutting what is left');
      cut.abort();
    }
  };
  // Nothing is known of the state behind such an error: stop in order rather than live on half dead.
  const onFault = (error: unknown): void => {
    logger.fatal({ err: error }, 'a fault outside any request: stopping');
    requestStop('fault');
  };
  for (const signal of signals) {
    source.on(signal, onSignal);
  }
  source.on('uncaughtException', onFault).on('unhandledRejection', onFault);

  const reason = await stopRequested;
  service.beginDrain();
  await pause(settings.shutdownDelayMs, cut.signal);
  const timer = setTimeout(() => {
    logger.warn(
      { shutdownTimeoutMs: settings.shutdownTimeoutMs },
      'the shutdown timeout has passed: cutting what is left',
    );
    cut.abort();
  }, settings.shutdownTimeoutMs);
  await service.finishDrain(cut.signal);
  clearTimeout(timer);
  await service.stop();
  const exitCode = cut.signal.aborted || reason === 'fault' ? 1 : 0;
  logger.info({ exitCode }, 'stopped');
  flush();
  for (const signal of signals) {
    source.off(signal, onSignal);
  }
  source.off('uncaughtException', onFault).off('unhandledRejection', onFault);
  return exitCode;
}

async function pause(ms: number, signal: AbortSignal): Promise<void> {
  if (ms === 0 || signal.aborted) {
    return;
  }
  const { promise, resolve } = Promise.withResolvers<undefined>();
  const finish = (): void => {
    clearTimeout(timer);
    resolve(undefined);
  };
  const timer = setTimeout(finish, ms);
  signal.addEventListener('abort', finish, { once: true });
  await promise;
}
