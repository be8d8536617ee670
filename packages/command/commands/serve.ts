// The command `serve`: runs the gateway in one process or several, with reload on SIGHUP and graceful shutdown.

import { setImmediate as nextTurn, setTimeout as delay } from 'node:timers/promises';

import { createOpenSocket, type ClientTls } from '../../core/hosts/dialing/open-socket.ts';
import { escapeControls } from '../../core/text/escape.ts';
import { withoutEndSlashes } from '../../core/text/addresses.ts';
import { backendPath } from '../../core/operations.ts';
import { version } from '../../core/version.ts';
import { probe } from '../../figures/backend-status.ts';
import { troubleOfReason, troubles, type Trouble } from '../../figures/troubles.ts';
import type { Log, Logger } from '../log/log.ts';
import { startClientService } from '../service/client-service.ts';
import { listenForReloads, listenForStop, runUntilStopped, untilAborted } from '../service/lifecycle.ts';
import { startOnPorts } from '../service/listener.ts';
import { loadPart } from '../service/parts.ts';
import { findPassedSockets, openServiceManager, type ServiceManager, settingsOfSockets } from '../service/systemd.ts';
import { addAdmin, type InForce, type WholeService } from '../service/service.ts';
import {
  type ResolvedSettings,
  type Settings,
  settingsOf,
  showInForce,
  showValue,
  variableOf,
  withSockets,
} from '../settings/settings.ts';
import type { CommandEntry, CommandRun } from './command.ts';
import { loggerOfEveryLevel, reload } from './reload.ts';
import { createWarner, describePlaces, openCertificates, withLog } from './running.ts';

export const serveCommand: CommandEntry = {
  summary: 'run the gateway (the default)',
  description: 'Runs the gateway in front of the backend at BACKEND_URL, as in production.',
  examples: ['--backend-url http://backend.internal:5104', '--host :: --port 8080 --workers auto --log-level warn'],
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
  const inForce: InForce = { resolved, certificates: openCertificates(settings, log.logger) };
  const stop = listenForStop(log.logger, terminal, terminal.isInteractive);
  const isStopping = (): boolean => stop.wanted.signal.aborted;
  const beginReloads = terminal.isInteractive ? undefined : listenForReloads(terminal.signals);
  const tls = inForce.certificates.inForce;
  const ownUses = (['clients', 'admin'] as const).filter((use) => passed[use].length === 0);
  const { clients, service } = await startOnPorts(ownUses, settings, log.logger, async () => {
    const started =
      settings.workers === 1
        ? await startClientService(settings, log, { tls, passed: passed.clients, parts })
        : await (
            await loadPart(parts, 'cluster', `WORKERS=${settings.workers}`)
          ).startPool(settings, log, tls, passed.clients);
    return { clients: started, service: await addAdmin(started, inForce, log.logger, passed, parts) };
  });
  inForce.resolved = withSockets(resolved, settingsOfSockets(passed, service.url, service.adminUrl));
  const warn = createWarner(terminal, log.logger);
  const notifyReady = (): void => manager.ready(`serving at ${service.url}`);
  // Lets Node deliver a signal that came during the start, because `ready` must not be reported after a stop signal.
  await nextTurn();
  if (!isStopping()) {
    if (!log.hasReader) logReady(log.logger, service, inForce.resolved);
    notifyReady();
    const trouble = findBackendTrouble(settings, tls.backend, stop.wanted.signal);
    let early: Awaited<typeof trouble>;
    if (log.hasReader) {
      early = await Promise.race([trouble, delay(summaryDelayMs, undefined)]);
      log.output.write(describeServe(service, inForce.resolved, early));
    }
    warn(settings);
    log.output.flush();
    void trouble.then((found) => {
      // The summary has shown an early trouble.
      if (found !== undefined && early === undefined)
        log.logger.warn({ cause: found.cause }, `${found.title}. ${found.step}`);
    });
  }
  void untilAborted(stop.wanted.signal).then(() => manager.stopping());
  beginReloads?.(async () => {
    if (isStopping()) {
      log.logger.warn('SIGHUP ignored: the gateway is stopping');
      return;
    }
    manager.reloading();
    if (await reload(inForce, clients, resolveAgain, log, isStopping)) {
      warn(inForce.resolved.settings);
    }
    if (!isStopping()) notifyReady();
  });
  return await runUntilStopped(service, () => inForce.resolved.settings, log.logger, stop);
}

// Longest time that the summary on a terminal waits for the backend.
const summaryDelayMs = 250;

/**
 * Connects to the backend once, without an HTTP request [D34]. Resolves with undefined if the backend accepts the connection,
 * or if `end` was aborted.
 */
async function findBackendTrouble(
  { backendUrl }: Settings,
  tls: ClientTls | undefined,
  end: AbortSignal,
): Promise<(Trouble & { readonly cause: string }) | undefined> {
  const open = createOpenSocket(backendUrl, () => tls);
  // A socket that cannot even be created shows nothing about the backend.
  const { cause, reason } = (await probe(open, end).catch(() => undefined)) ?? {};
  return cause === undefined ? undefined : { cause, ...troubles[troubleOfReason(reason)] };
}

function logReady(logger: Logger, { url, adminUrl }: WholeService, resolved: ResolvedSettings): void {
  const { settings, sources } = resolved;
  const inForce = Object.fromEntries(
    settingsOf('serve').map((name) => [
      name,
      sources[name] === 'default' ? settings[name] : `${showInForce(name, resolved)} (${sources[name]})`,
    ]),
  );
  // This line is written at every log level, because with port 0 no other line has the port [D31].
  loggerOfEveryLevel(logger).info({ url, adminUrl, version, node: process.version, settings: inForce }, 'ready');
}

function describeServe(
  service: WholeService,
  resolved: ResolvedSettings,
  trouble: Awaited<ReturnType<typeof findBackendTrouble>>,
): string {
  const { settings, sources } = resolved;
  const backendUrl = withoutEndSlashes(showValue('backendUrl', settings));
  const changed = settingsOf('serve')
    .filter((name) => sources[name] !== 'default')
    .map((name) => `${variableOf(name)}=${escapeControls(showInForce(name, resolved))} (${sources[name]})`);
  const warning =
    trouble === undefined
      ? ''
      : `\n  Warning             ${trouble.title}: ${escapeControls(trouble.cause)}. ${trouble.step}`;
  return `
${describePlaces(service, settings, `Backend             ${backendUrl}${backendPath}${warning}`)}
  Settings            ${changed.length === 0 ? 'all at their defaults' : changed.join(`\n${' '.repeat(22)}`)}

  Ctrl-C stops.

`;
}
