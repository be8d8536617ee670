// Opens the client listener and the admin listener.

import { createServer, isIPv6, type AddressInfo, type Server } from 'node:net';

import { listen, listenOnPassed, type Listener } from '../../core/hosts/common/listen.ts';
import { StartError } from '../../core/hosts/common/start-error.ts';
import type { Logger } from '../log/log.ts';
import { flagOf, variableOf, type SettingName, type Settings } from '../settings/settings.ts';

const reportMs = 1_000;

const addresses = { clients: ['host', 'port'], admin: ['adminHost', 'adminPort'] } as const;

type ListenerUse = keyof typeof addresses;

// The loggers that have reported that the machine has no IPv6.
const informed = new WeakSet<Logger>();

/**
 * Makes `server` listen on the configured address, or on the sockets in `passed` if there are any. Rejects with a
 * StartError. If the server later cannot accept a connection, the error is logged, at most once a second. The usual
 * cause is a lack of file descriptors. The server continues, because the next accept may succeed.
 */
export async function openListener(
  server: Server,
  use: ListenerUse,
  settings: Settings,
  logger: Logger,
  passed: readonly number[] = [],
): Promise<Listener> {
  const [host, port] = addresses[use];
  const nameOf = (name: SettingName): string => `${flagOf(name)} (${variableOf(name)})`;
  const names = { host: nameOf(host), port: nameOf(port) };
  const listener =
    passed.length > 0
      ? await listenOnPassed(server, passed)
      : await listen(server, settings[host], settings[port], names);
  const wantsIpv6 = passed.length === 0 && isIPv6(settings[host]);
  if (wantsIpv6 && (server.address() as AddressInfo).family === 'IPv4' && !informed.has(logger)) {
    informed.add(logger);
    logger.info('this machine has no IPv6: listening on 0.0.0.0 instead of ::');
  }
  const report = onceASecond((error: Error) => logger.error({ err: error }, 'could not accept a connection'));
  server.on('error', report);
  return listener;
}

/** Opens and closes the listener. Rejects with a StartError if the port cannot be opened. */
export async function checkPort(use: ListenerUse, settings: Settings, logger: Logger): Promise<void> {
  const server = createServer((socket) => socket.destroy());
  const listener = await openListener(server, use, settings, logger);
  await listener.close();
}

/**
 * Runs `start`. If it rejects with a StartError, checks the ports of `uses`, and adds their problems to the error, one a
 * line. So the operator learns of all ports in use at once.
 */
export async function startOnPorts<T>(
  uses: readonly ListenerUse[],
  settings: Settings,
  logger: Logger,
  start: () => Promise<T>,
): Promise<T> {
  try {
    return await start();
  } catch (error) {
    if (!(error instanceof StartError)) throw error;
    const problems = new Set([error.message]);
    for (const use of uses) {
      try {
        await checkPort(use, settings, logger);
      } catch (other) {
        problems.add((other as Error).message);
      }
    }
    throw new StartError([...problems].join('\n'), error.cause);
  }
}

/** Returns a function that passes its argument to `report`, except within a second after a report. */
export function onceASecond<T>(report: (first: T) => void): (each: T) => void {
  let reportedAt = -Infinity;
  return (each) => {
    const now = performance.now();
    if (now - reportedAt >= reportMs) {
      reportedAt = now;
      report(each);
    }
  };
}
