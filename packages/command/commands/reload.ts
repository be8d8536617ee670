// Reload on SIGHUP: reads the settings again and serves with them [D65].

import { StartError } from '../../core/hosts/common/start-error.ts';
import type { Log, Logger } from '../log/log.ts';
import type { ServingProcesses } from '../service/process-parts.ts';
import type { InForce } from '../service/service.ts';
import {
  describeChanges,
  planReload,
  type ResolvedSettings,
  SettingsError,
  withSockets,
} from '../settings/settings.ts';
import { certificateFilesOf } from '../settings/tls-settings.ts';

/**
 * Reads the settings with `resolveAgain` and puts them in force, except settings that need a restart. If the settings
 * are invalid or the gateway cannot serve with them, nothing changes. The result is always logged. Resolves when new
 * calls use the settings, with true if settings have changed. Rejects only with an internal error.
 */
export async function reload(
  inForce: InForce,
  clients: ServingProcesses,
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
  const { kept } = planReload(before.settings, fresh.settings, clients.hasWorkers);
  const settings = Object.fromEntries(kept.map((name) => [name, before.settings[name]]));
  const sources = Object.fromEntries(kept.map((name) => [name, before.sources[name]]));
  const mixed = { ...fresh, settings: { ...fresh.settings, ...settings }, sources: { ...fresh.sources, ...sources } };
  const next = before.sockets === undefined ? mixed : withSockets(mixed, before.sockets);
  const notApplied = describeChanges(next.settings, fresh.settings);
  if (Object.keys(notApplied).length > 0) {
    logger.warn({ notApplied }, 'SIGHUP: new values of these settings need a restart; the old values stay in force');
  }
  let finished: Promise<void> | undefined;
  try {
    ({ finished } = await inForce.certificates.reload(certificateFilesOf(next.settings), next.settings, async (tls) => {
      return await clients.reload(next.settings, tls);
    }));
  } catch (error) {
    const facts = error instanceof StartError ? { problems: error.message.split('\n') } : { err: error };
    logger.error(facts, 'SIGHUP: the reload failed; the old settings stay in force');
    return false;
  }
  if (finished === undefined) return false;
  inForce.resolved = next;
  log.apply(next.settings);
  const changed = describeChanges(before.settings, next.settings);
  const hasChanged = Object.keys(changed).length > 0;
  if (hasChanged) logger.info({ changed }, 'SIGHUP: new connections use the new settings');
  void finished.then(() => {
    if (!isStopping()) loggerOfEveryLevel(logger).info({ changed }, 'reloaded');
  });
  return hasChanged;
}

/** Returns a logger whose `info` lines are written at every log level. */
export function loggerOfEveryLevel(logger: Logger): Logger {
  return logger.child({}, { level: 'info' });
}
