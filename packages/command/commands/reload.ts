// Reload on SIGHUP: reads the settings again and serves with them [D65].

import type { Log, Logger } from '../log/log.ts';
import type { ClientService } from '../service/parts.ts';
import type { InForce } from '../service/service.ts';
import {
  changedSettings,
  describeChanges,
  type ResolvedSettings,
  type Settings,
  SettingsError,
} from '../settings/settings.ts';
import { certificateSettings } from '../settings/tls-settings.ts';
import { openCertificates } from './running.ts';

// Settings of the listeners; new values need a restart.
const keptSettings = ['host', 'port', 'adminHost', 'adminPort', 'portSharing'] as const;

/**
 * Reads the settings with `resolveAgain` and puts them in force, except settings that need a restart. If the settings
 * are invalid or the gateway cannot serve with them, nothing changes. The result is always logged. Resolves with true
 * if settings have changed. Rejects only with an internal error.
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
    if (!(error instanceof SettingsError)) throw error;
    logger.error({ problems: error.problems }, 'SIGHUP: the new settings are invalid; the old settings stay in force');
    return false;
  }
  const before = inForce.resolved;
  const next = keepSettings(before, fresh, clients.hasWorkers);
  const notApplied = describeChanges(next.settings, fresh.settings);
  if (Object.keys(notApplied).length > 0) {
    logger.warn({ notApplied }, 'SIGHUP: new values of these settings need a restart; the old values stay in force');
  }
  let finished: Promise<void>;
  try {
    ({ finished } = await serveBy(inForce, clients, next.settings, logger));
  } catch (error) {
    logger.error({ err: error }, 'SIGHUP: the reload failed; the old settings stay in force');
    return false;
  }
  inForce.resolved = next;
  log.apply(next.settings);
  const changed = describeChanges(before.settings, next.settings);
  const hasChanged = Object.keys(changed).length > 0;
  const text = hasChanged ? 'new connections use the new settings' : 'the settings are unchanged';
  logger.info({ changed }, `SIGHUP: ${text}`);
  await finished;
  if (isStopping()) return false;
  loggerOfEveryLevel(logger).info({ changed }, 'reloaded');
  return hasChanged;
}

/** Returns a logger whose `info` lines are written at every log level. */
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
    await last.look();
    return await clients.reload(settings, last.inForce);
  }
  const next = openCertificates(settings, logger);
  last.end();
  try {
    const reloaded = await clients.reload(settings, next.inForce);
    inForce.certificates = next;
    next.begin((tls) => clients.renewTls(tls));
    return reloaded;
  } catch (error) {
    last.begin((tls) => clients.renewTls(tls));
    throw error;
  }
}

// Keeps the old values of settings that need a restart. The number of workers can change, but a single process cannot
// become several.
function keepSettings(before: ResolvedSettings, fresh: ResolvedSettings, hasWorkers: boolean): ResolvedSettings {
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
