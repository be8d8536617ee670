// The life of the process: starting, ready, draining, stopped; signals, the deadline, the exit code [D33].
// What draining means for connections is service.ts's affair.

import type { Logger } from '../log/log.ts';
import { releaseCompilers } from './compilers.ts';
import type { Service } from './services.ts';
import { startDeadline } from './deadline.ts';
import type { Settings } from '../settings/settings.ts';

/** Where signals and stray errors come from: the process. */
export interface SignalSource {
  on(signal: NodeJS.Signals, listener: (signal: NodeJS.Signals) => void): unknown;
  on(fault: 'uncaughtException' | 'unhandledRejection', listener: (error: unknown) => void): unknown;
}

const signals = ['SIGTERM', 'SIGINT'] as const;
// A signal to the process group under `npm run`, such as that of Ctrl-C, comes twice: directly, and once more from npm,
// which passes it on when it gets round to it. So one repetition within this time is no second signal.
const repetitionByNpmMsMax = 1_000;
// Everything has been cut by then, and only bookkeeping is left; a worker that does not end has been killed.
const stopMsMax = 4_000;

/** Somebody, or a fault of our own, wants the process to stop. */
export interface StopRequest {
  /** Resolves when it is wanted. */
  readonly wanted: Promise<undefined>;
  readonly isWanted: () => boolean;
  /** A fault of our own has been seen, before or after that. */
  readonly hasFault: () => boolean;
  /** Aborted when what is left is to be cut. */
  readonly cut: AbortSignal;
}

interface StopConditions {
  readonly isUnderNpm: boolean;
  /** SIGHUP stops too: it is the end of the terminal [D54], or there is nothing to reload. */
  readonly stopsOnHangUp: boolean;
}

/**
 * Listens for what stops the process, from now to its end. To be called before anything is started: a signal
 * that comes meanwhile is not lost, and one that comes after the end does not change the exit code.
 */
export function listenForStop(
  logger: Logger,
  source: SignalSource,
  { isUnderNpm, stopsOnHangUp }: StopConditions,
): StopRequest {
  const cut = new AbortController();
  const { promise: wanted, resolve } = Promise.withResolvers<undefined>();
  let isWanted = false;
  const request = (): void => {
    isWanted = true;
    resolve(undefined);
  };
  const startDrain = (signal: NodeJS.Signals): void => {
    if (!isWanted) {
      logger.info({ signal }, 'draining: requests under way finish; a second signal cuts them');
    }
    request();
  };
  let first: { readonly signal: NodeJS.Signals; readonly at: number } | undefined;
  let awaitsRepetition = isUnderNpm;
  const onSignal = (signal: NodeJS.Signals): void => {
    const now = performance.now();
    if (first === undefined) {
      first = { signal, at: now };
      startDrain(signal);
    } else if (awaitsRepetition && signal === first.signal && now - first.at < repetitionByNpmMsMax) {
      awaitsRepetition = false;
    } else {
      logger.warn({ signal }, 'second signal: cutting what is left');
      cut.abort();
    }
  };
  for (const signal of signals) {
    source.on(signal, onSignal);
  }
  if (stopsOnHangUp) {
    // Never the second signal, nor the first of two: the system and the shell may both send it as a terminal closes, and
    // service managers send it right after SIGTERM.
    source.on('SIGHUP', startDrain);
  }
  const { hasFault } = listenForFaults(logger, source, request);
  return { wanted, isWanted: () => isWanted, hasFault, cut: cut.signal };
}

/** Reloads on SIGHUP. */
interface ReloadRequests {
  /** From now on `reload` is run for those that come, and for those that have come. */
  readonly begin: (reload: () => Promise<void>) => void;
}

/**
 * Listens for SIGHUP, from now to the end of the process: it would end it otherwise. Reloads run in turn, and any
 * number of signals that come while one runs are one more after it.
 */
export function listenForReloads(source: SignalSource): ReloadRequests {
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
  return {
    begin: (each) => {
      reload = each;
      void run();
    },
  };
}

/** Logs what nobody caught and then calls `stop`; `hasFault` says whether there was any. */
export function listenForFaults(
  logger: Logger,
  source: SignalSource,
  stop: () => void,
): Pick<StopRequest, 'hasFault'> {
  let hasFault = false;
  // Nothing is known of the state behind such an error: stop in order rather than live on half dead.
  const onFault = (error: unknown): void => {
    hasFault = true;
    stop();
    try {
      logger.fatal({ err: error }, 'a fault outside any request: stopping');
    } catch {
      // The log may be what is broken; thrown from here, its fault would end the process on the spot.
    }
  };
  source.on('uncaughtException', onFault);
  source.on('unhandledRejection', onFault);
  return { hasFault: () => hasFault };
}

/** To be called when the process has started: what it does from then on is worth compiling. Resolves when a stop is wanted. */
export async function untilStopWanted(request: StopRequest): Promise<void> {
  releaseCompilers();
  await request.wanted;
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
  await pause(shutdownDelayMs, request.cut);
  const timeout = new AbortController();
  const callOff = startDeadline(shutdownTimeoutMs, () => {
    logger.warn({ shutdownTimeoutMs }, 'the shutdown timeout has passed: cutting what is left');
    timeout.abort();
  });
  const cut = AbortSignal.any([request.cut, timeout.signal]);
  // After a fault of our own nothing is certain, not even that draining and stopping come to an end.
  await Promise.race([service.finishDrain(cut), hasAborted(cut)]);
  callOff();
  const isStopped = await isWithin(service.stop(), stopMsMax);
  const hasFailed = request.hasFault() || service.hasFailed?.() === true || !isStopped;
  const exitCode = cut.aborted || hasFailed ? 1 : 0;
  logger.info({ exitCode }, 'stopped');
  return exitCode;
}

async function hasAborted(signal: AbortSignal): Promise<void> {
  if (!signal.aborted) {
    await new Promise((resolve) => {
      signal.addEventListener('abort', resolve, { once: true });
    });
  }
}

/** True when `promise` resolves within `ms`. */
async function isWithin(promise: Promise<void>, ms: number): Promise<boolean> {
  const { promise: late, resolve } = Promise.withResolvers<boolean>();
  const callOff = startDeadline(ms, () => {
    resolve(false);
  });
  try {
    return await Promise.race([promise.then(() => true), late]);
  } finally {
    callOff();
  }
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
