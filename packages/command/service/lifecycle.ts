// The life of the process, from start to exit code: signals, draining, deadlines [D33].

import { once } from 'node:events';
import { setTimeout as delay } from 'node:timers/promises';

import { startDeadline } from '../../core/hosts/common/process-deadline.ts';
import type { Logger } from '../log/log.ts';
import type { Settings } from '../settings/settings.ts';

/** The source of signals and uncaught errors: the process. */
export interface SignalSource {
  on(signal: NodeJS.Signals, listener: (signal: NodeJS.Signals) => void): unknown;
  on(fault: 'uncaughtException' | 'unhandledRejection', listener: (error: unknown) => void): unknown;
}

export interface Service {
  /** From now on every reply closes its connection [D33]. If the service has `/readyz`, this path answers 503. */
  beginDrain(): void;
  /**
   * Refuses new connections and closes idle ones. Resolves when all connections have closed and no call is in flight. Once
   * `signal` is aborted, resolves without waiting for calls.
   */
  finishDrain(signal: AbortSignal): Promise<void>;
  stop(): Promise<void>;
  /** True if a worker failed while the service was stopping. */
  readonly hasFailed?: () => boolean;
}

// Under `npm run` a signal to the process group, such as the SIGINT of Ctrl-C, arrives twice: directly, and later from
// npm. So one repetition within this time does not count as a second signal.
const repetitionByNpmMsMax = 1_000;
// Time limit for the last step of a stop, `service.stop()`, which cuts all connections and kills hanging workers.
const stopMsMax = 4_000;

/** The requests to stop the process. They come from an operator or from an internal error. */
export interface Stop {
  readonly wanted: AbortController;
  /** Aborted when the remaining connections are to be cut. */
  readonly cut: AbortController;
  /** True if there was an internal error, before or after a stop was requested. */
  hasFault: boolean;
}

/** Creates a `Stop`. Every uncaught error requests a stop; the first one calls `onFirstFault` before anything else. */
export function createStop(logger: Logger, source: SignalSource, onFirstFault: () => void = () => undefined): Stop {
  const stop = { wanted: new AbortController(), cut: new AbortController(), hasFault: false };
  // After an uncaught error the state is unknown, so the process drains and stops.
  const onFault = (error: unknown): void => {
    if (!stop.hasFault) onFirstFault();
    stop.hasFault = true;
    stop.wanted.abort();
    try {
      logger.fatal({ err: error }, 'internal error outside any request: stopping');
    } catch {
      // The log itself may be broken; an error thrown from here would end the process immediately.
    }
  };
  source.on('uncaughtException', onFault);
  source.on('unhandledRejection', onFault);
  return stop;
}

/**
 * Listens for signals and errors that stop the process. Call this before anything is started, so that no signal during
 * the start is lost. With `stopsOnHangUp`, SIGHUP stops the process too. Callers set `stopsOnHangUp` if SIGHUP
 * means a closed terminal [D54], or if there is nothing to reload.
 */
export function listenForStop(
  logger: Logger,
  { environment, signals: source }: { readonly environment: NodeJS.ProcessEnv; readonly signals: SignalSource },
  stopsOnHangUp: boolean,
): Stop {
  const stop = createStop(logger, source);
  const startDrain = (signal: NodeJS.Signals): void => {
    if (!stop.wanted.signal.aborted) {
      logger.info({ signal }, 'draining: finishing requests in flight; a second signal cuts them off');
    }
    stop.wanted.abort();
  };
  let first: { readonly signal: NodeJS.Signals; readonly at: number } | undefined;
  let awaitsRepetition = environment['npm_lifecycle_event'] !== undefined;
  const onSignal = (signal: NodeJS.Signals): void => {
    const now = performance.now();
    if (first === undefined) {
      first = { signal, at: now };
      startDrain(signal);
    } else if (awaitsRepetition && signal === first.signal && now - first.at < repetitionByNpmMsMax) {
      awaitsRepetition = false;
    } else {
      logger.warn({ signal }, 'second signal: cutting requests still in flight');
      stop.cut.abort();
    }
  };
  source.on('SIGTERM', onSignal);
  source.on('SIGINT', onSignal);
  if (stopsOnHangUp) {
    // SIGHUP never counts as a first or second signal, because it often comes together with another signal. When a
    // terminal closes, both the OS and the shell may send SIGHUP. Service managers send it right after SIGTERM.
    source.on('SIGHUP', startDrain);
  }
  return stop;
}

/**
 * Listens for SIGHUP, which would otherwise end the process. Returns the function that sets `reload`. If a signal
 * arrives before `reload` is set, a reload starts as soon as it is set. Reloads run one after the other; all signals
 * during a reload together cause one more reload.
 */
export function listenForReloads(source: SignalSource): (reload: () => Promise<void>) => void {
  const begun = Promise.withResolvers<() => Promise<void>>();
  let last: Promise<unknown> = begun.promise;
  let isWaiting = false;
  source.on('SIGHUP', () => {
    if (!isWaiting) {
      isWaiting = true;
      last = last.then(async () => {
        isWaiting = false;
        const reload = await begun.promise;
        await reload();
      });
    }
  });
  return begun.resolve;
}

/**
 * Runs the service until a stop is requested, drains and stops it, and resolves with the exit code. 0: the drain and
 * the stop were complete. 1: calls were cut (by a second signal or the shutdown timeout), a worker failed, the stop
 * took too long, or there was an internal error.
 */
export async function runUntilStopped(
  service: Service,
  settingsInForce: () => Pick<Settings, 'shutdownDelayMs' | 'shutdownTimeoutMs'>,
  logger: Logger,
  stop: Stop,
): Promise<number> {
  await untilAborted(stop.wanted.signal);
  service.beginDrain();
  const { shutdownDelayMs, shutdownTimeoutMs } = settingsInForce();
  await delay(shutdownDelayMs, undefined, { signal: stop.cut.signal }).catch(() => undefined);
  // Limits the time in which calls in flight may finish [D33].
  const timeout = new AbortController();
  const callOff = startDeadline(shutdownTimeoutMs, () => {
    logger.warn({ shutdownTimeoutMs }, 'shutdown timeout reached: cutting requests still in flight');
    timeout.abort();
  });
  const cut = AbortSignal.any([stop.cut.signal, timeout.signal]);
  // Stops waiting when `cut` is aborted, because after an internal error the drain may never finish.
  await Promise.race([service.finishDrain(cut), untilAborted(cut)]);
  callOff();
  const late = Promise.withResolvers<boolean>();
  const callOffLate = startDeadline(stopMsMax, () => late.resolve(false));
  const isStopped = await Promise.race([service.stop().then(() => true), late.promise]);
  callOffLate();
  const hasFailed = stop.hasFault || service.hasFailed?.() === true || !isStopped;
  const exitCode = cut.aborted || hasFailed ? 1 : 0;
  logger.info({ exitCode }, 'stopped');
  return exitCode;
}

export async function untilAborted(signal: AbortSignal): Promise<void> {
  if (!signal.aborted) await once(signal, 'abort');
}
