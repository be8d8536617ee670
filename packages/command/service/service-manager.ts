// What systemd is told of the process (sd_notify(3)): that it is ready, reloads, stops, and again and again that it
// lives. Node.js has no datagram sockets of Unix, so systemd's own tool says it. A fork of this process takes longer the
// more memory it has, and holds up every call meanwhile: so a small shell is started once and forks in its place.

import { spawn, type ChildProcess } from 'node:child_process';

import type { Logger } from '../log/log.ts';

/** Whoever started the process and wants to hear how it is; nobody, as often as not. */
export interface ServiceManager {
  /** It serves; from now on, if that is wanted, signs of life are sent. `status` is for people. */
  ready(status: string): void;
  reloading(): void;
  stopping(): void;
  /** Nothing more is said. */
  end(): void;
}

// Signals are for the gateway: this shell ends with its input, and `systemd-notify` when it has been heard.
const script = `trap '' TERM INT HUP
command -v systemd-notify >/dev/null || { echo 'systemd-notify is not installed' >&2; exit 127; }
while IFS= read -r line; do systemd-notify -- "$line"; done`;

/**
 * The service manager that `environment` names to the process `pid` (NOTIFY_SOCKET, WATCHDOG_USEC, WATCHDOG_PID). What
 * cannot be said to it is logged, and no reason to end.
 */
export function openServiceManager(
  environment: Readonly<Record<string, string | undefined>>,
  pid: number,
  logger: Logger,
): ServiceManager {
  const { NOTIFY_SOCKET: socket = '', WATCHDOG_USEC: watchdog = '', WATCHDOG_PID: watched } = environment;
  if (socket === '') {
    return {
      ready: () => undefined,
      reloading: () => undefined,
      stopping: () => undefined,
      end: () => undefined,
    };
  }
  const isWatched = /^[1-9]\d{0,15}$/.test(watchdog) && (watched === undefined || watched === String(pid));
  return new Systemd(
    startTeller(environment),
    // Half of the time is what sd_watchdog_enabled(3) recommends.
    isWatched ? Math.max(1, Math.floor(Number(watchdog) / 2_000)) : undefined,
    logger,
  );
}

function startTeller(environment: Readonly<Record<string, string | undefined>>): ChildProcess {
  const { PATH, NOTIFY_SOCKET } = environment;
  return spawn('/bin/sh', ['-c', script], {
    stdio: ['pipe', 'ignore', 'inherit'],
    env: { PATH, NOTIFY_SOCKET },
  });
}

class Systemd implements ServiceManager {
  readonly #teller: ChildProcess;
  readonly #signOfLifeMs: number | undefined;
  readonly #logger: Logger;
  #timer: NodeJS.Timeout | undefined;
  #hasEnded = false;

  constructor(teller: ChildProcess, signOfLifeMs: number | undefined, logger: Logger) {
    this.#teller = teller;
    this.#signOfLifeMs = signOfLifeMs;
    this.#logger = logger;
    teller.on('error', (error) => {
      this.#giveUp({ err: error });
    });
    teller.on('exit', (code, signal) => {
      this.#giveUp({ code, signal });
    });
    // Said by its exit.
    teller.stdin?.on('error', () => undefined);
  }

  ready(status: string): void {
    this.#tell(`STATUS=${status}`);
    this.#tell('READY=1');
    if (this.#signOfLifeMs !== undefined && this.#timer === undefined && !this.#hasEnded) {
      // Of this event loop: where it does not turn any more, nothing is sent. Workers are watched by their pool.
      this.#timer = setInterval(() => {
        this.#tell('WATCHDOG=1');
      }, this.#signOfLifeMs);
    }
  }

  reloading(): void {
    this.#tell('STATUS=reloading');
    this.#tell('RELOADING=1');
  }

  stopping(): void {
    this.#tell('STATUS=draining');
    this.#tell('STOPPING=1');
  }

  end(): void {
    this.#hasEnded = true;
    clearInterval(this.#timer);
    this.#teller.stdin?.end();
  }

  #tell(assignment: string): void {
    const input = this.#teller.stdin;
    // A teller that does not come on is not given more and more.
    if (!this.#hasEnded && input?.writableNeedDrain === false) {
      input.write(`${assignment}\n`);
    }
  }

  #giveUp(why: object): void {
    if (!this.#hasEnded) {
      this.end();
      this.#logger.error(why, 'the service manager can be told nothing more');
    }
  }
}
