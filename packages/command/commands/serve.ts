// The command `serve`: starts the gateway, in one process or several, reloads on SIGHUP and stops in order.

import { escapeControls } from '../../core/text/escape.ts';
import { withoutEndSlashes } from '../../core/text/addresses.ts';
import { backendPath } from '../../core/operations.ts';
import { StartError } from '../../core/hosts/common/start-error.ts';
import { version } from '../../core/version.ts';
import type { Log, Logger } from '../log/log.ts';
import { listenForReloads, runUntilStopped } from '../service/lifecycle.ts';
import { loadPart } from '../service/parts.ts';
import { findPassedSockets, settingsOfSockets } from '../service/passed-sockets.ts';
import { openServiceManager, type ServiceManager } from '../service/service-manager.ts';
import { addAdmin, startService, type WholeService } from '../service/service.ts';
import {
  changedSettings,
  describeChanges,
  showInForce,
  showValue,
  withSockets,
} from '../settings/describe.ts';
import {
  SettingsError,
  settingsOf,
  variableOf,
  type ResolvedSettings,
  type Settings,
} from '../settings/settings.ts';
import type { CommandEntry, CommandRun } from './command.ts';
import { describePlaces, listenForStopOf, logWarnings, openCertificates, withLog } from './running.ts';

export const serveCommand: CommandEntry = {
  summary: 'run the gateway (the default)',
  description: 'Runs the gateway alone, as in production, in front of the backend at BACKEND_URL.',
  examples: [
    '--backend-url http://backend.internal:5104',
    '--host 0.0.0.0 --port 8080 --workers auto --log-level warn',
  ],
  run: async (run) =>
    await withLog(run.resolved.settings, async (log) => {
      const { environment, pid } = run.terminal;
      const manager = openServiceManager(environment, pid, log.logger);
      try {
        return await serve(run, log, manager);
      } finally {
        manager.end();
      }
    }),
};

async function serve(
  { resolved, terminal, resolveAgain, parts }: CommandRun,
  log: Log,
  manager: ServiceManager,
): Promise<number> {
  const { settings } = resolved;
  const passed = findPassedSockets(terminal.environment, terminal.pid);
  if (passed.clients.length > 0 && settings.workers > 1 && settings.portSharing !== 'auto') {
    throw new StartError(
      `PORT_SHARING is ${settings.portSharing}, but workers share the socket that LISTEN_FDS passes on: leave it out`,
      undefined,
    );
  }
  const certificates = await openCertificates(settings, log.logger);
  const stop = listenForStopOf(terminal, log, terminal.isInteractive);
  const reloads = terminal.isInteractive ? undefined : listenForReloads(terminal.signals);
  let inForce = resolved;
  let service: WholeService;
  let apply: (fresh: Settings) => Promise<Settings>;
  if (settings.workers === 1) {
    service = await startService(() => inForce, log, certificates, passed);
    apply = (fresh) => Promise.resolve(applyLive(inForce.settings, fresh, log.logger));
  } else {
    const { startPool } = await loadPart(parts, 'cluster', `WORKERS=${settings.workers}`);
    const pool = await startPool(settings, log, certificates?.inForce ?? {}, passed.clients);
    service = await addAdmin(pool, () => inForce, log.logger, certificates, passed);
    apply = async (fresh) => {
      log.logger.info({ workers: fresh.workers }, 'SIGHUP: replacing the workers one by one');
      return await pool.reload(fresh);
    };
  }
  const sockets = settingsOfSockets(passed, service.url, service.adminUrl);
  inForce = withSockets(inForce, sockets);
  if (log.hasReader) {
    log.output.write(describeServe(service, inForce));
  } else {
    logReady(log.logger, service, inForce);
  }
  logWarnings(settings, terminal, log.logger);
  log.output.flush();
  const status = `serving at ${service.url}`;
  manager.ready(status);
  void stop.wanted.then(() => {
    manager.stopping();
  });
  reloads?.begin(async () => {
    if (stop.isWanted()) {
      log.logger.warn('SIGHUP: the gateway is stopping, nothing was done');
      return;
    }
    manager.reloading();
    await certificates?.look();
    inForce = withSockets(await reload(inForce, resolveAgain, apply, log.logger), sockets);
    log.logger.level = inForce.settings.logLevel;
    if (!stop.isWanted()) {
      manager.ready(status);
    }
  });
  return await runUntilStopped(service, settings, log.logger, stop);
}

// New settings with a mistake in them change nothing; gives those that are in force afterwards.
async function reload(
  inForce: ResolvedSettings,
  resolveAgain: () => ResolvedSettings,
  apply: (fresh: Settings) => Promise<Settings>,
  logger: Logger,
): Promise<ResolvedSettings> {
  let fresh;
  try {
    fresh = resolveAgain();
  } catch (error) {
    if (!(error instanceof SettingsError)) {
      throw error;
    }
    logger.error({ problems: error.problems }, 'SIGHUP: the settings have mistakes, the old ones stay');
    return inForce;
  }
  const settings = await apply(fresh.settings);
  // What stays as it was still comes from where it came from.
  const sources = { ...fresh.sources };
  for (const name of changedSettings(settings, fresh.settings)) {
    sources[name] = inForce.sources[name];
  }
  return { ...fresh, settings, sources };
}

// What one process can change while it serves, as the caller does; the rest belongs to listeners and calls that are
// there already.
const liveSettings = ['logLevel'] as const;

function applyLive(before: Settings, fresh: Settings, logger: Logger): Settings {
  const settings = { ...before, ...Object.fromEntries(liveSettings.map((name) => [name, fresh[name]])) };
  const changed = describeChanges(before, settings);
  const notApplied = describeChanges(settings, fresh);
  const log = loggerOfEveryLevel(logger);
  if (Object.keys(notApplied).length === 0) {
    log.info({ changed }, 'reloaded');
  } else {
    log.warn(
      { changed, notApplied },
      'reloaded LOG_LEVEL alone: one process changes no other setting, those in notApplied need a restart',
    );
  }
  return settings;
}

// For what is said whatever the log level is.
function loggerOfEveryLevel(logger: Logger): Logger {
  return logger.child({}, { level: 'info' });
}

function logReady(logger: Logger, { url, adminUrl }: WholeService, resolved: ResolvedSettings): void {
  const { settings, sources } = resolved;
  const inForce = Object.fromEntries(
    settingsOf('serve').map((name) => [
      name,
      sources[name] === 'default' ? settings[name] : `${showInForce(name, resolved)} (${sources[name]})`,
    ]),
  );
  // Said at every level: with port 0 it is the only place that tells the port [D31].
  loggerOfEveryLevel(logger).info(
    { url, adminUrl, version, node: process.version, settings: inForce },
    'ready',
  );
}

function describeServe(service: WholeService, resolved: ResolvedSettings): string {
  const { settings, sources } = resolved;
  const backendUrl = withoutEndSlashes(showValue('backendUrl', settings));
  const changed = settingsOf('serve')
    .filter((name) => sources[name] !== 'default')
    .map((name) => `${variableOf(name)}=${escapeControls(showInForce(name, resolved))} (${sources[name]})`);
  return `
${describePlaces(service, settings, `Backend             ${backendUrl}${backendPath}`)}
  Settings            ${changed.length === 0 ? 'every one at its default' : changed.join(`\n${' '.repeat(22)}`)}

  Ctrl-C stops.

`;
}
