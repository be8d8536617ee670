// Notifies systemd (sd_notify(3)) that the process is ready, reloading, stopping or alive. Node.js has no Unix datagram
// sockets, so the program systemd-notify sends the notifications. A fork of the gateway for each notification would block all
// calls, for longer if the gateway uses more memory. So the gateway starts one small shell, and the shell forks.

import { spawn } from 'node:child_process';

import type { Logger } from '../log/log.ts';

/** The service manager that started the process; without one, all methods do nothing. */
export interface ServiceManager {
  /** Reports that the gateway serves, and starts the pings for the watchdog if requested. systemctl shows `status`. */
  ready(status: string): void;
  reloading(): void;
  stopping(): void;
  /** Sends no further notification. */
  end(): void;
}

// The shell ignores signals, which are for the gateway, and exits when its input ends.
const script = `trap '' TERM INT HUP
command -v systemd-notify >/dev/null || { echo 'systemd-notify is not installed' >&2; exit 127; }
while IFS= read -r line; do systemd-notify -- "$line"; done`;

/**
 * Opens the service manager that NOTIFY_SOCKET names. WATCHDOG_USEC requests pings, unless WATCHDOG_PID names a process other
 * than `pid`. If the shell ends, this is logged, and the gateway continues.
 */
export function openServiceManager(
  { PATH, NOTIFY_SOCKET = '', WATCHDOG_USEC = '', WATCHDOG_PID }: Readonly<Record<string, string | undefined>>,
  pid: number,
  logger: Logger,
): ServiceManager {
  let hasEnded = NOTIFY_SOCKET === '';
  let timer: NodeJS.Timeout | undefined;
  const notifier = hasEnded
    ? undefined
    : spawn('/bin/sh', ['-c', script], { stdio: ['pipe', 'ignore', 'inherit'], env: { PATH, NOTIFY_SOCKET } });
  // Undefined if Node had no file descriptor left for the pipe.
  const input = notifier?.stdin;
  const end = (): void => {
    hasEnded = true;
    clearInterval(timer);
    input?.end();
  };
  const giveUp = (why: object): void => {
    if (!hasEnded) {
      end();
      logger.error(why, 'cannot notify the service manager any more');
    }
  };
  notifier?.on('error', (error) => giveUp({ err: error }));
  notifier?.on('exit', (code, signal) => giveUp({ code, signal }));
  // A write fails only if the shell has exited, which is reported above.
  input?.on('error', () => undefined);
  const notify = (...assignments: string[]): void => {
    for (const assignment of assignments) {
      // Notifications are dropped while the shell is too slow.
      if (!hasEnded && input?.writableNeedDrain === false) {
        input.write(`${assignment}\n`);
      }
    }
  };
  const isWatched =
    /^[1-9]\d{0,15}$/.test(WATCHDOG_USEC) && (WATCHDOG_PID === undefined || WATCHDOG_PID === String(pid));
  return {
    ready: (status) => {
      notify(`STATUS=${status}`, 'READY=1');
      if (isWatched && timer === undefined && !hasEnded) {
        // The ping is sent from this event loop, so a blocked loop sends none. The ping covers this process only; the pool
        // watches the workers. sd_watchdog_enabled(3) recommends half of WATCHDOG_USEC as the interval.
        timer = setInterval(notify, Math.max(1, Math.floor(Number(WATCHDOG_USEC) / 2_000)), 'WATCHDOG=1');
      }
    },
    reloading: () => notify('STATUS=reloading', 'RELOADING=1'),
    stopping: () => notify('STATUS=draining', 'STOPPING=1'),
    end,
  };
}
