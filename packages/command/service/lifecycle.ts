// The life of the process: starting, ready, draining, stopped; signals, the deadline, the exit code [D33].
// What draining means for connections is service.ts's affair.

import { once } from 'node:events';
import { setTimeout as delay } from 'node:timers/promises';

import type { Logger } from '../log/log.ts';
import { releaseCompilers } from './compilers.ts';
import type { Service } from './services.ts';
import { startDeadline, startShutdownTimeout } from './deadline.ts';
import type { Settings } from '../settings/settings.ts';

/** Where signals and stray errors come from: the process. */
export interface SignalSource {
  on(signal: NodeJS.Signals, listener: (signal: NodeJS.Signals) => void): unknown;
  on(fault: 'uncaughtException' | 'unhandledRejection', listener: (error: unknown) => void): unknown;
}

/** What of a process is asked for: its environment, and its signals. */
interface SignalledProcess {
  readonly environment: Readonly<Record<string, string | undefined>>;
  readonly signals: SignalSource;
}

// A signal to the process group under `npm run`, such as that of Ctrl-C, comes twice: directly, and once more from npm,
// which passes it on when it gets round to it. So one repetition within this time is no second signal.
const repetitionByNpmMsMax = 1_000;
// Everything has been cut by then, and only bookkeeping is left; a worker that does not end has been killed.
const stopMsMax = 4_000;

/** What stops the process: somebody, or a fault of our own. */
export interface StopRequest {
  /** Aborted when a stop is wanted. */
  readonly wanted: AbortSignal;
  /** A fault of our own has been seen, before or after that. */
  readonly hasFault: () => boolean;
  /** Aborted when what is left is to be cut. */
  readonly cut: AbortSignal;
}

interface StopControl {
  readonly request: StopRequest;
  readonly want: () => void;
  readonly cut: () => void;
}

/** A stop request that every fault that nobody caught makes, too. */
export function createStop(logger: Logger, source: SignalSource): StopControl {
  const wanted = new AbortController();
  const cut = new AbortController();
  let hasFault = false;
  // Nothing is known of the state behind such an error: stop in order rather than live on half dead.
  const onFault = (error: unknown): void => {
    hasFault = true;
    wanted.abort();
    try {
      logger.fatal({ err: error }, 'a fault outside any request: stopping');
    } catch {
      // The log may be what is broken; thrown from here, its fault would end the process on the spot.
    }
  };
  source.on('uncaughtException', onFault);
  source.on('unhandledRejection', onFault);
  return {
    request: { wanted: wanted.signal, hasFault: () => hasFault, cut: cut.signal },
    want: () => {
      wanted.abort();
    },
    cut: () => {
      cut.abort();
    },
  };
}

/**
 * Listens for what stops the process, from now to its end. To be called before anything is started: a signal
 * that comes meanwhile is not lost, and one that comes after the end does not change the exit code. Where
 * `stopsOnHangUp`, SIGHUP stops too: it is the end of the terminal [D54], or there is nothing to reload.
 */
export function listenForStop(
  logger: Logger,
  { environment, signals: source }: SignalledProcess,
  stopsOnHangUp: boolean,
): StopRequest {
  const { request, want, cut } = createStop(logger, source);
  const startDrain = (signal: NodeJS.Signals): void => {
    if (!request.wanted.aborted) {
      logger.info({ signal }, 'draining: requests under way finish; a second signal cuts them');
    }
    want();
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
      logger.warn({ signal }, 'second signal: cutting what is left');
      cut();
    }
  };
  source.on('SIGTERM', onSignal);
  source.on('SIGINT', onSignal);
  if (stopsOnHangUp) {
    // Never the second signal, nor the first of two: the system and the shell may both send it as a terminal closes, and
    // service managers send it right after SIGTERM.
    source.on('SIGHUP', startDrain);
  }
  return request;
}

/**
 * Listens for SIGHUP, from now to the end of the process: it would end it otherwise. Returns what begins: from then on
 * `reload` is run for those that come, and for those that have come. Reloads run in turn, and any number of signals
 * that come while one runs are one more after it.
 */
export function listenForReloads(source: SignalSource): (reload: () => Promise<void>) => void {
  let isAsked = false;
  let isRunning = false;
  let reload: (() => Promise<void>) | undefined;
  const run = async (): Promise<void> => {
    if (isRunning || reload === undefined) {
      return;
    }
    isRunning = true;
    while (isAsked) {
      isAsked = false;
      await reload();
    }
    isRunning = false;
  };
  source.on('SIGHUP', () => {
    isAsked = true;
    void run();
  });
  return (each) => {
    reload = each;
    void run();
  };
}

/** To be called when the process has started: what it does from then on is worth compiling. Resolves when a stop is wanted. */
export async function untilStopWanted(request: StopRequest): Promise<void> {
  releaseCompilers();
  await untilAborted(request.wanted);
}

/**
 * Resolves with the exit code when the service has stopped: 0 after a drain that cut nothing, 1 when
 * something was cut (a second signal, or past the shutdown timeout) or a fault of our own ended it.
 */
export async function runUntilStopped(
  service: Service,
  settingsInForce: () => Pick<Settings, 'shutdownDelayMs' | 'shutdownTimeoutMs'>,
  logger: Logger,
  request: StopRequest,
): Promise<number> {
  await untilStopWanted(request);
  service.beginDrain();
  const { shutdownDelayMs, shutdownTimeoutMs } = settingsInForce();
  await delay(shutdownDelayMs, undefined, { signal: request.cut }).catch(() => undefined);
  const timeout = startShutdownTimeout(shutdownTimeoutMs, logger);
  const cut = AbortSignal.any([request.cut, timeout.signal]);
  // After a fault of our own nothing is certain, not even that draining and stopping come to an end.
  await Promise.race([service.finishDrain(cut), untilAborted(cut)]);
  timeout.callOff();
  const late = Promise.withResolvers<boolean>();
  const callOffLate = startDeadline(stopMsMax, () => {
    late.resolve(false);
  });
  const isStopped = await Promise.race([service.stop().then(() => true), late.promise]);
  callOffLate();
  const hasFailed = request.hasFault() || service.hasFailed?.() === true || !isStopped;
  const exitCode = cut.aborted || hasFailed ? 1 : 0;
  logger.info({ exitCode }, 'stopped');
  return exitCode;
}

export async function untilAborted(signal: AbortSignal): Promise<void> {
  if (!signal.aborted) {
    await once(signal, 'abort');
  }
}
