// What SIGHUP does: reads the settings again, and serves by them [D65].

import type { Log, Logger } from '../log/log.ts';
import type { ClientService } from '../service/services.ts';
import { followFiles, type InForce } from '../service/service.ts';
import { changedSettings, describeChanges } from '../settings/describe.ts';
import { SettingsError, type ResolvedSettings, type Settings } from '../settings/settings.ts';
import { certificateSettings } from '../settings/tls-settings.ts';
import { openCertificates } from './running.ts';

// The addresses of the listeners, and how they are made: a new value needs a restart.
const keptSettings = ['host', 'port', 'adminHost', 'adminPort', 'portSharing'] as const;

/**
 * Puts the settings that `resolveAgain` gives in force, except those that need a restart. Those with a mistake, and those by
 * which nothing can be served, change nothing. The log says in each case what has come of it. Resolves with true where
 * settings have changed. Rejects with a fault of our own only.
 */
export async function reload(
  inForce: InForce,
  clients: ClientService,
  resolveAgain: () => ResolvedSettings,
  log: Log,
  isStopping: () => boolean,
): Promise<boolean> {
  const { logger } = log;
  let fresh: ResolvedSettings;
  try {
    fresh = resolveAgain();
  } catch (error) {
    if (!(error instanceof SettingsError)) {
      throw error;
    }
    logger.error({ problems: error.problems }, 'SIGHUP: the settings have mistakes, the old ones stay');
    return false;
  }
  const before = inForce.resolved;
  const next = keepSettings(before, fresh, clients.hasWorkers);
  const notApplied = describeChanges(next.settings, fresh.settings);
  if (Object.keys(notApplied).length > 0) {
    logger.warn({ notApplied }, 'new values of these settings need a restart: the old ones stay');
  }
  let finished: Promise<void>;
  try {
    ({ finished } = await serveBy(inForce, clients, next.settings, logger));
  } catch (error) {
    logger.error({ err: error }, 'reload given up: the old settings stay');
    return false;
  }
  inForce.resolved = next;
  log.apply(next.settings);
  const changed = describeChanges(before.settings, next.settings);
  if (!clients.hasWorkers) {
    logger.info({ changed }, 'SIGHUP: new connections are served by the new settings');
  }
  await finished;
  if (isStopping()) {
    return false;
  }
  const { workers } = next.settings;
  loggerOfEveryLevel(logger).info(
    clients.hasWorkers ? { workers, changed } : { changed },
    clients.hasWorkers ? 'reloaded: every worker is a new one' : 'reloaded',
  );
  return Object.keys(changed).length > 0;
}

/** For what is said whatever the log level is. */
export function loggerOfEveryLevel(logger: Logger): Logger {
  return logger.child({}, { level: 'info' });
}

async function serveBy(
  inForce: InForce,
  clients: ClientService,
  settings: Settings,
  logger: Logger,
): Promise<{ readonly finished: Promise<void> }> {
  const last = inForce.certificates;
  const changed = changedSettings(inForce.resolved.settings, settings);
  if (!certificateSettings.some((name) => changed.includes(name))) {
    await last?.look();
    return await clients.reload(settings, last?.inForce ?? {});
  }
  const next = await openCertificates(settings, logger);
  last?.end();
  try {
    const reloaded = await clients.reload(settings, next?.inForce ?? {});
    inForce.certificates = next;
    followFiles(next, clients);
    return reloaded;
  } catch (error) {
    last?.begin();
    throw error;
  }
}

// The number of workers may change, but one process does not become several.
function keepSettings(
  before: ResolvedSettings,
  fresh: ResolvedSettings,
  hasWorkers: boolean,
): ResolvedSettings {
  const kept = hasWorkers ? keptSettings : ([...keptSettings, 'workers'] as const);
  const settings = Object.fromEntries(kept.map((name) => [name, before.settings[name]]));
  const sources = Object.fromEntries(kept.map((name) => [name, before.sources[name]]));
  return {
    ...fresh,
    ...(before.sockets && { sockets: before.sockets }),
    settings: { ...fresh.settings, ...settings },
    sources: { ...fresh.sources, ...sources },
  };
}
