// The whole service: the serving processes (this process or several workers) and the admin listener.

import { normalizeHostName } from '../../core/admission/host-names.ts';
import type { Listener } from '../../core/hosts/common/listen.ts';
import { JoinedBackendStatus, type BackendStatus } from '../../figures/backend-status.ts';
import { createAdminServer } from '../admin/admin-server.ts';
import type { CertificateStore } from '../certificates/certificate-store.ts';
import type { Logger } from '../log/log.ts';
import { describeSettings, type ResolvedSettings, type Settings } from '../settings/settings.ts';
import { openListener } from './listener.ts';
import type { Service } from './lifecycle.ts';
import type { ServingProcesses, Parts } from './process-parts.ts';
import type { PassedSockets } from './systemd.ts';

/** The settings and certificates in force; a reload changes them. */
export interface InForce {
  resolved: ResolvedSettings;
  readonly certificates: CertificateStore;
}

export interface WholeService extends Service {
  readonly url: string;
  readonly adminUrl: string;
  readonly hasDashboard: boolean;
  /** Adds an observation of the backend to those of the calls. */
  readonly observeBackend: (seen: BackendStatus) => void;
}

/**
 * Adds the admin listener to the serving processes, and reloads the certificates when their files change. If the admin
 * listener cannot be opened, stops the serving processes and rejects with a StartError.
 */
export async function addAdmin(
  clients: ServingProcesses,
  inForce: InForce,
  logger: Logger,
  passed: PassedSockets,
  parts: Partial<Parts>,
): Promise<WholeService> {
  const { settings } = inForce.resolved;
  const settingsInForce = (): Settings => inForce.resolved.settings;
  let isDraining = false;
  const backend = new JoinedBackendStatus();
  const adminHost = normalizeHostName(settings.adminHost);
  const dashboard = await parts.dashboard?.();
  const admin = createAdminServer(
    {
      reports: async (request) => {
        const { living, ...others } = await clients.reports(request);
        return { living: backend.join(living), ...others };
      },
      isDraining: () => isDraining,
      allowedHosts: () => [adminHost, ...settingsInForce().adminAllowedHosts],
      onFault: (error) => logger.error({ err: error }, 'internal error of the admin listener'),
      facts: () => ({
        instanceName: settingsInForce().instanceName,
        url: clients.url,
        backendUrl: settingsInForce().backendUrl.href,
        inFlightMax: settingsInForce().inFlightMax,
        bufferedBytesMax: settingsInForce().bufferedBytesMax,
        certificates: inForce.certificates.status(),
        settings: describeSettings(inForce.resolved),
      }),
    },
    dashboard?.createDashboard,
  );
  let listener: Listener;
  try {
    listener = await openListener(admin.connections.listener, 'admin', settings, logger, passed.admin);
  } catch (error) {
    admin.endRecording();
    await clients.stop();
    throw error;
  }
  inForce.certificates.begin((tls) => clients.renewTls(tls));
  return {
    get url() {
      return clients.url;
    },
    adminUrl: listener.url,
    hasDashboard: dashboard !== undefined,
    observeBackend: (seen) => void backend.join([{ backend: seen }]),
    beginDrain: () => {
      isDraining = true;
      clients.beginDrain();
    },
    finishDrain: (signal) => clients.finishDrain(signal),
    stop: async () => {
      admin.endRecording();
      inForce.certificates.end();
      await Promise.all([clients.stop(), listener.close()]);
      admin.connections.closeAll();
    },
    hasFailed: () => clients.hasFailed?.() === true,
  };
}
