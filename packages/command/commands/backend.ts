// The command `backend`: runs the embedded backend alone.

import { listenForStop, untilAborted } from '../service/lifecycle.ts';
import { loadPart } from '../service/process-parts.ts';
import type { CommandEntry } from './command.ts';
import { withLog } from './running.ts';

export const backendCommand: CommandEntry = {
  summary: 'run the embedded backend alone',
  description:
    'Runs the embedded backend alone: a stand-in for a real work-item backend, for development, demonstrations and tests. Not for production, because it is one process with one SQLite file and no authentication.',
  examples: ['--embedded-backend-database work-items.sqlite'],
  run: async ({ resolved: { settings }, terminal, parts }) =>
    await withLog(settings, async ({ logger }) => {
      const { embeddedBackendHost: host, embeddedBackendPort: port, embeddedBackendDatabase: database } = settings;
      const stop = listenForStop(logger, terminal, true);
      const { startEmbeddedBackend } = await loadPart(parts, 'standInBackend', 'backend');
      const backend = await startEmbeddedBackend({ host, port, database, logger });
      logger.info({ url: backend.url, database }, 'embedded backend ready (not for production)');
      await untilAborted(stop.wanted.signal);
      await backend.stop();
      const exitCode = stop.hasFault ? 1 : 0;
      logger.info({ exitCode }, 'stopped');
      return exitCode;
    }),
};
