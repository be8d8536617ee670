// The command `serve`: runs the gateway in one process or several, with reload on SIGHUP and graceful shutdown.

import { setImmediate as nextTurn, setTimeout as delay } from 'node:timers/promises';

import { createOpenSocket } from '../../core/hosts/dialing/open-socket.ts';
import { escapeControls } from '../../core/text/escape.ts';
import { withoutEndSlashes } from '../../core/text/addresses.ts';
import { backendPath } from '../../core/operations.ts';
import { version } from '../../core/version.ts';
import { probe, type BackendStatus } from '../../figures/backend-status.ts';
import { troubleOfReason, troubles } from '../../figures/troubles.ts';
import type { Log, Logger } from '../log/log.ts';
import { startLocalService } from '../service/local-service.ts';
import { listenForReloads, listenForStop, runUntilStopped, untilAborted } from '../service/lifecycle.ts';
import { startOnPorts } from '../service/listener.ts';
import { loadPart } from '../service/process-parts.ts';
import { findPassedSockets, openServiceManager, type ServiceManager, settingsOfSockets } from '../service/systemd.ts';
import { addAdmin, type InForce, type WholeService } from '../service/service.ts';
import {
  type ResolvedSettings,
  settingsOf,
  showInForce,
  showValue,
  variableOf,
  withSockets,
} from '../settings/settings.ts';
import type { CommandEntry, CommandRun } from './command.ts';
import { loggerOfEveryLevel, reload } from './reload.ts';
import { createWarner, describePlaces, openCertificates, withLog, wrap } from './running.ts';

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
        ? await startLocalService(settings, log, { tls, passed: passed.clients, parts })
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
    const { signal } = stop.wanted;
    const first = probeBackend(inForce, signal);
    let early: Awaited<typeof first>;
    if (log.hasReader) {
      early = await Promise.race([first, delay(summaryDelayMs, undefined)]);
      log.output.write(describeServe(service, inForce.resolved, early, terminal.columns));
    }
    warn(settings);
    log.output.flush();
    // The summary has shown an early trouble.
    void watchBackend(first, inForce, service, early === undefined, log.logger, signal);
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
const retryMs = 1_000;

// Connects to the backend once, without an HTTP request [D34].
async function probeBackend({ resolved, certificates }: InForce, end: AbortSignal): Promise<BackendStatus | undefined> {
  const open = createOpenSocket(resolved.settings.backendUrl, () => certificates.inForce.backend);
  // A socket that cannot even be created shows nothing about the backend.
  return await probe(open, end).catch(() => undefined);
}

// If the first connection has failed, warns, connects again every second, and logs when the backend accepts a connection.
async function watchBackend(
  first: ReturnType<typeof probeBackend>,
  inForce: InForce,
  service: WholeService,
  warns: boolean,
  logger: Logger,
  end: AbortSignal,
): Promise<void> {
  const addressOf = () => ({ backendUrl: showValue('backendUrl', inForce.resolved.settings) });
  let seen = await first;
  if (seen !== undefined) service.observeBackend(seen);
  if (seen?.cause === undefined) return;
  const { title, step } = troubles[troubleOfReason(seen.reason)];
  if (warns) logger.warn({ ...addressOf(), cause: seen.cause }, `${title}. ${step}`);
  while (seen?.isReachable !== true) {
    await delay(retryMs, undefined, { signal: end, ref: false }).catch(() => undefined);
    if (end.aborted) return;
    seen = await probeBackend(inForce, end);
    if (seen !== undefined) service.observeBackend(seen);
  }
  logger.info(addressOf(), 'the backend accepts connections now');
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

// The second column of the summary.
const indent = ' '.repeat(22);

function describeServe(
  service: WholeService,
  resolved: ResolvedSettings,
  backend: BackendStatus | undefined,
  columns: number | undefined,
): string {
  const { settings, sources } = resolved;
  const backendUrl = withoutEndSlashes(showValue('backendUrl', settings));
  const changed = settingsOf('serve')
    .filter((name) => sources[name] !== 'default')
    .map((name) => `${variableOf(name)}=${escapeControls(showInForce(name, resolved))} (${sources[name]})`);
  const { title, step } = troubles[troubleOfReason(backend?.reason)];
  const warning =
    backend?.cause === undefined
      ? ''
      : `\n  Warning             ${wrap(`${title}: ${escapeControls(backend.cause)}. ${step}`, columns, indent).trim()}`;
  return `
${describePlaces(service, settings, `Backend             ${backendUrl}${backendPath}${warning}`)}
  Settings            ${changed.length === 0 ? 'all at their defaults' : changed.join(`\n${indent}`)}

  Ctrl-C stops.

`;
}
