// Finds the sockets that systemd passes, and notifies systemd. core/hosts/common/listen.ts makes servers use the sockets.

import { spawn } from 'node:child_process';

import { StartError } from '../../core/hosts/common/start-error.ts';
import type { Logger } from '../log/log.ts';

/**
 * File descriptors of the listening sockets that a service manager passes on (sd_listen_fds(3)). The sockets outlive
 * this process, so a restart loses no connection. If a list is empty, the gateway opens its own socket.
 */
export interface PassedSockets {
  readonly clients: readonly number[];
  readonly admin: readonly number[];
}

const firstDescriptor = 3;
// A larger number of passed sockets is a mistake; real setups have far fewer.
const socketsMax = 64;

/**
 * Finds the sockets passed to the process `pid`, by their names `clients` and `admin`. If there are at most two sockets
 * and none has such a name, the first is for clients and the second for the admin listener. Throws a StartError if the
 * use of the sockets is unclear.
 */
export function findPassedSockets(
  environment: Readonly<Record<string, string | undefined>>,
  pid: number,
): PassedSockets {
  const { LISTEN_FDS: count = '', LISTEN_PID: receiver, LISTEN_FDNAMES: names = '' } = environment;
  if (receiver !== String(pid) || count === '') return { clients: [], admin: [] };
  if (!/^\d{1,2}$/.test(count) || Number(count) > socketsMax) {
    throw new StartError(`LISTEN_FDS must be the number of passed sockets, 0 to ${socketsMax}`, undefined);
  }
  const descriptors = Array.from({ length: Number(count) }, (_, index) => firstDescriptor + index);
  const nameOf = new Map(names.split(':').map((name, index) => [firstDescriptor + index, name]));
  const named = (name: string): number[] => descriptors.filter((each) => nameOf.get(each) === name);
  const byName = { clients: named('clients'), admin: named('admin') };
  const known = byName.clients.length + byName.admin.length;
  if (known === descriptors.length) return byName;
  if (known === 0 && descriptors.length <= 2) return { clients: descriptors.slice(0, 1), admin: descriptors.slice(1) };
  throw new StartError(
    `LISTEN_FDS passes ${descriptors.length} sockets, but it is not clear which are for clients and which for the admin listener: name each of them \`clients\` or \`admin\` (FileDescriptorName=)`,
    undefined,
  );
}

/**
 * For each listener with a passed socket, returns two texts. They are shown in place of the listener's settings: HOST
 * and PORT for clients, ADMIN_HOST and ADMIN_PORT for the admin listener.
 */
export function settingsOfSockets(
  { clients, admin }: PassedSockets,
  url: string,
  adminUrl: string,
): Partial<Record<'host' | 'port' | 'adminHost' | 'adminPort', string>> {
  const places = [
    ['host', 'port', clients.length, new URL(url)],
    ['adminHost', 'adminPort', admin.length, new URL(adminUrl)],
  ] as const;
  const texts = places
    .filter(([, , count]) => count > 0)
    .flatMap(([host, port, count, place]) => {
      const others = count === 1 ? '' : ` and ${count - 1} more`;
      // A URL omits the default port of its protocol.
      const shownPort = place.port || (place.protocol === 'https:' ? '443' : '80');
      return [
        [host, place.hostname + others],
        [port, shownPort + others],
      ];
    });
  return Object.fromEntries(texts) as ReturnType<typeof settingsOfSockets>;
}

// Node.js has no Unix datagram sockets, so the program systemd-notify sends the notifications. If the gateway forked
// for each notification, all calls would wait during the fork. The more memory the gateway uses, the longer a fork
// takes. So the gateway starts one small shell, and the shell forks.

/** Notifies the service manager of this process (sd_notify(3)). Without a service manager, all methods do nothing. */
export interface ServiceManager {
  /** Reports that the gateway serves, and starts the pings for the watchdog if requested. systemctl shows `status`. */
  ready(status: string): void;
  reloading(): void;
  stopping(): void;
  end(): void;
}

// The shell ignores signals, because they are for the gateway. The shell exits when its input ends. Each line is a
// notification; tabs separate its assignments.
const script = `trap '' TERM INT HUP USR1
command -v systemd-notify >/dev/null || { echo 'systemd-notify is not installed' >&2; exit 127; }
set -f
IFS=$(printf '\\t')
while read -r line; do systemd-notify -- $line; done`;

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
    // Notifications are dropped while the shell is too slow.
    if (!hasEnded && input?.writableNeedDrain === false) input.write(`${assignments.join('\t')}\n`);
  };
  const isWatched =
    /^[1-9]\d{0,15}$/.test(WATCHDOG_USEC) && (WATCHDOG_PID === undefined || WATCHDOG_PID === String(pid));
  return {
    ready: (status) => {
      notify(`STATUS=${status}`, 'READY=1');
      if (isWatched && timer === undefined && !hasEnded) {
        // The ping is sent from this event loop, so a blocked loop sends no ping. The ping covers this process only;
        // the pool watches the workers. sd_watchdog_enabled(3) recommends half of WATCHDOG_USEC as the interval.
        timer = setInterval(notify, Math.max(1, Math.floor(Number(WATCHDOG_USEC) / 2_000)), 'WATCHDOG=1');
      }
    },
    reloading: () => {
      // systemd requires the time for Type=notify-reload. Node's `hrtime` is CLOCK_MONOTONIC.
      const usec = process.hrtime.bigint() / 1_000n;
      notify('STATUS=reloading', 'RELOADING=1', `MONOTONIC_USEC=${usec}`);
    },
    stopping: () => notify('STATUS=draining', 'STOPPING=1'),
    end,
  };
}
