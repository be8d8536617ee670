// Errors of a listener that is open.

import type { Server } from 'node:net';

import type { Logger } from '../log/log.ts';

const acceptErrorReportMs = 1_000;

/**
 * Logs, at most once a second, that a connection could not be taken: above all when the file descriptors have run out. That is
 * no reason to stop: the next one may well succeed.
 */
export function surviveAcceptErrors(server: Server, logger: Logger): void {
  let reportedAt = -Infinity;
  server.on('error', (error: Error) => {
    const now = performance.now();
    if (now - reportedAt >= acceptErrorReportMs) {
      reportedAt = now;
      logger.error({ err: error }, 'a connection could not be taken');
    }
  });
}
