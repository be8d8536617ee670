// The commands that run the embedded backend: `dev`, with the gateway in one process, and `backend`, alone.

import { listenForStop, runUntilStopped, untilAborted } from '../service/lifecycle.ts';
import { startOnPorts } from '../service/listener.ts';
import { loadPart } from '../service/process-parts.ts';
import { startLocalService } from '../service/local-service.ts';
import { addAdmin, type WholeService } from '../service/service.ts';
import type { Log } from '../log/log.ts';
import type { Settings } from '../settings/settings.ts';
import type { CommandEntry, CommandRun } from './command.ts';
import { createWarner, describePlaces, openCertificates, withLog } from './running.ts';

export const devCommand: CommandEntry = {
  summary: 'run the gateway and the embedded backend together',
  description:
    'Runs the gateway and the embedded backend with a few sample work items; nothing else is needed. For development and demonstrations: the embedded backend is not for production.',
  examples: ['', '--embedded-backend-database work-items.sqlite'],
  run: async (run) => await withLog(run.resolved.settings, (log) => runDev(run, log)),
};

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

async function runDev({ resolved, terminal, parts }: CommandRun, log: Log): Promise<number> {
  const { settings, sources } = resolved;
  const { embeddedBackendHost: host, embeddedBackendPort: port, embeddedBackendDatabase: database } = settings;
  const certificates = openCertificates(settings, log.logger);
  // `dev` does not reload, so SIGHUP always stops it.
  const stop = listenForStop(log.logger, terminal, true);
  const { startEmbeddedBackend } = await loadPart(parts, 'standInBackend', 'dev');
  const { backend, service } = await startOnPorts(['clients', 'admin'], settings, log.logger, async () => {
    const started = await startEmbeddedBackend({ host, port, database, sampleItems: true });
    try {
      const withBackend = { ...settings, backendUrl: new URL(started.url) };
      const inForce = { resolved: { ...resolved, settings: withBackend }, certificates };
      const clients = await startLocalService(withBackend, log, { tls: certificates.inForce, parts });
      const whole = await addAdmin(clients, inForce, log.logger, { clients: [], admin: [] }, parts);
      return { backend: started, service: whole };
    } catch (error) {
      await started.stop();
      throw error;
    }
  });
  log.logger.debug({ sources }, 'settings');
  log.output.write(describeDev(service, backend.url, settings));
  createWarner(terminal, log.logger)(settings);
  const exitCode = await runUntilStopped(service, () => settings, log.logger, stop);
  await backend.stop();
  return exitCode;
}

function describeDev(service: WholeService, backendUrl: string, settings: Settings): string {
  const { embeddedBackendDatabase: database, authIssuer, itemIdParsing } = settings;
  const { url } = service;
  const store =
    database === ':memory:' ? 'in memory; --embedded-backend-database FILE keeps the items' : `in ${database}`;
  // Example calls; not shown if TLS or tokens are on, because the calls would fail.
  const calls = `
  Try:
    curl ${url}/api/work-items
    curl ${url}/api/work-items/1
    curl -X POST ${url}/api/work-items -d '{"title":"My first work item"}'
`;
  const ids = `
  Ids: 12abc is read as 12, and 1.5e+06 as 1. ITEM_ID_PARSING=whole refuses such ids.
`;
  return `
${describePlaces(service, settings, `Embedded backend    ${backendUrl}/api/WorkItem  (${store})`)}
${url.startsWith('http:') && authIssuer === '' ? calls : ''}${itemIdParsing === 'leading' ? ids : ''}
  Ctrl-C stops.

`;
}
