// What systemd is told of the process (sd_notify(3)): that it is ready, reloads, stops, and again and again that it
// lives. Node.js has no datagram sockets of Unix, so systemd's own tool says it. A fork of this process takes longer the
// more memory it has, and holds up every call meanwhile: so a small shell is started once and forks in its place.

import { spawn } from 'node:child_process';

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
  {
    PATH,
    NOTIFY_SOCKET = '',
    WATCHDOG_USEC = '',
    WATCHDOG_PID,
  }: Readonly<Record<string, string | undefined>>,
  pid: number,
  logger: Logger,
): ServiceManager {
  let hasEnded = NOTIFY_SOCKET === '';
  let timer: NodeJS.Timeout | undefined;
  const teller = hasEnded
    ? undefined
    : spawn('/bin/sh', ['-c', script], {
        stdio: ['pipe', 'ignore', 'inherit'],
        env: { PATH, NOTIFY_SOCKET },
      });
  // Node gives none where it had no descriptor for it.
  const input = teller?.stdin;
  const end = (): void => {
    hasEnded = true;
    clearInterval(timer);
    input?.end();
  };
  const giveUp = (why: object): void => {
    if (!hasEnded) {
      end();
      logger.error(why, 'the service manager can be told nothing more');
    }
  };
  teller?.on('error', (error) => {
    giveUp({ err: error });
  });
  teller?.on('exit', (code, signal) => {
    giveUp({ code, signal });
  });
  // Said by its exit.
  input?.on('error', () => undefined);
  const tell = (...assignments: string[]): void => {
    for (const assignment of assignments) {
      // A teller that does not come on is not given more and more.
      if (!hasEnded && input?.writableNeedDrain === false) {
        input.write(`${assignment}\n`);
      }
    }
  };
  const isWatched =
    /^[1-9]\d{0,15}$/.test(WATCHDOG_USEC) && (WATCHDOG_PID === undefined || WATCHDOG_PID === String(pid));
  return {
    ready: (status) => {
      tell(`STATUS=${status}`, 'READY=1');
      if (isWatched && timer === undefined && !hasEnded) {
        // Of this event loop: where it does not turn any more, nothing is sent. Workers are watched by their pool.
        // Half of the time is what sd_watchdog_enabled(3) recommends.
        timer = setInterval(tell, Math.max(1, Math.floor(Number(WATCHDOG_USEC) / 2_000)), 'WATCHDOG=1');
      }
    },
    reloading: () => {
      tell('STATUS=reloading', 'RELOADING=1');
    },
    stopping: () => {
      tell('STATUS=draining', 'STOPPING=1');
    },
    end,
  };
}
