// The listeners of clients and of operators.

import type { Server } from 'node:net';

import { listen, listenOnPassed, type Listener, type PortSharing } from '../../core/hosts/common/listen.ts';
import type { Logger } from '../log/log.ts';
import { flagOf, variableOf, type SettingName, type Settings } from '../settings/settings.ts';

const reportMs = 1_000;

const addresses = { clients: ['host', 'port'], admin: ['adminHost', 'adminPort'] } as const;

/**
 * Has `server` listen where the settings say, or on the sockets `passed` where there are any. Rejects with a StartError.
 * Later a connection that could not be taken is logged, at most once a second: above all when the file descriptors have
 * run out. That is no reason to stop: the next one may well succeed.
 */
export async function openListener(
  server: Server,
  use: keyof typeof addresses,
  settings: Settings,
  logger: Logger,
  passed: readonly number[] = [],
  sharing: PortSharing = 'none',
): Promise<Listener> {
  const [host, port] = addresses[use];
  const nameOf = (name: SettingName): string => `${flagOf(name)} (${variableOf(name)})`;
  const names = { host: nameOf(host), port: nameOf(port) };
  const listener =
    passed.length > 0
      ? await listenOnPassed(server, passed)
      : await listen(server, settings[host], settings[port], names, sharing);
  const report = onceASecond((error: Error) => {
    logger.error({ err: error }, 'a connection could not be taken');
  });
  server.on('error', report);
  return listener;
}

/** A function that calls `report` at most once a second: with the first of several. */
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
