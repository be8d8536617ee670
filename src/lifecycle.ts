// The life of the process: starting, ready, draining, stopped; signals, the deadline, the exit code [D33].
// What draining means for connections is service.ts's affair.

import type { Logger } from './log.ts';
import type { Service } from './service.ts';
import type { Settings } from './settings.ts';

/** Where signals and stray errors come from: the process. */
export type SignalSource = Pick<NodeJS.Process, 'on'>;

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
  /** A fault of our own has been seen, before or after that. */
  readonly hasFault: () => boolean;
  /** Aborted when what is left is to be cut. */
  readonly cut: AbortSignal;
}

/**
 * Listens for what stops the process, from now to its end. To be called before anything is started: a signal
 * that comes meanwhile is not lost, and one that comes after the end does not change the exit code.
 */
export function listenForStop(logger: Logger, source: SignalSource, isUnderNpm: boolean): StopRequest {
  const cut = new AbortController();
  const { promise: wanted, resolve: request } = Promise.withResolvers<undefined>();
  let first: { readonly signal: NodeJS.Signals; readonly at: number } | undefined;
  let awaitsRepetition = isUnderNpm;
  const onSignal = (signal: NodeJS.Signals): void => {
    const now = performance.now();
    if (first === undefined) {
      first = { signal, at: now };
      logger.info({ signal }, 'draining: requests under way finish; a second signal cuts them');
      request(undefined);
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
  const { hasFault } = listenForFaults(logger, source, () => {
    request(undefined);
  });
  return { wanted, hasFault, cut: cut.signal };
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
  source.on('uncaughtException', onFault).on('unhandledRejection', onFault);
  return { hasFault: () => hasFault };
}

/**
 * Resolves with the exit code when the service has stopped: 0 after a drain that cut nothing, 1 when
 * something was cut (a second signal, or past the shutdown timeout) or a fault of our own ended it.
 */
export async function runUntilStopped(
  service: Service,
  settings: Pick<Settings, 'shutdownDelayMs' | 'shutdownTimeoutMs'>,
  logger: Logger,
  request: StopRequest,
): Promise<number> {
  await request.wanted;
  service.beginDrain();
  await pause(settings.shutdownDelayMs, request.cut);
  const timeout = new AbortController();
  const timer = setTimeout(() => {
    const { shutdownTimeoutMs } = settings;
    logger.warn({ shutdownTimeoutMs }, 'the shutdown timeout has passed: cutting what is left');
    timeout.abort();
  }, settings.shutdownTimeoutMs);
  const cut = AbortSignal.any([request.cut, timeout.signal]);
  // After a fault of our own nothing is certain, not even that draining and stopping come to an end.
  await Promise.race([service.finishDrain(cut), hasAborted(cut)]);
  clearTimeout(timer);
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
  const timer = setTimeout(() => {
    resolve(false);
  }, ms);
  try {
    return await Promise.race([promise.then(() => true), late]);
  } finally {
    clearTimeout(timer);
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
